"""Compiled programs that start, train and score the seeds of one model.

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
from posenc_jax.lab.hosts.tuning import pack, unpack
from posenc_jax.lab.model.transformer import Model
from posenc_jax.lab.tasks.task import Batch, Task
from posenc_jax.lab.training import optimizers
from posenc_jax.lab.training import step as training
from posenc_jax.lab.training.evaluation import batch_scorer
from posenc_jax.lab.training.loop import over_seeds
from posenc_jax.lab.training.step import INIT, State, random_key
from posenc_jax.tuning import tuned_for

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


class Training(NamedTuple):
    """Where the trainings of several seeds stand.

    state: of the steps; every leaf leads with S.
    average: the averaged weights, leaves [S, ...].
    """

    state: State
    average: Any


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

    def __init__(self, model: Model, train: Budget):
        self._model, self._train = model, train
        warmup = optax.linear_schedule(0.0, 1.0, train.warmup)
        adamw = optimizers.make(warmup, train.clip, train.decay)
        scaled = lambda rate: optax.chain(
            optax.GradientTransformation(adamw.init, adamw.update), optax.scale(rate)
        )
        self._tx = optax.inject_hyperparams(scaled)(rate=0.0)
        self._start = jit_quick(partial(over_seeds, self._initial))
        self._run = jax.jit(partial(over_seeds, self._chunk), donate_argnums=0)
        self.score = batch_scorer(model, METRICS)

    def start(self, rate_S: Any, seed_S: Any, params: Sequence[Any] = ()) -> Training:
        """The training of each seed before its first step.

        params: the weights that each starts from; by default initial ones.
        """
        state = self._start(jnp.asarray(seed_S, jnp.int32))
        rates = {"rate": jnp.asarray(rate_S, jnp.float32)}
        state = state._replace(opt=state.opt._replace(hyperparams=rates))
        if params:
            state = state._replace(params=stacked(params))
        return Training(state, jax.tree.map(jnp.copy, state.params))

    def advance(
        self, training: Training, examples: Examples, step: int
    ) -> tuple[Training, jax.Array]:
        """The training after a chunk of steps from `step` on, and the mean loss [S] of the chunk.

        The given training is donated.
        """
        return self._run(training, examples.rows(training.state.seed, jnp.int32(step)))

    def _initial(self, seed):
        params = self._model.init(random_key(seed, INIT))
        return State(params, self._tx.init(params), jnp.zeros((), jnp.int32), seed)

    def _chunk(self, begun: Training, rows):
        update = training.update(self._model, self._tx)

        def step(held: Training, batch):
            state, metrics = update(held.state, batch)
            share = 1 / self._train.average
            average = optax.incremental_update(state.params, held.average, share)
            return Training(state, average), metrics["loss"]

        packed = tuned_for("cpu")
        held, loss_N = jax.lax.scan(step, pack(begun, begun.average) if packed else begun, rows)
        return unpack(held) if packed else held, loss_N.mean()


def stacked(trees: Sequence[Any]) -> Any:
    """The trees as one, whose leaves lead with the axis S."""
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)
