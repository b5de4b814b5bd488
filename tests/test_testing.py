"""`posenc_jax.testing` finds each kind of wrong encoding, and says in one line what and where."""

import functools
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax import Encoding, make, register, testing


def offsets(q_pos_BQ, k_pos_BK):
    return (q_pos_BQ[:, :, None] - k_pos_BK[:, None]).astype(float)[:, None]


def bias_of(function, **fields):
    """An encoding whose bias is a function of queries' and keys' positions."""
    return Encoding(bias=lambda params, q, k, dims: function(q, k), **fields)


def added(function):
    """An encoding that adds a function of x and positions to x."""
    return Encoding(embed=lambda params, x, placed: x + function(x, placed).astype(x.dtype))


def code(pos_BT):
    return jnp.sin(pos_BT.astype(float))[..., None]


def rotated(function):
    return Encoding(
        table=lambda params, placed, dims: placed.astype(float)[..., None, None],
        rotate=lambda table, x, side: function(table, x).astype(x.dtype),
    )


def by_storage(q_pos_BQ, k_pos_BK):
    """A bias of the places in storage, not of positions."""
    place = lambda pos: jnp.arange(pos.shape[1])[None]
    return -jnp.abs(offsets(place(q_pos_BQ), place(k_pos_BK)))


def other_in_blocks(q_pos_BQ, k_pos_BK):
    return -jnp.abs(offsets(q_pos_BQ, k_pos_BK)) / k_pos_BK.shape[1]


def branching(params, x, placed):
    return x + code(placed) if float(x.sum()) > 0 else x - code(placed)


def turned(table, x):
    """Turns pairs by pos^2 / 1000: float32 cannot tell the angle at position 1e6."""
    a, b = jnp.split(x, 2, axis=-1)
    cos, sin = (f(table * table / 1000).astype(x.dtype) for f in (jnp.cos, jnp.sin))
    return jnp.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)


ROOT = bias_of(lambda q, k: -jnp.sqrt(jnp.abs(offsets(q, k)) + 0.1), relative=True)
EARLIER = "causality: tokens from 16 on change an output before them: layer 0, row 0, token"
WRONG = [
    # Reads all tokens of its row.
    (testing.causality, added(lambda x, pos: x.mean(axis=1, keepdims=True)), {}, EARLIER),
    # Reads them where the output does not show it, but a gradient does.
    (
        testing.causality,
        added(lambda x, pos: jnp.clip(x.mean(axis=1, keepdims=True), -9, 9) * 1e-9),
        {},
        "causality: gradient of an earlier output with respect to a later token: row",
    ),
    (testing.causality, bias_of(lambda q, k: jnp.nan * offsets(q, k)), {}, EARLIER),
    (
        testing.padding,
        added(lambda x, pos: x[:, :1] + x[:, -1:]),
        {},
        "padding: other content of the padding (row 0: on the right, 1: on the left) changes a re",
    ),
    (testing.storage, bias_of(by_storage), {}, "storage: tokens stored in another order, with th"),
    (
        testing.positions,
        bias_of(by_storage),
        {},
        "positions: outputs at positions twice as far apart: the largest difference is 0; it must",
    ),
    (
        testing.positions,
        ROOT,
        {"axes": 0},
        "positions: it is said to read none; twice as far apart: layer 0, row 0, token ",
    ),
    (
        testing.padding_side,
        Encoding(place=lambda key, at: at.index_BT, embed=lambda p, x, pos: x + code(pos)),
        {},
        "padding: on the left, and none: layer 0, row 0, token ",
    ),
    (
        testing.packing,
        added(lambda x, pos: jnp.cumsum(x, axis=1)),
        {},
        "packing: another document in the row changes the second: layer 0, row 0, token ",
    ),
    (
        testing.shift,
        added(lambda x, pos: code(pos)),
        {"shift_invariant": True},
        "shift: it is said to be invariant, and all positions moved by 7 change: layer 0, row 0",
    ),
    (
        testing.shift,
        ROOT,
        {"shift_invariant": False},
        "shift: it is said not to be invariant; a shift by 7: the largest difference is ",
    ),
    (testing.order, Encoding(), {}, "order: without a causal mask, outputs of the tokens in anot"),
    (testing.order, ROOT, {"tells_order": False}, "order: it is said to tell none: layer 0, row"),
    (testing.forms, bias_of(other_in_blocks), {}, "forms: blockwise and dense: layer 0, row"),
    (
        testing.cross,
        Encoding(
            place=lambda key, at: at.pos_BT - at.pos_BT.max(axis=1, keepdims=True), bias=ROOT.bias
        ),
        {},
        "cross-attention (dense): queries apart from the keys, and among them: layer 0, row",
    ),
    (
        testing.decoding,
        Encoding(
            place=lambda key, at: at.pos_BT * at.pos_BT.shape[1],
            bias=lambda params, q, k, dims: -0.01 * jnp.abs(offsets(q, k)),
        ),
        {},
        "decoding: from token 8 on, with a cache of 16 and in the full pass: layer 0, row 0",
    ),
    (
        testing.relative,
        bias_of(lambda q, k: 0.01 * (q[:, :, None] * k[:, None]).astype(float)[:, None],
                relative=True),
        {},
        "relative: bias at positions moved by 7, layer 0: row 0, head 0, query 23, key 23: ",
    ),
    (
        testing.hooks,
        Encoding(
            table=lambda params, placed, dims: placed.astype(float)[..., None, None],
            rotate=lambda table, x, side: x.astype(jnp.float32) * table,
        ),
        {},
        "hooks: in bfloat16: ",
    ),
    (testing.hooks, bias_of(lambda q, k: offsets(q, k)[:, 0]), {}, "hooks: in float32: "),
    (
        testing.hooks,
        Encoding(init=lambda key, dims: {"scale": 1.0}),
        {},
        "hooks: init['scale'] is a float",
    ),
    (testing.precision, rotated(turned), {}, "precision: float32 and float64 at position 10000"),
    (
        testing.transforms,
        Encoding(embed=branching),
        {},
        "transforms: jit(vmap(grad(f))): Abstract tracer value encountered where concrete value",
    ),
]  # fmt: skip


def line_of(check, *args) -> str:
    with pytest.raises(AssertionError) as failure:
        check(*args)
    assert "\n" not in str(failure.value)
    return str(failure.value)


IDS = [f"{holds.__name__}-{n}" for n, (holds, *_) in enumerate(WRONG)]


@pytest.mark.thorough
@pytest.mark.parametrize(("holds", "encoding", "claims", "line"), WRONG, ids=IDS)
def test_a_wrong_encoding_is_found(holds, encoding, claims, line):
    trial = testing.trial(encoding, **claims)
    assert line_of(holds, trial).startswith(f"{trial.label}: {line}")


def test_a_line_says_where_how_much_and_the_bound():
    trial = testing.trial(ROOT)
    got = np.zeros((1, 2, 3, 4))
    got[0, 1, 2, 3] = 0.25
    axes = "layer row token head"
    assert line_of(testing.same, trial, "forms: a and b", got, 0 * got, 1e-5, axes) == (
        f"{trial.label}: forms: a and b: layer 0, row 1, token 2, head 3: 0.25 and 0 differ by "
        "0.25; the bound is 1e-05"
    )


def root_scores(params, q_THC, k_THC, pos_T):
    s_HTT = np.einsum("qhc,khc->hqk", q_THC, k_THC) / np.sqrt(q_THC.shape[-1])
    return s_HTT - np.sqrt(np.abs(pos_T[:, None] - pos_T) + 0.1)


@pytest.mark.thorough
def test_a_right_encoding_passes_all_checks():
    """One without a card, made of hooks alone."""
    passed = testing.check(ROOT, root_scores, shift_invariant=True)
    assert passed == (*(holds.__name__ for holds in testing.PROPERTIES), "precision", "parity")
    assert all(callable(getattr(testing, name)) for name in passed)


@pytest.mark.thorough
@pytest.mark.parametrize("far", [0, 1_000_000])
def test_a_wrong_definition_is_found(far):
    trial = testing.trial(ROOT)
    wrong = lambda *args: root_scores(*args) * 1.01
    line = line_of(functools.partial(testing.parity, far=far), trial, wrong)
    assert line.startswith(f"{trial.label}: parity: with its definition, positions from {far}, lay")
    testing.parity(trial, root_scores, far=far)


@pytest.mark.thorough
def test_an_option_that_changes_nothing_is_found(registering):
    @register(kind="bias", formula="-slope |i - j|", paper="an example")
    def idle(slope: float = 0.5, unused: int = 3, path: str = "") -> Encoding:
        """A penalty of the distance."""
        return bias_of(lambda q, k: -slope * jnp.abs(offsets(q, k)), relative=True)

    testing.one_option("idle", "slope", 1.0)
    assert line_of(testing.every_option, "idle") == "idle: options: unused=6 changes no output"
    assert line_of(testing.every_option, "idle", {"unused": 4}) == (
        "idle: options: unused=4 changes no output"
    )
    assert line_of(testing.one_option, "idle", "path", "x") == (
        "idle: options: path='x' changes no output"
    )


def test_a_method_is_held_to_its_card():
    trial = testing.trial("t5")
    assert (trial.label, trial.shift_invariant, trial.tells_order) == ("t5", True, True)
    assert testing.trial("nope").tells_order is False
    assert testing.trial("axial").axes == 2
    assert testing.trial("irope").dims.layers == 2
    assert testing.trial(make("sinusoidal")).shift_invariant is False
    with pytest.raises(ValueError, match="no method 't6'"):
        testing.check("t6")


def test_parameters_are_not_those_of_init():
    """A check on tables that start at 0 would see nothing."""
    encoding = make("t5")
    params = testing.random_params(encoding, testing.DIMS)
    start = encoding.init(jax.random.key(0), testing.DIMS)
    for leaf, initial in zip(jax.tree.leaves(params), jax.tree.leaves(start), strict=True):
        assert (np.asarray(leaf) != np.asarray(initial)).all()


@pytest.mark.thorough
def test_meshes_of_four_devices(tmp_path):
    """Four devices of a CPU; that a wrong encoding on them is found is shown in the last line."""
    program = """
from posenc_jax import Encoding, testing
import jax
import jax.numpy as jnp
from tests.support import ROOT

for name in ("alibi", "fox"):
    testing.meshes(testing.trial(name))
whole = lambda x: jax.lax.with_sharding_constraint(x, jax.sharding.PartitionSpec("nowhere"))
try:
    testing.meshes(testing.trial(Encoding(embed=lambda params, x, placed: whole(x))))
except Exception as error:
    print(jax.device_count(), str(error).splitlines()[0])
"""
    flags = {
        "XLA_FLAGS": "--xla_force_host_platform_device_count=4",
        "PYTHONPATH": str(ROOT),
    }
    done = subprocess.run([sys.executable, "-c", program], env={**os.environ, **flags},
                          capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.startswith("4 ")
