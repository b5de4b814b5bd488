"""What hooks return: a wrong shape or dtype is one line that names the hook and its function."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import posenc_jax
from posenc_jax import Dims, Encoding, Walk, attend, chain, each_layer, frame, full, make, per_layer
from posenc_jax.options import FieldError

DIMS = Dims(model=8, heads=2, head=4, layers=1)
TIME = 5


def offsets(q_placed, k_placed):
    return (q_placed[:, None, :, None] - k_placed[:, None, None]).astype(float)


def run(encoding, form="dense", dtype=jnp.float32, rows=1):
    """Attention in one layer of three sequences."""
    params = encoding.init(jax.random.key(0), DIMS)
    view = frame(encoding, params, full(rows, TIME), DIMS, form=form)
    rng = np.random.default_rng(0)
    x_BTD = view.embed(jnp.asarray(rng.normal(size=(3, TIME, 8)), dtype))
    q_BTHC = x_BTD.reshape(3, TIME, 2, 4)
    return attend(q_BTHC, q_BTHC, q_BTHC, view.layer(0, x_BTD))


def biased(cast, relative=False):
    return Encoding(bias=lambda params, q, k, dims: cast(offsets(q, k)), relative=relative)


def turned(change):
    return Encoding(rotate=lambda table, x_BTHC, side: change(x_BTHC, side))


NARROW = jnp.bfloat16
WRONG = {
    "a bias without heads": (biased(lambda b: b[:, 0]), "bias", "float32[1, 5, 5]"),
    "a row of a bias": (biased(lambda b: b[:, 0], True), "bias", "float32[1, 1, 10]"),
    "keys before queries": (
        Encoding(bias=lambda params, q, k, dims: offsets(q, k)[:, :, :, :1]),
        "bias",
        "[B|1, H|1, Q, K], here [any, 2|1, 5, 5], of float32 or wider",
    ),
    "a bias in bfloat16": (biased(lambda b: b.astype(NARROW)), "bias", "bfloat16[1, 1, 5, 5]"),
    "whole numbers": (biased(lambda b: b.astype(int)), "bias", "int32[1, 1, 5, 5]"),
    "a bias of three heads": (
        biased(lambda b: jnp.broadcast_to(b, (1, 3, 5, 5))),
        "bias",
        "float32[1, 3, 5, 5]",
    ),
    "a rotation in bfloat16": (turned(lambda x, side: x.astype(NARROW)), "rotate", "bfloat16[3, "),
    "heads lost": (turned(lambda x, side: x[:, :, :1]), "rotate", "float32[3, 5, 1, 4]"),
    "heads flattened": (turned(lambda x, side: x.reshape(3, 5, 8)), "rotate", "float32[3, 5, 8]"),
    "values of another width": (
        turned(lambda x, side: x[..., :2] if side == "v" else x)._replace(turns_values=True),
        "rotate",
        "[B, T, H, C], here [3, 5, 2, 4]",
    ),
    "an embedding in bfloat16": (
        Encoding(embed=lambda params, x, pos: x.astype(NARROW)),
        "embed",
        "bfloat16[3, 5, 8]; it must return [B, T, D], here [3, 5, 8], of float32",
    ),
    "an embedding of positions alone": (
        Encoding(embed=lambda params, x, pos: jnp.repeat(pos[..., None].astype(float), 8, axis=-1)),
        "embed",
        "float32[1, 5, 8]",
    ),
    "a table in bfloat16": (
        turned(lambda x, side: x)._replace(
            table=lambda params, pos, dims: {"cos": pos.astype(NARROW)}
        ),
        "table",
        "bfloat16[1, 5]; it must return [...], here [...], of numbers of 32 bits or more",
    ),
    "a factor for each key": (
        Encoding(temper=lambda params, count, pos, dims: jnp.ones((1, 3, 1))),
        "temper",
        "float32[1, 3, 1]; it must return [B|1, Q|1, H|1], here [any, 5|1, 2|1]",
    ),
    "a factor without heads": (
        Encoding(temper=lambda params, count, pos, dims: count()),
        "temper",
        "float32[1, 5]",
    ),
    "positions of fewer tokens": (
        Encoding(place=lambda key, at: at.pos_BT[:, 1:]),
        "place",
        "int32[1, 4]; it must return [B|1, T, ...], here [1, 5, ...]",
    ),
    "positions in int8": (
        Encoding(place=lambda key, at: at.pos_BT.astype(jnp.int8)),
        "place",
        "int8[1, 5]",
    ),
    "located without tokens": (
        Encoding(locate=lambda params, x, pos: x.sum(-1).T, bias=biased(abs).bias),
        "locate",
        "float32[5, 3]; it must return [B|1, T, ...], here [3|1, 5, ...]",
    ),
    "scores of fewer keys": (
        Encoding(walk=Walk(lambda params, s, q, k, seen, carry: (s[..., :1], carry))),
        "walk.score",
        "float32[3, 2, 5, 1]; it must return [B, H, Q, K], here [3, 2, 5, 5], of float32",
    ),
}


@pytest.mark.parametrize("around", ["alone", "chain", "each_layer", "per_layer"])
@pytest.mark.parametrize("which", WRONG)
def test_what_a_hook_returns_wrong_is_named_in_one_line(which, around):
    encoding, hook, words = WRONG[which]
    wrapped = {
        "alone": lambda: encoding,
        "chain": lambda: chain(make("nope"), encoding),
        "each_layer": lambda: each_layer(encoding),
        "per_layer": lambda: per_layer([encoding]),
    }
    if hook == "embed" and around.endswith("_layer"):
        return  # what acts at the input has no layer
    with pytest.raises(FieldError) as refusal:
        run(wrapped[around]())
    assert refusal.value.path == ("encoding", hook)
    assert words in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("form", ["blockwise", "kernel"])
@pytest.mark.parametrize("which", [which for which in WRONG if "bias" in which])
def test_every_form_checks_its_bias(which, form):
    encoding = WRONG[which][0]
    with pytest.raises(FieldError, match=r"encoding.bias: biased.<locals>.<lambda> returns"):
        run(encoding, form)


@pytest.mark.thorough
def test_a_rotation_that_is_right_in_float32_alone_is_seen_in_bfloat16():
    wide = turned(lambda x, side: x * jnp.ones((), jnp.float32))
    assert run(wide).dtype == jnp.float32
    with jax.numpy_dtype_promotion("standard"), pytest.raises(FieldError, match="of bfloat16"):
        run(wide, dtype=NARROW)


@pytest.mark.thorough
def test_what_is_right_is_taken():
    encodings = [
        biased(abs),
        biased(abs, relative=True),
        turned(lambda x, side: jnp.concatenate([x, x], axis=-1)),
        Encoding(temper=lambda params, count, pos, dims: jnp.ones((1, 1, 2))),
        Encoding(place=lambda key, at: {"low": at.pos_BT, "row": at.segment_BT > 0}),
        Encoding(embed=lambda params, x, pos: x + pos[..., None].astype(x.dtype)),
    ]
    for encoding in encodings:
        assert np.isfinite(run(encoding)).all()
    for name in ("rope", "t5", "shaw", "fox", "repo", "ssmax"):
        assert np.isfinite(run(make(name))).all()


def test_a_frame_says_it_where_it_makes_tables():
    params = {}
    for which in ("a bias in bfloat16", "a table in bfloat16", "a factor without heads"):
        with pytest.raises(FieldError, match="encoding"):
            frame(WRONG[which][0], params, full(1, TIME), DIMS)
    assert posenc_jax.frame(biased(abs), params, full(1, TIME), DIMS).layer(0).bias().shape
