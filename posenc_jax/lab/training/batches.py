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


class TrainingBatches:
    """The batches that a task draws for seeds and steps; the program is compiled for each number of
    steps.

    Args:
      batch: rows of a batch, B.
      sizes: the smallest and the largest size; those of a batch's rows are uniform between them.
      width: tokens of a row, T, to which rows are padded.
    """

    def __init__(self, task: Task, batch: int, sizes: tuple[int, int], width: int):
        self._task, self._batch, self._sizes, self._width = task, batch, sizes, width
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
        size_B = jax.random.randint(
            random_key(seed, SIZE, step),
            (self._batch,),
            self._sizes[0],
            self._sizes[1] + 1,
            dtype=jnp.int32,
        )
        key = random_key(seed, BATCH, step)
        data = data if rows_B is None else rows_B
        return devices.spread_rows(self._task.sample(data, key, size_B, self._width))


def training_batches(task: Task, config: TrainConfig) -> TrainingBatches:
    """The batches of a training as its config says."""
    sizes = config.min_length, config.length
    return TrainingBatches(task, config.batch, sizes, task.width(config.length))
