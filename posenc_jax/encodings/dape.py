"""DAPE: a bias that adapts to content, by an MLP over the heads of the logits and of a bias."""

import functools
from typing import Literal

import jax
import jax.numpy as jnp

from posenc_jax.combinators import pick_layer
from posenc_jax.encoding import Dims, Encoding, Walk, at_layer
from posenc_jax.encodings.bias_formulas import alibi, kerple_log
from posenc_jax.encodings.bias_networks import fire
from posenc_jax.encodings.card import Count, method, require
from posenc_jax.tuning import barrier

BIASES = {"alibi": alibi, "kerple_log": kerple_log, "fire": fire}
SLOPE = 0.01  # slope of the leaky ReLU below 0


Wrapped = Literal["alibi", "kerple_log", "fire"]


@method(
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


@method(
    kind="content",
    formula="A + B + two convolutions of [A, B] over heads and `kernel` keys, A = q.k / sqrt(C)",
    paper="Zheng et al. 2024 (DAPE V2), arXiv 2410.04798",
    vary={"kernel": 5},
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
    inner = BIASES[bias]()

    def init(key, dims):
        bias_key, *keys = jax.random.split(key, 1 + dims.layers)
        sizes = 2 * dims.heads, width, dims.heads
        mlps = tuple(_mlp(k, kernel, *sizes) for k in keys)
        return {"bias": inner.init(bias_key, dims), "mlp": mlps}

    adapted = functools.cache(functools.partial(_adapted, kernel=kernel))

    def at(layer, params, *placed):
        own, own_params, *placed = at_layer(inner, layer, params["bias"], *placed)
        mlp = pick_layer(params["mlp"], layer)
        return adapted(own), {"bias": own_params, "mlp": mlp}, *placed

    return adapted(inner)._replace(init=init, place=inner.place, at=at)


def _mlp(key, kernel: int, inputs: int, width: int, outputs: int) -> dict[str, jax.Array]:
    """Parameters, uniform within 1 / sqrt(inputs of the map), as by default in the framework."""

    def affine(name, key, inputs, outputs):
        w_key, b_key = jax.random.split(key)
        reach = inputs**-0.5
        draw = lambda key, *shape: jax.random.uniform(key, shape, minval=-reach, maxval=reach)
        return {name: draw(w_key, inputs, outputs), f"{name}_bias": draw(b_key, outputs)}

    in_key, out_key = jax.random.split(key)
    first = affine("in", in_key, kernel * inputs, width)
    return first | affine("out", out_key, kernel * width, outputs)


def _adapted(inner: Encoding, kernel: int) -> Encoding:
    """One layer's encoding, from that layer's bias."""
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
        around = lambda x: x if kernel == 1 else _around(x, visible_BHQK[:, :1], kernel)
        hidden_BWQK = _over_heads(around(both_BHQK), mlp["in"], mlp["in_bias"])
        hidden_BWQK = jax.nn.leaky_relu(hidden_BWQK, SLOPE)
        made_BHQK = _over_heads(around(hidden_BWQK), mlp["out"], mlp["out_bias"])
        return s_BHQK + b_BHQK + made_BHQK, carry

    return Encoding(walk=Walk(score=score, whole=kernel > 1))


def _around(x_BHQK, visible_B1QK, kernel: int):
    """For each key the entries of `kernel` keys around it, [B, kernel H, Q, K]; 0 if not seen."""
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
