"""Where each token stands: its position, its sequence, and its place in storage.

Positions are explicit everywhere, so padding on either side, packed documents, cached decoding and
recurrence memory are one code path. Masks read `index` and `segment`, never positions.
"""

import dataclasses
import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from posenc_jax.meshes import cond, partitioned

T = TypeVar("T")
INDEX = 2**31 - 1  # the largest number of an int32, above every index


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Layout:
    """The tokens of a batch; a pytree of arrays, made by `layout` or `full`.

    pos_BT:     position in the token's own sequence, [B, T] or [B, T, A] (row, column, ...).
    length_BT:  number of tokens in that sequence, int32.
    index_BT:   order of the tokens, int32: what causality reads. A query sees the keys of its
                sequence up to its own index; tokens of equal index see each other. Methods that
                sum over keys do it in this order, wherever the columns stand; keys of equal index
                as they are stored. `posenc_jax.masks` makes such an index for prefixes and blocks.
    segment_BT: which sequence of the row the token belongs to, int32; 0 is padding.
    group_BT:   tokens that belong together have one number, int32, 0 for none: the digits of one
                significance, as the task that wrote them knows it; see `digit_places` and
                `unit_places`.
    counted:    whether positions count up by one in each sequence, as `layout` makes them when it
                is given none. A relative bias is then made from one row of offsets. Columns may be
                moved all the same (`jax.tree.map`): attention finds the order when it runs.
    indexed:    whether `index_BT` counts up along storage, as `layout` makes it.

    B may be 1 where all rows are alike, in every field at once; a random `place` then draws once
    for all of them.
    """

    pos_BT: jax.Array
    length_BT: jax.Array
    index_BT: jax.Array
    segment_BT: jax.Array
    group_BT: jax.Array
    counted: bool = dataclasses.field(default=False, metadata={"static": True})
    indexed: bool = dataclasses.field(default=False, metadata={"static": True})

    def replace(self, **fields: Any) -> "Layout":
        """The layout with other fields. What was made of a field is made again.

        Other segments: lengths are counted again, and so are positions if they are `counted`,
        unless new ones are given. Other positions: the layout is not `counted`. Another index: it
        is not `indexed`. With counted=False nothing is made again, and nothing is known of the
        columns.

        ValueError: shapes that do not fit together, or dtypes that `layout` does not take.
        """
        if "pos_BT" in fields:
            fields = {"counted": False, **fields, "pos_BT": positions(fields["pos_BT"])}
        elif fields.get("counted") is False:  # nothing is known of the columns then
            fields = {"indexed": False, **fields}
        if "index_BT" in fields:
            index_BT = whole_array("index_BT", fields["index_BT"])
            fields = {"indexed": False, **fields, "index_BT": index_BT}
        if "segment_BT" in fields:
            remade = layout(fields["segment_BT"])
            fields["segment_BT"] = remade.segment_BT
            if fields.get("counted", True):
                fields = {"length_BT": remade.length_BT, **fields}
                fields |= {"pos_BT": remade.pos_BT} if self.counted else {}
        shape = self.segment_BT.shape
        for name in fields:
            if name.endswith("_BT") and fields[name].shape[:2] != shape:
                found = fields[name].shape
                raise ValueError(f"{name}: shape {found} does not begin with {shape}, the layout's")
        return dataclasses.replace(self, **fields)


def positions(pos_BT: Any, name: str = "pos_BT") -> jax.Array:
    """The positions as int32, float32 or wider: offsets of narrower types would wrap or round.

    ValueError: a float type of less than 32 bits, which has rounded large positions already; an
    unsigned type of 32 bits or more; one that holds no numbers; or NumPy's numbers that the result
    cannot hold.
    """
    dtype = _dtype(pos_BT)
    if jnp.issubdtype(dtype, jnp.integer):
        return whole_array(name, pos_BT, "give int32 or float32", wide=True)
    if not jnp.issubdtype(dtype, jnp.floating) or jnp.finfo(dtype).bits < 32:
        raise ValueError(f"{name}: dtype {dtype}; give int32 or float32")
    made = jnp.asarray(pos_BT)
    if made.dtype != dtype:  # float64 of NumPy, where 64 bits are off
        whole = pos_BT == np.round(pos_BT)
        if np.any(whole & (np.asarray(pos_BT, made.dtype) != pos_BT)):
            raise ValueError(f"{name}: {dtype} positions that {made.dtype} cannot hold")
    return made


def _dtype(x: Any) -> np.dtype:
    """The dtype of an array or a list, also where JAX would make a narrower one of it."""
    return np.dtype(x.dtype) if hasattr(x, "dtype") else np.asarray(x).dtype


def whole_array(name: str, x: Any, advice: str = "give int32", wide: bool = False) -> jax.Array:
    """Whole numbers as int32, or where `wide` as int64 if they are; bool becomes 0 and 1.

    ValueError: another dtype, or a number that int32 cannot hold.
    """
    dtype = _dtype(x)
    unsigned = jnp.issubdtype(dtype, jnp.unsignedinteger) and jnp.iinfo(dtype).bits >= 32
    if unsigned or not (jnp.issubdtype(dtype, jnp.integer) or (dtype.kind == "b" and not wide)):
        raise ValueError(f"{name}: dtype {dtype}; {advice}")
    if wide and dtype == np.int64 == jnp.result_type(int):
        return jnp.asarray(x)
    if dtype == np.int64 and not isinstance(x, Tracer):
        x = np.asarray(x)
        if x.size and not -INDEX - 1 <= x.min() <= x.max() <= INDEX:
            raise ValueError(f"{name}: numbers up to {x.max()} do not fit into int32")
    return jnp.asarray(x, jnp.int32) if not isinstance(x, jax.Array) else x.astype(jnp.int32)


def whole_number(name: str, n: Any) -> int | jax.Array:
    """A whole number as an int, or a traced one as it is.

    ValueError: a value of another type, such as 1.5, True or "1".
    """
    if isinstance(n, Tracer):
        if n.ndim == 0 and jnp.issubdtype(n.dtype, jnp.integer):
            return n
    elif _dtype(n).kind in "iu":
        try:
            return operator.index(n)
        except TypeError:
            pass
    shown = n.aval.str_short() if isinstance(n, Tracer) else repr(n)
    raise ValueError(f"{name}: {shown} is not a whole number")


def layout(
    segment_BT: Any = None,
    pos_BT: Any = None,
    start: int | jax.Array = 0,
    group_BT: Any = None,
) -> Layout:
    """The layout of rows given by their segment ids, or by positions alone, `layout(pos_BT=...)`.

    The n-th token of an id has position n - 1, wherever the tokens of the id stand: also behind
    padding (`[1, 1, 0, 1]`) and between those of other ids.

    Args:
      segment_BT: int or bool [B, T]; 0 is padding. None: each row is one sequence.
      pos_BT: positions to use instead, [B, T] or [B, T, A].
      start: index of the first column, or [B, 1].
      group_BT: which tokens belong together, int [B, T]; none by default.

    ValueError: shapes that do not fit together; neither segments nor positions; segments that are
    no whole numbers, as those of a mask of 0 and -inf; positions of a float type of 16 bits or of
    an unsigned type of 32, or numbers that int32 does not hold; a start that is no whole number.
    """
    if pos_BT is not None:
        pos_BT = positions(pos_BT)
        if segment_BT is None:
            if pos_BT.ndim not in (2, 3):
                raise ValueError(f"pos_BT: shape {pos_BT.shape} is not [B, T] or [B, T, A]")
            one_axis = pos_BT if pos_BT.ndim == 2 else pos_BT[:, :, 0]
            segment_BT = jnp.ones_like(one_axis, jnp.int32)
    if segment_BT is None:
        raise ValueError("segment_BT: None; give segments [B, T], or positions as pos_BT")
    segment_BT = whole_array("segment_BT", segment_BT, "give whole numbers or bool")
    if segment_BT.ndim != 2:
        raise ValueError(f"segment_BT: shape {segment_BT.shape} is not [B, T]")
    group_BT = None if group_BT is None else whole_array("group_BT", group_BT)
    shape = segment_BT.shape
    for name, x in (("pos_BT", pos_BT), ("group_BT", group_BT)):
        if x is not None and x.shape[:2] != shape:
            raise ValueError(f"{name}: shape {x.shape} does not begin with {shape}, the segments'")
    given = segment_BT, pos_BT, _start(start, shape), group_BT
    return partitioned(_layout, segment_BT, 2, *given)


def _start(start: Any, shape: tuple[int, ...]) -> int | jax.Array:
    if getattr(start, "shape", ()) == (shape[0], 1):
        return whole_array("start", start)
    start = whole_number("start", start)
    known = isinstance(start, int) and isinstance(shape[1], int)  # not a symbolic size
    if known and not -INDEX - 1 <= start <= INDEX - shape[1]:
        raise ValueError(f"start: {start}; the columns' numbers do not fit into int32")
    return start


@partial(jax.jit, inline=True)
def _layout(segment_BT, pos_BT, start, group_BT) -> Layout:
    """One program where it runs op by op."""
    column_BT = jnp.broadcast_to(jnp.arange(segment_BT.shape[1], dtype=jnp.int32), segment_BT.shape)
    rank_BT, length_BT = counts_up(segment_BT)
    # A run of padding has a length too: methods that draw positions tell one token of it apart.
    first_BT, last_BT = _runs(segment_BT)
    length_BT = jnp.where(segment_BT > 0, length_BT, last_BT - first_BT + 1)
    counted = pos_BT is None
    if counted:
        pos_BT = jnp.where(segment_BT > 0, rank_BT, 0)
    group_BT = jnp.zeros_like(segment_BT) if group_BT is None else group_BT
    return Layout(pos_BT, length_BT, column_BT + start, segment_BT, group_BT, counted, True)


def _runs(segment_BT: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The first and the last column of the run of equal ids in which each token stands."""
    time = segment_BT.shape[1]
    column_BT = jnp.broadcast_to(jnp.arange(time, dtype=jnp.int32), segment_BT.shape)
    before_BT = jnp.pad(segment_BT, ((0, 0), (1, 0)), constant_values=-1)[:, :-1]
    first_BT = jax.lax.cummax(jnp.where(segment_BT != before_BT, column_BT, 0), axis=1)
    after_BT = jnp.pad(segment_BT, ((0, 0), (0, 1)), constant_values=-1)[:, 1:]
    last_BT = jnp.where(segment_BT != after_BT, column_BT, time - 1)
    return first_BT, jax.lax.cummin(last_BT, axis=1, reverse=True)


def by_segment(make: Callable[..., Any], segment_BT: jax.Array, *x_BT: jax.Array) -> Any:
    """make(segment_BT, *x_BT) of rows in which the tokens of a sequence follow each other.

    `make` returns arrays [B, T]. Between the tokens of a sequence it may meet padding, but no other
    sequence: where ids fall along a row, columns are sorted by id before, and put back after.
    """

    def sorted_by_id(segment_BT, *x_BT):
        column_BT = jax.lax.broadcasted_iota(jnp.int32, segment_BT.shape, 1)
        key_BT = jnp.where(segment_BT > 0, segment_BT, INDEX)
        order_BT = jax.lax.sort((key_BT, column_BT), num_keys=2)[1]
        made = make(*(take_columns(x, order_BT) for x in (segment_BT, *x_BT)))
        back_BT = jax.lax.sort((order_BT, column_BT), num_keys=1)[1]
        return jax.tree.map(lambda x: take_columns(x, back_BT), made)

    real_BT = segment_BT > 0
    rising = jnp.all(~real_BT | (jax.lax.cummax(segment_BT, axis=1) == segment_BT))
    return cond(rising, make, sorted_by_id, segment_BT, *x_BT)


def take_columns(x_BT: jax.Array, column_BT: jax.Array, axis: int = 1) -> jax.Array:
    """These columns of an array [B, T, ...], of each row its own; both may have one row."""
    rows, columns = column_BT.shape
    shape = [rows] + [1] * (x_BT.ndim - 1)
    shape[axis] = columns
    return jnp.take_along_axis(x_BT, column_BT.reshape(shape), axis=axis)


def counts_up(segment_BT: jax.Array) -> tuple[jax.Array, jax.Array]:
    """How many tokens of the same sequence stand before each token, and how many it has in all."""
    return by_segment(_counted, segment_BT)


def _counted(segment_BT: jax.Array) -> tuple[jax.Array, jax.Array]:
    """As `counts_up`, of rows that `by_segment` makes."""
    real_BT = segment_BT > 0
    count_BT = jnp.cumsum(real_BT, axis=1, dtype=jnp.int32)  # with the token itself
    highest_BT = jax.lax.cummax(jnp.where(real_BT, segment_BT, 0), axis=1)
    before_BT = jnp.pad(highest_BT, ((0, 0), (1, 0)))[:, :-1]
    skipped_BT = jnp.where(real_BT & (before_BT != segment_BT), count_BT - 1, 0)
    skipped_BT = jax.lax.cummax(skipped_BT, axis=1)
    lowest_BT = jax.lax.cummin(jnp.where(real_BT, segment_BT, INDEX), axis=1, reverse=True)
    after_BT = jnp.pad(lowest_BT, ((0, 0), (0, 1)), constant_values=INDEX)[:, 1:]
    until_BT = jnp.where(real_BT & (after_BT != segment_BT), count_BT, INDEX)
    until_BT = jax.lax.cummin(until_BT, axis=1, reverse=True)
    return count_BT - 1 - skipped_BT, until_BT - skipped_BT


def over_sequence(reduce: Callable, x_BT: jax.Array, segment_BT: jax.Array) -> jax.Array:
    """x reduced over each token's sequence, [B, T]: `jax.ops.segment_max`, or another of these.

    A run of padding is a sequence of its own.
    """
    time = segment_BT.shape[1]
    first_BT = first_columns(segment_BT)
    each = lambda x_T, first_T: reduce(x_T, first_T, time)[first_T]
    return jax.vmap(each)(x_BT, first_BT)


def first_columns(segment_BT: jax.Array) -> jax.Array:
    """The column of the first token of each token's sequence; of padding, of its run."""

    def first(segment_BT, column_BT):
        real_BT = segment_BT > 0
        highest_BT = jax.lax.cummax(jnp.where(real_BT, segment_BT, 0), axis=1)
        before_BT = jnp.pad(highest_BT, ((0, 0), (1, 0)))[:, :-1]
        rises_BT = real_BT & (before_BT != segment_BT)
        # Where a sequence begins, columns may fall: the last beginning is found by its place.
        place_BT = jax.lax.broadcasted_iota(jnp.int32, segment_BT.shape, 1)
        last_BT = jax.lax.cummax(jnp.where(rises_BT, place_BT, 0), axis=1)
        return take_columns(column_BT, last_BT)

    column_BT = jax.lax.broadcasted_iota(jnp.int32, segment_BT.shape, 1)
    first_BT = by_segment(first, segment_BT, column_BT)
    return jnp.where(segment_BT > 0, first_BT, _runs(segment_BT)[0])


def full(batch: int, time: int) -> Layout:
    """Rows of one unpadded sequence each."""
    return layout(jnp.ones((batch, time), jnp.int32))


def join(before: Layout, after: Layout) -> Layout:
    """Two stretches of storage, one after the other along time."""
    both = lambda a, b: jnp.concatenate([a, b], axis=1)
    known = {"counted": False, "indexed": False}
    return jax.tree.map(both, before.replace(**known), after.replace(**known))


def straight(segment_BT: jax.Array, pos_BT: jax.Array) -> jax.Array:
    """Whether positions count up by one along storage in each sequence: bool scalar."""
    column_BT = jax.lax.broadcasted_iota(jnp.int32, pos_BT.shape, 1).astype(pos_BT.dtype)
    return _along(jnp.equal, segment_BT, pos_BT - column_BT)


def rising(segment_BT: jax.Array, index_BT: jax.Array, strictly: bool = False) -> jax.Array:
    """Whether the index never falls along storage in a sequence, or always rises: bool scalar."""
    return _along(jnp.less if strictly else jnp.less_equal, segment_BT, index_BT)


class Order(NamedTuple):
    """An order of columns, in which attention reads them wherever they are stored.

    stored:    bool scalar, whether they are stored in this order. They stay in place then.
    column_BT: the columns in this order, int32.
    back_BT:   the place of each column in it.
    """

    stored: jax.Array
    column_BT: jax.Array
    back_BT: jax.Array

    def arranged(self, tree: T, axis: int = 1) -> T:
        """Arrays [B, T, ...] in this order; `axis` is that of the columns."""
        return self._moved(tree, self.column_BT, axis)

    def restored(self, tree: T, axis: int = 1) -> T:
        """Arrays in this order as they are stored; `axis` is that of the columns."""
        return self._moved(tree, self.back_BT, axis)

    def _moved(self, tree: T, column_BT: jax.Array, axis: int) -> T:
        take = lambda tree, column_BT: jax.tree.map(
            lambda x: take_columns(x, column_BT, axis), tree
        )
        rows = column_BT.shape[0]

        def wide(x):
            alike = x.shape[0] != 1 or rows == 1
            return x if alike else jnp.broadcast_to(x, (rows, *x.shape[1:]))

        tree = jax.tree.map(wide, tree)
        return choose(self.stored, lambda tree, _: tree, take, tree, column_BT)


def choose(which: jax.Array, yes: Callable[..., T], no: Callable[..., T], *operands: Any) -> T:
    """yes(*operands) or no(*operands), which alone is computed.

    Op by op it is decided here, since `jax.lax.cond` would compile both each time. Both read no
    other arrays that vary over devices, see `cond`.
    """
    if isinstance(which, Tracer):
        return cond(which, yes, no, *operands)
    return (yes if which else no)(*operands)


@partial(jax.jit, inline=True)
def order_of(stored: jax.Array, segment_BT: jax.Array, key_BT: jax.Array) -> Order:
    """The columns of each sequence in the order of `key_BT`, equal ones as they are stored."""
    column_BT = jax.lax.broadcasted_iota(jnp.int32, segment_BT.shape, 1)
    key_BT = jnp.broadcast_to(key_BT, segment_BT.shape)

    def sort(segment_BT, key_BT):
        segment_BT = jnp.where(segment_BT > 0, segment_BT, INDEX)
        order_BT = jax.lax.sort((segment_BT, key_BT, column_BT), num_keys=3)[2]
        return order_BT, jax.lax.sort((order_BT, column_BT), num_keys=1)[1]

    stay = lambda *_: (column_BT, column_BT)
    return Order(stored, *cond(stored, stay, sort, segment_BT, key_BT))


@partial(jax.jit, static_argnums=0, inline=True)
def _along(compare: Callable, segment_BT: jax.Array, x_BT: jax.Array) -> jax.Array:
    """Whether compare(x of the token before in the same sequence, x) holds for every token."""

    def check(segment_BT, x_BT):
        same_BT, before_BT = token_before(segment_BT, x_BT)
        return ~same_BT | compare(before_BT, x_BT)

    return jnp.all(by_segment(check, segment_BT, x_BT))


def token_before(segment_BT: jax.Array, tree: T) -> tuple[jax.Array, T]:
    """Whether a token of the same sequence stands before each token, and its numbers [B, T].

    Of rows that `by_segment` makes: between the two tokens may stand padding.
    """
    column_BT = jax.lax.broadcasted_iota(jnp.int32, segment_BT.shape, 1)
    seen_BT = jax.lax.cummax(jnp.where(segment_BT > 0, column_BT, -1), axis=1)
    last_BT = jnp.pad(seen_BT, ((0, 0), (1, 0)), constant_values=-1)[:, :-1]
    at_last = lambda x: take_columns(x, jnp.maximum(last_BT, 0))
    same_BT = (segment_BT > 0) & (last_BT >= 0) & (at_last(segment_BT) == segment_BT)
    return same_BT, jax.tree.map(at_last, tree)


def digit_places(tokens_BT: jax.Array, digits: Sequence[int], from_end: bool = False) -> jax.Array:
    """Groups for text with numbers in it: a digit's place in its run of digits, from 1; int32.

    Tokens that are no digits have group 0. Two numbers need another token between them, and so do
    packed documents.

    Args:
      tokens_BT: int [B, T].
      digits: ids of the digits' tokens.
      from_end: count from the last digit of a run: its significance, where that stands first the
        most significant digit. A number must then be written to its end.
    """
    if from_end:
        return digit_places(tokens_BT[:, ::-1], digits)[:, ::-1]
    digit_BT = jnp.isin(tokens_BT, jnp.asarray(digits, tokens_BT.dtype))
    index_BT = jnp.broadcast_to(jnp.arange(tokens_BT.shape[1], dtype=jnp.int32), digit_BT.shape)
    other_BT = jax.lax.cummax(jnp.where(digit_BT, -1, index_BT), axis=1)
    return jnp.where(digit_BT, index_BT - other_BT, 0)


def unit_places(tokens_BT: jax.Array, separators: Sequence[int]) -> jax.Array:
    """Groups for BiPE: a token's place in its unit, from 1; int32.

    A unit is a sentence or a line: it ends with a separator, which belongs to it, or with the text.
    Packed documents need a separator between them.

    Args:
      tokens_BT: int [B, T].
      separators: ids of the tokens that end a unit, such as the full stop and the end of a line.
    """
    ends_BT = jnp.isin(tokens_BT, jnp.asarray(separators, tokens_BT.dtype))
    index_BT = jnp.broadcast_to(jnp.arange(tokens_BT.shape[1], dtype=jnp.int32), ends_BT.shape)
    last_BT = jax.lax.cummax(jnp.where(ends_BT, index_BT, -1), axis=1)
    return index_BT - jnp.pad(last_BT, ((0, 0), (1, 0)), constant_values=-1)[:, :-1]
