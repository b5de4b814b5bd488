"""Compiles our programs for a TPU or GPU that is not at hand, and writes what each one needs.

    make compile-tpu                              # all programs for a TPU v5e: hours
    make compile-tpu ONLY='attention/t5/*'
    make compile-gpu ONLY='attention/t5/*'        # for an H100
    python scripts/compile_for.py v5e --only='attention/*/dense/forward,step/*'
    python scripts/compile_for.py v5e --only=attention/t5/dense/forward --check

Answers: does it compile, how much memory does it take, how much does its largest collective send,
and how long does it take to compile. Writes results/accelerators.json, and the table of
docs/speed.md from it.

Each program is compiled in a process of its own, one after another. A program that the file has
from the same compiler, with the same text before compilation, is not compiled again. A program that
fails, or that takes longer than --seconds, is counted in the table as one that does not compile.
With --check nothing is written: the status is 1 if a program's memory or collectives differ from
the committed ones by more than a tenth.
"""

import datetime
import fnmatch
import hashlib
import importlib.metadata
import json
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # the package need not be installed

from posenc_jax.lab.hosts import chips
from posenc_jax.lab.hosts.chips import COMPILED
from posenc_jax.lab.hosts.files import write_text
from posenc_jax.lab.hosts.flags import Flags
from posenc_jax.lab.report.formats import counted
from posenc_jax.lab.report.markdown import replace_between

ROOT = Path(__file__).parents[1]
TOLERANCE = 0.1
BEGIN, END = "<!-- table: python scripts/compile_for.py -->", "<!-- end of table -->"
BEGIN_MODELS = "<!-- table of language models: python scripts/compile_for.py -->"
END_MODELS = "<!-- end of table of language models -->"
BEGIN_MOSAIC = "<!-- table of kernels in Mosaic: python scripts/compile_for.py -->"
END_MOSAIC = "<!-- end of table of kernels in Mosaic -->"
UTILIZATIONS = (0.2, 0.4)  # of a chip's peak in bfloat16
SIZES = ("arguments", "outputs", "temporary", "collectives")  # what --check compares


def compile_one(chip: str, name: str, known_key: str) -> dict[str, Any]:
    """Compiles a program in this process; returns its record, or {"key"} if that is `known_key`.

    arguments, outputs, temporary: bytes on one chip; outputs without those that reuse arguments.
    collectives: kind -> [number, bytes of all, bytes of the largest].
    kernels: of those in Mosaic, name -> [registers, bytes spilled], see `mosaic_kernels`.
    cpu_seconds: of all threads, for compiling.
    """
    from posenc_jax.backends.target import compile_for
    from scripts.accelerators.collectives import collectives
    from scripts.accelerators.programs import programs

    program, kind = programs()[name], COMPILED[chip]
    on = chips.devices(kind, program.chips)
    with compile_for(kind.backend, on), chips.traced_for(kind, on[0]):
        lowered = program.lower()
        versions = [importlib.metadata.version(package) for package in kind.packages]
        text = "\n".join([chip, *versions, lowered.as_text()])
        key = hashlib.sha256(text.encode()).hexdigest()[:16]
        if key == known_key:
            return {"key": key}
        started = time.process_time()
        compiled = lowered.compile()
        seconds = time.process_time() - started
    memory, by_kind = compiled.memory_analysis(), {}
    for collective in collectives(compiled.as_text() or ""):
        number, total, largest = by_kind.get(collective.kind, (0, 0, 0))
        size = collective.bytes
        by_kind[collective.kind] = [number + 1, total + size, max(largest, size)]
    return {
        "key": key,
        "cpu_seconds": round(seconds, 1),
        "arguments": memory.argument_size_in_bytes,
        "outputs": memory.output_size_in_bytes - memory.alias_size_in_bytes,
        "temporary": memory.temp_size_in_bytes,
        "collectives": by_kind,
        **({} if program.facts is None else {"model": program.facts()}),
    }


def compile_apart(chip: str, name: str, known_key: str, seconds: float) -> dict[str, Any]:
    """Returns what `compile_one` does, from a process of its own; or {"failed": the reason}."""
    command = [sys.executable, __file__, chip, f"--program={name}", f"--key={known_key}"]
    environment = {**os.environ, **chips.environment(chip)}
    try:
        ended = subprocess.run(
            command, cwd=ROOT, env=environment, timeout=seconds, capture_output=True, text=True
        )
    except subprocess.TimeoutExpired:
        return {"failed": f"not compiled within {seconds:.0f} s"}
    if ended.returncode:
        errors = [
            line for line in ended.stderr.splitlines() if re.match(r"[\w.]+(Error|Exception)", line)
        ]
        return {"failed": errors[-1][:200] if errors else f"status {ended.returncode}"}
    record = json.loads(ended.stdout.splitlines()[-1])
    kernels = mosaic_kernels(ended.stderr + ended.stdout)
    return {**record, "kernels": kernels} if kernels and "failed" not in record else record


def mosaic_kernels(said: str) -> dict[str, list[int]]:
    """Returns the most registers of a thread, and bytes that it spills, of each kernel in Mosaic.

    said: what ptxas says of all kernels; "1 bytes smem" is not what a kernel asks for when it runs.
    """
    kernels: dict[str, list[int]] = {}
    for name, text in re.findall(
        r"entry function '(\w+)_mosaic_gpu_kernel'(.*?)registers", said, re.S
    ):
        numbers = [int(re.findall(pattern, text)[-1])
                   for pattern in (r"Used (\d+)", r"(\d+) bytes spill stores")]  # fmt: skip
        before = kernels.setdefault(name, [0, 0])
        kernels[name] = [max(pair) for pair in zip(before, numbers, strict=True)]
    return kernels


def versions(chip: str) -> dict[str, str]:
    """Returns the compiler's versions, the date and the machine."""
    packages = {name: importlib.metadata.version(name) for name in COMPILED[chip].packages}
    cores = counted(os.cpu_count() or 1, "core")
    machine = f"{cores}, {platform.machine()}, Python {platform.python_version()}"
    return {**packages, "date": str(datetime.date.today()), "machine": machine}


def matching(chip: str, only: str) -> list[str]:
    """Returns the names of the programs that match a pattern, in the order of the patterns."""
    os.environ.update(chips.environment(chip))
    from posenc_jax.backends.target import compile_for
    from scripts.accelerators.programs import programs, takes_form

    slices = {1, 2, 4, *COMPILED[chip].slices}
    names = [name for name, program in programs().items() if program.chips in slices]
    chosen = {}
    for pattern in only.split(","):
        if not (those := fnmatch.filter(names, pattern)):
            raise SystemExit(f"--only: {pattern!r} matches none of {', '.join(names[:3])}, ...")
        chosen |= dict.fromkeys(those)

    def can_be(name: str) -> bool:
        kind, method, form, *_ = name.split("/")
        if kind == "lm":
            return (form == "1") == (not COMPILED[chip].slices)
        if kind != "attention" or form == "dense":
            return True
        if form == "mosaic":
            return COMPILED[chip].backend == "gpu"
        with compile_for(COMPILED[chip].backend):
            return takes_form(method, form)

    return [name for name in chosen if can_be(name)]


def differences(record: Any, committed: Any, path: str) -> list[str]:
    """Returns a line for each size of a program that is not within a tenth of the committed one."""
    if not committed or "failed" in record or "failed" in committed:
        return [] if record == committed else [f"{path}: {record}, committed {committed}"]
    lines = []
    for size in SIZES:
        sizes, wanted = _flat(record[size]), _flat(committed[size])
        near = [abs(a - b) <= TOLERANCE * abs(b) for a, b in zip(sizes, wanted, strict=False)]
        if len(sizes) != len(wanted) or not all(near):
            lines.append(f"{path}/{size}: {record[size]}, committed {committed[size]}")
    return lines


def _flat(size: int | Mapping[str, Sequence[int]]) -> list[int]:
    return [size] if isinstance(size, int) else [n for row in size.values() for n in row]


def table(raw: Mapping[str, Any]) -> str:
    """Returns the table in Markdown: a row for each group of programs, columns for each chip.

    A group has the programs that differ in the method or the experiment alone.
    """
    groups: dict[str, dict[str, list[str]]] = {}
    for chip, record in raw.items():
        for name in sorted(name for name, one in record["programs"].items() if "model" not in one):
            groups.setdefault(group(name), {}).setdefault(chip, []).append(name)
    columns = ("compile", "memory, MB", "CPU s")
    head = ["program", *(f"{chip}: {column}" for chip in raw for column in columns), "collective"]
    rows = [head, ["---"] * len(head)]
    for name in sorted(groups, key=_by_length):
        row = [f"`{name}`"]
        largest = (0.0, "")
        for chip, record in raw.items():
            names = groups[name].get(chip, [])
            compiled = {
                n: record["programs"][n] for n in names if "failed" not in record["programs"][n]
            }
            row.append(f"{len(compiled)} of {len(names)}" if names else "")
            row += [
                _most(compiled, "temporary", 1e6, name),
                _most(compiled, "cpu_seconds", 1, name),
            ]
            for program in compiled.values():
                for kind, (_, _, size) in program["collectives"].items():
                    largest = max(largest, (size / 1e6, kind))
        rows.append([*row, f"{largest[0]:.1f} MB, {largest[1]}" if largest[1] else ""])
    notes = [
        f"{chip}: {len(record['programs'])} programs. Last compiled with "
        + ", ".join(f"{key} {value}" for key, value in record["made"].items()) + "."
        for chip, record in raw.items()
    ]  # fmt: skip
    failed = [f"- {chip}, `{name}`: {program['failed']}"
              for chip, record in raw.items() for name, program in record["programs"].items()
              if "failed" in program]  # fmt: skip
    return "\n".join([*map(_line, rows), "", *notes, *failed])


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def models_table(raw: Mapping[str, Any]) -> str:
    """Returns the table of language models in Markdown: what a step takes on one chip, and the
    speed and chip-hours that a utilization of .2 and .4 would give.
    """
    head = ["language model", "chips", "parameters, M", "tokens a step", "state + step, GB a chip",
            "largest collective",
            *(f"tokens/s at MFU {mfu}" for mfu in UTILIZATIONS),
            *(f"chip-hours at {mfu}" for mfu in UTILIZATIONS)]  # fmt: skip
    rows = [head, ["---"] * len(head)]
    for chip, record in raw.items():
        peak = max(COMPILED[chip].peaks.values())
        compiled = [
            (int(name.split("/")[2]), program["model"]["parameters"], name, program)
            for name, program in record["programs"].items()
            if "model" in program
        ]
        for count, _, name, program in sorted(compiled, key=lambda row: row[:2]):
            model, size = program["model"], name.split("/")[1]
            speeds = [mfu * peak * count / model["flops_per_token"] for mfu in UTILIZATIONS]
            tokens = model["tokens_per_step"] * model["steps"]
            sent = [(kind, size / 1e6) for kind, (*_, size) in program["collectives"].items()]
            config = "lm.py" if size == "default" else f"lm.py:{size}"
            rows.append([
                f"`{config}`", f"{count} {chip}", f"{model['parameters'] / 1e6:,.0f}",
                f"{model['tokens_per_step']:,}",
                _short((program["arguments"] + program["temporary"]) / 1e9),
                "{1:,.0f} MB, {0}".format(*max(sent, key=lambda kind: kind[1])) if sent else "",
                *(f"{speed:,.0f}" for speed in speeds),
                *(_short(tokens / speed * count / 3600) for speed in speeds),
            ])  # fmt: skip
    return "\n".join(map(_line, rows))


def mosaic_table(raw: Mapping[str, Any]) -> str:
    """Returns the table of kernels in Mosaic in Markdown: the most that a thread of each takes."""
    most: dict[tuple[str, str], list[tuple[int, int, str]]] = {}
    for record in raw.values():
        for name, program in record["programs"].items():
            _, method, *_, head = name.split("/")
            for kernel, numbers in program.get("kernels", {}).items():
                most.setdefault((kernel, head), []).append((*numbers, method))
    head = ["kernel", "channels", "registers", "bytes spilled", "of"]
    rows = [head, ["---"] * len(head)]
    for (kernel, channels), programs in sorted(most.items()):
        registers, _, method = max(programs)
        spilled = max(program[1] for program in programs)
        rows.append([f"`{kernel}`", channels, str(registers), str(spilled), method])
    return "\n".join(map(_line, rows))


def _short(number: float) -> str:
    if number < 1e-3:
        return "<0.001"
    return f"{number:,.1f}" if number >= 1 else f"{number:.2g}"


def group(name: str) -> str:
    """Returns the name of a program with "*" for its method or experiment."""
    kind, _, *rest = name.split("/")
    return name if kind == "reading" else "/".join([kind, "*", *rest])


def _by_length(name: str) -> list[Any]:
    return [(part.isdigit(), int(part) if part.isdigit() else part) for part in name.split("/")]


def _most(programs: Mapping[str, Any], size: str, unit: float, group: str) -> str:
    """Returns the largest size of a group, with the method that has it."""
    sizes = {name: p[size] / unit for name, p in programs.items() if size in p}
    if not sizes:
        return ""
    name = max(sizes, key=sizes.__getitem__)
    method = f" ({name.split('/')[1]})" if "*" in group and len(programs) > 1 else ""
    return f"{sizes[name]:,.0f}{method}" if sizes[name] >= 10 else f"{sizes[name]:.1f}{method}"


def main() -> None:
    parser = Flags(__doc__)
    parser.add_argument("chip", choices=COMPILED)
    parser.add_argument("--only", default="*", help="patterns of names, with commas between them")
    parser.add_argument("--seconds", type=float, default=1800.0, help="the most for one program")
    parser.add_argument("--check", action="store_true", help="compares, and writes nothing")
    parser.add_argument("--program", help="compiles this one here, and prints its record")
    parser.add_argument("--key", default="", help="of the program as it was compiled before")
    args = parser.parse_args()
    if args.program:
        print(json.dumps(compile_one(args.chip, args.program, args.key)))
        return
    path = ROOT / "results" / "accelerators.json"
    raw = json.loads(path.read_text("utf-8")) if path.exists() else {}
    record = raw.setdefault(args.chip, {"made": {}, "programs": {}})
    programs, names = record["programs"], matching(args.chip, args.only)
    if args.check:
        apart = {name: compile_apart(args.chip, name, "", args.seconds) for name in names}
        lines = [line for name, record in apart.items()
                 for line in differences(record, programs.get(name), name)]  # fmt: skip
        raise SystemExit("\n".join(lines) if lines else 0)
    for name in names:
        before = programs.get(name, {})
        compiled = compile_apart(args.chip, name, before.get("key", ""), args.seconds)
        if unchanged := list(compiled) == ["key"]:
            print(f"{name}: as before", flush=True)
        else:
            print(f"{name}: {json.dumps(compiled)}", flush=True)
        if not unchanged:
            programs[name], record["made"] = compiled, versions(args.chip)
            write_text(path, json.dumps(raw, indent=1) + "\n")
            page = ROOT / "docs" / "speed.md"
            replace_between(page, table(raw), BEGIN, END)
            replace_between(page, models_table(raw), BEGIN_MODELS, END_MODELS)
            replace_between(page, mosaic_table(raw), BEGIN_MOSAIC, END_MOSAIC)


if __name__ == "__main__":
    main()
