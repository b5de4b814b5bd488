"""A method's card: which panels it has, and the figure of them."""

import io
import math
import re
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from posenc_jax.encodings import card
from posenc_jax.encodings.card import Card
from posenc_jax.lab.gallery import measure
from posenc_jax.lab.gallery.measure import LENGTHS, SIDE, SPAN, TRAINED, Band
from posenc_jax.lab.gallery.panels import SMALL, THIN, Curve, Panel, curves, heat, in_order, put
from posenc_jax.lab.report import drawing
from posenc_jax.lab.report.drawing import COLORS

WIDE, NARROW, FIRST, FAR, PIXELS = 50, 20, 20, 40_000, 100
WAVES = (0, 4, 10, 16)  # channels drawn as curves
THINNER = (3.2, 2.0, 1.1)  # lines that may hide each other
REACH = 160  # distances to either side at which a bias is drawn
LEAST = 1e-4  # differences of scores that are more than rounding
COLUMNS, LETTERS = 3, 46  # of panels in a row; of a title over one column
AXES = ("time", "row", "column")
SMALLER: dict[Any, Any] = {
    "font.size": 8.5,
    "axes.titlesize": 9.5,
    "axes.linewidth": 0.7,
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.4,
    "xtick.labelsize": SMALL,
    "ytick.labelsize": SMALL,
    "xtick.bottom": False,
    "ytick.left": False,
}


def panels(name: str) -> list[Panel]:
    """What there is to draw of a method, by its kind."""
    method, found = card(name), []
    if method.kind == "input" and method.axes == 1:
        found += _tables(name)
    if method.kind == "positions":
        found += _movers(method)
    if method.kind == "bias" and method.axes == 1:
        found += _biases(method)
    if method.kind == "content":
        found.append(_share(name))
    found += _kernels(method)
    if method.axes < 2:
        found += _past(method)
    else:
        found += _images(method)
    return found


def figure(name: str, drawn: Sequence[Panel], titled: bool = True) -> Figure:
    """The card of these panels; `titled`: with the method's name and formula above it."""
    columns = 2 if len(drawn) in (2, 4) else min(COLUMNS, len(drawn))
    rows = math.ceil(len(drawn) / columns)
    title = textwrap.wrap(f"{name}:  {card(name).formula}", LETTERS * columns)
    made = Figure(figsize=(4.1 * columns, 2.75 * rows + (0.2 + 0.17 * len(title)) * titled))
    grid = made.subplots(rows, columns, squeeze=False).flat
    for axes, panel in zip(grid, drawn, strict=False):
        put(panel, axes)
    for axes in list(made.axes[len(drawn) : rows * columns]):
        axes.remove()
    if titled:
        made.suptitle("\n".join(title), x=0.01, ha="left", fontsize=10, fontweight="bold",
                      parse_math=False)  # fmt: skip
    return made


def png(name: str, drawn: Sequence[Panel], dpi: int = 90) -> bytes:
    """The card as a PNG of 256 colours, half of the size that all colours take."""
    from PIL import Image

    buffer, small = io.BytesIO(), io.BytesIO()
    with drawing.styled(name), matplotlib.rc_context(SMALLER):
        figure(name, drawn).savefig(buffer, format="png", dpi=dpi)
    shades = Image.open(buffer).convert("RGB").quantize(256, dither=Image.Dither.NONE)
    shades.save(small, format="png", optimize=True)
    return small.getvalue()


def svg(name: str, drawn: Sequence[Panel]) -> str:
    """The card without its title as SVG, without what a page does not need."""
    buffer = io.StringIO()
    with drawing.styled(name), matplotlib.rc_context(SMALLER):
        figure(name, drawn, titled=False).savefig(
            buffer, format="svg", transparent=True, metadata={"Date": None}
        )
    return _compact(buffer.getvalue())


def _compact(svg: str) -> str:
    """Matplotlib's SVG at about half its size: lengths to a tenth of a point, no spare text."""
    svg = re.sub(r"base64,[^\"]+", lambda found: re.sub(r"\s", "", found.group()), svg)
    svg = re.sub(r"(?<=[\d ]\.\d)\d+(?=[ \"\n)])", "", svg)
    svg = re.sub(r' id="([\w.]+_\d+|image\w+)"| transform="rotate\(-0 [^\"]*"', "", svg)
    svg = re.sub(r"\s*\n\s*", " ", svg).replace("> <", "><").replace(" L ", " ")
    return svg.replace("font-family: 'DejaVu Sans'; ", "")


def _tables(name: str) -> Iterator[Panel]:
    near_TW = measure.table(name, WIDE, FIRST)
    width = near_TW.shape[1]
    box = (-0.5, FIRST - 0.5, -0.5, width - 0.5)
    yield heat(f"The first {FIRST} positions", f"model width {WIDE}, a pixel each", near_TW.T, box,
               "position", "channel")  # fmt: skip
    mean, low, high = measure.pixels(measure.table(name, WIDE, FAR), PIXELS)
    box, each = (0, FAR, -0.5, width - 0.5), FAR // PIXELS
    yield heat(f"{FAR:,} positions: mean", f"over the {each} positions of each pixel", mean.T, box,
               "position", "channel")  # fmt: skip
    yield heat(f"{FAR:,} positions: range", f"largest minus least of a pixel's {each} positions",
               (high - low).T, box, "position", "channel")  # fmt: skip
    yield _waves(name)


def _waves(name: str) -> Panel:
    """Single channels, one above the other, as wide and narrow models have them."""
    found = {d: measure.table(name, d, 2 * SPAN)[:SPAN] for d in (WIDE, NARROW)}
    widths = [code.shape[1] for code in found.values()]
    own = len(set(widths)) == 1
    found = {WIDE: found[WIDE]} if own else found
    channels = [c for c in WAVES if c < min(widths)]
    if len(channels) < len(WAVES):
        channels = list(range(widths[0]))[:: -(-widths[0] // len(WAVES))]
    drawn = []
    for color, (d, code_TW) in zip(COLORS, found.items(), strict=False):
        for row, channel in enumerate(channels):
            y = code_TW[:, channel]
            size = max(np.abs(other[:, channel]).max() for other in found.values()) or 1.0
            label = "" if row or own else f"width {d}"
            style = {"linewidth": 1.1}
            drawn.append(Curve(np.arange(SPAN), row + 0.42 * y / size, label, color, style=style))
    below = f"each on its own scale{f'; the code has {widths[0]} in all' if own else ''}"
    panel = curves("Single channels", below, drawn, "position", "channel")

    def draw(axes):
        panel.draw(axes)
        axes.set_yticks(range(len(channels)), [str(c) for c in channels])
        axes.set_ylim(-0.6, len(channels) - 0.4)

    return panel._replace(draw=draw)


def _movers(method: Card) -> Iterator[Panel]:
    name = method.name
    at = f", made for {TRAINED}" if "length" in method.options else ""
    drawn = [
        Curve(np.arange(n), measure.shown(name, n), _tokens(n), color, style={"linewidth": w})
        for n, color, w in zip(LENGTHS, COLORS, THINNER, strict=False)
    ]
    yield curves("Shown in evaluation", f"by the sequence's length{at}", drawn,
                 "position", "position shown")  # fmt: skip
    steps = [measure.shown(name, TRAINED, seed) for seed in range(5)]
    if np.array_equal(steps[0], steps[1]):
        return
    style = {"linewidth": 1.0}
    drawn = [Curve(np.arange(TRAINED), y, color=COLORS[i], style=style) for i, y in
             enumerate(steps)]  # fmt: skip
    yield curves("Shown in training", f"five draws, {TRAINED} tokens", drawn, "position",
                 "position shown")  # fmt: skip


def _biases(method: Card) -> Iterator[Panel]:
    bias_HK = measure.bias(method.name, [REACH], 2 * REACH + 1)[:, 0]
    d = REACH - np.arange(2 * REACH + 1)
    middle = f", query at {REACH} of {2 * REACH + 1}" if not method.shift_invariant else ""
    yield curves("Bias by head", f"before (D > 0) and after (D < 0) the query{middle}",
                 in_order(d, bias_HK, "head"), "distance D = i - j", "bias")  # fmt: skip
    if not method.shift_invariant:
        bias_HQK = measure.bias(method.name, range(TRAINED), TRAINED)
        for head in sorted({0, len(bias_HQK) - 1}):
            box = (-0.5, TRAINED - 0.5, TRAINED - 0.5, -0.5)
            yield heat(f"Bias, head {head + 1}", "every query and key", bias_HQK[head][::-1], box,
                       "key", "query", square=True)  # fmt: skip
    elif len(bias_HK) > 1:
        box = (-REACH - 0.5, REACH + 0.5, 0.5, len(bias_HK) + 0.5)
        yield heat("Bias of all heads", "grey: minus infinity, the key is not seen",
                   bias_HK[:, ::-1], box, "distance D = i - j", "head")  # fmt: skip


def _share(name: str) -> Panel:
    band = measure.share(name)
    return curves("What position adds, random content",
                  "to q·k / √C: mean; 80% of contents, positions, heads", _of_heads(band),
                  "distance", "score")  # fmt: skip


def _kernels(method: Card) -> Iterator[Panel]:
    """The expected score by distance: one panel; for layouts, one with the layers that differ."""
    if method.kind == "by_layer":
        bands = [measure.kernel(method.name, layer=n) for n in range(measure.LAYERS)]
        y_NX = np.stack([band.mean[0] for band in bands])
        yield curves("Score by layer", "expected, of a token with its like; mean over positions",
                     in_order(bands[0].x, y_NX, "layer"), "distance", "score")  # fmt: skip
        return
    for axis in range(max(method.axes, 1)):
        band = measure.kernel(method.name, axis)
        widest = _gap(band.high, band.low)
        axes = AXES[-method.axes :]
        title = f"Along the {axes[axis]}" if method.axes > 1 else "Expected score"
        title += _partner(method)
        below = (
            f"a token with its like; spread over positions: up to {widest:.2g}"
            if widest > LEAST
            else "a token with its like; the same at all positions"
        )
        yield curves(title, below, _of_heads(band), "distance", "score",
                     level=measure.HEAD**0.5)  # fmt: skip


def _partner(method: Card) -> str:
    return ", with rope" if method.kind == "positions" else ""


def _of_heads(band: Band) -> list[Curve]:
    """A band's heads as curves with their spread; one where they do not differ."""
    spread = _gap(band.high, band.low) > LEAST
    rows = enumerate(zip(band.mean, band.low, band.high, strict=True))
    drawn = [
        Curve(
            band.x,
            mean,
            "head 1" if h == 0 else str(h + 1),
            COLORS[h],
            low if spread else None,
            high if spread else None,
            THIN,
        )
        for h, (mean, low, high) in rows
    ]
    alone = drawn[0]._replace(label="", style={})
    return [alone] if _gap(band.mean, band.mean[:1]) < LEAST else drawn


def _tokens(n: int) -> str:
    return f"n = {n}" if n == LENGTHS[0] else str(n)


def _gap(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.nanmax(np.abs(a - b), initial=0.0))


def _past(method: Card) -> Iterator[Panel]:
    """The last token's scores in sequences of and past the length that the method is made for."""
    made = "length" in method.options
    for policy in measure.policies(method):
        found = measure.past(method.name, policy)
        drawn = [
            Curve(np.arange(n), y, _tokens(n), color, style={"linewidth": w})
            for (n, y), color, w in zip(found.items(), COLORS, THINNER, strict=False)
            if np.isfinite(y).any()
        ]
        gone = [str(n) for n, y in found.items() if not np.isfinite(y).any()]
        title = "Longer sequences"
        if made:
            title = f"Beyond: {policy}" if policy != "unbounded" else "Beyond its length"
        what = f"the last token's expected score{_partner(method)}"
        if method.kind == "content":
            what = "what position adds at the last token"
        at = f", made for {TRAINED}" if made else ""
        below = f"{what}; refused: {', '.join(gone)}" if gone else f"{what}{at}"
        yield curves(title, below, drawn, "distance", "score", mark=TRAINED)


def _images(method: Card) -> Iterator[Panel]:
    """The map of the centre patch over the image, at the size made for and at twice it."""
    times = (0, 1, 4) if method.axes == 3 else (0,)
    sides = (SIDE,) if method.axes == 3 else (SIDE, 2 * SIDE)
    for policy in measure.policies(method):
        found = {side: measure.image(method.name, policy, side, times) for side in sides}
        known = {side: maps for side, maps in found.items() if np.isfinite(maps).any()}
        gone = "".join(f"; {side} × {side} is refused" for side in set(found) - set(known))
        named = f": {policy}" if len(measure.policies(method)) > 1 else ""
        for side, maps in known.items():
            grey = "" if np.isfinite(maps).all() else "; grey: refused"
            box = (-0.5, side - 0.5, side - 0.5, -0.5)
            for t, map_RC in zip(times, maps, strict=True):
                when = f", {t} later" if t else ""
                yield heat(f"{side} × {side} patches{when}{named}",
                           f"the centre patch's expected score{gone}{grey}", map_RC[::-1], box,
                           "column", "row", square=True)  # fmt: skip
