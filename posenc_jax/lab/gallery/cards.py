"""Draws the card of a method: chooses panels by the method's kind, and puts them into one
figure.
"""

import io
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from posenc_jax.encodings import card
from posenc_jax.encodings.card import Card
from posenc_jax.encodings.graphs import eigenvectors, return_probabilities
from posenc_jax.lab.gallery import measure, position_panels
from posenc_jax.lab.gallery.measure import LENGTHS, SIDE, SPAN, TRAINED, Band
from posenc_jax.lab.gallery.panels import SMALL, THIN, Curve, Panel, curves, heat, in_order, put
from posenc_jax.lab.report import drawing, vector
from posenc_jax.lab.report.drawing import COLORS

WIDE, NARROW, FIRST, FAR, PIXELS = 50, 20, 20, 40_000, 100
WAVES = (0, 4, 10, 16)  # channels drawn as curves
WIDTHS = (3.2, 2.0, 1.1)  # of lines, thinner on top, as they may coincide
REACH = 160  # distances to either side at which a bias is drawn
LEAST = 1e-4  # smaller differences of scores are rounding
COLUMNS = 3  # panels in a row
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
    """Returns the panels of a method."""
    if name == "laplacian":
        return list(_graphs())  # its positions are no points along axes
    if name == "random_walk":
        return list(_walks())
    if name == "prope":
        return list(_images(card(name)))
    method, panels_drawn = card(name), []
    if method.kind == "input" and method.axes == 1:
        panels_drawn += _tables(name)
    if method.kind == "positions":
        panels_drawn += _assigned(method)
    if method.kind == "rotary" and method.axes < 2:
        panels_drawn += position_panels.angles(method)
    if method.kind == "bias" and method.axes == 1:
        panels_drawn += _biases(method)
    if method.kind == "content":
        below = "to q·k / √C: mean; 80% of contents, positions, heads"
        drawn = _head_curves(measure.share(name))
        title = "What position adds, random content"
        panels_drawn.append(curves(title, below, drawn, "distance", "score"))
    panels_drawn += _kernels(method)
    panels_drawn += position_panels.masks(method)
    if name == "circle_rope":
        return [*panels_drawn, *position_panels.circles(name)]  # its ids are not those of a grid
    return [*panels_drawn, *(_past(method) if method.axes < 2 else _images(method))]


def figure(drawn: Sequence[Panel]) -> Figure:
    """Returns the figure of a card with these panels."""
    columns = 2 if len(drawn) in (2, 4) else min(COLUMNS, len(drawn))
    rows = math.ceil(len(drawn) / columns)
    card_figure = Figure(figsize=(4.1 * columns, 2.75 * rows))
    grid = card_figure.subplots(rows, columns, squeeze=False).flat
    for axes, panel in zip(grid, drawn, strict=False):
        put(panel, axes)
    for axes in list(card_figure.axes[len(drawn) : rows * columns]):
        axes.remove()
    return card_figure


def svg(name: str, drawn: Sequence[Panel]) -> str:
    """Returns the card as SVG."""
    buffer = io.BytesIO()
    with drawing.styled(name), matplotlib.rc_context(SMALLER):
        figure(drawn).savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    return vector.compact(buffer.getvalue().decode())


def _tables(name: str) -> Iterator[Panel]:
    near_TW, count = measure.table(name, WIDE, FIRST), FAR // PIXELS
    mean, low, high = measure.pixels(measure.table(name, WIDE, FAR), PIXELS)
    far = {"x": "position", "y": "channel", "x_ends": (0, FAR)}
    below = f"model width {WIDE}, a pixel each"
    yield heat(f"The first {FIRST} positions", below, near_TW.T, "position", "channel")
    below = f"over the {count} positions of each pixel"
    yield heat(f"{FAR:,} positions: mean", below, mean.T, **far)
    below = f"largest minus least of a pixel's {count} positions"
    yield heat(f"{FAR:,} positions: range", below, (high - low).T, **far)
    yield _waves(name)


def _waves(name: str) -> Panel:
    """Returns a panel of single channels, one above the other, in a wide and a narrow model."""
    codes = {d: measure.table(name, d, 2 * SPAN)[:SPAN] for d in (WIDE, NARROW)}
    widths = [code.shape[1] for code in codes.values()]
    fixed = len(set(widths)) == 1  # the width of the code is not the model's
    codes = {WIDE: codes[WIDE]} if fixed else codes
    channels = [c for c in WAVES if c < min(widths)]
    if len(channels) < len(WAVES):
        channels = list(range(widths[0]))[:: -(-widths[0] // len(WAVES))]
    drawn = []
    for color, (d, code_TW) in zip(COLORS, codes.items(), strict=False):
        for row, channel in enumerate(channels):
            y = code_TW[:, channel]
            size = max(np.abs(other[:, channel]).max() for other in codes.values()) or 1.0
            label = "" if row or fixed else f"width {d}"
            drawn.append(Curve(np.arange(SPAN), row + 0.42 * y / size, label, color, width=1.1))
    below = f"each on its own scale{f'; the code has {widths[0]} in all' if fixed else ''}"
    panel = curves("Single channels", below, drawn, "position", "channel")

    def draw(axes):
        panel.draw(axes)
        axes.set_yticks(range(len(channels)), [str(c) for c in channels])
        axes.set_ylim(-0.6, len(channels) - 0.4)

    return panel._replace(draw=draw)


def _path(nodes: int) -> np.ndarray:
    """The adjacency of nodes in a line."""
    return np.eye(nodes, k=1) + np.eye(nodes, k=-1)


def _grid(rows: int) -> np.ndarray:
    """The adjacency of nodes in rows and SIDE columns."""
    return np.kron(_path(rows), np.eye(SIDE)) + np.kron(np.eye(rows), _path(SIDE))


def _walks(rows: int = 10, steps: Sequence[int] = (2, 4, 8)) -> Iterator[Panel]:
    """Yields panels of return probabilities on a path and on a grid; they are 0 at odd steps."""
    path_TA = return_probabilities(_path(TRAINED), steps[-1] + 1)
    drawn = [
        Curve(np.arange(TRAINED), path_TA[:, n], f"{n} steps", COLORS[at])
        for at, n in enumerate(steps)
    ]
    below = "that a random walk ends where it began"
    yield curves(f"A path of {TRAINED} nodes", below, drawn, "node", "probability")
    grid_TA = return_probabilities(_grid(rows), steps[-1] + 1)
    for n in steps:
        title, below = f"A grid, {n} steps", f"{rows} × {SIDE} nodes"
        entries = grid_TA[:, n].reshape(rows, SIDE)
        yield heat(title, below, entries, "column", "row", square=True)


def _graphs(rows: int = 10, count: int = 3) -> Iterator[Panel]:
    """Yields panels of the first eigenvectors of a path and of a grid of nodes."""
    path_TA = eigenvectors(_path(TRAINED), count)
    drawn = in_order(np.arange(TRAINED), path_TA.T, "eigenvector")
    yield curves(f"A path of {TRAINED} nodes", "signs are arbitrary", drawn, "node", "entry")
    for n, entry_T in enumerate(eigenvectors(_grid(rows), count).T):
        title, below = f"A grid, eigenvector {n + 1}", f"{rows} × {SIDE} nodes"
        yield heat(title, below, entry_T.reshape(rows, SIDE), "column", "row", square=True)


def _assigned(method: Card) -> Iterator[Panel]:
    """Yields panels of the positions that the method assigns, in evaluation and in training."""
    name, axes = method.name, ("position", "position shown")
    at = f", made for {TRAINED}" if "length" in method.options else ""
    drawn = _by_length({n: measure.shown(name, n) for n in LENGTHS})
    yield curves("Shown in evaluation", f"by the sequence's length{at}", drawn, *axes)
    steps = [measure.shown(name, TRAINED, seed) for seed in range(5)]
    if not np.array_equal(steps[0], steps[1]):
        colored = zip(steps, COLORS, strict=False)
        drawn = [Curve(np.arange(TRAINED), y, color=color, width=1.0) for y, color in colored]
        yield curves("Shown in training", f"five draws, {TRAINED} tokens", drawn, *axes)


def _biases(method: Card) -> Iterator[Panel]:
    bias_HK = measure.bias(method.name, [REACH], 2 * REACH + 1)[:, 0]
    d, distance = REACH - np.arange(2 * REACH + 1), "distance D = i - j"
    middle = f", query at {REACH} of {2 * REACH + 1}" if not method.shift_invariant else ""
    below = f"before (D > 0) and after (D < 0) the query{middle}"
    yield curves("Bias by head", below, in_order(d, bias_HK, "head"), distance, "bias")
    if not method.shift_invariant:
        bias_HQK = measure.bias(method.name, range(TRAINED), TRAINED)
        for head in sorted({0, len(bias_HQK) - 1}):
            title, values = f"Bias, head {head + 1}", bias_HQK[head]
            yield heat(title, "every query and key", values, "key", "query", square=True)
    elif len(bias_HK) > 1:
        below, ends = "grey: minus infinity, the key is not seen", (-REACH - 0.5, REACH + 0.5)
        values = bias_HK[:, ::-1]
        yield heat("Bias of all heads", below, values, distance, "head", x_ends=ends, first=1)


def _kernels(method: Card) -> Iterator[Panel]:
    """Yields the expected score by distance: for each axis, or for each group of equal layers."""
    if method.kind == "by_layer":
        bands = [measure.kernel(method.name, layer=n) for n in range(measure.LAYERS)]
        drawn = in_order(bands[0].x, np.stack([band.mean[0] for band in bands]), "layer")
        below = "expected, of a token with its like; mean over positions"
        yield curves("Score by layer", below, drawn, "distance", "score")
        return
    names = AXES[-method.axes :]
    for axis in range(max(method.axes, 1)):
        band = measure.kernel(method.name, axis)
        widest, drawn = _gap(band.high, band.low), _head_curves(band)
        if method.kind == "rotary" and method.axes < 2 and method.name != "rope":
            rope = measure.kernel("rope")
            under = Curve(rope.x, rope.mean[0], "rope", drawing.MUTED, width=THIN)
            curves_of_method = drawn if len(drawn) > 1 else [drawn[0]._replace(label=method.name)]
            drawn = [under, *curves_of_method]
        title = f"Along the {names[axis]}" if method.axes > 1 else "Expected score"
        spread = "the same at all positions"
        if widest > LEAST:
            spread = f"spread over positions: up to {widest:.2g}"
        said = f"a token with its like; {spread}"
        yield curves(title + _partner(method), said, drawn, "distance",
                      "score", level=measure.HEAD**0.5)  # fmt: skip


def _partner(method: Card) -> str:
    """The end of a title: the method beside which one that only places positions is shown."""
    return ", with rope" if method.kind == "positions" else ""


def _head_curves(band: Band) -> list[Curve]:
    """Returns a curve for each head, or one for all if they are equal, with one band over all
    heads, because several bands would blend.
    """
    ends = ()
    if _gap(band.high, band.low) > LEAST:
        ends = (np.fmin.reduce(band.low), np.fmax.reduce(band.high))
    if _gap(band.mean, band.mean[:1]) < LEAST:
        return [Curve(band.x, band.mean[0], "", COLORS[0], *ends)]
    labels = ["head 1", *(str(h + 1) for h in range(1, len(band.mean)))]
    drawn = [Curve(band.x, mean, label, color, width=THIN)
             for mean, label, color in zip(band.mean, labels, COLORS, strict=False)]  # fmt: skip
    band_alone = Curve(band.x, np.full(len(band.x), np.nan), "", drawing.MUTED, *ends)
    return [band_alone, *drawn] if ends else drawn


def _by_length(scores: Mapping[int, np.ndarray]) -> list[Curve]:
    """Returns the curves of scores by distance, one for each length that is not all NaN.

    Where a longer one begins as a shorter one, the longer one is drawn for both.
    """
    finite = {n: y for n, y in scores.items() if np.isfinite(y).any()}
    drawn, waiting = [], []
    for (n, y), color, width in zip(finite.items(), COLORS, WIDTHS, strict=False):
        waiting.append(str(n))
        longer = next((other for m, other in finite.items() if m > n), None)
        if longer is None or _gap(y, longer[:n]) > LEAST:
            label = ("" if drawn else "n = ") + ", ".join(waiting)
            drawn.append(Curve(np.arange(n), y, label, color, width=width))
            waiting = []
    return drawn


def _gap(a: np.ndarray, b: np.ndarray) -> float:
    """The largest difference of two arrays, ignoring NaN."""
    return float(np.nanmax(np.abs(a - b), initial=0.0))


def _past(method: Card) -> Iterator[Panel]:
    """Yields the last token's scores within and beyond the length that the method is made for."""
    bounded = "length" in method.options
    for policy in measure.policies(method):
        scores = measure.past(method.name, policy)
        gone = [str(n) for n, y in scores.items() if not np.isfinite(y).any()]
        title = "Longer sequences"
        if bounded:
            title = f"Beyond: {policy}" if policy != "unbounded" else "Beyond its length"
        below = f"the last token's expected score{_partner(method)}"
        if method.kind == "content":
            below = "what position adds at the last token"
        if gone:
            below += f"; refused: {', '.join(gone)}"
        elif bounded:
            below += f", made for {TRAINED}"
        yield curves(title, below, _by_length(scores), "distance", "score", mark=TRAINED)


def _images(method: Card) -> Iterator[Panel]:
    """Yields maps of the centre patch's scores, for the trained image size and for twice that
    size.
    """
    moves = {18: (0, 5, 15), 3: (0, 1, 4)}  # frames, for cameras 6 degrees each
    times = moves.get(method.axes, (0,))
    sides = (SIDE,) if method.axes >= 3 else (SIDE, 2 * SIDE)
    later = lambda t: f", camera {6 * t}° on" if method.axes > 3 else f", {t} later"
    policies = measure.policies(method)
    for policy in policies:
        maps_by_side = {side: measure.image(method.name, policy, side, times) for side in sides}
        finite = {side: maps for side, maps in maps_by_side.items() if np.isfinite(maps).any()}
        gone = "".join(f"; {side} × {side} is refused" for side in set(maps_by_side) - set(finite))
        named = f": {policy}" if len(policies) > 1 else ""
        for side, maps in finite.items():
            grey = "" if np.isfinite(maps).all() else "; grey: refused"
            below = f"the centre patch's expected score{gone}{grey}"
            for t, map_RC in zip(times, maps, strict=True):
                title = f"{side} × {side} patches{later(t) if t else ''}{named}"
                yield heat(title, below, map_RC, "column", "row", square=True)
