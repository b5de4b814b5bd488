"""Draws the figures of a run from its folder, as PNG and SVG."""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from posenc_jax.lab import metrics
from posenc_jax.lab.metrics import BITS
from posenc_jax.lab.report import curves, drawing, formats, heatmap, margin, summaries
from posenc_jax.lab.report.margin import Label
from posenc_jax.lab.report.sections import Picture
from posenc_jax.lab.runs import Record, StoredRun
from posenc_jax.lab.summary import LengthSummary

PANELS = 6  # the most panels of a figure
DPI = 200  # of a PNG
FLAT = 0.01  # shares that differ by less are one level


def save(folder: Path, name: str, draw: Callable[[], Figure]) -> list[Path]:
    """Writes one figure into a folder as PNG, and as SVG without a background; returns the paths.

    The same figure gives the same bytes. The folder is made if it does not exist.
    """
    folder.mkdir(exist_ok=True)
    paths = [folder / f"{name}.png", folder / f"{name}.svg"]
    with drawing.styled(name):
        figure = draw()
        with drawing.laid_out(figure, DPI):
            figure.savefig(paths[0], dpi=DPI)
            figure.savefig(paths[1], transparent=True, metadata={"Date": None})
    return paths


def pictures(run: StoredRun) -> list[Picture]:
    """Returns the figures that the run has data for."""
    metric = run.by_length.metric
    band = formats.interval_name(metric)
    bands = f", bands {band}s of {drawing.BAND_SEEDS} seeds or more"
    enough = summaries.seed_count(run.by_length) >= drawing.BAND_SEEDS
    bands = bands if enough and not _crowded(run.by_length) else ""
    figures = [picture_by_length("by_length", run.by_length)]
    if len(summaries.equal(run.by_length)) > 1 and summaries.seed_count(run.by_length) > 1:
        figures.append(picture_of_difference("difference", run))
    if summaries.by_position(_finite(run), metric):
        figures.append(
            Picture("by_position", lambda: by_position(run), "The metric at each place in the "
                    f"window, one panel for each test length: lines are means over seeds{bands}. "
                    "The dotted line is the last position in training.")
        )  # fmt: skip
        figures.append(Picture("position_by_length", lambda: position_by_length(run),
                    "The metric at each position (columns) of windows of each length (rows), the "
                    f"mean over seeds, of the first {PANELS} distinct methods at most. The dotted "
                    "line is the last position in training."))  # fmt: skip
    if summaries.training_loss(run.records):
        figures.append(Picture("training", lambda: curves.training(run), curves.caption(run)))
    return figures


def picture_by_length(name: str, summary: LengthSummary) -> Picture:
    """Returns the figure of the metric by length with its caption."""
    metric = metrics.metric(summary.metric).title
    name_of_metric = metric[0].upper() + metric[1:]
    if _is_heatmap(summary):
        return Picture(name, lambda: by_length(summary), _of_heatmap(name_of_metric, summary))
    parts = ["lines are means over seeds, dots are seeds"]
    if summaries.seed_count(summary) >= drawing.BAND_SEEDS:
        kind = "bars" if _crowded(summary) else "bands"
        parts.append(f"{kind} {formats.interval_name(summary.metric)}s")
    caption = f"{name_of_metric} at each test length: {', '.join(parts)}. "
    caption += "The dotted line is the longest length in training."
    if summary.baselines:
        caption += " Dashed lines are baselines; those outside of the figure are named above it."
    if summary.floors:
        caption += " The dashed line named floor is the best predictor that needs no positions."
    if summary.content_floors:
        named = " and ".join(summary.content_floors)
        caption += f" Dotted grey lines: rules that look tokens up by content ({named})."
    return Picture(name, lambda: by_length(summary), caption)


def picture_of_difference(name: str, run: StoredRun) -> Picture:
    """Returns the figure of differences from the first encoding with its caption."""
    caption = (
        "The metric minus that of the first encoding, with the same seed: points are means over "
        "seeds, small dots are seeds, bars are intervals at 95% for all comparisons together. "
        "Methods with equal results are one line."
    )
    return Picture(name, lambda: difference(run), caption)


def _of_heatmap(metric: str, summary: LengthSummary) -> str:
    """Returns the caption of a heat map by length."""
    caption = (
        f"{metric} at each test length, the mean over seeds, best methods first by their mean over "
        "the lengths; darker is better. Right of the line are lengths beyond those in training."
    )
    below = ["baselines"] * bool(summary.baselines)
    below += ["the best predictor that needs no positions (floor)"] * bool(summary.floors)
    below += ["rules that look tokens up by content"] * bool(summary.content_floors)
    return f"{caption} Last rows: {', '.join(below)}." if below else caption


def _is_heatmap(summary: LengthSummary) -> bool:
    """Returns whether a figure has more distinct methods than there are colours of lines."""
    return len(summaries.equal(summary)) > len(drawing.COLORS)


def _crowded(summary: LengthSummary) -> bool:
    """Returns whether a figure has too many distinct methods for bands."""
    return len(summaries.equal(summary)) > drawing.BANDS


def by_length(summary: LengthSummary) -> Figure:
    """Draws the metric by length: mean, interval and every seed of each encoding, or a heat map of
    the means if there are more than lines can show.
    """
    title = f"{_capital(summary.metric)} by test length{best_at_longest(summary)}"
    if _is_heatmap(summary):
        return heatmap.by_length(summary, title, _means(summary))
    metric, trained = summary.metric, summary.train_length
    lengths = summaries.lengths(summary)
    styles = drawing.line_styles(summaries.encodings(summary))
    figure = Figure(figsize=(drawing.WIDTH, 4.2))
    axes = figure.subplots()
    drawing.length_axis(axes, lengths, trained)
    labels, values, groups = [], [], summaries.equal(summary)
    crowded, interval_fn = _crowded(summary), formats.interval_of(metric)
    for i, names in enumerate(groups):
        cells, style = summary.results[names[0]], styles[names[0]]
        rows = [(n, cell) for n, cell in cells.items() if math.isfinite(cell.mean)]
        if not rows:
            continue
        aside = drawing.aside(i, len(groups), lengths) if crowded else 1.0
        x, mean = [length * aside for length, _ in rows], [cell.mean for _, cell in rows]
        [line] = axes.plot(x, mean, zorder=3, **style)
        seeds = [cell.seeds for _, cell in rows]
        show = drawing.bar_interval if crowded else drawing.shade_interval
        show(axes, x, seeds, style["color"], interval_fn)
        for at, (_, cell) in zip(x, rows, strict=True):
            values += cell.seeds
            if cell.low is not None and len(cell.seeds) >= drawing.BAND_SEEDS:
                values += [cell.low, cell.high]
            dots = [at] * len(cell.seeds)
            axes.plot(dots, cell.seeds, ".", ms=4, alpha=0.6, color=style["color"], zorder=4)
        labels.append(Label(_joined(names), x[-1], mean[-1], style["color"], line))
    floors = [*summary.floors.items()]
    values += [value for _, value in floors]
    values += [v for by_length in summary.content_floors.values() for v in by_length.values()]
    low, high = drawing.y_limits(values, summary.baselines.values())
    if metrics.metric(metric).is_share and values:
        # An axis of a tenth or more, and of all shares where no score differs from another.
        least = 0.1 if max(values) - min(values) > FLAT else 1.03
        low, high = min(low, max(values) - least), max(high, min(values) + least)
        low, high = max(low, -0.03), min(high, 1.03)
    axes.set_ylim(low, high)
    labels += margin.draw_baselines(axes, summary.baselines, axes.get_xlim()[1])
    if floors:
        axes.plot(*zip(*floors, strict=True), color=drawing.MUTED, lw=1, ls="--", zorder=1)
        labels.append(Label("floor", *floors[-1], drawing.MUTED))
    for name, by_length in summary.content_floors.items():
        ends = [*by_length.items()]
        axes.plot(*zip(*ends, strict=True), color=drawing.MUTED, lw=1, ls=":", zorder=1)
        labels.append(Label(name, *ends[-1], drawing.MUTED))
    margin.margin_labels(axes, labels)
    axes.set_xlabel(f"test length ({formats.size_unit(summary)}, log scale)")
    drawing.label_y(axes, metrics.metric(metric).axis_label)
    below = [_spread(summary), margin.outside(axes, summary.baselines)]
    drawing.set_title(axes, title, " · ".join(filter(None, below)))
    return figure


def difference(run: StoredRun) -> Figure:
    """Draws the metric minus that of the first encoding by length, paired by seed."""
    summary, metric = run.by_length, run.by_length.metric
    differences = summaries.differences(run.records, metric)
    values = summaries.final_values(run.records, metric)
    styles = drawing.line_styles(summaries.encodings(summary))
    groups = [names for names in summaries.equal(summary) if differences.first not in names]
    figure = Figure(figsize=(drawing.WIDTH, 4.2))
    axes = figure.subplots()
    lengths = summaries.lengths(summary)
    drawing.length_axis(axes, lengths, summary.train_length)
    axes.axhline(0, color=drawing.INK, linewidth=1)
    labels = [Label(differences.first, axes.get_xlim()[1], 0.0, drawing.MUTED)]
    for i, names in enumerate(groups):
        style, row = styles[names[0]], differences.intervals.get(names[0], {})
        row = {n: gap for n, gap in row.items() if math.isfinite(gap.mean)}
        if not row:
            continue
        aside = drawing.aside(i, len(groups), lengths)
        x, mean = [n * aside for n in row], [gap.mean for gap in row.values()]
        half = [gap.half or 0.0 for gap in row.values()]
        [line, *_] = axes.errorbar(x, mean, yerr=half, capsize=3, elinewidth=1.2, zorder=3, **style)
        for at, n in zip(x, row, strict=True):
            base = values[differences.first, n]
            gaps = [v - base[seed] for seed, v in values[names[0], n].items() if seed in base]
            axes.plot([at] * len(gaps), gaps, ".", ms=4, alpha=0.5, color=style["color"], zorder=4)
        labels.append(Label(_joined(names), x[-1], mean[-1], style["color"], line))
    axes.set_ylim(axes.get_ylim())
    margin.margin_labels(axes, labels)
    axes.set_xlabel(f"test length ({formats.size_unit(summary)}, log scale)")
    axes.set_ylabel(f"difference in {metrics.metric(metric).title}")
    better = "better" if summary.better == "lower" else "worse"
    seeds = summaries.seed_count(summary)
    below = (
        f"below 0: {better} than {differences.first} · {seeds} seeds, each a dot · "
        "bars: 95% intervals, paired by seed"
    )
    count = differences.comparisons
    below += f", for {count} comparisons together" * (count > 1)
    drawing.set_title(axes, f"Difference from {differences.first}{_clear(run, groups)}", below)
    return figure


def _finite(run: StoredRun) -> list[Record]:
    return [record for record in run.records if math.isfinite(record["value"])]


def best_at_longest(summary: LengthSummary) -> str:
    """Returns the end of a title that names the best method at the greatest length, if there is one
    whose interval over seeds meets no other's; a method of one seed has none, and is not ranked.
    """
    longest = summaries.lengths(summary)[-1]
    rows = {_joined(names): summary.results[names[0]] for names in summaries.equal(summary)}
    if any(longest in row and len(row[longest].seeds) == 1 for row in rows.values()):
        return ""
    near = summaries.leaders(replace(summary, results=rows), longest)
    if len(near) != 1 or len(rows) < 2:
        return ""
    word = "lowest" if summary.better == "lower" else "highest"
    return f": {word} {_at(longest, summary)} with {near[0]}"


def _clear(run: StoredRun, groups: Sequence[Sequence[str]]) -> str:
    """Returns the end of a title that says how many methods differ at the greatest length that was
    measured, or how the only one does; "" if none was compared.
    """
    summary, metric = run.by_length, run.by_length.metric
    intervals = summaries.differences(run.records, metric).intervals
    rows = {_joined(names): intervals.get(names[0], {}) for names in groups}
    longest = max((n for row in rows.values() for n in row), default=0)
    signs = {names: row[longest].sign for names, row in rows.items() if longest in row}
    better, worse = (-1, 1) if summary.better == "lower" else (1, -1)
    at = f" {_at(longest, summary)}: "
    if len(signs) < 2:
        words = {better: "clearly better", worse: "clearly worse", 0: "not clearly different"}
        return "".join(f"{at}{names} {words[sign]}" for names, sign in signs.items())
    count = [*signs.values()].count
    return f"{at}{count(better)} clearly better, {count(worse)} clearly worse, {count(0)} neither"


def _at(length: int, summary: LengthSummary) -> str:
    """Returns "at 4×", or the words for the trained length."""
    trained = summary.train_length
    ratio = f"at {formats.length_ratio(length, trained)}"
    return "at the trained length" if length == trained else ratio


def _joined(names: Sequence[str]) -> str:
    """Returns the label of methods with equal results."""
    return " = ".join(names)


def by_position(run: StoredRun) -> Figure:
    """Draws the metric by position in the window, a panel for each of the longest lengths."""
    metric, trained = run.by_length.metric, run.by_length.train_length
    by_length = summaries.by_position(_finite(run), metric)
    lengths = list(by_length)[-PANELS:]
    styles, equal = (
        drawing.line_styles(summaries.encodings(run.by_length)),
        summaries.equal(run.by_length),
    )
    columns = max(1, min(3, len(lengths)))
    rows = max(1, math.ceil(len(lengths) / columns))
    figure = Figure(figsize=(8, 1.4 + (3.0 if rows == 1 else 2.4 * rows)))
    grid = figure.subplots(rows, columns, sharey=True, squeeze=False)
    for spare in grid.flat[len(lengths) :]:
        spare.set_visible(False)
    for axes, length in zip(grid.flat, lengths, strict=False):
        by_encoding = summaries.by_label(by_length[length], "encoding")
        for names in (names for names in equal if names[0] in by_encoding):
            style = {**styles[names[0]], "marker": ""}
            curve = summaries.curve(by_encoding[names[0]], "position")
            # Positions start at 0, which a log axis cannot show.
            x = [position + 1 for position in curve]
            seeds = [list(by_seed.values()) for by_seed in curve.values()]
            axes.plot(x, [np.mean(values) for values in seeds], label=_joined(names), **style)
            if not _crowded(run.by_length):
                interval_fn = formats.interval_of(metric)
                drawing.shade_interval(axes, x, seeds, style["color"], interval_fn)
        drawing.position_axis(axes, trained)
        axes.set_title(f"length {length} · {formats.length_ratio(length, trained)}")
    below = (
        f"position in the window ({_token(run.by_length)}, log scale) · dotted line: trained length"
    )
    figure.supxlabel(below, fontsize="medium")
    figure.supylabel(metrics.metric(metric).axis_label, fontsize="medium")
    drawing.title_with_legend(figure, f"{_capital(metric)} by position in the window", columns=5)
    return figure


def position_by_length(run: StoredRun) -> Figure:
    """Draws a heatmap of the metric by position and length for each distinct method."""
    metric, trained = run.by_length.metric, run.by_length.train_length
    by_length = summaries.by_position(_finite(run), metric)
    means = {
        (name, length): {at: np.mean([*seeds.values()]) for at, seeds in curve.items()}
        for length, records in by_length.items()
        for name, of_encoding in summaries.by_label(records, "encoding").items()
        for curve in [summaries.curve(of_encoding, "position")]
    }
    groups = [g for g in summaries.equal(run.by_length) if any(g[0] == name for name, _ in means)]
    groups, lengths = groups[:PANELS], list(by_length)
    values = [float(value) for row in means.values() for value in row.values()]
    worst = max([b for b in run.by_length.baselines.values() if b > min(values)], default=math.inf)
    top = min(max(values), worst)
    cmap = heatmap.colors(run.by_length.better)
    colors = ScalarMappable(Normalize(min(values), top), cmap)
    columns = min(2, len(groups))
    rows = math.ceil(len(groups) / columns)
    figure = Figure(figsize=(8, 1.2 + rows * (0.9 + 0.26 * len(lengths))))
    grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    for axes, names in itertools.zip_longest(grid.flat, groups):
        if names is None:
            axes.set_visible(False)
            continue
        for y, length in enumerate(lengths):
            if row := means.get((names[0], length)):
                edges = [at + 1 for at in row] + [length + 1]
                between = y - 0.5, y + 0.5
                axes.pcolormesh(edges, between, [[*row.values()]], cmap=cmap, norm=colors.norm)
        drawing.position_axis(axes, trained)
        axes.grid(False)
        drawing.name_rows(axes, [str(n) for n in lengths])
        axes.set_title(_joined(names))
        axes.tick_params(labelbottom=True)
    bar = figure.colorbar(colors, ax=grid, extend="max" if max(values) > top else "neither")
    for mesh in bar.ax.collections:
        mesh.set_rasterized(False)  # shapes, as all else on the page
    bar.set_label(metrics.metric(metric).axis_label)
    figure.supxlabel(
        f"position in the window ({_token(run.by_length)}, log scale)", fontsize="medium"
    )
    figure.supylabel("test length", fontsize="medium")
    figure.suptitle(f"{_capital(metric)} by position and length", x=0.01, ha="left",
                    fontweight="bold")  # fmt: skip
    return figure


def _means(summary: LengthSummary) -> str:
    count = summaries.seed_count(summary)
    seeds = "one seed" if count == 1 else f"mean of {count} seeds"
    return f"{summary.better} is better, and darker · {seeds} · right of the line: not trained"


def _spread(summary: LengthSummary) -> str:
    better = f"{summary.better} is better"
    count = summaries.seed_count(summary)
    lines = len(summaries.equal(summary))
    band = drawing.interval_note(count, formats.interval_name(summary.metric), lines)
    many = f"mean of {count} seeds, each a dot · {band}"
    return f"{better} · {'one seed' if count == 1 else many} · dotted line: trained length"


def _capital(metric: str) -> str:
    name = metrics.metric(metric).title
    return name[0].upper() + name[1:]


def _token(summary: LengthSummary) -> str:
    """What a position is of, in the plural; a token may stand for several bytes."""
    if formats.size_unit(summary) == "tokens" or summary.metric not in BITS:
        return "tokens"
    return f"{summary.metric.removeprefix('bits_per_')}s"
