"""Compares many runs on one interactive HTML page that needs no network.

Runs whose configs differ only in their seeds are pooled into one line for each encoding. All
numbers are computed here; the page only draws them.
"""

import base64
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from posenc_jax.lab import metrics
from posenc_jax.lab.config.sweeps import dotted
from posenc_jax.lab.hosts.files import write_text
from posenc_jax.lab.metrics import BITS
from posenc_jax.lab.report import curves, formats, summaries
from posenc_jax.lab.report.formats import number
from posenc_jax.lab.report.sections import Cell, Grid, Section
from posenc_jax.lab.report.tables import save
from posenc_jax.lab.report.webpage import html_page
from posenc_jax.lab.runs import TIMES, Record, StoredRun, read
from posenc_jax.lab.summary import Estimate, LengthSummary

HERE = Path(__file__).parent
SCRIPTS = ("elements.js", "chart.js", "comparison.js")
RAW = ("report.html", "config.json", "metrics.jsonl", "summary.json")
IGNORED = ("wandb", "seeds", "first_seed")  # parts of a config that do not tell lines apart
START = "start."  # fields of a config that say where a training started
WORDS = ("run", "step")  # of the page itself, so no short names of fields
TRAINING = {"valid": "validation loss", **curves.BELOW}  # besides the training loss
NAMED = 3  # encodings that a title lists
POINTS, DIGITS = 200, 6  # of a training curve; of a number on the page


class Line(NamedTuple):
    """One encoding under one config, with the records of all runs that have both.

    run: the first of these runs.
    """

    label: str
    encoding: str
    run: StoredRun
    records: list[Record]


def compare(workdirs: Sequence[str | Path], path: Path, title: str = "") -> dict[str, Any]:
    """Writes the page about finished runs to `path`; returns the data that it shows.

    The tables by length are beside it in PATH-tables, as CSV and LaTeX. By default the title says
    what is compared.

    Raises:
      ValueError: no folder given, one given twice, or one that holds no finished run.
    """
    if not workdirs:
        raise ValueError("workdir: none given; a comparison takes one finished run or more")
    folders = [Path(workdir).resolve() for workdir in workdirs]
    labels = names(folders)
    stored = [read(folder) for folder in folders]
    merged = merge(stored, labels)
    for run, folder in zip(merged["runs"], folders, strict=True):
        there = [name for name in RAW if (folder / name).is_file()]
        base = Path(os.path.relpath(folder, path.resolve().parent)).as_posix()
        run["links"] = [[name, f"{base}/{name}"] for name in there]
    path.parent.mkdir(parents=True, exist_ok=True)
    save(path.with_name(f"{path.stem}-tables"), tables(merged))
    write_text(path, html(merged, title or titled(stored, merged)))
    return merged


def titled(runs: Sequence[StoredRun], merged: Mapping[str, Any]) -> str:
    """Returns a title: the experiments, their tasks, and how many encodings are compared."""
    kinds = dict.fromkeys(str(run.config.get("experiment", "run")) for run in runs)
    tasks = dict.fromkeys(run.config.get("task", {}).get("name", "") for run in runs)
    encodings = list(dict.fromkeys(line["encoding"] for line in merged["lines"]))
    many = f"{len(encodings)} encodings" if len(encodings) > NAMED else ", ".join(encodings)
    on = ", ".join(filter(None, tasks))
    said = ", ".join(kind.replace("_", " ") for kind in kinds)
    return f"{said[:1].upper()}{said[1:]}" + (f" on {on}" if on else "") + f": {many}" * bool(many)


def tables(merged: Mapping[str, Any]) -> list[Section]:
    """Returns a section for each metric, the main one first, with a table of all lines by length.

    merged: as `merge` returns it.
    """
    sections = []
    for metric in merged["metrics"]:
        labelled = [(line["label"], {row[0]: row for row in line["cells"][metric["name"]]})
               for line in merged["lines"]]  # fmt: skip
        lengths = sorted({length for _, rows in labelled for length in rows})
        rows = [[label, *(_cell(rows.get(n)) for n in lengths)]
                for label, rows in labelled]  # fmt: skip
        caption = f"{metric['label']}: mean over seeds, and {metric['interval']}"
        grid = Grid(["length", *map(str, lengths)], rows, caption)
        sections.append(Section(metric["name"], [grid]))
    return sections


def best(merged: Mapping[str, Any]) -> list[str]:
    """Returns a sentence for each length: the line with the best mean of the main metric, and those
    not told apart from it, as `summaries.leaders` tells.

    merged: as `merge` returns it.
    """
    if not merged["metrics"]:
        return []
    metric = merged["metrics"][0]
    cells = {line["label"]: {row[0]: row for row in line["cells"][metric["name"]]}
             for line in merged["lines"]}  # fmt: skip
    estimate = lambda mean, *rest: Estimate(math.nan if mean is None else mean, *rest)
    results = {label: {n: estimate(*row[1:5]) for n, row in by_length.items()}
               for label, by_length in cells.items()}  # fmt: skip
    summary = LengthSummary(metric=metric["name"], train_length=0, results=results)
    sentences = []
    for length in summaries.lengths(summary):
        if not (leaders := summaries.leaders(summary, length)):
            continue
        first, *near = leaders
        value = " ".join(filter(None, cells[first][length][5:7]))
        many = f"{', '.join(near[:NAMED])}{f' and {len(near) - NAMED} more' * (len(near) > NAMED)}"
        sentences.append(
            f"best at {length}: {first}, {value} {metric['label']}"
            + (f"; not told apart: {many}" if near else "")
        )
    return sentences


def _cell(row: Sequence | None) -> Cell:
    return Cell("not measured", muted=True) if row is None else Cell(*row[5:7])


def names(folders: Sequence[Path]) -> list[str]:
    """Returns the shortest ends of the paths that are all different.

    Raises:
      ValueError: a path is given twice.
    """
    for depth in range(1, max(len(folder.parts) for folder in folders) + 1):
        ends = ["/".join(folder.parts[-depth:]) for folder in folders]
        if len(set(ends)) == len(ends):
            return ends
    raise ValueError("workdir: the same folder is given twice")


def html(merged: dict[str, Any], title: str) -> str:
    """Returns the page. Text from the runs is data, which the script never reads as HTML."""
    data = json.dumps(merged, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    data = data.replace("<", "\\u003c")  # so that the data cannot close its element
    style = (HERE / "comparison.css").read_text("utf-8")
    script = "".join((HERE / name).read_text("utf-8") for name in SCRIPTS)
    body = f"""<header><h1>{escape(title)}</h1><p class="muted" id="lead"></p></header>
<main id="main"><noscript><p>This page needs its own script. Allow scripts, or read the raw records
of the runs.</p></noscript></main>
<script type="application/json" id="data">{data}</script>
<script>{script}</script>"""
    return html_page(title, body, allowed="script-src 'unsafe-inline'", style=style)


def merge(runs: Sequence[StoredRun], names: Sequence[str]) -> dict[str, Any]:
    """Returns the data of the page, as JSON can hold it.

    Args:
      runs: finished runs; a run without a table by length is only listed.
      names: a different name for each run.
    """
    configs = _with_short_paths([dotted(run.config) for run in runs])
    fields = differing(configs)
    shown_lines = lines(runs, names, configs, fields)
    names_by_length = list(dict.fromkeys(name for line in shown_lines for name in _metrics(line)))
    units = {curves.unit(line.run) for line in shown_lines}
    unit = units.pop() if len(units) == 1 else "loss"
    return {
        "metrics": [
            {
                "name": name,
                "label": metrics.metric(name).axis_label,
                "better": metrics.metric(name).better,
                "share": metrics.metric(name).is_share,
                "interval": formats.interval_name(name),
            }
            for name in names_by_length
        ],
        "training": {
            name: metrics.metric(name).axis_label if name == unit else label
            for name, label in ((unit, ""), *TRAINING.items())
            if any(_training(line, name, unit) for line in shown_lines)
        },
        "baselines": _baselines(runs),
        "lines": [
            {
                "label": line.label,
                "encoding": line.encoding,
                "trained": line.run.by_length.train_length,
                "cells": {name: _cells(line, name) for name in names_by_length},
                "training": {name: _training(line, name, unit) for name in (unit, *TRAINING)},
                "positions": _positions(line),
                "attention": _attention(line),
            }
            for line in shown_lines
        ],
        "fields": [_short(field, fields) for field in fields],
        "runs": [
            {"name": name, "values": [_shown(config.get(field, "")) for field in fields]}
            for name, config in zip(names, configs, strict=True)
        ],
    }


def differing(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns the dotted fields that differ between the configs, in order of appearance."""
    fields = dict.fromkeys(field for config in configs for field in config)
    return [
        field
        for field in fields
        if field.split(".")[0] not in IGNORED
        and len({repr(config.get(field)) for config in configs}) > 1
    ]


def _with_short_paths(configs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the configs with the shortest ends of `start.run` that are all different."""
    field = f"{START}run"
    paths = list(dict.fromkeys(config[field] for config in configs if config.get(field)))
    ends = dict(zip(paths, names(list(map(Path, paths))), strict=True)) if paths else {}
    return [{**c, field: ends[c[field]]} if c.get(field) else c for c in configs]


def _telling(fields: Sequence[str], configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns the fields of a line's label, those of START last, of which one is left out that
    tells no configs apart that the fields before it do not tell apart.
    """
    groups = lambda chosen: {tuple(repr(c.get(field)) for field in chosen) for c in configs}
    chosen: list[str] = []
    for field in sorted(fields, key=lambda field: field.startswith(START)):
        if not field.startswith(START) or len(groups([*chosen, field])) > len(groups(chosen)):
            chosen.append(field)
    return chosen


def lines(
    runs: Sequence[StoredRun],
    names: Sequence[str],
    configs: Sequence[Mapping[str, Any]],
    fields: Sequence[str],
) -> list[Line]:
    """Returns the lines of all runs with a table by length; runs with the same label are pooled.

    If two runs have the same label and seed, their names are added to the labels instead.
    """
    others = _telling([field for field in fields if field != "encoding.name"], configs)
    parts: list[tuple[str, Line]] = []
    owners: dict[tuple[str, int], set[str]] = {}
    for run, name, config in zip(runs, names, configs, strict=True):
        if not _has_table(run):
            continue
        values = [f"{_short(field, fields)} {_shown(config.get(field))}" for field in others
                  if _shown(config.get(field))]  # fmt: skip
        for encoding, records in summaries.by_label(run.records, "encoding").items():
            label = " · ".join([encoding, *values])
            parts.append((name, Line(label, encoding, run, records)))
            for seed in {record["seed"] for record in records}:
                owners.setdefault((label, seed), set()).add(name)
    doubled = {label for (label, _), by in owners.items() if len(by) > 1}
    pooled: dict[str, Line] = {}
    for name, line in parts:
        label = f"{line.label} ({name})" if line.label in doubled else line.label
        pooled.setdefault(label, line._replace(label=label, records=[])).records.extend(
            line.records
        )
    return [
        line for line in pooled.values() if _metrics(line) or summaries.training_loss(line.records)
    ]


def _has_table(run: StoredRun) -> bool:
    return isinstance(run.summary, LengthSummary)


def _baselines(runs: Sequence[StoredRun]) -> dict[str, dict[str, float]]:
    """Returns metric -> name -> value of the baselines that are equal in all runs of the metric."""
    baselines: dict[str, dict[str, float]] = {}
    for run in filter(_has_table, runs):
        metric, of_run = run.by_length.metric, run.by_length.baselines
        before = baselines.setdefault(metric, of_run)
        baselines[metric] = {n: v for n, v in before.items() if of_run.get(n) == v}
    return baselines


def _metrics(line: Line) -> list[str]:
    """Returns the metrics by length, the run's main one first."""
    tested = [r for r in line.records if r["labels"]["split"] == "test"]
    names = dict.fromkeys(r["metric"] for r in tested if "position" not in r["labels"])
    return sorted(names.keys() - TIMES, key=[line.run.by_length.metric, *names].index)


def _cells(line: Line, metric: str) -> list[list]:
    """Returns the rows of the table by length; the last entry is the text of every seed."""
    final = {n: seeds for (_, n), seeds in summaries.final_values(line.records, metric).items()}
    texts = (", ".join(map(number, seeds.values())) for seeds in final.values())
    return [[*row, text] for row, text in zip(_rows(final, metric), texts, strict=True)]


def _training(line: Line, name: str, unit: str) -> list[list]:
    """Returns rows by step of the loss, in the given unit, or of another metric of TRAINING."""
    split, metric = ("valid", "loss") if name == "valid" else ("train", name)
    wanted = "loss" if name == unit else metric
    records = [r for r in line.records
               if (r["labels"]["split"], r["metric"]) == (split, wanted)]  # fmt: skip
    if wanted == "loss" and unit in BITS:
        scale = curves.loss_scale(line.run, split)
        records = [{**r, "value": scale * r["value"]} for r in records]
    curve = summaries.curve(records, "step")
    return _rows({step: curve[step] for step in summaries.thin(curve, POINTS)}, metric)


def _positions(line: Line) -> dict[str, list[list]]:
    """Returns length -> rows of the run's main metric by position."""
    metric = line.run.by_length.metric
    wanted = summaries.by_position(line.records, metric)
    return {
        str(n): _rows(summaries.curve(records, "position"), metric) for n, records in wanted.items()
    }


def _attention(line: Line) -> dict[str, Any] | None:
    """Returns the attention weights [N, H, T, T] as bytes: 255 times their square roots."""
    path = line.run.path / "attention" / f"{line.encoding}.npy"
    if not path.is_file():
        return None
    weights_NHTT = np.load(path, allow_pickle=False).astype(np.float32)
    scaled = np.round(255 * np.sqrt(np.clip(weights_NHTT, 0, 1))).astype(np.uint8)
    return {"shape": scaled.shape[:3], "bytes": base64.b64encode(scaled.tobytes()).decode()}


def _rows(curve: Mapping[int, Mapping[int, float]], metric: str) -> list[list]:
    """Returns [x, mean, low, high, values of the seeds, mean and interval as text] at each x.

    Numbers that are not finite are None. The page draws the numbers and shows the texts, so that a
    number is rounded as in report.html: JavaScript rounds .0625 to .063, Python to .062.
    """
    rows = []
    for x, by_seed in curve.items():
        seeds = list(by_seed.values())
        ends = formats.interval_of(metric)(seeds)[:3]
        texts = formats.mean_and_interval(seeds, metric)
        rows.append([x, *_rounded(ends), _rounded(seeds), *texts])
    return rows


def _rounded(values: Iterable[float | None]) -> list[float | None]:
    """Rounds to DIGITS digits."""
    return [
        None if value is None or not math.isfinite(value) else float(f"{value:.{DIGITS}g}")
        for value in values
    ]


def _short(field: str, fields: Sequence[str]) -> str:
    """Returns the last part of a dotted field if no other field has it, and it is no word of the
    page; "task" for "task.name".
    """
    field = field.removesuffix(".name")
    last = field.split(".")[-1]
    ends = [*WORDS, *(other.removesuffix(".name").split(".")[-1] for other in fields)]
    return last if ends.count(last) == 1 else field


def _shown(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "none"
    return "" if value is None else str(value)
