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
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from scripts.accelerators import chips
from scripts.accelerators.page import HEADS
from scripts.collectives import collectives

FREE = ("constant", "iota", "get-tuple-element", "tuple", "bitcast", "parameter", "partition-id")
BRANCH = 100  # bundles of a large region of a kernel
BUNDLE = re.compile(r"^ *(?:0x)?([0-9a-f]+) .*?: ([ >]*)\{", re.M)
EXIT = re.compile(r"scmp\.ge\.s32\.totalorder %(\w+)_\w+, (\d+) +/\* loop exit test")
APPLYING = "all-reduce|map|reduce|scatter|select-and-scatter|sort"
UNFUSED = ("get-tuple-element", "tuple", "bitcast", "parameter", "while", "conditional")
CHOSEN = re.compile(r"(?:branch_computations=\{(.*?)\}|(?:true|false)_computation=([%\w.\-]+))")
LINE = re.compile(r"^\s+(?:ROOT )?%?(?P<name>[\w.\-]+) = (?P<type>\(.*?\)|\S+) (?P<kind>[\w\-]+)\(")


class Instruction(NamedTuple):
    """An instruction outside of fusions.

    rounds: how often its bundles run by its window; those of a loop's body, 0 if not known.
    body:   of a loop.
    branches: computations of which a conditional runs one.
    """

    name: str
    type: str
    kind: str
    computation: str
    rounds: int
    body: str = ""
    branches: Sequence[str] = ()


def main(chip: str, name: str, dump: str, known: str = "") -> None:
    from posenc_jax.backends.target import compile_for
    from scripts.accelerators.programs import programs

    program, kind = programs()[name], chips.CHIPS[chip]
    with compile_for(kind.backend, chips.devices(kind, program.chips)):
        lowered = program.lower()
        versions = [importlib.metadata.version(package) for package in kind.packages]
        text = "\n".join([chip, *versions, lowered.as_text()])
        found: dict[str, Any] = {"key": hashlib.sha256(text.encode()).hexdigest()[:16]}
        if found["key"] != known:
            started = time.process_time()
            made = lowered.compile()
            found["cpu_seconds"] = round(time.process_time() - started, 1)
            found |= analysis(made, program.tokens, dump if kind.backend == "tpu" else "")
    print(json.dumps(found))


def analysis(made: Any, tokens: int, dump: str) -> dict[str, Any]:
    """Returns what is recorded of a compiled program; see docs/accelerators.md.

    dump: where a TPU's compiler wrote its listings; "" of a GPU, whose compiler counts no bytes.
    """
    memory, cost, text = made.memory_analysis(), made.cost_analysis() or {}, made.as_text() or ""
    found = list(instructions(text))
    loops = sum(one.kind == "while" for one in found)
    static = bundles(found, text, Path(dump)) if dump else launches(found)
    counted = cost and not loops and not static["kernels"]
    return {
        "arguments": memory.argument_size_in_bytes,
        "outputs": memory.output_size_in_bytes - memory.alias_size_in_bytes,
        "temporary": memory.temp_size_in_bytes,
        "loops": loops,
        "bytes": int(cost["bytes accessed"]) if counted else None,
        "flops": int(cost["flops"]) if counted else None,
        "bundles": static,
        "collectives": communication(text),
        "squares": squares(found, tokens),
    }


def instructions(text: str) -> Iterator[Instruction]:
    """Yields the instructions of a program's text that are not a part of a fusion, nor of what a
    reduction or a sort does with two numbers.
    """
    fused = set(re.findall(r"fusion\(.*calls=%?([\w.\-]+)", text))
    fused |= set(re.findall(rf" (?:{APPLYING})[\w\-]*\(.*to_apply=%?([\w.\-]+)", text))
    computation = ""
    for line in text.splitlines():
        if line.endswith("{") and not line.startswith(" "):
            computation = line.removeprefix("ENTRY ").split()[0].lstrip("%")
        elif (match := LINE.match(line)) and computation not in fused:
            bounds = re.search(r'"iteration_bounds":\[([^\]]*)\]', line)
            rounds = math.prod(map(int, re.findall(r"\d+", bounds[1]))) if bounds else 1
            body = re.search(r" while\(.* body=%?([\w.\-]+)", line)
            if body:
                trips = re.search(r'"known_trip_count":\{"n":"(\d+)"\}', line)
                rounds = int(trips[1]) if trips else 0
            chosen = " ".join(several or one for several, one in CHOSEN.findall(line))
            branches = re.findall(r"[\w.\-]+", chosen)
            named = match["name"], match["type"], match["kind"]
            yield Instruction(*named, computation, rounds, body[1] if body else "", branches)


def bundles(found: list[Instruction], text: str, dump: Path) -> dict[str, Any]:
    """Returns instruction bundles times rounds, as `by_loop` has them, and `visits` of each Pallas
    kernel.
    """
    listings = {
        re.sub(r"^\d+-(.*)-\d+-final_bundles$", r"\1", path.stem): path.read_text()
        for path in dump.glob("*-final_bundles.txt")
    }
    kernels = re.findall(r'%?([\w.\-]+) = .*custom_call_target="tpu_custom_call"', text)
    kernels = [name for name in kernels if name in listings]
    counts = {name: len(BUNDLE.findall(listings[name])) for name in listings.keys() - kernels}
    visited = {name: visits(listings[name]) for name in kernels}
    return {**by_loop(found, counts), "kernels": visited}


def launches(found: list[Instruction]) -> dict[str, Any]:
    """Returns how often a GPU starts a kernel, as `by_loop` has it."""
    counts = {one.name: 1 for one in found if one.kind not in FREE}
    return {**by_loop(found, counts), "kernels": {}}


def by_loop(found: list[Instruction], counts: Mapping[str, int]) -> dict[str, Any]:
    """Returns the sum of counts times rounds: outside of loops; and [one pass, passes] of each
    loop's body without the loops inside it, the largest first, passes 0 if not known. Of a
    conditional all branches count: in blockwise attention one of two does nothing.
    """
    loops = {one.body: one for one in found if one.body}
    chosen_in = {branch: one.computation for one in found for branch in one.branches}
    once = dict.fromkeys(("", *loops), 0)

    def loop_of(computation: str) -> str:
        while computation in chosen_in:
            computation = chosen_in[computation]
        return computation if computation in loops else ""

    for one in found:
        if not one.body:
            once[loop_of(one.computation)] += counts.get(one.name, 0) * one.rounds

    def passes(body: str) -> int:
        loop = loops[body]
        outer = loop_of(loop.computation)
        return loop.rounds * (passes(outer) if outer else 1)

    outside = once.pop("")
    bodies = sorted(([size, passes(body)] for body, size in once.items()), reverse=True)
    return {"outside": outside, "bodies": bodies}


def visits(listing: str) -> list[int]:
    """Returns the bundles of a kernel's two largest branches, for blocks without and with a mask.

    Where it has loops, they make a traced bias with its mask, of all heads. One branch is then for
    all blocks; to it are added, divided by the heads, the loops and the next largest branch, which
    turns what they read of keys.
    """
    found, looped = branches(listing), loops(listing)
    return [found[-1] + round((looped + sum(found[:-1])) / HEADS)] if looped else found


def loops(listing: str) -> int:
    """Returns the bundles of a kernel's loops times their passes, which count up from 0."""
    bodies, inside = [], False
    for line in listing.splitlines():
        if bundle := BUNDLE.match(line):
            inside = bundle[2].count(">") > 1 or (inside and line.endswith("{}"))
            if inside and "LB:" in line:
                bodies.append([])
            if inside:
                bodies[-1].append(line)
    total = 0
    for body in bodies:
        text = "\n".join(body)
        (counter, end), *_ = EXIT.findall(text)
        step, *_ = re.findall(rf"%{counter}_\w+ = sadd\.s32 (\d+),", text)
        total += len(body) * int(end) // int(step)
    return total


def branches(listing: str) -> list[int]:
    """Returns the bundles of the two largest regions without a large one inside, smaller first;
    loops are no regions.
    """
    at, starts, leaves = 0, {}, []
    for line in listing.splitlines():
        if bundle := BUNDLE.match(line):
            if bundle[2].count(">") > 1:
                continue
            at = int(bundle[1], 16)
        for edge, number in re.findall(r"(Start|End) region (\d+)", line):
            if edge == "Start":
                starts[number] = at
            elif at - starts.get(number, at) + 1 >= BRANCH:
                inside = any(start >= starts[number] for start, _ in leaves)
                leaves += [] if inside else [(starts[number], at)]
    return sorted(end - start + 1 for start, end in leaves)[-2:]


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
