"""Compiles one program in a process of its own, and prints what the compiler says as JSON.

python -m scripts.accelerators.compiled CHIP PROGRAM DIRECTORY [KEY]

Prints {"key"} alone if the program is the one of KEY.
"""

import hashlib
import importlib.metadata
import json
import math
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from scripts.accelerators import chips
from scripts.collectives import collectives

UNFUSED = ("get-tuple-element", "tuple", "bitcast", "parameter", "while", "conditional")
LINE = re.compile(r"^\s+(?:ROOT )?%?(?P<name>[\w.\-]+) = (?P<type>\(.*?\)|\S+) (?P<kind>[\w\-]+)\(")


class Instruction(NamedTuple):
    """An instruction outside of fusions; `rounds`: how often its bundles run, by its window."""

    name: str
    type: str
    kind: str
    computation: str
    rounds: int


def main(chip: str, name: str, dump: str, known: str = "") -> None:
    from posenc_jax.tuning import compile_for
    from scripts.accelerators.programs import programs

    program, kind = programs()[name], chips.CHIPS[chip]
    with compile_for(kind.backend, chips.devices(kind, program.chips)):
        lowered = program.lower()
        versions = [importlib.metadata.version(package) for package in kind.packages]
        text = "\n".join([chip, *versions, lowered.as_text()])
        found: dict[str, Any] = {"key": hashlib.sha256(text.encode()).hexdigest()[:16]}
        if found["key"] != known:
            started = time.perf_counter()
            made = lowered.compile()
            found["compile_seconds"] = round(time.perf_counter() - started, 1)
            found |= analysis(made, program.tokens, dump)
    print(json.dumps(found))


def analysis(made: Any, tokens: int, dump: str) -> dict[str, Any]:
    """Returns what is recorded of a compiled program; see docs/accelerators.md."""
    memory, cost, text = made.memory_analysis(), made.cost_analysis() or {}, made.as_text() or ""
    found = list(instructions(text))
    loops = sum(one.kind == "while" for one in found)
    return {
        "arguments": memory.argument_size_in_bytes,
        "outputs": memory.output_size_in_bytes - memory.alias_size_in_bytes,
        "temporary": memory.temp_size_in_bytes,
        "loops": loops,
        "bytes": None if loops else int(cost["bytes accessed"]),
        "flops": None if loops else int(cost["flops"]),
        "bundles": bundles(found, text, Path(dump)),
        "collectives": communication(text),
        "squares": squares(found, tokens),
    }


def instructions(text: str) -> Iterator[Instruction]:
    """Yields the instructions of a program's text that are not a part of a fusion."""
    fused = set(re.findall(r"fusion\(.*calls=%?([\w.\-]+)", text))
    computation = ""
    for line in text.splitlines():
        if line.endswith("{") and not line.startswith(" "):
            computation = line.removeprefix("ENTRY ").split()[0].lstrip("%")
        elif (match := LINE.match(line)) and computation not in fused:
            bounds = re.search(r'"iteration_bounds":\[([^\]]*)\]', line)
            rounds = math.prod(map(int, re.findall(r"\d+", bounds[1]))) if bounds else 1
            yield Instruction(match["name"], match["type"], match["kind"], computation, rounds)


def bundles(found: list[Instruction], text: str, dump: Path) -> dict[str, Any]:
    """Returns instruction bundles times rounds: outside of loops, in one pass of the body of each
    loop without those of loops inside it (the largest first), and of each Pallas kernel.
    """
    counts: Counter[str] = Counter()
    for path in dump.glob("*-final_bundles.txt"):
        name = re.sub(r"^\d+-(.*)-\d+-final_bundles$", r"\1", path.stem)
        counts[name] += len(re.findall(r"^ *(?:0x)?[0-9a-f]+ .*?: [ >]*\{", path.read_text(), re.M))
    bodies = dict.fromkeys(re.findall(r"body=%?([\w.\-]+)", text), 0)
    outside = 0
    for one in found:
        if one.computation in bodies:
            bodies[one.computation] += counts[one.name] * one.rounds
        else:
            outside += counts[one.name] * one.rounds
    kernels = re.findall(r'%?([\w.\-]+) = .*custom_call_target="tpu_custom_call"', text)
    return {
        "outside": outside,
        "bodies": sorted(bodies.values(), reverse=True),
        "kernels": {name: counts[name] for name in kernels},
    }


def communication(text: str) -> dict[str, list[int]]:
    """Returns {kind: [number, bytes of all, bytes of the largest]} of the collectives."""
    found: dict[str, list[int]] = {}
    for one in collectives(text):
        number, total, most = found.get(one.kind, (0, 0, 0))
        found[one.kind] = [number + 1, total + one.bytes, max(most, one.bytes)]
    return found


def squares(found: list[Instruction], tokens: int) -> dict[str, int]:
    """Returns {type: number} of arrays outside of fusions with two axes of at least `tokens`."""
    types: Counter[str] = Counter()
    for one in found:
        if one.kind not in UNFUSED:
            for dtype, shape in re.findall(r"\b([a-z]+\d*)\[([\d,]*)\]", one.type):
                if sum(int(size) >= tokens for size in shape.split(",") if size) > 1:
                    types[f"{dtype}[{shape}]"] += 1
    return dict(types)


if __name__ == "__main__":
    main(*sys.argv[1:])
