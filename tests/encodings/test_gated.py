"""Methods that sum along storage: gates, decays, broken sticks, and the turns of PaTH."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax import Dims, attend, chain, frame, make
from posenc_jax.attention import logits
from posenc_jax.encodings.gated import STRETCH, sums_after
from posenc_jax.layout import full, layout
from posenc_jax.options import FieldError

HEADS, HEAD = 2, 8
DIMS = Dims(model=HEADS * HEAD, heads=HEADS, head=HEAD, layers=1)
METHODS = {
    "cope": {"length": 4},
    "fox": {},
    "fox_rows": {"width": 3},
    "wall": {"gate_bias": 0.0},
    "stick_breaking": {"own": True},
    "path": {"rank": 4},
}


def stirred(encoding):
    """Parameters far from where they start, so that every term shows."""
    leaves, tree = jax.tree.flatten(encoding.init(jax.random.key(0), DIMS))
    keys = jax.random.split(jax.random.key(1), max(len(leaves), 1))
    noisy = [x + jax.random.normal(k, x.shape) for x, k in zip(leaves, keys, strict=False)]
    return jax.tree.unflatten(tree, noisy)


def draw(batch: int, time: int, seed: int = 0):
    return jax.random.normal(jax.random.key(seed), (3, batch, time, HEADS, HEAD))


def run(encoding, params, q, k, v, at, **options):
    """Attention of a layer; the layer's input is taken to be the keys."""
    view = frame(encoding, params, at, DIMS, **options)
    return attend(q, k, v, view.layer(0, k.reshape(*k.shape[:2], -1)))


def scores_of(name, **options):
    encoding = make(name, **(options or METHODS.get(name, {})))
    return encoding, stirred(encoding)


@pytest.mark.thorough(after=2)
@pytest.mark.parametrize("size", [1, STRETCH, STRETCH**2 + 3])
def test_sums_run_from_the_last_key_back(size):
    x = np.random.default_rng(0).normal(size=(2, 3, 4, size)).astype(np.float32)
    carry = np.full((2, 3, 4, 1), 5, np.float32)
    actual, after = sums_after(jnp.asarray(x), jnp.asarray(carry))
    incl = np.cumsum(x[..., ::-1], -1, dtype=np.float64)[..., ::-1]
    np.testing.assert_allclose(actual, incl - x + carry, atol=1e-4)
    np.testing.assert_allclose(after, incl[..., :1] + carry, atol=1e-4)
    if size > 1:
        assert np.abs(actual - incl - carry).max() > 0.1, "control: a key's own term is left out"


@pytest.mark.thorough
def test_sums_are_as_exact_far_from_the_start_as_near_it():
    """A sum over a distance of 10 after a million tokens; a difference of sums would lose it."""
    x = np.random.default_rng(0).uniform(-3, -1, (1, 1, 1, 1_000_000)).astype(np.float32)
    actual, _ = sums_after(jnp.asarray(x), jnp.zeros((1, 1, 1, 1)))
    wanted = float(x[..., -10:].astype(np.float64).sum())
    assert abs(float(actual[0, 0, 0, -11]) - wanted) < 1e-5
    from_the_start = np.cumsum(x, dtype=np.float32)
    assert abs(float(from_the_start[-1] - from_the_start[-11]) - wanted) > 1e-2


@pytest.mark.thorough
@pytest.mark.parametrize("name", [*(n for n in METHODS if n != "fox_rows"), "path+fox"])
def test_a_query_that_looks_ahead_reads_as_if_it_stood_last(name):
    encoding, params = scores_of(name)
    time = 14
    q, k, v = draw(1, time)
    both_ways = run(encoding, params, q, k, v, full(1, time), causal=False)[0]
    # Row t of the batch has query t in the last place, where a causal query sees all keys.
    alone = jnp.broadcast_to(q[0][:, None], (time, time, HEADS, HEAD))
    keys, values = (jnp.repeat(x, time, axis=0) for x in (k, v))
    last = run(encoding, params, alone, keys, values, full(time, time))[:, -1]
    np.testing.assert_allclose(both_ways, last, atol=1e-5)
    causal = run(encoding, params, q, k, v, full(1, time))[0]
    assert np.abs(causal - both_ways)[:-1].max() > 1e-2, "control: causal queries see less"


@pytest.mark.thorough
@pytest.mark.parametrize("hole", [0, 2])
@pytest.mark.parametrize("name", list(METHODS))
def test_keys_in_a_gap_have_no_effect(name, hole):
    """A sequence that padding or another document interrupts is read as if it were whole."""
    encoding, params = scores_of(name)
    segment = np.array([[1] * 5 + [hole] * 3 + [1] * 6])
    mine = segment[0] == 1
    at, qkv = layout(jnp.asarray(segment)), draw(1, 14)
    changed = jnp.where(mine[None, None, :, None, None], qkv, draw(1, 14, seed=1))
    whole = run(encoding, params, *qkv[:, :, mine], full(1, 11))[0]
    for form in ("dense", "blockwise"):
        actual, again = (
            run(encoding, params, *x, at, form=form, block=4)[0, mine] for x in (qkv, changed)
        )
        np.testing.assert_allclose(actual, whole, atol=1e-5)
        np.testing.assert_array_equal(actual, again)
    seen = run(encoding, params, *qkv, full(1, 14))[0, mine]
    assert np.abs(seen - whole).max() > 1e-2, "control: what is seen counts"


@pytest.mark.thorough
@pytest.mark.parametrize("name", list(METHODS))
def test_low_precision_activations_are_summed_in_full(name):
    encoding, params = scores_of(name)
    low = draw(1, 40).astype(jnp.bfloat16)
    actual = run(encoding, params, *low, full(1, 40))
    assert actual.dtype == jnp.bfloat16
    wanted = run(encoding, params, *low.astype(jnp.float32), full(1, 40))
    assert np.abs(actual.astype(jnp.float32) - wanted).max() < 0.03


def open_gates(time: int):
    """Queries and keys whose products are large: every gate is open, and p is i - j + 1."""
    q, _, v = draw(1, time)
    k = jnp.zeros_like(q).at[..., 0].set(100.0)
    return q.at[..., 0].set(100.0), k, v


@pytest.mark.thorough
def test_cope_counts_every_key_where_all_gates_are_open():
    time, length = 12, 5
    encoding, params = scores_of("cope", length=length, shared=True)
    q, k, v = open_gates(time)
    actual = run(encoding, params, q, k, v, full(1, time))[0]
    away = np.arange(time)[:, None] - np.arange(time)[None]
    row = np.minimum(np.maximum(away + 1, 0), length - 1)
    bonus_QPH = np.einsum("qhc,pc->qph", q[0], params["table"]) / np.sqrt(HEAD)
    s_HQK = np.stack([np.take_along_axis(bonus_QPH[..., h], row, 1) for h in range(HEADS)])
    s_HQK = np.where(away >= 0, s_HQK, -np.inf)  # products of q and k are all alike
    weights = np.exp(s_HQK - s_HQK.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    np.testing.assert_allclose(actual, np.einsum("hqk,khc->qhc", weights, v[0]), atol=1e-4)


def through_gates(gate_bias: float, q, k, v):
    """Attention by wall with all gates at sigmoid(gate_bias)."""
    encoding = make("wall")
    (params,) = encoding.init(jax.random.key(0), DIMS)
    params = {"gate": 0 * params["gate"], "gate_bias": 0 * params["gate_bias"] + gate_bias}
    return run(encoding, (params,), q, k, v, full(1, q.shape[1]))


@pytest.mark.thorough
def test_walls_open_gates_are_plain_attention():
    q, k, v = draw(1, 40)
    plain = run(make("nope"), {}, q, k, v, full(1, 40))
    np.testing.assert_allclose(through_gates(50.0, q, k, v), plain, atol=1e-5)
    assert np.abs(through_gates(0.0, q, k, v) - plain).max() > 0.1, "control: gates of a half"


@pytest.mark.thorough
def test_walls_closed_gates_overflow_nowhere():
    """Only a token's own product is left; sums from the start would be far below ln of a float."""
    time, gate = 50, -40.0
    q, k, v = draw(1, time)
    actual, pull = jax.vjp(lambda q: through_gates(gate, q, k, v), q)
    (slope,) = pull(actual)
    assert np.isfinite(actual).all()
    assert np.isfinite(slope).all()
    logits = np.einsum("qhc,qhc->hq", q[0], k[0]) / np.sqrt(HEAD)
    s_HQK = np.where(np.eye(time, dtype=bool), logits[..., None], 0.0)
    s_HQK = np.where(np.tri(time, dtype=bool), s_HQK, -np.inf)
    weights = np.exp(s_HQK - s_HQK.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    np.testing.assert_allclose(actual[0], np.einsum("hqk,khc->qhc", weights, v[0]), atol=1e-5)
    with np.errstate(over="ignore", invalid="ignore"):
        from_the_start = np.cumsum(np.full(time, gate, np.float32))
        quotient = np.exp(from_the_start)[:, None] * np.exp(-from_the_start)[None]
    assert not np.isfinite(quotient).all(), "control: a quotient of two products"


@pytest.mark.thorough
@pytest.mark.parametrize("gate_bias", [0.0, 4.16])
def test_the_gates_of_fox_start_where_the_bias_says(gate_bias):
    encoding = make("fox", gate_bias=gate_bias)
    params = encoding.init(jax.random.key(0), DIMS)
    at, (q, k, _) = full(1, 65), draw(1, 65)
    nothing = jnp.zeros((1, 65, HEADS * HEAD))  # the layer's input, so that b alone is the gate
    layer = frame(encoding, params, at, DIMS).layer(0, nothing)
    scores = logits(q, k, layer) - logits(q, k, frame(make("nope"), {}, at, DIMS).layer(0))
    lowered = -float(scores[0, 0, 64, 0])
    assert lowered == pytest.approx(64 * np.log1p(np.exp(-gate_bias)), rel=1e-4)
    assert (lowered < 1.1) == (gate_bias > 0), "ln 64: by about 1 over 64 tokens"


def test_fox_rows_in_an_encoder_leaves_out_the_querys_own_gate_alone():
    encoding, params = scores_of("fox_rows")
    q, k, _ = draw(1, 7)
    x = k.reshape(1, 7, -1)
    view = frame(encoding, params, full(1, 7), DIMS, causal=False, form="dense")
    actual = logits(q, k, view.layer(0, x))[0] - jnp.einsum("qhc,khc->hqk", q[0], k[0]) / HEAD**0.5
    readers, keepers = (
        jnp.einsum("td,dhw->thw", x[0], params[0][n]) for n in ("readers", "keepers")
    )
    fade_HQK = jax.nn.log_sigmoid(jnp.einsum("qhw,khw->hqk", readers, keepers) / 3**0.5)
    to_the_end = np.cumsum(np.asarray(fade_HQK)[..., ::-1], axis=-1)[..., ::-1]
    others = np.where(np.eye(7, dtype=bool), 0, fade_HQK)
    wanted = np.cumsum(others[..., ::-1], axis=-1)[..., ::-1]
    np.testing.assert_allclose(actual, wanted, atol=1e-4)
    assert np.abs(actual - to_the_end).max() > 0.1, "control: with its own gate"


@pytest.mark.thorough
def test_stick_breaking_weights_sum_to_at_most_one():
    encoding, time = make("stick_breaking"), 30
    q, k, _ = draw(1, time)
    ones = jnp.ones((1, time, HEADS, 1))
    spent = run(encoding, {}, q, k, ones, full(1, time))[0, ..., 0]
    s_HQK = np.einsum("qhc,khc->hqk", q[0], k[0]) / np.sqrt(HEAD)
    earlier = np.tri(time, k=-1)[None]
    left = np.exp((earlier * np.log1p(-1 / (1 + np.exp(-s_HQK)))).sum(-1)).T
    np.testing.assert_allclose(spent + left, 1, atol=1e-5)
    assert (np.asarray(spent[0]) == 0).all(), "the first token has nothing to attend to"
    assert (np.asarray(run(make("stick_breaking", own=True), {}, q, k, ones, full(1, time)))).all()


@pytest.mark.thorough
def test_a_stick_tells_its_own_token_from_one_at_the_same_position():
    encoding, time = make("stick_breaking"), 6
    still = full(1, time).replace(pos_BT=jnp.zeros((1, time), jnp.int32))
    q, k, v = draw(1, time)
    np.testing.assert_array_equal(
        run(encoding, {}, q, k, v, still), run(encoding, {}, q, k, v, full(1, time))
    )


def test_a_part_that_makes_the_weights_must_be_last():
    stick, fox = make("stick_breaking"), make("fox")
    assert chain(fox, stick).walk.weighs
    with pytest.raises(ValueError, match="chain: a part that makes the attention weights"):
        chain(stick, fox)
    with pytest.raises(ValueError, match="put it last"):
        make("stick_breaking+cope")
    assert make("alibi+stick_breaking").walk.weighs
    assert not make("alibi+fox").walk.weighs


@pytest.mark.parametrize(("name", "option"), [("cope", "length"), ("path", "rank")])
def test_refusals_name_the_option(name, option):
    with pytest.raises(ValueError, match=rf"encoding\.{option}: 0 must be 1 or more"):
        make(name, **{option: 0})


@pytest.mark.parametrize(
    "name",
    [
        "rope+wall",
        "wall+tupe",
        "deberta+path",
        "wall+path",
        "path+mamba3_rope",
        "pope+selective_rope",
    ],
)
def test_what_replaces_the_product_of_q_and_k_stands_beside_nothing_that_changes_it(name):
    """`rope+wall` with all gates closed had logits for the keys behind them."""
    with pytest.raises(
        FieldError, match=r"^encoding.name: .* (both change|both turn) the "
    ) as error:
        make(name)
    assert "\n" not in str(error.value)
    parts = [make(part) for part in name.split("+")]
    with pytest.raises(
        ValueError, match=r"^chain: parts 1 and 2 both change the product of queries"
    ):
        chain(*parts)


@pytest.mark.parametrize(
    "name", ["ssmax+wall", "alibi+wall", "wall+fox", "path+fox", "learned+path"]
)
def test_what_leaves_the_product_of_q_and_k_alone_stands_beside_it(name):
    """The control of the test before: each is the sum of its parts or a factor of both."""
    assert make(name) == chain(*(make(part) for part in name.split("+")))


def test_closed_gates_leave_a_key_nothing_but_the_bias_beside_it():
    at, x = full(1, 6), draw(1, 6)[1]
    both, bias = make("alibi+wall", gate_bias=-60.0), make("alibi")
    q, k, _ = draw(1, 6)

    def behind(encoding, q):
        params = encoding.init(jax.random.key(2), DIMS)
        view = frame(encoding, params, at, DIMS).layer(0, x.reshape(1, 6, -1))
        return np.asarray(logits(q, k, view))[..., *np.tril_indices(6, -1)]

    np.testing.assert_allclose(behind(both, q), behind(bias, 0 * q), atol=1e-5)
    assert np.abs(behind(bias, q) - behind(bias, 0 * q)).max() > 0.1, "control: open gates"
