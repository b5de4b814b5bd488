"""Measures each method on a grid of its options: the numbers that the explorer draws."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args, get_origin

import jax
import numpy as np

from posenc_jax.attention import frame
from posenc_jax.encoding import at_layer, place
from posenc_jax.encodings import card, cards, taken_by
from posenc_jax.encodings.rotation import TURN, Turn
from posenc_jax.lab.gallery import measure
from posenc_jax.lab.gallery.measure import Setup
from posenc_jax.options import FieldError

# Values of the options that a reader can move; a method has those that it takes.
KNOBS: dict[str, Sequence[Any]] = {
    "base": (100.0, 1_000.0, 10_000.0, 500_000.0),
    "length": (32, 64, 128),
    "factor": (1.0, 2.0, 4.0, 8.0),
    "distance": (16, 128, 256),
    "beyond": ("error", "clamp", "interpolate"),
}
# Methods whose positions do not stand on a line, and what their positions are.
ABSENT = {
    "laplacian": "entries of eigenvectors of a graph",
    "random_walk": "return probabilities of walks on a graph",
}
WIDTHS = (16, 32, 64)  # of a head
SPAN = 256  # tokens of the sequence, and distances
LENGTHS = (64, 128, 256)  # of sequences whose last token is asked
MATRIX = 64  # queries and keys that are shown as a matrix
LAST = 16  # queries at the end of the sequence, whose scores by distance count too
CHANNELS = 64  # of a code at the input that are shown
SAME = 1e-4  # smaller differences are rounding


class Point(NamedTuple):
    """The measurements of a method with one choice of options; NaN: not seen, or not defined.

    R counts the rows that differ, of heads or of layers. Scores are those of two equal tokens minus
    their score without positions; of methods by content, those of random tokens.

    rows:    the row of each head or layer.
    kernel:  scores by distance, [R, 1 or 3, SPAN]: mean, and least and largest over positions if
             these differ. By content: over contents and heads too, and the middle 80%.
    matrix:  scores of queries and keys, [R, MATRIX, MATRIX]; None: they follow from the distance.
    past:    the last token's scores by distance in sequences of LENGTHS, [R, 3, SPAN]; None: they
             are those of `kernel`.
    angle:   of each channel pair by position in turns, [R or 1, F, SPAN]; None: nothing turns.
    wave:    tokens for a turn of each pair, [R or 1, F]; NaN: it does not turn evenly.
    code:    channels by position, [W, SPAN], of methods at the input.
    """

    rows: list[int]
    kernel: np.ndarray
    matrix: np.ndarray | None
    past: np.ndarray | None
    angle: np.ndarray | None
    wave: np.ndarray | None
    code: np.ndarray | None


def knobs(name: str) -> dict[str, Sequence[Any]]:
    """Returns the grid of a method: the values of each option that can be moved, and of `head`."""
    parts = cards(measure.whole(card(name)))
    grid: dict[str, Sequence[Any]] = {}
    for option, values in KNOBS.items():
        takers = [part.options[option] for part in parts if option in part.options]
        annotations = [taker.annotation for taker in takers]
        literals = [kind for kind in annotations if get_origin(kind) is Literal]
        choices = {choice for kind in literals for choice in get_args(kind)}
        values = [value for value in values if not choices or value in choices]
        if takers:
            grid[option] = values
    return {**grid, "head": WIDTHS}


def points(name: str) -> Iterator[Point | str]:
    """Yields a point for each choice of the grid, the last option fastest, or the reason why it is
    refused.
    """
    grid = knobs(name)
    for values in itertools.product(*grid.values()):
        options = dict(zip(grid, values, strict=True))
        try:
            yield point(name, options.pop("head"), options)
        except FieldError as error:
            yield str(error)


def point(name: str, head: int, options: Mapping[str, Any]) -> Point:
    """Measures a method with one choice of options. FieldError: the options or the width are
    refused.
    """
    setup = measure.setup(name, head, learned=False, **options)
    likes = _first_alike(setup)
    measured = {n: _layer(setup, n) for n in set(likes)}
    measured_layers = [measured[n] for n in likes]
    kernel, matrix, past = (np.concatenate(arrays) for arrays in zip(*measured_layers, strict=True))
    angle = angles(setup)
    rows, firsts = _alike(kernel, matrix, past, *([] if angle is None else [angle]))
    kernel, matrix, past = kernel[firsts], matrix[firsts], past[firsts]
    relative = _same(matrix, _by_distance_alone(kernel[:, 0]))
    unmoved = all(_same(past[:, i, :n], kernel[:, 0, :n]) for i, n in enumerate(LENGTHS))
    code = None
    if setup.card.kind == "input" and setup.card.axes == 1:
        code_options = taken_by(name, options)
        code = measure.table(name, head, SPAN, learned=False, **code_options).T[:CHANNELS]
    return Point(
        rows=rows,
        kernel=kernel[:, :1] if _same(kernel[:, 1], kernel[:, 2]) else kernel,
        matrix=None if relative else matrix,
        past=None if unmoved else past,
        angle=angle if angle is None or len(angle) == 1 else angle[firsts],
        wave=None if angle is None else wavelengths(angle if len(angle) == 1 else angle[firsts]),
        code=code,
    )


def _first_alike(setup: Setup) -> list[int]:
    """Returns for each layer the number of the first layer with the same encoding and
    parameters.
    """
    at = measure.line(setup.card, 1)
    placed = place(setup.encoding, None, at)
    layers = range(setup.dims.layers)
    layer_encodings = [at_layer(setup.encoding, n, setup.params, placed)[:2] for n in layers]
    same = lambda a, b: (
        a[0] is b[0]
        and all(x is y for x, y in zip(*map(jax.tree.leaves, (a[1], b[1])), strict=True))
    )
    return [next(m for m in layers if same(layer_encodings[m], layer_encodings[n])) for n in layers]


def _layer(setup: Setup, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the kernel, matrix and past of one layer, with a row for each head."""
    near, late = slice(0, MATRIX), slice(SPAN - LAST, SPAN)
    matrix_BHQK = _added(setup, SPAN, near, n)
    late_BHQK = _added(setup, SPAN, late, n)
    pairs = np.concatenate([_by_distance(matrix_BHQK, 0), _by_distance(late_BHQK, late.start)], 2)
    past = np.full((pairs.shape[1], len(LENGTHS), SPAN), np.nan)
    for i, length in enumerate(LENGTHS):
        last_BHQK = _added(setup, length, slice(length - 1, length), n)
        past[:, i, :length] = measure.without_nan(np.nanmean, last_BHQK, axis=0)[:, 0, ::-1]
    middle = measure.without_nan(np.nanmean, matrix_BHQK, axis=0)[..., :MATRIX]
    mean = measure.without_nan(np.nanmean, pairs, axis=(0, 2))
    ends = [measure.without_nan(f, pairs, axis=(0, 2)) for f in (np.nanmin, np.nanmax)]
    if setup.card.kind == "content":
        ends = measure.without_nan(np.nanquantile, pairs, q=[0.1, 0.9], axis=(0, 2))
    return np.stack([mean, *ends], axis=1), middle, past


def _added(setup: Setup, time: int, queries: slice, layer: int) -> np.ndarray:
    """Returns the scores that position adds, [B, H, Q, K].

    B is 1 for the expectation over equal tokens, H is 1 if layers differ. By content, heads are
    among the contents B.
    """
    at = measure.line(setup.card, time, axis=max(setup.card.axes, 1) - 1)
    if setup.card.kind == "content":
        x_BTD = measure.unlike(setup, time)
        plain = measure.setup("nope", setup.dims.head).scores(x_BTD, at, queries)
        s_BHQK = setup.scores(x_BTD, at, queries)
        return (s_BHQK - plain).reshape(-1, 1, *s_BHQK.shape[2:])
    x_BTD = measure.alike(setup, time)
    s_BHQK = setup.scores(x_BTD, at, queries, layer=layer, mean=True)
    heads = 1 if setup.card.kind == "by_layer" else setup.dims.heads
    return s_BHQK[:, :heads] - setup.dims.head**0.5


def _by_distance(s_BHQK: np.ndarray, first: int) -> np.ndarray:
    """Returns scores of queries from number `first` on as [B, H, Q, distance]; NaN: no such key."""
    key_QN = first + np.arange(s_BHQK.shape[2])[:, None] - np.arange(SPAN)
    s_BHQN = np.take_along_axis(s_BHQK, np.maximum(key_QN, 0)[None, None], axis=3)
    return np.where(key_QN >= 0, s_BHQN, np.nan)


def _by_distance_alone(mean_RN: np.ndarray) -> np.ndarray:
    """Returns the matrix of scores that depend on the distance alone; NaN: a later key."""
    distance_QK = np.arange(MATRIX)[:, None] - np.arange(MATRIX)
    return np.where(distance_QK >= 0, mean_RN[:, np.maximum(distance_QK, 0)], np.nan)


def _same(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two arrays are equal up to rounding, and defined in the same places."""
    size = max(float(np.nanmax(np.abs(a), initial=1.0)), 1.0)
    return bool(np.allclose(a, b, rtol=0, atol=SAME * size, equal_nan=True))


def _alike(*arrays: np.ndarray) -> tuple[list[int], list[int]]:
    """Returns the row of each head or layer, where equal ones share a row, and the first head or
    layer of each row.
    """
    count, firsts, rows = len(arrays[0]), [], []
    pick = lambda x, i: x[i] if len(x) > 1 else x[0]
    for i in range(count):
        like = [
            r for r, j in enumerate(firsts) if all(_same(pick(x, i), pick(x, j)) for x in arrays)
        ]
        rows.append(like[0] if like else len(firsts))
        firsts += [] if like else [i]
    return rows, firsts


def angles(setup: Setup) -> np.ndarray | None:
    """Returns the angles of the queries' pairs in the first layer, in turns; None: none turn."""
    at = measure.line(setup.card, SPAN, axis=max(setup.card.axes, 1) - 1)
    view = frame(setup.encoding, setup.params, at, setup.dims, form="dense")
    if setup.encoding.embed is not None:
        return None
    table = view.layer(0).q_table
    turns = [t for t in jax.tree.leaves(table, is_leaf=_turns) if _turns(t)]
    if not turns:
        return None
    cos, sin = (np.asarray(leaf, np.float64)[0] for leaf in turns[0])
    return (np.arctan2(sin, cos) / TURN).transpose(1, 2, 0)


def _turns(leaf: Any) -> bool:
    return isinstance(leaf, Turn)


def wavelengths(angle_RFT: np.ndarray) -> np.ndarray:
    """Returns the tokens for a whole turn of each pair; NaN if the pair does not turn evenly."""
    step_RFT = np.diff(angle_RFT, axis=2)
    step_RFT -= np.round(step_RFT)
    first = step_RFT[..., :1]
    gap = step_RFT - first
    even = (np.abs(gap - np.round(gap)) < SAME).all(axis=2) & (np.abs(first[..., 0]) > 1e-9)
    return np.where(even, 1 / np.where(even, np.abs(first[..., 0]), 1), np.nan)
