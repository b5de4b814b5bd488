"""The table of how fast each training of a run was, from its records."""

import math
from collections.abc import Iterable, Sequence

from posenc_jax.lab.report import summaries
from posenc_jax.lab.report.sections import Grid, Section
from posenc_jax.lab.runs import Record, StoredRun
from posenc_jax.lab.training.throughput import Throughput, typical

# Column -> the number that it shows, and what that is multiplied by.
COLUMNS = {
    "tokens/s": ("tokens_per_second", 1.0),
    "step\nms": ("step_seconds", 1e3),
    "waits for data\n%": ("waiting_for_data", 100.0),
    "memory\nGiB": ("peak_memory_gib", 1.0),
    "MFU\n%": ("mfu", 100.0),
}


def sections(run: StoredRun) -> list[Section]:
    """Returns the section with the table; none for a run without these records."""
    timed = [
        record
        for record in run.records
        if record["labels"]["split"] == "train" and record["metric"] in Throughput._fields
    ]
    if not any(record["metric"] == "tokens_per_second" for record in timed):
        return []
    speeds = {
        name: typical(_chunks(records))._asdict()
        for name, records in summaries.by_label(timed, "encoding").items()
    }
    columns = {
        head: (metric, scale)
        for head, (metric, scale) in COLUMNS.items()
        if any(speed[metric] is not None for speed in speeds.values())
    }
    rows = [
        [name, *(_cell(speed[metric], scale) for metric, scale in columns.values())]
        for name, speed in speeds.items()
    ]
    return [Section("Speed", [Grid(["training\n ", *columns], rows, _caption(timed, columns))])]


def _chunks(records: Iterable[Record]) -> list[Throughput]:
    """Returns the numbers of each chunk of a training; those of its seeds are the same."""
    by_step: dict[int, dict[str, float]] = {}
    for record in records:
        by_step.setdefault(record["step"], {})[record["metric"]] = record["value"]
    complete = [values for _, values in sorted(by_step.items()) if "tokens_per_second" in values]
    return [Throughput(**values) for values in complete]


def _caption(records: Sequence[Record], columns: Iterable[str]) -> str:
    seeds = len({record["seed"] for record in records})
    together = f", of each of the {seeds} seeds, which train together" if seeds > 1 else ""
    caption = (
        "medians over the training, without steps that were compiled just then: tokens per second "
        f"without padding{together}; time of a step; share of it in which the device waited for "
        "data; most memory in use"
    )
    mfu = "; MFU: FLOP of the model, of all seeds, as a share of the devices' peak in bfloat16"
    return caption + (mfu if "MFU\n%" in columns else "")


def _cell(value: float | None, scale: float) -> str:
    if value is None or not math.isfinite(value):
        return "—"
    scaled = scale * value
    if scaled >= 1000:
        return f"{scaled:,.0f}"
    return f"{scaled:.3g}" if scaled >= 0.01 else "0"
