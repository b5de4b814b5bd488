"""Biases by a small network: of the offset (FIRE, Swin V2), or of the logits too (DAPE); D = i - j.

FIRE and Swin V2 have w2 relu(w1 x + b1), with an output for each head, of one number x or of one
for each axis. DAPE's MLP reads the heads of the logits and of a bias.
"""

import functools
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.backends.barriers import barrier
from posenc_jax.backends.pair_network import pair_network
from posenc_jax.combinators import pick_layer
from posenc_jax.encoding import Dims, Encoding, Walk, at_layer
from posenc_jax.encodings.bias import layered, offsets, per_head
from posenc_jax.encodings.bias_formulas import alibi, kerple_log
from posenc_jax.encodings.card import Count, Positive, Several, register, require
from posenc_jax.heads import refuse_heads


def network(params, *x_BQK: jax.Array) -> jax.Array:
    """The network's outputs [B, H, Q, K], without the bias of its last layer; float32 or wider.

    The rows of w1 [F] or [A, F] belong to the numbers it reads.
    """
    w1_AF, b1_F, w2_FH = (params[name].astype(float) for name in ("w1", "b1", "w2"))
    return pair_network(jnp.atleast_2d(w1_AF), b1_F, w2_FH, *x_BQK)


def _continuous(axes: int, hidden: int, reach: int | None, log: bool, squash: bool) -> Encoding:
    """Swin V2's bias; weights start truncated normal with deviation 0.02, and b1 at 0."""

    def init(key, dims):
        small = lambda key, *shape: 0.02 * jax.random.truncated_normal(key, -2.0, 2.0, shape)
        w1_key, w2_key = jax.random.split(key)
        w1 = small(w1_key, *((axes,) if axes > 1 else ()), hidden)
        return {"w1": w1, "b1": jnp.zeros(hidden), "w2": small(w2_key, hidden, dims.heads)}

    def bias(params, q_placed, k_placed, dims):
        x = offsets(q_placed, k_placed, axes).astype(float) * (8 / (reach - 1) if reach else 1)
        if log:
            x = jnp.sign(x) * jnp.log1p(jnp.abs(x)) / (np.log(8) if reach else 1)
        y_BHQK = network(params, *([x] if axes == 1 else jnp.moveaxis(x, -1, 0)))
        return 16 * jax.nn.sigmoid(y_BHQK) if squash else y_BHQK

    return Encoding(init=init, bias=bias, relative=True)


@register(
    kind="bias",
    formula="q.k / sqrt(C) + MLP(psi(i - j) / psi(max(i, L)))[h], psi(x) = ln(c |x| + 1)",
    paper="Li et al. 2024, arXiv 2310.04418",
    shift_invariant=False,
)
def fire(
    c: Positive = 0.1, threshold: Positive = 512.0, hidden: Count = 32, shared: bool = False
) -> Encoding:
    """FIRE: a network of the distance divided by the query's position, both as logarithms.

    This input is at most 1 for keys behind the query, in sequences of any length. The paper is
    causal; here a key ahead has the same bias as a key at the same distance behind, and its input
    may exceed 1. As in the paper's listing, absolute values keep c and L positive, 1e-6 is added to
    the divisor, and L is learned as a multiple of `threshold`. The network starts as the default
    of its framework, uniform within 1 / sqrt(inputs).

    Args:
      c: first value of c; larger values spread near tokens over more of the network's input.
      threshold: first value of L; queries before L use the distances' shares of L.
      hidden: width of the network.
      shared: one network for all layers, the paper's FIRE-S; by default each layer has its own.
    """

    def init(key, dims):
        shapes = {"w1": (hidden,), "b1": (hidden,), "w2": (hidden, dims.heads), "b2": (dims.heads,)}
        params = {"c": jnp.asarray(c, float), "stretch": jnp.asarray(1.0, float)}
        for (name, shape), k in zip(shapes.items(), jax.random.split(key, 4), strict=True):
            most = 1.0 if name.endswith("1") else hidden**-0.5
            params[name] = jax.random.uniform(k, shape, float, -most, most)
        return params

    def bias(params, q_placed, k_placed, dims):
        psi = lambda x: jnp.log1p(jnp.abs(params["c"].astype(float) * x))
        least = jnp.abs(params["stretch"].astype(float) * threshold)
        scale_BQ = psi(jnp.maximum(q_placed.astype(float), least)) + 1e-6
        share_BQK = psi(offsets(q_placed, k_placed).astype(float)) / scale_BQ[..., None]
        return network(params, share_BQK) + per_head(params["b2"])

    return layered(Encoding(init=init, bias=bias), shared)


@register(
    kind="bias",
    formula="q.k / sqrt(C) + MLP(sign(D) ln(1 + |D|))[h], or MLP(D)[h], D = i - j",
    paper="Liu et al. 2022, arXiv 2111.09883",
)
def mlp(
    spacing: Literal["log", "linear"] = "log",
    reach: Several | None = None,
    squash: bool = False,
    hidden: Count = 32,
    shared: bool = False,
) -> Encoding:
    """Swin V2's continuous bias, on one axis: a network of the offset instead of a table.

    The authors' code has 512 hidden units for offsets on two axes inside a small window. Here the
    network is evaluated for every pair of tokens, and one axis needs fewer units.

    Args:
      spacing: "log": the network reads the logarithm of the offset; "linear": the offset.
      reach: a length that becomes 8: the network reads 8 D / (reach - 1), or its logarithm to base
        8, as in the authors' code. None: D itself, or its natural logarithm, as in the paper.
      squash: the bias is 16 sigmoid(MLP), as in the authors' code.
      hidden: width of the network.
    """

    return layered(_continuous(1, hidden, reach, spacing == "log", squash), shared)


@register(
    kind="bias",
    formula="q.k / sqrt(C) + 16 sigmoid(MLP(x_row, x_column)[h]), x = sign(D) log_8(1 + 8 |D| / "
    "(window - 1))",
    paper="Liu et al. 2022, arXiv 2111.09883",
    axes=2,
)
def swin_v2(window: Several = 8, hidden: Count = 512, shared: bool = False) -> Encoding:
    """Swin V2's continuous bias as released: a network of the log-spaced (row, column) offset.

    Positions are [B, T, 2], (row, column). The network is defined at any offset, so a model may
    be used with a larger window than it was trained with. It is evaluated for every pair of tokens
    and needs Q x K x hidden numbers in memory at once; `mlp` is its one-axis form, with fewer
    units. The paper's formula reads ln(1 + |D|) and has no sigmoid; the window and the sigmoid are
    those of the authors' code. Left out: attention by cosines, another part of that model.

    Args:
      window: side of the window that the model was trained with, in tokens.
      hidden: width of the network.
    """

    return layered(_continuous(2, hidden, reach=window, log=True, squash=True), shared)


BIASES = {"alibi": alibi, "kerple_log": kerple_log, "fire": fire}
SLOPE = 0.01  # slope of the leaky ReLU below 0


Wrapped = Literal["alibi", "kerple_log", "fire"]


@register(
    kind="content",
    formula="A + B + MLP([A, B]) over heads, A = q.k / sqrt(C), B a bias by position",
    paper="Zheng et al. 2024, arXiv 2405.14722",
)
def dape(bias: Wrapped = "alibi", width: Count = 32) -> Encoding:
    """Data-adaptive: logits, plus a bias, plus an MLP of both; each layer has its own MLP.

    For each query and key the MLP reads the logits and the bias of all heads, 2 H numbers, and
    gives one for each head: two affine maps with a leaky ReLU between them. Biases of other parts
    of a chain count as logits here. A logit of -inf, as of a window, stays; the MLP reads 0 for it.

    Args:
      bias: the method that makes B, with its default options. With "fire", which reads positions
        besides i - j, moving all positions changes the scores.
      width: hidden units of the MLP.
    """
    return _data_adaptive(bias, width, 1)


@register(
    kind="content",
    formula="A + B + two convolutions of [A, B] over heads and `kernel` keys, A = q.k / sqrt(C)",
    paper="Zheng et al. 2024 (DAPE V2), arXiv 2410.04798",
)
def dape_v2(bias: Wrapped = "alibi", width: Count = 32, kernel: Count = 3) -> Encoding:
    """DAPE whose maps also read the keys around each key, in the order of storage.

    Keys that the query does not see count as 0 in both convolutions, so that padding, other
    documents and later tokens change nothing; the authors' code hides them in the first alone. The
    keys around a key may lie in another block, so it has the dense form alone, and others refuse.

    Args:
      bias, width: as in `dape`.
      kernel: keys that a convolution reads, the key itself in the middle.

    FieldError: kernel is even.
    """
    require(kernel % 2 == 1, "kernel", kernel, "must be odd")
    return _data_adaptive(bias, width, kernel)


def _data_adaptive(bias: Wrapped, width: int, kernel: int) -> Encoding:
    """DAPE with the bias `bias`, whose MLP reads `kernel` keys around each key."""
    inner = BIASES[bias]()

    def init(key, dims):
        bias_key, *keys = jax.random.split(key, 1 + dims.layers)
        sizes = 2 * dims.heads, width, dims.heads
        mlps = tuple(_mlp(k, kernel, *sizes) for k in keys)
        return {"bias": inner.init(bias_key, dims), "mlp": mlps}

    adapted = functools.cache(functools.partial(_adapted, kernel=kernel))

    def at(layer, params, *placed):
        layer_bias, bias_params, *placed = at_layer(inner, layer, params["bias"], *placed)
        mlp = pick_layer(params["mlp"], layer)
        return adapted(layer_bias), {"bias": bias_params, "mlp": mlp}, *placed

    return adapted(inner)._replace(init=init, place=inner.place, at=at, of_heads=refuse_heads)


def _mlp(key, kernel: int, inputs: int, width: int, outputs: int) -> dict[str, jax.Array]:
    """Initial parameters of the MLP, uniform within 1 / sqrt(inputs), the default of the authors'
    framework.
    """

    def affine(name, key, inputs, outputs):
        w_key, b_key = jax.random.split(key)
        reach = inputs**-0.5
        draw = lambda key, *shape: jax.random.uniform(key, shape, minval=-reach, maxval=reach)
        return {name: draw(w_key, inputs, outputs), f"{name}_bias": draw(b_key, outputs)}

    in_key, out_key = jax.random.split(key)
    first = affine("in", in_key, kernel * inputs, width)
    return first | affine("out", out_key, kernel * width, outputs)


def _adapted(inner: Encoding, kernel: int) -> Encoding:
    """The encoding of one layer, made of the layer's bias `inner`."""
    assert inner.bias is not None
    bias = inner.bias

    def score(params, s_BHQK, q, k, visible_BHQK, carry):
        mlp = {name: leaf.astype(s_BHQK.dtype) for name, leaf in params["mlp"].items()}
        heads, head = q.x_BTHC.shape[2:]
        dims = Dims(heads * head, heads, head)
        b_BHQK = bias(params["bias"], q.placed, k.placed, dims).astype(s_BHQK.dtype)
        b_BHQK = b_BHQK + jnp.zeros_like(s_BHQK)
        finite_BHQK = jnp.where(jnp.isneginf(s_BHQK), 0, s_BHQK)
        both_BHQK = jnp.concatenate([finite_BHQK, b_BHQK], axis=1)
        around = lambda x: x if kernel == 1 else _around(x, visible_BHQK, kernel)
        hidden_BWQK = _over_heads(around(both_BHQK), mlp["in"], mlp["in_bias"])
        hidden_BWQK = jax.nn.leaky_relu(hidden_BWQK, SLOPE)
        mlp_BHQK = _over_heads(around(hidden_BWQK), mlp["out"], mlp["out_bias"])
        return s_BHQK + b_BHQK + mlp_BHQK, carry

    return Encoding(walk=Walk(score=score, whole=kernel > 1))


def _around(x_BHQK, visible_B1QK, kernel: int):
    """The entries of the `kernel` keys around each key, [B, kernel H, Q, K]; 0 for keys that are
    not seen.
    """
    reach, keys = kernel // 2, x_BHQK.shape[-1]
    seen_BHQN = jnp.pad(jnp.where(visible_B1QK, x_BHQK, 0), [(0, 0)] * 3 + [(reach, reach)])
    return jnp.concatenate([seen_BHQN[..., n : n + keys] for n in range(kernel)], axis=1)


def _over_heads(x_BHQK, w_HW, b_W):
    """An affine map of the second axis, [B, W, Q, K].

    With the barriers it takes a third of the time on the CPU, backward included: XLA would merge
    the transposes around the product into it.
    """
    batch, _, queries, keys = x_BHQK.shape
    w_BWH = barrier(w_HW.T[None] + jnp.zeros_like(x_BHQK[:, :1, :1, 0]))
    y_BWN = barrier(w_BWH @ x_BHQK.reshape(*x_BHQK.shape[:2], -1))
    return y_BWN.reshape(batch, -1, queries, keys) + b_W[None, :, None, None]
