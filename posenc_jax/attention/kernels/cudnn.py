"""The kernels of a GPU: cuDNN's for attention without a bias, where it has them, else ours.

cuDNN has softmax(q k / sqrt(C)) v for rows of one sequence with padding after it. Which rows are
such is known when a program runs: it holds both, and takes ours where a row is packed, empty,
padded on the left or not stored in order. Ours are in Triton; with a JAX that has none, another
form of attention stands in their place.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from posenc_jax.attention.layers import Layer
from posenc_jax.attention.tokens import Tokens
from posenc_jax.backends import target as targets
from posenc_jax.backends.target import interpreted, lacks_triton, target

WIDEST, MULTIPLE = 128, 8  # channels of a head: up to, and a multiple of
OLDEST = 8  # compute capability: of an A100


def has(layer: Layer) -> bool:
    """Whether cuDNN has a layer's method, where rows are single sequences."""
    encoding, width = layer.encoding, layer.dims.head
    return (
        encoding.bias is None
        and encoding.walk is None
        and layer.mask_padding
        and (layer.self_attention or not layer.causal)
        and width <= WIDEST
        and width % MULTIPLE == 0
    )


def kernel(
    q_BQHC,
    k_BKGC,
    v_BKGC,
    layer: Layer,
    sink_H: jax.Array | None,
    cap: float | None,
    without_kernel: Callable[[], jax.Array],
) -> jax.Array:
    """softmax(q k / sqrt(C) + bias) v over visible keys, [B, Q, H, C]; q and k are rotated.

    without_kernel: makes the same in another form of attention.

    ValueError: the caller asked for the kernel, these arrays need Triton, and this JAX has none.
    """
    plain = sink_H is None and cap is None and has(layer)
    takes = plain and _takes(q_BQHC, k_BKGC, v_BKGC)

    def other(q_BQHC, k_BKGC, v_BKGC):
        if lacks_triton():
            return without_kernel()
        from posenc_jax.attention.kernels.triton import kernel as triton_kernel

        return triton_kernel(q_BQHC, k_BKGC, v_BKGC, layer, sink_H, cap)

    if not takes and lacks_triton() and not layer.chosen:
        raise ValueError(
            f"form: 'kernel' needs {targets.TRITON}, which this JAX has not, for what cuDNN does "
            "not take: dtypes but bfloat16, sinks, caps; use 'blockwise' or 'auto'"
        )
    if not takes:
        return other(q_BQHC, k_BKGC, v_BKGC)
    rows = len(q_BQHC)
    lengths = [jnp.broadcast_to(_lengths(x), rows) for x in (layer.q, layer.k)]

    def cudnn(*qkv):
        q_BQHC, k_BKGC, v_BKGC, q_length_B, k_length_B = _mapped_inputs(*qkv, *lengths)
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
        return jnp.where((layer.q.segment_BT > 0)[..., None, None], o_BQHC, 0)

    return jax.lax.cond(_one_sequence(layer), cudnn, other, q_BQHC, k_BKGC, v_BKGC)


def _takes(q_BQHC, k_BKGC, v_BKGC) -> bool:
    """Whether cuDNN takes these arrays on the target's GPU."""
    width = q_BQHC.shape[3]
    capability = getattr(target().devices[0], "compute_capability", f"{OLDEST}.0")
    return (
        q_BQHC.dtype == jnp.bfloat16
        and k_BKGC.shape == v_BKGC.shape
        and width <= WIDEST
        and width % MULTIPLE == 0
        and int(capability.split(".")[0]) >= OLDEST
    )


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


def _one_sequence(layer: Layer) -> jax.Array:
    """Whether every row is one sequence in order, the same for queries and keys, padding after it.

    Causality reads the order of storage; cuDNN's reads columns.
    """

    def alone(side: Tokens):
        here_BT = jnp.arange(side.segment_BT.shape[1])[None] < _lengths(side)[:, None]
        return (side.segment_BT == jnp.where(here_BT, layer.q.segment_BT[:, :1], 0)).all()

    in_order = (jnp.diff(layer.q.index_BT, axis=1) > 0).all()
    not_empty = (layer.q.segment_BT[:, 0] > 0).all()
    return alone(layer.q) & alone(layer.k) & in_order & not_empty
