"""The battery, numbers: parity with each definition, options, precision, range policy."""

import functools
import types
from typing import get_args

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax import Dims, at_layer
from posenc_jax.encoding import place
from posenc_jax.encodings import card, reach
from posenc_jax.lab.definitions import EMBEDS, OUTPUTS, PLACES, SCORES
from posenc_jax.lab.definitions.trial_options import SMALL, VARIED
from posenc_jax.testing import other_values
from tests.support.catalogue import (
    EVERY_METHOD,
    NAMES,
    ROWS,
    TIME,
    attention,
    encoding_of,
    gap,
    passes,
    row,
    sentence,
    stir,
    tokens,
    where,
    whole,
    with_options,
)

DIMS = Dims(32, 4, 8, 2)
LENGTHS = (1, 8, TIME)
FAR = 10_000


def namespace(name):
    return types.SimpleNamespace(**{**card(name).defaults, **SMALL.get(name, {})})


def wide_params(encoding):
    """Parameters in float64, with noise; one layer's."""
    params = stir(encoding.init(jax.random.key(0), DIMS), 1)
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, float), params)


def softmax(s):
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def output(method, o, params, encoding, v_THC, pos_T, s_HTT):
    """The definition's output, of its logits."""
    weight_HTT = np.exp(s_HTT) if encoding.walk and encoding.walk.weighs else softmax(s_HTT)
    if method.name in OUTPUTS:
        return OUTPUTS[method.name](o, params, weight_HTT, v_THC, pos_T, len(pos_T))
    return np.einsum("hqk,khc->qhc", weight_HTT, v_THC)


@pytest.mark.parametrize("time", LENGTHS)
@pytest.mark.parametrize("name", NAMES)
def test_catalogue_parity(name, time):
    """The hooks in float64 equal the definition, at several lengths, in every layer.

    The short sequences are documents that share a row, so that both lengths are the same programs.
    In the second row the whole sequence stands at negative positions, where NaN is right too.
    """
    rng = np.random.default_rng(time)
    method, o = card(name), namespace(name)
    documents = [slice(n, n + time) for n in range(0, TIME, time)]
    with jax.enable_x64(True):
        segment_BT = np.tile(1 + np.arange(TIME) // time, (ROWS, 1)).astype(np.int32)
        at = where(name, segment_BT)
        below = jnp.zeros((ROWS,) + (1,) * (at.pos_BT.ndim - 1), at.pos_BT.dtype)
        at = at.replace(pos_BT=at.pos_BT - below.at[1].set(TIME // 2))
        pos_T, below_T = np.asarray(at.pos_BT[:2])
        below_T = below_T[: time == TIME and TIME]  # of the whole sequence alone
        if name in PLACES:
            mover = method.build(**SMALL.get(method.name, {}))
            shown = np.asarray(place(mover, None, at)[0], np.float64)
            read_T = np.asarray(at.group_BT[0]) if method.groups else pos_T
            for d in documents:
                wanted = PLACES[name](o, read_T[d], time)
                np.testing.assert_allclose(shown[d], wanted, atol=1e-9)
            if len(below_T) and not method.groups:
                shown = np.asarray(place(mover, None, at)[1], np.float64)
                assert_equal_or_nan(shown, PLACES[name](o, below_T, time))
            return
        encoding = encoding_of(name)
        params = wide_params(encoding)
        if name in EMBEDS:
            x_TD = rng.normal(size=(TIME, DIMS.model))
            placed = place(encoding, None, at)
            got_BTD = encoding.embed(params, jnp.asarray(np.stack([x_TD] * ROWS)), placed)
            plain = jax.tree.map(np.asarray, params)
            for d in documents:
                wanted = EMBEDS[name](o, plain, x_TD[d], pos_T[d], time)
                np.testing.assert_allclose(got_BTD[0, d], wanted, atol=1e-9)
            if len(below_T):
                assert_equal_or_nan(got_BTD[1], EMBEDS[name](o, plain, x_TD, below_T, time))
            return
        q, k, v = rng.normal(size=(3, ROWS, TIME, 4, 8))
        for layer in range(1 if encoding.at is None else DIMS.layers):
            o.layer = layer
            form = {"causal": method.axes == 0, "form": "dense"}
            every = attention(encoding, params, *map(jnp.asarray, (q, k, v)), at, layer, **form)
            got = every[0]
            used, layer_params = at_layer(encoding, layer, params)
            layer_params = jax.tree.map(np.asarray, layer_params)
            for d in documents:
                s_HTT = SCORES[name](o, layer_params, q[0, d], k[0, d], pos_T[d], time)
                if method.axes == 0:
                    s_HTT = np.where(np.tri(time, dtype=bool), s_HTT, -np.inf)
                read = functools.partial(output, method, o, layer_params, used, v[0, d], pos_T[d])
                np.testing.assert_allclose(got[d], read(s_HTT), atol=1e-9)
                if time > 1:
                    wrong = read(s_HTT + 1e-6 * rng.normal(size=s_HTT.shape))
                    assert gap(got[d], wrong) > 1e-9, "control: a slightly wrong score must be seen"
            if len(below_T) and not np.isnan(every[1]).all():
                with np.errstate(invalid="ignore", divide="ignore"):  # outside of what it reads
                    s_HTT = SCORES[name](o, layer_params, q[1], k[1], below_T, time)
                    if method.axes == 0:
                        s_HTT = np.where(np.tri(time, dtype=bool), s_HTT, -np.inf)
                    wanted = output(method, o, layer_params, used, v[1], below_T, s_HTT)
                assert_equal_or_nan(every[1], wanted)


def assert_equal_or_nan(actual, wanted):
    """At positions that a method may refuse: its definition's values, or NaN."""
    np.testing.assert_allclose(np.where(np.isnan(actual), wanted, actual), wanted, atol=1e-9)


def cases_of_options():
    for case in EVERY_METHOD:
        (name,) = case.values
        method, vary = card(name), VARIED.get(name, {})
        for option, parameter in method.options.items():
            value = SMALL.get(method.name, {}).get(option, parameter.default)
            tries = [vary[option]] if option in vary else other_values(parameter, value)
            assert tries, f"{name}.{option}: `VARIED` must say what else to try"
            for other in tries:
                yield pytest.param(
                    name, option, other, id=f"{name}-{option}-{other}", marks=case.marks
                )


def outputs(name, **options):
    """Logits near, of two documents, and far out; in training where positions may be random."""
    c = with_options(name, **options)
    near = row(name, [1] * 7 + [2] * 17)
    rows = {"near": (sentence(20), near), "far": (sentence(20), row(name, stretch=FAR))}
    actual = list(passes(c, **rows).values())
    if c.encoding.place is not None:
        placed = c.model.place(jax.random.key(1), whole(name))
        actual.append(c.apply(c.params, tokens(20, ROWS), whole(name), placed))
    return actual


plain_outputs = functools.cache(outputs)


def largest_gap(plain, changed) -> float:
    """The largest difference of outputs; those far out may be NaN."""
    return max(map(functools.partial(gap, nan=True), plain, changed))


@pytest.mark.parametrize(("name", "option", "other"), list(cases_of_options()))
def test_catalogue_option(name, option, other):
    """Every option changes the output; a range policy, where the sequence leaves the range."""
    vary = VARIED.get(name, {})
    short = {"length": vary["length"]} if option == "beyond" and "length" in vary else {}
    changed = outputs(name, **{**short, option: other})
    assert largest_gap(plain_outputs(name, **short), changed) > 1e-5


@pytest.mark.parametrize("name", EVERY_METHOD)
def test_catalogue_option_control(name):
    """The control of the test above: the same options give the same output."""
    near, *_ = plain_outputs(name)
    assert np.isfinite(near).all()
    assert largest_gap(plain_outputs(name), outputs(name)) == 0.0


@pytest.mark.parametrize("name", EVERY_METHOD)
def test_catalogue_precision(name):
    """At position 1e6, float32 stays within 1e-4 of float64.

    What a mover shows is itself a float32, no finer than 1/16 there: it is held to this at 1e3.
    """
    rng = np.random.default_rng(0)
    encoding = encoding_of(name)
    if reach(name, **SMALL.get(name, {})) is not None:
        return  # refuses such positions: test_catalogue_range

    def run():
        at = whole(name, shift=1000 if card(name).kind == "positions" else 1_000_000)
        params = jax.tree.map(lambda leaf: jnp.asarray(leaf, float), values)
        if encoding.embed is not None:
            x = jnp.zeros((ROWS, TIME, 32), float)
            return encoding.embed(params, x, place(encoding, None, at))
        q, k, v = (jnp.asarray(a, float) for a in qkv)
        causal = card(name).axes == 0
        return attention(encoding, params, q, k, v, at, causal=causal, form="dense")

    qkv = rng.normal(size=(3, ROWS, TIME, 4, 8)).astype(np.float32)
    values = stir(encoding.init(jax.random.key(0), DIMS), 1)
    values = jax.tree.map(np.asarray, values)
    single = run()
    with jax.enable_x64(True):
        double = run()
    scale = max(1.0, float(np.abs(double).max()))
    assert single.dtype == jnp.float32
    assert double.dtype == jnp.float64
    assert gap(single, double) / scale < 1e-4


@pytest.mark.parametrize("name", EVERY_METHOD)
def test_catalogue_range(name):
    """Far outside what was trained, each method does what its card declares."""
    method = card(name)
    policies = (
        get_args(method.options["beyond"].annotation)
        if method.beyond == "option"
        else (method.beyond,)
    )
    for policy in policies:
        options = {"beyond": policy} if method.beyond == "option" else {}
        c = with_options(name, **options)
        places = {"near": 1, "far": FAR, "further": 3 * FAR}
        rows = {key: (sentence(21), row(name, stretch=n)) for key, n in places.items()}
        near, far, further = passes(c, **rows).values()
        assert np.isfinite(near).all()
        if policy == "error":  # the first token stands at position 0 and sees only itself
            assert np.isnan(far[1:]).all()
            continue
        assert np.isfinite(far).all()
        assert reach(name, **{**SMALL.get(name, {}), **options}) is None
        if policy == "clamp":
            assert gap(far, further) < 1e-5
            assert (gap(near, far) > 1e-5) == (method.axes > 0)
