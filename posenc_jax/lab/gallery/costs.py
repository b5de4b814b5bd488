"""Counts a method's cost: its parameters, and the operations and bytes of attention with it."""

import collections
import dataclasses
import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from posenc_jax.attention import attend, frame
from posenc_jax.backends.target import compile_for
from posenc_jax.encoding import Dims, Encoding, place
from posenc_jax.encodings import card, make
from posenc_jax.lab.gallery.measure import grid, line

STATED = Dims(model=512, heads=8, head=64, layers=12)
TIME, SIDE = 1024, 16  # tokens; patches along an image or a video's frame where positions have axes
# No option has one of these widths, so a size in a parameter's shape shows which width it is of.
PROBE = Dims(model=4784, heads=23, head=208, layers=7)
LETTERS = {
    PROBE.model: "D", PROBE.model // 2: "D/2", PROBE.heads: "H", PROBE.head: "C",
    PROBE.head // 2: "C/2", PROBE.head // 4: "C/4", PROBE.head // 8: "C/8", PROBE.layers: "N",
}  # fmt: skip


class Cost(NamedTuple):
    """Operations and bytes of one layer's forward pass, less those of attention without positions.

    loops: the program has loops, of which XLA counts the body once: both numbers are lower bounds.
    """

    operations: float
    bytes: float
    loops: bool


def count(encoding: Encoding, dims: Dims) -> int:
    """Returns the number of parameters that the encoding learns."""
    return sum(leaf.size for leaf in _leaves(encoding, dims))


def formula(encoding: Encoding) -> str:
    """Returns the number of parameters as a sum of products of D, H, C, N and numbers; "0" if there
    are none.
    """
    shapes = collections.Counter(leaf.shape for leaf in _leaves(encoding, PROBE))
    factors: collections.Counter[tuple[str, ...]] = collections.Counter()
    for shape, times in shapes.items():
        by_layer = times % PROBE.layers == 0
        sizes = [_letter(size) for size in shape]
        letters = [*(["N"] if by_layer else []), *(letter for _, letter in sizes if letter)]
        number = times // PROBE.layers if by_layer else times
        factors[tuple(letters)] += number * math.prod(number for number, _ in sizes)
    terms = (
        " ".join([*([f"{number:,}"] if number > 1 or not letters else []), *letters])
        for letters, number in factors.items()
    )
    return " + ".join(terms) or "0"


def _letter(size: int) -> tuple[int, str]:
    """Returns a size of a shape as (number, letter of a width); the letter is "" if it is no
    width.
    """
    if size in LETTERS:
        return 1, LETTERS[size]
    for width in (PROBE.head, PROBE.heads):
        if size % width == 0:
            return size // width, LETTERS[width]
    return size, ""


def _leaves(encoding: Encoding, dims: Dims) -> list[jax.ShapeDtypeStruct]:
    """The shapes of the encoding's parameters."""
    key = jax.eval_shape(lambda: jax.random.key(0))
    return jax.tree.leaves(jax.eval_shape(lambda k: encoding.init(k, dims), key))


def cost(name: str) -> Cost:
    """Returns the cost that the method adds to one sequence of TIME tokens, as XLA counts it.

    For a method at the input it is the cost of `embed`, for one that only places that of `place`,
    else that of dense attention less `base()`.
    """
    return added(name, counted(name), base())


def added(name: str, ours: Cost, plain: Cost) -> Cost:
    """Returns the cost of a method, from the counts with it and without positions."""
    if card(name).kind in ("input", "positions"):
        return ours
    return Cost(ours.operations - plain.operations, ours.bytes - plain.bytes, ours.loops)


@functools.cache
def base() -> Cost:
    """Returns the cost of attention without positions."""
    return counted("nope")


def counted(name: str) -> Cost:
    """Returns the cost of a layer's attention with the method; of `embed` or `place` alone for one
    that acts at the input or only places.
    """
    method, encoding, dims = card(name), make(name), dataclasses.replace(STATED, layers=1)
    side = SIDE if method.axes >= 3 else 2 * SIDE
    at = line(method, TIME) if method.axes < 2 else grid(method, side, TIME // side**2)

    def run(params, x_BTD, at):
        if method.kind == "positions":
            return place(encoding, None, at)
        view = frame(encoding, params, at, dims, form="dense")
        x_BTD = view.embed(x_BTD)
        if method.kind == "input":
            return x_BTD
        x_BTHC = x_BTD.reshape(1, TIME, dims.heads, dims.head)
        return attend(x_BTHC, x_BTHC, x_BTHC, view.layer(0, x_BTD))

    params = encoding.init(jax.random.key(0), dims)
    with compile_for("gpu"):  # the grid of a bias is made in one piece, which XLA counts
        compiled = jax.jit(run).lower(params, jnp.zeros((1, TIME, dims.model)), at).compile()
    analysis = compiled.cost_analysis() or {}
    operations = analysis.get("flops", 0.0) + analysis.get("transcendentals", 0.0)
    return Cost(
        operations, analysis.get("bytes accessed", 0.0), " while(" in (compiled.as_text() or "")
    )
