"""Training batches: a function of seed and step, so nothing about the data is saved with a run.

The program that makes the batches of a chunk of steps is apart from the program that trains on
them. So all tasks whose batches have the same shapes share the program that trains.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.lab.config.schema import TrainConfig
from posenc_jax.lab.hosts import devices, processes
from posenc_jax.lab.hosts.compiling import jit_quick
from posenc_jax.lab.hosts.fast_training import over_seeds
from posenc_jax.lab.tasks.task import Batch, Task
from posenc_jax.lab.training.step import BATCH, SIZE, random_key
from posenc_jax.layout import layout


class TrainingBatches:
    """The batches that a task draws for seeds and steps; the program is compiled for each number of
    steps.

    Args:
      batch: rows of a batch, B.
      sizes: the smallest and the largest size; those of a batch's rows are uniform between them.
      width: tokens of a row, T, to which rows are padded.
      pairs: two examples stand in a row, one after the other, each with positions of its own from 0
        on. The sizes of two add up to `sum(sizes)`, so B examples need B / 2 rows that are not much
        longer than `width`: where the smallest size is an eighth of the largest, 56% of the tokens.

    Raises:
      ValueError: pairs of an odd number of examples, or of a task whose examples the host reads.
    """

    def __init__(
        self, task: Task, batch: int, sizes: tuple[int, int], width: int, pairs: bool = False
    ):
        if pairs and (batch % 2 or task.feed is not None):
            raise ValueError(
                f"batch: {batch} examples of {task.name} cannot stand in pairs; choose an even "
                "number, and a task whose examples are generated"
            )
        self._task, self._batch, self._sizes, self._width = task, batch, sizes, width
        self._pairs = pairs
        self._programs: dict[tuple[int, int], Any] = {}

    @functools.cached_property
    def _data(self) -> Any:
        return devices.on_every_device(self._task.data)

    def __call__(self, seed_S: Any, steps: range) -> Batch:
        """The batches of each seed at each step, leaves [S, N, B, ...], spread over the devices as
        `devices.batch_sharding` says.

        seed_S: whole numbers, which are in every process.
        """
        seed_S = np.asarray(seed_S, np.int32)
        step_N = np.arange(steps.start, steps.stop, dtype=np.int32)
        if self._task.feed is None:
            data, rows = self._data, None
        else:
            read = self._task.feed(seed_S.tolist(), steps, self._batch, self._width)
            data, rows = None, devices.filled(read.shape, read.fill)
        placed_S = processes.place(seed_S, devices.seed_sharding(seed_S.shape))
        arguments = data, placed_S, step_N, rows
        key = len(seed_S), len(steps)
        if key not in self._programs:
            shapes = jax.eval_shape(self._make_all, *arguments)
            places = jax.tree.map(lambda x: devices.batch_sharding(x.shape), shapes)
            self._programs[key] = jit_quick(self._make_all, out_shardings=places)
        return self._programs[key](*arguments)

    def shapes(self, seeds: int, steps: int) -> Batch:
        """The shapes, dtypes and shardings of the batches of a task that has no `feed`."""
        seed_S, step_N = np.arange(seeds, dtype=np.int32), np.arange(steps, dtype=np.int32)
        batches = jax.eval_shape(self._make_all, self._task.data, seed_S, step_N, None)
        placed = lambda x: jax.ShapeDtypeStruct(
            x.shape, x.dtype, sharding=devices.batch_sharding(x.shape)
        )
        return jax.tree.map(placed, batches)

    def _make_all(self, data, seed_S, step_N, rows):
        def of_seed(data, step_N, seed, rows):
            return jax.lax.map(lambda at: self._of_step(data, seed, *at), (step_N, rows))

        return over_seeds(of_seed, seed_S, rows, given=(data, step_N))

    def _of_step(self, data, seed, step, rows_B) -> Batch:
        least, most = self._sizes
        count = self._batch // 2 if self._pairs else self._batch
        size_key, key = random_key(seed, SIZE, step), random_key(seed, BATCH, step)
        size_B = jax.random.randint(size_key, (count,), least, most + 1, dtype=jnp.int32)
        if self._pairs:
            size_B = jnp.concatenate([size_B, least + most - size_B])
        data = data if rows_B is None else rows_B
        batch = self._task.sample(data, key, size_B, self._width)
        return devices.spread_rows(paired(batch, self._pair_width) if self._pairs else batch)

    @functools.cached_property
    def _pair_width(self) -> int:
        """The tokens of the longest pair."""
        least, most = self._sizes
        width = self._task.width
        return max(int(width(n) + width(least + most - n)) for n in range(least, most + 1))


def paired(batch: Batch, width: int) -> Batch:
    """Rows that hold two examples each, one after the other: the first and the second half of a
    batch of rows that are padded on the right, [B, T] to [B / 2, width].

    width: at least the tokens of the longest pair.
    """
    tokens_B = (batch.layout.segment_BT > 0).sum(axis=1)
    first_B, second_B = jnp.split(tokens_B, 2)
    column_BW = jnp.broadcast_to(jnp.arange(width), (len(first_B), width))
    is_first_BW = column_BW < first_B[:, None]
    ended_BW = column_BW >= (first_B + second_B)[:, None]
    segment_BW = jnp.where(ended_BW, 0, jnp.where(is_first_BW, 1, 2))

    def joined(leaf_BT: jax.Array) -> jax.Array:
        first_BT, second_BT = jnp.split(leaf_BT, 2)
        at = lambda leaf_BT, place_BW: jnp.take_along_axis(leaf_BT, place_BW, axis=1, mode="clip")
        second_BW = at(second_BT, column_BW - first_B[:, None])
        joined_BW = jnp.where(is_first_BW, at(first_BT, column_BW), second_BW)
        return jnp.where(ended_BW, 0, joined_BW)

    return Batch(
        joined(batch.tokens_BT),
        joined(batch.targets_BT),
        joined(batch.weights_BT),
        layout(segment_BW),
        None if batch.bytes_BT is None else joined(batch.bytes_BT),
    )


def training_batches(task: Task, config: TrainConfig) -> TrainingBatches:
    """The batches of a training as its config says."""
    sizes = config.min_length, config.length
    return TrainingBatches(task, config.batch, sizes, task.width(config.length))
