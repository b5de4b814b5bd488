"""What attention needs in one layer besides q, k and v."""

import dataclasses
from collections.abc import Callable
from dataclasses import field
from functools import partial
from typing import Any, Literal, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax import encoding as hooks
from posenc_jax.attention.block_sizes import GPU_BLOCK, LANES, to_whole
from posenc_jax.attention.mask import counts, visible
from posenc_jax.attention.softmax import for_every_head
from posenc_jax.attention.tokens import Tokens
from posenc_jax.backends.barriers import once
from posenc_jax.backends.form_choice import holds, most_dense_logits
from posenc_jax.backends.skew import skew
from posenc_jax.backends.target import kernel_names, tuned_for
from posenc_jax.encoding import Dims, Encoding, Params, Placed, Table
from posenc_jax.layout import Order, choose, rising
from posenc_jax.meshes import partitioned
from posenc_jax.options import check_array

T = TypeVar("T")
# A field that is not an array: a program is compiled for each of its values.
STATIC = {"static": True}


class Kept(NamedTuple):
    """What a layer computes from its input x besides queries, keys and values, [B, T, ...].

    feat:   features, from `Walk.prepare`.
    placed: positions, from `Encoding.locate`.
    """

    feat: Any = None
    placed: Placed = None


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Layer:
    """One layer of a `Frame`, made by `Frame.layer`: what `attend` takes; a pytree.

    For an attention of one's own: `rotate`, `bias` and `visible`.

    self_attention: whether the keys are the queries' own tokens, all of them.
    first:    column of the first query among the keys.
    straight: bool scalar, whether positions count up along storage, a constant if the layout knows
        it; None: positions are not such as count up.
    order:    in which dense and blockwise attention read columns, see `arranges`. Then bias_BHQK
        and visible_BHQK are in this order too. None: as they are stored.
    steady:   bool scalar, whether positions count up along columns in that order.
    indexed:  whether the index counts up along storage, as far as it is known when tracing.
    valid:    bool scalar or [B], whether the queries' columns and the layer, which were traced,
        exist; else all that is made of the layer, or of this row, is NaN. None: they do.
    q_table, k_table: what rotations read.
    q_kept, k_kept:   what the layer's input says of queries and of keys.
    temper_BQH:   [B|1, Q, H|1], the factor of queries' products, if the encoding has one.
    bias_BHQK:    [B|1, H|1, Q, K], dense form, if the encoding has a bias.
    visible_BHQK: bool [B|1, 1, Q, K], dense form.
    row_BHN:      of a relative bias and straight positions, all values, [1, H|1, Q + K], for
        lengths filled up to whole blocks; entry n is that of i - j = first + Q - 1 - n. It becomes
        a grid by copies, and the grid's gradient becomes the row's by a sum: no gather, no scatter.
        In the dense form it is in place of the former two, where an accelerator is compiled for.
    padded:       the sides, "q" and "k", that may have tokens of padding.
    chosen:       whether the form was chosen by the sizes (`form="auto"`).
    ring:         mesh axis of `jax.shard_map` over whose devices the tokens are spread.
    """

    params: Params
    q: Tokens
    k: Tokens
    first: int | jax.Array
    straight: jax.Array | np.bool_ | None
    encoding: Encoding = field(metadata=STATIC)
    dims: Dims = field(metadata=STATIC)
    self_attention: bool = field(metadata=STATIC)
    causal: bool = field(metadata=STATIC)
    mask_padding: bool = field(metadata=STATIC)
    form: str = field(metadata=STATIC)
    chosen: bool = field(metadata=STATIC)
    block: int = field(metadata=STATIC)
    ring: str | None = field(default=None, metadata=STATIC)
    q_table: Table = None
    k_table: Table = None
    q_kept: Kept | None = None
    k_kept: Kept | None = None
    temper_BQH: jax.Array | None = None
    bias_BHQK: jax.Array | None = None
    visible_BHQK: jax.Array | None = None
    row_BHN: jax.Array | None = None
    valid: jax.Array | None = None
    order: Order | None = None
    steady: jax.Array | None = None
    indexed: bool = field(default=False, metadata=STATIC)
    padded: tuple[str, ...] = field(default=("q", "k"), metadata=STATIC)

    @property
    def sizes(self) -> tuple[int, int]:
        """Numbers of queries and of keys."""
        return self.q.index_BT.shape[1], self.k.index_BT.shape[1]

    @property
    def without_kernel(self) -> str:
        """The form that `form="auto"` chooses by the sizes if it is not the kernel."""
        queries, keys = self.sizes
        few = self.dims.heads * queries * keys <= most_dense_logits()
        return "dense" if few else "blockwise"

    def rotate(self, q_BQHC: jax.Array, k_BKHC: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Queries and keys as the logits read them, [B, Q, H, C'] and [B, K, H, C'].

        The logits are their products divided by sqrt(C), C being the width before. Some methods
        add channels. Keys of fewer heads stay so many, unless the method turns heads differently.

        ValueError: shapes that are not the frame's, or a method whose scores are made by `attend`
        alone.
        """
        self._check_told("rotate")
        check_side(self, "q", q_BQHC)
        check_side(self, "k", k_BKHC)
        return self.if_valid(partitioned(Layer.rotated, q_BQHC, 3, self, q_BQHC, k_BKHC))

    def bias(self) -> jax.Array:
        """What is added to the scaled logits, [B|1, H|1, Q, K], float32 or wider; 0 if nothing is.

        ValueError: a method whose scores are made by `attend` alone.
        """
        self._check_told("bias")
        if self.encoding.bias is None:
            return self.if_valid(jnp.zeros((1, 1, 1, 1)))
        if self.bias_BHQK is not None and not self.arranges:
            return self.if_valid(self.bias_BHQK)
        return self.if_valid(partitioned(Layer._stored_bias, self.q.index_BT, 1, self))

    def visible(self) -> jax.Array:
        """Which keys each query sees, bool [B|1, 1, Q, K]; a query of padding sees none."""
        if self.visible_BHQK is None or self.arranges:
            return visible(self.q, self.k, self.causal, self.mask_padding)
        return self.visible_BHQK

    @property
    def arranges(self) -> bool:
        """Whether attention reads the columns of keys in `order`, not as they are stored.

        A walk sums over keys. The bias of a row of offsets depends on columns alone.
        """
        in_order = self.order is not None and self.form != "kernel"
        return in_order and (self.encoding.walk is not None or self.arranges_queries)

    @property
    def in_order(self) -> Order:
        """The order of a layer that `arranges`."""
        assert self.order is not None
        return self.order

    @property
    def arranges_queries(self) -> bool:
        """Whether attention reads the columns of queries in `order` too.

        Neither the kernel does, nor dense attention on an accelerator, which has no grid of the
        bias: a branch around queries, keys and output keeps XLA from laying them out as logits
        need them (t5 on a v5e: 31% more bytes). There NaN says that positions do not count up
        along storage; `layout.replace(counted=False)` makes the bias of pairs.
        """
        in_order = self.form == "blockwise" or (self.form == "dense" and self._makes_grid())
        return self.order is not None and self.self_attention and self._by_row() and in_order

    @property
    def hides_ahead(self) -> bool:
        """Whether a row of offsets has -inf for keys ahead of the query."""
        return self.form == "kernel" and self.causal and self.indexed

    def sides(self) -> tuple[Tokens, Tokens]:
        """The tokens of queries and of keys, in the order in which attention reads them."""
        if not self.arranges:
            return self.q, self.k
        k = self.in_order.arranged(self.k)
        return k if self.arranges_queries else self.q, k

    def only_if(self, valid: jax.Array) -> "Layer":
        """The layer whose results are NaN unless `valid`, bool scalar or [B]."""
        return dataclasses.replace(self, valid=valid if self.valid is None else self.valid & valid)

    def if_valid(self, arrays: T) -> T:
        """The arrays [B|1, ...], or NaN where a traced column or layer does not exist."""
        valid = self.valid
        if valid is None:
            return arrays
        of_row = lambda x: valid.reshape(-1, *[1] * (x.ndim - 1)) if valid.ndim else valid
        return jax.tree.map(lambda x: jnp.where(of_row(x), x, jnp.nan), arrays)

    @property
    def reads_x(self) -> bool:
        """Whether the method reads the layer's input besides q and k."""
        walk = self.encoding.walk
        return self.encoding.locate is not None or (walk is not None and walk.prepare is not None)

    def zeroed(self, side: Literal["q", "k"], tree: Any) -> Any:
        """Arrays [B, T, ...] with zeros at tokens of padding, where padding is masked.

        A mask hides what padding holds, but not from a product with 0 if that is NaN: attention's
        sum of values is one, and so are the gradients.
        """
        if not self.mask_padding or side not in self.padded:
            return tree
        real_BT = getattr(self, side).segment_BT > 0
        axes = lambda x: tuple(range(2, x.ndim))
        return jax.tree.map(lambda x: jnp.where(jnp.expand_dims(real_BT, axes(x)), x, 0), tree)

    def without_padding(
        self, q_BQHC: jax.Array, k_BKHC: jax.Array, v_BKHC: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Queries, keys and values with zeros at tokens of padding, see `zeroed`."""
        return self.zeroed("q", q_BQHC), self.zeroed("k", k_BKHC), self.zeroed("k", v_BKHC)

    def with_keys(self, k_kept: Kept | None) -> "Layer":
        """The layer with features of all keys, as a cache keeps them beside keys and values."""
        return self._with_keys(self.zeroed("k", k_kept))

    def _with_keys(self, k_kept: Kept | None) -> "Layer":
        layer = dataclasses.replace(self, k_kept=k_kept)
        if k_kept is None or self.encoding.locate is None or self.q_kept is None:
            return layer
        q, k = self.q._replace(placed=self.q_kept.placed), self.k._replace(placed=k_kept.placed)
        return dataclasses.replace(layer, q=q, k=k, straight=None).filled()

    def with_input(self, x_BQD, k_x_BKD) -> "Layer":
        """The layer with what it computes from its input x; see `Frame.layer`."""
        if not self.reads_x or x_BQD is None:
            return self
        q_kept = self._features("q", x_BQD)
        k_kept = q_kept if self.self_attention else None
        if k_x_BKD is not None:
            k_kept = self._features("k", k_x_BKD)
        return dataclasses.replace(self, q_kept=q_kept)._with_keys(k_kept)

    def _features(self, side: Literal["q", "k"], x_BTD: jax.Array) -> Kept:
        walk, locates = self.encoding.walk, self.encoding.locate is not None
        if not jnp.issubdtype(x_BTD.dtype, jnp.floating):
            raise ValueError(
                f"frame.layer: x has dtype {x_BTD.dtype}; this method reads it as floating point"
            )

        def make(layer: Layer, x_BTD) -> Kept:
            x_BTD, placed, params = (
                layer.zeroed(side, x_BTD),
                getattr(layer, side).placed,
                layer.params,
            )
            feat = walk.prepare(params, x_BTD) if walk is not None and walk.prepare else None
            located = hooks.locate(self.encoding, params, x_BTD, placed) if locates else None
            return Kept(feat, located)

        return partitioned(make, x_BTD, 2, self, x_BTD)

    def rotated(self, q_BQHC: jax.Array, k_BKHC: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Queries and keys, rotated and tempered, of a method of any kind; see `rotate`.

        Where heads have tables of their own, a TPU turns keys after queries: XLA would turn both at
        once, and hold both as they were and as they are.
        """
        q_BQHC = self.tempered(self._turned(q_BQHC, "q"))
        if tuned_for("tpu") and _of_heads(self.k_table):
            q_BQHC, k_BKHC = jax.lax.optimization_barrier((q_BQHC, k_BKHC))
        return q_BQHC, self._turned(k_BKHC, "k")

    def tempered(self, q_BQHC: jax.Array) -> jax.Array:
        """Queries times the encoding's factor, if it has one."""
        if self.temper_BQH is None:
            return q_BQHC
        wide = q_BQHC.astype(self.temper_BQH.dtype) * self.temper_BQH[..., None]
        return wide.astype(q_BQHC.dtype)

    def turned_values(self, v_BKHC: jax.Array) -> jax.Array:
        """Values, turned by their positions if the encoding turns values."""
        return self._turned(v_BKHC, "v") if self.encoding.turns_values else v_BKHC

    def turned_back(self, o_BQHC: jax.Array) -> jax.Array:
        """The output of attention to `turned_values`, turned back by the queries' positions."""
        return self._turned(o_BQHC, "o") if self.encoding.turns_values else o_BQHC

    def _turned(self, x_BTHC: jax.Array, side: Literal["q", "k", "v", "o"]) -> jax.Array:
        """The vectors of a side, rotated.

        If heads are turned differently, keys or values of fewer heads are repeated for all heads.
        """
        if self.encoding.rotate is None:
            return x_BTHC
        table = self.q_table if side in ("q", "o") else self.k_table
        if _of_heads(table):
            x_BTHC = for_every_head(x_BTHC, self.dims.heads)
        return hooks.rotate(self.encoding, table, x_BTHC, side)

    def filled(self) -> "Layer":
        """The layer with its tables, and in the dense form its bias and mask.

        A layer that locates positions in its input has them only when that is given.
        """
        if self.encoding.locate is not None and self.k_kept is None:
            return self
        fields = partitioned(Layer._of_tokens, self.q.index_BT, 2, self)
        fields |= partitioned(Layer._of_pairs, self.q.index_BT, 1, self)
        return dataclasses.replace(self, **fields)

    def facing(self, k: Tokens, k_kept: Kept | None, k_table: Table) -> "Layer":
        """The layer with other keys: their tokens, features and table, as `ring` passes them on."""
        unset = "row_BHN", "bias_BHQK", "visible_BHQK"
        none = dict.fromkeys(("straight", "order", "steady", "ring", *unset))
        keys = {"k": k, "k_kept": k_kept, "k_table": k_table, "padded": ("q", "k")}
        layer = dataclasses.replace(self, **keys, self_attention=False, **none)
        return dataclasses.replace(layer, **layer._of_pairs())

    def _of_tokens(self) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        if self.encoding.temper is not None:
            fields["temper_BQH"] = self._temper(None)
        if self.encoding.table is not None:
            table_of = lambda placed: hooks.table(self.encoding, self.params, placed, self.dims)
            fields["k_table"] = self._once(table_of, self.k.placed)
            shared = self.self_attention
            fields["q_table"] = fields["k_table"] if shared else self._once(table_of, self.q.placed)
        return fields

    def _of_pairs(self) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        has_bias, dense = self.encoding.bias is not None, self.form == "dense"
        if has_bias and self._by_row() and not (dense and self._makes_grid()):
            sizes = self.sizes if dense else map(to_whole, self.sizes, self.blocks())
            fields["row_BHN"] = self._checked_row(*sizes)
        elif dense:
            see = lambda q, k: visible(q, k, self.causal, self.mask_padding)
            q, k = self.sides()
            fields["visible_BHQK"] = self._once(see, q, k)
            fields["bias_BHQK"] = self._dense_bias(q, k) if has_bias else None
        return fields

    def counting(self, mask_BHQK: jax.Array) -> "Layer":
        """The layer whose temperatures count the keys that this mask shows besides the frame's."""
        if self.encoding.temper is None:
            return self
        return dataclasses.replace(self, temper_BQH=self._temper(mask_BHQK))

    def _temper(self, mask_BHQK: jax.Array | None) -> jax.Array:
        k = self.k._replace(placed=())
        if self.ring is not None:
            gather = partial(jax.lax.all_gather, axis_name=self.ring, axis=1, tiled=True)
            k = jax.tree.map(gather, k)
        count = partial(counts, self.q, k, self.causal, self.mask_padding, mask_BHQK)
        of_layer, q_placed = (self.encoding, self.params), self.q.placed
        temper_of = lambda count: hooks.temper(*of_layer, count, q_placed, self.dims)
        if mask_BHQK is None or mask_BHQK.shape[1] == 1:
            return temper_of(lambda: count()[..., 0])
        # Where the heads see different keys, all heads' factors are made of each head's count.
        of_count = lambda count_BQ: temper_of(lambda: count_BQ)
        factor_BQHN = jax.vmap(of_count, in_axes=2, out_axes=3)(count())
        shared = factor_BQHN.shape[2] == 1
        return factor_BQHN[:, :, 0] if shared else jnp.diagonal(factor_BQHN, axis1=2, axis2=3)

    def blocks(self) -> tuple[int, int]:
        """Queries and keys in a block."""
        if self.form == "kernel" and tuned_for("gpu"):
            least, most = GPU_BLOCK
            least = most if "mosaic" in kernel_names(measured=self.chosen) else least
            size = 1 << (min(self.block, max(self.sizes), most) - 1).bit_length()
            return max(size, least), max(size, least)
        if self.form == "kernel":
            size = to_whole(min(self.block, max(self.sizes)), LANES)
            traced = self.encoding.bias is not None and not self._by_row()
            while traced and size > LANES and not holds(self.dims.heads, self.dims.head, size):
                size = to_whole(size // 2, LANES)
            return size, size
        queries, keys = self.sizes
        return min(self.block, queries), min(self.block, keys)

    def _once(self, make: Callable, *args: Any) -> Any:
        """make(*args), computed once (see `once`) where all layers read the result.

        A method that locates has positions of its own in each layer, so nothing is shared.
        """
        return make(*args) if self.encoding.locate is not None else once(make, *args)

    def _by_row(self) -> bool:
        """Whether the bias is made of a row of offsets.

        Queries that are some of the columns keep their places, so that the row may not hold: in
        blocks and beside a walk their bias is that of each pair.
        """
        encoding = self.encoding
        row = self.straight is not None and encoding.bias is not None and encoding.relative
        dense = self.form == "dense" and encoding.walk is None
        return row and (self.self_attention or self.form == "kernel" or dense)

    def _makes_grid(self) -> bool:
        """Whether a dense layer holds the bias of all pairs; else attention makes it in parts."""
        return self.encoding.walk is not None or tuned_for("cpu") or not self.self_attention

    def _bias(self, q_placed: Placed, k_placed: Placed) -> jax.Array:
        return hooks.bias(self.encoding, self.params, q_placed, k_placed, self.dims)

    def _dense_bias(self, q: Tokens, k: Tokens) -> jax.Array:
        """The bias of all pairs, of tokens in the order in which attention reads them."""
        if not self._by_row():
            return self._once(self._bias, q.placed, k.placed)
        if not self.self_attention:
            return self._stored_bias()
        return self._once(partial(skew, queries=self.sizes[0]), self._checked_row(*self.sizes))

    def _stored_bias(self) -> jax.Array:
        """The bias of all pairs, of columns as they are stored."""
        of_pairs = lambda layer: layer._once(layer._bias, layer.q.placed, layer.k.placed)
        if self.straight is None or not self.encoding.relative:
            return of_pairs(self)
        shape = jax.eval_shape(of_pairs, self).shape
        grid = lambda layer: skew(layer._row(*layer.sizes), layer.sizes[0])
        broadcast = lambda layer: jnp.broadcast_to(grid(layer), shape)
        return choose(self.straight, broadcast, of_pairs, self)

    def _row(self, queries: int, keys: int) -> jax.Array:
        """The bias over all offsets of positions that count up along columns."""
        offset_N = self.first + queries - 1 - jnp.arange(queries + keys, dtype=jnp.int32)
        dtype = self.k.placed.dtype
        row_BHN = self._bias(jnp.zeros((1, 1), dtype), -offset_N[None].astype(dtype))[:, :, 0]
        if self.hides_ahead:
            row_BHN = jnp.where(offset_N[None, None] < 0, -jnp.inf, row_BHN)
        return row_BHN

    def _checked_row(self, queries: int, keys: int) -> jax.Array:
        """The row; NaN where positions do not count up along the columns that attention reads."""
        holds = self.steady if self.arranges_queries else self.straight
        assert holds is not None
        if isinstance(holds, np.bool_):  # known when the layout was made, which has its index too
            return self._row(queries, keys)
        if self.hides_ahead:
            holds &= rising(self.k.segment_BT, self.k.index_BT, strictly=True)
        return jnp.where(holds, self._row(queries, keys), jnp.nan)

    def _check_told(self, name: str) -> None:
        if self.encoding.walk is not None:
            raise ValueError(
                f"layer.{name}: this method reads content block by block, which a rotation and a "
                "bias cannot tell; use attend(q, k, v, layer)"
            )


def _of_heads(table: Table | None) -> bool:
    """Whether the table turns heads differently."""
    return any(leaf.ndim < 3 or leaf.shape[2] > 1 for leaf in jax.tree.leaves(table))


def check_layer(layer: Any) -> None:
    """TypeError: something else than a frame's layer."""
    if not isinstance(layer, Layer):
        raise TypeError(f"layer: {type(layer).__name__}; give frame.layer(n, x)")


def check_side(layer: Layer, side: str, x_BTHC: jax.Array) -> None:
    """ValueError: no array [B, Q, H, C] of the layer's queries, or [B, K, G, C] of its keys.

    Args:
      side: "q", "k", or "v", which has the keys' tokens and a width of its own.
    """
    check_array(side, x_BTHC)
    rows, time = (layer.q if side == "q" else layer.k).index_BT.shape
    heads, width = layer.dims.heads, layer.dims.head
    if x_BTHC.ndim == 4 and rows in (1, x_BTHC.shape[0]) and time == x_BTHC.shape[1]:
        x_heads, x_width = x_BTHC.shape[2:]
        few = side != "q" and x_heads > 0 and heads % x_heads == 0
        if (few or x_heads == heads) and (side == "v" or x_width == width):
            return
    sizes = f"{'B' if rows == 1 else rows}, {time}"
    wanted = f"[B, Q, H, C] of the layer: [{sizes}, {heads}, {width}]"
    if side != "q":
        width = "C" if side == "v" else width
        wanted = f"[B, K, G, C] of the layer: [{sizes}, G, {width}], G a divisor of {heads}"
    raise ValueError(f"{side}: shape {x_BTHC.shape} is not {wanted}")
