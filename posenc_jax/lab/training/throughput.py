"""The numbers of a training while it runs: tokens per second, time of a step, waiting for data,
peak memory and MFU. Records, the terminal, W&B and the report have them from here.

MFU, the utilization of a device by the FLOP of the model (Chowdhery et al. 2022, arXiv 2204.02311,
appendix B), is counted as torchtitan does: 6 N + 12 L W T for a token, causal attention not halved,
and nothing that is computed a second time to save memory.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple

import jax
import numpy as np

from posenc_jax.backends.target import target
from posenc_jax.lab.config.schema import ModelConfig, TrainConfig
from posenc_jax.lab.hosts import chips
from posenc_jax.lab.hosts.devices import peak_bytes
from posenc_jax.lab.model.transformer import Model
from posenc_jax.lab.tasks.task import Task

SIZES = 64  # of a task, at most so many of which are averaged
# Parameters that no token is multiplied by. Those of an encoding are left out whatever they do: two
# methods then have the same FLOP, and what one costs more shows as a lower MFU.
TABLE, ENCODINGS = "embed", ("encoding", "cross_encoding")
Interval = tuple[float, float]


class Timing(NamedTuple):
    """How long a chunk of steps took.

    seconds:  from the end of the chunk before to its own, without pauses for validation and
              checkpoints.
    waited:   the part of them in which the device had nothing to do until the data was read.
    compiles: whether compiling is in them, because it is the first chunk of its size.
    """

    seconds: float
    waited: float
    compiles: bool = False


class Stopwatch:
    """Times chunks of steps. A thread waits for their ends, so that neither the host nor a device
    waits for the other.

    For each chunk in order: `reading` while its data is read, `dispatched` after it is given to the
    device, `pause` while other work may take the device.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter):
        self._thread, self._clock = ThreadPoolExecutor(1, "stopwatch"), clock
        self._reading = self._pause = 0.0, 0.0  # the beginning and the end
        self._free = math.nan  # when the device has ended the chunk before

    def __enter__(self) -> "Stopwatch":
        return self

    def __exit__(self, *error) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    @contextmanager
    def reading(self) -> Iterator[None]:
        begin = self._clock()
        yield
        self._reading = begin, self._clock()

    @contextmanager
    def pause(self) -> Iterator[None]:
        begin = self._clock()
        yield
        self._pause = begin, self._clock()

    def dispatched(self, outputs: Any, compiles: bool) -> "Future[Timing]":
        """Returns the timing of the chunk with these outputs, as soon as they are computed."""
        return self._thread.submit(self._timing, self._reading, self._pause, outputs, compiles)

    def _timing(self, reading: Interval, pause: Interval, outputs: Any, compiles: bool) -> Timing:
        jax.block_until_ready(outputs)
        end = self._clock()
        free = reading[0] if math.isnan(self._free) else self._free
        idle = lambda interval: max(interval[1] - max(interval[0], free), 0.0)
        self._free = end
        return Timing(end - free - idle(pause), idle(reading), compiles)


class Throughput(NamedTuple):
    """The numbers of a chunk of steps, or of several; NaN if compiling is in their time.

    steps_per_second, step_seconds, tokens_per_second: of each seed; seeds that train together make
      their steps at once. Padding is no token.
    waiting_for_data: share of the time in which the device waited for data.
    peak_memory_gib: the most that a device has had in use so far; on a CPU, this process.
    mfu: FLOP of the model, of all seeds, as a share of the peak of all devices in bfloat16; None
      for a device whose peak is not known, such as a CPU, or a model whose FLOP are not.
    """

    steps_per_second: float
    step_seconds: float
    tokens_per_second: float
    waiting_for_data: float
    peak_memory_gib: float | None = None
    mfu: float | None = None

    def values(self) -> dict[str, float]:
        """Returns the numbers that are known, by the names of their records."""
        return {name: value for name, value in self._asdict().items() if value is not None}

    def words(self) -> list[str]:
        """Returns the numbers for a line on the terminal, the time of a step first; [] if it is not
        known.
        """
        if math.isnan(self.step_seconds):
            return []
        seconds = self.step_seconds
        step = f"{_short(seconds)} s" if seconds >= 0.9995 else f"{_short(1e3 * seconds)} ms"
        parts = [f"{step}/step", f"{_short(self.tokens_per_second)} tokens/s"]
        if self.mfu is not None:
            parts.append(f"MFU {100 * self.mfu:.1f}%")
        if self.peak_memory_gib is not None:
            parts.append(f"{self.peak_memory_gib:.2f} GiB")
        return [*parts, f"waits {100 * self.waiting_for_data:.0f}%"]


class Work(NamedTuple):
    """What a step of one seed computes on average: tokens that are no padding, and their FLOP; None
    for a model whose FLOP the formula does not give.
    """

    tokens: float
    flops: float | None


class Meter:
    """Makes the numbers of a training from the time of each chunk."""

    def __init__(self, work: Work, seeds: int):
        self._work, self._seeds = work, seeds
        self._chunks: list[Throughput] = []
        devices = target().devices
        peaks = [chips.peak_flops(device.device_kind) or math.nan for device in devices]
        self._peak = sum(peaks)  # NaN if one is not known

    def __call__(self, steps: int, timing: Timing) -> Throughput:
        """Returns the numbers of a chunk of so many steps."""
        seconds = math.nan if timing.compiles else timing.seconds / steps
        tokens, flops = self._work.tokens, self._work.flops
        memory, mfu = peak_bytes(), None
        if flops is not None and not math.isnan(self._peak):
            mfu = self._seeds * flops / (seconds * self._peak)
        chunk = Throughput(
            1 / seconds,
            seconds,
            tokens / seconds,
            timing.waited / (seconds * steps),
            None if memory is None else memory / 2**30,
            mfu,
        )
        self._chunks.append(chunk)
        return chunk

    def typical(self) -> Throughput:
        """Returns the medians over the chunks so far; the peak of the memory is the latest."""
        return typical(self._chunks)


def typical(chunks: Sequence[Throughput]) -> Throughput:
    """Returns `Meter.typical` of these chunks, at least one."""
    timed = [chunk for chunk in chunks if not math.isnan(chunk.step_seconds)] or chunks
    columns: Any = zip(*timed, strict=True)
    medians: Any = [None if None in column else float(np.median(column)) for column in columns]
    return Throughput(*medians)._replace(peak_memory_gib=chunks[-1].peak_memory_gib)


def work(model: Model, config: ModelConfig, task: Task, train: TrainConfig) -> Work:
    """Returns what a step of one seed computes, on average over the sizes of the batch's rows."""
    sizes = np.linspace(train.min_length, train.length, SIZES).round().astype(int)
    widths = np.array([int(task.width(int(size))) for size in np.unique(sizes)])
    params = jax.eval_shape(model.init, jax.random.key(0))
    by_row = [flops_per_token(config, params, int(width)) for width in widths]
    known = [flops * width for flops, width in zip(by_row, widths, strict=True) if flops]
    flops = train.batch * float(np.mean(known)) if known else None
    return Work(train.batch * float(widths.mean()), flops)


def flops_per_token(config: ModelConfig, params: Any, length: int) -> int | None:
    """Returns the FLOP that training takes for a token in a sequence of `length` tokens.

    6 N + 12 L W T: N the parameters that tokens are multiplied by, see `multiplied`, L layers of
    attention, W the width of all its heads, T the length. None for an encoder-decoder, each side of
    which has its own tokens.

    params: the parameters of the model, or their shapes.
    """
    if config.kind == "encoder_decoder":
        return None
    width, layers = config.heads * config.dims.head, config.layers
    attention = 0 if config.kind == "lstm" else 12 * layers * width * length
    return 6 * multiplied(config, params) + attention


def multiplied(config: ModelConfig, params: Any) -> int:
    """Returns the number of parameters without the table of embeddings and those of the encoding.

    A table that the read-out shares counts once, since each token is multiplied by it there.
    """

    def counts(path) -> bool:
        # A chain keeps the parameters of its methods in a tuple, whose entries have no key.
        names = [getattr(entry, "key", None) for entry in path]
        is_table = names[-1] == TABLE and not config.tied
        return not (is_table or names[0] in ENCODINGS)

    leaves = jax.tree_util.tree_leaves_with_path(params)
    return sum(math.prod(leaf.shape) for path, leaf in leaves if counts(path))


def _short(number: float) -> str:
    """Returns a number with three digits: "950", "12.3k", "1.52M"."""
    units = ["G", "M", "k", ""]
    while number >= 999.5 and len(units) > 1:
        number /= 1000
        units.pop()
    digits = 0 if number >= 99.95 else 1 if number >= 9.995 else 2
    return f"{number:.{digits}f}{units[-1]}"
