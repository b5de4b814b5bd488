"""Prefixes, blocks and trees of drafts: who sees whom, and attention with every kind of method."""

import zlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax import Dims, attend, frame, full, layout, make, masks
from tests.support.catalogue import gap, stir

DIMS = Dims(16, 2, 8, 2)
TIME = 9
ROWS = np.random.default_rng(0).integers(0, 3, (40, 12))  # padding and mixed documents


def horizons(segment_T, block_T):
    """The last column that each token sees, by the definition of a block."""
    actual = np.arange(len(segment_T))
    for segment in set(segment_T) - {0}:
        columns = np.flatnonzero(segment_T == segment)
        for n, column in enumerate(columns):
            last = n
            while (
                block_T[column] and last + 1 < len(columns)
                and block_T[columns[last + 1]] == block_T[column]
            ):  # fmt: skip
                last += 1
            actual[column] = columns[last]
    return actual


def test_tokens_of_a_block_see_each_other():
    block_BT = np.random.default_rng(1).integers(0, 3, ROWS.shape)
    at = masks.blocks(layout(ROWS), block_BT)
    for segment_T, block_T, index_T in zip(ROWS, block_BT, np.asarray(at.index_BT), strict=True):
        assert index_T.tolist() == horizons(segment_T, block_T).tolist()
    assert (np.asarray(at.index_BT) != np.arange(12)).any(), "control: blocks are seen"
    assert at.counted
    picture_T = np.array([[0, 1, 1, 0, 1, 1, 0, 2, 3]], bool)
    assert (
        masks.blocks(full(2, 9), picture_T).index_BT.tolist() == [[0, 2, 2, 3, 5, 5, 6, 8, 8]] * 2
    )


def test_a_prefix_is_the_first_tokens_of_each_sequence():
    length_B = np.random.default_rng(2).integers(0, 6, len(ROWS))
    at = layout(ROWS)
    first_BT = np.asarray(at.pos_BT) < length_B[:, None]
    wanted = masks.blocks(at, first_BT).index_BT
    for length in (length_B, jnp.asarray(length_B)):
        assert masks.prefix(at, length).index_BT.tolist() == wanted.tolist()
    assert jax.jit(masks.prefix)(at, length_B).index_BT.tolist() == wanted.tolist()
    assert masks.prefix(full(1, 4), 9).index_BT.tolist() == [[3] * 4], (
        "a prefix longer than the row"
    )
    assert masks.prefix(full(1, 4), 0).index_BT.tolist() == [[0, 1, 2, 3]]


def test_blocks_and_prefixes_join_in_any_order_and_in_any_columns():
    block_BT = np.array([[0, 0, 1, 1, 1, 0, 0, 2, 2]])
    joined = masks.prefix(masks.blocks(full(1, TIME), block_BT), 3)
    other = masks.blocks(masks.prefix(full(1, TIME), 3), block_BT)
    assert joined.index_BT.tolist() == other.index_BT.tolist() == [[4, 4, 4, 4, 4, 5, 6, 8, 8]]
    order_T = np.random.default_rng(0).permutation(TIME)
    moved = masks.prefix(jax.tree.map(lambda leaf: leaf[:, order_T], full(1, TIME)), 4)
    wanted = masks.prefix(full(1, TIME), 4).index_BT[:, order_T]
    assert moved.index_BT.tolist() == wanted.tolist()


@pytest.mark.thorough(after=2)
@pytest.mark.parametrize("name", ["fox+alibi", "stick_breaking", "dape_v2"])
def test_columns_of_a_prefix_may_be_moved(name):
    """Tokens of one index keep the order of their positions."""
    encoding, (x, q, k, v) = make(name), drawn(2)
    params, order_T = params_of(encoding, name), np.random.default_rng(1).permutation(TIME)
    at = masks.prefix(layout([[1] * TIME, [1] * 4 + [2] * 5]), 4)

    @jax.jit
    def out(x, q, k, v, at):
        return attend(q, k, v, frame(encoding, params, at, DIMS, form="dense").layer(0, x))

    wanted = out(x, q, k, v, at)
    moved = jax.tree.map(lambda leaf: leaf[:, order_T], (x, q, k, v, at))
    assert gap(out(*moved), wanted[:, order_T]) < 1e-5
    uncounted = moved[4].replace(pos_BT=moved[4].pos_BT)
    assert gap(out(*moved[:4], uncounted), wanted[:, order_T]) > 1e-3, "control: as they are stored"


def drawn(rows, heads=DIMS.heads):
    rng = np.random.default_rng(0)
    shapes = [(rows, TIME, DIMS.model), *[(rows, TIME, n, DIMS.head) for n in (2, heads, heads)]]
    return [jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in shapes]


def params_of(encoding, name):
    return stir(encoding.init(jax.random.key(0), DIMS), zlib.crc32(name.encode()))


METHODS = ["rope", "alibi", "t5", "ssmax", "fox+alibi", "path", "dape_v2"]
KERNEL = METHODS[:4]


@pytest.mark.thorough
@pytest.mark.parametrize("name", METHODS)
def test_a_prefix_is_right_with_every_kind_of_method(name):
    """Against a mask of all pairs, in all forms, in decoding, and in gradients."""
    encoding = make(name)
    params, (x, q, k, v) = params_of(encoding, name), drawn(2, heads=1)
    at = layout([[1] * TIME, [0] * 2 + [1] * 7])
    length_B, g = jnp.array([4, 3]), jnp.cos(q)
    tied = masks.prefix(at, length_B)
    see_BQK = tied.index_BT[:, :, None] >= tied.index_BT[:, None]

    def out(given, at, form: Any = "dense", mask=None, start=0, **options):
        params, q, k, v = given
        queries = (start, TIME - start) if start else None
        every = frame(encoding, params, at, DIMS).embed(x)
        view = frame(encoding, params, at, DIMS, form=form, block=4, queries=queries, **options)
        view.embed(x[:, start:])
        layer = view.layer(1, every[:, start:], every if start else None)
        return attend(q[:, start:], k, v, layer, mask_BHQK=mask)

    given = params, q, k, v
    forms = ["dense", *(["blockwise"] if name != "dape_v2" else [])]

    @jax.jit
    def run(given, at):
        pulled = [jax.vjp(lambda a: out(a, at, mask=see_BQK[:, None], causal=False), given)]
        pulled += [jax.vjp(lambda a, f=form: out(a, tied, f), given) for form in forms]
        by_form = [(o, pull(g)) for o, pull in pulled]
        kernel = out(given, tied, "kernel") if name in KERNEL else None
        return by_form, kernel, out(given, tied, start=5), out(given, at)

    ((wanted, wanted_g), *others), kernel, decoded, causal = run(given, at)
    assert np.isfinite(wanted).all()
    for actual, found_g in others:
        assert gap(actual, wanted) < 1e-5
        assert gap(found_g, wanted_g) < 1e-4
    assert kernel is None or gap(kernel, wanted) < 1e-5
    assert gap(decoded, wanted[:, 5:]) < 1e-5
    assert gap(causal, wanted) > 1e-2, "control: a causal mask"


PARENTS = [-1, 0, 0, 1, 1, -1]
CONTEXT, CAPACITY = 4, 12


def path_to(n):
    return [] if n < 0 else [*path_to(PARENTS[n]), n]


@pytest.mark.thorough(after=1)
@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("rope", "dense"),
        ("alibi", "blockwise"),
        ("ssmax", "dense"),
        ("sinusoidal", "dense"),
        ("fox+alibi", "blockwise"),
        ("path", "dense"),
        ("stick_breaking", "blockwise"),
    ],
)
def test_a_draft_is_what_its_own_path_would_be(name, form: Any):
    encoding, drafts = make(name), len(PARENTS)
    params = params_of(encoding, name)
    rng = np.random.default_rng(3)
    draw = lambda *shape: jnp.asarray(rng.normal(size=(1, CONTEXT + drafts, *shape)), jnp.float32)
    x, q, k, v = draw(16), draw(2, 8), draw(2, 8), draw(2, 8)
    column_T = np.arange(CAPACITY)

    @jax.jit
    def tree(start, parents, mask=None):
        own, depth_BN = masks.draft_tree(parents, start, CAPACITY)
        pos_BT = jnp.minimum(column_T, start)[None]
        pos_BT = jax.lax.dynamic_update_slice_in_dim(pos_BT, start + depth_BN, start, axis=1)
        at = layout(jnp.asarray(column_T < CONTEXT + drafts)[None], pos_BT)
        held = jax.tree.map(
            lambda a: jnp.pad(a, [(0, 0), (0, 2), *[(0, 0)] * (a.ndim - 2)]), (x, k, v)
        )
        held_x = frame(encoding, params, at, DIMS).embed(held[0])
        view = frame(encoding, params, at, DIMS, queries=(start, drafts), form=form, block=4)
        view.embed(x[:, CONTEXT:])
        x_q = jax.lax.dynamic_slice_in_dim(held_x, start, drafts, axis=1)
        layer = view.layer(0, x_q, held_x)
        return attend(q[:, CONTEXT:], *held[1:], layer, mask_BHQK=own if mask is None else mask)

    @jax.jit
    def alone(arrays):
        x, q, k, v = arrays
        view = frame(encoding, params, full(*x.shape[:2]), DIMS, form="dense")
        return attend(q, k, v, view.layer(0, view.embed(x)))[:, -1]

    got = tree(CONTEXT, jnp.asarray(PARENTS))
    for n in range(drafts):
        columns = np.array([*range(CONTEXT), *(CONTEXT + m for m in path_to(n))])
        assert gap(got[:, n], alone([a[:, columns] for a in (x, q, k, v)])) < 1e-5
    unmasked = tree(CONTEXT, jnp.asarray(PARENTS), jnp.ones((1, 1, 1, 1), bool))
    assert gap(got, unmasked) > 1e-2, "control: without the tree's mask"
    assert np.isnan(tree(7, jnp.asarray(PARENTS))).all(), "past the end of the cache"


def test_rows_have_trees_and_starts_of_their_own():
    parents = np.array([[-1, 0, 1], [-1, -1, 0]])
    mask, depth = masks.draft_tree(parents, jnp.array([1, 2]), 5)
    assert depth.tolist() == [[0, 1, 2], [0, 0, 1]]
    assert mask[0, 0].astype(int).tolist() == [[1, 1, 0, 0, 1], [1, 1, 1, 0, 1], [1, 1, 1, 1, 1]]
    assert mask[1, 0].astype(int).tolist() == [[1, 1, 1, 0, 0], [1, 1, 0, 1, 0], [1, 1, 1, 0, 1]]
    tree_alone = masks.draft_tree(parents[0], np.array([1, 2]), 5)[0]
    assert tree_alone.shape == (2, 1, 3, 5)
    broken, _ = jax.jit(masks.draft_tree)(jnp.array([-1, 2, 1, 0]))
    assert broken[0, 0].any(axis=1).tolist() == [True, False, False, True]


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: masks.prefix(full(2, 4), -1), "length: -1; give 0 or more tokens"),
        (lambda: masks.prefix(full(2, 4), 1.5), "length: dtype float64; give int32"),
        (
            lambda: masks.prefix(full(2, 4), [1, 2, 3]),
            "length: shape (3,); give one number, or one",
        ),
        (
            lambda: masks.blocks(full(2, 4), np.ones((2, 3), int)),
            "block_BT: shape (2, 3); give that",
        ),
        (lambda: masks.blocks(full(2, 4), np.ones((2, 4))), "block_BT: dtype float64; give int32"),
        (
            lambda: masks.draft_tree([0]),
            "parent_BN: draft 0 has parent 0; give the number of an ea",
        ),
        (
            lambda: masks.draft_tree([-1, -2]),
            "parent_BN: draft 1 has parent -2; give the number of",
        ),
        (lambda: masks.draft_tree(-1), "parent_BN: shape () is not [N] or [B, N]"),
        (
            lambda: masks.draft_tree([-1], [[1]]),
            "start: shape (1, 1); give one number, or one a row",
        ),
        (lambda: masks.draft_tree([-1, 0], 0, 1), "keys: 1 columns for 2 drafts"),
    ],
)
def test_a_wrong_argument_is_refused_in_one_line(ask, message):
    with pytest.raises(ValueError, match=":") as refusal:
        ask()
    assert str(refusal.value).startswith(message)
    assert "\n" not in str(refusal.value)
