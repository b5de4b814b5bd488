"""Where claims are measured: one budget, one set of seeds, models trained once and shared.

A claim asks for a model by what it is trained on and how; in each process the first to ask pays for
it. All seeds of a model are trained in one program, and every leaf of its parameters leads with S.
"""

import math
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import optax

from posenc_jax import encodings
from posenc_jax.encoding import Encoding
from posenc_jax.lab import tasks
from posenc_jax.lab.config.errors import inside
from posenc_jax.lab.config.schema import EvalConfig, ModelConfig, TrainConfig
from posenc_jax.lab.model import transformer
from posenc_jax.lab.model.transformer import Model
from posenc_jax.lab.tasks.task import Task
from posenc_jax.lab.training.evaluation import Evaluator, Scores
from posenc_jax.lab.training.loop import init_states, train

T = TypeVar("T")
EXAMPLES = 128  # test examples of one size, of a task that does not say how many it has


class Trained(NamedTuple):
    """Weights of all seeds, leaves [S, ...], with what they were trained as.

    `key` tells models apart: two that were asked for alike are one.
    """

    key: Hashable
    model: Model
    config: ModelConfig
    encoding: Encoding
    task: Task
    params: Any


class Lab:
    """What a claim may use.

    full:  whether this is the whole ledger, not its quick version; see `pick`.
    seeds: the seeds; a measurement has one value for each, in this order.
    text:  next-byte prediction on real text.
    """

    def __init__(self, config: Any):
        self.full = config.budget == "full"
        self.seeds = list(range(config.first_seed, config.first_seed + config.seeds))
        self.model: ModelConfig = config.text.model
        self.train: TrainConfig = config.text.train
        with inside("text"):
            self.text = tasks.make(config.text.task.name, **config.text.task.options)
        self._made: dict[Hashable, Any] = {}

    def pick(self, quick: T, full: T) -> T:
        """What this budget allows."""
        return full if self.full else quick

    def trained(
        self,
        encoding: str,
        task: Task | None = None,
        model: dict | None = None,
        train: dict | None = None,
        **options: Any,
    ) -> Trained:
        """A model trained with the encoding of that name and options; from memory if it was before.

        Args:
          encoding: as for `encodings.make`, and so are the options.
          task: None is the text; another is known by its name, so variants need names of their own.
          model, train: fields of the ledger's ModelConfig and TrainConfig that are to differ.
        """
        task = task or self.text
        model_config = ModelConfig.model_validate(self.model.model_dump() | (model or {}))
        train_config = TrainConfig.model_validate(self.train.model_dump() | (train or {}))
        key = (encoding, repr(sorted(options.items())), task.name, model_config, train_config)

        def make():
            made, axes = encodings.make(encoding, **options), encodings.axes(encoding)
            built = transformer.build(model_config, made, task.vocab, axes=axes)
            state = _train(built, task, train_config, self.seeds)
            return Trained(key, built, model_config, made, task, state.params)

        return self.once(("trained", key), make)

    def fresh(self, trained: Trained) -> Trained:
        """The same model before its first step."""
        key = ("fresh", trained.key)

        def make():
            state = init_states(trained.model, optax.identity(), len(self.seeds), self.seeds[0])
            return trained._replace(key=key, params=state.params)

        return self.once(key, make)

    def windows(self, count: int, length: int | None = None) -> jax.Array:
        """The first test windows of the text: tokens [count, length]."""
        length = length or self.train.length
        index_B = jnp.arange(count, dtype=jnp.int32)
        return self.text.test(self.text.data, index_B, length, length).tokens_BT

    def scores(
        self,
        trained: Trained,
        size: int,
        /,
        read_as: str | None = None,
        **options: Any,
    ) -> Scores:
        """Scores on the test examples of one size; `read_as` puts another encoding, with options,
        in place of the trained one, on the same weights.
        """
        key = (trained.key, size, read_as, repr(sorted(options.items())))

        def make():
            model = trained.model
            if read_as is not None:
                other = encodings.make(read_as, **options)
                model = transformer.build(trained.config, other, trained.task.vocab)
            config = EvalConfig(lengths=(size,), examples=EXAMPLES)
            return Evaluator(model, trained.task, config)(trained.params, size)

        return self.once(("scores", key), make)

    def bits(self, trained: Trained, size: int, /, read_as: str | None = None, **options: Any):
        """Bits a target (of text: per byte) at one size, [S]; see `scores`."""
        scores = self.scores(trained, size, read_as, **options)
        return scores.loss_SE.sum(axis=1) / scores.count_SE.sum(axis=1) / math.log(2)

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """What `make` gave the first time, or raised, by key."""
        if key not in self._made:
            try:
                self._made[key] = make()
            except Exception as error:
                self._made[key] = error
        if isinstance(self._made[key], Exception):
            raise self._made[key]
        return self._made[key]


def misplaced(trained: Trained) -> Trained:
    """The same weights on a test whose tokens are shown each other's positions: a control."""

    def test(data, index_B, size, width):
        batch = trained.task.test(data, index_B, size, width)
        place = batch.layout
        # 11 shares no factor with the lengths in use, so this is a permutation of 0 .. n - 1.
        pos_BT = (place.pos_BT * 11 + 3) % place.length_BT
        return batch._replace(layout=place.replace(pos_BT=pos_BT))

    def apply(params, tokens_BT, layout, placed=None, **form):
        # Without the promise, in `form`, that positions count up along storage.
        return trained.model.apply(params, tokens_BT, layout, placed)

    task, model = trained.task._replace(test=test), trained.model._replace(apply=apply)
    return trained._replace(key=("misplaced", trained.key), task=task, model=model)


def _train(model: Model, task: Task, config: TrainConfig, seeds: list[int]):
    def read(metrics: dict[str, np.ndarray], seconds: float) -> None:
        """Nothing is kept of training."""

    return train(model, task, config, len(seeds), seeds[0], True, read)
