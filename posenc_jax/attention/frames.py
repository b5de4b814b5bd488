"""Everything scores need besides q, k and v: made once for a forward pass, shared by all layers."""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from posenc_jax.attention.toeplitz import bias_row, skew, straight
from posenc_jax.encoding import Encoding, Params, Placed, Table, at_layer, place, unmoved
from posenc_jax.layout import Layout
from posenc_jax.tuning import once

Form = Literal["auto", "dense", "blockwise"]
FORMS = ("auto", "dense", "blockwise")
# Logits of one sequence, all heads, up to which "auto" is dense. A CPU is faster in blocks from
# about 1,024 tokens on; elsewhere memory decides: 2^25 float32 logits are 128 MB.
DENSE_LOGITS = {"cpu": 2**21}
DENSE_LOGITS_ELSEWHERE = 2**25


class Tokens(NamedTuple):
    """One side, queries or keys: what the encoding is shown, storage order, sequence."""

    placed: Placed
    index_BT: jax.Array
    segment_BT: jax.Array


@partial(
    jax.tree_util.register_dataclass,
    data_fields=[
        *("params", "q", "k", "first", "straight"),
        *("q_table", "k_table", "bias_BHQK", "visible_BHQK", "row_BHN"),
    ],
    meta_fields=["encoding", "head", "causal", "mask", "form", "block"],
)
@dataclasses.dataclass(frozen=True)
class Frame:
    """What `attend` needs besides q, k and v. Made by `frame`; a pytree.

    first:    column of the first query among the keys.
    straight: bool scalar, whether positions count up along storage as was promised; None: no
        promise.

    Made for all layers at once, or by `at` where layers differ:
    q_table, k_table: what rotations read.
    bias_BHQK:    [B|1, H|1, Q, K], dense form, where the encoding has a bias.
    visible_BHQK: bool [B|1, 1, Q, K], dense form.
    row_BHN:      blockwise form, where the bias is relative and positions are straight: all its
        values, see `window.bias_row`, for lengths filled up to whole blocks.
    """

    params: Params
    q: Tokens
    k: Tokens
    first: int | jax.Array
    straight: jax.Array | None
    encoding: Encoding
    head: int
    causal: bool
    mask: bool
    form: str
    block: int
    q_table: Table = None
    k_table: Table = None
    bias_BHQK: jax.Array | None = None
    visible_BHQK: jax.Array | None = None
    row_BHN: jax.Array | None = None

    def at(self, layer: int) -> "Frame":
        """The frame as layer number `layer` uses it; the same object where layers do not differ."""
        if self.encoding.at is None:
            return self
        encoding, params, q_placed, k_placed = at_layer(
            self.encoding, layer, self.params, self.q.placed, self.k.placed
        )
        q, k = self.q._replace(placed=q_placed), self.k._replace(placed=k_placed)
        return _fill(dataclasses.replace(self, encoding=encoding, params=params, q=q, k=k))


def frame(
    encoding: Encoding,
    params: Params,
    q_layout: Layout,
    k_layout: Layout | None = None,
    *,
    heads: int,
    head: int,
    causal: bool = True,
    placed: Placed = None,
    form: Form = "auto",
    block: int = 512,
    mask: bool = True,
    start: int | jax.Array | None = None,
    aligned: bool = False,
) -> Frame:
    """Prepares a forward pass: positions placed, tables made, in dense form bias and mask as well.

    Keys are the queries' own tokens, or those of `k_layout`, which then holds the queries too:
    memory and current tokens joined, or a whole cache. Positions are placed once, on the keys'
    side, and the queries' are read from there: random ones are the same draw on both sides.

    Args:
      encoding: what tells positions.
      params: its parameters.
      q_layout: the queries' tokens, fields [B|1, Q].
      k_layout: the keys' tokens, fields [B|1, K]; None: the same tokens.
      heads: number of heads.
      head: width of a head before rotation, C.
      causal: whether a query sees only keys with an index up to its own.
      placed: what `place` drew for the keys' tokens, in training; None: it is asked here, without
        a key.
      form: "dense", "blockwise" (nothing of size Q x K outlives a block), or "auto", by size.
      block: side of the square blocks of the blockwise form.
      mask: False switches the padding mask off, as an experiment on leakage: padding is visible
        as if it were real. Causality still holds.
      start: column of `k_layout` where the queries begin, maybe traced, and then not checked;
        None: they are the last.
      aligned: a promise that positions count up by one along storage inside each segment, as
        `layout` makes them when it is given none. A relative bias is then made from one row of
        Q + K - 1 offsets. Where the promise is broken the output is NaN.

    The blockwise form gives positions no gradient through a bias, the dense form does.

    Raises:
      ValueError: an unknown form, or queries that do not lie within the keys.
    """
    if form not in FORMS:
        raise ValueError(f"attention.form: {form!r} is not known; choose from {', '.join(FORMS)}")
    keys = q_layout if k_layout is None else k_layout
    placed = place(encoding, None, keys) if placed is None else placed
    kept = unmoved(placed, keys)
    k = Tokens(placed, keys.index_BT, keys.segment_BT)
    size_q, size_k = q_layout.index_BT.shape[1], keys.index_BT.shape[1]
    first = size_k - size_q if start is None else start
    if isinstance(first, int) and not 0 <= first <= size_k - size_q:
        raise ValueError(f"start: {first} puts {size_q} queries outside of {size_k} keys")
    if k_layout is None:
        q = k
    else:
        cut = lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, first, size_q, axis=1)
        q = Tokens(jax.tree.map(cut, placed), q_layout.index_BT, q_layout.segment_BT)
    promised = aligned and kept and mask and keys.pos_BT.ndim == 2
    if form == "auto":
        most = DENSE_LOGITS.get(jax.default_backend(), DENSE_LOGITS_ELSEWHERE)
        form = "dense" if heads * size_q * size_k <= most else "blockwise"
    made = Frame(
        params, q, k, first, straight(keys) if promised else None,
        encoding, head, causal, mask, form, block,
    )  # fmt: skip
    return made if encoding.at is not None else _fill(made)


def visible(q: Tokens, k: Tokens, causal: bool, mask: bool) -> jax.Array:
    """Which keys each query sees: bool [B|1, 1, Q, K]. Reads storage order, never positions."""
    q_segment, k_segment = q.segment_BT[:, None, :, None], k.segment_BT[:, None, None, :]
    seen = q_segment == k_segment
    if not mask:
        seen |= (k_segment == 0) | (q_segment == 0)
    seen &= k_segment >= (1 if mask else 0)
    if causal:
        seen &= q.index_BT[:, None, :, None] >= k.index_BT[:, None, None, :]
    return seen


def _fill(frame: Frame) -> Frame:
    """The frame with its tables, and in dense form its bias and mask."""
    encoding, params, q, k = frame.encoding, frame.params, frame.q, frame.k
    q_table = k_table = bias_BHQK = visible_BHQK = row_BHN = None
    if (table := encoding.table) is not None:
        made = lambda placed: table(params, placed, frame.head)
        q_table = k_table = once(made, k.placed)
        if q.index_BT is not k.index_BT:
            q_table = once(made, q.placed)
    if frame.form == "dense":
        visible_BHQK = once(lambda q, k: visible(q, k, frame.causal, frame.mask), q, k)
    if encoding.bias is not None:
        size_q, size_k = q.index_BT.shape[1], k.index_BT.shape[1]
        by_row = frame.straight is not None and encoding.relative
        if by_row and frame.form == "dense":
            row = _row(frame, encoding.bias, size_q, size_k)
            bias_BHQK = once(partial(skew, queries=size_q), row)
        elif by_row:
            whole = lambda size: size + -size % min(frame.block, size)
            row_BHN = _row(frame, encoding.bias, whole(size_q), whole(size_k))
        elif frame.form == "dense":
            bias_BHQK = once(partial(encoding.bias, params), q.placed, k.placed)
    return dataclasses.replace(
        frame,
        q_table=q_table,
        k_table=k_table,
        bias_BHQK=bias_BHQK,
        visible_BHQK=visible_BHQK,
        row_BHN=row_BHN,
    )


def _row(frame: Frame, bias: Callable, queries: int, keys: int) -> jax.Array:
    """The bias over all offsets; NaN where the promise of straight positions is broken."""
    assert frame.straight is not None
    row_BHN = bias_row(bias, frame.params, frame.k.placed, frame.first, queries, keys)
    return jnp.where(frame.straight, row_BHN, jnp.nan)
