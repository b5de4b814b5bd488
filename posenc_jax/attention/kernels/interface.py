"""What a kernel is asked and what it answers: the one interface of all fused kernels.

A module of this folder that has the functions of `Kernel` is a back end of `form="kernel"`. Nothing
outside of the folder calls one by its name, so that any may go: what it took, the next in line
takes, at last attention in blocks.
"""

from collections.abc import Callable
from functools import partial
from typing import Protocol

import jax
import jax.numpy as jnp

from posenc_jax import encoding as hooks
from posenc_jax.attention.kernels.traced_bias import TracedBias, trace
from posenc_jax.attention.layers import Layer
from posenc_jax.attention.score_options import ScoreOptions
from posenc_jax.combinators import bias_name


class Kernel(Protocol):
    """Attention in fused kernels: softmax(cap(q k / sqrt(C)) + bias) v over visible keys.

    What a kernel is asked is in the arguments of its functions:

      q, k, v:  [B, Q, H, C], [B, K, G, C] and [B, K, G, C'], rotated; G divides H (grouped heads).
      layer:    the mask, by index and segment of each token (`Layer.q`, `Layer.k`), `causal` and
        `mask_padding`; a relative bias as a row of offsets (`row_BHN`), or the bias function with
        parameters and positions, which a kernel traces; features of keys that are summed (`fox`).
      options:  `sink_H`, `cap`, and `lse`, which asks for the log-sum-exp. The scale is applied
        already, and neither a mask nor a bias of pairs of tokens gets here.
    """

    def refuses(self, layer: Layer) -> str:
        """Why it does not take the method of a layer; "" if it does. Asked when a frame is made."""
        ...

    def refuses_call(self, q_BQHC, k_BKGC, v_BKGC, options: ScoreOptions) -> str:
        """Why it does not take these arrays and options; "" if it does."""
        ...

    def fits(self, layer: Layer) -> jax.Array | bool:
        """Whether it takes the tokens as they are stored: True, or bool when a program runs."""
        ...

    def kernel(
        self, q_BQHC, k_BKGC, v_BKGC, layer: Layer, options: ScoreOptions
    ) -> tuple[jax.Array, jax.Array | None]:
        """The output, [B, Q, H, C'], in the dtype of v, and the log-sum-exp of a query's logits and
        its sink's, [B, Q, H] in float32; 0 and -inf for a query that sees no key.

        The second has a gradient too. It may be None where `options.lse` does not ask for it.
        """
        ...


def refused_method(layer: Layer, refused_bias: Callable[[TracedBias], str]) -> str:
    """Why kernels of ours do not take the method of a layer; "" if they do.

    refused_bias: the same of a traced bias; NotImplementedError: an equation that is missing.
    """
    encoding = layer.encoding
    if encoding.walk is not None and not encoding.walk.summed:
        return "a method that reads content block by block"
    before = layer.self_attention and layer.causal and layer.mask_padding and layer.indexed
    if encoding.walk is not None and not before:
        return "sums of content, unless tokens see themselves and what is before them"
    if encoding.bias is None or (encoding.relative and layer.straight is not None):
        return ""
    args = layer.params, layer.q.placed, layer.k.placed
    try:
        traced = trace(partial(hooks.bias, encoding), layer.dims, jnp.float32, *args)
        return refused_bias(traced)
    except NotImplementedError as missing:
        return f"the bias of {bias_name(encoding)}, which uses {missing}"
