"""The summary of the experiment, made from its records."""

from collections.abc import Iterable, Mapping

from posenc_jax.lab.report import summaries
from posenc_jax.lab.report.statistics import estimate
from posenc_jax.lab.report.summaries import collect, largest, nested
from posenc_jax.lab.runs import Record
from posenc_jax.lab.summary import Summary

STATES = ("untrained", "trained")


def summarise(records: Iterable[Record], baselines: Mapping[str, float]) -> Summary:
    """The summary of a run: every mean with its seeds, and the largest error of any seed."""
    records = list(records)
    shares = {key: estimate(v) for key, v in collect(records, _accuracy_key).items()}
    errors = {key: largest(v) for key, v in collect(records, _error_key).items()}
    text = summaries.final_values(records, "bits_per_byte")
    own = {
        "order": nested(shares | errors),
        "text": {name: estimate(list(by_seed.values())) for (name, _), by_seed in text.items()},
        "text_baselines": dict(baselines),
    }
    return Summary(own=own)


def _accuracy_key(record: Record) -> tuple | None:
    if record["metric"] != "order_accuracy":
        return None
    labels = record["labels"]
    return labels["encoding"], {2: "pairs", 3: "triples"}[labels["length"]]


def _error_key(record: Record) -> tuple | None:
    labels, metric, state = record["labels"], record["metric"], STATES[record["step"] > 0]
    if metric == "twins":
        return labels["encoding"], metric, state
    if metric in ("error", "carried"):
        return labels["encoding"], metric, labels["dtype"], state, str(labels["length"])
    return None
