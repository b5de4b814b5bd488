"""Biases by a small network of the offset: FIRE, and Swin V2's continuous bias; D = i - j.

The networks are w2 relu(w1 x + b1), with an output for each head. They read one number x, or one
for each axis.
"""

from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.encoding import Encoding
from posenc_jax.encodings.bias import layered, offsets, per_head
from posenc_jax.encodings.card import Count, Positive, Several, method


def network(params, *x_BQK: jax.Array) -> jax.Array:
    """The network's outputs [B, H, Q, K], without the bias of its last layer; float32 or wider.

    The rows of w1 [F] or [A, F] belong to the numbers it reads.
    """
    w1_AF = jnp.atleast_2d(params["w1"].astype(float))
    b1_F, w2_FH = params["b1"].astype(float), params["w2"].astype(float)
    hidden = b1_F[None, None, None]
    for x, w_F in zip(x_BQK, w1_AF, strict=True):
        hidden = hidden + x[..., None] * w_F[None, None, None]
    return jnp.einsum("bqkf,fh->bhqk", jax.nn.relu(hidden), w2_FH, precision="highest")


def _continuous(axes: int, hidden: int, reach: int | None, log: bool, squash: bool) -> Encoding:
    """Swin V2's bias; its network starts with truncated normal weights of 0.02, and b1 = 0."""

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


@method(
    kind="bias",
    formula="q.k / sqrt(C) + MLP(psi(i - j) / psi(max(i, L)))[h], psi(x) = ln(c |x| + 1)",
    paper="Li et al. 2024, arXiv 2310.04418",
    shift_invariant=False,
    example={"threshold": 8.0},
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


@method(
    kind="bias",
    formula="q.k / sqrt(C) + MLP(sign(D) ln(1 + |D|))[h], or MLP(D)[h], D = i - j",
    paper="Liu et al. 2022, arXiv 2111.09883",
    vary={"reach": 12},
    reference="timm",
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
      shared: one network for all layers; as in the paper, each has its own by default.
    """

    return layered(_continuous(1, hidden, reach, spacing == "log", squash), shared)


@method(
    kind="bias",
    formula="q.k / sqrt(C) + 16 sigmoid(MLP(x_row, x_column)[h]), x = sign(D) log_8(1 + 8 |D| / "
    "(window - 1))",
    paper="Liu et al. 2022, arXiv 2111.09883",
    axes=2,
    example={"hidden": 8},
    reference="timm, transformers",
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
      shared: one network for all layers; as in the paper, each has its own by default.
    """

    return layered(_continuous(2, hidden, reach=window, log=True, squash=True), shared)
