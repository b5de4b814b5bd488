"""The collectives of a compiled program, read from its text."""

import math
import re
from collections.abc import Iterator
from typing import NamedTuple

KINDS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")


class Collective(NamedTuple):
    """One instruction: its kind, the bytes that it leaves on each device, and whether it is in the
    loop over steps (otherwise it runs once a chunk).

    A reduce-scatter has the bytes that it reads, so that it compares with an all-reduce.
    """

    kind: str
    bytes: int
    each_step: bool


def collectives(program: str) -> Iterator[Collective]:
    """Yields the collectives in the text of a compiled program.

    One that runs beside other instructions is in the text several times, with one channel and one
    sum. Reduce-scatters of several arrays may share a channel, but not the sum.
    """
    pattern = re.compile(rf"= (?P<type>.+?) (?P<kind>{'|'.join(KINDS)})(?P<start>-start)?\(")
    entry, channels = False, set()
    for line in program.splitlines():
        if line.endswith("{") and not line.startswith(" "):
            entry = line.startswith("ENTRY")
        elif match := pattern.search(line):
            names = re.search(r"channel_id=(\d+)", line), re.search(r"to_apply=%?([\w.-]+)", line)
            channel = tuple(name and name[1].removesuffix(".clone") for name in names)
            if names[0] and channel in channels:
                continue
            channels.add(channel)
            sizes = _bytes(match["type"])
            if match["start"] and match["kind"] != "all-reduce":
                sizes = sizes[len(sizes) // 2 :]  # the first half are its operands
            read = _group_size(line) if match["kind"] == "reduce-scatter" else 1
            yield Collective(match["kind"], read * sum(sizes), not entry)


def _group_size(line: str) -> int:
    """Returns how many devices take part together: those of replica_groups={{0,1},..}, [..,2], or
    mesh['a'=1,'b'=2] {'b'}.
    """
    group = r"(?:\{\{([\d,]+)\}|\[(?:\d+,)*(\d+)\]|mesh\[(.+?)\] \{(.+?)\})"
    match = re.search(f"replica_groups={group}", line)
    assert match, f"no replica_groups in: {line}"
    devices, last, mesh, axes = match.groups()
    if mesh:
        sizes = dict(axis.split("=") for axis in mesh.split(","))
        return math.prod(int(sizes[axis]) for axis in axes.split(","))
    return int(last) if last else devices.count(",") + 1


def _bytes(type: str) -> list[int]:
    """Returns the bytes of each array in a type such as (f32[8,16]{1,0}, s32[])."""
    arrays = re.findall(r"\b(pred|[a-z]+?(\d+))\[([\d,]*)\]", type)
    return [
        math.prod(int(n) for n in shape.split(",") if n) * (1 if kind == "pred" else int(bits) // 8)
        for kind, bits, shape in arrays
    ]
