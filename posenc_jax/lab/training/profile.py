"""Where the time of a training step goes: one chunk of steps in the trace of JAX's profiler."""

import json
import re
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
from jax.profiler import ProfileData

from posenc_jax.lab.hosts import processes
from posenc_jax.lab.hosts.files import write_text

FILE = "parts.json"
# Parts of an operation's name that are no module of the model.
_PLUMBING = re.compile(
    r"while|body|cond|branch_.*|closed_call|eval_jaxpr|checkpoint|rematted_computation"
)
_CONTAINERS = re.compile(r"(while|call|conditional)\b")


class Part(NamedTuple):
    """The operations of one part of a step, in seconds over the steps of the chunk."""

    name: str
    forward: float
    backward: float


def traced(folder: Path, program: Any, state: Any, batches: Any, rate_N: Any) -> Any:
    """Returns program(state, batches, rate_N), waits for it, and writes where its time went.

    The folder gets the trace, which TensorBoard and Perfetto open, and `parts.json`: the steps, the
    seconds that they took, and the parts. The program is compiled once more, for its text.
    """
    text = program.lower(state, batches, rate_N).compile().as_text()
    jax.block_until_ready(state)
    with jax.profiler.trace(folder):
        started = time.perf_counter()
        outputs = jax.block_until_ready(program(state, batches, rate_N))
        seconds = time.perf_counter() - started
    if processes.is_first():
        newest = max(folder.glob("plugins/profile/*/*.xplane.pb"))
        step_parts = parts(self_times(operations(newest)), op_names(text))
        note = {"steps": len(rate_N), "seconds": seconds, "parts": step_parts}
        write_text(folder / FILE, json.dumps(note, indent=1))
    return outputs


class Operation(NamedTuple):
    """One run of an operation of a program, on one line of the trace; times in nanoseconds."""

    line: str
    name: str
    start: float
    duration: float


def operations(trace: Path) -> Iterator[Operation]:
    """The operations of programs in a trace: those of XLA, not the Python around them."""
    for plane in ProfileData.from_file(str(trace)).planes:
        for number, line in enumerate(plane.lines):
            for event in line.events:
                op_name = dict(event.stats).get("hlo_op")
                if op_name is None and line.name == "XLA Ops":  # of a TPU
                    op_name = event.name.lstrip("%").split(" ")[0]
                if op_name and not event.name.startswith("end: "):
                    where = f"{plane.name} {number}"
                    yield Operation(where, op_name, event.start_ns, event.duration_ns)


def self_times(ops: Iterable[Operation]) -> dict[str, float]:
    """Seconds spent in each operation, by name, without the operations nested in it.

    A loop's own time is waiting or the cost of control flow; it has the name of the loop.
    """
    lines: dict[str, list[Operation]] = defaultdict(list)
    for op in ops:
        lines[op.line].append(op)
    total: dict[str, float] = defaultdict(float)
    for line in lines.values():
        around: list[Operation] = []
        for op in sorted(line, key=lambda op: (op.start, -op.duration)):
            while around and op.start >= around[-1].start + around[-1].duration:
                around.pop()
            if around:
                total[around[-1].name] -= op.duration / 1e9
            total[op.name] += op.duration / 1e9
            around.append(op)
    return dict(total)


def op_names(text: str) -> dict[str, str]:
    """The place in the model's code of each operation, from the text of a compiled program."""
    pairs = re.findall(r'%?([\w.\-]+) = [^\n]*?metadata=\{[^}\n]*?op_name="([^"]*)"', text)
    return dict(pairs)


def parts(seconds: Mapping[str, float], names: Mapping[str, str]) -> list[Part]:
    """The time by part and direction, most first; loops that only hold operations are left out."""
    total: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for operation, value in seconds.items():
        if not _CONTAINERS.match(operation):
            name, backward = step_part(names.get(operation, ""))
            total[name][backward] += value
    return sorted((Part(name, *both) for name, both in total.items()), key=lambda p: -sum(p[1:]))


def step_part(op_name: str) -> tuple[str, bool]:
    """The part of a step that an operation belongs to, and whether it is of the backward pass.

    "jit(run)/transpose(jvp(Transformer))/block_1/query/dot_general" is ("block/query", True): all
    layers are one part. An operation in no module of the model belongs to "loss", or to the named
    scope in the step.
    """
    path = op_name.split("/")
    at = next((i for i, word in enumerate(path) if "jvp(" in word), None)
    inner = path[:-1] if at is None else path[at + 1 : -1]
    words = [re.sub(r"_\d+$", "", word) for word in inner
             if re.fullmatch(r"\w+", word) and not _PLUMBING.fullmatch(word)]  # fmt: skip
    if at is None:
        return (words[0] if words else "the rest"), False
    model = re.search(r"jvp\((\w+)", path[at])
    name = "/".join(words[:2]) or ("the rest of the model" if model else "loss")
    return name, "transpose(" in path[at] or "rematted_computation" in inner
