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

from experiments.compare.long_memory.config import Config
from posenc_jax.lab import metrics, runs, tasks
from posenc_jax.lab.hosts.devices import replicated
from posenc_jax.lab.hosts.fast_training import over_seeds
from posenc_jax.lab.hosts.processes import fetch
from posenc_jax.lab.metrics import Sums
from posenc_jax.lab.model.transformer import Model
from posenc_jax.lab.tasks.recall import lookup_distance
from posenc_jax.lab.tasks.task import Batch, Task
from posenc_jax.lab.training.evaluation import shared_data

LOOKUP = "lookup"
LEAST = 20  # answers of a range of distances that is reported


class Recalled(NamedTuple):
    """Sums over the test documents, leaves lead with S.

    by_place:    of the loss and of the task's metric at each place, [S, T].
    by_distance: of right answers, by how many windows ago the answer was shown, [S, E].
    """

    by_place: dict[str, Sums]
    by_distance: Sums


def metric_of(task: Task) -> str:
    """The metric of documents of a task: its bits, or the share of answers that are right."""
    return task.metric if task.metric in metrics.BITS else "token_accuracy"


class Documents:
    """Sums over the test documents of the longest length, which are read in every way.

    One program reads each document in all ways, so that documents are made once.
    `compile` may run earlier, in a thread.
    """

    def __init__(self, config: Config, task: Task, models: Mapping[str, Model]):
        """models: of each way, with one tree of weights."""
        self._config, self._task, self._models = config, task, models
        self._data = shared_data(task)
        self._program: Any = None
        self._compiling = threading.Lock()

    def compile(self, params: Any, length: int) -> Any:
        """The program, compiled at the first call; params as of `Evaluator.compile`."""
        run = jax.jit(partial(self._sums, length), out_shardings=replicated())
        with self._compiling:
            if self._program is None:
                inputs = params, self._data, self._index_GB(length)
                self._program = run.lower(*inputs).compile()
            return self._program

    def __call__(self, params: Any, length: int) -> dict[str, Recalled]:
        """The sums of each way; leaves of `params` and of the result lead with S."""
        program = self.compile(params, length)
        return fetch(program(params, self._data, self._index_GB(length)))

    def _index_GB(self, length: int) -> np.ndarray:
        """The numbers of the documents, in groups; there are `_documents(length)`."""
        rows = max(1, self._config.eval.tokens // int(self._task.width(length)))
        groups = math.ceil(self._documents(length) / rows)
        return np.arange(groups * rows, dtype=np.int32).reshape(groups, rows)

    def _documents(self, length: int) -> int:
        count = self._config.eval.examples
        return min(self._task.examples(length) or count, count)

    def _sums(self, length, params, data, index_GB):
        def of_seed(data, index_GB, params):
            group = partial(self._of_group, length, params, data)
            return jax.tree.map(lambda x: x.sum(axis=0), jax.lax.map(group, index_GB))

        return over_seeds(of_seed, params, given=(data, index_GB))

    def _of_group(self, length, params, data, index_B) -> dict[str, Recalled]:
        batch = self._task.test(data, index_B, jnp.int32(length), int(self._task.width(length)))
        counts_B = (index_B < self._documents(length)).astype(jnp.float32)
        batch = batch._replace(weights_BT=batch.weights_BT * counts_B[:, None])
        apply = lambda model: model.apply(params, batch.tokens_BT, batch.layout)
        return {
            way: _scored(self._config, self._task, batch, apply(model))
            for way, model in self._models.items()
        }


def _scored(config: Config, task: Task, batch: Batch, logits_BTV: jax.Array) -> Recalled:
    targets = logits_BTV, batch.targets_BT, batch.weights_BT
    windows = batch.weights_BT.shape[1] // config.window
    back_BTE = jax.nn.one_hot(_distance(config, batch) // config.window, windows)
    by_distance = (
        jnp.einsum("bt,bte->e", x_BT, back_BTE) for x_BT in metrics.token_accuracy(*targets)
    )
    names = dict.fromkeys(("loss", metric_of(task)))
    scores = metrics.scores(tuple(names), *targets, batch.bytes_BT)
    return Recalled(scores.by_place, Sums(*by_distance))


def _distance(config: Config, batch: Batch) -> jax.Array:
    """The tokens since the answer was shown, [B, T]; 0 in tasks that do not say it."""
    if config.task.name != LOOKUP:
        return jnp.zeros_like(batch.tokens_BT)
    options = tasks.options(LOOKUP) | config.task.options
    return lookup_distance(batch.tokens_BT, options["keys"], options["values"])


def records(config: Config, task: Task, recalled: Recalled, row: str) -> Iterator[runs.Record]:
    """The metric of the first tokens of each length and of each window; recall by distance.

    Recall is the share of answers that are right, with the first token of its range of distances as
    the label `distance`.
    """
    metric, window = metric_of(task), config.window
    step, seeds = config.train.steps, config.seed_range
    labels = {"encoding": row, "split": "test"}
    mean_in = lambda name, places: metrics.mean(
        name, Sums(*(x_ST[:, places] for x_ST in recalled.by_place[name]))
    )
    for size in config.eval.lengths:
        first = slice(0, int(task.width(size)))
        value_S = mean_in(metric, first)
        yield from runs.seed_records(step, seeds, {**labels, "length": size}, {metric: value_S})
    longest = {**labels, "length": max(config.eval.lengths)}
    count_ST = recalled.by_place[metric].count
    for start in range(0, count_ST.shape[1], window):
        places = slice(start, start + window)
        if count_ST[:, places].sum(axis=1).all():
            values = {name: mean_in(name, places) for name in (metric, "loss")}
            yield from runs.seed_records(step, seeds, {**longest, "position": start}, values)
    if config.task.name == LOOKUP:
        columns = zip(recalled.by_distance.total.T, recalled.by_distance.count.T, strict=True)
        for n, (right_S, count_S) in enumerate(columns):
            if count_S.min() >= LEAST:
                at = {**longest, "distance": n * window}
                yield from runs.seed_records(step, seeds, at, {"recall": right_S / count_S})
