"""Attention with positional encodings: one contract, a dense and a blockwise form.

A query sees the keys of its own segment (0 is padding, which nobody sees) with an index up to its
own if attention is causal. Keys it does not see contribute exactly 0, if their values are finite; a
query that sees none gives exactly 0. NaN, by which a method refuses a position, may spoil the whole
row. Logits and softmax are float32 or wider.
"""

import jax

from posenc_jax.attention.blockwise import blockwise
from posenc_jax.attention.dense import dense, heads_first, masked, product, transposed
from posenc_jax.attention.frames import Frame, frame
from posenc_jax.attention.walks import blockwise_walk, dense_walk, walk_logits
from posenc_jax.encoding import Side

__all__ = ["Frame", "attend", "frame", "logits"]


def attend(q_BQHC, k_BKHC, v_BKHC, frame: Frame, q_feat=None, k_feat=None) -> jax.Array:
    """Attention of queries to keys; [B, Q, H, C'] with the values' width and dtype.

    Args:
      q_BQHC: queries, not rotated.
      k_BKHC: keys, not rotated.
      v_BKHC: values.
      frame: from `frame`, or from its `at` for an encoding that differs by layer.
      q_feat: features of the queries' tokens from the encoding's `walk.prepare`, if it has that:
        `frame.encoding.walk.prepare(frame.params, x_BTD)` of the layer's input.
      k_feat: features of the keys' tokens.

    Raises:
      ValueError: q, k and v differ in heads or dtype, the encoding differs by layer, or its
        features are missing.
    """
    _check_alike(q_BQHC, k_BKHC, v_BKHC)
    q_BQHC, k_BKHC, q_side, k_side = _sides(q_BQHC, k_BKHC, frame, q_feat, k_feat)
    walk = frame.encoding.walk
    if walk is not None:
        run = dense_walk if frame.form == "dense" else blockwise_walk
        return run(walk, q_BQHC, k_BKHC, v_BKHC, q_side, k_side, frame)
    if frame.form == "dense":
        return dense(q_BQHC, k_BKHC, v_BKHC, frame.bias_BHQK, frame.visible_BHQK)
    return blockwise(q_BQHC, k_BKHC, v_BKHC, frame)


def logits(q_BQHC, k_BKHC, frame: Frame, q_feat=None, k_feat=None) -> jax.Array:
    """What attention's softmax reads, [B, H, Q, K]; -inf where a query does not see a key.

    Arguments as of `attend`; ValueError: the frame is not of the dense form.
    """
    if frame.form != "dense":
        raise ValueError(f"frame.form: {frame.form!r} never holds all logits; make it 'dense'")
    q_BQHC, k_BKHC, q_side, k_side = _sides(q_BQHC, k_BKHC, frame, q_feat, k_feat)
    q_BHQC, k_BHKC = heads_first(q_BQHC), heads_first(k_BKHC)
    if frame.encoding.walk is not None:
        return walk_logits(frame.encoding.walk, q_BHQC, k_BHKC, q_side, k_side, frame)
    return masked(product(q_BHQC, transposed(k_BHKC)), frame.bias_BHQK, frame.visible_BHQK)


def _sides(q_BQHC, k_BKHC, frame: Frame, q_feat, k_feat):
    """Queries, scaled, and keys, both rotated, and both sides as a walk sees them."""
    encoding, walk = frame.encoding, frame.encoding.walk
    if encoding.at is not None:
        raise ValueError("frame: its encoding differs by layer; choose one with frame.at(layer)")
    if walk is not None and walk.prepare is not None and (q_feat is None or k_feat is None):
        raise ValueError(
            "q_feat, k_feat: missing; the encoding's scores read features of tokens, which "
            "frame.encoding.walk.prepare(frame.params, x_BTD) makes"
        )
    q_side = Side(q_BQHC, frame.q.placed, q_feat, frame.q.index_BT)
    k_side = Side(k_BKHC, frame.k.placed, k_feat, frame.k.index_BT)
    scale = q_BQHC.shape[-1] ** -0.5
    if encoding.rotate is not None:
        q_BQHC = encoding.rotate(frame.q_table, q_BQHC, "q")
        k_BKHC = encoding.rotate(frame.k_table, k_BKHC, "k")
    return q_BQHC * scale, k_BKHC, q_side, k_side


def _check_alike(q_BQHC, k_BKHC, v_BKHC) -> None:
    for what, found in (
        ("heads", [x.shape[2] for x in (q_BQHC, k_BKHC, v_BKHC)]),
        ("dtypes", [x.dtype.name for x in (q_BQHC, k_BKHC, v_BKHC)]),
    ):
        if len(set(found)) > 1:
            raise ValueError(f"q, k, v: {what} {', '.join(map(str, found))}; give all three alike")
