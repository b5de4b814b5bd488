"""Measures what a method does: its table, its scores, its bias, the positions that it assigns.

All methods are measured in the setting of `page.how_to_read`. Without positions the score of two
equal tokens is 8 there, and that of two independent tokens 0 on average.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.attention import frame, logits
from posenc_jax.encoding import Dims, Encoding, Params, place
from posenc_jax.encodings import card, make, taken_by
from posenc_jax.encodings.card import Card
from posenc_jax.layout import Layout, full, layout

TRAINED = 64  # tokens that a bounded method is made for where past and present are compared
LENGTHS = (TRAINED, 2 * TRAINED, 4 * TRAINED)
SPAN, SPAN_2D = 128, 24  # distances, along a sequence and along an axis of an image
WINDOW = 16  # tokens that a method with a window sees where its mask is shown
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


class Setup(NamedTuple):
    """A method with the sizes of its model, and parameters of several initialisations."""

    card: Card
    encoding: Encoding
    dims: Dims
    params: list[Params]

    def scores(
        self,
        x_BTD: jax.Array,
        at: Layout,
        queries: slice,
        causal: bool = True,
        layer: int = 0,
        mean: bool = False,
    ) -> Iterator[np.ndarray]:
        """Yields a layer's logits [B, H, Q, K] for each initialisation; NaN: a key is not seen.

        With `mean` they are the mean over the contents, [1, H, Q, K].
        """
        start, stop, _ = queries.indices(x_BTD.shape[1])
        for params in self.params:
            made = frame(self.encoding, params, at, self.dims, queries=(start, stop - start),
                         causal=causal, form="dense")  # fmt: skip
            given_BTD = made.embed(x_BTD, "k")
            x_BTHC = given_BTD.reshape(*x_BTD.shape[:2], self.dims.heads, self.dims.head)
            own = made.layer(layer, given_BTD[:, queries], given_BTD)
            s_BHQK = logits(x_BTHC[:, queries], x_BTHC, own)
            yield finite(s_BHQK.mean(axis=0, keepdims=True) if mean else s_BHQK)


def setup(name: str, count: int | None = None, head: int = HEAD, **wanted: Any) -> Setup:
    """Returns a method as it is measured.

    A method that only places stands before `rope`. A code at the input is as wide as the one head.

    Args:
      count: initialisations; None: INITS if the method learns something, else one.
      head: channels of a head.
      wanted: options, of which those are used that the method has.
    """
    method = card(name)
    chained = whole(method)
    encoding = make(chained, **taken_by(chained, wanted))
    heads = 1 if method.kind == "input" else HEADS
    dims = Dims(heads * head, heads, head, LAYERS if method.kind == "by_layer" else 1)
    first = drawn(encoding, dims)
    count = count or (INITS if jax.tree.leaves(first) else 1)
    params = [first, *(drawn(encoding, dims, seed) for seed in range(1, count))]
    return Setup(method, encoding, dims, params)


def whole(method: Card) -> str:
    """Returns the name of the encoding by which the method is measured."""
    return f"{method.name}+rope" if method.kind == "positions" else method.name


def drawn(encoding: Encoding, dims: Dims, seed: int = 0) -> Params:
    """Returns initial parameters; arrays that are zero, which would show nothing, are drawn with
    deviation AWAKE.
    """
    params = encoding.init(jax.random.key(seed), dims)

    def wake(leaf):
        noise = AWAKE * jax.random.normal(jax.random.key(seed), leaf.shape, leaf.dtype)
        return leaf if np.asarray(leaf).any() else noise

    return jax.tree.map(wake, params)


def finite(found: Any) -> np.ndarray:
    """Returns an array as float64, with NaN for what is not finite."""
    found = np.asarray(found, np.float64)
    return np.where(np.isfinite(found), found, np.nan)


def line(method: Card, length: int, axis: int = 0, beside: int = 0) -> Layout:
    """Returns one sequence along one axis of the positions; those of other axes are `beside`."""
    at = full(1, length)
    at = at.replace(group_BT=at.pos_BT % (DIGITS + 1))
    if method.axes < 2:
        return at
    along = jnp.arange(method.axes, dtype=jnp.int32)[None, None] == axis
    return at.replace(pos_BT=jnp.where(along, at.pos_BT[..., None], beside))


def grid(method: Card, side: int, times: int = 1) -> Layout:
    """Returns an image's patches row by row, or those of a video of `times` frames."""
    index = jnp.arange(times * side * side, dtype=jnp.int32)
    axes = [index // side**2, index // side % side, index % side][-method.axes :]
    return layout(jnp.ones((1, len(index)), jnp.int32), jnp.stack(axes, axis=-1)[None])


def alike(made: Setup, time: int) -> jax.Array:
    """Returns sequences of equal tokens, [B, T, D]; a token is one vector, repeated in each head.

    The vectors are the rows of a random orthogonal matrix, times sqrt(C). The mean over them of a
    score that is a product of query and key is exactly its expectation, without the noise of a
    sample. For methods at the input their negatives are added, which does the same for terms that
    are linear in the vector. Methods by content get fewer vectors, which give a sample's mean.
    """
    head = made.dims.head
    normal_CC = np.random.default_rng(0).normal(size=(head, head))
    x_BC = np.linalg.qr(normal_CC)[0] * head**0.5
    if made.card.kind == "content":
        x_BC = x_BC[:DRAWS]
    if made.card.kind == "input":
        x_BC = np.concatenate([x_BC, -x_BC])
    x_BD = jnp.asarray(np.tile(x_BC, made.dims.heads), jnp.float32)
    return jnp.broadcast_to(x_BD[:, None], (len(x_BD), time, made.dims.model))


def unlike(made: Setup, time: int) -> jax.Array:
    """Returns sequences of independent random tokens, [B, T, D]."""
    return jax.random.normal(jax.random.key(2), (2 * DRAWS, time, made.dims.model))


def kernel(name: str, axis: int = 0, layer: int = 0) -> Band:
    """Returns the expected score of two equal tokens, by distance along an axis of the positions.

    The spread, from least to greatest, is over absolute positions and over positions along the
    other axes; it has no width if scores are relative.
    """
    made = setup(name)
    span, others = (SPAN, (0,)) if made.card.axes < 2 else (SPAN_2D, (0, 5, 11))
    x_BTD, late = alike(made, 2 * span), slice(span, None)
    rows = []
    for beside in others:
        at = line(made.card, 2 * span, axis, beside)
        found = [s.mean(axis=0) for s in made.scores(x_BTD, at, late, layer=layer)]
        rows.append(by_distance(np.mean(found, axis=0), span))
    s_HPN = np.concatenate(rows, axis=1)
    ends = (of_known(f, s_HPN, axis=1) for f in (np.nanmean, np.nanmin, np.nanmax))
    return Band(np.arange(span), *ends)


def share(name: str) -> Band:
    """Returns what position adds to the score of tokens with random content, by distance.

    The mean is over contents, positions, heads and initialisations, the spread holds the middle 80%
    of them.
    """
    made = setup(name)
    given = unlike(made, 2 * SPAN), line(made.card, 2 * SPAN), slice(SPAN, None)
    (content,) = setup("nope").scores(*given)
    found = [score - content for score in made.scores(*given)]
    s_BHPN = by_distance(np.concatenate(found), SPAN)
    low, high = of_known(np.nanquantile, s_BHPN, q=[0.1, 0.9], axis=(0, 1, 2))
    mean = of_known(np.nanmean, s_BHPN, axis=(0, 1, 2))
    return Band(np.arange(SPAN), mean[None], low[None], high[None])


def by_distance(s_XQK: np.ndarray, span: int) -> np.ndarray:
    """Returns scores [..., Q, K] of queries from key `span` on by distance N, as [..., Q, N]."""
    query_Q1 = np.arange(s_XQK.shape[-2])[:, None]
    return s_XQK[..., query_Q1, span + query_Q1 - np.arange(span)[None]]


def of_known(f: Callable, x: np.ndarray, **rest: Any) -> np.ndarray:
    """Returns f(x), where f ignores NaN; all NaN gives NaN without a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return f(x, **rest)


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
    made = setup(name, length=TRAINED, beyond=policy)
    found = {}
    for n in LENGTHS:
        at, last, plain = line(made.card, n), slice(n - 1, n), np.zeros(())
        x_BTD = alike(made, n)
        if made.card.kind == "content":
            x_BTD = unlike(made, n)
            (plain,) = setup("nope").scores(x_BTD, at, last)
        s_IN = np.stack([*made.scores(x_BTD, at, last)]) - plain
        found[n] = of_known(np.nanmean, s_IN, axis=(0, 1, 2))[0, ::-1]
    return found


def seen(name: str, layer: int = 0) -> np.ndarray:
    """Returns 1 where a query sees a key in a layer's first head, else 0, [TRAINED, TRAINED].

    A method with a window has one of WINDOW tokens.
    """
    made = setup(name, 1, length=TRAINED, window=WINDOW, distance=WINDOW)
    x_BTD = unlike(made, TRAINED)[:1]
    at = line(made.card, TRAINED, axis=max(made.card.axes, 1) - 1)
    (found,) = made.scores(x_BTD, at, slice(None), layer=layer)
    return np.isfinite(found[0, 0]).astype(float)


def image(name: str, policy: str, side: int, times: Sequence[int] = (0,)) -> np.ndarray:
    """Returns expected scores of an image's centre patch with all patches, [times, side, side].

    Tokens are equal. It is the first head of one initialisation. With a time axis, the keys are the
    frames that come `times` after the query's.
    """
    made = setup(name, 1, length=SIDE, beyond=policy)
    at = grid(made.card, side, max(times) + 1)
    centre = side // 2 * side + side // 2
    x_BTD = alike(made, at.index_BT.shape[1])
    (found,) = made.scores(x_BTD, at, slice(centre, centre + 1), causal=False)
    return found[:, 0, 0].mean(axis=0).reshape(-1, side, side)[list(times)]


def bias(name: str, queries: Sequence[int], length: int, heads: int = 8) -> np.ndarray:
    """Returns the bias [H, Q, K] of these queries to all keys; NaN where it is not finite."""
    encoding, dims = make(name), Dims(heads * HEAD, heads, HEAD)
    view = frame(encoding, drawn(encoding, dims), line(card(name), length), dims, form="dense")
    return finite(view.layer(0).bias())[0][:, list(queries)]


def shown(name: str, length: int, seed: int | None = None) -> np.ndarray:
    """Returns the positions [T] that a method assigns; with a seed, as in a training step."""
    method, key = card(name), None if seed is None else jax.random.key(seed)
    encoding = make(name, **taken_by(name, {"length": TRAINED}))
    return np.asarray(place(encoding, key, line(method, length))[0], np.float64)


def table(name: str, width: int, positions: int, **wanted: Any) -> np.ndarray:
    """Returns the first `width` channels of the codes [T, W] of positions 0, 1, ...

    They are the codes before a projection, in a model of this width. A method with an option
    `length` is made for all of these positions, if `wanted`, its options, do not say otherwise.
    """
    method = card(name)
    encoding = make(name, **taken_by(name, {"length": positions, **wanted}))
    params = drawn(encoding, Dims(width, 1, width))
    if "code" in params:
        own = params["code"].shape[0]
        width = min(own, width)
        params = {**params, "code": jnp.eye(own, width)}
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
