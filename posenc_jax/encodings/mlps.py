"""Biases that a small network makes of the offset: FIRE, and Swin V2's continuous bias; D = i - j.

Both networks are w2 relu(w1 x + b1) of one number x, with an output for each head.
"""

from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.encoding import Encoding, each_layer
from posenc_jax.encodings.bias import at_least_1, by_offset, offsets
from posenc_jax.encodings.card import method
from posenc_jax.encodings.inputs import one_of, require

Inputs = Literal["log", "linear"]


def network(params, x_BQK: jax.Array) -> jax.Array:
    """[B, H, Q, K], without the bias of its last layer; float32 or wider."""
    w1_F, b1_F, w2_FH = (params[name].astype(float) for name in ("w1", "b1", "w2"))
    hidden = x_BQK[..., None] * w1_F[None, None, None] + b1_F[None, None, None]
    exact = jax.lax.Precision.HIGHEST
    return jnp.einsum("bqkf,fh->bhqk", jax.nn.relu(hidden), w2_FH, precision=exact)


def network_of(params, x, h):
    """Definition: one output for one number."""
    return float(np.maximum(params["w1"] * x + params["b1"], 0) @ params["w2"][:, h])


def _fire_scores(o, params, q_THC, k_THC, pos_T, n):
    heads, psi = q_THC.shape[1], lambda x: np.log(abs(params["c"] * x) + 1)
    s_HTT = np.einsum("qhc,khc->hqk", q_THC, k_THC) / np.sqrt(q_THC.shape[-1])
    for i, j in np.ndindex(n, n):
        most = max(pos_T[i], abs(params["stretch"] * o.threshold))
        x = psi(pos_T[i] - pos_T[j]) / (psi(most) + 1e-6)
        for h in range(heads):
            s_HTT[h, i, j] += network_of(params, x, h) + params["b2"][h]
    return s_HTT


@method(
    kind="bias",
    formula="q.k / sqrt(C) + MLP(psi(i - j) / psi(max(i, L)))[h], psi(x) = ln(c |x| + 1)",
    paper="Li et al. 2024, arXiv 2310.04418",
    scores=_fire_scores,
    example={"threshold": 8.0},
)
def fire(
    c: float = 0.1, threshold: float = 512.0, hidden: int = 32, shared: bool = False
) -> Encoding:
    """FIRE: a network of the share that a distance has of all that a query can look back on.

    The share is at most 1 for keys behind the query, however long the sequence. A key ahead gets
    what one as far behind would get, though its share may exceed 1: the paper is causal.
    As in the paper's listing, absolute values keep c and L positive, the logarithm of L's share has
    1e-6 added, and L is learned as a multiple of `threshold`. The network starts as its framework
    would, uniform within 1 / sqrt(inputs).

    Args:
      c: first value of c; the larger, the more of the network's input near tokens get.
      threshold: first value of L; queries before it are told distances as at L.
      hidden: width of the network.
      shared: one network for all layers, the paper's FIRE-S; by default each layer has its own.

    ValueError: c or threshold is not positive, or hidden is below 1.
    """
    require(0 < c < np.inf, "c", c, "must be positive and finite")
    require(0 < threshold < np.inf, "threshold", threshold, "must be positive and finite")
    at_least_1("hidden", hidden)

    def init(key, dims):
        shapes = {"w1": (hidden,), "b1": (hidden,), "w2": (hidden, dims.heads), "b2": (dims.heads,)}
        params = {"c": jnp.asarray(c, float), "stretch": jnp.asarray(1.0, float)}
        for (name, shape), k in zip(shapes.items(), jax.random.split(key, 4), strict=True):
            most = 1.0 if name.endswith("1") else hidden**-0.5
            params[name] = jax.random.uniform(k, shape, float, -most, most)
        return params

    def bias(params, q_placed, k_placed, dims):
        psi = lambda x: jnp.log1p(jnp.abs(params["c"].astype(float) * x))
        most_BQ = jnp.maximum(
            q_placed.astype(float), jnp.abs(params["stretch"].astype(float) * threshold)
        )
        share_BQK = (
            psi(offsets(q_placed, k_placed).astype(float)) / (psi(most_BQ) + 1e-6)[..., None]
        )
        return network(params, share_BQK) + params["b2"].astype(float)[None, :, None, None]

    encoding = Encoding(init=init, bias=bias)
    return encoding if shared else each_layer(encoding)


def _mlp_scores(o, params, q_THC, k_THC, pos_T, n):
    def value(h, d):
        x = d if o.reach is None else 8 * d / (o.reach - 1)
        if o.spacing == "log":
            x = np.sign(x) * np.log(1 + abs(x)) / (1 if o.reach is None else np.log(8))
        y = network_of(params, x, h)
        return 16 / (1 + np.exp(-y)) if o.squash else y

    return by_offset(value, q_THC, k_THC, pos_T)


@method(
    kind="bias",
    formula="q.k / sqrt(C) + MLP(sign(D) ln(1 + |D|))[h], or MLP(D)[h], D = i - j",
    paper="Liu et al. 2022, arXiv 2111.09883",
    relative=True,
    scores=_mlp_scores,
    vary={"reach": 12},
    reference="timm",
)
def mlp(
    spacing: Inputs = "log",
    reach: int | None = None,
    squash: bool = False,
    hidden: int = 32,
    shared: bool = False,
) -> Encoding:
    """Swin V2's continuous bias, on one axis: a network of the offset instead of a table over it.

    The authors' code has 512 hidden units for offsets of two axes inside a small window; here every
    pair of tokens is evaluated, and one axis needs fewer.

    Args:
      spacing: of the network's input.
      reach: the length that 8 stands for: the input is made of 8 D / (reach - 1), its logarithm to
        base 8, as in the authors' code. None: of D itself, the logarithm natural, as in the paper.
      squash: the bias is 16 sigmoid(MLP), as in the authors' code.
      hidden: width of the network.
      shared: one network for all layers; as in the paper, each has its own by default.

    ValueError: hidden is below 1 or reach below 2.
    """
    one_of("spacing", spacing, Inputs)
    require(reach is None or reach > 1, "reach", reach, "must be 2 or more")
    at_least_1("hidden", hidden)

    def init(key, dims):
        w1_key, w2_key = jax.random.split(key)
        small = lambda k, shape: 0.02 * jax.random.truncated_normal(k, -2.0, 2.0, shape)
        w1_F, w2_FH = small(w1_key, (hidden,)), small(w2_key, (hidden, dims.heads))
        return {"w1": w1_F, "b1": jnp.zeros_like(w1_F), "w2": w2_FH}

    def bias(params, q_placed, k_placed, dims):
        x_BQK = offsets(q_placed, k_placed).astype(float)
        if reach is not None:
            x_BQK = x_BQK * (8 / (reach - 1))
        if spacing == "log":
            size_BQK = jnp.log1p(jnp.abs(x_BQK)) / (1.0 if reach is None else np.log(8))
            x_BQK = jnp.sign(x_BQK) * size_BQK
        y_BHQK = network(params, x_BQK)
        return 16 * jax.nn.sigmoid(y_BHQK) if squash else y_BHQK

    encoding = Encoding(init=init, bias=bias, relative=True)
    return encoding if shared else each_layer(encoding)
