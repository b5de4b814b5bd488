"""What a method does, as numbers: its table, its scores, its bias, the positions that it shows.

One setting serves all methods, so that their figures compare. Tokens are vectors of mean 0 and
variance 1, the projections of queries and keys are identities, a head has 64 channels, and what is
learned is as `init` draws it; what begins at zero, and would show nothing, is drawn with deviation
0.1. Without positions the score of a token with its like is then 8, and that of two tokens that
have nothing to do with each other 0 on average.
"""

import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.attention import frame, logits
from posenc_jax.encoding import Dims, Encoding, Params, place
from posenc_jax.encodings import card, make
from posenc_jax.encodings.card import Card
from posenc_jax.layout import Layout, full, layout

TRAINED = 64  # tokens that a bounded method is made for where past and present are compared
LENGTHS = (TRAINED, 2 * TRAINED, 4 * TRAINED)
SPAN, SPAN_2D = 128, 24  # distances, along a sequence and along an axis of an image
SIDE = 14  # patches along an image that a bounded method is made for
HEAD, HEADS, LAYERS = 64, 4, 6
DRAWS, INITS = 8, 3  # of contents where an expectation is estimated, of parameters
AWAKE = 0.1
DIGITS = 8  # of the numbers that methods reading groups are shown


class Band(NamedTuple):
    """A line for each head with its spread: x [N]; mean, low and high [H, N]."""

    x: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray


def fitted(name: str, **wanted: Any) -> Encoding:
    """The method with those of the options that it has; one that only places, before `rope`."""
    method = card(name)
    options = {o: value for o, value in wanted.items() if o in method.options}
    return make(f"{name}+rope" if method.kind == "positions" else name, **options)


def dims_of(method: Card) -> Dims:
    """The widths to measure with: a code at the input is as wide as the one head."""
    heads = 1 if method.kind == "input" else HEADS
    return Dims(heads * HEAD, heads, HEAD, LAYERS if method.kind == "by_layer" else 1)


def line(method: Card, length: int, axis: int = 0, beside: int = 0) -> Layout:
    """One sequence, along one axis of the positions; the other axes stand still at `beside`."""
    at = full(1, length)
    at = at.replace(group_BT=at.pos_BT % (DIGITS + 1))
    if method.axes < 2:
        return at
    along = jnp.arange(method.axes, dtype=jnp.int32)[None, None] == axis
    return at.replace(pos_BT=jnp.where(along, at.pos_BT[..., None], beside))


def grid(method: Card, side: int, times: int = 1) -> Layout:
    """An image's patches row by row; with a time axis before it, `times` frames of a video."""
    index = jnp.arange(times * side * side, dtype=jnp.int32)
    axes = [index // side**2, index // side % side, index % side][-method.axes :]
    return layout(jnp.ones((1, len(index)), jnp.int32), jnp.stack(axes, axis=-1)[None])


def alike(method: Card, time: int) -> jax.Array:
    """Sequences whose tokens are all one vector, the same in each head, [B, T, D].

    The vectors are the rows of a random orthogonal matrix, times 8. Their mean of a score that is a
    product of query and key is then its very expectation, without the noise of a sample; negatives
    beside them do the same for what is linear in the vector. Where content acts otherwise, the mean
    is that of fewer vectors.
    """
    dims = dims_of(method)
    normal_CC = np.random.default_rng(0).normal(size=(HEAD, HEAD))
    x_BC = np.linalg.qr(normal_CC)[0] * HEAD**0.5
    if method.kind == "content":
        x_BC = x_BC[:DRAWS]
    if method.kind == "input":
        x_BC = np.concatenate([x_BC, -x_BC])
    x_BD = jnp.asarray(np.tile(x_BC, dims.heads), jnp.float32)
    return jnp.broadcast_to(x_BD[:, None], (len(x_BD), time, dims.model))


def unlike(method: Card, time: int) -> jax.Array:
    """Sequences of tokens that have nothing to do with each other, [B, T, D]."""
    return jax.random.normal(jax.random.key(2), (2 * DRAWS, time, dims_of(method).model))


def scores(
    encoding: Encoding,
    params: Params,
    x_BTD: jax.Array,
    at: Layout,
    dims: Dims,
    queries: slice = slice(None),
    causal: bool = True,
    layer: int = 0,
) -> np.ndarray:
    """A layer's logits [B, H, Q, K] of a run of the tokens; NaN where a key is not seen."""
    start, stop, _ = queries.indices(x_BTD.shape[1])
    view = frame(
        encoding, params, at, dims, queries=(start, stop - start), causal=causal, form="dense"
    )
    x_BTD = view.embed(x_BTD, "k")
    x_BTHC = x_BTD.reshape(*x_BTD.shape[:2], dims.heads, dims.head)
    told = view.layer(layer, x_BTD[:, queries], x_BTD)
    return finite(np.asarray(logits(x_BTHC[:, queries], x_BTHC, told), np.float64))


def finite(found: np.ndarray) -> np.ndarray:
    return np.where(np.isfinite(found), found, np.nan)


def drawn(encoding: Encoding, dims: Dims, seed: int = 0) -> Params:
    """Parameters as an initialisation draws them; what is zero throughout is drawn as well."""
    params = encoding.init(jax.random.key(seed), dims)

    def wake(leaf):
        noise = AWAKE * jax.random.normal(jax.random.key(seed), leaf.shape, leaf.dtype)
        return leaf if np.asarray(leaf).any() else noise

    return jax.tree.map(wake, params)


def inits(encoding: Encoding, dims: Dims) -> list[Params]:
    """Parameters of several initialisations; of one where nothing is learned."""
    first = drawn(encoding, dims)
    return [first, *(drawn(encoding, dims, s) for s in range(1, INITS) if jax.tree.leaves(first))]


def kernel(name: str, axis: int = 0, layer: int = 0) -> Band:
    """Expected score of a token with its like, by distance along an axis of the positions.

    The spread is over absolute positions, and over where the other axes stand. Low to high is
    everything that occurs: one value for what is relative.
    """
    method, encoding = card(name), fitted(name)
    dims, span = dims_of(method), SPAN if method.axes < 2 else SPAN_2D
    x_BTD, late = alike(method, 2 * span), slice(span, None)
    rows = []
    for beside in (0,) if method.axes < 2 else (0, 5, 11):
        at = line(method, 2 * span, axis, beside)
        found = [
            scores(encoding, params, x_BTD, at, dims, late, layer=layer).mean(axis=0)
            for params in inits(encoding, dims)
        ]
        rows.append(by_distance(np.mean(found, axis=0), span))
    s_HPN = np.concatenate(rows, axis=1)
    ends = (of_known(f, s_HPN, axis=1) for f in (np.nanmean, np.nanmin, np.nanmax))
    return Band(np.arange(span), *ends)


def share(name: str) -> Band:
    """What position adds to the score of tokens with random content, by distance.

    The line is the mean over contents, positions, heads and initialisations, the spread holds the
    middle 80% of them.
    """
    method, encoding, plain = card(name), fitted(name), make("nope")
    dims = dims_of(method)
    x_BTD, at, late = unlike(method, 2 * SPAN), line(method, 2 * SPAN), slice(SPAN, None)
    content = scores(plain, {}, x_BTD, at, dims, late)
    found = [scores(encoding, p, x_BTD, at, dims, late) - content for p in inits(encoding, dims)]
    s_BHPN = by_distance(np.concatenate(found), SPAN)
    low, high = of_known(np.nanquantile, s_BHPN, q=[0.1, 0.9], axis=(0, 1, 2))
    mean = of_known(np.nanmean, s_BHPN, axis=(0, 1, 2))
    return Band(np.arange(SPAN), mean[None], low[None], high[None])


def by_distance(s_XQK: np.ndarray, span: int) -> np.ndarray:
    """Scores [..., Q, K] of queries that begin at key `span` as [..., Q, N], N being distances."""
    query_Q1 = np.arange(s_XQK.shape[-2])[:, None]
    return s_XQK[..., query_Q1, span + query_Q1 - np.arange(span)[None]]


def of_known(f: Callable, x: np.ndarray, **rest: Any) -> np.ndarray:
    """f of what is not NaN; NaN where nothing else is, without a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return f(x, **rest)


def policies(method: Card) -> tuple[str, ...]:
    """The range policies that the method offers."""
    if method.beyond != "option":
        return (method.beyond,)
    return get_args(method.options["beyond"].annotation)


def past(name: str, policy: str) -> dict[int, np.ndarray]:
    """The last token's expected scores by distance, for sequences of each of LENGTHS tokens.

    A method that has a `length` is made for the first of them. Where content matters, the tokens
    are random and what position adds is shown, else they are alike. Mean over heads; NaN where the
    method refuses.
    """
    method = card(name)
    dims, encoding = dims_of(method), fitted(name, length=TRAINED, beyond=policy)
    content = method.kind == "content"
    draw = unlike if content else alike
    found = {}
    for n in LENGTHS:
        x_BTD, at, last = draw(method, n), line(method, n), slice(n - 1, n)
        s_IN = [scores(encoding, p, x_BTD, at, dims, last) for p in inits(encoding, dims)]
        plain = scores(make("nope"), {}, x_BTD, at, dims, last) if content else 0.0
        found[n] = of_known(np.nanmean, np.stack(s_IN) - plain, axis=(0, 1, 2))[0, ::-1]
    return found


def image(name: str, policy: str, side: int, times: Sequence[int] = (0,)) -> np.ndarray:
    """Expected scores of an image's centre patch with its like at every patch, [times, side, side].

    Of the first head of one initialisation. With a time axis, the frames `times` after its own.
    """
    method = card(name)
    dims, encoding = dims_of(method), fitted(name, length=SIDE, beyond=policy)
    at = grid(method, side, max(times) + 1)
    centre = side // 2 * side + side // 2
    x_BTD = alike(method, at.index_BT.shape[1])
    params = drawn(encoding, dims)
    found = scores(encoding, params, x_BTD, at, dims, slice(centre, centre + 1), causal=False)
    return found[:, 0, 0].mean(axis=0).reshape(-1, side, side)[list(times)]


def bias(name: str, queries: Sequence[int], length: int, heads: int = 8) -> np.ndarray:
    """The bias [H, Q, K] of these queries to all keys, before and after; NaN where not finite."""
    method, encoding, dims = card(name), fitted(name), Dims(heads * HEAD, heads, HEAD)
    at, params = line(method, length), drawn(encoding, dims)
    layer = frame(encoding, params, at, dims, form="dense").layer(0)
    return finite(np.asarray(layer.bias(), np.float64)[0][:, list(queries)])


def shown(name: str, length: int, seed: int | None = None) -> np.ndarray:
    """The positions [T] that a method shows a sequence; a seed: as a training step would."""
    method = card(name)
    options = {"length": TRAINED} if "length" in method.options else {}
    key = None if seed is None else jax.random.key(seed)
    return np.asarray(place(make(name, **options), key, line(method, length))[0], np.float64)


def table(name: str, width: int, positions: int, length: int | None = None) -> np.ndarray:
    """The first `width` channels of the codes [T, W] of positions 0, 1, ..., before a projection.

    Args:
      width: of the model, which the code's own width follows where it can.
      length: what a method that has a `length` is made for; None: as many as are asked for.
    """
    encoding = fitted(name, length=length or positions)
    params = drawn(encoding, Dims(width, 1, width))
    if "code" in params:
        own = params["code"].shape[0]
        width = min(own, width)
        params = {**params, "code": jnp.eye(own, width)}
    at = line(card(name), positions)
    assert encoding.embed is not None
    nothing_1TW = jnp.zeros((1, positions, width))
    return np.asarray(encoding.embed(params, nothing_1TW, place(encoding, None, at))[0], np.float64)


def pixels(code_TW: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean, least and largest of each channel over the positions of each of `count` pixels, [N, W].

    One position for each pixel would show waves that are not there: those shorter than a pixel
    come back as longer ones.
    """
    parts = np.array_split(code_TW, count)
    mean, low, high = (np.stack([f(p, axis=0) for p in parts]) for f in (np.mean, np.min, np.max))
    return mean, low, high
