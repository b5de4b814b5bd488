"""Trainings whose learning rate is searched, and that may end at any step.

The learning rate is constant. What is scored are the weights averaged over the last steps,
exponentially (Polyak and Juditsky 1992), which are as good as those of a rate that falls to 0. So a
long training contains all shorter ones, and may end at any step.

The rate and the examples are arguments of the programs, so all tasks of as many token ids, rates
and seeds share them.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import optax

from posenc_jax.lab.hosts.compiling import jit_quick
from posenc_jax.lab.model.transformer import Model
from posenc_jax.lab.tasks.task import Batch, Task
from posenc_jax.lab.training import optimizers
from posenc_jax.lab.training import step as training
from posenc_jax.lab.training.evaluation import batch_scorer
from posenc_jax.lab.training.loop import Chunk, Trainer, fit
from posenc_jax.lab.training.step import State, random_key

METRICS = "exact_match", "token_accuracy", "loss"


class Budget(Protocol):
    """What a training needs to know.

    batch: examples of a step.
    chunk: steps of one program.
    average: steps over which the weights are averaged.
    warmup: steps in which the learning rate rises from 0.
    decay, clip: the weight decay, and the largest norm of a gradient.
    """

    @property
    def batch(self) -> int: ...
    @property
    def chunk(self) -> int: ...
    @property
    def average(self) -> int: ...
    @property
    def warmup(self) -> int: ...
    @property
    def decay(self) -> float: ...
    @property
    def clip(self) -> float: ...


class Examples(NamedTuple):
    """The examples of one task.

    rows:  (seed_S, step) -> the batches of a chunk of steps, leaves [S, N, B, ...]; each seed has
           its own.
    valid: validation examples of the trained sizes.
    test:  test examples of each test.
    """

    rows: Callable[[jax.Array, int], Batch]
    valid: Batch
    test: tuple[Batch, ...]


def rows_of(
    task: Task, train: Budget, sizes: tuple[int, int], width: int
) -> Callable[[jax.Array, int], Batch]:
    """The compiled function `Examples.rows` of a task whose sizes are uniform from the first to the
    last of `sizes`, padded to `width`.
    """

    def batch(data, seed, step):
        shape, key = (train.batch,), random_key(seed, training.SIZE, step)
        size_B = jax.random.randint(key, shape, sizes[0], sizes[1] + 1, jnp.int32)
        return task.sample(data, random_key(seed, training.BATCH, step), size_B, width)

    def rows(data, seed_S, start):
        steps = start + jnp.arange(train.chunk, dtype=jnp.int32)
        return jax.vmap(lambda seed: jax.lax.map(partial(batch, data, seed), steps))(seed_S)

    return partial(jit_quick(rows), task.data)


class Programs:
    """The compiled programs that train one model and score it."""

    def __init__(self, model: Model, train: Budget, schedule: optax.Schedule | None = None):
        """schedule: the share of the learning rate by step, by default a warm-up, then all."""
        warmup = optax.linear_schedule(0.0, 1.0, train.warmup)
        tx = optimizers.make(schedule or warmup, train.clip, train.decay)
        self._trainer, self._chunk = Trainer(model, tx, _given, train.average), train.chunk
        self.score = batch_scorer(model, METRICS)

    def start(self, rate_S: Any, seed_S: Any, params: Sequence[Any] = ()) -> State:
        """The training of each seed before its first step.

        params: the weights that each starts from; by default initial ones.
        """
        return self._trainer.start(seed_S, rate_S, stacked(params) if params else None)

    def fit(
        self,
        state: State,
        examples: Examples,
        steps: int,
        after: Callable[[State, int, Any], bool | None] | None = None,
    ) -> State:
        """Trains until so many steps are done, or `after` says so; see `loop.fit`.

        The given state is donated.
        """
        seed_S = jnp.copy(state.seed)
        chunk_of = lambda steps: Chunk(None, examples.rows(seed_S, jnp.int32(steps.start)))
        return fit(self._trainer.advance, state, steps, self._chunk, chunk_of, after=after)


def _given(data: Any, state: State, row: Batch) -> Batch:
    return row


def stacked(trees: Sequence[Any]) -> Any:
    """The trees as one, whose leaves lead with the axis S."""
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)
