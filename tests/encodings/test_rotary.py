"""Rotary methods: their definitions in float64, and the traps of the public implementations."""

import types
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax.attention import frame
from posenc_jax.combinators import chain
from posenc_jax.encoding import Dims, at_layer, place
from posenc_jax.encodings import CATALOG, reach, rotary, rotary_scaling
from posenc_jax.encodings.rotation import angles, ladder
from posenc_jax.lab.definitions import SCORES
from tests.support.catalogue import gap, standing, stir

DIMS = Dims(model=24, heads=3, head=8)
FAR = [10**3, 10**6, 2**24]


def vectors(seed: int, time: int = 12, dims: Dims = DIMS, dtype=float) -> tuple:
    draw = np.random.default_rng(seed).standard_normal((2, 1, time, dims.heads, dims.head))
    return tuple(jnp.asarray(x, dtype) for x in draw)


def dims_of(x_BTHC: jax.Array) -> Dims:
    heads, head = x_BTHC.shape[2:]
    return Dims(heads * head, heads, head)


def logits(encoding, params, q_BTHC, k_BTHC, pos_BT) -> jax.Array:
    """Scores of one row as attention makes them, before the mask."""
    placed = place(encoding, None, standing(pos_BT))
    table = encoding.table(params, placed, dims_of(q_BTHC))
    q, k = (encoding.rotate(table, x, s) for x, s in ((q_BTHC, "q"), (k_BTHC, "k")))
    return jnp.einsum("bqhc,bkhc->bhqk", q, k)[0] / q_BTHC.shape[-1] ** 0.5


def counted(start: int, time: int = 12) -> jax.Array:
    return start + jnp.arange(time, dtype=jnp.int32)[None]


def spread(pos_BT: jax.Array, axes: int) -> jax.Array:
    """Positions as a method of so many axes reads them: [time,] row, column."""
    grid = [pos_BT, pos_BT // 4, pos_BT % 4]
    return pos_BT if axes == 1 else jnp.stack(grid[-axes:], axis=-1)


def first_layer(name: str, **options):
    """The method and its parameters, learned ones with noise, as the first layer uses them."""
    encoding = CATALOG[name](**options)
    stirred = stir(encoding.init(jax.random.key(0), DIMS), 1)
    return at_layer(encoding, 0, jax.tree.map(lambda leaf: leaf.astype(float), stirred))


CASES = [
    ("rope", {}),
    ("rope", {"base": 500.0, "pairing": "interleaved"}),
    ("partial", {"share": 0.5}),
    ("partial", {"share": 0.75, "pairing": "interleaved"}),
    ("p_rope", {"share": 0.5, "pairing": "interleaved"}),
    ("hope", {"base": 100.0, "length": 24, "pairing": "interleaved"}),
    ("headwise", {"base": 100.0}),
    ("headwise", {"learned": True, "pairing": "interleaved"}),
    ("axial", {}),
    ("axial", {"base": 10.0, "pairing": "interleaved"}),
    ("axial", {"bands": "alternate"}),
    ("mixed", {"pairing": "interleaved"}),
    ("mrope", {"order": "interleaved", "pairing": "interleaved"}),
    ("mrope", {"order": "interleaved", "sections": (2, 1, 1)}),
    ("tmrope", {"sections": (0, 3, 1), "rate": 7}),
    ("mhrope", {"pairing": "interleaved"}),
    ("mhrope", {"heads": (0, 1, 1)}),
    ("video_rope", {"time": 2, "pairing": "interleaved"}),
    ("dinov3", {"rows": 5, "columns": 3}),
    ("xpos", {}),
    ("xpos", {"span": 20.0, "pairing": "interleaved"}),
    ("fope", {"base": 100.0, "length": 64, "learned": True, "pairing": "interleaved"}),
    ("pope", {"uniform": True}),
    ("liere", {"block": 8}),
    ("string", {"basis": "circulant"}),
    ("pi", {"factor": 3.0}),
    ("ntk", {"factor": 3.0, "pairing": "interleaved"}),
    ("dynamic_ntk", {"length": 5}),
    ("dynamic_ntk", {"length": 5, "alpha": 2.0}),
    ("ntk_by_parts", {"length": 100}),
    ("ntk_by_parts", {"length": 100, "ramp": "pairs", "beta_slow": 0.5}),
    ("yarn", {"length": 100, "beta_fast": 8.0}),
    ("yarn", {"length": 100, "ramp": "pairs_truncated", "pairing": "interleaved"}),
    ("yarn", {"length": 100, "mscale": 0.7, "mscale_all_dim": 2.0}),
    ("resonance", {"length": 100, "factor": 3.0, "ramp": "pairs_truncated"}),
    ("resonance", {"base": 100.0, "pairing": "interleaved"}),
    ("llama3", {"length": 100, "low": 2.0, "high": 8.0, "pairing": "interleaved"}),
    ("longrope", {"length": 5, "long": (1.0, 2.0, 3.5, 4.0), "start": 5}),
    ("longrope", {"length": 50, "short": (1.0, 1.0, 1.5, 1.5)}),
]


@pytest.mark.thorough(after=2)
@pytest.mark.parametrize(("name", "options"), CASES)
def test_definition(name, options):
    """The scores are the paper's formula in complex float64 numbers, to 1e-10."""
    with jax.enable_x64(True):
        encoding, params = first_layer(name, **options)
        q, k = vectors(1)
        card = CATALOG[name].card
        pos = spread(counted(3), card.axes)
        actual = logits(encoding, params, q, k, pos)
        o = types.SimpleNamespace(**{**card.defaults, **options})
        arrays = [np.asarray(x[0]) for x in (q, k, pos)]
        wanted = SCORES[name](o, jax.tree.map(np.asarray, params), *arrays, pos.shape[1])
        assert gap(actual, wanted) < 1e-10
        assert gap(actual, logits(encoding, params, q, k, 2 * pos)) > 1e-3, "control: positions"


def test_pairings_are_two_functions():
    q, k = vectors(3)
    half, inter = (rotary.rope(pairing=p) for p in ("half", "interleaved"))
    assert gap(logits(half, {}, q, k, counted(0)), logits(inter, {}, q, k, counted(0))) > 1e-2


@pytest.mark.parametrize(
    ("build", "channels"),
    [(rotary.rope, None), (rotary.p_rope, None), (partial(rotary.partial, share=0.5), 4)],
)
@pytest.mark.parametrize(("made", "to"), [("interleaved", "half"), ("half", "interleaved")])
def test_convert_pairing(made, to, build, channels):
    """Converted weights give the other pairing's scores; unconverted ones do not."""
    rng = np.random.default_rng(4)
    x = jnp.asarray(rng.standard_normal((1, 12, DIMS.model)), float)
    w_q, w_k = (jnp.asarray(rng.standard_normal((DIMS.model, 24)), float) for _ in range(2))

    def score(pairing, w_q, w_k):
        q, k = ((x @ w).reshape(1, 12, DIMS.heads, DIMS.head) for w in (w_q, w_k))
        return logits(build(pairing=pairing), {}, q, k, counted(5))

    wanted = score(made, w_q, w_k)
    convert = lambda w, to, channels: rotary.convert_pairing(w, DIMS.heads, to, channels)
    new_q, new_k = (convert(w, to, channels) for w in (w_q, w_k))
    assert gap(wanted, score(to, new_q, new_k)) < 1e-4
    assert gap(wanted, score(to, w_q, w_k)) > 1e-1, "control: the weights as they were"
    other = None if channels else 4
    wrong = [convert(w, to, other) for w in (w_q, w_k)]
    assert gap(wanted, score(to, *wrong)) > 1e-1, "control: other channels"
    assert gap(w_q, convert(new_q, made, channels)) == 0.0


def test_convert_pairing_refuses():
    with pytest.raises(ValueError, match=r"^to: 'quarter'.*'interleaved'$"):
        rotary.convert_pairing(jnp.zeros((4, 8)), 2, to="quarter")
    with pytest.raises(ValueError, match=r"^heads: 4 do not cut 12"):
        rotary.convert_pairing(jnp.zeros((4, 12)), 4, to="half")
    with pytest.raises(ValueError, match=r"^channels: 3 is not an even number of a head's 4"):
        rotary.convert_pairing(jnp.zeros((4, 8)), 2, to="half", channels=3)


@pytest.mark.thorough(after=5)
@pytest.mark.parametrize(
    ("encoding", "head", "axes"),
    [
        (rotary.rope(), 7, 1),
        (rotary.partial(share=0.5), 6, 1),
        (rotary.p_rope(), 5, 1),
        (rotary.hope(), 7, 1),
        (rotary.headwise(), 5, 1),
        (rotary.headwise(learned=True), 5, 1),
        (rotary.xpos(), 7, 1),
        (rotary_scaling.dynamic_ntk(), 7, 1),
        (rotary_scaling.yarn(), 7, 1),
    ],
)
def test_odd_width(encoding, head, axes):
    """Refused in one line by `init`, and while tracing by `table` and by `rotate`."""
    params = encoding.init(jax.random.key(0), DIMS)
    pos = counted(0) if axes == 1 else jnp.stack([counted(0)] * axes, axis=-1)
    placed = place(encoding, None, standing(pos))
    table = encoding.table(params, placed, DIMS)
    rotate = jax.jit(lambda x: encoding.rotate(table, x, "q"))
    assert rotate(jnp.zeros((1, 12, 3, DIMS.head))).shape == (1, 12, 3, DIMS.head)
    for refused in (
        lambda: encoding.init(jax.random.key(0), Dims(head, 1, head)),
        lambda: rotate(jnp.zeros((1, 12, 3, head))),
    ):
        with pytest.raises(ValueError, match=f" {head} ") as refusal:
            refused()
        assert "\n" not in str(refusal.value)


def test_table_of_another_width():
    """A table made for other vectors is refused, not used on their first channels."""
    encoding = rotary.rope()
    table = encoding.table({}, counted(0), DIMS)
    with pytest.raises(ValueError, match="4 pairs cannot turn vectors of 8"):
        encoding.rotate(table, jnp.zeros((1, 12, 3, 16)), "q")


@pytest.mark.parametrize(
    ("build", "options", "message"),
    [
        (rotary.rope, {"base": -1.0}, "encoding.base: -1.0 must be positive"),
        (rotary.rope, {"base": float("nan")}, "encoding.base: nan is not finite"),
        (rotary.rope, {"pairing": "none"}, "encoding.pairing: 'none'.*'half', 'interleaved'"),
        (rotary.partial, {"share": 1.5}, "encoding.share: 1.5 must be above 0 and at most 1"),
        (rotary.p_rope, {"share": 0.0}, "encoding.share: 0.0 must be above 0 and at most 1"),
        (rotary.hope, {"length": 0}, "encoding.length: 0 must be 1 or more"),
        (rotary.xpos, {"span": 0.0}, "encoding.span: 0.0 must be positive"),
    ],
)
def test_refused_options(build, options, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        build(**options)


@pytest.mark.parametrize("build", [rotary.rope, rotary.partial, rotary.xpos])
def test_dtype(build):
    """bfloat16 vectors come back as bfloat16, turned by a float32 table."""
    encoding = build()
    placed = place(encoding, None, standing(counted(256)))
    table = encoding.table({}, placed, DIMS)
    assert {leaf.dtype for leaf in jax.tree.leaves(table)} == {jnp.dtype(jnp.float32)}
    q, _ = vectors(5, dtype=jnp.bfloat16)
    turned = encoding.rotate(table, q, "q")
    assert turned.dtype == jnp.bfloat16
    exact = encoding.rotate(table, q.astype(jnp.float32), "q")
    assert gap(turned, exact) < 2e-2
    same = jnp.broadcast_to(q[:, :1], q.shape)
    first, second = encoding.rotate(table, same, "q")[0, :2]
    assert gap(first, second) > 1e-1, "control: positions 256 and 257 must differ"


def test_partial():
    """The channels past the share come through untouched, and all of them turned is rope."""
    q, _ = vectors(6)
    encoding = rotary.partial(share=0.5)
    turned = encoding.rotate(encoding.table({}, counted(1), DIMS), q, "q")
    assert gap(turned[..., 4:], q[..., 4:]) == 0.0
    assert gap(turned[..., :4], q[..., :4]) > 1e-1
    whole, rope = rotary.partial(share=1.0), rotary.rope()
    rotated, other = (e.rotate(e.table({}, counted(1), DIMS), q, "q") for e in (whole, rope))
    assert gap(rotated, other) == 0.0


def test_headwise_bands():
    """Fixed: no arrays. Learned: starts at the bands, and its gradient is the score's slope."""
    fixed, learned = rotary.headwise(), rotary.headwise(learned=True)
    keep = fixed.init(jax.random.key(0), DIMS)
    params = learned.init(jax.random.key(0), DIMS)
    assert jax.tree.leaves(keep) == []
    freq_HF = params["freq_HF"]
    assert freq_HF.shape == (3, 4)
    assert float(freq_HF[0, 0]) == 1.0
    assert bool((jnp.diff(freq_HF.reshape(-1)) < 0).all())
    q, k = vectors(7)
    score = lambda params: logits(learned, params, q, k, counted(0))
    assert gap(logits(fixed, keep, q, k, counted(0)), score(params)) < 1e-5
    weights = jnp.asarray(np.random.default_rng(0).standard_normal((3, 12, 12)), float)
    loss = lambda freq_HF: (score({"freq_HF": freq_HF}) * weights).sum()
    slope = jax.grad(loss)(freq_HF)
    step = jnp.zeros((3, 4)).at[1, 2].set(1e-2)
    assert abs(float((loss(freq_HF + step) - loss(freq_HF - step)) / 2e-2 - slope[1, 2])) < 2e-2
    assert float(jnp.abs(slope).min()) > 1e-2


XPOS_FAR = [
    # tokens, dtype, span, tolerance, and whether the tokens at the ends are held
    (2_000, "float32", 512.0, 1e-5, True),
    (32_695, "float32", 512.0, 1e-5, True),
    (32_700, "float32", 512.0, 1e-5, False),
    (40_000, "float32", 512.0, 1e-5, False),
    (40_000, "float32", 640.0, 1e-5, True),
    (40_000, "bfloat16", 640.0, 2e-2, True),
    (6_500, "float16", 512.0, 2e-3, True),
    (6_600, "float16", 512.0, 2e-3, False),
]


@pytest.mark.thorough(after=1)
@pytest.mark.parametrize(("time", "dtype", "span", "tolerance", "held"), XPOS_FAR)
def test_xpos_far(time, dtype, span, tolerance, held):
    """Scores at one distance are the definition's in rows of any length, or NaN at their ends."""
    encoding, distance = rotary.xpos(span=span), 512
    ones_BTHC = jnp.ones((1, time, 1, 16), dtype)
    placed = place(encoding, None, standing(counted(0, time)))
    table = encoding.table({}, placed, Dims(16, 1, 16))
    q, k = (encoding.rotate(table, ones_BTHC, side)[0, :, 0] for side in "qk")
    q, k = (np.asarray(x_TC, np.float64) for x_TC in (q, k))
    score_T = (q[distance:] * k[:-distance]).sum(-1) / 4
    ones = np.ones((distance + 1, 1, 16))
    o = types.SimpleNamespace(base=1e4, pairing="half", span=span)
    wanted, nearer = SCORES["xpos"](o, {}, ones, ones, np.arange(distance + 1), 0)[0, -1, [0, 50]]
    assert abs(nearer / wanted - 1) > 2 * tolerance, "control: another distance"
    middle = time // 2 - distance
    assert abs(score_T[middle] / wanted - 1) < tolerance
    is_number = ~np.isnan(score_T)
    assert is_number.all() == held
    assert is_number[0] == is_number[-1] == held
    np.testing.assert_allclose(score_T[is_number], wanted, rtol=tolerance)
    if dtype != "float16":
        assert (reach("xpos", span=span) >= time) == held


@pytest.mark.thorough
def test_xpos_one_centre():
    """Queries and keys count from one middle: placed apart, short queries lose the decay."""
    encoding = rotary.xpos(span=8.0)
    q, k = vectors(9)
    pos = counted(0)
    placed = place(encoding, None, standing(pos))
    last = jax.tree.map(lambda leaf: leaf[:, -1:], placed)
    score = lambda placed: (
        jnp.einsum(
            "bqhc,bkhc->bhqk",
            encoding.rotate(encoding.table({}, placed, DIMS), q[:, -1:], "q"),
            encoding.rotate(encoding.table({}, place(encoding, None, standing(pos)), DIMS), k, "k"),
        )[0]
        / 8**0.5
    )
    full = logits(encoding, {}, q, k, pos)[:, -1:]
    assert gap(full, score(last)) < 1e-6
    assert gap(full, score(place(encoding, None, standing(pos[:, -1:])))) > 1e-2
    for keys in (standing(pos), standing(pos.astype(float))):
        apart = tuple(place(encoding, None, side) for side in (standing(pos[:, -1:]), keys))
        for placed in (None, apart):
            view = frame(encoding, {}, standing(pos[:, -1:]), DIMS, keys, placed=placed)
            turned = view.layer(0).rotate(q[:, -1:], k)
            actual = jnp.einsum("bqhc,bkhc->bhqk", *turned)[0] / 8**0.5
            assert gap(full, actual) < 1e-6, "cross-attention"


def test_bases_do_not_share_a_table():
    """Two bases in one program keep their own angles."""
    one, other = rotary.rope(), rotary.rope(base=500.0)
    both = jax.jit(lambda pos: (one.table({}, pos, DIMS).cos, other.table({}, pos, DIMS).cos))
    first, second = both(counted(0))
    assert gap(first, np.cos(angles(counted(0), ladder(8, 10_000.0)[None]))) < 1e-6
    assert gap(first, second) > 1e-1


def test_chain_hands_the_width_on():
    encoding = chain(rotary.rope())
    q, k = vectors(10)
    params = encoding.init(jax.random.key(0), DIMS)
    alone = logits(rotary.rope(), {}, q, k, counted(0))
    assert gap(alone, logits(encoding, params, q, k, counted(0))) == 0.0
    assert gap(alone, logits(chain(rotary.rope(base=9.0)), params, q, k, counted(0))) > 1e-2
