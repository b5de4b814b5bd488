"""Sums of waves, polar coordinates and learned generators: what each becomes at its limits."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax import attend, frame
from posenc_jax.encoding import at_layer
from posenc_jax.encodings import reach, rotary, rotary_axes, rotary_fourier_polar, rotary_generators
from posenc_jax.layout import full
from tests.encodings.test_rotary import DIMS, counted, first_layer, logits, spread, vectors
from tests.support.catalogue import gap


def test_fope_without_noise_is_hope():
    """The sum of one wave is that wave; pairs of less than a turn stand still in both."""
    q, k = vectors(1)
    hope = rotary.hope(base=100.0, length=64)
    wanted = logits(hope, {}, q, k, counted(3))
    fope = rotary_fourier_polar.fope(base=100.0, length=64, sigma=1e-9)
    params = fope.init(jax.random.key(0), DIMS)
    assert jax.tree.leaves(params) == []
    assert gap(logits(fope, params, q, k, counted(3)), wanted) < 1e-5
    loud = rotary_fourier_polar.fope(base=100.0, length=64)
    assert gap(logits(loud, params, q, k, counted(3)), wanted) > 1e-2


def test_fope_keeps_slow_pairs_as_they_are():
    fope = rotary_fourier_polar.fope(base=100.0, length=64)
    params = fope.init(jax.random.key(0), DIMS)
    q, _ = vectors(2)
    turned = fope.rotate(fope.table(params, counted(5), DIMS), q, "q")
    assert gap(turned[..., [3, 7]], q[..., [3, 7]]) == 0.0
    assert gap(turned[..., :3], q[..., :3]) > 1e-1


def test_fope_tells_more_than_the_distance():
    encoding, params = first_layer("fope", base=100.0, length=64)
    q, k = vectors(3)
    near, far = (logits(encoding, params, q, k, counted(start)) for start in (0, 50))
    assert gap(near, far) > 1e-2


def test_pope_is_content_times_position():
    """At distance 0 and delta 0 the score is content alone; equal content tells distance alone."""
    encoding = at_layer(rotary_fourier_polar.pope(), 0, ({},))[0]
    params = {"delta_HC": jnp.zeros((3, 8))}
    q, k = vectors(4)
    actual = logits(encoding, params, q, k, counted(7))
    size = jnp.einsum("bqhc,bkhc->bhqk", jax.nn.softplus(q), jax.nn.softplus(k))[0] / 8**0.5
    diagonal = lambda s: jnp.diagonal(s, axis1=1, axis2=2)
    assert gap(diagonal(actual), diagonal(size)) < 1e-5
    assert bool((actual <= size + 1e-5).all())
    assert gap(actual, size) > 1e-1


def test_pope_holds_delta_in_its_range():
    encoding, _ = first_layer("pope")
    q, k = vectors(5)
    score = lambda delta: logits(encoding, {"delta_HC": jnp.full((3, 8), delta)}, q, k, counted(0))
    assert gap(score(1.0), score(0.0)) == 0.0
    assert gap(score(-9.0), score(-2 * np.pi)) < 1e-5
    assert gap(score(-1.0), score(0.0)) > 1e-2


@pytest.mark.thorough
@pytest.mark.parametrize("form", ["dense", "blockwise"])
def test_pope_leaves_values_their_width(form):
    """Queries and keys of 2C channels, scaled by 1 / sqrt(C); bfloat16 stays bfloat16."""
    encoding, params = first_layer("pope")
    q, k = vectors(6)
    v = jnp.ones((1, 12, 3, 5))
    at = full(1, 12)
    view = frame(encoding, params, at, DIMS, causal=False, form=form, block=8).layer(0)
    assert attend(q, k, v, view).shape == (1, 12, 3, 5)
    seen = jnp.broadcast_to(jnp.eye(12)[None, :, None], (1, 12, 3, 12))
    wanted = jax.nn.softmax(logits(encoding, params, q, k, at.pos_BT), axis=-1)
    assert gap(attend(q, k, seen, view)[0].swapaxes(0, 1), wanted) < 1e-5
    table = encoding.table(params, at.pos_BT, DIMS)
    turned = encoding.rotate(table, q.astype(jnp.bfloat16), "q")
    assert turned.dtype == jnp.bfloat16
    assert turned.shape == (1, 12, 3, 16)
    with pytest.raises(ValueError, match="a table of 8 channels cannot turn vectors of 4"):
        encoding.rotate(table, q[..., :4], "q")


@pytest.mark.thorough
def test_liere_of_pairs_is_mixed():
    """Blocks of two turn by row a + column b, as `mixed` does with interleaved pairs."""
    encoding, params = first_layer("liere", block=2)
    mixed, _ = first_layer("mixed", pairing="interleaved")
    freq = {"freq_AHF": -params["skew"][..., 0, 1] / 13}
    q, k = vectors(7)
    grid = spread(counted(0), 2)
    actual = logits(encoding, params, q, k, grid)
    assert gap(actual, logits(mixed, freq, q, k, grid)) < 1e-5
    whole, other = first_layer("liere", block=8)
    assert gap(actual, logits(whole, other, q, k, grid)) > 1e-2


@pytest.mark.thorough
def test_liere_within_its_range():
    """Float32 is right to 1e-4 up to the limit, where the table ends in NaN; lengths are kept."""
    encoding, params = first_layer("liere")
    assert reach("liere") == 112
    params = jax.tree.map(np.asarray, params)
    pos = np.array([[[111, 111], [111, 0], [0, 0]]], np.int32)

    def table(pos):
        return encoding.table(jax.tree.map(jnp.asarray, params), jnp.asarray(pos), DIMS)

    single, past = table(pos), table(pos + 1)
    with jax.enable_x64(True):
        double = table(pos)
    assert gap(single, double) < 1e-4
    assert gap(single, np.swapaxes(np.linalg.inv(double), -1, -2)) < 1e-4
    assert np.isnan(past[0, :2]).all()
    assert np.isfinite(past[0, 2]).all()
    assert gap(single[:, 1], single[:, 2]) > 1e-1, "control"


def test_string_begins_as_mixed():
    """With S at 0 the basis is the identity; then the scores are those of `mixed`."""
    string, mixed = rotary_generators.string(), rotary_axes.mixed()
    params, same = (e.init(jax.random.key(3), DIMS) for e in (string, mixed))
    keep = {"freq_AHF": params[0]["freq_AHF"]}
    q, k = vectors(8)
    grid = spread(counted(0), 2)
    string_part, other = (at_layer(e, 0, p)[0] for e, p in ((string, params), (mixed, same)))
    wanted = logits(other, keep, q, k, grid)
    assert gap(logits(string_part, params[0], q, k, grid), wanted) < 1e-5
    stirred = {**keep, "skew": 0.3 * jax.random.normal(jax.random.key(4), (3, 8, 8))}
    assert gap(logits(string_part, stirred, q, k, grid), wanted) > 1e-2


@pytest.mark.thorough(after=1)
@pytest.mark.parametrize("basis", ["cayley", "circulant"])
def test_string_turns_and_does_not_stretch(basis):
    """Row and column commute, lengths stay: the rotation of a sum is that of its parts."""
    encoding, params = first_layer("string", basis=basis)
    q, _ = vectors(9)
    table = encoding.table(params, spread(counted(40), 2), DIMS)
    basis_HCC, turned = table[1][0, 0], encoding.rotate(table, q, "q")
    assert gap(jnp.linalg.norm(turned, axis=-1), jnp.linalg.norm(q, axis=-1)) < 1e-5
    assert gap(turned, q) > 1e-1
    assert gap(basis_HCC @ basis_HCC.swapaxes(-1, -2), np.eye(8)[None]) < 1e-5


def test_circulant_begins_with_the_frequencies_of_mixed():
    """The first columns are made so that the Fourier basis turns by them."""
    string = rotary_generators.string(basis="circulant")
    params = string.init(jax.random.key(3), DIMS)[0]
    waves_CF = np.sin(2 * np.pi * np.outer(np.arange(8), [1, 2, 3]) / 8).astype(np.float32)
    freq_AHF = rotary_generators.string().init(jax.random.key(3), DIMS)[0]["freq_AHF"]
    assert gap(2 * params["first"] @ waves_CF, freq_AHF[..., :3]) < 1e-5


@pytest.mark.parametrize(
    ("build", "options", "message"),
    [
        (rotary_fourier_polar.fope, {"sigma": 0.0}, "encoding.sigma: 0.0 must be positive"),
        (rotary_fourier_polar.fope, {"pairing": "x"}, "encoding.pairing: 'x' is not one of"),
        (rotary_fourier_polar.pope, {"base": -1.0}, "encoding.base: -1.0 must be positive"),
        (rotary_generators.liere, {"block": 1}, "encoding.block: 1 must be 2 or more"),
        (rotary_generators.string, {"basis": "x"}, "encoding.basis: 'x' is not one of: 'cayley'"),
    ],
)
def test_refused_options(build, options, message):
    with pytest.raises(ValueError, match=f"^{message}") as refusal:
        build(**options)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("encoding", "message"),
    [
        (rotary_fourier_polar.fope(length=6), "encoding.length: 6 tokens are less than one turn"),
        (rotary.hope(length=6), "encoding.length: 6 tokens are less than one turn"),
        (rotary.p_rope(share=0.2), "encoding.share: 0.2 of the pairs of a head of 8 is none"),
        (rotary_generators.liere(block=3), "encoding.block: 3 does not divide a head of 8"),
        (rotary_generators.string(), "head: 6 channels; two axes"),
    ],
)
def test_refused_widths(encoding, message):
    dims = dataclasses.replace(DIMS, head=6) if "6 channels" in message else DIMS
    with pytest.raises(ValueError, match=f"^{message}"):
        encoding.init(jax.random.key(0), dims)
