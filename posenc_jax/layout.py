"""Where each token stands: its position, its sequence, and its place in storage.

Positions are explicit everywhere, so padding on either side, packed documents, cached decoding and
recurrence memory are one code path. Masks read `index` and `segment`, never positions.
"""

import dataclasses
import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from posenc_jax.meshes import cond, partitioned

T = TypeVar("T")
INDEX = 2**31 - 1  # the largest number of an int32, above every index


class StorageFacts(NamedTuple):
    """What is certain of the columns when a layout is made, so that no program need look at them.

    in_order: the tokens of each sequence follow each other, without padding or others between.
    unpadded: no token is padding.
    """

    in_order: bool = False
    unpadded: bool = False


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Layout:
    """The tokens of a batch; a pytree of arrays, made by `layout` or `full`.

    pos_BT:     position in the token's own sequence, [B, T] or [B, T, A] (row, column, ...).
    length_BT:  number of tokens in that sequence, int32.
    index_BT:   order of the tokens, int32: what causality reads. A query sees the keys of its
                sequence up to its own index; tokens of equal index see each other. Methods that
                sum over keys do it in this order, wherever the columns stand; keys of equal index
                in the order of their positions if these are `counted`, else as they are stored.
                `posenc_jax.masks` makes such an index for prefixes and blocks.
    segment_BT: which sequence of the row the token belongs to, int32; 0 is padding.
    group_BT:   tokens that belong together have one number, int32, 0 for none: the digits of one
                significance, as the task that wrote them knows it; see `digit_places` and
                `unit_places`.
    counted:    whether positions count up by one in each sequence, as `layout` makes them when it
                is given none. A relative bias is then made from one row of offsets. Columns may be
                moved all the same (`jax.tree.map`): attention finds the order when it runs.
    indexed:    whether `index_BT` counts up along storage, as `layout` makes it.
    facts:      what is certain of the columns of this very object, set by `full`, and by `layout`
                of a list or of NumPy's segments. A layout that is made of another one, as by
                `jax.tree.map` or as an argument of `jax.jit`, has none: programs look at the tokens
                when they run.

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
    facts: ClassVar[StorageFacts] = StorageFacts()  # no field: it stays with the object (`_with`)

    def replace(self, **fields: Any) -> "Layout":
        """The layout with other fields; fields that depend on them are computed again.

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
        for name in {"length_BT", "group_BT"} & set(fields):
            fields = {**fields, name: whole_array(name, fields[name])}
        shape = self.segment_BT.shape
        if "segment_BT" in fields:
            remade = layout(fields["segment_BT"])
            if (other := remade.segment_BT.shape) != shape:
                raise ValueError(f"segment_BT: shape {other} is not {shape}, the layout's")
            fields["segment_BT"] = remade.segment_BT
            if fields.get("counted", True):
                fields = {"length_BT": remade.length_BT, **fields}
                fields |= {"pos_BT": remade.pos_BT} if self.counted else {}
        for name in fields:
            if name.endswith("_BT") and fields[name].shape[:2] != shape:
                field_shape = fields[name].shape
                raise ValueError(
                    f"{name}: shape {field_shape} does not begin with {shape}, the layout's"
                )
        return dataclasses.replace(self, **fields)


def positions(pos_BT: Any, name: str = "pos_BT") -> jax.Array:
    """The positions as int32, float32 or wider: offsets of narrower types would wrap or round.

    ValueError: a float type of less than 32 bits, which has rounded large positions already; an
    unsigned type of 32 bits or more; one that holds no numbers; or NumPy's numbers that the result
    cannot hold.
    """
    dtype = _dtype(name, pos_BT)
    if jnp.issubdtype(dtype, jnp.integer):
        return whole_array(name, pos_BT, "give int32 or float32", wide=True)
    if not jnp.issubdtype(dtype, jnp.floating) or jnp.finfo(dtype).bits < 32:
        raise ValueError(f"{name}: dtype {dtype}; give int32 or float32")
    array = jnp.asarray(pos_BT)
    if array.dtype != dtype:  # float64 of NumPy, where 64 bits are off
        whole = pos_BT == np.round(pos_BT)
        if np.any(whole & (np.asarray(pos_BT, array.dtype) != pos_BT)):
            raise ValueError(f"{name}: {dtype} positions that {array.dtype} cannot hold")
    return array


def _dtype(name: str, x: Any) -> np.dtype:
    """The dtype of an array or a list, also where JAX would make a narrower one of it.

    ValueError: lists that make no array, since their lengths differ.
    """
    try:
        return np.dtype(x.dtype) if hasattr(x, "dtype") else np.asarray(x).dtype
    except ValueError:
        raise ValueError(f"{name}: lists of different lengths make no array") from None


def whole_array(name: str, x: Any, advice: str = "give int32", wide: bool = False) -> jax.Array:
    """Whole numbers as int32, or where `wide` as int64 if they are; bool becomes 0 and 1.

    ValueError: another dtype, or a number that int32 cannot hold.
    """
    dtype = _dtype(name, x)
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
    elif _dtype(name, n).kind in "iu":
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
      segment_BT: int or bool [B, T]; 0 is padding; numbers below are padding that no token
        sees, not even with `mask_padding=False`. None: each row is one sequence.
      pos_BT: positions to use instead, [B, T] or [B, T, A].
      start: index of the first column, or [B, 1].
      group_BT: which tokens belong together, int [B, T]; none by default.

    ValueError: shapes that do not fit together; neither segments nor positions; segments that are
    no whole numbers, as those of a mask of 0 and -inf; lists of different lengths; positions of a
    float type of 16 bits or of an unsigned type of 32, or numbers that int32 does not hold; a start
    that is no whole number.
    """
    if pos_BT is not None:
        pos_BT = positions(pos_BT)
        if segment_BT is None:
            if pos_BT.ndim not in (2, 3):
                raise ValueError(f"pos_BT: shape {pos_BT.shape} is not [B, T] or [B, T, A]")
            one_axis = pos_BT if pos_BT.ndim == 2 else pos_BT[:, :, 0]
            segment_BT = np.ones(one_axis.shape, np.int32)
    if segment_BT is None:
        raise ValueError("segment_BT: None; give segments [B, T], or positions as pos_BT")
    as_given = segment_BT
    segment_BT = whole_array("segment_BT", segment_BT, "give whole numbers or bool")
    if segment_BT.ndim != 2:
        raise ValueError(f"segment_BT: shape {segment_BT.shape} is not [B, T]")
    group_BT = None if group_BT is None else whole_array("group_BT", group_BT)
    shape = segment_BT.shape
    for name, x in (("pos_BT", pos_BT), ("group_BT", group_BT)):
        if x is not None and x.shape[:2] != shape:
            raise ValueError(f"{name}: shape {x.shape} does not begin with {shape}, the segments'")
    arrays = segment_BT, pos_BT, _start(start, shape), group_BT
    return _with(_storage_facts(as_given), partitioned(_layout, segment_BT, 2, *arrays))


def _with(facts: StorageFacts, layout: Layout) -> Layout:
    """The same layout, with what is certain of its columns."""
    object.__setattr__(layout, "facts", facts)
    return layout


def _storage_facts(segment_BT: Any) -> StorageFacts:
    """What is certain of segments in a list or an array of NumPy; nothing of arrays of JAX."""
    if isinstance(segment_BT, jax.Array) or np.ndim(segment_BT) != 2:
        return StorageFacts()
    segment_BT = np.asarray(segment_BT)
    real_BT = segment_BT > 0
    before_BT = np.pad(segment_BT, ((0, 0), (1, 0)))[:, :-1]
    runs_B = np.sum(real_BT & (segment_BT != before_BT), axis=1)
    ids_B = [len(np.unique(row[real])) for row, real in zip(segment_BT, real_BT, strict=True)]
    return StorageFacts(bool(np.all(runs_B == ids_B)), bool(real_BT.all()))


def _start(start: Any, shape: tuple[int, ...]) -> int | jax.Array:
    if getattr(start, "shape", ()) == (shape[0], 1):
        return whole_array("start", start)
    start = whole_number("start", start)
    numbers = isinstance(start, int) and isinstance(shape[1], int)  # not a symbolic size
    if numbers and not -INDEX - 1 <= start <= INDEX - shape[1]:
        raise ValueError(f"start: {start}; the columns' numbers do not fit into int32")
    return start


@partial(jax.jit, inline=True)
def _layout(segment_BT, pos_BT, start, group_BT) -> Layout:
    """The arrays of `layout`, in one program also where it runs op by op."""
    column_BT = jnp.broadcast_to(jnp.arange(segment_BT.shape[1], dtype=jnp.int32), segment_BT.shape)
    sequence = sequences(segment_BT)
    counted = pos_BT is None
    if counted:
        pos_BT = jnp.where(segment_BT > 0, sequence.rank_BT, 0)
    group_BT = jnp.zeros_like(segment_BT) if group_BT is None else group_BT
    index_BT = column_BT + start
    return Layout(pos_BT, sequence.length_BT, index_BT, segment_BT, group_BT, counted, True)


class Sequences(NamedTuple):
    """What each token's sequence is, int32 [B, T]. A run of padding is a sequence of its own.

    first_BT:  column of its first token.
    rank_BT:   how many of its tokens stand before this one.
    length_BT: how many tokens it has.
    """

    first_BT: jax.Array
    rank_BT: jax.Array
    length_BT: jax.Array


@partial(jax.jit, inline=True)
def sequences(segment_BT: jax.Array) -> Sequences:
    """The sequence of each token, wherever the tokens of one id stand."""
    column_BT = jax.lax.broadcasted_iota(jnp.int32, segment_BT.shape, 1)
    runs, highest_BT = _runs(segment_BT)

    def by_id(segment_BT, *of_runs):
        real_BT = segment_BT > 0
        id_BT = jnp.where(real_BT, segment_BT, INDEX)
        id_BT, from_BT = jax.lax.sort((id_BT, column_BT), num_keys=2)
        (first_BT, *others), _ = _runs(id_BT)
        by_column = from_BT, take_columns(from_BT, first_BT), *others
        back = jax.lax.sort(by_column, num_keys=1)[1:]
        return Sequences(*(jnp.where(real_BT, x, y) for x, y in zip(back, of_runs, strict=True)))

    as_runs = lambda _, *of_runs: Sequences(*of_runs)
    return cond(_ids_rise(segment_BT, highest_BT), as_runs, by_id, segment_BT, *runs)


def _runs(id_BT: jax.Array) -> tuple[Sequences, jax.Array]:
    """Each run of equal ids as a sequence; and the highest id before each column, int32 [B, T]."""
    last = id_BT.shape[1] - 1
    column_BT = jax.lax.broadcasted_iota(jnp.int32, id_BT.shape, 1)
    before_BT = before(id_BT, -1)
    begins_BT = jnp.where(id_BT != before_BT, column_BT, 0)
    after_BT = jnp.pad(id_BT, ((0, 0), (0, 1)), constant_values=-1)[:, 1:]
    ends_BT = jnp.where(id_BT != after_BT, last - column_BT, 0)
    # One running maximum of three, since XLA takes an eighth of a second to compile each.
    all_3BT = jnp.stack([begins_BT, ends_BT[:, ::-1], before_BT])  # not along rows: they are spread
    first_BT, from_end_BT, highest_BT = jax.lax.cummax(all_3BT, axis=2)
    last_BT = last - from_end_BT[:, ::-1]
    return Sequences(first_BT, column_BT - first_BT, last_BT - first_BT + 1), highest_BT


def _ids_rise(segment_BT: jax.Array, highest_BT: jax.Array) -> jax.Array:
    """Whether each run of tokens has a larger id than those before it: bool scalar. Then no id has
    two runs; nearly all batches are such, and need no sort.
    """
    begins_BT = (segment_BT > 0) & (segment_BT != before(segment_BT, 0))
    return jnp.all(~begins_BT | (segment_BT > highest_BT))


def before(x_BT: jax.Array, first: int) -> jax.Array:
    """x moved by one column: each column has the value of the one before it, the first `first`."""
    return jnp.pad(x_BT, ((0, 0), (1, 0)), constant_values=first)[:, :-1]


@partial(jax.jit, inline=True)
def contiguous(segment_BT: jax.Array) -> jax.Array:
    """Whether the tokens of each sequence follow each other, without padding or others between:
    bool scalar.
    """

    def one_run_each(segment_BT):
        count = lambda ids: jnp.sum((ids > 0) & (ids != before(ids, 0)), axis=1)
        return jnp.all(count(segment_BT) == count(jnp.sort(segment_BT, axis=1)))

    always = lambda segment_BT: jnp.all(segment_BT == segment_BT)
    highest_BT = jax.lax.cummax(before(segment_BT, -1), axis=1)
    return cond(_ids_rise(segment_BT, highest_BT), always, one_run_each, segment_BT)


def take_columns(x_BT: jax.Array, column_BT: jax.Array, axis: int = 1) -> jax.Array:
    """The columns `column_BT` of an array [B, T, ...], of each row its own; both may have one."""
    rows, columns = column_BT.shape
    shape = [rows] + [1] * (x_BT.ndim - 1)
    shape[axis] = columns
    # Every column exists: what JAX does else with those that do not triples the program.
    column_BT = column_BT.reshape(shape)
    return jnp.take_along_axis(x_BT, column_BT, axis=axis, mode="promise_in_bounds")


def over_sequence(reduce: Callable, x_BT: jax.Array, segment_BT: jax.Array) -> jax.Array:
    """x reduced over each token's sequence, [B, T]: `jax.ops.segment_max`, or another of these.

    A run of padding is a sequence of its own.
    """
    time = segment_BT.shape[1]
    first_BT = sequences(segment_BT).first_BT
    of_row = lambda x_T, first_T: reduce(x_T, first_T, time)[first_T]
    return jax.vmap(of_row)(x_BT, first_BT)


def full(batch: int, time: int) -> Layout:
    """Rows of one unpadded sequence each."""
    column_BT = jax.lax.broadcasted_iota(jnp.int32, (batch, time), 1)
    ones_BT = jnp.ones_like(column_BT)
    arrays = column_BT, ones_BT * time, column_BT, ones_BT, 0 * ones_BT
    return _with(StorageFacts(True, True), Layout(*arrays, counted=True, indexed=True))


def join(before: Layout, after: Layout) -> Layout:
    """Two stretches of storage, one after the other along time."""
    both = lambda a, b: jnp.concatenate([a, b], axis=1)
    unsure = {"counted": False, "indexed": False}
    return jax.tree.map(both, before.replace(**unsure), after.replace(**unsure))


@partial(jax.jit, inline=True)
def straight(segment_BT: jax.Array, pos_BT: jax.Array) -> jax.Array:
    """Whether positions count up by one along storage in each sequence, which is contiguous: bool
    scalar.
    """
    return counting_up(segment_BT, pos_BT) & contiguous(segment_BT)


def counting_up(segment_BT: jax.Array, pos_BT: jax.Array) -> jax.Array:
    """Whether positions count up by one within each run of one sequence: bool scalar."""
    ahead = pos_BT == before(pos_BT, 0) + 1
    return jnp.all(ahead | ~goes_on(segment_BT))


@partial(jax.jit, static_argnames="strictly", inline=True)
def rising(segment_BT: jax.Array, index_BT: jax.Array, strictly: bool = False) -> jax.Array:
    """Whether the index never falls along storage in a sequence, bool scalar; `strictly`: it rises.

    False also where columns of several sequences lie between each other and the index falls.
    """
    before_BT = before(index_BT, -INDEX - 1)
    rises_BT = before_BT < index_BT if strictly else before_BT <= index_BT
    rises_BT |= jax.lax.broadcasted_iota(jnp.int32, index_BT.shape, 1) == 0
    within = jnp.all(rises_BT | ~goes_on(segment_BT)) & contiguous(segment_BT)
    return jnp.all(rises_BT) | within


def goes_on(segment_BT: jax.Array) -> jax.Array:
    """Whether each token is of the same sequence as the column before it, bool [B, T]."""
    return (segment_BT > 0) & (segment_BT == before(segment_BT, 0))


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


def choose(
    which: jax.Array | np.bool_, yes: Callable[..., T], no: Callable[..., T], *operands: Any
) -> T:
    """yes(*operands) where `which` holds, else no(*operands); only that one is computed.

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


@partial(jax.jit, inline=True)
def told_apart(segment_BT: jax.Array, index_BT: jax.Array, pos_BT: jax.Array) -> jax.Array:
    """An index without equal numbers, int32: tokens of equal index are in order of positions."""
    column_BT = jax.lax.broadcasted_iota(jnp.int32, segment_BT.shape, 1)
    order_BT = jax.lax.sort((segment_BT, index_BT, pos_BT, column_BT), num_keys=4)[3]
    return jax.lax.sort((order_BT, column_BT), num_keys=1)[1]


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
