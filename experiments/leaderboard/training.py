"""Trains one method on one task until it has learned it; every learning rate and seed is a run."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.convergence import Examples, Programs, rows_of
from experiments.leaderboard.config import Config
from posenc_jax.backends.target import tuned_for
from posenc_jax.lab.model.transformer import Model
from posenc_jax.lab.tasks.task import Task


class Run(NamedTuple):
    """A training with one learning rate and seed.

    steps:   fewer than the budget if the task was learned.
    learned: whether it was learned before the budget ended.
    valid:   exact match on the validation examples at the end.
    params:  the averaged weights of this seed, without the axis S.
    """

    rate: float
    seed: int
    steps: int
    learned: bool
    valid: float
    params: Any


def examples_of(task: Task, config: Config) -> Examples:
    """The examples of a task."""
    window, train = config.window, config.train
    fits = partial(largest, task.width, task.least, task.most)
    least, most = trained_sizes(task, window)
    index_B = jnp.arange(config.examples, dtype=jnp.int32)
    trained_B = least + index_B % (most - least + 1)
    trained = lambda split: task.numbered(task.data, index_B, trained_B, window, split)
    longer = [window * multiple for multiple in config.multiples[1:]]
    test = (task.test(task.data, index_B, fits(width), width) for width in longer)
    rows = rows_of(task, train, (least, most), window)
    return Examples(rows, trained("valid"), (trained("test"), *test))


def trained_sizes(task: Task, window: int) -> tuple[int, int]:
    """The sizes in training: from a quarter of the largest that the window holds on."""
    most = largest(task.width, task.least, task.most, window)
    return max(task.least, most // 4), most


def largest(width: Any, least: int, most: int | None, window: int) -> int:
    """The largest size whose width fits the window; `least - 1` if none fits."""
    size = least - 1
    while width(size + 1) <= window and size != most:
        size += 1
    return size


class Trainer:
    """Trains one method until it has learned the task."""

    def __init__(self, model: Model, config: Config):
        self._programs, self._train = Programs(model, config.train), config.train

    def runs(
        self, examples: Examples, asked: Sequence[tuple[float, int]], params: Sequence[Any] = ()
    ) -> Iterator[Run]:
        """Trains each (rate, seed) that is asked for: on a CPU one by one, else all at once.

        params: the weights that each starts from; by default initial ones.
        """
        step = 1 if tuned_for("cpu") else len(asked)
        for n in range(0, len(asked), step):
            yield from self._together(examples, asked[n : n + step], params[n : n + step])

    def tried(self, examples: Examples, rates: Sequence[float], seed: int) -> Iterator[Run]:
        """Trains one seed with each rate. On a CPU a rate ends where another had learned the task,
        since the faster one is chosen.
        """
        if not tuned_for("cpu"):
            yield from self._together(examples, [(rate, seed) for rate in rates])
            return
        most = self._train.steps
        for rate in rates:
            (run,) = self._together(examples, [(rate, seed)], most=most)
            most = run.steps if run.learned else most
            yield run

    def _together(self, examples, asked, params=(), most=None) -> Iterator[Run]:
        train, programs = self._train, self._programs
        rate_S, seed_S = zip(*asked, strict=True)
        most = -(-(most or train.steps) // train.chunk) * train.chunk  # whole chunks
        found: dict[int, Run] = {}

        def all_ended(state, step, metrics) -> bool:
            ends = step >= most or not np.isfinite(metrics["loss"]).all(axis=1).any()
            exact_S = programs.score(state.average, examples.valid)["exact_match"]
            for n, exact in enumerate(map(float, exact_S)):
                learned = exact >= train.learned
                if n not in found and (learned or ends):
                    own = jax.tree.map(lambda leaf, n=n: leaf[n], state.average)
                    rate, seed = asked[n]
                    found[n] = Run(rate, seed, step, learned, exact, own)
            return len(found) == len(asked)

        programs.fit(programs.start(rate_S, seed_S, params), examples, most, all_ended)
        yield from (found[n] for n in range(len(asked)))
