"""The metrics: what each one is called, its unit, which values are better, and how it is scored.

A task, an experiment or a user adds a metric as one row of `METRICS`. It is scored on tasks whose
`metric` it is; reports read from the row what it is called and which values are better.

A score is a pair of arrays: values that are summed, and what they are divided by. Both are [B, T]
where each target has a value, and [B, 1] where each example has one. They are added up over all
examples, and divided once, at the end.

Letters in names: B batch, T time, V vocabulary.
"""

import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from posenc_jax.options import FieldError, choices_for

END = 3  # the token id that ends an answer, EOS of posenc_jax/lab/tasks/task.py
Direction = Literal["lower", "higher"]
# (logits_BTV, targets_BT, weights_BT) -> (values, counts), both [B, T] or both [B, 1].
Score = Callable[[jax.Array, jax.Array, jax.Array], tuple[jax.Array, jax.Array]]


class Metric(NamedTuple):
    """A row of the table.

    title:   the name in a sentence.
    unit:    of its values, on an axis; "" if the title says it. One that begins with "share" lies
             between 0 and 1.
    better:  which values are better; None: of a quantity that is only watched, such as the norm of
             a gradient, neither.
    score:   how logits are scored; None: the experiment that measures it computes it.
    divisor: the sum over all examples is divided by it too: ln 2 makes bits of nats.
    by_byte: values are divided by bytes, not by targets, where a target stands for several bytes.
    """

    title: str
    unit: str
    better: Direction | None
    score: Score | None = None
    divisor: float = 1.0
    by_byte: bool = False

    @property
    def is_share(self) -> bool:
        """Whether the values lie between 0 and 1."""
        return self.unit.startswith("share")

    @property
    def axis_label(self) -> str:
        """The name and the unit, for an axis."""
        return f"{self.title} ({self.unit})" if self.unit not in ("", self.title) else self.title


def cross_entropy(logits_BTV: jax.Array, targets_BT: jax.Array) -> jax.Array:
    """The cross entropy of each target in nats, float32 [B, T]."""
    logits_BTV = logits_BTV.astype(jnp.float32)
    target_BT = jnp.take_along_axis(logits_BTV, targets_BT[..., None], axis=-1)[..., 0]
    return jax.nn.logsumexp(logits_BTV, axis=-1) - target_BT


def is_right(logits_BTV: jax.Array, targets_BT: jax.Array) -> jax.Array:
    """Whether each target has the largest logit, bool [B, T]."""
    return logits_BTV.argmax(axis=-1) == targets_BT


def loss(logits_BTV, targets_BT, weights_BT) -> tuple[jax.Array, jax.Array]:
    """The cross entropy of targets that count, in nats."""
    return cross_entropy(logits_BTV, targets_BT) * weights_BT, weights_BT


def token_accuracy(logits_BTV, targets_BT, weights_BT) -> tuple[jax.Array, jax.Array]:
    """The share of targets that count and have the largest logit."""
    return jnp.where(is_right(logits_BTV, targets_BT), weights_BT, 0.0), weights_BT


def exact_match(logits_BTV, targets_BT, weights_BT) -> tuple[jax.Array, jax.Array]:
    """The share of examples in which every target that counts has the largest logit.

    An example without such targets does not count.
    """
    counts_BT = weights_BT > 0
    has_targets_B1 = counts_BT.any(axis=1, keepdims=True)
    right_B1 = (is_right(logits_BTV, targets_BT) | ~counts_BT).all(axis=1, keepdims=True)
    return (right_B1 & has_targets_B1).astype(jnp.float32), has_targets_B1.astype(jnp.float32)


def symbol_accuracy(logits_BTV, targets_BT, weights_BT) -> tuple[jax.Array, jax.Array]:
    """The share of targets that count, other than `END`, and have the largest logit."""
    return token_accuracy(logits_BTV, targets_BT, jnp.where(targets_BT == END, 0.0, weights_BT))


def end_accuracy(logits_BTV, targets_BT, weights_BT) -> tuple[jax.Array, jax.Array]:
    """The share of answers that would end at the right place: of their targets, the first one at
    which `END` has the largest logit is `END`.

    An answer without `END` does not count.
    """
    counts_BT, is_end_BT = weights_BT > 0, targets_BT == END
    ended_BT = (logits_BTV.argmax(axis=-1) == END) & counts_BT
    has_end_B1 = (is_end_BT & counts_BT).any(axis=1, keepdims=True)
    same_BT = jnp.where(counts_BT, ended_BT == is_end_BT, True)
    right_B1 = same_BT.all(axis=1, keepdims=True) & has_end_B1
    return right_B1.astype(jnp.float32), has_end_B1.astype(jnp.float32)


def _bits_per(what: str, by_byte: bool = False) -> Metric:
    name = f"bits per {what}"
    return Metric(name, name, "lower", loss, math.log(2), by_byte)


METRICS: dict[str, Metric] = {
    "bits_per_byte": _bits_per("byte", by_byte=True),
    "bits_per_pixel": _bits_per("pixel"),
    "bits_per_base": _bits_per("base"),
    "accuracy": Metric("accuracy", "share of examples", "higher", exact_match),
    "exact_match": Metric("exact match", "share of sequences", "higher", exact_match),
    "token_accuracy": Metric("token accuracy", "share of answer tokens", "higher", token_accuracy),
    "symbol_accuracy": Metric(
        "symbol accuracy", "share of answer tokens without ends", "higher", symbol_accuracy
    ),
    "end_accuracy": Metric("end accuracy", "share of answers", "higher", end_accuracy),
    "loss": Metric("loss", "nats per token", "lower", loss),
    "perplexity": Metric("perplexity", "", "lower"),
    "bits_per_digit": Metric("bits per digit", "", "lower"),
    "bleu": Metric("BLEU", "", "higher"),
    "recall": Metric("recall", "share of answers", "higher"),
    "context_gain": Metric("context gain", "bits per byte", "higher"),
    "recall_gain": Metric("recall gain", "bits per token", "higher"),
    "completed": Metric("completion", "share of bytes that count", "higher"),
    "grad_norm": Metric("gradient norm", "", None),
    "learning_rate": Metric("learning rate", "", None),
    "steps_per_second": Metric("steps per second", "", "higher"),
    "step_seconds": Metric("time of a step", "seconds", "lower"),
    "tokens_per_second": Metric("tokens per second", "", "higher"),
    "waiting_for_data": Metric("waiting for data", "share of the time", "lower"),
    "peak_memory_gib": Metric("peak memory", "GiB", "lower"),
    "mfu": Metric("MFU", "share of the devices' peak", "higher"),
}
# Metrics that are the loss to the base 2.
BITS = tuple(name for name, row in METRICS.items() if row.score is loss and row.divisor != 1)


def metric(name: str) -> Metric:
    """The row of a metric. FieldError: there is no such metric."""
    if name not in METRICS:
        raise FieldError("metric", f"no metric {name!r}{choices_for(name, METRICS)}")
    return METRICS[name]


class Sums(NamedTuple):
    """The summed values of a metric, and the counts that they are divided by; of one shape."""

    total: Any
    count: Any


class Scores(NamedTuple):
    """The sums of several metrics, by name.

    by_example: sums over an example's targets, [..., B].
    by_place:   sums over examples of each place in the window, [..., T]; [..., 1] of a metric that
                has one value for each example.
    """

    by_example: dict[str, Sums]
    by_place: dict[str, Sums]

    @property
    def loss_ST(self) -> Any:
        """Nats at each place."""
        return self.by_place["loss"].total

    @property
    def count_ST(self) -> Any:
        """Targets at each place."""
        return self.by_place["loss"].count

    def mean(self, name: str) -> Any:
        """The metric over all examples, [...]; NaN where nothing counts."""
        return mean(name, self.by_example[name])


def mean(name: str, sums: Sums) -> Any:
    """The metric over the last axis of its sums."""
    return sums.total.sum(axis=-1) / sums.count.sum(axis=-1) / metric(name).divisor


def scores(names: tuple[str, ...], logits_BTV, targets_BT, weights_BT, bytes_BT=None) -> Scores:
    """The scores of one batch.

    bytes_BT: the bytes that each target stands for; None: one each.

    FieldError: a metric that is not computed from logits.
    """
    by_example, by_place = {}, {}
    for name in names:
        row = metric(name)
        if row.score is None:
            raise FieldError("metric", f"{name} is not made of the logits of targets")
        values, counts = row.score(logits_BTV, targets_BT, weights_BT)
        if row.by_byte and bytes_BT is not None:
            counts = counts * bytes_BT
        pair = Sums(values, counts)
        by_example[name] = Sums(*(x.sum(axis=1) for x in pair))
        by_place[name] = Sums(*(x.sum(axis=0) for x in pair))
    return Scores(by_example, by_place)
