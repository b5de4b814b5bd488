"""Measures a method: its table, its scores, its bias, the positions that it assigns.

All methods are measured in the setting of `page.how_to_read`. Without positions the score of two
equal tokens is 8 there, and that of two independent tokens 0 on average.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.attention import frame, logits
from posenc_jax.encoding import Dims, Encoding, Params, place
from posenc_jax.encodings import card, make, taken_by
from posenc_jax.encodings.card import Card
from posenc_jax.lab.gallery import trained
from posenc_jax.layout import Layout, full, layout

TRAINED = trained.LENGTH  # that a bounded method is made for where past and present are compared
LENGTHS = (TRAINED, 2 * TRAINED, 4 * TRAINED)
SPAN, SPAN_2D = 128, 24  # distances, along a sequence and along an axis of an image
WINDOW = 16  # tokens that a method with a window sees where its mask is shown
SIDE = trained.PATCHES  # along an image that a bounded method is made for
HEAD, HEADS, LAYERS = 64, 4, 6
DRAWS = 8  # of contents where an expectation is estimated
AWAKE = 0.1
DIGITS = 8  # of the numbers that methods reading groups are shown


class Band(NamedTuple):
    """A line for each head with its spread: x [N]; mean, low and high [H, N]."""

    x: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray


class Setup(NamedTuple):
    """A method with its parameters and the sizes of its model."""

    card: Card
    encoding: Encoding
    dims: Dims
    params: Params

    def scores(
        self,
        x_BTD: jax.Array,
        at: Layout,
        queries: slice,
        causal: bool = True,
        layer: int = 0,
        mean: bool = False,
    ) -> np.ndarray:
        """Returns a layer's logits [B, H, Q, K]; NaN: a key is not seen.

        With `mean` they are the mean over the contents, [1, H, Q, K].
        """
        start, stop, _ = queries.indices(x_BTD.shape[1])
        view = frame(self.encoding, self.params, at, self.dims, queries=(start, stop - start),
                     causal=causal, form="dense")  # fmt: skip
        input_BTD = view.embed(x_BTD, "k")
        x_BTHC = input_BTD.reshape(*x_BTD.shape[:2], self.dims.heads, self.dims.head)
        view_layer = view.layer(layer, input_BTD[:, queries], input_BTD)
        s_BHQK = logits(x_BTHC[:, queries], x_BTHC, view_layer)
        return finite(s_BHQK.mean(axis=0, keepdims=True) if mean else s_BHQK)


def setup(name: str, head: int = HEAD, learned: bool = True, **wanted: Any) -> Setup:
    """Returns a method with the parameters and sizes with which it is measured.

    A method that only places stands before `rope`. A code at the input is as wide as the one head.

    Args:
      head: channels of a head.
      learned: parameters are those of `trained.parameters`; False: drawn at random.
      wanted: options, of which those are used that the method has.
    """
    method = card(name)
    chained = whole(method)
    options = taken_by(chained, wanted)
    encoding = make(chained, **options)
    heads = 1 if method.kind == "input" else HEADS
    dims = Dims(heads * head, heads, head, LAYERS if method.kind == "by_layer" else 1)
    params = after_training(chained, dims, options) if learned else drawn(encoding, dims)
    return Setup(method, encoding, dims, params)


def after_training(name: str, dims: Dims, options: Mapping[str, Any]) -> Params:
    """Returns the trained parameters; the policy beyond the range does not matter in training."""
    return trained.parameters(name, dims, {k: v for k, v in options.items() if k != "beyond"})


def whole(method: Card) -> str:
    """Returns the name of the encoding with which the method is measured: one that only places
    positions is chained with `rope`.
    """
    return f"{method.name}+rope" if method.kind == "positions" else method.name


def drawn(encoding: Encoding, dims: Dims) -> Params:
    """Returns initial parameters; arrays that are zero, which would show nothing, are drawn with
    deviation AWAKE.
    """
    params = encoding.init(jax.random.key(0), dims)

    def wake(leaf):
        noise = AWAKE * jax.random.normal(jax.random.key(0), leaf.shape, leaf.dtype)
        return leaf if np.asarray(leaf).any() else noise

    return jax.tree.map(wake, params)


def finite(array: Any) -> np.ndarray:
    """Returns an array as float64, with NaN for what is not finite."""
    array = np.asarray(array, np.float64)
    return np.where(np.isfinite(array), array, np.nan)


def line(method: Card, length: int, axis: int = 0, beside: int = 0) -> Layout:
    """Returns the layout of one sequence along one axis of the positions; positions on other axes
    are `beside`.
    """
    at = full(1, length)
    at = at.replace(group_BT=at.pos_BT % (DIGITS + 1))
    if method.axes < 2:
        return at
    moves = axis + 3 - method.axes  # as one of time, row and column
    other_BT = jnp.full_like(at.pos_BT, beside)
    pos_3BT = [at.pos_BT if n == moves else other_BT for n in range(3)]
    return at.replace(pos_BT=on_axes(method.axes, *pos_3BT))


def on_axes(axes: int, time: Any, row: Any, column: Any) -> jax.Array:
    """Returns positions with `axes` axes, [..., A]: the last ones of time, row and column.

    For `prope` these are (row, column) and a camera that moves on a circle about the origin, which
    it looks at: 6 degrees at each step of time, so that a shift of time is a turn of the world.
    """
    if axes <= 3:
        return jnp.stack([time, row, column][-axes:], axis=-1)
    angle = (time % 60).astype(float) * (2 * np.pi / 60)
    cos, sin, unit, zero = jnp.cos(angle), jnp.sin(angle), jnp.ones_like(angle), 0 * angle
    camera = (
        cos,
        zero,
        sin,
        zero,
        zero,
        unit,
        zero,
        zero,
        -sin,
        zero,
        cos,
        2 * unit,
        *[zero] * 3,
        unit,
    )
    return jnp.stack([*camera, row.astype(float), column.astype(float)], axis=-1)


def grid(method: Card, side: int, times: int = 1) -> Layout:
    """Returns the layout of an image's patches, row by row, or of a video of `times` frames."""
    index = jnp.arange(times * side * side, dtype=jnp.int32)
    pos_TA = on_axes(method.axes, index // side**2, index // side % side, index % side)
    return layout(jnp.ones((1, len(index)), jnp.int32), pos_TA[None])


def alike(measured: Setup, time: int) -> jax.Array:
    """Returns sequences of equal tokens, [B, T, D]; a token is one vector, repeated in each head.

    The vectors are the rows of a random orthogonal matrix, times sqrt(C). The mean over them of a
    score that is a product of query and key is exactly its expectation, without the noise of a
    sample. For methods at the input their negatives are added, which does the same for terms that
    are linear in the vector. Methods by content get fewer vectors, which give a sample's mean.
    """
    head = measured.dims.head
    normal_CC = np.random.default_rng(0).normal(size=(head, head))
    x_BC = np.linalg.qr(normal_CC)[0] * head**0.5
    if measured.card.kind == "content":
        x_BC = x_BC[:DRAWS]
    if measured.card.kind == "input":
        x_BC = np.concatenate([x_BC, -x_BC])
    x_BD = jnp.asarray(np.tile(x_BC, measured.dims.heads), jnp.float32)
    return jnp.broadcast_to(x_BD[:, None], (len(x_BD), time, measured.dims.model))


def unlike(measured: Setup, time: int) -> jax.Array:
    """Returns sequences of independent random tokens, [B, T, D]."""
    return jax.random.normal(jax.random.key(2), (2 * DRAWS, time, measured.dims.model))


def kernel(name: str, axis: int = 0, layer: int = 0) -> Band:
    """Returns the expected score of two equal tokens, by distance along an axis of the positions.

    The spread, from least to greatest, is over absolute positions and over positions along the
    other axes; it has no width if scores are relative.
    """
    measured = setup(name)
    span, others = (SPAN, (0,)) if measured.card.axes < 2 else (SPAN_2D, (0, 5, 11))
    x_BTD, late = alike(measured, 2 * span), slice(span, None)
    rows = []
    for beside in others:
        at = line(measured.card, 2 * span, axis, beside)
        s_HQK = measured.scores(x_BTD, at, late, layer=layer).mean(axis=0)
        rows.append(by_distance(s_HQK, span))
    s_HPN = np.concatenate(rows, axis=1)
    ends = (without_nan(f, s_HPN, axis=1) for f in (np.nanmean, np.nanmin, np.nanmax))
    return Band(np.arange(span), *ends)


def share(name: str) -> Band:
    """Returns the score that position adds between tokens with random content, by distance.

    The mean is over contents, positions and heads, the spread holds the middle 80% of them.
    """
    measured = setup(name)
    args = unlike(measured, 2 * SPAN), line(measured.card, 2 * SPAN), slice(SPAN, None)
    s_BHPN = by_distance(measured.scores(*args) - setup("nope").scores(*args), SPAN)
    low, high = without_nan(np.nanquantile, s_BHPN, q=[0.1, 0.9], axis=(0, 1, 2))
    mean = without_nan(np.nanmean, s_BHPN, axis=(0, 1, 2))
    return Band(np.arange(SPAN), mean[None], low[None], high[None])


def by_distance(s_XQK: np.ndarray, span: int) -> np.ndarray:
    """Returns scores [..., Q, K] of queries from key `span` on by distance N, as [..., Q, N]."""
    query_Q1 = np.arange(s_XQK.shape[-2])[:, None]
    return s_XQK[..., query_Q1, span + query_Q1 - np.arange(span)[None]]


def without_nan(f: Callable, x: np.ndarray, **options: Any) -> np.ndarray:
    """Returns f(x), where f ignores NaN; an input of NaN alone gives NaN without a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return f(x, **options)


def policies(method: Card) -> tuple[str, ...]:
    """Returns the range policies that the method offers."""
    if method.beyond != "option":
        return (method.beyond,)
    return get_args(method.options["beyond"].annotation)


def past(name: str, policy: str) -> dict[int, np.ndarray]:
    """Returns length -> the last token's expected scores by distance, for each of LENGTHS.

    A method with an option `length` is made for the first of them. Methods by content get random
    tokens, and the result is what position adds; others get equal tokens. Mean over heads; NaN
    where the method refuses.
    """
    measured = setup(name, length=TRAINED, beyond=policy)
    scores = {}
    for n in LENGTHS:
        at, last, plain = line(measured.card, n), slice(n - 1, n), np.zeros(())
        x_BTD = alike(measured, n)
        if measured.card.kind == "content":
            x_BTD = unlike(measured, n)
            plain = setup("nope").scores(x_BTD, at, last)
        s_BHQN = measured.scores(x_BTD, at, last) - plain
        scores[n] = without_nan(np.nanmean, s_BHQN, axis=(0, 1))[0, ::-1]
    return scores


def narrow(method: Card) -> dict[str, int]:
    """Returns options that give a method a window of WINDOW tokens; the distance of a method by
    content only clips.
    """
    hiding = ("window", "distance") if method.kind != "content" else ("window",)
    return {option: WINDOW for option in hiding if option in method.options}


def seen(name: str, layer: int = 0) -> np.ndarray:
    """Returns whether a query sees a key in a layer's first head, 1 or 0, [TRAINED, TRAINED].

    A method with a window has one of WINDOW tokens.
    """
    measured = setup(name, learned=False, length=TRAINED, **narrow(card(name)))
    x_BTD = unlike(measured, TRAINED)[:1]
    at = line(measured.card, TRAINED, axis=max(measured.card.axes, 1) - 1)
    s_BHQK = measured.scores(x_BTD, at, slice(None), layer=layer)
    return np.isfinite(s_BHQK[0, 0]).astype(float)


def image(name: str, policy: str, side: int, times: Sequence[int] = (0,)) -> np.ndarray:
    """Returns the expected scores of an image's centre patch with all patches, [times, side, side].

    Tokens are equal. It is the first head. With a time axis, the keys are the frames that come
    `times` after the query's.
    """
    measured = setup(name, length=SIDE, beyond=policy)
    at = grid(measured.card, side, max(times) + 1)
    centre = side // 2 * side + side // 2
    x_BTD = alike(measured, at.index_BT.shape[1])
    s_BHQK = measured.scores(x_BTD, at, slice(centre, centre + 1), causal=False)
    return s_BHQK[:, 0, 0].mean(axis=0).reshape(-1, side, side)[list(times)]


def bias(name: str, queries: Sequence[int], length: int, heads: int = HEADS) -> np.ndarray:
    """Returns the bias [H, Q, K] of these queries to all keys; NaN where it is not finite."""
    encoding, dims = make(name), Dims(heads * HEAD, heads, HEAD)
    params = after_training(name, dims, {})
    view = frame(encoding, params, line(card(name), length), dims, form="dense")
    return finite(view.layer(0).bias())[0][:, list(queries)]


def shown(name: str, length: int, seed: int | None = None) -> np.ndarray:
    """Returns the positions [T] that a method assigns; with a seed, as in a training step."""
    method, key = card(name), None if seed is None else jax.random.key(seed)
    encoding = make(name, **taken_by(name, {"length": TRAINED}))
    return np.asarray(place(encoding, key, line(method, length))[0], np.float64)


def table(name: str, width: int, positions: int, learned: bool = True, **wanted: Any) -> np.ndarray:
    """Returns the first `width` channels of the codes [T, W] of positions 0, 1, ...

    They are the codes before a projection, in a model of this width. A method with an option
    `length` is made for all of these positions, if `wanted`, its options, do not say otherwise.
    `learned` is as in `setup`.
    """
    method, dims = card(name), Dims(width, 1, width)
    options = taken_by(name, {"length": positions, **wanted})
    encoding = make(name, **options)
    params = drawn(encoding, dims)
    if "code" in params:
        code_width = params["code"].shape[0]
        width = min(code_width, width)
        params = {**params, "code": jnp.eye(code_width, width)}
    elif learned:
        params = after_training(name, dims, options)
    at = place(encoding, None, line(method, positions))
    assert encoding.embed is not None
    return finite(encoding.embed(params, jnp.zeros((1, positions, width)), at)[0])


def pixels(code_TW: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns mean, least and largest of each channel over the positions of each pixel, [N, W].

    Without the means, waves shorter than one of the `count` pixels would appear as longer ones.
    """
    parts = np.array_split(code_TW, count)
    mean, low, high = (np.stack([f(p, axis=0) for p in parts]) for f in (np.mean, np.min, np.max))
    return mean, low, high
