"""Models that claims measure: trained once at each budget, then shared.

All seeds of a model are trained in one program; every leaf of its parameters leads with S.
"""

import math
import os
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import optax

from posenc_jax import encodings
from posenc_jax.encoding import Encoding
from posenc_jax.lab import tasks
from posenc_jax.lab.config.errors import inside
from posenc_jax.lab.config.schema import EvalConfig, ModelConfig, TrainConfig
from posenc_jax.lab.hosts.fast_training import over_seeds
from posenc_jax.lab.metrics import Scores
from posenc_jax.lab.model import transformer
from posenc_jax.lab.model.transformer import Model
from posenc_jax.lab.tasks.task import Batch, Task
from posenc_jax.lab.training.evaluation import Evaluator
from posenc_jax.lab.training.loop import init_runner, train
from posenc_jax.lab.training.step import INIT, random_key

T = TypeVar("T")
EXAMPLES = 128  # test examples of one size, for a task that does not say how many it has


@dataclass(frozen=True, eq=False)
class Trained:
    """Weights of all seeds, leaves [S, ...], with what they were trained as."""

    model: Model
    config: ModelConfig
    encoding: Encoding
    task: Task
    params: Any


class Lab:
    """The settings of a run at one budget, its text, and the models that claims share.

    full:   whether this is the full scale; see `pick`.
    budget: what `steps` multiplies the steps of every training by.
    trains: whether a training was asked for; a claim that asks for none has one budget only.
    seeds:  the seeds; a measurement has one value for each, in this order.
    text:   next-byte prediction on real text.
    """

    def __init__(self, config: Any, budget: int = 1, folder: Path | None = None):
        """folder: where weights of trained models are kept for other processes; None: nowhere."""
        self.full = config.scale == "full"
        self.budget, self.folder, self.trains = budget, folder, False
        self.seeds = list(range(config.first_seed, config.first_seed + config.seeds))
        self.model: ModelConfig = config.text.model
        self.train: TrainConfig = config.text.train
        with inside("text"):
            self.text = tasks.make(config.text.task.name, **config.text.task.options)
        self._made: dict[Hashable, Any] = {}

    def pick(self, quick: T, full: T) -> T:
        """The value for this scale."""
        return full if self.full else quick

    def steps(self, count: int) -> int:
        """The steps of a training at this budget, from those at budget 1."""
        self.trains = True
        return count * self.budget

    def training(self, **changes: Any) -> TrainConfig:
        """The ledger's TrainConfig with other fields, at this budget."""
        fields = self.train.model_dump() | changes
        return TrainConfig.model_validate(fields | {"steps": self.steps(fields["steps"])})

    def trained(
        self,
        encoding: str,
        task: Task | None = None,
        model: dict | None = None,
        train: dict | None = None,
        **options: Any,
    ) -> Trained:
        """Returns the model trained with this encoding; it is trained at the first call only.

        Args:
          encoding: as for `encodings.make`, and so are the options.
          task: the text if None; tasks are told apart by their names.
          model, train: fields that differ from the ledger's ModelConfig and TrainConfig, steps as
            at budget 1.
        """
        task = task or self.text
        model_config = ModelConfig.model_validate(self.model.model_dump() | (model or {}))
        train_config = self.training(**(train or {}))
        key = encoding, repr(sorted(options.items())), task.name, model_config, train_config

        def make():
            made, axes = encodings.make(encoding, **options), encodings.axes(encoding)
            built = transformer.build(model_config, made, task.vocab, axes=axes)
            params = self.fit(built, task, train_config, key)
            return Trained(built, model_config, made, task, params)

        return self.once(key, make)

    def learned(self, task: Task | None = None, model: dict | None = None) -> Trained:
        """`trained` with a learned table as long as the windows, clamped beyond them."""
        return self.trained("learned", task, model, length=self.train.length, beyond="clamp")

    def fit(self, model: Model, task: Task, config: TrainConfig, key: Hashable) -> Any:
        """Trains a model and returns its parameters, [S, ...]; reads them if `folder` has them.

        config: from `training`. key: what differs between models, with a `repr` that tells it.
        """

        def learn():
            ignore = lambda metrics, seconds: None
            return train(model, task, config, len(self.seeds), self.seeds[0], True, ignore).params

        if self.folder is None:
            return learn()
        whole = repr((key, task.name, config, self.seeds))
        path = self.folder / f"{sha256(whole.encode()).hexdigest()[:24]}.npz"
        tree = jax.tree.structure(jax.eval_shape(model.init, random_key(0, INIT)))
        if path.exists():
            with np.load(path) as leaves:
                return jax.tree.unflatten(tree, [jnp.asarray(leaves[name]) for name in leaves])
        params = learn()
        self.folder.mkdir(exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}.npz")
        np.savez(part, *jax.tree.leaves(jax.device_get(params)))
        part.replace(path)
        return params

    def fresh(self, trained: Trained) -> Trained:
        """The same model before its first step."""

        def make():
            made = init_runner(trained.model, optax.identity(), len(self.seeds), self.seeds[0])
            return replace(trained, params=made().params)

        return self.once(("fresh", trained), make)

    def windows(self, count: int, length: int | None = None) -> jax.Array:
        """The first test windows of the text: tokens [count, length]."""
        length = length or self.train.length
        index_B = jnp.arange(count, dtype=jnp.int32)
        return self.text.test(self.text.data, index_B, length, length).tokens_BT

    def scores(self, trained: Trained, size: int) -> Scores:
        """Scores on the test examples of one size."""
        config = EvalConfig(lengths=(size,), examples=EXAMPLES)
        score = lambda: Evaluator(trained.model, trained.task, config)(trained.params, size)
        return self.once((trained, size), score)

    def bits(self, trained: Trained, size: int) -> np.ndarray:
        """Bits for each target (of text: for each byte) at one size, [S]."""
        return self.scores(trained, size).mean("loss") / math.log(2)

    def lost(self, trained: Trained, size: int) -> np.ndarray:
        """Bits for each byte at one length minus those at the trained length, [S]."""
        return self.bits(trained, size) - self.bits(trained, self.train.length)

    def accuracy(self, trained: Trained, size: int) -> np.ndarray:
        """The share of targets that are right at one size, [S]."""
        return self.scores(trained, size).mean("token_accuracy")

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """What `make` returned or raised at the first call with this key."""
        if key not in self._made:
            try:
                self._made[key] = make()
            except Exception as error:
                self._made[key] = error
        if isinstance(self._made[key], Exception):
            raise self._made[key]
        return self._made[key]


def by_seed(run: Callable, *trees: Any) -> Any:
    """run(*leaves of one seed) for each seed in one program, as NumPy arrays that lead with S."""
    return jax.device_get(jax.jit(lambda *trees: over_seeds(run, *trees))(*trees))


def bits_at(scores: Scores, places: slice) -> np.ndarray:
    """Bits for each target at some places of the window, [S]."""
    nats = scores.loss_ST[:, places].sum(axis=1) / scores.count_ST[:, places].sum(axis=1)
    return nats / math.log(2)


def read_as(trained: Trained, encoding: str, **options: Any) -> Trained:
    """The same weights with another encoding in place of the one they were trained with."""
    made = encodings.make(encoding, **options)
    model = transformer.build(trained.config, made, trained.task.vocab)
    return replace(trained, model=model, encoding=made)


def relabelled(task: Task, label: Callable[[Batch], Batch]) -> Task:
    """The task with `label` applied to its batches."""
    return task._replace(
        sample=lambda *args: label(task.sample(*args)),
        numbered=lambda *args: label(task.numbered(*args)),
    )


def misplaced(trained: Trained) -> Trained:
    """The same weights where each token is given another token's position: a control."""

    def permuted(batch: Batch) -> Batch:
        place = batch.layout
        # 11 shares no factor with the lengths in use, so this is a permutation of 0 .. n - 1.
        pos_BT = (place.pos_BT * 11 + 3) % place.length_BT
        return batch._replace(layout=place.replace(pos_BT=pos_BT))

    return replace(trained, task=relabelled(trained.task, permuted))
