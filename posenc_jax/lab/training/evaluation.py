"""Evaluation at any length: sums and counts of each example, divided once at the end.

Lengths are padded to a few widths, so that many lengths share one compiled program.
"""

import itertools
import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.backends.target import target, tuned_for
from posenc_jax.lab import metrics
from posenc_jax.lab.config.schema import EvalConfig
from posenc_jax.lab.hosts.devices import (
    free_bytes,
    gathered,
    on_every_device,
    replicated,
    spread_rows,
)
from posenc_jax.lab.hosts.exit_status import Unmeasured
from posenc_jax.lab.hosts.fast_training import over_seeds
from posenc_jax.lab.hosts.processes import fetch, is_multiprocess, minimum
from posenc_jax.lab.metrics import Scores, Sums
from posenc_jax.lab.model.transformer import Model
from posenc_jax.lab.runs import Record, seed_records
from posenc_jax.lab.tasks.task import Batch, Task

TOKENS = 8192  # in a forward pass of `batch_scorer`, at most
# The same on a CPU, where logits of attention that fit into the caches save time: 8,192 tokens take
# 2.1 times as long in rows of 64 tokens, 1.8 in rows of 256 and 1.6 of 512 (width 64, 4 heads).
CPU_TOKENS = 1024


def bucket(width: int) -> int:
    """The padded width: the next number 2^k or 3 * 2^(k-1), at most 1.5 times the width."""
    power = 1 << max(width - 1, 1).bit_length()
    return power * 3 // 4 if width <= power * 3 // 4 else power


class CannotEvaluate(Exception):
    """There is no evaluation at a length; the message says why."""


class DoesNotFit(CannotEvaluate):
    """An evaluation needs more memory than is free; the message has both numbers."""


def _needs(program: Any) -> int:
    """Bytes that a compiled program needs besides its arguments, on all devices of this host."""
    memory = program.memory_analysis()
    if memory is None:
        return 0
    # The devices of a CPU share the host's memory; an accelerator's each have their own.
    bytes_per_device = memory.temp_size_in_bytes + memory.output_size_in_bytes
    return bytes_per_device * (jax.local_device_count() if tuned_for("cpu") else 1)


class Evaluator:
    """Scores weights on a split of a task at any size; `compile` may run earlier, in a thread."""

    def __init__(
        self,
        model: Model,
        task: Task,
        config: EvalConfig,
        split: Literal["test", "valid"] = "test",
    ):
        self._model, self._task, self._config, self._split = model, task, config, split
        self._data = shared_data(task)
        self._score = jax.jit(self._score_all, static_argnames="width", out_shardings=replicated())
        self._compiled: dict[tuple[int, int, int], Any] = {}
        self._compiling = threading.Lock()

    def shape(self, size: int, part: int = 1) -> tuple[int, int, int]:
        """(width, groups, rows) of the program for one size; sizes of one shape share a program.

        With `part` n a group has 1/n of the rows.
        """
        width = bucket(self._task.width(size))
        examples = self._examples(size)
        rows = min(max(1, self._config.tokens // width), examples)
        rows = max(1, rows // part)
        rows += -rows % len(target().devices)
        return width, math.ceil(examples / rows), rows

    def compile(self, params: Any, size: int, part: int = 1) -> Any:
        """The program for one size, compiled at the first call; see `shape`.

        params: arrays as those to score, or their shapes, dtypes and shardings.
        """
        shape = self.shape(size, part)
        with self._compiling:
            if shape not in self._compiled:
                self._compiled[shape] = self.lower(params, size, part).compile()
            return self._compiled[shape]

    def lower(self, params: Any, size: int, part: int = 1) -> Any:
        """The program for one size, not compiled; arguments as of `compile`."""
        width, *groups_rows = self.shape(size, part)
        index_GB = jax.ShapeDtypeStruct(tuple(groups_rows), np.int32)
        return self._score.lower(params, self._data, index_GB, np.int32(size), width=width)

    def __call__(self, params: Any, size: int) -> Scores:
        """The scores of `params`, leaves [S, ...], on all examples of one size.

        DoesNotFit: even one row at a time needs more memory than is free.
        """
        program, (_, *groups_rows) = self._program(params, size)
        examples = self._examples(size)
        index_GB = np.full(groups_rows, -1, np.int32)
        index_GB.flat[:examples] = np.arange(examples)
        by_group = fetch(program(params, self._data, index_GB, np.int32(size)))
        in_order = lambda x_SGB: x_SGB.reshape(len(x_SGB), -1)[:, :examples]
        over_groups = lambda x_SGT: x_SGT.sum(axis=1)
        return Scores(
            jax.tree.map(in_order, by_group.by_example),
            jax.tree.map(over_groups, by_group.by_place),
        )

    def _program(self, params: Any, size: int) -> tuple[Any, tuple[int, int, int]]:
        """The compiled program of one size, in as few groups as fit into memory, and its shape."""
        part = 1
        while True:
            program, shape = self.compile(params, size, part), self.shape(size, part)
            needs, free = _needs(program), minimum(free_bytes())
            if needs <= free:
                return program, shape
            if self.shape(size, 2 * part) == shape:
                raise DoesNotFit(
                    f"{shape[2]} examples of {shape[0]} tokens need {needs / 2**30:.3g} GiB more; "
                    f"{free / 2**30:.3g} GiB are free"
                )
            part *= 2

    def _examples(self, size: int) -> int:
        return self._task.examples(size) or self._config.examples

    def _score_all(self, params, data, index_GB, size, *, width: int):
        def score_seed(data, index_GB, size, params):
            group = partial(self._score_group, gathered(params), data=data, size=size, width=width)
            return jax.lax.map(group, index_GB)  # one group at a time is in memory

        return over_seeds(score_seed, params, given=(data, index_GB, size))

    def _score_group(self, params, index_B, data, size, width):
        batch = spread_rows(
            self._task.test(data, jnp.maximum(index_B, 0), size, width, self._split)
        )
        weights_BT = batch.weights_BT * (index_B >= 0).astype(jnp.float32)[:, None]
        logits_BTV = self._model.apply(params, batch.tokens_BT, batch.layout)
        targets = batch.targets_BT, weights_BT, batch.bytes_BT
        return metrics.scores(scored(self._task), logits_BTV, *targets)


def shared_data(task: Task) -> Any:
    """The arrays of a task, which each process has whole, as a program of all processes reads
    them."""
    return on_every_device(task.data) if is_multiprocess() else task.data


def scored(task: Task) -> tuple[str, ...]:
    """The metrics of an evaluation on a task: its own, and two that every task has."""
    return tuple(dict.fromkeys(("loss", "token_accuracy", task.metric)))


def batch_scorer(model: Model, names: tuple[str, ...]) -> Callable[[Any, Batch], dict[str, Any]]:
    """A jitted function (params, batch) -> {metric: [S]}; unlike `Evaluator` it takes the batch.

    Leaves of params lead with S. The rows are read in equal parts of at most TOKENS tokens, on a
    CPU of CPU_TOKENS.
    """

    def seed_means(batch, params):
        count, time = batch.layout.segment_BT.shape
        most = CPU_TOKENS if tuned_for("cpu") else TOKENS
        rows = max(n for n in range(1, count + 1) if count % n == 0 and n * time <= max(most, time))

        def part_sums(part):
            logits_BTV = model.apply(params, part.tokens_BT, part.layout)
            targets = part.targets_BT, part.weights_BT, part.bytes_BT
            return metrics.scores(names, logits_BTV, *targets).by_example

        parts = jax.tree.map(lambda leaf: leaf.reshape(-1, rows, *leaf.shape[1:]), batch)
        sums = jax.tree.map(lambda x_GB: x_GB.reshape(-1), jax.lax.map(part_sums, parts))
        return {name: metrics.mean(name, sums[name]) for name in names}

    return jax.jit(lambda params, batch: over_seeds(seed_means, params, given=(batch,)))


def records(
    scores: Scores, task: Task, step: int, seeds: Sequence[int], labels: Mapping[str, str | int]
) -> Iterator[Record]:
    """Yields a record for each metric and seed; for a metric in bits also one for each range of
    positions.

    Unmeasured: no target counts, because so few bytes are hidden that no test example has one.
    """
    if not scores.by_example["loss"].count.sum(axis=1).all():
        raise Unmeasured(f"{task.name}: no target of the test examples counts; mask a larger share")
    values = {name: scores.mean(name) for name in scored(task)}
    yield from seed_records(step, seeds, labels, values)
    if task.metric in metrics.BITS:
        for position, bits_S in _by_position(task.metric, scores.by_place[task.metric]):
            at = {**labels, "position": position}
            yield from seed_records(step, seeds, at, {task.metric: bits_S})


def _by_position(name: str, places: Sums) -> Iterator[tuple[int, np.ndarray]]:
    """Yields (first position, metric [S]) of each range of positions that has targets."""
    used = int(np.flatnonzero(places.count.sum(axis=0)).max()) + 1
    for start, stop in itertools.pairwise(position_bins(used)):
        part = Sums(*(x_ST[:, start:stop] for x_ST in places))
        if part.count.sum(axis=1).all():  # else no byte is hidden there
            yield start, metrics.mean(name, part)


def position_bins(width: int) -> list[int]:
    """The edges of the ranges of positions in the window, each about 1.4 times the one before."""
    edges = [0, *sorted({round(2 ** (k / 2)) for k in range(0, 64)})]
    return [edge for edge in edges if edge < width] + [width]
