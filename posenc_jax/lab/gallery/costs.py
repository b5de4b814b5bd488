"""What a method takes: parameters, and what XLA counts for attention with it."""

import collections
import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from posenc_jax import tuning
from posenc_jax.attention import attend, frame
from posenc_jax.encoding import Dims, Encoding, place
from posenc_jax.encodings import card, make
from posenc_jax.encodings.card import Card
from posenc_jax.lab.gallery.measure import grid, line

STATED = Dims(model=512, heads=8, head=64, layers=12)
TIME, SIDE = 1024, 16  # tokens; patches along an image or a video's frame where positions have axes
# Widths that no option has, so that a size of a parameter's shape tells what it follows.
PROBE = Dims(model=4784, heads=23, head=208, layers=7)
LETTERS = {
    PROBE.model: "D", PROBE.model // 2: "D/2", PROBE.heads: "H", PROBE.head: "C",
    PROBE.head // 2: "C/2", PROBE.head // 8: "C/8", PROBE.layers: "N",
}  # fmt: skip


class Cost(NamedTuple):
    """Operations and bytes of one layer's forward pass, beyond those without positions.

    loops: the program has loops, whose body is counted once: both are the least it can be.
    """

    operations: float
    bytes: float
    loops: bool


def count(encoding: Encoding, dims: Dims) -> int:
    """How many numbers the encoding learns."""
    return sum(leaf.size for leaf in _leaves(encoding, dims))


def formula(encoding: Encoding) -> str:
    """The same as a sum of products of D, H, C, N and numbers; "0" where nothing is learned."""
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
    """A size of a shape as a number and the width it is of, "" for none."""
    if size in LETTERS:
        return 1, LETTERS[size]
    for width in (PROBE.head, PROBE.heads):
        if size % width == 0:
            return size // width, LETTERS[width]
    return size, ""


def _leaves(encoding: Encoding, dims: Dims) -> list[jax.ShapeDtypeStruct]:
    key = jax.eval_shape(lambda: jax.random.key(0))
    return jax.tree.leaves(jax.eval_shape(lambda k: encoding.init(k, dims), key))


def cost(name: str) -> Cost:
    """What the method adds to one sequence of TIME tokens, by XLA's count of the compiled program.

    At the input that is `embed`, for one that only places `place`, else dense attention with it
    less attention without positions.
    """
    method, dims = card(name), STATED._replace(layers=1)
    if method.kind in ("input", "positions"):
        return _counted(method, make(name), dims)
    ours, plain = _counted(method, make(name), dims), base()
    return Cost(ours.operations - plain.operations, ours.bytes - plain.bytes, ours.loops)


@functools.cache
def base() -> Cost:
    """What attention without positions takes."""
    return _counted(card("nope"), make("nope"), STATED._replace(layers=1))


def _counted(method: Card, encoding: Encoding, dims: Dims) -> Cost:
    at = line(method, TIME) if method.axes < 2 else _image(method)

    def run(params, x_BTD, at):
        if method.kind == "positions":
            return place(encoding, None, at)
        view = frame(encoding, params, at, dims, form="dense")
        if encoding.embed is not None:
            return view.embed(x_BTD)
        x_BTHC = x_BTD.reshape(1, TIME, dims.heads, dims.head)
        return attend(x_BTHC, x_BTHC, x_BTHC, view.layer(0, x_BTD))

    params = encoding.init(jax.random.key(0), dims)
    with tuning.off():
        made = jax.jit(run).lower(params, jnp.zeros((1, TIME, dims.model)), at).compile()
    found = made.cost_analysis() or {}
    operations = found.get("flops", 0.0) + found.get("transcendentals", 0.0)
    return Cost(operations, found.get("bytes accessed", 0.0), " while(" in (made.as_text() or ""))


def _image(method: Card):
    side = SIDE if method.axes == 3 else 2 * SIDE
    return grid(method, side, TIME // side**2)
