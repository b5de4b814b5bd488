"""The sections and the figure of a released encoder: shuffled words, long texts."""

import math
from collections.abc import Mapping
from functools import partial

from matplotlib.figure import Figure

from experiments.invariance.both_pages import name_of
from experiments.invariance.permutation.released import (
    AS_RELEASED,
    OTHER,
    OTHERS,
    OWN,
    SHUFFLED,
    TEXTS,
    WITHIN,
    WITHOUT,
)
from posenc_jax.lab.report import Grid, Picture, Section, drawing
from posenc_jax.lab.report.drawing import COLORS, title_with_legend
from posenc_jax.lab.report.formats import small
from posenc_jax.lab.report.margin import Label, margin_labels
from posenc_jax.lab.runs import StoredRun


def sections(run: StoredRun) -> list[Section]:
    """The sections of a run with a checkpoint."""
    released = run.summary.own["released"]
    name = name_of(run)
    shown: list = [*sentences(name, released), _by_layer(released)]
    shown.append(Picture("released", partial(draw, name, released), FIGURE))
    return [Section(f"A released encoder: {name}", shown), *_long(released)]


FIGURE = (
    "Left: largest |f(Px) - P f(x)| of any token, at the embeddings (0) and after each layer, when "
    "the words of a sentence are shuffled; with positions carried along, and without positions, "
    "only rounding is left. Middle: mean cosine of the vectors of a sentence and of its shuffled "
    "words; dotted: of different sentences. Right: mean cosine of the vector of a text and the "
    "mean vector of its windows; dotted: of another text's windows."
)


def sentences(name: str, released: Mapping) -> list[str]:
    """Sentences made from the numbers."""
    similar, errors = released["similarity"], released["errors"]
    last = list(similar[AS_RELEASED][SHUFFLED])[-1]
    same, others = (similar[AS_RELEASED][against][last] for against in (SHUFFLED, OTHERS))
    carried = max(errors[AS_RELEASED]["carried"].values())
    without = max(errors[WITHOUT]["error"].values())
    lines = [
        f"Shuffling the words of a sentence leaves {name}'s vector at a cosine of {same:.2f} to "
        f"what it was; vectors of different sentences have {others:.2f}. Tokens' outputs move by "
        f"up to {small(max(errors[AS_RELEASED]['error'].values()))}.",
        f"All of this is its table: when positions move along with their tokens, outputs differ "
        f"by {small(carried)}, and when all positions read the mean of the table's rows, by "
        f"{small(without)}.",
    ]
    if released["long"]:
        longest = list(released["long"]["clamp"][OWN])[-1]
        far = [f"{released['long'][b][OWN][longest]:.2f} if positions past the table "
               f"{'read its last row' if b == 'clamp' else 'are squeezed into it'}"
               for b in ("clamp", "interpolate")]  # fmt: skip
        lines.append(
            f"A text of {longest} tokens has a vector whose cosine to the mean of its windows is "
            f"{' and '.join(far)}; by default such a text is refused: its vector is NaN."
        )
    return lines


def _by_layer(released: Mapping) -> Grid:
    layers = list(released["errors"][AS_RELEASED]["error"])
    rows = [
        (f"{row}, {label}", *(small(released["errors"][row][metric][layer]) for layer in layers))
        for row in released["errors"]
        for metric, label in (("error", "error"), ("carried", "positions carried along"))
    ]
    rows += [
        (f"{row}, {against}", *(f"{by_layer[layer]:.3f}" for layer in layers))
        for row, by_against in released["similarity"].items()
        for against, by_layer in by_against.items()
    ]
    caption = (
        "error: largest |f(Px) - P f(x)| at the embeddings (0) and after each layer; shuffled, "
        "other sentences: mean cosine of sentences' vectors, made of each layer's outputs."
    )
    return Grid(("layer", *layers), rows, caption)


def _long(released: Mapping) -> list[Section]:
    if not released["long"]:
        return []
    lengths = [*released["long"][WITHIN][OWN]]
    shown = lambda value: "" if value is None else f"{value:.3f}"
    refused = lambda value: "refused" if value is None or math.isnan(value) else shown(value)
    rows = [
        (f"{beyond}, {against}", *(
            refused(by[against].get(n)) if beyond == WITHIN else shown(by[against].get(n))
            for n in lengths
        ))
        for beyond, by in released["long"].items()
        for against in (OWN, OTHER)
    ]  # fmt: skip
    caption = (
        f"Mean cosine of a text's vector with the mean vector of windows, over {TEXTS} texts of a "
        "length. error: the table alone, as released; clamp, interpolate: what learned reads for "
        "positions past it."
    )
    return [Section("Texts longer than its table", [Grid(("tokens", *lengths), rows, caption)])]


def draw(name: str, released: Mapping) -> Figure:
    """The figure, see `FIGURE`."""
    figure = Figure(figsize=(9.5, 4.2))
    panels = figure.subplots(1, 3 if released["long"] else 2)
    _draw_errors(panels[0], released["errors"])
    _draw_similar(panels[1], released["similarity"])
    if released["long"]:
        _draw_long(panels[2], released["long"])
    last = list(released["similarity"][AS_RELEASED][SHUFFLED].values())[-1]
    title = f"{name}: shuffled words keep a cosine of {last:.2f}; the change is all its table"
    title_with_legend(figure, title, columns=4)
    return figure


def _draw_errors(axes, errors: Mapping) -> None:
    curves = {
        AS_RELEASED: (errors[AS_RELEASED]["error"], 0),
        "positions carried along": (errors[AS_RELEASED]["carried"], 2),
        WITHOUT: (errors[WITHOUT]["error"], 1),
    }
    for label, (by_layer, number) in curves.items():
        x = [int(n) for n in by_layer]
        y = [max(value, 1e-7) for value in by_layer.values()]
        style = "--" if number == 1 else "-"
        axes.plot(x, y, style, color=COLORS[number], marker="o", ms=3, label=label)
    axes.set_yscale("log")
    axes.set_xlabel("layer")
    axes.set_title("largest |f(Px) - P f(x)|")


def _draw_similar(axes, similarity: Mapping) -> None:
    for row, number in ((AS_RELEASED, 0), (WITHOUT, 1)):
        for against, style in ((SHUFFLED, "-"), (OTHERS, ":")):
            by_layer = similarity[row][against]
            axes.plot([int(n) for n in by_layer], list(by_layer.values()), style,
                      color=COLORS[number])  # fmt: skip
    axes.set_ylim(0, 1.05)
    axes.set_xlabel("layer")
    axes.set_title("cosine of sentences")


def _draw_long(axes, long: Mapping) -> None:
    within = {against: {n: v for n, v in by.items() if v is not None and math.isfinite(v)}
              for against, by in long[WITHIN].items()}  # fmt: skip
    labels = []
    for beyond, number in (("clamp", 3), ("interpolate", 4)):
        for against, style in ((OWN, "-"), (OTHER, ":")):
            curve = within[against] | long[beyond][against]
            x, y = [int(n) for n in curve], list(curve.values())
            axes.plot(x, y, style, color=COLORS[number], marker="o", ms=3)
            if against == OWN:
                labels.append(Label(beyond, x[-1], y[-1], COLORS[number]))
    lengths = [int(n) for n in long[WITHIN][OWN]]
    axes.set_xscale("log", base=2)
    axes.set_xticks(lengths, [str(n) for n in lengths])
    axes.axvline(max(int(n) for n in within[OWN]), color=drawing.MUTED, linewidth=1, linestyle=":")
    axes.set_ylim(0, 1.05)
    axes.set_xlabel("tokens (log scale)")
    axes.set_title("cosine of a text and its windows")
    margin_labels(axes, labels)
