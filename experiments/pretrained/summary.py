"""The summary of the experiment, made from its records."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from experiments.pretrained.config import Config
from posenc_jax.lab.report.statistics import estimate
from posenc_jax.lab.report.summaries import collect, last_step, nested
from posenc_jax.lab.runs import Record
from posenc_jax.lab.summary import Summary


def tuned_row(name: str) -> str:
    """The label `encoding` of the records of an extension after fine-tuning."""
    return f"{name}, tuned"


def summarise(config: Config, records: Iterable[Record], length: int) -> Summary:
    """The summary of a run: cells of the mean over stretches with its 95% t interval.

    A stretch of a row that was fine-tuned with several seeds is the mean over them.
    """
    last = last_step(r for r in records if r["labels"]["split"] == "test")
    cells = {}
    for metric in ("bits_per_byte", "perplexity"):
        wanted = [r for r in last if r["metric"] == metric and "stretch" in r["labels"]]
        by_stretch = collect(wanted, _labels("encoding", "length", "stretch"))
        means = [((key[0], str(key[1])), float(np.mean(v))) for key, v in by_stretch.items()]
        columns: dict[tuple, list[float]] = {}
        for key, value in means:
            columns.setdefault(key, []).append(value)
        cells[metric] = nested({key: estimate(values) for key, values in columns.items()})
    own = {
        "train_length": length,
        "factor": config.factor,
        "text": cells["bits_per_byte"],
        "perplexity": cells["perplexity"],
        "prompts": {metric: _prompts(last, metric) for metric in ("exact_match", "bits_per_digit")},
    }
    return Summary(own=own)


def _prompts(records: Sequence[Record], metric: str) -> dict[str, Any]:
    """prompt -> row -> length -> depth in percent -> mean over prompts and seeds."""
    wanted = [record for record in records if record["metric"] == metric]
    by_depth = collect(wanted, _labels("prompt", "encoding", "length", "depth"))
    cells = {(p, row, str(n), str(d)): np.mean(v) for (p, row, n, d), v in by_depth.items()}
    return nested({key: float(value) for key, value in cells.items()})


def _labels(*names: str):
    return lambda record: tuple(record["labels"][name] for name in names)
