"""Attention over a sequence whose tokens are spread over devices: `ring`; parts of it: `merge`.

Each device holds the queries, keys and values of its tokens. Keys and values go round, and the
results of their parts are merged by their log-sum-exp (arXiv 2310.01889). Positions and order are
explicit in a `Layout`, so which tokens a device has is free; `zigzag` gives all the same work.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.attention import Layer, attend
from posenc_jax.attention.layers import check_layer
from posenc_jax.attention.softmax import FLOOR
from posenc_jax.dtypes import widest
from posenc_jax.encoding import Side
from posenc_jax.meshes import vary_alike

Part = tuple[jax.Array, jax.Array]


def merge(*parts: Part) -> Part:
    """Merges attention to several sets of keys: each part is the result of `attend(...,
    return_lse=True)`.

    Each part is (o_BQHC, lse_BQH), and so is the result. Where no part saw a key, the output is 0
    and the log-sum-exp -inf.
    """
    lse_NBQH = jnp.stack([lse_BQH for _, lse_BQH in parts])
    top_BQH = jax.lax.stop_gradient(jnp.maximum(lse_NBQH.max(axis=0), FLOOR))
    share_NBQH = jnp.exp(lse_NBQH - top_BQH[None])
    total_BQH = share_NBQH.sum(axis=0)
    seen_BQH = total_BQH > 0
    safe_BQH = jnp.where(seen_BQH, total_BQH, 1)
    weighted = (o * share[..., None] for (o, _), share in zip(parts, share_NBQH, strict=True))
    o_BQHC = sum(weighted, jnp.zeros((), safe_BQH.dtype)) / safe_BQH[..., None]
    lse_BQH = jnp.where(seen_BQH, top_BQH + jnp.log(safe_BQH), -jnp.inf)
    return o_BQHC.astype(parts[0][0].dtype), lse_BQH


def ring(
    q_BQHC: jax.Array,
    k_BKGC: jax.Array,
    v_BKGC: jax.Array,
    layer: Layer,
    *,
    sink_H: jax.Array | None = None,
    cap: float | None = None,
) -> jax.Array:
    """Attention to the tokens of all devices of a mesh axis, [B, Q, H, C'], inside `jax.shard_map`.

    As `attend`, which see for the arguments; all arrays are those of this device's tokens, and
    `layer` is of a frame that was made with `ring="axis"`. On n devices it takes n steps; in step s
    keys, values and what the method keeps of them come from s devices back. Where causality hides
    them all, nothing is computed. The backward pass fetches keys again, so that a device never
    keeps those of all tokens.

    ValueError: a layer of another frame, or a method whose scores sum over the keys between a key
    and its query, or mix keys. TypeError: a frame in place of its layer.
    """
    check_layer(layer)
    axis = layer.ring
    if axis is None:
        raise ValueError("layer: its frame was made without ring=; name the mesh axis there")
    _check_pairwise(q_BQHC, layer)
    devices = jax.lax.axis_size(axis)
    layer = layer.facing(layer.k, layer.k_kept, layer.k_table)
    q_BQHC, k_BKGC, v_BKGC, layer = vary_alike((q_BQHC, k_BKGC, v_BKGC, layer))
    keys = k_BKGC, v_BKGC, layer.k, layer.k_kept, layer.k_table

    def attended(q_BQHC, keys, layer: Layer) -> Part:
        k_BKGC, v_BKGC, *tokens = keys
        facing = layer.facing(*tokens)
        return attend(q_BQHC, k_BKGC, v_BKGC, facing, cap=cap, return_lse=True)

    def unseen(q_BQHC, keys, layer: Layer) -> Part:
        part = jax.eval_shape(attended, q_BQHC, keys, layer)
        zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), part)
        (o_BQHC, lse_BQH), _ = vary_alike((zeros, q_BQHC))
        return o_BQHC, lse_BQH - jnp.inf

    @partial(jax.checkpoint, static_argnums=3)
    def step(q_BQHC, keys, layer: Layer, shift: int) -> Part:
        source = [(n, (n + shift) % devices) for n in range(devices)]
        keys = jax.tree.map(lambda x: jax.lax.ppermute(x, axis, source), keys)
        if not layer.causal:
            return attended(q_BQHC, keys, layer)
        seen = layer.q.index_BT.max() >= keys[2].index_BT.min()
        return jax.lax.cond(seen, attended, unseen, q_BQHC, keys, layer)

    wide = lambda part: (part[0].astype(widest(part[0].dtype)), part[1])
    merged = wide(attended(q_BQHC, keys, layer))
    for shift in range(1, devices):
        merged = merge(merged, wide(step(q_BQHC, keys, layer, shift)))
    if sink_H is not None:
        lse_BQH = jnp.zeros_like(merged[1]) + sink_H.astype(merged[1].dtype)[None, None]
        merged = merge(merged, (jnp.zeros_like(merged[0]), lse_BQH))
    return merged[0].astype(v_BKGC.dtype)


def zigzag(time: int, devices: int) -> np.ndarray:
    """An order of tokens, int [T], that gives each device of a ring equal work under a causal mask.

    Of 2n equal stretches device i has number i and number 2n - 1 - i. Apply it to the columns of
    tokens, layout and targets, before they are spread.

    ValueError: devices of which twice the number does not divide the tokens.

    Example:
      at = jax.tree.map(lambda x: x[:, order], posenc_jax.layout(segment_BT))
    """
    if time % (2 * devices):
        raise ValueError(f"zigzag: {time} tokens are not {2 * devices} equal stretches")
    stretches = np.arange(time).reshape(2 * devices, -1)
    both = [stretches[[n, 2 * devices - 1 - n]] for n in range(devices)]
    return np.concatenate(both).ravel()


def _check_pairwise(q_BQHC: jax.Array, layer: Layer) -> None:
    """Raises a ValueError if the score of a pair is not a function of its own two tokens."""
    walk = layer.encoding.walk
    if walk is None:
        return
    feat = layer.q_kept and layer.q_kept.feat
    side = Side(q_BQHC, layer.q.placed, feat, layer.q.token_BT)
    carry = walk.start and jax.eval_shape(walk.start, layer.params, side)
    if walk.whole or walk.weighs or jax.tree.leaves(carry):
        raise ValueError(
            "ring: the scores of this method read all keys between a key and its query, in their "
            "order, so each device needs the keys of all tokens; spread rows or heads instead"
        )
