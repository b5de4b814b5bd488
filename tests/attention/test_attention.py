"""Attention against a literal reference, its two forms against each other, masks to the bit."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax import Dims, Encoding, Walk, attend, chain, frame, make, per_layer
from posenc_jax.layout import Layout, full, join, layout, rising
from posenc_jax.layout import straight as layout_straight
from tests.support.catalogue import gap

HEADS, HEAD, TIME = 2, 4, 21
DIMS = Dims(HEADS * HEAD, HEADS, HEAD)
SEGMENT = jnp.array([[0] * 3 + [1] * 18, [1] * 9 + [2] * 8 + [0] * 4])


def distance_bias() -> Encoding:
    """A toy: -slope[h] times the distance, learned."""

    def bias(params, q_placed, k_placed, dims):
        gap_BQK = jnp.abs(q_placed[:, :, None] - k_placed[:, None]).astype(float)
        return -params[None, :, None, None] * gap_BQK[:, None]

    return Encoding(lambda key, dims: jnp.linspace(0.1, 0.9, dims.heads), bias=bias, relative=True)


def key_count() -> Encoding:
    """A toy walk: minus the share of keys visible after each key, times a learned rate."""

    def score(params, s_BHQK, q, k, visible_BHQK, carry):
        seen = visible_BHQK.astype(s_BHQK.dtype) / TIME
        after = jnp.flip(jnp.cumsum(jnp.flip(seen, -1), -1), -1) - seen
        later = carry + jnp.sum(seen, -1, keepdims=True)
        return s_BHQK - params * (after + carry) + k.feat.transpose(0, 2, 1)[:, :, None], later

    start = lambda params, q: jnp.zeros((*jnp.swapaxes(q.x_BTHC, 1, 2).shape[:3], 1))
    walk = Walk(score, lambda params, x_BTD: jnp.sin(x_BTD[..., :HEADS]), start)
    return Encoding(lambda key, dims: jnp.full((1, 1, 1, 1), 4.0), walk=walk)


ENCODINGS = {
    "none": Encoding(),
    "bias": distance_bias(),
    "rope": make("rope"),
    "walk": key_count(),
    "sum": chain(make("rope"), distance_bias(), key_count()),
    "bucket": make("t5"),
    "placed": chain(make("clamped", length=16), make("clipped", distance=4, shared=True)),
}
# Of these the bias is evaluated once for each offset if positions count up: `Layout.counted`.
BY_OFFSET = [name for name, e in ENCODINGS.items() if e.bias is not None and e.relative]


def draw(time: int = TIME, seed: int = 0) -> list[jax.Array]:
    return list(jax.random.normal(jax.random.key(seed), (4, 2, time, HEADS, HEAD)))


def stirred(encoding: Encoding):
    params = encoding.init(jax.random.key(1), DIMS)
    return jax.tree.map(lambda p: p + 0.3 * jax.random.normal(jax.random.key(2), p.shape), params)


def run(encoding, params, q, k, v, at: Layout, **options):
    """One layer's attention; with `queries` q are those columns of `at`."""
    view = frame(encoding, params, at, DIMS, **options)
    wide = lambda x: x.reshape(*x.shape[:2], -1)
    part = "queries" in options
    x = wide(k[:, -q.shape[1] :] if part else k)
    return attend(q, k, v, view.layer(0, x, wide(k) if part else None))


def reference(q, k, v, score, q_at: Layout, k_at: Layout, causal: bool) -> np.ndarray:
    """Attention, one query, key and head at a time, in float64."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    q_at, k_at = jax.tree.map(np.asarray, (q_at, k_at))
    out = np.zeros(q.shape)
    for b, i, h in np.ndindex(q.shape[:3]):
        seen = [
            j
            for j in range(k.shape[1])
            if q_at.segment_BT[b, i] == k_at.segment_BT[b, j] > 0
            and (not causal or k_at.index_BT[b, j] <= q_at.index_BT[b, i])
        ]
        if not seen:
            continue
        s = [
            q[b, i, h] @ k[b, j, h] / np.sqrt(HEAD)
            + score(h, int(q_at.pos_BT[b, i]), int(k_at.pos_BT[b, j]))
            for j in seen
        ]
        p = np.exp(s - np.max(s))
        out[b, i, h] = (p / p.sum()) @ v[b, seen, h]
    return out


@pytest.mark.thorough
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("form", ["dense", "blockwise"])
def test_the_definition(form, causal):
    q, k, v, _ = draw()
    at, slopes = layout(SEGMENT), np.array([0.1, 0.9])
    out = run(
        distance_bias(),
        jnp.array(slopes, jnp.float32),
        q,
        k,
        v,
        at,
        form=form,
        block=8,
        causal=causal,
    )
    expected = lambda sign: reference(
        q, k, v, lambda h, i, j: sign * slopes[h] * abs(i - j), at, at, causal
    )
    np.testing.assert_allclose(out, expected(-1), atol=1e-5)
    assert np.abs(out - expected(1)).max() > 0.1, "control: the sign of the bias must show"


@pytest.mark.thorough(after=1)
@pytest.mark.parametrize(("causal", "mask_padding"), [(True, True), (False, True), (True, False)])
@pytest.mark.parametrize("name", list(ENCODINGS))
def test_forms_agree(name, causal, mask_padding):
    """Dense and blockwise: values, and gradients of q, k, v and the encoding's parameters."""
    encoding = ENCODINGS[name]
    params, (q, k, v, g) = stirred(encoding), draw()

    @jax.jit
    def every(params, q, k, v):
        def of(form, counted=True):
            at = layout(SEGMENT).replace(counted=counted)

            def f(*args):
                options = {"form": form, "block": 8}
                return run(encoding, *args, at, causal=causal, mask_padding=mask_padding, **options)

            out, pull = jax.vjp(f, params, q, k, v)
            return out, pull(g)

        actual = [of("dense"), of("auto"), of("blockwise")]
        if name in BY_OFFSET and mask_padding:
            actual += [of("dense", counted=False), of("blockwise", counted=False)]
        return actual

    dense, *others = every(params, q, k, v)
    assert max(gap(dense, other) for other in others) < 2e-5
    shifted = jax.tree.map(lambda p: 1.5 * p, params)
    if name not in ("none", "rope"):
        assert gap(dense[0], every(shifted, q, k, v)[2][0]) > 1e-3, "control: parameters matter"


def test_positions_that_do_not_count_though_the_layout_says_so_give_nan():
    (q, k, v, _), bias = draw(), distance_bias()
    scattered = layout(SEGMENT, pos_BT=jnp.broadcast_to(jnp.arange(TIME) * 2, SEGMENT.shape))
    for form in ("dense", "blockwise"):
        go = lambda at, form=form: run(bias, jnp.ones(HEADS), q, k, v, at, form=form, block=8)
        assert jnp.isnan(go(scattered.replace(counted=True))).any()
        assert not jnp.isnan(go(scattered)).any()
    assert layout(SEGMENT).counted
    assert not layout(SEGMENT).replace(pos_BT=scattered.pos_BT).counted


def test_straight_sees_what_stands_between_the_tokens_of_a_sequence():
    straight = lambda rows: layout_straight(layout(rows).segment_BT, layout(rows).pos_BT)
    assert straight(SEGMENT)
    assert straight([[0, 2, 2, 0, 1, 1, 0]])
    for row in ([1, 1, 0, 1], [1, 2, 1], [2, 1, 2, 1], [1, 0, 1, 2]):
        assert not straight([row])
    moved = jax.tree.map(lambda x: x[:, jnp.array([1, 0, 2])], full(1, 3))
    assert not layout_straight(moved.segment_BT, moved.pos_BT)
    cut = jax.tree.map(lambda x: x[:, 1:], full(1, 3))
    assert layout_straight(cut.segment_BT, cut.pos_BT)


def test_rising_reads_the_index_within_sequences():
    at = layout(SEGMENT, start=3)
    assert rising(at.segment_BT, at.index_BT, strictly=True)
    assert not rising(at.segment_BT, at.index_BT[:, ::-1])
    assert rising(at.segment_BT, 0 * at.index_BT)
    assert not rising(at.segment_BT, 0 * at.index_BT, strictly=True)
    segment_BT, index_BT = jnp.array([[2, 2, 1, 1]]), jnp.array([[5, 6, 0, 1]])
    assert rising(segment_BT, index_BT), "documents in another order"
    assert not rising(segment_BT, index_BT.at[0, 3].set(0), strictly=True)


@pytest.mark.thorough(after=1)
@pytest.mark.parametrize("form", ["dense", "blockwise"])
@pytest.mark.parametrize("name", list(ENCODINGS))
def test_hidden_content_changes_nothing(name, form):
    """Padding and other documents, to the bit, in values and gradients; without a mask they do."""
    encoding = ENCODINGS[name]
    params, (q, k, v, g) = stirred(encoding), draw()
    hidden = (SEGMENT == 0).at[1, :9].set(True)  # what the second document must not see
    shown = jnp.where(hidden, 0.0, 1.0)[..., None, None]

    @jax.jit
    def of(k, v):
        f = lambda q, k, v: run(encoding, params, q, k, v, layout(SEGMENT), form=form, block=8)
        out, pull = jax.vjp(f, q, k, v)
        dq, dk, dv = pull(g * shown)
        return out * shown, dq * shown, dk * shown, dv * shown, dk * (1 - shown), dv * (1 - shown)

    noise = 10.0 * (1 - shown)
    before, after = of(k, v), of(k + noise, v + noise)
    assert gap(before[:4], after[:4]) == 0.0
    assert gap(after[4:], jax.tree.map(jnp.zeros_like, after[4:])) == 0.0
    leak = lambda k: run(
        encoding, params, q, k, v, layout(SEGMENT), form=form, block=8, mask_padding=False
    )
    assert gap(leak(k) * shown, leak(k + noise) * shown) > 1e-3, "control: no mask must leak"


@pytest.mark.thorough
@pytest.mark.parametrize("form", ["dense", "blockwise"])
@pytest.mark.parametrize("name", list(ENCODINGS))
def test_a_query_that_sees_nothing_gives_zero(name, form):
    encoding = ENCODINGS[name]
    params, (q, k, v, g) = stirred(encoding), draw()
    f = lambda *args: run(encoding, *args, layout(SEGMENT), form=form, block=8)
    out, pull = jax.vjp(f, params, q, k, v)
    assert jnp.all(out[SEGMENT == 0] == 0)
    assert not jnp.any(jnp.all(out == 0, axis=(2, 3)) & (SEGMENT > 0))
    grads = pull(g)
    assert all(jnp.isfinite(x).all() for x in jax.tree.leaves(grads))
    assert jnp.all(grads[1][SEGMENT == 0] == 0)


@pytest.mark.thorough
@pytest.mark.parametrize("form", ["dense", "blockwise"])
@pytest.mark.parametrize(
    ("name", "counted"),
    [*((name, False) for name in ENCODINGS), *((name, True) for name in BY_OFFSET)],
)
def test_memory_and_cache_give_the_full_pass(name, form, counted):
    """Queries that are the last tokens, or begin at a traced column of a larger cache."""
    encoding = ENCODINGS[name]
    params, (q, k, v, _) = stirred(encoding), draw()
    options, at = {"form": form, "block": 8}, full(2, TIME).replace(counted=counted)
    whole = run(encoding, params, q, k, v, at, **options)
    part = lambda at, a, b: jax.tree.map(lambda x: x[:, a:b], at)
    both = at if counted else join(part(at, 0, 13), part(at, 13, TIME))
    new = TIME - 13
    memory = run(encoding, params, q[:, 13:], k, v, both, queries=(13, new), **options)
    assert gap(whole[:, 13:], memory) < 1e-5
    if encoding.walk is not None:
        return  # `run` reads features off the last keys; the model's own tests cover its cache
    spare = jax.tree.map(lambda x: jnp.pad(x, ((0, 0), (0, 6))), at)
    k, v = (jnp.pad(x, ((0, 0), (0, 6), (0, 0), (0, 0)), constant_values=9.0) for x in (k, v))
    cached = jax.jit(
        lambda start: run(encoding, params, q[:, 13:], k, v, spare, queries=(start, new), **options)
    )
    assert gap(whole[:, 13:], cached(13)) < 1e-5
    if encoding.bias is not None or encoding.rotate is not None:
        assert gap(whole[:, 13:], cached(11)) > 1e-3, "control: the column matters"


@pytest.mark.thorough
def test_a_random_draw_serves_both_sides():
    encoding = chain(make("randomized", limit=64), distance_bias())
    params, (q, k, v, _) = ({}, jnp.array([0.3, 0.5])), draw()
    at, query_columns = full(2, TIME), {"queries": (13, TIME - 13)}
    drawn = lambda seed: encoding.place(jax.random.key(seed), at)
    go = lambda q, seed, **query_columns: run(
        encoding, params, q, k, v, at, placed=drawn(seed), **query_columns
    )
    assert gap(go(q, 0)[:, 13:], go(q[:, 13:], 0, **query_columns)) < 1e-6
    assert gap(go(q, 0), go(q, 1)) > 1e-3, "control: another key, another draw"


def test_layers_of_their_own():
    q, k, v, _ = draw()
    encoding = per_layer([distance_bias(), Encoding()])
    params = encoding.init(jax.random.key(0), DIMS)
    view = frame(encoding, params, full(2, TIME), dataclasses.replace(DIMS, layers=2))
    plain = run(Encoding(), {}, q, k, v, full(2, TIME))
    assert gap(attend(q, k, v, view.layer(1)), plain) == 0.0
    assert gap(attend(q, k, v, view.layer(0)), plain) > 1e-3
    with pytest.raises(TypeError, match=r"^layer: Frame; give frame\.layer\(n, x\)$"):
        attend(q, k, v, view)


@pytest.mark.parametrize("form", ["dense", "blockwise"])
def test_bfloat16_keeps_positions_and_softmax_wide(form):
    """Positions past 256, which bfloat16 cannot tell apart, through bias and rotation."""
    encoding = chain(make("rope"), distance_bias())
    params, (q, k, v, _) = ({}, jnp.array([0.3, 0.5])), draw()
    far = full(2, TIME).replace(pos_BT=full(2, TIME).pos_BT + 1000)
    half = [x.astype(jnp.bfloat16) for x in (q, k, v)]
    exact = run(encoding, params, *(x.astype(jnp.float32) for x in half), far, form=form, block=8)
    out = run(encoding, params, *half, far, form=form, block=8)
    assert out.dtype == jnp.bfloat16
    assert gap(out.astype(jnp.float32), exact) < 0.03
    rounded = far.replace(pos_BT=far.pos_BT.astype(jnp.bfloat16).astype(jnp.float32))
    coarse = run(encoding, params, *half, rounded, form=form, block=8)
    assert gap(coarse.astype(jnp.float32), exact) > 0.1, "control: rounded positions must show"


@pytest.mark.thorough(after=1)
@pytest.mark.parametrize(
    ("encoding", "relative"),
    [(distance_bias(), False), (distance_bias(), True), (key_count(), True)],
    ids=["bias", "relative", "walk"],
)
def test_blockwise_holds_nothing_as_large_as_the_logits(encoding, relative):
    time = 2048
    q = jax.ShapeDtypeStruct((1, time, HEADS, HEAD), jnp.float32)
    at = full(1, time).replace(counted=relative)

    def size(form):
        f = lambda params, q: run(encoding, params, q, q, q, at, form=form, block=64).sum()
        step = jax.jit(jax.grad(f, (0, 1)))
        params = jax.eval_shape(lambda: encoding.init(jax.random.key(0), DIMS))
        return step.lower(params, q).compile().memory_analysis().temp_size_in_bytes

    # With less, the backward pass keeps no block of keys, or of the output, for each pair either.
    assert size("blockwise") < HEADS * time * time * 4 / 16
    assert size("dense") > HEADS * time * time * 4, "control: dense holds them"
