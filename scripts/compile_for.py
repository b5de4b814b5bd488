"""Compiles programs for an accelerator that is not at hand, and records what its compiler says.

    make compile-tpu                              # all programs for a TPU v5e: hours
    make compile-tpu ONLY='attention/t5/*'
    make compile-gpu ONLY='attention/t5/*'        # for an H100
    python scripts/compile_for.py v5e --only='attention/*/dense/forward,step/*'
    python scripts/compile_for.py v5e --only=attention/t5/dense/forward --check

Writes results/accelerators.json, and docs/accelerators.md from it. Each program is compiled in a
process of its own, one after another. A program that the file has from the same compiler, with the
same text before compilation, is not compiled again. A program that fails, or that takes longer than
--seconds, is a line of the table. With --check nothing is written: the status is 1 if a number
differs from the committed one by more than a tenth.
"""

import argparse
import datetime
import fnmatch
import importlib.metadata
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # the package need not be installed

from scripts.accelerators import chips, page
from scripts.accelerators.chips import CHIPS

ROOT = Path(__file__).parents[1]
TOLERANCE = 0.1


def compiled(chip: str, name: str, known: str, seconds: float) -> dict[str, Any]:
    """Returns what `accelerators.compiled` prints, or {"failed": why}."""
    with tempfile.TemporaryDirectory() as dump:
        command = [sys.executable, "-m", "scripts.accelerators.compiled", chip, name, dump, known]
        environment = {**os.environ, **chips.environment(chip, dump)}
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
    return json.loads(ended.stdout.splitlines()[-1])


def made(chip: str) -> dict[str, str]:
    """Returns with what the programs were compiled."""
    versions = {name: importlib.metadata.version(name) for name in CHIPS[chip].packages}
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    return {**versions, "date": str(datetime.date.today()), "machine": machine}


def chosen(chip: str, only: str) -> list[str]:
    """Returns the names of the programs that match a pattern, in the order of the patterns."""
    os.environ.update(chips.environment(chip, ""))
    from posenc_jax.backends.target import compile_for
    from scripts.accelerators.programs import programs, taken

    names, found = list(programs()), {}
    for pattern in only.split(","):
        if not (matching := fnmatch.filter(names, pattern)):
            raise SystemExit(f"--only: {pattern!r} matches none of {', '.join(names[:3])}, ...")
        found |= dict.fromkeys(matching)

    def can_be(name: str) -> bool:
        kind, method, form, *_ = name.split("/")
        if kind != "attention" or form == "dense":
            return True
        with compile_for(CHIPS[chip].backend):
            return taken(method, form)

    return [name for name in found if can_be(name)]


def differences(found: Any, committed: Any, path: str = "") -> list[str]:
    """Returns a line for each number that is not within a tenth of the committed one."""
    if isinstance(found, dict) and isinstance(committed, dict):
        skip = ("key", "cpu_seconds")
        keys = [key for key in {**committed, **found} if key not in skip]
        pairs = [(found.get(key), committed.get(key), f"{path}/{key}") for key in keys]
    elif isinstance(found, list) and isinstance(committed, list) and len(found) == len(committed):
        both = zip(found, committed, strict=True)
        pairs = [(a, b, f"{path}/{n}") for n, (a, b) in enumerate(both)]
    elif isinstance(found, int | float) and isinstance(committed, int | float):
        far = abs(found - committed) > TOLERANCE * abs(committed)
        return [f"{path}: {found}, committed {committed}"] if far else []
    else:
        return [] if found == committed else [f"{path}: {found}, committed {committed}"]
    return [line for pair in pairs for line in differences(*pair)]


def check(chip: str, names: list[str], known: dict[str, Any], seconds: float) -> list[str]:
    """Returns the differences of all these programs."""
    return [
        line
        for name in names
        for line in differences(compiled(chip, name, "", seconds), known.get(name), name)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("chip", choices=CHIPS)
    parser.add_argument("--only", default="*", help="patterns of names, with commas between them")
    parser.add_argument("--seconds", type=float, default=1800.0, help="the most for one program")
    parser.add_argument("--check", action="store_true", help="compares, and writes nothing")
    parser.add_argument("--to", type=Path, default=ROOT, metavar="DIR",
                        help="what holds docs/ and results/; default: the repository")  # fmt: skip
    args = parser.parse_args()
    path = args.to / "results" / "accelerators.json"
    raw = json.loads(path.read_text("utf-8")) if path.exists() else {}
    record = raw.setdefault(args.chip, {"made": {}, "programs": {}})
    known, names = record["programs"], chosen(args.chip, args.only)
    if args.check:
        lines = check(args.chip, names, known, args.seconds)
        raise SystemExit("\n".join(lines) if lines else 0)
    for name in names:
        before = known.get(name, {})
        found = compiled(args.chip, name, before.get("key", ""), args.seconds)
        same = list(found) == ["key"]
        print(f"{name}: {'as before' if same else json.dumps(found)}", flush=True)
        if not same:
            known[name], record["made"] = found, made(args.chip)
            path.write_text(json.dumps(raw, indent=1) + "\n", "utf-8")
            (args.to / "docs" / "accelerators.md").write_text(page.page(raw), "utf-8")


if __name__ == "__main__":
    main()
