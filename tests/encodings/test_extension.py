"""Context extension of released models: frozen frequencies, lists by length, dropped positions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax import frame
from posenc_jax.encodings import extension, rotary, rotary_scaling
from tests.encodings.test_rotary import DIMS, counted, logits, vectors
from tests.encodings.test_scaling import table_of
from tests.support.catalogue import gap, standing

LISTS = {
    "short": (1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.25, 1.5),
    "long": (1.0, 1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 3.75),
}


def score(encoding, pos_BT, length, seed=1):
    """Scores of a row that says how long its sequence is."""
    q, k = vectors(seed)
    at = standing(pos_BT, length)
    layer = frame(encoding, {}, at, DIMS).layer(0)
    q, k = layer.rotate(q, k)
    return jnp.einsum("bqhc,bkhc->bhqk", q, k)[0] / 8**0.5


def test_llama3_is_ntk_by_parts():
    """Between its own ends, and for those of the released model too."""
    options = {"base": 100.0, "factor": 3.0, "length": 64}
    llama3 = table_of(extension.llama3(**options, low=1.5, high=6.0), counted(9), 12)
    parts = rotary_scaling.ntk_by_parts(**options, beta_slow=1.5, beta_fast=6.0)
    assert gap(llama3.cos, table_of(parts, counted(9), 12).cos) < 1e-6
    other = extension.llama3(**options)
    assert gap(llama3.cos, table_of(other, counted(9), 12).cos) > 1e-2, "control: other ends"


@pytest.mark.parametrize("length", [8, 9])
def test_longrope_list_by_length(length):
    """Up to the trained length the short list divides the frequencies, beyond it the long one."""
    longrope = extension.longrope(length=8, factor=1.0, **LISTS)
    plain_F = 10_000.0 ** (-np.arange(8) / 8)
    divided_F = plain_F / np.array(LISTS["short" if length == 8 else "long"])
    angle = np.arctan2(*table_of(longrope, counted(1, 1), length)[::-1])[0, 0, 0]
    assert gap(angle, divided_F) < 1e-7
    assert gap(angle, plain_F) > 1e-4


def test_longrope_lists_of_packed_documents():
    """Each document by its own length, so decoding with the length stated is the full pass."""
    longrope = extension.longrope(length=4, **LISTS)
    pos = jnp.asarray([[0, 1, 2, 0, 1, 2, 3, 4, 5]], jnp.int32)
    length = jnp.asarray([[3] * 3 + [6] * 6], jnp.int32)
    both = table_of(longrope, pos, length)
    assert gap(both.cos[:, :3], table_of(longrope, pos[:, :3], 3).cos) == 0.0
    assert gap(both.cos[:, 3:], table_of(longrope, pos[:, 3:], 6).cos) == 0.0
    assert gap(both.cos[:, :3], table_of(longrope, pos[:, :3], 6).cos) > 1e-4, "control"


def test_longrope_temperature():
    """Queries and keys each carry the root of 1 + ln factor / ln length, at every length."""
    root = np.sqrt(1 + np.log(16.0) / np.log(2048))
    for length in (12, 5000):
        table = table_of(extension.longrope(factor=16.0), counted(0), length)
        assert gap(np.hypot(table.cos, table.sin), root) < 1e-6
    assert root > 1.1


def test_longrope_keeps_its_first_tokens():
    """Positions below start turn as trained; the others as they would without it."""
    long_first, plain = (extension.longrope(length=4, start=s) for s in (5, 0))
    rope = rotary.rope()
    actual, without, trained = (table_of(e, counted(0), 12) for e in (long_first, plain, rope))
    root = np.float32(np.sqrt(1 + np.log(4) / np.log(4)))
    assert gap(actual.cos[:, :5], trained.cos[:, :5] * root) < 1e-6
    assert gap(actual.cos[:, 5:], without.cos[:, 5:]) == 0.0
    assert gap(actual.cos[:, :5], without.cos[:, :5]) > 1e-3


def test_resonance_repeats_after_whole_wavelengths():
    """Each pair is back at its start after a whole number of tokens, as in the authors' code."""
    with jax.enable_x64(True):
        resonance, rope = extension.resonance(), rotary.rope()
        for pair, wave in enumerate((6, 20, 63, 199)):  # 2 pi 10000^(k/8), rounded
            there = table_of(resonance, counted(wave, 1), 12).sin[0, 0, 0, pair]
            assert abs(float(there)) < 1e-8
            plain = table_of(rope, counted(wave, 1), 12).sin[0, 0, 0, pair]
            assert abs(float(plain)) > 1e-3, "control: rope"


def test_resonance_rounds_yarn():
    """With a factor: the wavelengths of `yarn`, rounded, and its temperature."""
    options = {"factor": 8.0, "length": 64, "ramp": "pairs_truncated"}
    with jax.enable_x64(True):
        actual, yarn = (
            table_of(build(**options), counted(1, 1), 12)
            for build in (extension.resonance, rotary_scaling.yarn)
        )
        wave_F = [2 * np.pi / np.arctan2(t.sin, t.cos)[0, 0, 0] for t in (actual, yarn)]
        np.testing.assert_allclose(wave_F[0], np.round(wave_F[1]), rtol=1e-9)
        assert np.abs(wave_F[0] - wave_F[1]).max() > 0.1, "control: yarn itself"
        assert gap(np.hypot(*actual), np.hypot(*yarn)) < 1e-12


def test_drope_is_nope_up_to_the_trained_length():
    """Then logits grow by 1 + temperature ln s, on one side alone."""
    nope_logits = jnp.einsum("bqhc,bkhc->bhqk", *vectors(1))[0] / 8**0.5
    drope = extension.drope(length=12, temperature=0.5)
    assert gap(score(drope, counted(0), 12), nope_logits) < 1e-6
    assert gap(score(drope, counted(99), 5), nope_logits) < 1e-6
    longer = score(drope, counted(0), 48)
    assert gap(longer, nope_logits * (1 + 0.5 * np.log(4))) < 1e-5
    assert gap(longer, nope_logits * (1 + 0.5 * np.log(4)) ** 2) > 1e-1, "control: on both sides"


@pytest.mark.parametrize(
    ("build", "options", "message"),
    [
        (extension.llama3, {"factor": 0.5}, "encoding.factor: 0.5 must be 1 or more"),
        (extension.llama3, {"low": 5.0}, "encoding.high: 4.0 must be low 5.0 or more"),
        (extension.llama3, {"low": 0.0}, "encoding.low: 0.0 must be positive"),
        (extension.longrope, {"length": 1}, "encoding.length: 1 must be 2 or more"),
        (extension.longrope, {"start": -1}, "encoding.start: -1 must be 0 or more"),
        (
            extension.longrope,
            {"long": (1.0, 0.0)},
            r"encoding.long: \(1.0, 0.0\) must be positive",
        ),
        (extension.drope, {"length": 0}, "encoding.length: 0 must be 1 or more"),
        (
            extension.drope,
            {"temperature": -1.0},
            "encoding.temperature: -1.0 must be 0 or more",
        ),
    ],
)
def test_refused_options(build, options, message):
    with pytest.raises(ValueError, match=f"^{message}") as refusal:
        build(**options)
    assert "\n" not in str(refusal.value)


def test_a_list_of_another_width_is_refused():
    longrope = extension.longrope(long=(1.0, 2.0))
    with pytest.raises(ValueError, match=r"^encoding.long: .* has 2 numbers; a head of 8 has 4"):
        logits(longrope, {}, *vectors(0), counted(0))
