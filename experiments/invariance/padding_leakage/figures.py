"""The figures of the experiment, drawn from its summary."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from experiments.invariance.padding_leakage.leaks import Computed
from posenc_jax.lab.report import drawing
from posenc_jax.lab.report.drawing import name_rows, seed_dots, title_with_legend
from posenc_jax.lab.report.formats import small, span
from posenc_jax.lab.report.summaries import largest

LEAK = (
    "Largest change of each quantity when the padding changes, of any encoding, side, amount and "
    "seed, untrained or trained. 0 is exact."
)
MASS = (
    "Share of attention on padding with the attention mask off, every seed a dot. The dotted line "
    "is the share of tokens that are padding."
)
ACCURACY = (
    "Accuracy of models trained with each set of masks: marks are means over encodings and seeds, "
    "thin lines go from the least to the greatest, thick ones hold the middle half. The dotted "
    "line is the accuracy of saying a symbol at random."
)
SHADES = LinearSegmentedColormap.from_list("leak", ["#eaf3fa", drawing.COLORS[0]])
LEAST = -8.0  # the power of ten with the lightest shade


def leak(leaks: Mapping, names: Sequence[str]) -> Figure:
    """Every set of masks against every quantity, by content and by amount; all masks are last."""
    figure = Figure(figsize=(8, 4.4))
    panels = figure.subplots(1, 2, sharey=True)
    for axes, (change, by_quantity) in zip(panels, leaks.items(), strict=True):
        value = [[largest(by_quantity[q][m].values()) for q in Computed._fields] for m in names]
        shade = [[LEAST if v <= 0 else max(math.log10(v), LEAST) for v in row] for row in value]
        # A mesh is drawn as shapes; a browser would smooth an image.
        axes.pcolormesh(shade, cmap=SHADES, vmin=LEAST, vmax=2, edgecolor="#ffffff", linewidth=2)
        for y, row in enumerate(value):
            for x, v in enumerate(row):
                text = "0" if v == 0 else f"{v:.1f}" if v >= 0.1 else f"{v:.0e}"
                color = "#ffffff" if v > 1e-2 else "#20262e"
                at = x + 0.5, y + 0.5
                axes.annotate(text, at, ha="center", va="center", fontsize="small", color=color)
        axes.set_xticks([x + 0.5 for x in range(len(Computed._fields))], Computed._fields)
        axes.set_yticks([y + 0.5 for y in range(len(names))], names)
        axes.set_ylim(len(names), 0)
        axes.tick_params(length=0)
        axes.grid(False)
        axes.set_title(f"by {change}")
        for spine in axes.spines.values():
            spine.set_visible(False)
    all_masked = (
        by_masks[names[-1]] for by_quantity in leaks.values() for by_masks in by_quantity.values()
    )
    masked = largest(largest(by_encoding.values()) for by_encoding in all_masked)
    title = f"With all masks on, other padding changes nothing by more than {small(masked)}"
    figure.suptitle(title, x=0.01, ha="left", fontweight="bold")
    return figure


def mass(by_encoding: Mapping, data: Mapping) -> Figure:
    """Attention on padding for each encoding, a panel for each amount."""
    widths = list(next(iter(by_encoding.values()))["trained"])
    figure = Figure(figsize=(8, 1.6 + 0.24 * len(by_encoding)))
    panels = figure.subplots(1, len(widths), sharey=True, squeeze=False)[0]
    seeds = [v for states in by_encoding.values() for by in states.values() for v in by.values()]
    end = max(float(np.max(values)) for values in seeds)
    for axes, width in zip(panels, widths, strict=True):
        for y, states in enumerate(by_encoding.values()):
            for i, (state, by_width) in enumerate(states.items()):
                at = y + 0.24 * (i - 0.5)
                seed_dots(axes, at, by_width[width], i, ms=4, alpha=0.7, label=state)
        pads = int(width) - data["measured"]
        axes.axvline(pads / int(width), color=drawing.MUTED, linewidth=1, linestyle=":",
                     label="share of tokens")  # fmt: skip
        name_rows(axes, list(by_encoding), fontsize="small")
        axes.set_xlim(-0.02 * end, 1.05 * end)
        axes.set_title(f"{pads} of {width} tokens are padding")
        axes.set_xlabel("share of attention")
    shares = [np.mean(v) for by_state in by_encoding.values() for v in by_state["trained"].values()]
    ends = span(min(shares), max(shares), 2)
    title = f"Without the attention mask, padding gets {ends} of the attention"
    title_with_legend(figure, title, columns=3)
    return figure


def accuracy(by_answer: Mapping, data: Mapping) -> Figure:
    """Every set of masks: accuracy under the four conditions, for tokens and for sequences.

    The last set has all masks, the one before only lacks the attention mask.
    """
    figure = Figure(figsize=(8, 5.4))
    panels = figure.subplots(1, len(by_answer), sharey=True)
    for axes, (kind, by_masks) in zip(panels, by_answer.items(), strict=True):
        for y, by_condition in enumerate(by_masks.values()):
            for i, (condition, cell) in enumerate(by_condition.items()):
                at = y + 0.19 * (i - 1.5)
                least, low, high, most = np.quantile(cell["values"], (0, 0.25, 0.75, 1))
                axes.plot([least, most], [at, at], "-", lw=0.8, color=drawing.COLORS[i])
                axes.plot([low, high], [at, at], "-", lw=2.6, alpha=0.5, color=drawing.COLORS[i])
                seed_dots(axes, at, [cell["mean"]], i, ms=5, label=condition)
        name_rows(axes, list(by_masks))
        chance = 1 / data["symbols"]
        axes.axvline(chance, color=drawing.MUTED, linewidth=1, linestyle=":", label="chance")
        axes.set_xlim(-0.02, 1.03)
        axes.set_xlabel("share right")
        axes.set_title({"token": "each token", "pooled": "the whole sequence"}[kind])
    *_, seen, hidden = (
        by_condition["junk"]["mean"] for by_condition in by_answer["token"].values()
    )
    title = f"Junk as padding: {hidden:.2f} of tokens right, without the attention mask {seen:.2f}"
    title_with_legend(figure, title, columns=5)
    return figure
