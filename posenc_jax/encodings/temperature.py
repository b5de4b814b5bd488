"""Temperatures: attention that is sharper where a query sees more keys. They tell no position."""

import jax.numpy as jnp
import numpy as np

from posenc_jax.combinators import each_layer
from posenc_jax.encoding import Encoding
from posenc_jax.encodings.card import Several, method


@method(
    kind="none",
    formula="s[h] ln(n_i) q.k / sqrt(C), n_i keys that the query sees",
    paper="Nakanishi 2025, arXiv 2501.19399",
    axes=0,
)
def ssmax(initial: float = 0.43) -> Encoding:
    """Scalable softmax: logits times s ln n, so that attention does not flatten as n grows.

    n counts the keys that a query sees: in a packed row those of its own document, in a causal one
    those up to it. Each layer and head has a scale s. The paper chooses its start so that it fits
    what models learn.

    Args:
      initial: s of every head at initialisation.
    """
    init = lambda key, dims: {"s": jnp.full(dims.heads, initial, float)}

    def temper(params, count, q_placed, dims):
        log_BQ = jnp.log(jnp.maximum(count(), 1))
        return params["s"].astype(log_BQ.dtype)[None, None] * log_BQ[..., None]

    return each_layer(Encoding(init=init, temper=temper))


@method(
    kind="none",
    formula="max(1, ln n_i / ln length) q.k / sqrt(C), n_i keys that the query sees",
    paper="Chiang & Cholak 2022, arXiv 2202.12172; past a length only, as in Qwen's released code",
    axes=0,
    example={"length": 8},
)
def logn(length: Several = 2048) -> Encoding:
    """Log-n scaling: logits grow with the logarithm of the number of keys past the trained length.

    Args:
      length: tokens the model was trained on; queries that see no more keys are left as they are.
    """

    def temper(params, count, q_placed, dims):
        return (jnp.log(jnp.maximum(count(), length)) / np.log(length))[..., None]

    return Encoding(temper=temper)
