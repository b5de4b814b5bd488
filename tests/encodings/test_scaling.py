"""Context extension of rotary: identities, frozen frequencies, and the temperature."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax.encoding import Dims, place
from posenc_jax.encodings import CATALOG, extension, rotary, rotary_scaling
from posenc_jax.layout import full, layout
from tests.encodings.test_rotary import counted, logits, vectors
from tests.support.catalogue import gap, standing, stir

METHODS = [
    rotary_scaling.pi,
    rotary_scaling.ntk,
    rotary_scaling.dynamic_ntk,
    rotary_scaling.ntk_by_parts,
    rotary_scaling.yarn,
    extension.llama3,
    extension.longrope,
]

# 1 / inv_freq formulas of the authors' code and of Hugging Face, computed apart in float64 for a
# head of 16, base 10000, length 2048.
FROZEN = [
    (
        rotary_scaling.ntk(factor=4.0),
        [1.0, 0.2594128170149228, 0.06729500963161782, 0.017457188019584336, 0.004528618321319533,
         0.0011747816359188909, 0.00030475341355111886, 7.905694150420948e-05],
    ),
    (
        rotary_scaling.dynamic_ntk(length=2048),  # at 6144 tokens
        [1.0, 0.27029612569240363, 0.07305999556432365, 0.019747833744140873, 0.005337762951858991,
         0.001442776645751933, 0.000389976937586229, 0.00010540925533894597],
    ),
    (
        rotary_scaling.dynamic_ntk(length=2048, alpha=2.0),
        [1.0, 0.25127376217164404, 0.06313850355589193, 0.01586504932637669, 0.003986470631277377,
         0.0010016954733078351, 0.0002516997901283654, 6.324555320336759e-05],
    ),
    (
        rotary_scaling.yarn(factor=4.0, length=2048, ramp="pairs_truncated"),
        [1.0, 0.31622776601683794, 0.1, 0.02569350598886808, 0.00625, 0.0013834964763236662,
         0.00025, 7.905694150420948e-05],
    ),
    (
        rotary_scaling.yarn(factor=4.0, length=2048, ramp="pairs"),
        [1.0, 0.31622776601683794, 0.1, 0.023870192321736323, 0.005056971521129435,
         0.0008112903817014311, 0.00025, 7.905694150420948e-05],
    ),
    (
        extension.llama3(),
        [1.0, 0.19392274474868576, 0.03760603093086393, 0.0072926647372171085,
         0.0005248461609929547, 3.428102195952591e-05, 6.647869871181236e-06,
         1.2891731721515574e-06],
    ),
    (
        extension.llama3(base=10_000.0, length=600),
        [1.0, 0.31622776601683794, 0.1, 0.022581652274134386, 0.00125, 0.00039528470752104737,
         0.000125, 3.952847075210474e-05],
    ),
    (
        extension.longrope(long=(1.0, 1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 3.75)),
        [1.0, 0.31622776601683794, 0.08, 0.021081851067789197, 0.005, 0.0012649110640673518,
         0.0003333333333333333, 8.432740427115677e-05],
    ),
    (
        rotary_scaling.yarn(factor=4.0, length=2048),
        [1.0, 0.31622776601683794, 0.1, 0.015026497703256057, 0.0030466515889972625,
         0.000792921404744199, 0.00025, 7.905694150420948e-05],
    ),
]  # fmt: skip


def table_of(encoding, pos_BT, length, head: int = 16):
    return encoding.table({}, place(encoding, None, standing(pos_BT, length)), Dims(head, 1, head))


@pytest.mark.parametrize(("encoding", "wanted_F"), FROZEN)
def test_frozen_frequencies(encoding, wanted_F):
    with jax.enable_x64(True):
        table = table_of(encoding, counted(1, 1), 6144)
        freq_F = np.arctan2(table.sin, table.cos)[0, 0, 0]
    np.testing.assert_allclose(freq_F, wanted_F, rtol=1e-12)
    plain_F = 10_000.0 ** (-np.arange(8) / 8)
    assert gap(freq_F, plain_F) > 1e-3, "control: rope itself"


@pytest.mark.parametrize("build", METHODS)
@pytest.mark.parametrize("pairing", ["half", "interleaved"])
def test_methods_with_nothing_to_extend_equal_rope(build, pairing):
    """With nothing to extend, every method is rope to the bit: one set of weights serves all."""
    q, k = vectors(1)
    assert build().init(jax.random.key(0), Dims(24, 3, 8)) == {}
    nothing = {"length": 1000} if build is rotary_scaling.dynamic_ntk else {"factor": 1.0}
    same = build(base=500.0, pairing=pairing, **nothing)
    rope = rotary.rope(base=500.0, pairing=pairing)
    pos = counted(1000)
    assert gap(logits(same, {}, q, k, pos), logits(rope, {}, q, k, pos)) == 0.0
    option = {
        rotary_scaling.dynamic_ntk: {"length": 6},
        extension.llama3: {"factor": 1.5, "length": 64},
    }.get(build, {"factor": 1.5})
    other = build(base=500.0, pairing=pairing, **option)
    assert gap(logits(other, {}, q, k, pos), logits(rope, {}, q, k, pos)) > 1e-3, "control"


def test_pi_is_rope_at_divided_positions():
    at, spread = counted(7), 5 * counted(7)
    pi, rope = rotary_scaling.pi(factor=5.0), rotary.rope()
    for divided, other in zip(table_of(pi, spread, 12), table_of(rope, at, 12), strict=True):
        assert gap(divided, other) < 1e-6
    assert gap(table_of(pi, at, 12).cos, table_of(rope, at, 12).cos) > 1e-2


def test_ntk_ends():
    """The fastest pair keeps its frequency, the slowest is divided by the factor."""
    with jax.enable_x64(True):
        one, rope = (
            np.arctan2(t.sin, t.cos)[0, 0, 0]
            for t in (table_of(e, counted(1, 1), 1) for e in (rotary_scaling.ntk(), rotary.rope()))
        )
    assert abs(one[0] / rope[0] - 1) < 1e-12
    assert abs(one[-1] / rope[-1] - 1 / 4) < 1e-12
    assert abs(one[1] / rope[1] - 1) > 1e-2


@pytest.mark.parametrize("name", ["ntk", "dynamic_ntk", "yarn", "ntk_by_parts", "pi", "xpos"])
def test_one_pair(name):
    """A head of two channels has one pair, and no C - 2 to divide by."""
    q, k = vectors(2, dims=Dims(2, 1, 2))
    encoding = CATALOG[name]()
    assert bool(jnp.isfinite(logits(encoding, {}, q, k, counted(0))).all())


def test_yarn_temperature_is_applied_once():
    """q and k each carry 0.1 ln s + 1, so logits carry its square, and no more."""
    q, k = vectors(3)
    options = {"factor": 8.0, "length": 64}
    yarn, parts = rotary_scaling.yarn(**options), rotary_scaling.ntk_by_parts(**options)
    root = 0.1 * np.log(8.0) + 1
    table = table_of(yarn, counted(0), 12, 8)
    assert gap(np.hypot(table.cos, table.sin), root) < 1e-6
    plain = logits(parts, {}, q, k, counted(0))
    actual = logits(yarn, {}, q, k, counted(0))
    assert gap(actual, plain * root**2) < 1e-5
    assert gap(actual, plain * root) > 1e-1, "control: on one side only"
    assert gap(actual, plain * root**4) > 1e-1, "control: applied twice"


def test_yarn_quotient_of_temperatures():
    """DeepSeek's numbers: equal ones cancel; mscale alone is the temperature with its weight."""

    def root(**options):
        yarn = rotary_scaling.yarn(factor=8.0, **options)
        return float(np.hypot(*table_of(yarn, counted(1, 1), 12))[0, 0, 0, 0])

    at = lambda scale: 0.1 * scale * np.log(8.0) + 1
    assert abs(root(mscale=0.707, mscale_all_dim=0.707) - 1) < 1e-6
    assert abs(root(mscale=0.707, mscale_all_dim=2.0) - at(0.707) / at(2.0)) < 1e-6
    assert abs(root(mscale=0.707) - at(0.707)) < 1e-6
    assert abs(root() - at(1.0)) < 1e-6
    assert at(1.0) - at(0.707) > 0.05


def test_dynamic_ntk_decodes_as_it_reads():
    """One token at a time with the length stated equals the full pass; a growing one does not."""
    encoding = rotary_scaling.dynamic_ntk(length=4)
    full = table_of(encoding, counted(0), 12)
    for t in range(12):
        step = table_of(encoding, counted(t, 1), 12)
        assert gap(step.cos, full.cos[:, t : t + 1]) < 1e-6
    assert gap(table_of(encoding, counted(8, 1), 9).cos, full.cos[:, 8:9]) > 1e-2


@pytest.mark.thorough
def test_dynamic_ntk_length_of_each_sequence():
    """Packed documents are stretched each by its own length; short ones are rope to the bit."""
    encoding = rotary_scaling.dynamic_ntk(length=4)
    pos = jnp.asarray([[0, 1, 2, 0, 1, 2, 3, 4, 5]], jnp.int32)
    length = jnp.asarray([[3] * 3 + [6] * 6], jnp.int32)
    table = encoding.table({}, place(encoding, None, standing(pos, length)), Dims(16, 1, 16))
    rope = rotary.rope().table({}, pos, Dims(16, 1, 16))
    assert gap(table.cos[:, :3], rope.cos[:, :3]) == 0.0
    assert gap(table.cos[:, 3:], rope.cos[:, 3:]) > 1e-2
    assert gap(table.cos[:, 3:], table_of(encoding, pos[:, 3:], 6).cos) < 1e-6


CLEX = rotary_scaling.clex(length=4, scales=3)


def frequencies(encoding, params, length, head=8):
    """The frequencies of a sequence of so many tokens, in float64."""
    with jax.enable_x64(True):
        placed = place(encoding, None, standing(counted(1, 1), length))
        table = encoding.table(params, placed, Dims(head, 1, head))
        return np.arctan2(table.sin, table.cos)[0, 0, 0]


def test_clex_starts_as_ntk_by_the_length():
    """Up to the length it is rope; twice as long, ntk of factor 3; past the largest scale, of 5."""
    params = CLEX.init(jax.random.key(0), Dims(8, 1, 8))
    for length, factor in ((4, 1.0), (5, 3.0), (8, 3.0), (9, 5.0), (99, 5.0)):
        ntk_F = frequencies(rotary_scaling.ntk(factor=factor), {}, length)
        assert gap(frequencies(CLEX, params, length), ntk_F) < 1e-12
    moved = stir(params, 1)
    rope_F = frequencies(rotary.rope(), {}, 4)
    assert gap(frequencies(CLEX, moved, 4), rope_F) < 1e-12, "within the length nothing is learned"
    assert gap(frequencies(CLEX, moved, 8), frequencies(CLEX, params, 8)) > 1e-3, "control"


@pytest.mark.thorough
def test_clex_positions_in_training():
    """Sorted and distinct, the first and the last of s n; padding and packing change no draw."""
    draw = jax.jit(lambda key, at: CLEX.place(key, at))
    shown_BT, scale_BT = map(np.asarray, draw(jax.random.key(0), full(300, 4)))
    scale_B = scale_BT[:, 0]
    assert (scale_BT == scale_B[:, None]).all()
    assert min(np.bincount(scale_B, minlength=4)[1:]) > 60
    np.testing.assert_array_equal(shown_BT[:, 0], 0)
    np.testing.assert_array_equal(shown_BT[:, -1], scale_B * 4 - 1)
    assert (np.diff(shown_BT) > 0).all()
    inner_B = shown_BT[scale_B == 3, 1]
    assert set(inner_B) <= set(range(1, 10))
    assert len(set(inner_B)) > 5, "control: plain positions are 1 alone"
    rows = np.array([[1] * 4 + [0] * 9, [0] * 3 + [1] * 4 + [2] * 6, [2] * 13])
    actual, _ = draw(jax.random.key(0), layout(jnp.asarray(rows)))
    bare, _ = draw(jax.random.key(0), full(3, 4))
    np.testing.assert_array_equal(actual[0, :4], bare[0])
    np.testing.assert_array_equal(actual[1, 3:7], bare[1])
    assert (np.diff(actual[1, 7:]) > 0).all()
    assert actual[1, -1] in (7, 11), (
        "6 tokens, more than the length: positions below 2 or 3 times 4"
    )
    assert np.isnan(actual[2]).all(), "13 tokens do not fit below 3 times 4"
    assert np.isfinite(actual[:2]).all()


@pytest.mark.parametrize(
    ("build", "options", "message"),
    [
        (rotary_scaling.pi, {"factor": 0.5}, "encoding.factor: 0.5 must be 1 or more"),
        (rotary_scaling.yarn, {"factor": 0.0}, "encoding.factor: 0.0 must be 1 or more"),
        (rotary_scaling.ntk, {"factor": float("inf")}, "encoding.factor: inf is not finite"),
        (rotary_scaling.ntk, {"base": 0.0}, "encoding.base: 0.0 must be positive"),
        (rotary_scaling.dynamic_ntk, {"length": 0}, "encoding.length: 0 must be 1 or more"),
        (rotary_scaling.dynamic_ntk, {"alpha": 0.0}, "encoding.alpha: 0.0 must be positive"),
        (rotary_scaling.clex, {"scales": 0}, "encoding.scales: 0 must be 1 or more"),
        (rotary_scaling.clex, {"length": 0}, "encoding.length: 0 must be 1 or more"),
        (
            rotary_scaling.yarn,
            {"beta_slow": 40.0},
            "encoding.beta_fast: 32.0 must be beta_slow 40.0 or more",
        ),
        (rotary_scaling.yarn, {"mscale": -1.0}, "encoding.mscale: -1.0 must be 0 or more"),
        (rotary_scaling.yarn, {"ramp": "none"}, "encoding.ramp: 'none' is not one of: 'turns'"),
        (rotary_scaling.yarn, {"ramp": "pairs", "base": 1.0}, "encoding.base: 1.0 must be above 1"),
        (rotary_scaling.ntk_by_parts, {"pairing": "x"}, "encoding.pairing: 'x' is not one of"),
    ],
)
def test_refused_options(build, options, message):
    with pytest.raises(ValueError, match=f"^{message}") as refusal:
        build(**options)
    assert "\n" not in str(refusal.value)
