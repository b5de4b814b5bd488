"""Turned queries and keys for attention that is written elsewhere, without a frame."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax import encoding as hooks
from posenc_jax.attention.layers import Layer
from posenc_jax.attention.params import structured_params
from posenc_jax.attention.tokens import Tokens
from posenc_jax.encoding import Dims, Encoding, Extent, Params, at_layer
from posenc_jax.layout import Layout, positions, whole_number
from posenc_jax.options import FieldError, check_array, checked_all, shown


def rotate(
    encoding: Encoding,
    q_BTHC: jax.Array,
    k_BTGC: jax.Array,
    pos_BT: jax.Array,
    params: Params = None,
    *,
    layer: int | jax.Array = 0,
    length: int | jax.Array | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Queries and keys as the method turns them, for an attention of one's own.

    The logits are their products divided by sqrt(C); masks are the caller's. A token's vectors
    depend on its own position alone, so turned keys can be kept in a cache: turn the new tokens at
    their positions. It is for methods that only turn (`rope`, `partial`, `yarn`, `axial`, `mrope`).

    Args:
      q_BTHC: queries, not turned.
      k_BTGC: keys of the same tokens, of as many heads or fewer. They stay so many, unless the
        method turns heads differently: then [B, T, H, C].
      pos_BT: positions, [T], [B, T], or [B, T, A] of methods that read several axes.
      params: from `encoding.init`; None: the method has none.
      layer: number of the layer, where layers differ.
      length: tokens of the whole sequence, one number or [B], for methods that read it, such as
        `dynamic_ntk`. With a cache give the length that the sequence will have: keys that were
        turned for another length do not fit.

    FieldError: an argument of another type; a method that does more than to turn, with what it
    does; shapes that do not fit; parameters of other keys; parameters or a length that are missing.

    Example:
      q, k = posenc_jax.rotate(posenc_jax.make("rope"), q, k, jnp.arange(T))
    """
    checked_all("rotate", rotate, encoding=encoding)
    _check_shapes(q_BTHC, k_BTGC)
    layer = whole_number("layer", layer)
    if isinstance(layer, int) and layer < 0:
        raise FieldError("layer", f"no layer {layer}, counted from 0")
    heads, head = q_BTHC.shape[2:]
    # The number of layers is not known here, and a traced one may be any of those in `params`.
    layers = layer + 1 if isinstance(layer, int) else 1
    dims = Dims(heads * head, heads, head, layers)
    if params is None:
        params = jax.eval_shape(lambda: encoding.init(jax.random.key(0), dims))
        if jax.tree.leaves(params):
            # A method that does more is refused for that: its parameters would not help.
            turn = lambda p: rotate(encoding, q_BTHC, k_BTGC, pos_BT, p, layer=layer, length=length)
            jax.eval_shape(turn, params)
            raise FieldError("params", f"{_name(encoding)} has parameters; give encoding.init's")
    else:
        params = structured_params(encoding, params, dims, all_layers=encoding.at is None)
    layout = _layout(pos_BT, 0 if length is None else length, q_BTHC.shape)
    if length is None and _reads_length(encoding, layout):
        raise FieldError("length", f"{_name(encoding)} reads the length of the sequence; give it")
    placed = hooks.place(encoding, None, layout)
    whole = encoding
    encoding, params, placed = at_layer(whole, layer, params, placed)
    _check_turns_alone(whole, encoding, placed)
    tokens = Tokens(placed, layout.index_BT, layout.segment_BT, token_BT=layout.index_BT)
    fields = {"self_attention": True, "causal": True, "mask_padding": True, "form": "blockwise"}
    view = Layer(params, tokens, tokens, 0, None, encoding, dims, chosen=False, block=1, **fields)
    table = hooks.table(encoding, params, placed, dims)
    temper_BQH = None
    if encoding.temper is not None:
        temper_BQH = hooks.temper(encoding, params, _no_count(whole), placed, dims)
    view = dataclasses.replace(view, q_table=table, k_table=table, temper_BQH=temper_BQH)
    turned = view.rotated(q_BTHC, k_BTGC)
    if turned[0].shape[-1] != head:
        raise _refusal(whole, "adds channels, by which another scale of the logits would follow")
    return turned


def _check_shapes(q_BTHC: jax.Array, k_BTGC: jax.Array) -> None:
    for side, x in (("q", q_BTHC), ("k", k_BTGC)):
        check_array(side, x)
    if q_BTHC.ndim != 4:
        raise FieldError("q", f"shape {q_BTHC.shape} is not [B, T, H, C]")
    rows, time, heads, head = q_BTHC.shape
    fits = k_BTGC.ndim == 4 and k_BTGC.shape[:2] == (rows, time) and k_BTGC.shape[3] == head
    if not fits or not k_BTGC.shape[2] or heads % k_BTGC.shape[2]:
        q = f"q [B, T, H, C], {q_BTHC.shape}"
        wanted = f"[{rows}, {time}, G, {head}], G a divisor of {heads}"
        raise FieldError("k", f"shape {k_BTGC.shape} does not fit to {q}: {wanted}")


def _layout(pos_BT: Any, length: Any, q_shape: tuple[int, ...]) -> Layout:
    rows, time = q_shape[:2]
    pos_BT = positions(pos_BT, "positions")
    pos_BT = pos_BT[None] if pos_BT.ndim == 1 else pos_BT
    if pos_BT.ndim not in (2, 3) or pos_BT.shape[0] not in (1, rows) or pos_BT.shape[1] != time:
        wanted = f"[{time}], [{rows}, {time}] or [{rows}, {time}, A]"
        q = f"q [B, T, H, C], {q_shape}"
        raise FieldError("positions", f"shape {pos_BT.shape} is not that of {q}: {wanted}")
    length_B1 = positions(length, "length").astype(jnp.int32).reshape(-1, 1)
    if len(length_B1) not in (1, rows):
        raise FieldError("length", f"shape {np.shape(length)} is not [{rows}] or one number")
    shape = max(len(pos_BT), len(length_B1)), time
    full = lambda x: jnp.broadcast_to(x, shape + x.shape[2:])
    index_1T, ones_11 = jnp.arange(time, dtype=jnp.int32)[None], jnp.ones((1, 1), jnp.int32)
    pos_BT, length_BT, index_BT, segment_BT, group_BT = map(
        full, (pos_BT, length_B1, index_1T, ones_11, 0 * ones_11)
    )
    return Layout(pos_BT, length_BT, index_BT, segment_BT, group_BT)


def _reads_length(encoding: Encoding, layout: Layout) -> bool:
    """Whether the positions that the method reads depend on the length of the sequence."""
    if encoding.place is None:
        return False
    placed_of = lambda length_BT: hooks.place(encoding, None, layout.replace(length_BT=length_BT))
    jaxpr = jax.make_jaxpr(placed_of)(layout.length_BT).jaxpr
    used = [v for eqn in jaxpr.eqns for v in eqn.invars] + list(jaxpr.outvars)
    return any(v is jaxpr.invars[0] for v in used)


def _check_turns_alone(whole: Encoding, encoding: Encoding, placed: Any) -> None:
    """FieldError: the encoding does more than turn queries and keys."""
    spans = lambda leaf: isinstance(leaf, Extent)
    does = {
        "adds positions to the embeddings": encoding.embed is not None,
        "makes positions of a layer's input": encoding.locate is not None,
        "adds a bias to the logits": encoding.bias is not None,
        "changes the logits by content": encoding.walk is not None,
        "also turns values": encoding.turns_values,
        "counts from the middle of all tokens of a row": any(
            map(spans, jax.tree.leaves(placed, is_leaf=spans))
        ),
    }
    for what, is_so in does.items():
        if is_so:
            raise _refusal(whole, what)


def _no_count(encoding: Encoding):
    def count():
        raise _refusal(encoding, "multiplies logits by how many keys a query sees")

    return count


def _refusal(encoding: Encoding, what: str) -> FieldError:
    more = "posenc_jax.frame and attend do all of it"
    return FieldError("encoding", f"{_name(encoding)} {what}, which rotate does not do; {more}")


def _name(encoding: Encoding) -> str:
    return encoding.name if len(repr(encoding)) > 80 else shown(encoding)
