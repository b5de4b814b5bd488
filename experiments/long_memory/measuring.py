"""Scores of whole documents: by place, and by the distance at which the answer was shown.

Letters of shapes: G groups of documents, E distances in windows, from 0 on; S seeds.
"""

import math
import threading
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.long_memory.config import Config
from posenc_jax.lab import runs, tasks
from posenc_jax.lab.hosts.devices import replicated
from posenc_jax.lab.hosts.processes import fetch
from posenc_jax.lab.model.transformer import Model
from posenc_jax.lab.tasks.recall import lookup_distance
from posenc_jax.lab.tasks.task import BITS, Batch, Task
from posenc_jax.lab.training.loop import over_seeds
from posenc_jax.lab.training.step import cross_entropy

LOOKUP = "lookup"
LEAST = 20  # answers of a range of distances that is reported


class Sums(NamedTuple):
    """Sums over the targets that count: at each place, and of each distance in windows."""

    loss_ST: Any  # nats
    right_ST: Any
    count_ST: Any
    right_SE: Any
    count_SE: Any


def metric_of(task: Task) -> str:
    """The metric of documents of a task: its bits, or the share of answers that are right."""
    return task.metric if task.metric in BITS else "token_accuracy"


class Documents:
    """Sums over the test documents of the longest length, which are read in every way.

    One program reads each document in all ways, so that documents are made once.
    `compile` may run earlier, in a thread.
    """

    def __init__(self, config: Config, task: Task, models: Mapping[str, Model]):
        """models: of each way, with one tree of weights."""
        self._config, self._task, self._models = config, task, models
        self._program: Any = None
        self._compiling = threading.Lock()

    def compile(self, params: Any, length: int) -> Any:
        """The program, compiled at the first call; params as of `Evaluator.compile`."""
        run = jax.jit(partial(self._sums, length), out_shardings=replicated())
        with self._compiling:
            if self._program is None:
                given = params, self._task.data, self._index_GB(length)
                self._program = run.lower(*given).compile()
            return self._program

    def __call__(self, params: Any, length: int) -> dict[str, Sums]:
        """The sums of each way; leaves of `params` and of the result lead with S."""
        program = self.compile(params, length)
        return fetch(program(params, self._task.data, self._index_GB(length)))

    def _index_GB(self, length: int) -> np.ndarray:
        """The numbers of the documents, in groups; there are `_documents(length)`."""
        rows = max(1, self._config.eval.tokens // int(self._task.width(length)))
        groups = math.ceil(self._documents(length) / rows)
        return np.arange(groups * rows, dtype=np.int32).reshape(groups, rows)

    def _documents(self, length: int) -> int:
        count = self._config.eval.examples
        return min(self._task.examples(length) or count, count)

    def _sums(self, length, params, data, index_GB):
        def one(data, index_GB, params):
            group = partial(self._of_group, length, params, data)
            return jax.tree.map(lambda x: x.sum(axis=0), jax.lax.map(group, index_GB))

        return over_seeds(one, params, given=(data, index_GB))

    def _of_group(self, length, params, data, index_B) -> dict[str, Sums]:
        batch = self._task.test(data, index_B, jnp.int32(length), int(self._task.width(length)))
        counts_B = (index_B < self._documents(length)).astype(jnp.float32)
        batch = batch._replace(weights_BT=batch.weights_BT * counts_B[:, None])
        apply = lambda model: model.apply(params, batch.tokens_BT, batch.layout)
        return {
            way: _scored(self._config, batch, apply(model)) for way, model in self._models.items()
        }


def _scored(config: Config, batch: Batch, logits_BTV: jax.Array) -> Sums:
    weight_BT = batch.weights_BT
    loss_BT = cross_entropy(logits_BTV, batch.targets_BT) * weight_BT
    right_BT = jnp.where(logits_BTV.argmax(axis=-1) == batch.targets_BT, weight_BT, 0.0)
    windows = weight_BT.shape[1] // config.window
    back_BTE = jax.nn.one_hot(_distance(config, batch) // config.window, windows)
    by_distance = lambda x_BT: jnp.einsum("bt,bte->e", x_BT, back_BTE)
    return Sums(
        loss_BT.sum(axis=0), right_BT.sum(axis=0), weight_BT.sum(axis=0),
        by_distance(right_BT), by_distance(weight_BT),
    )  # fmt: skip


def _distance(config: Config, batch: Batch) -> jax.Array:
    """The tokens since the answer was shown, [B, T]; 0 in tasks that do not say it."""
    if config.task.name != LOOKUP:
        return jnp.zeros_like(batch.tokens_BT)
    options = tasks.options(LOOKUP) | config.task.options
    return lookup_distance(batch.tokens_BT, options["keys"], options["values"])


def records(config: Config, task: Task, found: Sums, row: str) -> Iterator[runs.Record]:
    """The metric of the first tokens of each length and of each window; recall by distance.

    Recall is the share of answers that are right, with the first token of its range of distances as
    the label `distance`.
    """
    metric, window = metric_of(task), config.window
    step, seeds = config.train.steps, config.seed_range
    labels = {"encoding": row, "split": "test"}
    top_ST = found.loss_ST / math.log(2) if metric in BITS else found.right_ST
    for size in config.eval.lengths:
        first = slice(0, int(task.width(size)))
        value_S = top_ST[:, first].sum(axis=1) / found.count_ST[:, first].sum(axis=1)
        yield from runs.seed_records(step, seeds, {**labels, "length": size}, {metric: value_S})
    longest = {**labels, "length": max(config.eval.lengths)}
    by_window = lambda x_ST: x_ST.reshape(len(x_ST), -1, window).sum(axis=2).T
    columns = zip(
        by_window(top_ST), by_window(found.loss_ST), by_window(found.count_ST), strict=True
    )
    for n, (top_S, loss_S, count_S) in enumerate(columns):
        if count_S.all():
            values = {metric: top_S / count_S, "loss": loss_S / count_S}
            yield from runs.seed_records(step, seeds, {**longest, "position": n * window}, values)
    if config.task.name == LOOKUP:
        for n, (right_S, count_S) in enumerate(
            zip(found.right_SE.T, found.count_SE.T, strict=True)
        ):
            if count_S.min() >= LEAST:
                at = {**longest, "distance": n * window}
                yield from runs.seed_records(step, seeds, at, {"recall": right_S / count_S})
