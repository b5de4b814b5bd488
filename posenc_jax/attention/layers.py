"""What attention needs in one layer besides q, k and v."""

import dataclasses
from dataclasses import field
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from posenc_jax.attention.toeplitz import bias_row, skew
from posenc_jax.encoding import Dims, Encoding, Params, Placed, Table
from posenc_jax.tuning import once

# A field that is not an array: a program is compiled for each of its values.
STATIC = {"static": True}
LANES = 128  # a TPU's vectors are so wide, and the blocks of a kernel are multiples of it


def to_whole(size: int, block: int) -> int:
    """The least multiple of `block` that is `size` or more."""
    return size + -size % block


class Tokens(NamedTuple):
    """One side, queries or keys: the positions that the encoding reads, storage order, sequence."""

    placed: Placed
    index_BT: jax.Array
    segment_BT: jax.Array


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


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Layer:
    """One layer of a `Frame`, made by `Frame.layer`: what `attend` takes; a pytree.

    For an attention of one's own: `rotate`, `bias` and `visible`.

    own:      whether the keys are the queries' own tokens, all of them.
    first:    column of the first query among the keys.
    straight: bool scalar, whether positions count up along storage; None: it is not known.
    q_table, k_table: what rotations read.
    q_feat, k_feat:   the features of queries and keys that `Walk.prepare` makes.
    bias_BHQK:    [B|1, H|1, Q, K], dense form, if the encoding has a bias.
    visible_BHQK: bool [B|1, 1, Q, K], dense form.
    row_BHN:      blockwise form, if the bias is relative and positions are straight: all its
        values, see `toeplitz.bias_row`, for lengths filled up to whole blocks.
    tuned:        whether the dense form's gradient is the one for CPUs.
    """

    params: Params
    q: Tokens
    k: Tokens
    first: int | jax.Array
    straight: jax.Array | None
    encoding: Encoding = field(metadata=STATIC)
    dims: Dims = field(metadata=STATIC)
    own: bool = field(metadata=STATIC)
    causal: bool = field(metadata=STATIC)
    mask: bool = field(metadata=STATIC)
    form: str = field(metadata=STATIC)
    tuned: bool = field(metadata=STATIC)
    block: int = field(metadata=STATIC)
    q_table: Table = None
    k_table: Table = None
    q_feat: Any = None
    k_feat: Any = None
    bias_BHQK: jax.Array | None = None
    visible_BHQK: jax.Array | None = None
    row_BHN: jax.Array | None = None

    def rotate(self, q_BQHC: jax.Array, k_BKHC: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Queries and keys as the logits read them, [B, Q, H, C'] and [B, K, H, C'].

        The logits are their products divided by sqrt(C), C being the width before. Some methods
        add channels.

        Raises:
          ValueError: shapes that are not the frame's, or a method whose scores are made by `attend`
            alone.
        """
        self._check_told("rotate")
        check_side(self, "q", q_BQHC)
        check_side(self, "k", k_BKHC)
        return self.rotated(q_BQHC, k_BKHC)

    def bias(self) -> jax.Array:
        """What is added to the scaled logits, [B|1, H|1, Q, K], float32 or wider; 0 if nothing is.

        Raises:
          ValueError: a method whose scores are made by `attend` alone.
        """
        self._check_told("bias")
        if self.encoding.bias is None:
            return jnp.zeros((1, 1, 1, 1))
        if self.bias_BHQK is None:
            return self._dense_bias()
        return self.bias_BHQK

    def visible(self) -> jax.Array:
        """Which keys each query sees, bool [B|1, 1, Q, K]; a query of padding sees none."""
        if self.visible_BHQK is None:
            return visible(self.q, self.k, self.causal, self.mask)
        return self.visible_BHQK

    def with_key_features(self, k_feat: Any) -> "Layer":
        """The layer with features of keys that were kept, as a key-value cache keeps them."""
        return dataclasses.replace(self, k_feat=k_feat)

    def with_features(self, x_BQD, k_x_BKD) -> "Layer":
        """The layer with its features of its input; see `Frame.layer`."""
        walk = self.encoding.walk
        if walk is None or walk.prepare is None or x_BQD is None:
            return self
        q_feat = walk.prepare(self.params, x_BQD)
        if k_x_BKD is not None:
            k_feat = walk.prepare(self.params, k_x_BKD)
        else:
            k_feat = q_feat if self.own else None
        return dataclasses.replace(self, q_feat=q_feat, k_feat=k_feat)

    def rotated(self, q_BQHC: jax.Array, k_BKHC: jax.Array) -> tuple[jax.Array, jax.Array]:
        """As `rotate`, of any method."""
        rotate = self.encoding.rotate
        if rotate is None:
            return q_BQHC, k_BKHC
        return rotate(self.q_table, q_BQHC, "q"), rotate(self.k_table, k_BKHC, "k")

    def filled(self) -> "Layer":
        """The layer with its tables, and in the dense form its bias and mask."""
        made: dict[str, Any] = {}
        if (table := self.encoding.table) is not None:
            of = lambda placed: table(self.params, placed, self.dims)
            made["k_table"] = once(of, self.k.placed)
            made["q_table"] = made["k_table"] if self.own else once(of, self.q.placed)
        if self.form == "dense":
            see = lambda q, k: visible(q, k, self.causal, self.mask)
            made["visible_BHQK"] = once(see, self.q, self.k)
        if self.encoding.bias is not None and self.form == "dense":
            made["bias_BHQK"] = self._dense_bias()
        elif self.encoding.bias is not None and self._by_row():
            sides = zip((self.q, self.k), self.blocks(), strict=True)
            made["row_BHN"] = self._row(*(to_whole(x.index_BT.shape[1], n) for x, n in sides))
        return dataclasses.replace(self, **made)

    def blocks(self) -> tuple[int, int]:
        """Queries and keys in a block."""
        sizes = [side.index_BT.shape[1] for side in (self.q, self.k)]
        if self.form == "kernel":
            size = to_whole(min(self.block, max(sizes)), LANES)
            return size, size
        return min(self.block, sizes[0]), min(self.block, sizes[1])

    def _by_row(self) -> bool:
        return self.straight is not None and self.encoding.relative

    def _bias(self, q_placed: Placed, k_placed: Placed) -> jax.Array:
        assert self.encoding.bias is not None
        return self.encoding.bias(self.params, q_placed, k_placed, self.dims)

    def _dense_bias(self) -> jax.Array:
        if not self._by_row():
            return once(self._bias, self.q.placed, self.k.placed)
        size_q, size_k = (x.index_BT.shape[1] for x in (self.q, self.k))
        return once(partial(skew, queries=size_q), self._row(size_q, size_k))

    def _row(self, queries: int, keys: int) -> jax.Array:
        """The bias over all offsets; NaN where positions are not straight though they should be."""
        assert self.straight is not None
        row_BHN = bias_row(self._bias, self.k.placed, self.first, queries, keys)
        return jnp.where(self.straight, row_BHN, jnp.nan)

    def _check_told(self, name: str) -> None:
        if self.encoding.walk is not None:
            raise ValueError(
                f"layer.{name}: this method reads content block by block, which a rotation and a "
                "bias cannot tell; use attend(q, k, v, layer)"
            )


def check_side(layer: Layer, side: str, x_BTHC: jax.Array, width: int | None = None) -> None:
    """ValueError: an array that is not [B, T, H, C] of the layer's queries or keys.

    Args:
      side: "q", "k", or "v", which has the keys' tokens and a width of its own.
      width: channels of a head; None: those of dims.
    """
    tokens: Tokens = layer.q if side == "q" else layer.k
    rows, time = tokens.index_BT.shape
    letters = "[B, Q, H, C]" if side == "q" else "[B, K, H, C]"
    width = layer.dims.head if width is None else width
    wanted = time, layer.dims.heads, width
    if x_BTHC.ndim != 4 or x_BTHC.shape[1:] != wanted or rows not in (1, x_BTHC.shape[0]):
        batch = "B" if rows == 1 else rows
        raise ValueError(
            f"{side}: shape {x_BTHC.shape} is not {letters} of the layer: "
            f"[{batch}, {', '.join(map(str, wanted))}]"
        )
