"""Scores of whole documents: by place, and by the distance at which the answer was shown.

Letters of shapes: G groups of documents, E distances in windows, from 0 on; S seeds.
"""

import math
from collections.abc import Iterator
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
from posenc_jax.lab.tasks.task import Batch, Task
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
    """The metric of documents of a task: bits per byte, or the share of answers that are right."""
    return "bits_per_byte" if task.metric == "bits_per_byte" else "token_accuracy"


def sums(config: Config, task: Task, model: Model, params: Any) -> Sums:
    """The sums over test documents of the longest length; leaves of params and result lead with S.

    A distance is that between a query of `lookup` and the assignment of its key.
    """
    size = max(config.eval.lengths)
    width = int(task.width(size))
    rows = max(1, config.eval.tokens // width)
    documents = min(task.examples(size) or config.eval.examples, config.eval.examples)
    index_GB = np.arange(math.ceil(documents / rows) * rows, dtype=np.int32).reshape(-1, rows)

    def one(data, index_GB, params):
        group = partial(_of_group, config, task, model, params, data, documents, size, width)
        return jax.tree.map(lambda x: x.sum(axis=0), jax.lax.map(group, index_GB))

    run = jax.jit(
        lambda params, data, index_GB: over_seeds(one, params, given=(data, index_GB)),
        out_shardings=replicated(),
    )
    return fetch(run(params, task.data, index_GB))


def _of_group(config, task, model, params, data, documents, size, width, index_B) -> Sums:
    batch = task.test(data, index_B, jnp.int32(size), width)
    weight_BT = batch.weights_BT * (index_B < documents).astype(jnp.float32)[:, None]
    logits_BTV = model.apply(params, batch.tokens_BT, batch.layout)
    loss_BT = cross_entropy(logits_BTV, batch.targets_BT) * weight_BT
    right_BT = jnp.where(logits_BTV.argmax(axis=-1) == batch.targets_BT, weight_BT, 0.0)
    back_BTE = jax.nn.one_hot(_distance(config, batch) // config.window, width // config.window)
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
    top_ST = found.loss_ST / math.log(2) if metric == "bits_per_byte" else found.right_ST
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
