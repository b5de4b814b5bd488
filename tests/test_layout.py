"""Where tokens stand: holes, mixed documents, columns in any order, and what is refused."""

import functools
import zlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax import Dims, at_layer, attend, frame, full, layout, logits, make, weights
from posenc_jax.encodings.positions import documents
from posenc_jax.layout import join, sequences
from tests.attention.test_attention import distance_bias, reference
from tests.support.catalogue import gap, stir

DIMS = Dims(16, 2, 8, 2)
TIME, TOKENS = 10, 7
# Where the tokens of one sequence stand: in order, with holes between them, and moved.
PLACES = {"plain": range(TOKENS), "holes": (0, 1, 2, 5, 6, 7, 9), "moved": (3, 7, 1, 0, 8, 2, 5)}


def placed_rows(plain: bool):
    """Three rows, each of the same tokens: (layout, columns [3, TOKENS]).

    plain: the tokens come first. Else behind holes; between the tokens of another document; in
    columns that `jax.tree.map` moved.
    """
    if plain:
        segment_BT = [[1] * TOKENS + [0] * (TIME - TOKENS)] * 3
        return layout(segment_BT), np.array([PLACES["plain"]] * 3)
    segment_BT = np.zeros((3, TIME), np.int32)
    for row in (0, 1):
        segment_BT[row, list(PLACES["holes"])] = 1
    segment_BT[1, [3, 4, 8]] = 2
    segment_BT[2, :TOKENS] = 1
    columns = [*PLACES["moved"], *(set(range(TIME)) - set(PLACES["moved"]))]
    order_T = np.argsort(columns)
    at = layout(segment_BT)
    at = jax.tree.map(lambda leaf: leaf.at[2].set(leaf[2, order_T]), at)
    return at, np.array([PLACES["holes"], PLACES["holes"], PLACES["moved"]])


def drawn(columns_BK: np.ndarray, tokens: int = TOKENS):
    """(x, q, k, v, g), the same for the tokens that stand in these columns, noise in the others."""
    rng = np.random.default_rng(int(columns_BK.sum()))
    same = np.random.default_rng(0)
    arrays = []
    for width in ((16,), *[(2, 8)] * 4):
        x = rng.normal(size=(len(columns_BK), TIME, *width))
        x[np.arange(len(x))[:, None], columns_BK] = same.normal(size=(1, tokens, *width))
        arrays.append(jnp.asarray(x, jnp.float32))
    return arrays


@functools.cache
def program(name: str, form: str, **options):
    """What attention gives of (x, q, k, v) and a layout, and the gradients by g at some columns."""
    encoding = make(name)
    params = stir(encoding.init(jax.random.key(0), DIMS), zlib.crc32(name.encode()))

    def of(params, x, q, k, v, at):
        view = frame(encoding, params, at, DIMS, form=form, block=4)
        x = view.embed(x)
        return attend(q + x.reshape(q.shape), k, v, view.layer(1, x))

    @jax.jit
    def both(x, q, k, v, g, at, columns_BK):
        take = lambda x: jnp.take_along_axis(x, columns_BK[:, :, None, None], axis=1)
        out, pull = jax.vjp(lambda *args: take(of(*args, at)), params, x, q, k, v)
        d_params, d_x, *d_qkv = pull(take(g))
        return out, d_params, [take(d) for d in (d_x[:, :, None], *d_qkv)]

    return both


ORDERED = ["fox", "fox_rows", "stick_breaking", "path", "cope", "wall", "grape_ap"]
OTHERS = ["rope", "alibi", "t5", "fox+alibi", "sinusoidal", "dape_v2", "randomized+shaw"]


@pytest.mark.thorough
@pytest.mark.parametrize("form", ["dense", "blockwise"])
@pytest.mark.parametrize("name", ORDERED + OTHERS)
def test_tokens_may_stand_anywhere(name, form):
    """Behind holes of padding, between other documents, in columns that were moved."""
    if (name, form) == ("dape_v2", "blockwise"):
        pytest.skip("it has the dense form alone")
    actual = {}
    for plain in (True, False):
        at, columns = placed_rows(plain)
        actual[plain] = program(name, form)(*drawn(columns), at, columns)
    assert gap(actual[True][0], actual[False][0]) < 1e-5
    for plain, other in zip(*map(jax.tree.leaves, (actual[True], actual[False])), strict=True):
        assert gap(plain, other) < 1e-4
    at, columns = placed_rows(False)
    wrong = program(name, form)(*drawn(columns), at, columns[:, ::-1])
    assert gap(actual[True][0], wrong[0]) > 1e-2, "control: other columns"


@pytest.mark.thorough(after=1)
@pytest.mark.parametrize("form", ["dense", "blockwise"])
@pytest.mark.parametrize("name", ["fox", "stick_breaking", "alibi", "dape_v2"])
def test_a_rolling_cache_is_read_in_the_order_of_its_index(name, form):
    """Columns 6 7 8 3 4 5 0 1 2, at positions that are given; queries are the newest tokens."""
    if (name, form) == ("dape_v2", "blockwise"):
        pytest.skip("it has the dense form alone")
    order_T = np.array([6, 7, 8, 3, 4, 5, 0, 1, 2])
    encoding = make(name)
    params = stir(encoding.init(jax.random.key(0), DIMS), 1)
    x, k, v = (
        drawn(np.array([range(9)]), 9)[0][:, :9],
        *(a[:, :9] for a in drawn(np.array([range(9)]), 9)[2:4]),
    )

    @jax.jit
    def out(x, k, v, at, index_BT, start):
        at = at.replace(index_BT=index_BT, pos_BT=at.pos_BT)
        view = frame(encoding, params, at, DIMS, queries=(start, 3), form=form, block=4)
        q = jax.lax.dynamic_slice_in_dim(k, start, 3, axis=1)
        x_q = jax.lax.dynamic_slice_in_dim(x, start, 3, axis=1)
        return attend(q, k, v, view.layer(0, x_q, x))

    at = full(1, 9)
    stored = jax.tree.map(lambda leaf: leaf[:, order_T], at)
    want = out(x, k, v, at, at.index_BT, 6)
    rolled = out(*(a[:, order_T] for a in (x, k, v)), stored, stored.index_BT, 0)
    assert gap(want, rolled) < 1e-5
    other = out(*(a[:, order_T] for a in (x, k, v)), stored, at.index_BT, 0)
    assert gap(want, other) > 1e-3, "control: another index"


@pytest.mark.thorough
@pytest.mark.parametrize("form", ["dense", "blockwise"])
@pytest.mark.parametrize("name", ["alibi", "t5", "fox"])
def test_a_cache_with_holes_gives_the_full_pass(name, form):
    """The prompt was padded on the right; the new tokens stand behind the padding."""
    encoding = make(name)
    params = stir(encoding.init(jax.random.key(0), DIMS), 1)
    at = layout([[1, 1, 1, 0, 0, 1, 1, 1, 0, 0], [1, 1, 0, 0, 0, 1, 1, 1, 0, 0]])
    x, _, k, v, _ = drawn(np.array([range(TIME)] * 2), TIME)

    @jax.jit
    def out(start, size=3):
        view = frame(encoding, params, at, DIMS, queries=(start, size), form=form, block=4)
        cut = lambda a: jax.lax.dynamic_slice_in_dim(a, start, size, axis=1)
        return attend(cut(k), k, v, view.layer(0, cut(x), x))

    view = frame(encoding, params, at, DIMS, form="dense")
    whole = attend(k, k, v, view.layer(0, x))
    assert gap(whole[:, 5:8], out(5)) < 1e-5
    assert gap(whole[:, 5:8], out(4)) > 1e-2, "control: another column"
    for start in (8, -1, 99):
        assert np.isnan(out(start)).all(), "queries past the end"


@pytest.mark.thorough
def test_weights_and_logits_stand_where_the_columns_do():
    for name in ("alibi", "fox"):
        encoding = make(name)
        params = stir(encoding.init(jax.random.key(0), DIMS), 1)
        actual = []
        for plain in (True, False):
            at, columns = placed_rows(plain)
            x, q, k, *_ = drawn(columns)
            layer = frame(encoding, params, at, DIMS, form="dense").layer(0, x)
            rows = np.arange(3)[:, None, None]
            pick = lambda s, c=columns, rows=rows: s[rows, :, c[:, :, None], c[:, None]]
            both = [pick(weights(q, k, layer)), pick(logits(q, k, layer))]
            both.append(pick(jnp.broadcast_to(layer.visible(), (3, 1, TIME, TIME))))
            if name == "alibi":
                both.append(pick(jnp.broadcast_to(layer.bias(), (3, 2, TIME, TIME))))
            actual.append(both)
        for plain, moved in zip(*actual, strict=True):
            np.testing.assert_allclose(plain, moved, atol=1e-5)


@pytest.mark.thorough
@pytest.mark.parametrize("form", ["dense", "blockwise"])
def test_tokens_of_one_index_see_each_other(form):
    """A prefix that all of its tokens see, as images among text have it, with a relative bias."""
    at = full(2, 9)
    at = at.replace(index_BT=jnp.maximum(at.index_BT, 4))
    assert at.counted
    assert not at.indexed
    q, k, v = jax.random.normal(jax.random.key(0), (3, 2, 9, 2, 4))
    view = frame(distance_bias(), jnp.array([0.1, 0.9]), at, Dims(8, 2, 4), form=form, block=4)
    out = attend(q, k, v, view.layer(0))
    score = lambda h, i, j: -[0.1, 0.9][h] * abs(i - j)
    np.testing.assert_allclose(out, reference(q, k, v, score, at, at, True), atol=1e-5)
    control = reference(q, k, v, score, full(2, 9), full(2, 9), True)
    assert gap(out, control) > 1e-2, "control: a causal mask"


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["fox", "fox_rows", "stick_breaking"])
def test_walks_tell_tokens_of_one_index_apart(name):
    """What follows the prefix reads it as if it were in order."""
    encoding = make(name)
    params = stir(encoding.init(jax.random.key(0), DIMS), 1)
    x, q, k, v, _ = drawn(np.array([range(TIME)]), TIME)
    at = full(1, TIME)

    def out(at, form):
        view = frame(encoding, params, at, DIMS, form=form, block=4)
        return attend(q, k, v, view.layer(0, x))

    prefix = at.replace(index_BT=jnp.maximum(at.index_BT, 4))
    dense, causal = out(prefix, "dense"), out(at, "dense")
    assert gap(dense[:, 5:], causal[:, 5:]) < 1e-5
    assert gap(dense[:, :4], causal[:, :4]) > 1e-2, "control: the prefix sees more"
    assert gap(dense, out(prefix, "blockwise")) < 1e-5


def test_positions_count_on_wherever_the_tokens_stand():
    at = layout([[1, 1, 1, 0, 0, 1, 1]])
    assert np.asarray(at.pos_BT)[0, [0, 1, 2, 5, 6]].tolist() == [0, 1, 2, 3, 4]
    assert np.asarray(at.length_BT)[0, [0, 1, 2, 5, 6]].tolist() == [5] * 5
    rows = np.random.default_rng(0).integers(0, 4, (50, 12))
    at, first_BT = layout(rows), np.asarray(sequences(jnp.asarray(rows, jnp.int32)).first_BT)
    for row, pos, length, first in zip(rows, at.pos_BT, at.length_BT, first_BT, strict=True):
        for t in np.flatnonzero(row):
            assert pos[t] == np.sum(row[:t] == row[t])
            assert length[t] == np.sum(row == row[t])
            assert first[t] == np.flatnonzero(row == row[t])[0]


def test_padding_below_0_is_seen_by_nobody_even_where_padding_is_not_masked():
    segment_BT = np.array([[0, 0, 1, 1, 2, 2], [1, 1, 1, 1, 0, 0]])
    below = layout(jnp.asarray(np.where(segment_BT == 0, -1, segment_BT)))
    at = layout(jnp.asarray(segment_BT))
    q, k, v = jax.random.normal(jax.random.key(0), (3, 2, 6, 2, 4))

    def out(layout, mask_padding):
        view = frame(make("rope"), {}, layout, Dims(8, 2, 4), mask_padding=mask_padding)
        return np.asarray(attend(q, k, v, view.layer(0)))[segment_BT > 0]

    masked = out(at, True)
    for mask_padding in (True, False):
        np.testing.assert_array_equal(out(below, mask_padding), masked)
    assert np.abs(out(at, False) - masked).max() > 0.1, "control: padding of segment 0 is shown"


def test_documents_are_numbered_by_their_first_token():
    at = layout([[1, 0, 1, 2, 3, 2, 0, 0]])
    numbers = documents(at.pos_BT, at.length_BT, at.segment_BT)
    assert numbers[0, [0, 2, 3, 4, 5]].tolist() == [3, 3, 1, 0, 1]


def test_replacing_segments_makes_again_what_was_made_of_them():
    at, other = full(1, 4), [[1, 1, 2, 2]]
    replaced = at.replace(segment_BT=other)
    assert replaced.counted
    assert replaced.pos_BT.tolist() == [[0, 1, 0, 1]]
    assert replaced.length_BT.tolist() == [[2] * 4]
    own = layout(pos_BT=jnp.array([[5, 6, 7, 8]])).replace(segment_BT=other)
    assert own.pos_BT.tolist() == [[5, 6, 7, 8]]
    assert own.length_BT.tolist() == [[2] * 4]
    assert not own.counted
    with pytest.raises(ValueError, match=r"^index_BT: shape \(1, 3\) does not begin with \(1, 4\)"):
        at.replace(index_BT=jnp.arange(3)[None])
    assert not join(at, at).indexed


def test_a_layout_of_positions_alone():
    pos_BT = jnp.array([[3, 4, 9], [0, 1, 2]])
    at = layout(pos_BT=pos_BT)
    assert at.pos_BT.tolist() == pos_BT.tolist()
    assert at.segment_BT.tolist() == [[1] * 3] * 2
    assert at.length_BT.tolist() == [[3] * 3] * 2
    assert layout(pos_BT=jnp.zeros((2, 3, 2))).segment_BT.shape == (2, 3)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: layout(), "segment_BT: None; give segments [B, T], or positions as pos_BT"),
        (lambda: layout(pos_BT=np.array([[2**31]])), "pos_BT: numbers up to 2147483648 do not fit"),
        (
            lambda: layout([[1]], np.array([[2**24 + 1.0]])),
            "pos_BT: float64 positions that float32",
        ),
        (lambda: layout([[1]], jnp.ones((1, 1), jnp.bfloat16)), "pos_BT: dtype bfloat16; give int"),
        (lambda: layout([[1]], jnp.ones((1, 1), jnp.float16)), "pos_BT: dtype float16; give int32"),
        (lambda: layout(np.array([[2**32]])), "segment_BT: numbers up to 4294967296 do not fit in"),
        (lambda: layout([[1, 1], [1]]), "segment_BT: lists of different lengths make no array"),
        (lambda: layout(pos_BT=[[0, 1], [0]]), "pos_BT: lists of different lengths make no array"),
        (lambda: layout([[1]], group_BT=[[1], []]), "group_BT: lists of different lengths make"),
        (lambda: layout([["1"]]), "segment_BT: dtype <U1; give whole numbers or bool"),
        (lambda: layout([[1, None]]), "segment_BT: dtype object; give whole numbers or bool"),
        (lambda: layout([[1]], start=2.5), "start: 2.5 is not a whole number"),
        (lambda: layout([[1]], start=True), "start: True is not a whole number"),
        (lambda: layout([[1]], start=2**31), "start: 2147483648; the columns' numbers do not fit"),
        (lambda: at_layer(make("fox"), 1.5, (1, 2)), "layer: 1.5 is not a whole number"),
        (lambda: at_layer(make("fox"), -1, (1, 2)), "layer: no layer -1 of 2, counted from 0"),
        (lambda: at_layer(make("irope"), -1, (1, 2)), "layer: no layer -1, counted from 0"),
    ],
)
def test_a_wrong_argument_is_refused_in_one_line(ask, message):
    with pytest.raises(ValueError, match=":") as refusal:
        ask()
    assert str(refusal.value).startswith(message)
    assert "\n" not in str(refusal.value)


def test_large_positions_are_exact_where_they_fit():
    for most in (2**31 - 1, -(2**31)):
        assert layout(pos_BT=np.array([[most]])).pos_BT.tolist() == [[most]]
    with jax.enable_x64(True):
        assert layout(pos_BT=np.array([[2**40 + 1]])).pos_BT.tolist() == [[2**40 + 1]]


# What a frame is given.

X = jnp.ones((2, 3, 16))


def framed(name: str = "nope", rows: int = 2, **options):
    encoding = make(name)
    params = encoding.init(jax.random.key(0), DIMS)
    return frame(encoding, params, full(rows, 3), DIMS, **options)


def across(*sides: str):
    view = framed("sinusoidal", keys=full(2, 3))
    for side in sides:
        view.embed(X, side)
    return view


def second_pass():
    view = framed("sinusoidal")
    view.embed(X)
    return [view.layer(n) for n in (0, 1, 0)]


DRAWN = make("randomized+rope")
REFUSED = [
    *[
        (
            lambda start=start: framed(queries=(start, 2)),
            f"queries: columns {start} to {start} + 2 ",
        )
        for start in (np.int64(2), jnp.int32(2), np.int32(-1))
    ],
    (lambda: framed(queries=(1.0, 2)), "queries: start: 1.0 is not a whole number"),
    (lambda: framed(queries=(0, True)), "queries: size: True is not a whole number"),
    (lambda: framed("t5").layer(1.5), "frame.layer: 1.5 is not a whole number"),
    (lambda: framed("t5").layer("0"), "frame.layer: '0' is not a whole number"),
    (lambda: framed("t5").layer(True), "frame.layer: True is not a whole number"),
    (lambda: framed("t5").layer(np.int64(2)), "frame.layer: no layer 2; dims.layers is 2, counted"),
    (
        lambda: framed().layer(0, X[:1]),
        "frame.layer: x has shape (1, 3, 16); the frame is for [2, ",
    ),
    (lambda: framed().layer(0, X[:, :2]), "frame.layer: x has shape (2, 2, 16); the frame is for "),
    (lambda: framed().layer(0, X, X[..., :8]), "frame.layer: k_x has shape (2, 3, 8); the frame i"),
    (lambda: framed().embed(X[:1]), "frame.embed: x has shape (1, 3, 16); the frame is for [2, 3,"),
    (
        lambda: attend(*[jnp.ones((2, 3, 2, 8))] * 3, framed("fox", rows=1).layer(0, X[:1])),
        "layer: its features of the q side's input are of (1, 3) rows and tokens; q has (2, 3)",
    ),
    (
        lambda: framed("rope", placed=jnp.ones((2, 1), int)),
        "frame.placed: shape (2, 1) is not that",
    ),
    (lambda: framed("rope", placed=jnp.ones((2, 3), jnp.uint32)), "frame.placed: dtype uint32; gi"),
    (lambda: framed("rope", placed=jnp.ones((2, 3), bool)), "frame.placed: dtype bool; give int32"),
    (lambda: framed("randomized+rope", placed=X[..., 0]), "frame.placed: PyTreeDef(*); give what"),
    (lambda: framed(placed=X[..., 0], keys=full(2, 3)), "frame.placed: give a pair, the queries' "),
    (
        lambda: across("q").layer(0),
        "frame.layer: the encoding acts at the input; call k_x = frame.",
    ),
    (
        lambda: across("k").layer(0),
        "frame.layer: the encoding acts at the input; call x = frame.em",
    ),
    (
        second_pass,
        "frame.layer: the last layer was asked for, which ends a forward pass; call x = ",
    ),
]


@pytest.mark.thorough(after=5)
@pytest.mark.parametrize(("ask", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_what_a_frame_cannot_take_is_refused_in_one_line(ask, message):
    with pytest.raises(ValueError, match=":") as refusal:
        ask()
    assert str(refusal.value).startswith(message)
    assert "\n" not in str(refusal.value)


def test_positions_that_are_placed_without_a_key_are_taken():
    """`dinov3` draws more than these, and was refused so, also by a ring."""
    encoding, dims = make("dinov3"), Dims(8, 1, 8)
    at = layout(pos_BT=jnp.stack(jnp.divmod(jnp.arange(6), 3), axis=-1)[None])
    q, k, v = jax.random.normal(jax.random.key(0), (3, 1, 6, 1, 8))
    attended = lambda placed: attend(q, k, v, frame(encoding, {}, at, dims, placed=placed).layer(0))
    np.testing.assert_array_equal(attended(encoding.place(None, at)), attended(None))
    drawn = encoding.place(jax.random.key(1), at)
    assert gap(attended(drawn), attended(None)) > 1e-3, "control"


@pytest.mark.thorough
def test_what_a_frame_can_take():
    """Controls of the refusals above."""
    for start in (np.int64(1), jnp.int32(1), 1):
        assert framed(queries=(start, 2)).layer(0).q.index_BT.tolist() == [[1, 2]] * 2
    assert framed("t5").layer(np.int64(1)).row_BHN is None
    assert across("q", "k").layer(1).dims == DIMS
    causal = framed("sinusoidal", keys=full(2, 3), causal=True)
    causal.embed(X)
    assert causal.layer(0).causal, "keys of a cache were embedded before"
    drawn = DRAWN.place(jax.random.key(0), full(2, 3))
    assert framed("randomized+rope", placed=drawn).layer(0).self_attention
    narrow = framed("rope", placed=jnp.array([[0, 100, 120]], jnp.int8))
    wide = framed("rope", placed=jnp.array([[0, 100, 120]]))
    assert narrow.alike.k.placed.dtype == jnp.int32
    assert gap(narrow.layer(0).k_table.cos, wide.layer(0).k_table.cos) == 0


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["t5", "clipped", "rope", "nope", "fox"])
def test_a_traced_layer_that_does_not_exist_gives_nan(name):
    encoding = make(name)
    params = stir(encoding.init(jax.random.key(0), DIMS), 3)
    q = jax.random.normal(jax.random.key(1), (2, 3, 2, 8))
    view = frame(encoding, params, full(2, 3), DIMS)
    at_number = lambda n: attend(q, q, q, view.layer(n, q.reshape(2, 3, 16)))
    actual = jax.lax.scan(lambda _, n: (None, at_number(n)), None, jnp.arange(-1, 3))[1]
    assert np.isnan(actual[0]).all()
    assert np.isnan(actual[3]).all()
    np.testing.assert_allclose(actual[1:3], [at_number(0), at_number(1)], atol=1e-6)


def test_a_layout_knows_what_was_known_when_it_was_made():
    at = full(2, 4)
    for leaf, same in zip(jax.tree.leaves(at), jax.tree.leaves(layout([[1] * 4] * 2)), strict=True):
        assert leaf.tolist() == same.tolist()
        assert leaf.dtype == same.dtype
    assert at.facts == (True, True)
    assert layout([[1, 1, 2, 0], [0, 3, 3, 3]]).facts == (True, False)
    assert layout(np.array([[1, 0, 1]])).facts == (False, False)
    assert layout(np.array([[1, 2, 1]])).facts == (False, True)
    assert layout(pos_BT=np.array([[5, 7]])).facts == (True, True)
    for unsure in (
        layout(jnp.ones((1, 3), jnp.int32)),
        jax.tree.map(lambda x: x[:, ::-1], at),
        at.replace(segment_BT=at.segment_BT),
        jax.jit(lambda at: at)(at),
    ):
        assert unsure.facts == (False, False)


@pytest.mark.parametrize("name", ["alibi", "t5", "fox"])
def test_what_is_known_saves_a_program_its_branches(name):
    """No program that makes its layout looks for the order of columns, or for padding."""
    encoding = make(name)
    params = encoding.init(jax.random.key(0), DIMS)
    x, q, k, v, _ = drawn(np.array([range(TIME)] * 2), TIME)

    def run(make_layout):
        def attention(q, k, v):
            view = frame(encoding, params, make_layout(), DIMS)
            return attend(q, k, v, view.layer(0, x))

        return str(jax.make_jaxpr(attention)(q, k, v)), jax.jit(attention)(q, k, v)

    program, out = run(lambda: full(2, TIME))
    looking, same = run(lambda: layout(jnp.ones((2, TIME), jnp.int32)))
    assert " sort[" not in program
    assert " sort[" in looking, "control"
    assert program.count("cond[") < looking.count("cond[")
    assert gap(out, same) < 1e-6


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda at: at.replace(length_BT=np.ones((1, 4))), "length_BT: dtype float64; give int32"),
        (lambda at: at.replace(length_BT="a"), "length_BT: dtype <U1; give int32"),
        (lambda at: at.replace(group_BT=[[1] * 3]), "group_BT: shape (1, 3) does not begin with"),
        (lambda at: at.replace(segment_BT=[[1] * 3]), "segment_BT: shape (1, 3) is not (1, 4)"),
    ],
)
def test_fields_that_do_not_fit_are_refused_when_replaced(ask, message):
    with pytest.raises(ValueError, match=r"^\w+_BT: ") as refusal:
        ask(full(1, 4))
    assert str(refusal.value).startswith(message)
    assert full(1, 4).replace(group_BT=[[1] * 4]).group_BT.dtype == jnp.int32


def _layer_of(n):
    encoding = make("local_global", every=2, window=3)
    dims = Dims(8, 2, 4, 4)
    return frame(encoding, encoding.init(jax.random.key(0), dims), full(1, 4), dims).layer(n)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: _layer_of((0,)), "frame.layer: (0,) is not (n, i)"),
        (lambda: _layer_of((0, 1, 0)), "frame.layer: (0, 1, 0) is not (n, i)"),
        (lambda: _layer_of((0, "1")), "frame.layer: '1' is not a whole number"),
        (lambda: _layer_of((0, True)), "frame.layer: True is not a whole number"),
        (
            lambda: frame(
                make("fox"), make("fox").init(jax.random.key(0), DIMS), full(1, 4), DIMS
            ).layer(0, jnp.ones((1, 4, 16), jnp.int32)),
            "frame.layer: x has dtype int32; this method reads it as floating point",
        ),
    ],
)
def test_layers_and_inputs_that_do_not_fit_are_refused(ask, message):
    with pytest.raises(ValueError, match=r"^frame\.layer: ") as refusal:
        ask()
    assert str(refusal.value) == message


def test_a_hook_that_returns_nothing_and_a_key_that_is_none_are_named():
    layer = frame(make("rope")._replace(rotate=lambda *a: None), {}, full(1, 4), DIMS).layer(0)
    q = jnp.ones((1, 4, 2, 8))
    with pytest.raises(ValueError, match=r"encoding\.rotate: .* returns None; it must return \[B"):
        attend(q, q, q, layer)
    dense = frame(make("rope"), {}, full(1, 4), DIMS, form="dense").layer(0)
    with pytest.raises(ValueError, match=r"^dropout_key: 3 is no key; give one from jax\.random"):
        attend(q, q, q, dense, dropout=0.5, dropout_key=3)
    for key in (jax.random.key(0), jax.random.PRNGKey(0)):
        attend(q, q, q, dense, dropout=0.5, dropout_key=key)
