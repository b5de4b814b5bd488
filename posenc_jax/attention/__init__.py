"""Attention with positional encodings: one contract; a dense and a blockwise form, and a kernel.

A query sees the keys of its own segment (0 is padding, which nobody sees) with an index up to its
own if attention is causal. Keys it does not see contribute exactly 0, if their values are finite; a
query that sees none gives exactly 0. NaN, by which a method refuses a position, may spoil the whole
row. Logits and softmax are float32 or wider.
"""

import jax
import jax.numpy as jnp

from posenc_jax.attention.blockwise import blockwise
from posenc_jax.attention.dense import dense, dense_for_cpu
from posenc_jax.attention.derivatives import reverse_mode
from posenc_jax.attention.frames import Frame, frame
from posenc_jax.attention.layers import Layer, check_side
from posenc_jax.attention.softmax import heads_first, masked, product, transposed
from posenc_jax.attention.walks import blockwise_walk, walk_logits
from posenc_jax.dtypes import vary_alike
from posenc_jax.encoding import Side

__all__ = ["Frame", "Layer", "attend", "frame", "logits"]


def attend(q_BQHC: jax.Array, k_BKHC: jax.Array, v_BKHC: jax.Array, layer: Layer) -> jax.Array:
    """Attention of queries to keys; [B, Q, H, C'] with the values' width and dtype.

    It has reverse-mode derivatives, and forward-mode ones of those (`jax.hessian`). All others,
    such as `jax.jvp`, need a frame with form="dense"; inside of `jax.jit` the error is JAX's own.

    Args:
      q_BQHC: queries, not rotated.
      k_BKHC: keys, not rotated.
      v_BKHC: values.
      layer: from `frame.layer(n, x)`.

    Raises:
      ValueError: shapes that are not the frame's, dtypes that differ, or features that are missing.
      TypeError: a frame in place of its layer; a derivative that the form does not have.
    """
    _check(q_BQHC, k_BKHC, v_BKHC, layer)
    if 0 in (q_BQHC.size, k_BKHC.size):
        return jnp.zeros((*q_BQHC.shape[:3], v_BKHC.shape[-1]), v_BKHC.dtype)
    q_BQHC, k_BKHC, v_BKHC, layer = vary_alike((q_BQHC, k_BKHC, v_BKHC, layer))
    if layer.form == "kernel":
        from posenc_jax.attention.kernel import kernel  # here, because Pallas takes long to import

        rotated = layer.rotated(q_BQHC, k_BKHC)
        return reverse_mode(lambda: kernel(*rotated, v_BKHC, layer))
    q, k, q_side, k_side = _sides(q_BQHC, k_BKHC, layer)
    walk = layer.encoding.walk
    if layer.form == "blockwise" and walk is not None:
        return blockwise_walk(q, k, v_BKHC, q_side, k_side, layer)
    if layer.form == "blockwise":
        return reverse_mode(lambda: blockwise(q, k, v_BKHC, layer))
    if layer.tuned and walk is None:
        bias, visible = layer.bias_BHQK, layer.visible_BHQK
        return reverse_mode(lambda: dense_for_cpu(q, k, v_BKHC, bias, visible))
    s_BHQK = _logits(q, k, q_side, k_side, layer)
    return dense(s_BHQK, v_BKHC, weighs=walk is not None and walk.weighs)


def logits(q_BQHC: jax.Array, k_BKHC: jax.Array, layer: Layer) -> jax.Array:
    """What attention's softmax reads, [B, H, Q, K]; -inf where a query does not see a key.

    Arguments as of `attend`; ValueError: the frame is not of the dense form.
    """
    _check(q_BQHC, k_BKHC, k_BKHC, layer)
    if layer.form != "dense":
        raise ValueError(f"form: {layer.form!r} never holds all logits; make the frame 'dense'")
    return _logits(*_sides(q_BQHC, k_BKHC, layer), layer)


def _logits(q_BQHC, k_BKHC, q_side: Side, k_side: Side, layer: Layer) -> jax.Array:
    q_BHQC, k_BHKC, walk = heads_first(q_BQHC), heads_first(k_BKHC), layer.encoding.walk
    if walk is not None:
        return walk_logits(q_BHQC, k_BHKC, q_side, k_side, layer, walk)
    return masked(product(q_BHQC, transposed(k_BHKC)), layer.bias_BHQK, layer.visible())


def _sides(q_BQHC, k_BKHC, layer: Layer):
    """Queries, scaled, and keys, both rotated, and both sides as a walk reads them."""
    q_side = Side(q_BQHC, layer.q.placed, layer.q_feat, layer.q.index_BT)
    k_side = Side(k_BKHC, layer.k.placed, layer.k_feat, layer.k.index_BT)
    scale = q_BQHC.shape[-1] ** -0.5
    q_BQHC, k_BKHC = layer.rotated(q_BQHC, k_BKHC)
    return q_BQHC * scale, k_BKHC, q_side, k_side


def _check(q_BQHC, k_BKHC, v_BKHC, layer: Layer) -> None:
    if not isinstance(layer, Layer):
        raise TypeError(f"layer: {type(layer).__name__}; give frame.layer(n, x)")
    for side, x in (("q", q_BQHC), ("k", k_BKHC)):
        check_side(layer, side, x)
    check_side(layer, "v", v_BKHC, width=v_BKHC.shape[-1])
    for what, found in (
        ("rows", [x.shape[0] for x in (q_BQHC, k_BKHC, v_BKHC)]),
        ("dtypes", [x.dtype.name for x in (q_BQHC, k_BKHC, v_BKHC)]),
    ):
        if len(set(found)) > 1:
            raise ValueError(f"q, k, v: {what} {', '.join(map(str, found))}; give all three alike")
    if layer.form == "kernel" and q_BQHC.dtype not in (jnp.bfloat16, jnp.float32):
        raise ValueError(
            f"q, k, v: {q_BQHC.dtype} is not a dtype of the kernel, which takes bfloat16 and "
            "float32; make the frame 'blockwise'"
        )
    walk = layer.encoding.walk
    missing = layer.q_feat is None or layer.k_feat is None
    if walk is not None and walk.prepare is not None and missing:
        raise ValueError(
            "layer: it has no features of x, which this method reads; make it by "
            "frame.layer(n, x), or frame.layer(n, x, k_x) where keys are other tokens"
        )
