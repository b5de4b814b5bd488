"""The panels of a card that show what turns by position, and which keys a query sees."""

from collections.abc import Iterator

import numpy as np

from posenc_jax.encodings.card import Card
from posenc_jax.lab.gallery import measure, points
from posenc_jax.lab.gallery.panels import THIN, Curve, Panel, curves, heat
from posenc_jax.lab.report.drawing import COLORS


def angles(method: Card) -> Iterator[Panel]:
    """Yields the angle of each pair by position, and the pairs' wavelengths beside those of rope.

    Nothing, if the method turns no pair by an angle of its position.
    """
    found = {}
    for name in dict.fromkeys((method.name, "rope")):
        found[name] = points.angles(measure.setup(name, length=measure.TRAINED))
    if (own_HFT := found[method.name]) is None:
        return
    made = f", made for {measure.TRAINED}" if "length" in method.options else ""
    head = ", head 1" if len(own_HFT) > 1 else ""
    turn_FT = own_HFT[0] - np.round(own_HFT[0])
    yield heat("Angle of each pair", f"in turns{head}{made}", turn_FT, "position",
               "pair, 0 is the fastest", cyclic=True)  # fmt: skip
    waves = {name: points.wavelengths(angle)[0] for name, angle in found.items()
             if angle is not None}  # fmt: skip
    drawn = [Curve(np.arange(len(y)), y, name, color, width=width)
             for (name, y), color, width in zip(waves.items(), COLORS, (2.4, THIN), strict=False)
             if np.isfinite(y).any()]  # fmt: skip
    if not np.isfinite(waves[method.name]).any():
        return
    below = f"tokens for a whole turn{made}; dotted: {measure.TRAINED}"
    panel = curves("Wavelengths", below, drawn, "pair", "tokens, log scale", level=measure.TRAINED)

    def draw(axes):
        panel.draw(axes)
        axes.set_yscale("log")

    yield panel._replace(draw=draw)


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
        own = (f"{option} {size}" for option, size in measure.narrow(method).items())
        below = ", ".join(["blue: seen", *own])
        yield heat(f"Keys that a query sees{where}", below, seen_QK, "key", "query",
                   square=True)  # fmt: skip
