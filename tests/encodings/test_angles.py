"""Angles against extended precision, far out, and their derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax.encodings.rotation import angles, ladder
from tests.encodings.test_rotary import FAR
from tests.support.catalogue import gap


def error(found_BTHF, pos_T, freq_F) -> float:
    """Largest error of angles in radians, whole turns aside."""
    long = np.longdouble(np.asarray(found_BTHF, np.float64)[0, :, 0])
    missed = long - np.longdouble(pos_T)[:, None] * np.longdouble(freq_F)
    turn = 2 * np.longdouble("3.14159265358979323846264338327950288")
    return float(np.abs(missed - np.round(missed / turn) * turn).max())


@pytest.mark.parametrize("top", FAR)
def test_angles_far(top):
    freq_F = ladder(64, 10_000.0)
    pos_T = np.append(np.random.default_rng(0).integers(-top, top, 2000), [0, top, -top])
    assert error(angles(jnp.asarray(pos_T[None], jnp.int32), freq_F[None]), pos_T, freq_F) < 5e-7
    part_T = (pos_T / 8).astype(np.float32)
    assert error(angles(jnp.asarray(part_T[None]), freq_F[None]), part_T, freq_F) < 6e-7
    naive = np.float32(pos_T)[None, :, None, None] * np.float32(freq_F)
    assert error(naive, pos_T, freq_F) > 1e-5, "control: a float32 product"


def test_angles_fast_and_backward():
    """Frequencies past half a turn, at half a turn, and below zero."""
    freq_F = np.array([5.0, np.pi, -0.3, 100.0, 0.0])
    pos_T = np.array([0, 1, 7, 99_999])
    actual = angles(jnp.asarray(pos_T[None], jnp.int32), freq_F[None])
    assert error(actual, pos_T, freq_F) < 5e-7


@pytest.mark.parametrize("top", FAR)
def test_angles_traced(top):
    """A frequency known on the device alone is taken in full, all 24 bits of it."""
    draw = np.random.default_rng(1)
    freq_F = np.float32([*10 ** draw.uniform(-6, 1, 60), -0.3, np.pi, 0.0, 1e-30])
    pos_T = np.append(draw.integers(-top, top, 500), [0, top, -top])
    run = jax.jit(lambda freq_F: angles(jnp.asarray(pos_T[None], jnp.int32), freq_F[None]))
    assert error(run(jnp.asarray(freq_F)), pos_T, freq_F) < 6e-7
    assert error(run(jnp.asarray(freq_F * np.float32(1 + 2e-7))), pos_T, freq_F) > 1e-5, "control"


def test_angles_derivative():
    """By a float position and by a traced frequency."""
    freq = jnp.asarray([[0.3, 0.01]])
    pos = jnp.asarray([[2.0, 7.25]])
    total = lambda pos, freq: angles(pos, freq).sum()
    by_pos, by_freq = jax.grad(total, (0, 1))(pos, freq)
    assert gap(by_pos, np.full((1, 2), 0.31)) < 1e-6
    assert gap(by_freq, np.full((1, 2), 9.25)) < 1e-6
    constant = jax.grad(lambda freq: total(pos, jax.lax.stop_gradient(freq)))(freq)
    assert gap(constant, 0.0) == 0.0, "control: a frequency that is not learned"
