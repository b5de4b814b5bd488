"""Content-dependent scores: Shaw's clipped keys, Transformer-XL's sinusoids and its memory."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax import CATALOG, Dims, Side, at_layer, make
from posenc_jax.lab import definitions

DIMS = Dims(model=12, heads=3, head=4, layers=2)
METHODS = [("shaw", {"distance": 3}), ("transformer_xl", {})]


def loud(params):
    """Parameters large enough that what they do cannot hide in the last digits."""
    return jax.tree.map(lambda leaf: leaf * 10, params)


def layer_of(name, options, layer=0):
    encoding = make(name, **options)
    encoding, params = at_layer(encoding, layer, encoding.init(jax.random.key(0), DIMS))
    return encoding, loud(params)


def heads_of(seed, *lead):
    return np.random.default_rng(seed).normal(size=(*lead, DIMS.heads, DIMS.head))


def scores(encoding, params, q_BQHC, k_BKHC, q_pos_BQ, k_pos_BK):
    s_BHQK = jnp.einsum("bqhc,bkhc->bhqk", q_BQHC, k_BKHC) / 2
    q, k = Side(q_BQHC, q_pos_BQ), Side(k_BKHC, k_pos_BK)
    actual, carry = jax.jit(encoding.walk.score)(params, s_BHQK, q, k, None, None)
    assert carry is None
    assert actual.dtype == s_BHQK.dtype
    return actual


@pytest.mark.thorough(after=1)
@pytest.mark.parametrize(("name", "options"), METHODS)
def test_logits_are_the_papers(name, options):
    pos_T = np.random.default_rng(0).integers(-5, 20, 7)
    q_THC, k_THC = heads_of(1, 7), heads_of(2, 7)
    card = CATALOG[name].card
    with jax.enable_x64(True):
        encoding, params = layer_of(name, options)
        q, k, pos = (jnp.asarray(x)[None] for x in (q_THC, k_THC, pos_T))
        actual = scores(encoding, params, q, k, pos, pos)
        o = SimpleNamespace(**{**card.defaults, **options})
        wanted = definitions.SCORES[name](
            o, jax.tree.map(np.asarray, params), q_THC, k_THC, pos_T, 7
        )
        np.testing.assert_allclose(actual[0], wanted, rtol=1e-12, atol=1e-12)
        turned = scores(encoding, params, q, k, -pos, -pos)
        assert abs(turned[0] - wanted).max() > 0.1


@pytest.mark.thorough(after=1)
@pytest.mark.parametrize(("name", "options"), METHODS)
def test_rows_may_share_positions_or_not(name, options):
    q_pos, k_pos = jnp.asarray([[5, 6, 7]]), jnp.asarray([[3, 4, 5, 6, 7]])
    q, k = (jnp.asarray(heads_of(i, 2, n), jnp.float32) for i, n in ((1, 3), (2, 5)))
    encoding, params = layer_of(name, options)
    direct = scores(encoding, params, q, k, q_pos, k_pos)
    both = scores(encoding, params, q, k, jnp.repeat(q_pos, 2, 0), jnp.repeat(k_pos, 2, 0))
    np.testing.assert_allclose(direct, both, rtol=1e-5, atol=1e-6)
    moved = jnp.concatenate([k_pos, k_pos - 1])
    other = scores(encoding, params, q, k, jnp.repeat(q_pos, 2, 0), moved)
    np.testing.assert_allclose(direct[0], other[0], rtol=1e-5, atol=1e-6)
    assert abs(direct[1] - other[1]).max() > 0.01


@pytest.mark.parametrize(("name", "options"), METHODS)
def test_far_from_zero_scores_are_as_exact_as_near_it(name, options):
    pos = jnp.arange(20)[None]
    q, k = (jnp.asarray(heads_of(i, 1, 20), jnp.float32) for i in (1, 2))
    encoding, params = layer_of(name, options)
    near, far = (scores(encoding, params, q, k, pos + n, pos + n) for n in (0, 10**6))
    np.testing.assert_allclose(near, far, rtol=1e-5, atol=1e-5)
    # The control: the sine of a position this far out, in float32, is wrong in the second digit.
    there = np.arange(10**6, 10**6 + 20)
    rough = np.sin(np.float32(0.1) * there.astype(np.float32))
    assert abs(rough - np.sin(0.1 * there)).max() > 1e-3


@pytest.mark.thorough(after=1)
@pytest.mark.parametrize(("name", "options"), METHODS)
def test_low_precision_activations_leave_positions_alone(name, options):
    pos = jnp.arange(300)[None]
    q, k = (jnp.asarray(heads_of(i, 1, 300), jnp.bfloat16) for i in (1, 2))
    encoding, params = layer_of(name, options)
    params = jax.tree.map(lambda p: p.astype(jnp.bfloat16).astype(jnp.float32), params)
    zero = jnp.zeros((1, 3, 300, 300), jnp.float32)
    actual, _ = encoding.walk.score(params, zero, Side(q, pos), Side(k, pos), None, None)
    wide_q, wide_k = Side(q.astype(jnp.float32), pos), Side(k.astype(jnp.float32), pos)
    wanted, _ = encoding.walk.score(params, zero, wide_q, wide_k, None, None)
    assert actual.dtype == jnp.float32
    bound = 0.02 * float(abs(wanted).max())
    np.testing.assert_allclose(actual, wanted, atol=bound)
    coarse = pos.astype(jnp.bfloat16).astype(jnp.int32)  # bfloat16 cannot tell 256 from 257
    wrong, _ = encoding.walk.score(
        params, zero, wide_q._replace(placed=coarse), wide_k._replace(placed=coarse), None, None
    )
    assert abs(wrong - wanted).max() > bound


def test_shaw_clips_on_both_sides_and_has_vectors_for_each_head():
    encoding, params = layer_of("shaw", {"distance": 2})
    assert params["keys"].shape == (3, 5, 4)
    q = jnp.ones((1, 1, 3, 4))
    k, k_pos = jnp.zeros((1, 9, 3, 4)), jnp.arange(9)[None]
    row = scores(encoding, params, q, k, jnp.asarray([[4]]), k_pos)[0, :, 0]
    np.testing.assert_allclose(row[:, :3], jnp.repeat(row[:, :1], 3, 1))
    np.testing.assert_allclose(row[:, 6:], jnp.repeat(row[:, -1:], 3, 1))
    assert all(len(np.unique(np.asarray(head))) == 5 for head in row)
    assert not np.allclose(row[0], row[1])


def test_shaw_layers_have_their_own_table_unless_shared():
    unshared, shared = make("shaw"), make("shaw", shared=True)
    params = unshared.init(jax.random.key(0), DIMS)
    _, first = at_layer(unshared, 0, params)
    _, second = at_layer(unshared, 1, params)
    assert not np.array_equal(first["keys"], second["keys"])
    assert shared.at is None


def shifted(s_HQR):
    """Transformer-XL's shift of scores by relative position, from distance K - 1 down to 0."""
    heads, queries, keys = s_HQR.shape
    padded = np.concatenate([np.zeros((heads, queries, 1)), s_HQR], axis=2)
    return padded.reshape(heads, keys + 1, queries)[:, 1:].reshape(heads, queries, keys)


def test_transformer_xl_with_memory_is_the_authors_shifted_product():
    memory, queries = 5, 4
    q_QHC, k_KHC = heads_of(1, queries), heads_of(2, memory + queries)
    pos = np.arange(memory + queries)
    with jax.enable_x64(True):
        encoding, params = layer_of("transformer_xl", {})
        q, k = jnp.asarray(q_QHC)[None], jnp.asarray(k_KHC)[None]
        actual = scores(encoding, params, q, k, pos[None, memory:], pos[None])[0]
        segment = pos - memory  # memory at negative positions, the current segment from 0 on
        again = scores(encoding, params, q, k, segment[None, memory:], segment[None])[0]
        u_HC, v_HC, w_DHC = (np.asarray(params[name]) for name in ("u", "v", "w"))
    np.testing.assert_allclose(again, actual, rtol=1e-12, atol=1e-12)
    angle = pos[::-1, None] / 10000.0 ** (np.arange(0, 12, 2) / 12)
    r_KHC = np.einsum("kd,dhc->khc", np.concatenate([np.sin(angle), np.cos(angle)], 1), w_DHC)
    content = np.einsum("qhc,khc->hqk", q_QHC + u_HC, k_KHC)
    position = shifted(np.einsum("qhc,khc->hqk", q_QHC + v_HC, r_KHC))
    seen = pos[memory:, None] >= pos[None]
    wanted = (content + position) / 2
    np.testing.assert_allclose(actual[:, seen], wanted[:, seen], rtol=1e-11, atol=1e-11)
    # Memory taken for a segment that starts over, the usual mistake, is far off.
    restarted = np.concatenate([np.arange(memory), np.arange(queries)])
    with jax.enable_x64(True):
        wrong = scores(encoding, params, q, k, restarted[None, memory:], restarted[None])[0]
        wrong = np.asarray(wrong)
    assert abs(wrong[:, seen] - wanted[:, seen]).max() > 0.1


def test_transformer_xl_shares_u_and_v_but_not_w():
    encoding = make("transformer_xl")
    params = encoding.init(jax.random.key(0), DIMS)
    _, first = at_layer(encoding, 0, params)
    _, second = at_layer(encoding, 1, params)
    assert first["u"] is second["u"]
    assert first["v"] is second["v"]
    assert not np.array_equal(first["w"], second["w"])
    assert first["w"].shape == (12, 3, 4)
    odd = encoding.init(jax.random.key(0), Dims(model=5, heads=1, head=5))
    assert odd["w"][0].shape == (6, 1, 5)


@pytest.mark.parametrize(("name", "options"), METHODS)
def test_every_parameter_learns(name, options):
    encoding, params = layer_of(name, options)
    pos = jnp.arange(8)[None]
    q, k = (jnp.asarray(heads_of(i, 1, 8), jnp.float32) for i in (1, 2))
    weight = jnp.asarray(np.random.default_rng(3).normal(size=(1, 3, 8, 8)), jnp.float32)
    loss = lambda p: (scores(encoding, p, q, k, pos, pos) * weight).sum()
    gradient = jax.jit(jax.grad(loss))(params)
    assert all((abs(leaf).max() > 1e-3) for leaf in jax.tree.leaves(gradient))
