"""Methods at the input, against their definitions and the traps of their formulas."""

import functools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax import Dims, make
from posenc_jax.encodings import card, reach
from posenc_jax.lab.definitions import EMBEDS
from posenc_jax.layout import full, layout

TIME = 24
BOUNDED = ("clamp", "interpolate", "error")
PARITY = [
    *[(name, {"how": how}) for name in ("index", "normalized") for how in ("add", "concat")],
    *[("binary", {"length": 16, "beyond": beyond}) for beyond in BOUNDED],
    ("binary", {"length": 30, "how": "concat"}),
    *[("one_hot", {"length": 16, "beyond": beyond}) for beyond in BOUNDED],
    ("one_hot", {"length": 30, "how": "concat"}),
    *[
        ("sinusoidal", {"pairing": wave, "spacing": spacing, "width": width})
        for wave in ("interleaved", "half")
        for spacing in ("paper", "tensor2tensor")
        for width in (None, 7, 2)
    ],
    ("sinusoidal", {"base": 100.0, "start": 1, "scale": 0.5, "how": "concat"}),
    *[("learned", {"length": 16, "beyond": beyond}) for beyond in BOUNDED],
    ("learned", {"length": 30, "beyond": "interpolate", "how": "concat", "width": 5}),
    ("learned", {"length": 30, "width": 5}),
    *[("rbf", {"length": 16, "beyond": beyond}) for beyond in BOUNDED],
    ("rbf", {"length": 30, "bump": 1.5, "width": 9, "how": "concat"}),
    *[("learned_2d", {"length": 3, "beyond": beyond}) for beyond in ("clamp", "error")],
    ("learned_2d", {"width": 5, "how": "concat"}),
    ("learned_2d", {"join": "sum"}),
    ("learned_2d", {"join": "sum", "width": 5}),
    ("sinusoidal", {"first": "cosine", "pairing": "half", "width": 7}),
    ("sinusoidal_2d", {"normalized": True, "pairing": "interleaved"}),
    *[
        (
            "learned_grid",
            {"rows": 3, "columns": 2, "image_rows": 4, "image_columns": 6, "resize": way},
        )
        for way in (
            "bicubic",
            "bilinear",
            "zeros",
            "corners",
            "nearest",
            "tiles",
            "bilinear_antialiased",
        )
    ],
    (
        "learned_grid",
        {
            "rows": 9,
            "columns": 8,
            "image_rows": 4,
            "image_columns": 6,
            "prefix": 1,
            "resize": "bicubic_antialiased",
        },
    ),
    *[
        ("learned_grid", {"rows": 3, "columns": 5, "beyond": beyond})
        for beyond in ("clamp", "error")
    ],
    *[
        ("sinusoidal_2d", {"pairing": wave, "width": width})
        for wave in ("interleaved", "half")
        for width in (None, 8, 11)
    ],
    ("sinusoidal_2d", {"base": 50.0, "how": "concat"}),
]


def positions(name, batch=2):
    """Positions of whole rows: 0 .. 23, or a grid of 4 rows and 6 columns."""
    if card(name).axes == 1:
        return full(batch, TIME)
    grid = np.stack(np.divmod(np.arange(TIME), 6), axis=-1)
    pos = jnp.asarray(np.broadcast_to(grid, (batch, TIME, 2)), jnp.int32)
    return layout(jnp.ones((batch, TIME), jnp.int32), pos)


@functools.partial(jax.jit, static_argnums=0)
def run(function, *args):
    return function(*args)


def shown(encoding, where, model=32, seed=0, x=None, params=None):
    """(output, embeddings, parameters) of the encoding on random embeddings."""
    x_key, key = jax.random.split(jax.random.key(seed))
    params = encoding.init(key, Dims(model, 4, model // 4)) if params is None else params
    x = jax.random.normal(x_key, (*where.pos_BT.shape[:2], model)) if x is None else x
    placed = where.pos_BT
    if encoding.place is not None:
        placed = encoding.place(None, where)
    return run(encoding.embed, params, x, placed), x, params


def codes(name, time=TIME, **options):
    """What the method adds to embeddings of zeros, [T, D], in float64."""
    where = full(1, time)
    return np.asarray(shown(make(name, **options), where, x=jnp.zeros((1, time, 32)))[0][0])


def defined(name, options, params, x_BTD, where):
    """The card's definition, row by row."""
    o = SimpleNamespace(**(card(name).defaults | options))
    params = jax.tree.map(np.asarray, params)
    rows = zip(np.asarray(x_BTD), np.asarray(where.pos_BT), strict=True)
    n = int(where.length_BT[0, 0])
    return np.stack([EMBEDS[name](o, params, x, pos, n) for x, pos in rows])


@pytest.mark.thorough(after=5)
@pytest.mark.parametrize(("name", "options"), PARITY)
def test_equals_its_definition_in_float64(name, options):
    with jax.enable_x64(True):
        where = positions(name)
        out, x, params = shown(make(name, **options), where)
        assert out.dtype == jnp.float64
        expected = defined(name, options, params, x, where)
        np.testing.assert_allclose(out, expected, rtol=1e-12, atol=1e-12)
        moved = where.replace(pos_BT=where.pos_BT + 1)
        control = defined(name, options, params, x, moved)
        assert not np.allclose(out, control, rtol=1e-6, atol=1e-6, equal_nan=True)


def test_the_worked_example_that_circulates_wrongly():
    out = shown(make("sinusoidal"), full(1, 2), model=4, x=jnp.zeros((1, 2, 4)))[0]
    np.testing.assert_allclose(out[0, 1], [0.8415, 0.5403, 0.0100, 0.99995], atol=5e-5)
    assert not np.allclose(out[0, 1], [0.8415, 0.5403, 0.9950, 0.0998], atol=5e-2)


def test_halves_and_interleaved_are_permutations():
    pairs, halves = codes("sinusoidal"), codes("sinusoidal", pairing="half")
    np.testing.assert_array_equal(
        pairs, halves.reshape(TIME, 2, 16).swapaxes(1, 2).reshape(TIME, 32)
    )
    assert not np.array_equal(pairs, halves)


@pytest.mark.parametrize("wave", ["interleaved", "half"])
def test_an_odd_last_channel_is_zero(wave):
    out = shown(
        make("sinusoidal", pairing=wave), full(1, TIME), model=7, x=jnp.zeros((1, TIME, 7))
    )[0]
    assert np.all(out[0, :, 6] == 0)
    assert np.all(np.any(np.asarray(out[0, :, :6]) != 0, axis=0))


def test_tensor2tensor_spacing_reaches_the_base_and_the_papers_does_not():
    slowest = codes("sinusoidal", pairing="half", spacing="tensor2tensor")[:, 15]
    np.testing.assert_allclose(slowest, np.sin(np.arange(TIME) / 10_000.0), atol=1e-7)
    paper = codes("sinusoidal", pairing="half")[:, 15]
    assert np.max(np.abs(paper - slowest)) > 1e-4


def test_starting_at_one_is_one_position_further():
    np.testing.assert_array_equal(codes("sinusoidal", start=1)[:-1], codes("sinusoidal")[1:])
    assert not np.array_equal(codes("sinusoidal", start=1), codes("sinusoidal"))


def test_the_scale_is_learned_where_one_is_given():
    encoding = make("sinusoidal", scale=2.0)
    where, x = full(1, TIME), jnp.zeros((1, TIME, 32))
    out, _, params = shown(encoding, where, x=x)
    np.testing.assert_allclose(out[0], 2 * codes("sinusoidal"), rtol=1e-6)
    slope = jax.grad(lambda p: encoding.embed(p, x, where.pos_BT).sum())(params)["scale"]
    np.testing.assert_allclose(slope, codes("sinusoidal").sum(), rtol=1e-4)
    assert make("sinusoidal").init(jax.random.key(0), Dims(32, 4, 8)) == {}


def test_far_positions_keep_their_sines():
    pos = np.array([[1_000_000, 1_000_001, 16_000_001]])
    out = make("sinusoidal", pairing="half").embed({}, jnp.zeros((1, 3, 32)), jnp.asarray(pos))
    exact = np.sin(pos[0][:, None] / 10_000.0 ** (np.arange(16) / 16))
    assert np.max(np.abs(np.asarray(out)[0, :, :16] - exact)) < 1e-6
    rates = np.float32(10_000.0 ** (-np.arange(16) / 16))
    assert np.max(np.abs(np.sin(np.float32(pos[0])[:, None] * rates) - exact)) > 1e-2


def test_a_single_token_is_at_share_zero():
    where = full(1, 1)
    out, x, _ = shown(make("normalized"), where)
    np.testing.assert_array_equal(out, x)
    with np.errstate(invalid="ignore"):
        assert np.isnan(np.float32(where.pos_BT[0, 0]) / np.float32(where.length_BT[0, 0] - 1))


def test_a_share_depends_on_the_length_and_a_counter_does_not():
    assert not np.allclose(codes("normalized", 12), codes("normalized", 24)[:12], atol=1e-3)
    np.testing.assert_array_equal(codes("index", 12), codes("index", 24)[:12])


@pytest.mark.thorough(after=1)
@pytest.mark.parametrize("name", ["learned", "one_hot", "binary", "rbf"])
def test_range_policies(name):
    """Within the range all three agree to the bit; past it each does what it says."""
    within = {beyond: codes(name, 16, beyond=beyond, length=16) for beyond in BOUNDED}
    np.testing.assert_array_equal(within["interpolate"], within["error"])
    np.testing.assert_array_equal(within["clamp"], within["error"])

    past = {beyond: codes(name, 21, beyond=beyond, length=16) for beyond in BOUNDED}
    np.testing.assert_array_equal(past["error"][:16], within["error"])
    assert np.all(np.isnan(past["error"][16:]))
    np.testing.assert_array_equal(past["clamp"][16:], np.repeat(within["clamp"][-1:], 5, axis=0))
    np.testing.assert_allclose(past["interpolate"][[0, -1]], within["clamp"][[0, -1]], atol=1e-6)
    np.testing.assert_allclose(past["interpolate"][4], within["clamp"][3], atol=1e-6)
    assert not np.allclose(past["interpolate"][:16], within["clamp"], atol=1e-3)

    most = {beyond: reach(name, beyond=beyond, length=16) for beyond in BOUNDED}
    assert most == {"clamp": None, "interpolate": None, "error": 16}


def test_bits_are_those_of_the_number():
    encoding = make("binary", length=9)
    eye = {"code": jnp.eye(4)}
    out = encoding.embed(eye, jnp.zeros((1, 9, 4)), full(1, 9).pos_BT)[0].astype(int)
    assert ["".join(map(str, row[::-1])) for row in out.tolist()] == [f"{t:04b}" for t in range(9)]
    steps = np.abs(np.diff(out, axis=0)).sum(axis=1)
    assert steps.tolist() == [1, 2, 1, 3, 1, 2, 1, 4]
    assert make("binary", length=8).init(jax.random.key(0), Dims(4, 1, 4))["code"].shape == (3, 4)


def test_a_fraction_is_read_on_the_line_between_two_rows():
    encoding = make("learned", length=4)
    table = encoding.init(jax.random.key(0), Dims(8, 2, 4))["table"]
    pos = jnp.asarray([[1.25, 3.0, 3.5]])
    out = encoding.embed({"table": table}, jnp.zeros((1, 3, 8)), pos)[0]
    np.testing.assert_allclose(out[0], 0.75 * table[1] + 0.25 * table[2], rtol=1e-6)
    np.testing.assert_array_equal(out[1], table[3])
    np.testing.assert_array_equal(out[2], table[3])
    assert not np.allclose(out[0], table[1])


def test_a_one_hot_code_added_is_a_learned_table():
    one_hot, where = make("one_hot", length=TIME), full(1, TIME)
    out, x, params = shown(one_hot, where)
    same = make("learned", length=TIME).embed({"table": params["code"]}, x, where.pos_BT)
    np.testing.assert_array_equal(out, same)
    other = make("learned", length=TIME).embed({"table": -params["code"]}, x, where.pos_BT)
    assert not np.allclose(out, other)


@pytest.mark.parametrize("name", ["learned", "one_hot", "sinusoidal", "index"])
def test_a_code_beside_leaves_the_tokens_their_own_columns(name):
    """x P_x + c P_c: the code's part is the same whatever the tokens are, and P_x mixes them."""
    encoding, where = make(name, how="concat"), full(1, TIME)
    out, x, params = shown(encoding, where)
    bare = shown(encoding, where, x=jnp.zeros_like(x), params=params)[0]
    np.testing.assert_allclose(out - bare, x @ params["x"], atol=1e-4)
    assert not np.allclose(out - bare, x, atol=1e-1)


@pytest.mark.parametrize("name", ["sinusoidal", "one_hot"])
def test_matrices_keep_lengths_at_the_start(name):
    """Tokens of unit variance stay so beside a code; so does a one-hot code's length of one."""
    encoding, where = make(name, how="concat"), full(2, 64)
    out, x, params = shown(encoding, where, model=256)
    bare = shown(encoding, where, model=256, x=jnp.zeros_like(x), params=params)[0]
    assert 0.9 < float(jnp.var(out - bare)) < 1.1
    if name == "one_hot":
        assert 0.9 < float(jnp.mean(jnp.linalg.norm(bare, axis=-1))) < 1.1


def gram_deviation(code_TD, width):
    """How far dot products in the middle of the range are from exp(-(t - u)^2 / 4 s^2)."""
    middle = code_TD[24:40].astype(np.float64)
    gram = middle @ middle.T
    apart = np.subtract.outer(np.arange(16), np.arange(16))
    return np.max(np.abs(gram / gram[0, 0] - np.exp(-(apart**2) / (4 * width**2))))


def test_dot_products_of_bumps_are_a_gaussian_kernel():
    """32 centres over 64 tokens, a grid step of 2.03: exact once bumps are as wide as a step."""
    measured = {s: gram_deviation(codes("rbf", 64, length=64, bump=s), s) for s in (1.0, 2.0, 4.0)}
    assert measured[2.0] < 1e-3
    assert measured[4.0] < 1e-6
    assert measured[1.0] > 1e-2
    assert gram_deviation(codes("sinusoidal", 64), 2.0) > 1e-1


def test_columns_come_first_in_learned_tables_and_rows_in_sines():
    def reads(name):
        where = positions(name, 1)
        out = np.asarray(shown(make(name), where, x=jnp.zeros((1, TIME, 32)))[0][0])
        grid = out.reshape(4, 6, 2, 16)
        return [(bool(np.ptp(h, axis=0).any()), bool(np.ptp(h, axis=1).any())) for h in
                (grid[:, :, 0], grid[:, :, 1])]  # fmt: skip

    row_alone, column_alone = (True, False), (False, True)
    assert reads("learned_2d") == [column_alone, row_alone]
    assert reads("sinusoidal_2d") == [row_alone, column_alone]


def test_sines_of_a_grid_are_those_of_moco_v3():
    """[sin row, cos row, sin column, cos column], each D/4 wide with exponents k/(D/4)."""
    rates = 10_000.0 ** (-np.arange(8) / 8)
    row, column = 3 * rates, 5 * rates
    waves = [np.sin(row), np.cos(row), np.sin(column), np.cos(column)]
    where = positions("sinusoidal_2d", 1)
    out = shown(make("sinusoidal_2d"), where, x=jnp.zeros((1, TIME, 32)))[0][0, 3 * 6 + 5]
    np.testing.assert_allclose(out, np.concatenate(waves), atol=1e-6)
    assert not np.allclose(out, np.concatenate(waves[2:] + waves[:2]), atol=1e-2)


@pytest.mark.parametrize("name", ["index", "sinusoidal", "learned", "one_hot", "sinusoidal_2d"])
@pytest.mark.parametrize("how", ["add", "concat"])
def test_the_output_has_the_embeddings_dtype(name, how):
    where = positions(name)
    x = jnp.ones((2, TIME, 32), jnp.bfloat16)
    out = shown(make(name, how=how), where, x=x)[0]
    assert out.dtype == jnp.bfloat16
    exact = shown(make(name, how=how), where, x=x.astype(jnp.float32))[0]
    np.testing.assert_array_equal(out, exact.astype(jnp.bfloat16))


@pytest.mark.parametrize(
    ("name", "options", "line"),
    [
        ("sinusoidal", {"base": -1.0}, "encoding.base: -1.0 must be positive"),
        ("sinusoidal", {"width": 0}, "encoding.width: 0 must be 1 or more"),
        ("learned", {"length": 0}, "encoding.length: 0 must be 1 or more"),
        ("learned_2d", {"length": 0}, "encoding.length: 0 must be 1 or more"),
        ("binary", {"length": -1}, "encoding.length: -1 must be 1 or more"),
        ("rbf", {"bump": 0.0}, "encoding.bump: 0.0 must be positive"),
        ("rbf", {"length": 1}, "encoding.length: 1 must be 2 or more"),
    ],
)
def test_refuses_bad_values_in_one_line(name, options, line):
    with pytest.raises(ValueError, match="encoding") as error:
        make(name, **options)
    assert str(error.value) == line


@pytest.mark.parametrize(
    ("name", "option"), [("sinusoidal", "pairing"), ("learned", "beyond"), ("index", "how")]
)
def test_refuses_an_unknown_choice_of_a_direct_call(name, option):
    with pytest.raises(ValueError, match=f"encoding.{option}: 'other' is not one of: '"):
        card(name).build(**{option: "other"})


def test_refuses_positions_of_the_wrong_axes():
    x = jnp.zeros((1, TIME, 32))
    with pytest.raises(ValueError, match=r"positions: shape \(1, 24\) is not \[B, T, 2\]"):
        make("sinusoidal_2d").embed({}, x, full(1, TIME).pos_BT)
    with pytest.raises(ValueError, match=r"positions: shape \(1, 24, 2\) is not \[B, T\]"):
        make("sinusoidal").embed({}, x, positions("sinusoidal_2d", 1).pos_BT)
