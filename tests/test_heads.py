"""Heads spread over devices: each device's heads are as in the whole model."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from posenc_jax import Dims, Encoding, attend, chain, each_layer, frame, head_specs, make, per_layer
from tests.support.catalogue import encoding_of, gap, layers, stir, whole

DIMS = Dims(model=32, heads=8, head=4)
HALF = dataclasses.replace(DIMS, heads=4)
NUMBERED = (
    "alibi",
    "fope",
    "grape_a",
    "grape_ap",
    "headwise",
    "mhrope",
    "sandwich",
)  # functions of a head's number
LEARNED = "t5", "ssmax", "fox", "shaw", "string", "kerple_log"  # with parameters of each head
TIME = 6
q, k, v = jax.random.normal(jax.random.key(1), (3, 1, TIME, DIMS.heads, DIMS.head))
x = jax.random.normal(jax.random.key(2), (1, TIME, DIMS.model))


def cut(params, encoding: Encoding, dims: Dims, start: int, count: int):
    """What `jax.shard_map` gives a device of parameters that are spread as `head_specs` says."""

    def shard(leaf, spec):
        for axis, name in enumerate(spec):
            if name:
                leaf = jax.lax.slice_in_dim(leaf, start, start + count, axis=axis)
        return leaf

    return jax.tree.map(shard, params, head_specs(encoding, dims, "heads"))


def both(encoding: Encoding, name: str, told=True, groups=DIMS.heads, **options) -> tuple:
    """Attention of all heads, and of two halves; `told`, each half knows which heads it has."""
    dims, half = (dataclasses.replace(d, layers=layers(encoding)) for d in (DIMS, HALF))
    params = jax.tree.map(jnp.asarray, stir(encoding.init(jax.random.key(0), dims), 3))

    def run(params, dims, start, **heads):
        here = slice(start, start + dims.heads)
        shared = slice(start * groups // DIMS.heads, (start + dims.heads) * groups // DIMS.heads)
        at = whole(name, 1, TIME)
        view = frame(encoding, params, at, dims, block=4, **options, **heads)
        own = q[:, :, here], k[:, :, :groups][:, :, shared], v[:, :, :groups][:, :, shared]
        return attend(*own, view.layer(dims.layers - 1, view.embed(x)))

    starts = 0, HALF.heads
    parts = [
        run(cut(params, encoding, dims, n, HALF.heads), half, n,
            **({"heads": (n, DIMS.heads)} if told else {}))
        for n in starts
    ]  # fmt: skip
    return run(params, dims, 0), jnp.concatenate(parts, axis=2)


@pytest.mark.thorough
@pytest.mark.parametrize("name", [*NUMBERED, *LEARNED])
def test_halves_of_the_heads_are_those_of_the_whole_model(name):
    assert gap(*both(encoding_of(name), name)) < 1e-5
    if name in NUMBERED:
        assert gap(*both(encoding_of(name), name, told=False)) > 0.1, "control"
        assert gap(*both(encoding_of(name), name, groups=4, form="blockwise")) < 1e-6


@pytest.mark.thorough
@pytest.mark.parametrize(
    "encoding",
    [
        chain(make("rope"), make("alibi")),
        per_layer([make("rope"), make("alibi")]),
        each_layer(chain(make("sandwich"), make("t5"))),
    ],
)
def test_combined_methods_are_told_their_heads(encoding):
    assert gap(*both(encoding, "rope")) < 1e-6
    assert gap(*both(encoding, "rope", told=False)) > 0.01, "control"


@pytest.mark.parametrize("name", ["dape", "dape_v2"])
def test_methods_that_mix_heads_refuse(name):
    with pytest.raises(ValueError, match=r"^heads: this method mixes all heads of a model"):
        both(encoding_of(name), name)


def test_a_traced_start_out_of_range_gives_nan():
    run = jax.jit(
        lambda start: frame(make("alibi"), {}, whole("alibi", 1, TIME), HALF, heads=(start, 8))
        .layer(0).bias()
    )  # fmt: skip
    wanted = frame(make("alibi"), {}, whole("alibi", 1, TIME), DIMS).layer(0).bias()
    assert gap(run(4), wanted[:, 4:]) == 0
    assert np.isnan(run(-1)).any(axis=(0, 2, 3)).tolist() == [True, False, False, False]
    assert np.isnan(run(6)).any(axis=(0, 2, 3)).tolist() == [False, False, True, True]


@pytest.mark.parametrize(
    ("heads", "line"),
    [
        ((5, 8), "heads: 5 to 8 of a model of 8, counted from 0"),
        ((-1, 8), "heads: -1 to 2 of a model of 8, counted from 0"),
        ((0, 6), "heads: a model of 6 heads is not shared by devices of dims.heads=4"),
        ((0, 8.0), "heads: 8.0 is not a whole number"),
        ((np.int64(5), 8), "heads: 5 to 8 of a model of 8, counted from 0"),
        (4, "heads: 4 is not (start, total)"),
    ],
)
def test_heads_that_a_model_does_not_have_are_refused(heads, line):
    with pytest.raises(ValueError, match=f"^{re.escape(line)}$"):
        frame(make("alibi"), {}, whole("alibi", 1, TIME), HALF, heads=heads)


def test_specs_name_the_axis_of_heads():
    encoding = chain(make("t5"), make("rope"), make("fox"))
    dims = dataclasses.replace(DIMS, layers=1)
    gate = {"gate": P(None, "h"), "gate_bias": P("h")}
    assert head_specs(encoding, dims, "h") == ({"table": P(None, "h")}, {}, (gate,))
