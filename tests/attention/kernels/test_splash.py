"""Which attention on a TPU is JAX's splash attention, interpreted here, and that it is right."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.pallas.ops.tpu.splash_attention import (
    splash_attention_mask,
    splash_attention_mask_info,
)

from posenc_jax import attend, frame, make
from posenc_jax.attention.kernels import splash, tpu
from posenc_jax.backends.target import compile_for
from posenc_jax.encoding import Dims
from posenc_jax.layout import layout

TIME = 300
DIMS = Dims(model=16, heads=2, head=8, layers=1)
# Documents of several lengths, padding between them and around.
SEGMENTS = np.array(
    [
        [0] * 9 + [1] * 120 + [2] * 7 + [0] * 50 + [4] * 100 + [0] * 14,
        [3] * 40 + [0] * 260,
    ]
)


@pytest.fixture(autouse=True)
def ours_gives_nan(monkeypatch):
    """In place of our kernel, which cannot be interpreted where a TPU is compiled for."""
    nan = lambda q, k, v, *_: (q[..., : v.shape[3]] * jnp.nan, None)
    monkeypatch.setattr(tpu, "kernel", nan)
    monkeypatch.setattr(splash, "BLOCK", 128)


def run(form, name="rope", dtype="float32", heads=2, backwards=False, **options):
    """Output and gradients of one layer of random parameters; keys may have fewer heads."""
    score_options = {x: options.pop(x) for x in ("sink_H", "cap") if x in options}
    segments = options.pop("segments", SEGMENTS)
    encoding = make(name)
    keys = iter(jax.random.split(jax.random.key(1), 9))
    noisy = lambda x: x + 0.3 * jax.random.normal(next(keys), x.shape, x.dtype)
    params = jax.tree.map(noisy, encoding.init(next(keys), DIMS))
    shape = len(segments), TIME, 2, 8
    q, k, v, g = (jax.random.normal(next(keys), shape).astype(dtype) for _ in range(4))
    at = layout(jnp.asarray(segments))
    if backwards:
        at = at.replace(index_BT=TIME - at.index_BT)
    view = frame(encoding, params, at, DIMS, form=form, **options).layer(0)
    view = dataclasses.replace(view, chosen=form == "kernel")
    out = lambda q, k, v: attend(q, k, v, view, **score_options)
    o, pull = jax.vjp(out, q, k[:, :, :heads], v[:, :, :heads])
    return o, *pull(g)


def on_tpu(**options):
    with compile_for("tpu"):
        return run("kernel", **options)


def gaps(actual, exact) -> list[float]:
    actual, exact = ([np.asarray(x, np.float64) for x in arrays] for arrays in (actual, exact))
    return [np.abs(a - b).max() / np.abs(b).max() for a, b in zip(actual, exact, strict=True)]


SPLASH = {
    "packed, a temperature": {"name": "yarn"},
    "grouped heads": {"heads": 1, "segments": SEGMENTS[:1]},
    "both sides, an empty row": {"causal": False, "segments": SEGMENTS * [[0], [1]]},
    "a cap": {"cap": 1.5, "name": "nope", "segments": SEGMENTS[:1]},
}


@pytest.mark.thorough
@pytest.mark.parametrize("options", SPLASH.values(), ids=list(SPLASH))
def test_it_is_dense_attention(options):
    actual = on_tpu(**options)
    assert np.max(gaps(actual, run("dense", **options))) < 2e-6
    for x in actual:
        assert (np.asarray(x)[options.get("segments", SEGMENTS) == 0] == 0).all(), "of padding"


@pytest.mark.thorough
def test_bfloat16_is_as_near_as_dense():
    exact = run("dense")
    actual, dense = (
        gaps(x, exact) for x in (on_tpu(dtype="bfloat16"), run("dense", dtype="bfloat16"))
    )
    assert all(a < 1.5 * b for a, b in zip(actual, dense, strict=True))


OURS = {
    "stored backwards": {"backwards": True},
    "a bias": {"name": "alibi"},
    "a sink": {"sink_H": jnp.zeros(2)},
    "padding that is seen": {"mask_padding": False},
    "some of the queries": {"queries": (0, TIME)},
    "other keys": {"keys": layout(jnp.asarray(SEGMENTS)), "causal": False},
}


@pytest.mark.thorough
@pytest.mark.parametrize("options", OURS.values(), ids=list(OURS))
def test_the_rest_is_ours(options):
    assert np.isnan(np.asarray(on_tpu(**options)[0])).any()
    assert np.isfinite(np.asarray(run("dense", **options)[0])).all(), "control"


@pytest.mark.parametrize("causal", [True, False])
def test_blocks_that_see_each_other_are_those_of_jax(causal):
    """For one document; of several, blocks of two that share none are skipped as well."""
    ones = np.ones((1, TIME), int)
    view = frame(make("nope"), {}, layout(jnp.asarray(ones)), DIMS, form="kernel", causal=causal)
    padded = 384
    kind = splash_attention_mask.CausalMask if causal else splash_attention_mask.FullMask
    mask = splash_attention_mask.MultiHeadMask([kind((padded, padded))])
    sizes = {"head_shards": 1, "q_seq_shards": 1}
    process = splash_attention_mask_info.process_mask, splash_attention_mask_info.process_mask_dkv
    actual = splash._masks(view.layer(0), 128, padded)
    for ours, theirs in zip(actual[1:], process, strict=True):
        info, function = theirs(mask, (128, 128), **sizes)
        used = np.asarray(info.block_mask) > 0
        np.testing.assert_array_equal(np.asarray(ours.block_mask) > 0, used)
        np.testing.assert_array_equal(
            np.asarray(ours.data_next)[used], np.asarray(info.data_next)[used]
        )
        assert (function is None) == (not causal)
    packed = layout(jnp.asarray(np.repeat([[1, 2, 3]], 100, axis=1)))
    view = frame(make("nope"), {}, packed, DIMS, form="kernel", causal=causal)
    fewer = splash._masks(view.layer(0), 128, padded)[0].block_mask
    assert np.asarray(fewer).sum() < np.asarray(actual[0].block_mask).sum()
