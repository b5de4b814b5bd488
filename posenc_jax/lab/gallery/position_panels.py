"""Panels of a card: the angles of pairs by position, ids on a circle, and the keys that a query
sees.
"""

from collections.abc import Iterator

import jax.numpy as jnp
import numpy as np

from posenc_jax.encodings.card import Card
from posenc_jax.encodings.multimodal_ids import Image, Text, circle_ids, ids
from posenc_jax.lab.gallery import measure, option_grid
from posenc_jax.lab.gallery.panels import ORDERED, SMALL, THIN, Curve, Panel, curves, heat
from posenc_jax.lab.report.drawing import COLORS, INK
from posenc_jax.layout import layout

RADIUS, MIX = 10.0, 0.5  # of `circle_ids`


def angles(method: Card) -> Iterator[Panel]:
    """Yields the angle of each pair by position, and the pairs' wavelengths beside those of rope.

    Nothing, if the method turns no pair by an angle of its position.
    """
    angles_by_method = {}
    for name in dict.fromkeys((method.name, "rope")):
        angles_by_method[name] = option_grid.angles(measure.setup(name, length=measure.TRAINED))
    if (angle_HFT := angles_by_method[method.name]) is None:
        return
    made_for = f", made for {measure.TRAINED}" if "length" in method.options else ""
    head = ", head 1" if len(angle_HFT) > 1 else ""
    turn_FT = angle_HFT[0] - np.round(angle_HFT[0])
    yield heat("Angle of each pair", f"in turns{head}{made_for}", turn_FT, "position",
               "pair, 0 is the fastest", cyclic=True)  # fmt: skip
    waves = {name: option_grid.wavelengths(angle)[0] for name, angle in angles_by_method.items()
             if angle is not None}  # fmt: skip
    drawn = [Curve(np.arange(len(y)), y, name, color, width=width)
             for (name, y), color, width in zip(waves.items(), COLORS, (2.4, THIN), strict=False)
             if np.isfinite(y).any()]  # fmt: skip
    if not np.isfinite(waves[method.name]).any():
        return
    below = f"tokens for a whole turn{made_for}; dotted: {measure.TRAINED}"
    panel = curves("Wavelengths", below, drawn, "pair", "tokens, log scale", level=measure.TRAINED)

    def draw(axes):
        panel.draw(axes)
        axes.set_yscale("log")

    yield panel._replace(draw=draw)


def circles(name: str) -> Iterator[Panel]:
    """Yields the ids of an image's patches on their circle, and scores of the text after it and of
    its centre patch, in a layer that reads the circle and in one that reads the grid.
    """
    side = measure.SIDE
    parts = Text(1), Image(side, side), Text(1)
    id_TA, patches = circle_ids(parts, RADIUS, MIX), slice(1, -1)
    yield Panel(
        f"Ids of {side} × {side} patches, layer 1",
        "seen along the line of text; blue to orange: row by row",
        lambda axes: _circle(axes, id_TA[patches], id_TA[-1]),
    )
    at = layout(jnp.ones((1, len(id_TA)), jnp.int32),
                jnp.asarray(np.concatenate([id_TA, ids(parts)], axis=1))[None])  # fmt: skip
    setup, centre = measure.setup(name), 1 + side // 2 * (side + 1)
    x_BTD = measure.alike(setup, len(id_TA))
    for title, query in (("Text to patches", len(id_TA) - 1), ("Centre patch", centre)):
        for layer, where in enumerate(("on the circle", "on the grid")):
            options = {"queries": slice(query, query + 1), "causal": False, "layer": layer}
            score_T = setup.scores(x_BTD, at, mean=True, **options)[0, 0, 0]
            score_RC = score_T[patches].reshape(side, side)
            yield heat(f"{title}, layer {layer + 1}", f"expected score; patches {where}", score_RC,
                       "column", "row", square=True)  # fmt: skip


def _circle(axes, patch_NA: np.ndarray, text_A: np.ndarray) -> None:
    """Draws ids (time, row, column) in the plane perpendicular to the line of text."""
    plane_A2 = np.array([[0, 1, -1], [2, -1, -1]]).T / np.sqrt([2, 6])
    for ids_NA, marker, color in (
        (patch_NA, "o", ORDERED(np.linspace(0, 1, len(patch_NA)))),
        (text_A[None], "s", INK),
    ):
        axes.scatter(*(ids_NA @ plane_A2).T, s=16, marker=marker, color=color, zorder=3)
    axes.annotate("text", text_A @ plane_A2, (6, 4), textcoords="offset points", fontsize=SMALL)
    axes.set_aspect("equal")
    axes.set(xlabel=f"radius {RADIUS:g}, mix {MIX:g}", ylabel="")


def masks(method: Card) -> Iterator[Panel]:
    """Yields the keys that queries see in each distinct layer, if some earlier keys are hidden."""
    seen = []
    for layer in range(measure.LAYERS if method.kind == "by_layer" else 1):
        seen_QK = measure.seen(method.name, layer)
        if not any(np.array_equal(seen_QK, other) for _, other in seen):
            seen.append((layer, seen_QK))
    if method.axes > 1 or all(np.array_equal(s, np.tri(len(s))) for _, s in seen):
        return
    for layer, seen_QK in seen:
        where = f", layer {layer + 1}" if len(seen) > 1 else ""
        windows = (f"{option} {size}" for option, size in measure.narrow(method).items())
        below = ", ".join(["blue: seen", *windows])
        yield heat(f"Keys that a query sees{where}", below, seen_QK, "key", "query",
                   square=True)  # fmt: skip
