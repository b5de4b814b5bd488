"""Attention with positional encodings: one contract; a dense and a blockwise form, and a kernel.

A query sees the keys of its own segment (0 is padding, which nobody sees) with an index up to its
own if attention is causal. Keys it does not see contribute exactly 0, if they and their values are
finite; a query that sees none gives exactly 0. NaN, by which a method refuses a position, may spoil
the whole row. Logits and softmax are float32 or wider.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from posenc_jax.attention import softmax
from posenc_jax.attention.blockwise import blockwise
from posenc_jax.attention.derivatives import reverse_mode
from posenc_jax.attention.frames import Frame, frame
from posenc_jax.attention.kernels import fused
from posenc_jax.attention.layers import Kept, Layer, check_layer, check_side
from posenc_jax.attention.mask import visible
from posenc_jax.attention.score_options import (
    ScoreOptions,
    both,
    check_dropout,
    check_form_of_dropout,
    check_options,
    dropout_factor,
    plus,
)
from posenc_jax.attention.shared_trace import traced_once
from posenc_jax.attention.walks import blockwise_walk, walk_logits
from posenc_jax.attention.without_frame import rotate
from posenc_jax.backends.form_choice import kernel_takes
from posenc_jax.backends.skew import with_grid
from posenc_jax.backends.target import tuned_for
from posenc_jax.dtypes import scaled, widest
from posenc_jax.encoding import Side
from posenc_jax.meshes import partitioned, vary_alike

__all__ = ["Frame", "Layer", "attend", "frame", "logits", "rotate", "weights"]


def attend(
    q_BQHC: jax.Array,
    k_BKGC: jax.Array,
    v_BKGC: jax.Array,
    layer: Layer,
    *,
    sink_H: jax.Array | None = None,
    cap: float | None = None,
    mask_BHQK: jax.Array | None = None,
    bias_BHQK: jax.Array | None = None,
    scale: float | jax.Array | None = None,
    dropout: float = 0.0,
    dropout_key: jax.Array | None = None,
    return_lse: bool = False,
) -> Any:
    """Attention of queries to keys; [B, Q, H, C'] with the values' width and dtype.

    It has reverse-mode derivatives, and forward-mode ones of those (`jax.hessian`). All others,
    such as `jax.jvp`, need a frame with form="dense"; inside of `jax.jit` the error is JAX's own.

    What q, k and v hold at tokens of padding is not read, be it NaN, and has a gradient of 0.

    Args:
      q_BQHC: queries, not rotated.
      k_BKGC: keys, not rotated. G heads that divide the H heads of queries: query head h attends
        with head h G // H (grouped queries, arXiv 2305.13245; one head, arXiv 1911.02150).
      v_BKGC: values, with the keys' heads.
      layer: from `frame.layer(n, x)`.
      sink_H: for each head of queries the logit of one more key, whose value is 0, so that weights
        may add to less than one (gpt-oss, arXiv 2508.10925; zeros: softmax plus one).
      cap: products of queries and keys, scaled, become cap tanh(product / cap) before a bias or
        content score is added (Gemma 2, arXiv 2408.00118).
      mask_BHQK: bool, True where a query may see a key; each axis may be 1. A query sees a key if
        the mask and the frame both say so. Methods that count keys or sum over them take those.
      bias_BHQK: floating point, added to the scaled products after the cap, as a method's own bias
        is; each axis may be 1. It has a gradient.
      scale: one number in place of C ** -0.5, C being `dims.head`: products of queries and keys,
        and a method's scores that are divided by sqrt(C), are multiplied by it. A method's own
        temperature is a further factor.
      dropout: probability with which each weight becomes 0, the others being divided by
        1 - dropout; in the dense form.
      dropout_key: a key of `jax.random`, for dropout.
      return_lse: return also the log-sum-exp of each query's logits, the sink's among them,
        [B, Q, H] in float32 or wider; -inf where a query sees no key. `posenc_jax.merge` makes
        attention to all keys of attention to parts of them. Both have gradients.

    Raises:
      ValueError: shapes that are not the frame's, dtypes that differ, features that are missing,
        a cap that is not above 0, a sink or `return_lse` where a method makes the weights itself,
        dropout without a key or in another form than the dense one; a mask or a bias where the
        frame is of form="kernel".
      TypeError: a frame in place of its layer; a derivative that the form does not have.
    """
    check_dropout(dropout, dropout_key, "dropout_key")
    options = ScoreOptions(sink_H, mask_BHQK, bias_BHQK, scale, cap=cap, lse=return_lse)
    draw = functools.partial(dropout_factor, dropout_key, dropout) if dropout else None
    return attend_with(q_BQHC, k_BKGC, v_BKGC, layer, options, draw)


def attend_with(
    q_BQHC,
    k_BKGC,
    v_BKGC,
    layer: Layer,
    options: ScoreOptions,
    draw: Callable[[tuple[int, ...]], jax.Array] | None = None,
) -> Any:
    """Attention as of `attend`, with its options in one object.

    draw: a function of the weights' shape, [B, H, Q, K], that returns what dropout multiplies them
      with; None: no dropout.
    """
    _check(q_BQHC, k_BKGC, v_BKGC, layer)
    layer, options = _checked(q_BQHC, layer, options)
    walk = layer.encoding.walk
    if options.lse and walk is not None and walk.weighs:
        raise ValueError("return_lse: this method makes the weights itself, without a softmax")
    if draw is not None:
        check_form_of_dropout(layer.form)
        shape = *q_BQHC.shape[:3:2], *layer.sizes
        options = dataclasses.replace(options, factor_BHQK=draw(shape))
    if 0 in (q_BQHC.size, k_BKGC.size):
        none_BQH = jnp.full(q_BQHC.shape[:3], -jnp.inf, widest(q_BQHC.dtype))
        o_BQHC = jnp.zeros((*none_BQH.shape, v_BKGC.shape[-1]), v_BKGC.dtype)
        return (o_BQHC, none_BQH) if options.lse else o_BQHC

    attend_once = functools.partial(traced_once, _attention)
    args = q_BQHC, k_BKGC, v_BKGC, layer, options
    o_BQHC, lse_BQH = reverse_mode(lambda: partitioned(attend_once, q_BQHC, 3, *args))
    return (o_BQHC, lse_BQH) if options.lse else o_BQHC


def _attention(q_BQHC, k_BKGC, v_BKGC, layer: Layer, options: ScoreOptions):
    """(output, log-sum-exp or None) of attention to tokens and values as `attend` gets them."""
    q_BQHC, k_BKGC, v_BKGC = layer.without_padding(q_BQHC, k_BKGC, v_BKGC)
    v_BKGC = layer.turned_values(v_BKGC)
    o_BQHC, lse_BQH = _attend(q_BQHC, k_BKGC, v_BKGC, layer, options)
    # Also for its gradient, which is NaN where a loss read a sum of it and a NaN of padding.
    o_BQHC = layer.if_valid(layer.zeroed("q", layer.turned_back(o_BQHC)))
    return o_BQHC, layer.if_valid(lse_BQH) if options.lse else None


def _checked(q_BQHC, layer: Layer, options: ScoreOptions) -> tuple[Layer, ScoreOptions]:
    """The layer in a form that takes the options, and the options with a scale of the right dtype.

    ValueError: an option does not fit.
    """
    check_options(options, layer, q_BQHC.shape[0])
    untaken = options.pairs or not kernel_takes(q_BQHC.dtype)
    if layer.form == "kernel" and layer.chosen and untaken:
        layer = dataclasses.replace(layer, form=layer.without_kernel).filled()
    if isinstance(options.scale, jax.Array):
        options = dataclasses.replace(options, scale=options.scale.astype(widest(q_BQHC.dtype)))
    return layer, options


def _attend(q_BQHC, k_BKGC, v_BKGC, layer: Layer, options: ScoreOptions):
    """(output, log-sum-exp) of attention to values that are turned already; nothing is checked.

    The log-sum-exp may be None where the options do not ask for it.
    """
    args = q_BQHC, k_BKGC, v_BKGC, layer, options
    q_BQHC, k_BKGC, v_BKGC, layer, options = vary_alike(args)
    if options.mask_BHQK is not None:
        layer = layer.counting(options.mask_BHQK)
    if layer.form == "kernel":
        not_rotated = q_BQHC, k_BKGC, v_BKGC

        def without_kernel():
            other = dataclasses.replace(layer, form=layer.without_kernel).filled()
            return _attend(*not_rotated, other, options)

        q_BQHC, k_BKGC = layer.rotated(q_BQHC, k_BKGC)
        if options.scale is not None:  # kernels divide by sqrt(C)
            q_BQHC = scaled(q_BQHC, options.scale * layer.dims.head**0.5)
        qkv = q_BQHC, k_BKGC, v_BKGC
        return fused(*qkv, layer, options, without_kernel)
    q, k, v, q_side, k_side, arranged = _sides(q_BQHC, k_BKGC, v_BKGC, layer, options)
    v = softmax.for_every_head(v, q.shape[2])
    options = _arranged(options, layer)
    results = _in_order(q, k, v, q_side, k_side, arranged, options)
    return layer.in_order.restored(results) if layer.arranges_queries else results


def _arranged(options: ScoreOptions, layer: Layer) -> ScoreOptions:
    """The options of pairs of tokens, in the order in which attention reads columns."""
    axes = [*([3] if layer.arranges else []), *([2] if layer.arranges_queries else [])]
    pairs = {name: getattr(options, name) for name in ("mask_BHQK", "bias_BHQK", "factor_BHQK")}
    for name, x in pairs.items():
        for axis in axes:
            if x is not None and x.shape[axis] > 1:
                x = layer.in_order.arranged(x, axis)
        pairs[name] = x
    return dataclasses.replace(options, **pairs)


def _in_order(q, k, v, q_side: Any, k_side: Any, layer: Layer, options: ScoreOptions):
    """(output, log-sum-exp) of the dense and blockwise forms, of columns in the layer's order."""
    walk = layer.encoding.walk
    if layer.form == "blockwise" and walk is not None:
        return blockwise_walk(q, k, v, q_side, k_side, layer, options)
    if layer.form == "blockwise":
        return blockwise(q, k, v, layer, options)
    tuned = layer.chosen and tuned_for("cpu") and not options.lse and options.factor_BHQK is None
    if tuned and walk is None and options.sink_H is None and options.cap is None:
        assert layer.visible_BHQK is not None
        bias = plus(layer.bias_BHQK, options.bias_BHQK)
        see = both(layer.visible_BHQK, options.mask_BHQK)
        return softmax.dense_cpu(q, k, v, bias, see), None
    s_BHQK = _logits(q, k, q_side, k_side, layer, options)
    weighs = walk is not None and walk.weighs
    return softmax.dense(s_BHQK, v, weighs, options.sink_H, options.factor_BHQK)


def weights(
    q_BQHC: jax.Array,
    k_BKGC: jax.Array,
    layer: Layer,
    *,
    sink_H: jax.Array | None = None,
    cap: float | None = None,
    mask_BHQK: jax.Array | None = None,
    bias_BHQK: jax.Array | None = None,
    scale: float | jax.Array | None = None,
) -> jax.Array:
    """The weights of attention, [B, H, Q, K], in the dtype of q. Arguments as of `attend`."""
    check_layer(layer)
    check_side(layer, "k", k_BKGC)
    # Attention to values that are unit vectors.
    keys = k_BKGC.shape[1]
    unit_KK = jnp.eye(keys, dtype=k_BKGC.dtype)
    unit_BKGK = jnp.broadcast_to(unit_KK[None, :, None], (*k_BKGC.shape[:3], keys))
    _check(q_BQHC, k_BKGC, unit_BKGK, layer)
    options = ScoreOptions(sink_H, mask_BHQK, bias_BHQK, scale, cap=cap)
    layer, options = _checked(q_BQHC, layer, options)
    q_BQHC, k_BKGC, _ = layer.without_padding(q_BQHC, k_BKGC, unit_BKGK)
    args = q_BQHC, k_BKGC, unit_BKGK, layer, options
    o_BQHK, _ = reverse_mode(lambda: _attend(*args))
    return layer.if_valid(layer.zeroed("q", o_BQHK).transpose(0, 2, 1, 3))


def logits(
    q_BQHC: jax.Array,
    k_BKGC: jax.Array,
    layer: Layer,
    *,
    cap: float | None = None,
    mask_BHQK: jax.Array | None = None,
    bias_BHQK: jax.Array | None = None,
    scale: float | jax.Array | None = None,
) -> jax.Array:
    """What attention's softmax reads, [B, H, Q, K]; -inf where a query does not see a key.

    Arguments as of `attend`; ValueError: the frame is not of the dense form.
    """
    _check(q_BQHC, k_BKGC, k_BKGC, layer)
    options = ScoreOptions(None, mask_BHQK, bias_BHQK, scale, cap=cap)
    layer, options = _checked(q_BQHC, layer, options)
    if layer.form != "dense":
        raise ValueError(f"form: {layer.form!r} never holds all logits; make the frame 'dense'")
    q_BQHC, k_BKGC, _ = layer.without_padding(q_BQHC, k_BKGC, k_BKGC)
    if options.mask_BHQK is not None:
        layer = layer.counting(options.mask_BHQK)
    q, k, _, q_side, k_side, arranged = _sides(q_BQHC, k_BKGC, None, layer, options)
    s_BHQK = _logits(q, k, q_side, k_side, arranged, _arranged(options, layer))
    if layer.arranges:
        s_BHQK = layer.in_order.restored(s_BHQK, axis=3)
    if layer.arranges_queries:
        s_BHQK = layer.in_order.restored(s_BHQK, axis=2)
    return layer.if_valid(s_BHQK)


def _logits(q_BQHC, k_BKHC, q_side: Any, k_side: Any, layer: Layer, options: ScoreOptions):
    q_BHQC, k_BHKC = softmax.heads_first(q_BQHC), softmax.heads_first(k_BKHC)
    products = lambda q_BHQC: softmax.scores(q_BHQC, k_BHKC, options.cap)
    if layer.encoding.walk is not None:
        return walk_logits(products(q_BHQC), q_side, k_side, layer, options)
    if layer.row_BHN is None:
        assert layer.visible_BHQK is not None
        bias_BHQK = plus(layer.bias_BHQK, options.bias_BHQK)
        see_BHQK = both(layer.visible_BHQK, options.mask_BHQK)
        return softmax.masked(products(q_BHQC), bias_BHQK, see_BHQK)

    def of_queries(which: slice, bias_BHQK):
        q = layer.q._replace(
            index_BT=layer.q.index_BT[:, which], segment_BT=layer.q.segment_BT[:, which]
        )
        pair_options = options.columns(which)
        see_BHQK = visible(q, layer.k, layer.causal, layer.mask_padding)
        return softmax.masked(
            products(q_BHQC[:, :, which]),
            plus(bias_BHQK, pair_options.bias_BHQK),
            both(see_BHQK, pair_options.mask_BHQK),
        )

    return with_grid(of_queries, layer.row_BHN, q_BHQC.shape[2])


def _sides(q_BQHC, k_BKGC, v_BKGC, layer: Layer, options: ScoreOptions):
    """All that attention reads, in the order in which it reads columns, a tuple of six.

    Scaled queries, keys of every head, both rotated, and values; both sides as a walk reads them,
    or what would be those; the layer with its tokens in this order.
    """
    heads = q_BQHC.shape[2]
    scale = layer.dims.head**-0.5 if options.scale is None else options.scale
    q_kept, k_kept = layer.q_kept or Kept(), layer.k_kept or Kept()
    q_read: Any = None
    k_read: Any = None
    if layer.encoding.walk is not None:
        q_read, k_read = (layer.tempered(q_BQHC), q_kept.feat), (k_BKGC, k_kept.feat)
    q_BQHC, k_BKGC = layer.rotated(q_BQHC, k_BKGC)
    of_q, of_k = (scaled(q_BQHC, scale), q_read, layer.q), (k_BKGC, k_read, layer.k, v_BKGC)
    if layer.arranges_queries:
        of_q, of_k = layer.in_order.arranged((of_q, of_k))
    elif layer.arranges:
        of_k = layer.in_order.arranged(of_k)
    (q_BQHC, q_read, q), (k_BKGC, k_read, k, v_BKGC) = of_q, of_k
    q_side = k_side = None
    if layer.encoding.walk is not None:
        q_side = Side(q_read[0], q.placed, q_read[1], q.token_BT)
        k_x = softmax.for_every_head(k_read[0], heads)
        k_side = Side(k_x, k.placed, k_read[1], k.token_BT)
    k_BKHC = softmax.for_every_head(k_BKGC, heads)
    arranged = dataclasses.replace(layer, q=q, k=k)
    return q_BQHC, k_BKHC, v_BKGC, q_side, k_side, arranged


def _check(q_BQHC, k_BKHC, v_BKHC, layer: Layer) -> None:
    check_layer(layer)
    if layer.ring is not None:
        raise ValueError(
            f"layer: its tokens are spread over the mesh axis {layer.ring!r}; use posenc_jax.ring"
        )
    for side, x in (("q", q_BQHC), ("k", k_BKHC), ("v", v_BKHC)):
        check_side(layer, side, x)
    for what, values in (
        ("rows", [x.shape[0] for x in (q_BQHC, k_BKHC, v_BKHC)]),
        ("dtypes", [x.dtype.name for x in (q_BQHC, k_BKHC, v_BKHC)]),
    ):
        if len(set(values)) > 1:
            raise ValueError(f"q, k, v: {what} {', '.join(map(str, values))}; give all three alike")
    forced = layer.form == "kernel" and not layer.chosen
    if forced and q_BQHC.dtype not in (jnp.bfloat16, jnp.float32):
        raise ValueError(
            f"q, k, v: {q_BQHC.dtype} is not a dtype of the kernel, which takes bfloat16 and "
            "float32; make the frame 'blockwise'"
        )
    if k_BKHC.shape[2] != v_BKHC.shape[2]:
        raise ValueError(f"v: {v_BKHC.shape[2]} heads; the keys have {k_BKHC.shape[2]}")
    for side, features, like in (("q", layer.q_kept, q_BQHC), ("k", layer.k_kept, k_BKHC)):
        for leaf in jax.tree.leaves(features):
            if leaf.shape[:2] != like.shape[:2]:
                raise ValueError(
                    f"layer: its features of the {side} side's input are of {leaf.shape[:2]} rows "
                    f"and tokens; {side} has {like.shape[:2]}"
                )
    if layer.reads_x and layer.q_kept is not None and layer.k_kept is None:
        raise ValueError(
            "layer: it has features of the queries' x, not of the keys'; keep layer.q_kept of each "
            "call in your cache, beside keys and values, and give layer.with_keys(kept)"
        )
    if layer.reads_x and layer.q_kept is None:
        raise ValueError(
            "layer: it has no features of x, which this method reads; make it by "
            "frame.layer(n, x), or frame.layer(n, x, k_x) where keys are other tokens"
        )
