"""Biases: T5's buckets, ALiBi's slopes, clipping, Swin's table; windows, gradients, far offsets."""

import math
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax import CATALOG, Dims, at_layer, attend, frame, full, make
from posenc_jax.encodings import reach
from posenc_jax.encodings.bias_formulas import alibi_slopes
from posenc_jax.encodings.bias_tables import bucket_starts
from posenc_jax.lab.definitions import SCORES

DIMS = Dims(model=12, heads=3, head=4, layers=2)
SEQUENCE = [
    ("clipped", {"distance": 3}),
    ("t5", {"buckets": 8, "distance": 12}),
    ("t5", {"buckets": 8, "distance": 12, "bidirectional": False, "scaled": False}),
    ("alibi", {}),
    ("alibi", {"learned": True}),
]
GRID = [("swin_2d", {"window": 3}), ("swin_2d", {"window": 3, "beyond": "error"})]


def layer_of(name, options):
    encoding = make(name, **options)
    return at_layer(encoding, 0, encoding.init(jax.random.key(0), DIMS))


def bias_of(name, options, q_pos, k_pos=None):
    encoding, params = layer_of(name, options)
    q_BQ = jnp.asarray(q_pos)[None]
    k_BK = q_BQ if k_pos is None else jnp.asarray(k_pos)[None]
    return jax.jit(encoding.bias, static_argnums=3)(params, q_BQ, k_BK, DIMS)


@pytest.mark.parametrize(("name", "options"), SEQUENCE + GRID)
def test_logits_are_the_papers(name, options):
    rng = np.random.default_rng(0)
    shape = (9, 2) if name == "swin_2d" else (9,)
    pos_T = rng.integers(-5, 20, shape) % (4 if name == "swin_2d" else 99)
    q_THC, k_THC = rng.normal(size=(2, 9, DIMS.heads, DIMS.head))
    o = SimpleNamespace(**{**CATALOG[name].card.defaults, **options})
    with jax.enable_x64(True):
        encoding, params = layer_of(name, options)
        sides = [(jnp.asarray(q_THC)[None], "q"), (jnp.asarray(k_THC)[None], "k")]
        if encoding.temper is not None:
            factor = encoding.temper(params, None, None, DIMS)
            sides[0] = sides[0][0] * factor[..., None], "q"
        pos = jnp.asarray(pos_T)[None]
        bias = jax.jit(encoding.bias, static_argnums=3)(params, pos, pos, DIMS)
        assert bias.dtype == jnp.float64
        actual = np.einsum("qhc,khc->hqk", sides[0][0][0], sides[1][0][0]) / 2 + np.asarray(bias)[0]
        params = jax.tree.map(np.asarray, params)
    wanted = SCORES[name](o, params, q_THC, k_THC, pos_T, len(pos_T))
    np.testing.assert_allclose(actual, wanted, rtol=1e-12, atol=1e-12)
    if name != "alibi":  # the sign of the offset matters, and would be noticed
        turned = SCORES[name](o, params, q_THC, k_THC, -pos_T, len(pos_T))
        assert not np.allclose(actual, turned, equal_nan=True)


@pytest.mark.parametrize(("name", "options"), SEQUENCE)
def test_a_window_holds_every_offset_of_a_block(name, options):
    queries, keys = np.arange(40, 45), np.arange(38, 46)
    grid = bias_of(name, options, queries, keys)
    window = bias_of(name, options, [0], -np.arange(-5, 7))  # offsets -5 to 6, one query
    assert window.shape[2:] == (1, 12)
    assert grid.dtype == jnp.float32
    offsets = queries[:, None] - keys[None]
    np.testing.assert_array_equal(grid[0], np.asarray(window)[0, :, 0][:, offsets + 5])
    assert not np.array_equal(grid[0], np.asarray(window)[0, :, 0][:, offsets + 4])


@pytest.mark.parametrize(("name", "options"), SEQUENCE)
def test_rows_may_differ_and_far_positions_are_exact(name, options):
    near = jnp.asarray([[0, 1, 2, 5], [7, 3, 3, 0]], jnp.int32)
    encoding, params = layer_of(name, options)
    bias = jax.jit(lambda params, q, k: encoding.bias(params, q, k, DIMS))
    both, far = bias(params, near, near), bias(params, near + 10**9, near + 10**9)
    assert both.shape == (2, 3, 4, 4)
    np.testing.assert_array_equal(both, far)
    rough = (near + 10**9).astype(jnp.float32)  # float32 cannot tell these positions apart
    assert not np.array_equal(both, bias(params, rough, rough))
    np.testing.assert_array_equal(both, bias(params, near.astype(float), near.astype(float)))


def reference_bucket(d, buckets, distance, bidirectional, floats=np.float64):
    """The formula of Mesh TensorFlow and Hugging Face, on memory minus query."""
    relative, first = -d, 0
    if bidirectional:
        buckets //= 2
        first, relative = buckets * (relative > 0), np.abs(relative)
    else:
        relative = -np.minimum(relative, 0)
    exact = buckets // 2
    share = np.log(np.maximum(relative, 1).astype(floats) / floats(exact))
    share = share / floats(math.log(distance / exact)) * floats(buckets - exact)
    large = np.minimum(exact + share.astype(int), buckets - 1)
    return first + np.where(relative < exact, relative, large)


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("buckets", "distance"), [(32, 128), (16, 100), (64, 1000), (4, 3)])
def test_t5_buckets_are_the_reference_implementations(buckets, distance, bidirectional):
    offsets = np.arange(-1000, 1001)
    options = {"buckets": buckets, "distance": distance, "bidirectional": bidirectional}
    encoding = make("t5", **options)
    params = {"table": jnp.arange(buckets, dtype=float)[:, None]}
    actual = encoding.bias(params, jnp.asarray([offsets]), jnp.zeros((1, 1), int), DIMS)[0, 0, :, 0]
    wanted = reference_bucket(offsets, buckets, distance, bidirectional)
    np.testing.assert_array_equal(actual, wanted)
    turned = reference_bucket(-offsets, buckets, distance, bidirectional)
    assert not np.array_equal(actual, turned)


def test_t5_buckets_do_not_depend_on_rounding():
    # 4, 8, 16, 32, 64: the edges lie on whole numbers, and a float64 logarithm misses three.
    assert bucket_starts(9, 128) == [1, 2, 3, 4, 8, 16, 32, 64]
    edges = np.asarray([8, 16, 64])
    assert (reference_bucket(edges, 9, 128, False) == [4, 5, 7]).all()
    encoding = make("t5", buckets=9, distance=128, bidirectional=False)
    params = {"table": jnp.arange(9, dtype=float)[:, None]}
    actual = encoding.bias(params, jnp.asarray(edges)[None], jnp.zeros((1, 1), int), DIMS)
    np.testing.assert_array_equal(actual[0, 0, :, 0], [5, 6, 8])
    fractions = jnp.asarray([[7.99, 8.0, -0.5, 1e9]])
    actual = encoding.bias(params, fractions, jnp.zeros((1, 1)), DIMS)
    np.testing.assert_array_equal(actual[0, 0, :, 0], [4, 5, 0, 8])


@pytest.mark.thorough
def test_t5_unscaled_undoes_the_scale_on_queries_alone():
    encoding = make("t5", scaled=False)
    x_BTHC = jnp.ones((1, 2, DIMS.heads, DIMS.head), jnp.bfloat16)
    params = encoding.init(jax.random.key(0), DIMS)
    q, k = frame(encoding, params, full(1, 2), DIMS).layer(0).rotate(x_BTHC, x_BTHC)
    np.testing.assert_array_equal(q, DIMS.head**0.5 * x_BTHC)
    assert q.dtype == jnp.bfloat16
    np.testing.assert_array_equal(k, x_BTHC)
    assert make("t5").temper is None


def test_alibi_slopes_are_the_authors():
    np.testing.assert_array_equal(alibi_slopes(1), [2.0**-8])
    np.testing.assert_array_equal(alibi_slopes(8), 2.0 ** -np.arange(1, 9))
    twelve = np.concatenate([2.0 ** -np.arange(1, 9), 2.0 ** -np.arange(0.5, 4)])
    np.testing.assert_allclose(alibi_slopes(12), twelve, rtol=1e-15)
    assert not np.allclose(alibi_slopes(12), 2.0 ** (-8 * np.arange(1, 13) / 12))
    bias = bias_of("alibi", {}, [3, 0], [0, 3])
    np.testing.assert_allclose(bias[0, :, 0], -alibi_slopes(3)[:, None] * [3, 0], rtol=1e-6)


def test_alibi_learns_slopes_only_when_asked():
    fixed, learned = make("alibi"), make("alibi", learned=True)
    params = fixed.init(jax.random.key(0), DIMS)
    assert params == {}
    pos = jnp.arange(4)[None]
    assert jax.jit(fixed.bias, static_argnums=3)(params, pos, pos, DIMS).shape == (1, 3, 4, 4)
    params = learned.init(jax.random.key(0), DIMS)
    np.testing.assert_allclose(jnp.exp2(params["log2_slopes"]), alibi_slopes(3), rtol=1e-6)
    gradient = jax.grad(lambda p: learned.bias(p, pos, pos, DIMS).sum())(params)
    assert (gradient["log2_slopes"] < 0).all()


@pytest.mark.parametrize("name", ["clipped", "t5"])
def test_the_tables_gradient_counts_its_readers(name):
    encoding, params = layer_of(name, {"distance": 12})
    pos = jnp.arange(30)[None]
    gradient = jax.jit(jax.grad(lambda p: encoding.bias(p, pos, pos, DIMS).sum()))(params)["table"]
    np.testing.assert_array_equal(gradient.sum(0), [900] * 3)
    near = jax.jit(jax.grad(lambda p: encoding.bias(p, pos[:, :1], pos[:, :2], DIMS).sum()))(params)
    assert (near["table"] != 0).any(1).sum() == 2


def test_clipped_reads_its_last_entry_on_both_sides():
    row = np.asarray(bias_of("clipped", {"distance": 3}, [10], np.arange(20)))[0, :, 0]
    assert (row[:, :8] == row[:, :1]).all()
    assert (row[:, 13:] == row[:, -1:]).all()
    assert len(np.unique(row[0])) == 7


def swin_index(window):
    """Rows of Swin's table [(2 M - 1)^2, H] for the tokens of a window, as its code lays it out."""
    coords = np.stack(np.meshgrid(np.arange(window), np.arange(window), indexing="ij"))
    coords = coords.reshape(2, -1)
    relative = coords[:, :, None] - coords[:, None, :] + window - 1
    return relative[0] * (2 * window - 1) + relative[1], coords.T


def test_swin_reads_the_authors_table():
    encoding, params = layer_of("swin_2d", {"window": 3})
    index, pos_T2 = swin_index(3)
    table = np.asarray(params["table"]).reshape(25, 3)
    bias = encoding.bias(params, jnp.asarray(pos_T2)[None], jnp.asarray(pos_T2)[None], DIMS)
    np.testing.assert_array_equal(bias[0], np.moveaxis(table[index], -1, 0))
    columns_first = np.moveaxis(table[swin_index(3)[0].T], -1, 0)
    assert not np.array_equal(bias[0], columns_first)


def test_swin_declares_what_lies_beyond_its_window():
    q_pos, k_pos = [[0, 0]], [[-3, 0], [-2, 0], [0, 2], [0, 9]]
    clamped = bias_of("swin_2d", {"window": 3}, q_pos, k_pos)[0, :, 0]
    np.testing.assert_array_equal(clamped[:, 0], clamped[:, 1])
    np.testing.assert_array_equal(clamped[:, 2], clamped[:, 3])
    refused = bias_of("swin_2d", {"window": 3, "beyond": "error"}, q_pos, k_pos)[0, :, 0]
    np.testing.assert_array_equal(np.isnan(refused[0]), [True, False, False, True])
    assert reach("swin_2d", window=3, beyond="error") == 3
    assert reach("swin_2d", window=3) is None


@pytest.mark.parametrize("name", ["clipped", "t5", "swin_2d"])
def test_layers_share_a_table_or_have_their_own(name):
    shared, unshared = make(name, shared=True), make(name, shared=False)
    assert shared.at is None
    params = unshared.init(jax.random.key(0), DIMS)
    _, first = at_layer(unshared, 0, params)
    _, second = at_layer(unshared, 1, params)
    assert not np.array_equal(first["table"], second["table"])
    assert CATALOG[name].card.defaults["shared"] is (name == "t5")


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("clipped", {"distance": 0}, "encoding.distance: 0 must be 1 or more"),
        ("swin_2d", {"window": 0}, "encoding.window: 0 must be 1 or more"),
        ("swin_2d", {"beyond": "wrap"}, "encoding.beyond: 'wrap' is not one of: 'clamp', 'error'"),
        ("t5", {"buckets": 7}, "encoding.buckets: 7 must be even and 4 or more"),
        ("t5", {"buckets": 1, "bidirectional": False}, "encoding.buckets: 1 must be 2 or more"),
        ("t5", {"distance": 8}, "encoding.distance: 8 must exceed 8, the number of distances"),
        ("alibi", {"learned": 1}, "encoding.learned: 1 is not of type bool"),
    ],
)
def test_a_bad_option_is_refused_in_one_line(name, options, message):
    with pytest.raises(ValueError, match="encoding") as refusal:
        make(name, **options)
    assert str(refusal.value).startswith(message)
    assert "\n" not in str(refusal.value)


@pytest.mark.thorough
@pytest.mark.parametrize("form", ["dense", "blockwise", "kernel"])
@pytest.mark.parametrize(("behind", "ahead"), [(5, 0), (2, 6), (3, None)])
@pytest.mark.parametrize("straight", [True, False])
def test_a_window_may_have_unequal_sides(form, behind, ahead, straight):
    """Those of a mask written by hand, also where positions do not count along storage."""
    rng = np.random.default_rng(0)
    q, k, v = (jnp.asarray(rng.normal(size=(1, 20, 2, 8)), jnp.float32) for _ in range(3))
    at = full(1, 20)
    at = at if straight else at.replace(pos_BT=at.pos_BT * 2)
    encoding, dims = make("window", distance=behind, ahead=ahead), Dims(16, 2, 8)
    view = frame(encoding, {}, at, dims, causal=False, form=form, block=8)
    actual = attend(q, k, v, view.layer(0))
    offset_QK = np.asarray(at.pos_BT[0][:, None] - at.pos_BT[0][None])
    seen_QK = (offset_QK <= behind) & (offset_QK >= -(behind if ahead is None else ahead))
    wanted = jax.nn.dot_product_attention(q, k, v, mask=seen_QK[None, None])
    np.testing.assert_allclose(actual, wanted, atol=1e-5)
    other = jax.nn.dot_product_attention(q, k, v, mask=seen_QK.T[None, None])
    assert ahead is None or np.abs(actual - other).max() > 1e-2, "control: the sides exchanged"
