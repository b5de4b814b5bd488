"""Counts what devices communicate in a training step, in the compiled program.

python scripts/collectives.py [--out=docs/devices.md]

Compiles the training of a small decoder for 8 forced devices of a CPU, three times: the rows of a
batch spread, seeds spread, and FSDP. Replaces the table between two marks of the page.
"""

import argparse
import datetime
import math
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

sys.path.insert(0, str(Path(__file__).parents[1]))  # the package need not be installed

from posenc_jax import encodings
from posenc_jax.lab import tasks
from posenc_jax.lab.config.schema import ModelConfig, TrainConfig
from posenc_jax.lab.model import transformer
from posenc_jax.lab.training import loop, optimizers

DEVICES, STEPS = 8, 5
BEGIN, END = "<!-- table: python scripts/collectives.py -->", "<!-- end of table -->"
KINDS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")
WAYS = {"rows spread": (1, False), "seeds spread": (8, False), "rows spread, FSDP": (1, True)}


class Collective(NamedTuple):
    """One instruction: its kind, the bytes that it leaves on each device, and whether it is in the
    loop over steps (otherwise it runs once a chunk).

    A reduce-scatter has the bytes that it reads, so that it compares with an all-reduce.
    """

    kind: str
    bytes: int
    each_step: bool


class Way(NamedTuple):
    """A way to spread training: bytes of state, in all and on one device, and communication."""

    name: str
    state: int
    on_device: int
    collectives: list[Collective]


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
            named = re.search(r"channel_id=(\d+)", line), re.search(r"to_apply=%?([\w.-]+)", line)
            channel = tuple(found and found[1].removesuffix(".clone") for found in named)
            if named[0] and channel in channels:
                continue
            channels.add(channel)
            sizes = _bytes(match["type"])
            if match["start"] and match["kind"] != "all-reduce":
                sizes = sizes[len(sizes) // 2 :]  # the first half are its operands
            read = _group(line) if match["kind"] == "reduce-scatter" else 1
            yield Collective(match["kind"], read * sum(sizes), not entry)


def on_first_device(tree: Any) -> int:
    """Returns the bytes of a tree that are on the first device of this process."""
    shards = [shard for leaf in jax.tree.leaves(tree) for shard in leaf.addressable_shards]
    return sum(shard.data.nbytes for shard in shards if shard.device == jax.local_devices()[0])


def measured(name: str, seeds: int, fsdp: bool) -> Way:
    """Compiles training spread in one way, and returns what it takes."""
    task = tasks.make("copy")
    config = TrainConfig(length=20, min_length=1, batch=16, steps=STEPS, fsdp=fsdp)
    shape = ModelConfig(width=64, heads=8, layers=2)
    model = transformer.build(shape, encodings.make("rope"), task.vocab)
    state = loop.init_runner(model, optimizers.optimizer(config), seeds, fsdp=fsdp)()
    run = loop.chunk_runner(model, task, config, loss_mask=True)
    program = run.lower(state, task.data, STEPS).compile().as_text()
    whole = sum(leaf.nbytes for leaf in jax.tree.leaves(state))
    return Way(name, whole, on_first_device(state), list(collectives(program)))


def content(ways: Sequence[Way]) -> str:
    """Returns the table of the ways, and what it was made with."""
    head = ["", "state, KB", "on each device, KB", "in every step", "KB", "once a chunk"]
    rows = []
    for way in ways:
        step = [one for one in way.collectives if one.each_step]
        rows.append([
            way.name, f"{way.state / 1e3:.0f}", f"{way.on_device / 1e3:.0f}", _count(step),
            f"{sum(one.bytes for one in step) / 1e3:.1f}",
            _count([one for one in way.collectives if not one.each_step]),
        ])  # fmt: skip
    made = f"JAX {jax.__version__}, {jax.device_count()} forced devices of a CPU"
    return f"{table(head, rows)}\n\nMade on {datetime.date.today()} with {made}."


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns a table in Markdown."""
    line = lambda cells: "| " + " | ".join(cells) + " |"
    return "\n".join([line(head), "|---" * len(head) + "|", *map(line, rows)])


def write(path: Path, content: str, begin: str, end: str) -> None:
    """Replaces the text of a page between two marks; the text around them is written by hand."""
    before, _, rest = path.read_text("utf-8").partition(begin)
    _, _, after = rest.partition(end)
    path.write_text(f"{before}{begin}\n\n{content}\n\n{end}{after}", "utf-8")


def _count(found: Sequence[Collective]) -> str:
    counted = Counter(one.kind for one in found)
    return ", ".join(f"{counted[kind]} {kind}" for kind in KINDS if counted[kind]) or "0"


def _group(line: str) -> int:
    """Returns how many devices take part together: those of replica_groups={{0,1},..}, [..,2], or
    mesh['a'=1,'b'=2] {'b'}.
    """
    group = r"(?:\{\{([\d,]+)\}|\[(?:\d+,)*(\d+)\]|mesh\[(.+?)\] \{(.+?)\})"
    match = re.search(f"replica_groups={group}", line)
    assert match, f"no replica_groups in: {line}"
    listed, last, mesh, axes = match.groups()
    if mesh:
        sizes = dict(axis.split("=") for axis in mesh.split(","))
        return math.prod(int(sizes[axis]) for axis in axes.split(","))
    return int(last) if last else listed.count(",") + 1


def _bytes(type: str) -> list[int]:
    """Returns the bytes of each array in a type such as (f32[8,16]{1,0}, s32[])."""
    found = re.findall(r"\b(pred|[a-z]+?(\d+))\[([\d,]*)\]", type)
    return [
        math.prod(int(n) for n in shape.split(",") if n) * (1 if kind == "pred" else int(bits) // 8)
        for kind, bits, shape in found
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/devices.md"))
    out = parser.parse_args().out
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", DEVICES)
    text = content([measured(name, *way) for name, way in WAYS.items()])
    print(text)
    write(out, text, BEGIN, END)


if __name__ == "__main__":
    main()
