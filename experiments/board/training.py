"""Trainings of the board, whose learning rate is searched: to the end of a budget, until the task
is learned, or to each of several budgets.

A training that may end at any step has a constant learning rate. What is scored are its weights
averaged over the last steps, exponentially (Polyak and Juditsky 1992), which are as good as those
of a rate that falls to 0. So a long training contains all shorter ones. In a training of a fixed
budget the rate falls to 0 at the end, and weights of several late steps are scored.

The rate and the examples are arguments of the programs, so all tasks of as many token ids, rates
and seeds share them.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import optax

from experiments.board.looks import look_steps
from posenc_jax.backends.target import tuned_for
from posenc_jax.lab.model.transformer import Model
from posenc_jax.lab.tasks.task import EOS, Batch
from posenc_jax.lab.training import optimizers
from posenc_jax.lab.training.batches import TrainingBatches
from posenc_jax.lab.training.evaluation import batch_scorer
from posenc_jax.lab.training.loop import Trainer, fit
from posenc_jax.lab.training.step import State

METRICS = "exact_match", "token_accuracy", "loss"
LEARNED = 0.99  # exact match on validation examples with which a training of a fixed budget learned


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


class LearningBudget(Budget, Protocol):
    """The budget of a training that may end when the task is learned.

    steps: the most.
    learned: exact match on validation examples at which it ends; None: at the end of the budget.
    fall: the share of the steps, at their end, in which the learning rate falls to 0.
    looks, late: weights of so many steps are kept, evenly apart in this share of the steps, at
      their end.
    """

    @property
    def steps(self) -> int: ...
    @property
    def learned(self) -> float | None: ...
    @property
    def fall(self) -> float: ...
    @property
    def looks(self) -> int: ...
    @property
    def late(self) -> float: ...


class Plan(NamedTuple):
    """The budget of a training whose weights are read at several numbers of steps.

    batch, chunk, average, warmup, decay, clip: see `Budget`.
    budgets: steps, ascending.
    """

    batch: int
    chunk: int
    average: int
    warmup: int
    budgets: tuple[int, ...]
    decay: float
    clip: float


class Run(NamedTuple):
    """A training with one learning rate and seed.

    steps:   fewer than the budget if the training ended when the task was learned.
    learned: whether it was learned, by exact match on the validation examples.
    valid:   exact match on the validation examples at the end.
    params:  the weights of this seed, without the axis S.
    loss:    the loss on the validation examples at the end.
    late:    the weights at late steps, the last ones at the end.
    """

    rate: float
    seed: int
    steps: int
    learned: bool
    valid: float
    params: Any
    loss: float = math.nan
    late: tuple[Any, ...] = ()


class Examples(NamedTuple):
    """The examples of one task.

    train: the training batches; each seed has its own.
    valid: validation examples of the trained sizes.
    test:  test examples of each test.
    variants: test examples with other options of the task, by their name.
    followed: for the first tests, examples that tell what answers follow, by what that is.
    """

    train: TrainingBatches
    valid: Batch
    test: tuple[Batch, ...]
    variants: Mapping[str, tuple[Batch, ...]] = MappingProxyType({})
    followed: Mapping[str, tuple[Batch, ...]] = MappingProxyType({})

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics of the tests; ends of answers have some of their own."""
        ended = bool(((self.valid.targets_BT == EOS) & (self.valid.weights_BT > 0)).any())
        return METRICS + ("symbol_accuracy", "end_accuracy") * ended


class Programs:
    """The compiled programs that train one model and score it."""

    def __init__(self, model: Model, train: Budget, schedule: optax.Schedule | None = None):
        """schedule: the share of the learning rate by step, by default a warm-up, then all."""
        warmup = optax.linear_schedule(0.0, 1.0, train.warmup)
        tx = optimizers.make(schedule or warmup, train.clip, train.decay)
        self._trainer, self._chunk = Trainer(model, tx, train.average), train.chunk
        self._averages = train.average > 0
        self.score = batch_scorer(model, METRICS)

    def start(self, rate_S: Any, seed_S: Any, params: Sequence[Any] = ()) -> State:
        """The training of each seed before its first step.

        params: the weights that each starts from; by default initial ones.
        """
        return self._trainer.start(seed_S, rate_S, stacked(params) if params else None)

    def weights(self, state: State) -> Any:
        """The weights that are scored, [S, ...]: their average, if they are averaged."""
        return state.average if self._averages else state.params

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
        batches = partial(examples.train, jax.device_get(state.seed))
        programs = self._trainer.advance, self._trainer.rates
        return fit(*programs, state, steps, self._chunk, batches, after=after)


def stacked(trees: Sequence[Any]) -> Any:
    """The trees as one, whose leaves lead with the axis S."""
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


class Trainings:
    """Trains a model to the end of its budget, or until it has learned the task."""

    def __init__(self, model: Model, train: LearningBudget):
        schedule = None
        if train.fall:
            falls = optimizers.wsd(1.0, train.steps, train.warmup, train.fall)
            warmup = optax.linear_schedule(0.0, 1.0, train.warmup)
            schedule = lambda step: jnp.minimum(warmup(step), falls(step))
        self._programs, self._train = Programs(model, train, schedule), train

    def runs(
        self,
        examples: Examples,
        rates_seeds: Sequence[tuple[float, int]],
        params: Sequence[Any] = (),
    ) -> Iterator[Run]:
        """Trains each (rate, seed) that is asked for: on a CPU one by one, else all at once.

        params: the weights that each starts from; by default initial ones.
        """
        step = 1 if tuned_for("cpu") else len(rates_seeds)
        for n in range(0, len(rates_seeds), step):
            yield from self._together(examples, rates_seeds[n : n + step], params[n : n + step])

    def tried(self, examples: Examples, rates: Sequence[float], seed: int) -> Iterator[Run]:
        """Trains one seed with each rate. On a CPU a rate ends where another had learned the task
        if learning ends a training, since the faster one is chosen.
        """
        if not tuned_for("cpu"):
            yield from self._together(examples, [(rate, seed) for rate in rates])
            return
        most = self._train.steps
        for rate in rates:
            (run,) = self._together(examples, [(rate, seed)], most=most)
            most = run.steps if run.learned and self._train.learned is not None else most
            yield run

    def _together(self, examples, rates_seeds, params=(), most=None) -> Iterator[Run]:
        train, programs = self._train, self._programs
        rate_S, seed_S = zip(*rates_seeds, strict=True)
        most = -(-(most or train.steps) // train.chunk) * train.chunk  # whole chunks
        ended: dict[int, Run] = {}
        looks, late = look_steps(train), [[] for _ in rates_seeds]

        def all_ended(state, step, metrics) -> bool:
            ends = step >= most or not np.isfinite(metrics["loss"]).all(axis=1).any()
            weights = programs.weights(state)
            of_seed = lambda n: jax.tree.map(lambda leaf: leaf[n], weights)
            if step in looks[:-1]:
                for n, at_looks in enumerate(late):
                    at_looks.append(of_seed(n))
            if train.learned is None and not ends:
                return False
            scores = programs.score(weights, examples.valid)
            exact_loss = zip(scores["exact_match"], scores["loss"], strict=True)
            for n, (exact, loss) in enumerate(exact_loss):
                learned = float(exact) >= (train.learned or LEARNED)
                if n not in ended and (ends or (learned and train.learned is not None)):
                    params, (rate, seed) = of_seed(n), rates_seeds[n]
                    # A training that ended before the first look has its last weights alone.
                    kept = (*late[n], *[params] * (len(looks) - len(late[n])))
                    ended[n] = Run(
                        rate, seed, step, learned, float(exact), params, float(loss), kept
                    )
            return len(ended) == len(rates_seeds)

        programs.fit(programs.start(rate_S, seed_S, params), examples, most, all_ended)
        yield from (ended[n] for n in range(len(rates_seeds)))


def trainings(
    programs: Programs,
    examples: Examples,
    train: Plan,
    rates: Sequence[float],
    seeds: Sequence[int],
) -> tuple[float, list[list[Any]]]:
    """The learning rate chosen, and the weights of each seed at each budget, without the axis S.

    The first seed tries all rates up to the first budget; the loss on validation examples chooses
    one for all seeds.
    """
    first, *others = seeds
    tried = {rate: at_budgets(programs, examples, train, rate, first) for rate in rates}
    begun = {rate: next(weights) for rate, weights in tried.items()}
    loss = lambda rate: float(programs.score(begun[rate], examples.valid)["loss"][0])
    rate = min(rates, key=loss)
    by_seed = [[begun[rate], *tried[rate]]]
    by_seed += [list(at_budgets(programs, examples, train, rate, seed)) for seed in others]
    return rate, by_seed


def at_budgets(
    programs: Programs, examples: Examples, train: Plan, rate: float, seed: int
) -> Iterator[Any]:
    """The averaged weights [1, ...] at each budget, which are those of a training as short."""
    state = programs.start([rate], [seed])
    for budget in train.budgets:
        whole = -(-budget // train.chunk) * train.chunk  # all chunks share a program
        state = programs.fit(state, examples, whole)
        yield jax.tree.map(jnp.copy, programs.weights(state))
