"""cuDNN's kernels of a GPU, for attention without a bias.

cuDNN has softmax(q k / sqrt(C)) v for rows of one sequence with padding after it. Which rows are
such is known when a program runs: it holds this and the next kernel, which it takes where a row is
packed, empty, padded on the left or not stored in order.
"""

import jax
import jax.numpy as jnp

from posenc_jax.attention.layers import Layer
from posenc_jax.attention.score_options import ScoreOptions
from posenc_jax.attention.tokens import Tokens
from posenc_jax.backends import target as targets
from posenc_jax.backends.target import interpreted

WIDEST, MULTIPLE = 128, 8  # channels of a head: up to, and a multiple of
OLDEST = 8  # compute capability: of an A100


def refuses(layer: Layer) -> str:
    """Why cuDNN does not take the method of a layer; "" if it does, where rows are sequences."""
    encoding = layer.encoding
    if encoding.bias is not None or encoding.walk is not None:
        return "a bias or content, with cuDNN's kernel"
    if not layer.mask_padding or (layer.causal and not layer.self_attention):
        return "padding that is seen, or causal attention to other keys, with cuDNN's kernel"
    return _refuses_width(layer.dims.head)


def _refuses_width(width: int) -> str:
    if width <= WIDEST and width % MULTIPLE == 0:
        return ""
    return f"heads of {width} channels, with cuDNN's kernel: multiples of {MULTIPLE} to {WIDEST}"


def refuses_call(q_BQHC, k_BKGC, v_BKGC, options: ScoreOptions) -> str:
    """Why cuDNN does not take these arrays and options; "" if it does."""
    capability = targets.compute_capability() or f"{OLDEST}.0"
    if options.sink_H is not None or options.cap is not None or options.lse:
        return "sinks, caps and return_lse, with cuDNN's kernel"
    if q_BQHC.dtype != jnp.bfloat16 or k_BKGC.shape != v_BKGC.shape:
        return "dtypes but bfloat16, or values of another width, with cuDNN's kernel"
    if int(capability.split(".")[0]) < OLDEST:
        return f"a GPU of compute capability {capability}, with cuDNN's kernel"
    return _refuses_width(q_BQHC.shape[3])


def fits(layer: Layer) -> jax.Array:
    """Whether every row is one sequence in order, the same for queries and keys, padding after it.

    Causality reads the order of storage; cuDNN's reads columns.
    """

    def alone(side: Tokens):
        here_BT = jnp.arange(side.segment_BT.shape[1])[None] < _lengths(side)[:, None]
        return (side.segment_BT == jnp.where(here_BT, layer.q.segment_BT[:, :1], 0)).all()

    in_order = (jnp.diff(layer.q.index_BT, axis=1) > 0).all()
    not_empty = (layer.q.segment_BT[:, 0] > 0).all()
    return alone(layer.q) & alone(layer.k) & in_order & not_empty


def kernel(q_BQHC, k_BKGC, v_BKGC, layer: Layer, options: ScoreOptions):
    """softmax(q k / sqrt(C)) v over visible keys, see `interface.Kernel`."""
    rows = len(q_BQHC)
    lengths = [jnp.broadcast_to(_lengths(x), rows) for x in (layer.q, layer.k)]
    q_BQHC, k_BKGC, v_BKGC, q_length_B, k_length_B = _mapped_inputs(
        q_BQHC, k_BKGC, v_BKGC, *lengths
    )
    with jax.numpy_dtype_promotion("standard"):
        o_BQHC = jax.nn.dot_product_attention(
            q_BQHC, k_BKGC, v_BKGC,
            scale=layer.dims.head**-0.5,
            is_causal=layer.causal,
            query_seq_lengths=q_length_B,
            key_value_seq_lengths=k_length_B,
            implementation="xla" if interpreted() else "cudnn",
        )  # fmt: skip
    o_BQHC = _mapped_output(o_BQHC, q_BQHC)
    return jnp.where((layer.q.segment_BT > 0)[..., None, None], o_BQHC, 0), None


def _all_mapped(*arrays):
    """The arrays as they are; in `jax.vmap` all are mapped if one is.

    JAX's rule of cuDNN's attention for `jax.vmap` needs that. Each result is selected by a number
    that all arrays are read for, so each depends on all.
    """
    any_zero = jnp.stack([x.ravel()[0] == 0 for x in arrays]).any()
    return tuple(jnp.where(any_zero, x, x) for x in arrays)


_mapped_inputs = jax.custom_vjp(_all_mapped)
_mapped_inputs.defvjp(lambda *arrays: (_all_mapped(*arrays), None), lambda _, g: g)
_mapped_output = jax.custom_vjp(lambda o, x: o)  # its gradient is mapped where x is
_mapped_output.defvjp(lambda o, x: (o, x), lambda x, g: (_all_mapped(g, x)[0], None))


def _lengths(side: Tokens) -> jax.Array:
    """Tokens of each row that are not padding, int32 [B|1]."""
    return (side.segment_BT > 0).sum(axis=1, dtype=jnp.int32)
