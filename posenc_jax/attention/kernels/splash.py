"""JAX's splash attention for a TPU, where nothing is added to the logits.

Its authors measure it on chips. It has softmax(q k) v over the keys of a query's segment, up to its
column if attention is causal. Whether tokens are stored in their order is known when a program
runs: a causal one holds this and the next kernel, which it takes where they are not.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as splash
from jax.experimental.pallas.ops.tpu.splash_attention.splash_attention_mask_info import MaskInfo

from posenc_jax.attention.block_plan import cut_tokens, fill, plan_of
from posenc_jax.attention.block_sizes import LANES, to_whole
from posenc_jax.attention.derivatives import not_differentiated
from posenc_jax.attention.layers import Layer
from posenc_jax.attention.score_options import ScoreOptions
from posenc_jax.backends.target import interpreted

BLOCK = 512  # queries and keys of a block, the default of MaxText


def refuses(layer: Layer) -> str:
    """Why splash attention does not take the method of a layer; "" if it does."""
    plain = layer.encoding.bias is None and layer.encoding.walk is None
    if plain and layer.mask_padding and layer.self_attention:
        return ""
    return "a bias, content, other keys or padding that is seen, with splash attention"


def refuses_call(q_BQHC, k_BKGC, v_BKGC, options: ScoreOptions) -> str:
    """Why splash attention does not take these arrays and options; "" if it does.

    Sinks: it sums their gradient in the arrays' dtype before JAX 0.12. In `jax.shard_map` it does
    not say over which axes its output varies. Its log-sum-exp has no gradient.
    """
    if options.sink_H is not None or options.lse:
        return "sinks and return_lse, with splash attention"
    if jax.typeof(q_BQHC).manual_axis_type.varying:
        return "devices of `jax.shard_map`, with splash attention"
    return ""


def fits(layer: Layer) -> jax.Array | bool:
    """Whether tokens are stored in their order, which causal attention reads."""
    return (jnp.diff(layer.q.index_BT, axis=1) > 0).all() if layer.causal else True


def kernel(q_BTHC, k_BTGC, v_BTGC, layer: Layer, options: ScoreOptions):
    """softmax(q k / sqrt(C)) v over visible keys, see `interface.Kernel`."""
    cap = options.cap
    rows, time = q_BTHC.shape[:2]
    block = min(BLOCK, to_whole(time, LANES))
    segment_BT = jnp.broadcast_to(layer.q.segment_BT, (rows, time))
    filled_BT = fill(segment_BT.astype(jnp.int32), block, -1)
    turned = lambda x: fill(x, block).transpose(0, 2, 1, 3)
    o_BHTC: jax.Array = _attention(
        layer.causal, block, cap, _masks(layer, block, filled_BT.shape[1]), filled_BT,
        turned(q_BTHC * layer.dims.head**-0.5), turned(k_BTGC), turned(v_BTGC),
    )  # fmt: skip
    o_BTHC = o_BHTC.transpose(0, 2, 1, 3)[:, :time]
    # A query of padding sees the padding.
    return jnp.where((segment_BT > 0)[..., None, None], o_BTHC, 0), None


@partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def _attention(causal: bool, block: int, cap: float | None, masks, segment_BT, *qkv_BHTC):
    """Attention of arrays [B, H, T, C], first derivatives alone, whatever types users promote."""
    return _forward(causal, block, cap, masks, segment_BT, *qkv_BHTC)[0]


def _forward(causal, block, cap, masks, segment_BT, *qkv_BHTC):
    sizes = {
        f"block_{name}": block
        for name in ("q", "kv", "kv_compute", "q_dkv", "kv_dkv", "kv_dkv_compute", "q_dq", "kv_dq")
    }
    of_row = splash.SplashAttentionKernel(
        *masks,
        block_sizes=splash.BlockSizes(**sizes),
        is_mqa=False,
        save_residuals=False,
        mask_value=splash.DEFAULT_MASK_VALUE,
        attn_logits_soft_cap=cap,
        residual_checkpoint_name=None,
        mask_function=_up_to if causal else None,
        interpret=interpreted(),
    )

    def of_rows(*qkv_BHTC):
        row = lambda ids, *qkv: of_row(*qkv, splash.SegmentIds(ids, ids))
        return jax.vmap(row)(segment_BT, *qkv_BHTC)

    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        return jax.vjp(of_rows, *not_differentiated(qkv_BHTC))


def _backward(causal, block, cap, pull, g_BHTC):
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        return None, None, *pull(g_BHTC)


_attention.defvjp(_forward, _backward)


def _up_to(q_column: jax.Array, k_column: jax.Array) -> jax.Array:
    return q_column >= k_column


def _masks(layer: Layer, block: int, time: int) -> tuple[MaskInfo, MaskInfo, MaskInfo]:
    """What the kernels for the output and for the gradients of queries and of keys skip.

    JAX's own function looks at every pair of queries and keys, for minutes at 131,072 tokens.
    """
    plan = plan_of(layer, None)._replace(queries=block, keys=block)
    tokens = layer.q._replace(placed=())
    blocks = cut_tokens(plan, tokens, tokens)
    i, j = (jnp.arange(time // block).reshape(shape) for shape in ((-1, 1), (1, -1)))
    # Each query sees itself, so that no sum of exponentials is 0.
    used_IJ = ((blocks.first_I[:, None] <= j) & (j < blocks.end_I[:, None])) | (i == j)
    columns_T: Any = jnp.arange(time, dtype=jnp.int32) if layer.causal else None

    def mask(number_IJ: jax.Array, axis: int) -> MaskInfo:
        """number_IJ: of the block to fetch; one that is not used is the last that was."""
        low = jnp.where(used_IJ, number_IJ, time).min(axis=axis, keepdims=True)
        high = jnp.where(used_IJ, number_IJ, 0).max(axis=axis, keepdims=True)
        next_IJ = jnp.clip(number_IJ, low, high)
        return MaskInfo(
            data_next=next_IJ.astype(jnp.int32)[None],
            mask_next=None,
            block_mask=used_IJ.astype(jnp.int32)[None],
            partial_mask_blocks=None,
            q_sequence=columns_T,
        )

    both = jnp.broadcast_to(i, used_IJ.shape), jnp.broadcast_to(j, used_IJ.shape)
    return mask(both[1], 1), mask(both[1], 1), mask(both[0], 0)
