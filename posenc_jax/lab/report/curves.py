"""Draws the curves of training: loss in the unit of the results, gradient norm, learning rate."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from posenc_jax.lab import metrics
from posenc_jax.lab.metrics import BITS
from posenc_jax.lab.report import drawing, formats, margin, summaries
from posenc_jax.lab.report.margin import Label
from posenc_jax.lab.runs import Record, StoredRun

POINTS = 400  # about the most points of a curve
RISE = 0.01  # of the lowest validation loss: a rise that is more than how examples differ
BELOW = {name: metrics.metric(name).title for name in ("grad_norm", "learning_rate")}


def training(run: StoredRun) -> Figure:
    """Draws the loss by step with its validation, and below it gradient norm and learning rate."""
    losses = curves(run, "train")
    below = {
        label: by_name for metric, label in BELOW.items() if (by_name := _by_encoding(run, metric))
    }
    names = [*summaries.encodings(run.by_length), *losses]
    styles = drawing.line_styles(list(dict.fromkeys(names)))
    figure = Figure(figsize=(8, 4.2 + 1.3 * len(below)))
    ratios = [3.2, *[1.0] * len(below)]
    axes, *others = figure.subplots(len(ratios), 1, sharex=True, height_ratios=ratios,
                                    squeeze=False)[:, 0]  # fmt: skip
    labels = []
    for name, records in losses.items():
        steps, mean = _line(axes, records, styles[name])
        labels.append(Label(name, steps[-1], mean[-1], styles[name]["color"]))
    for name, records in curves(run, "valid").items():
        curve = summaries.curve(records, "step")
        means = [np.mean(list(by_seed.values())) for by_seed in curve.values()]
        axes.plot([*curve], means, "o", ms=5, mec="white", color=styles[name]["color"], zorder=5)
    margin.margin_labels(axes, labels + _baselines(axes, run))
    axes.set_ylabel(metrics.metric(unit(run)).axis_label)
    for small, (label, by_name) in zip(others, below.items(), strict=True):
        for name, records in by_name.items():
            _line(small, records, styles[name])
        small.set_ylabel(label, fontsize="small")
        if label == BELOW["grad_norm"]:
            small.set_yscale("log")
            small.yaxis.set_major_locator(LogLocator(subs=(1, 3), numticks=6))
            small.yaxis.set_major_formatter("{x:g}")
            small.yaxis.set_minor_formatter(NullFormatter())
    figure.axes[-1].set_xlabel("step (optimizer updates)")
    drawing.set_title(axes, f"Training: {metrics.metric(unit(run)).title} by step", _how(run))
    return figure


def caption(run: StoredRun) -> str:
    """Returns how to read the figure."""
    parts = ["The training loss at each step"]
    if unit(run) in BITS:
        parts[0] += f", in {metrics.metric(unit(run)).title} as the results"
    parts += [label for metric, label in BELOW.items() if _by_encoding(run, metric)]
    said = formats.listed(parts, "and")
    held = "; dots: the loss on validation examples of the trained length"
    return f"{said}{held if curves(run, 'valid') else ''}."


def overtrained(run: StoredRun) -> list[str]:
    """Returns a sentence for each encoding whose validation loss rose again, in every seed and by
    more than RISE, before the training ended.
    """
    sentences = []
    for name, records in curves(run, "valid").items():
        curve = summaries.curve(records, "step")
        means = {step: float(np.mean(list(by_seed.values()))) for step, by_seed in curve.items()}
        best, last = min(means, key=means.__getitem__), max(means)
        rises = [value - curve[best].get(seed, math.inf) for seed, value in curve[last].items()]
        if min(rises) > 0 and means[last] > means[best] * (1 + RISE):
            sentences.append(
                f"{name}: on validation examples {metrics.metric(unit(run)).title} was lowest at "
                f"step {best:,}, {means[best]:.3f}, and is {means[last]:.3f} at the end, step "
                f"{last:,}: it was trained too long for its data."
            )
    return sentences


def unit(run: StoredRun) -> str:
    """Returns the metric in whose unit losses are shown: that of the results, if it is a loss."""
    return run.by_length.metric if run.by_length.metric in BITS else "loss"


def loss_scale(run: StoredRun, split: str) -> float:
    """Returns what the losses of a split, nats of a target, are multiplied with for `unit`.

    A target of a task of tokens stands for as many bytes as the mean of the split.
    """
    if unit(run) not in BITS:
        return 1.0
    per_token = run.by_length.facts.get("task", {}).get("bytes_per_token", {})
    return 1 / math.log(2) / per_token.get(split, 1.0)


def curves(run: StoredRun, split: str) -> dict[str, list[Record]]:
    """Returns encoding -> records of the loss on a split, in the unit of `unit`, if finite."""
    scale = loss_scale(run, split)
    losses = [r for r in run.records if r["labels"]["split"] == split and r["metric"] == "loss"]
    scaled = [{**r, "value": scale * r["value"]} for r in losses if math.isfinite(r["value"])]
    return summaries.by_label(scaled, "encoding")


def _by_encoding(run: StoredRun, metric: str) -> dict[str, list[Record]]:
    wanted = [r for r in run.records if r["metric"] == metric and math.isfinite(r["value"])]
    return summaries.by_label(wanted, "encoding")


def _line(
    axes: Axes, records: Sequence[Record], style: Mapping[str, Any]
) -> tuple[list[int], list[float]]:
    """Draws a thin line for each seed and a bold one for their mean, which it returns."""
    color, curve = style["color"], summaries.curve(records, "step")
    steps = summaries.thin(curve, POINTS)
    seeds = sorted({seed for by_seed in curve.values() for seed in by_seed})
    for seed in seeds if len(seeds) > 1 else ():
        at = [step for step in steps if seed in curve[step]]
        axes.plot(at, [curve[step][seed] for step in at], color=color, linewidth=0.7, alpha=0.45)
    mean = [float(np.mean(list(curve[step].values()))) for step in steps]
    axes.plot(steps, mean, color=color, linestyle=style["linestyle"], zorder=3)
    return steps, mean


def _baselines(axes: Axes, run: StoredRun) -> list[Label]:
    """Draws the baselines that lie within the axes, whose limits it fixes; returns their labels."""
    axes.margins(x=0.02)
    low, high = axes.get_ylim()
    axes.set_ylim(low, high)
    baselines = run.by_length.baselines if unit(run) == run.by_length.metric else {}
    within = {name: value for name, value in baselines.items() if low < value < high}
    return margin.draw_baselines(axes, within, axes.get_xlim()[1])


def _how(run: StoredRun) -> str:
    is_one_seed = summaries.seed_count(run.by_length) == 1
    parts = ["one seed" if is_one_seed else "thin: every seed · bold: their mean"]
    if curves(run, "valid"):
        parts.append("dots: validation")
    return " · ".join(parts)
