"""The section and the figure of a released encoder: what padding changes in its vectors."""

from collections.abc import Mapping
from functools import partial

from matplotlib.figure import Figure

from experiments.invariance.both_pages import name_of
from experiments.invariance.padding_leakage.released import QUANTITIES
from posenc_jax.lab.report import Grid, Picture, Section, drawing
from posenc_jax.lab.report.formats import small
from posenc_jax.lab.runs import StoredRun

CHANGES = {"content": "other tokens as padding", "amount": "padding added"}
MASKS = {"attention+output": "both", "attention": "attention alone", "output": "pooling alone",
         "none": "neither"}  # fmt: skip
FIGURE = (
    "Largest angle between a sentence's vectors, of any sentence, side and amount of padding: "
    "without padding and with it, and with other tokens as padding. 0 is exact."
)


def sections(run: StoredRun) -> list[Section]:
    """The sections of a run with a checkpoint."""
    released = run.summary.own["released"]
    name = name_of(run)
    picture = Picture("released", partial(draw, name, released["leaks"]), FIGURE)
    shown = [*sentences(name, released), _changes(released["leaks"]), picture]
    return [Section(f"A released encoder: {name}", shown)]


def sentences(name: str, released: Mapping) -> list[str]:
    """Sentences made from the numbers."""
    angle = {change: by["angle"] for change, by in released["leaks"].items()}
    masked = max(by[next(iter(MASKS))] for by in angle.values())
    both = " or ".join(released["verdicts"]["content"]["pooled"]["smallest"])
    shares = [f"{100 * share:.0f}% of {tokens}" for tokens, share in released["mass"].items()]
    lost = {masks: angle["amount"][masks] for masks in ("attention", "output", "none")}
    more = f" by more than {small(masked)} degrees" if masked else ""
    return [
        f"With both masks on, padding turns no vector of {name}{more}. The masks that a vector "
        f"needs against the content of padding: {both}. When padding is added, vectors turn by up "
        f"to {lost['attention']:.0f} degrees if it is pooled, {lost['output']:.0f} if it is "
        f"attended to, {lost['none']:.0f} if both.",
        "Without the mask of attention, padding gets this share of the attention of real tokens: "
        f"{', '.join(shares)} tokens.",
    ]


def _changes(leaks: Mapping) -> Grid:
    rows = [
        (f"{label}, {CHANGES[change]}", *(small(leaks[change][q][masks]) for q in QUANTITIES))
        for change in leaks
        for masks, label in MASKS.items()
    ]
    caption = (
        "masks on: of attention, of pooling. outputs: largest change of a real token's output; "
        "pooled: of an entry of a sentence's vector; angle: of the vector, in degrees."
    )
    return Grid(("masks on", *QUANTITIES), rows, caption)


def draw(name: str, leaks: Mapping) -> Figure:
    """The figure, see `FIGURE`."""
    figure = Figure(figsize=(8, 3.2))
    axes = figure.subplots()
    for n, (change, label) in enumerate(CHANGES.items()):
        angles = [leaks[change]["angle"][masks] for masks in MASKS]
        at = [y + 0.36 * (n - 0.5) for y in range(len(MASKS))]
        axes.barh(at, angles, height=0.34, color=drawing.COLORS[n], label=label)
        for y, angle in zip(at, angles, strict=True):
            text = "0" if angle == 0 else f"{angle:.2g}"
            axes.annotate(text, (angle, y), (4, 0), textcoords="offset points", va="center",
                          fontsize="small")  # fmt: skip
    drawing.name_rows(axes, [f"masks: {label}" for label in MASKS.values()])
    axes.set_xlabel("largest angle between a sentence's vectors (degrees)")
    most = max(leaks["amount"]["angle"].values())
    masked = max(leaks[change]["angle"]["attention+output"] for change in CHANGES)
    title = f"{name}: padding turns a vector by up to {most:.0f} degrees, {small(masked)} if masked"
    drawing.title_with_legend(figure, title, columns=2)
    return figure
