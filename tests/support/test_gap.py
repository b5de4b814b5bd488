"""The largest difference that tests ask for: NaN is no agreement, and no control."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

from tests.support.catalogue import gap

A = np.array([0.5, 2.0, -4.0])


def test_numbers():
    assert gap(A, A) == 0.0
    assert gap(A, [0.5, 2.0, -3.0]) == 1.0
    assert gap(A, 0.0) == 4.0, "one number for all"
    assert gap(A, A + 1, relative=True) == 0.25
    assert gap(A / 4, A / 4 + 1, relative=True) == 1.0
    assert gap(jnp.zeros((0, 3)), jnp.zeros((0, 3))) == 0.0


@pytest.mark.parametrize("relative", [False, True])
def test_infinity(relative):
    infinite = np.array([0.5, np.inf, -4.0])
    assert gap(infinite, infinite, relative) == 0.0
    assert gap(A, infinite, relative) == math.inf
    assert gap(infinite, -infinite, relative) == math.inf


@pytest.mark.parametrize("first", [0, 1, 2])
def test_nan_in_one(first):
    """At each place of an array, and in each leaf of a tree."""
    bad = A.copy()
    bad[first] = np.nan
    assert gap(A, bad) == gap(bad, A, nan=True) == math.inf
    tree = [A] * first + [bad] + [A] * (2 - first)
    assert gap([A] * 3, tree) == math.inf


@pytest.mark.parametrize("numbers", [1, 3])
def test_nan_in_both_is_an_error_unless_it_is_expected(numbers):
    """Neither `gap(a, b) < 1e-5` nor the control `gap(a, b) > 1e-3` passes."""
    a, b = A.copy(), A + 1
    a[:numbers] = b[:numbers] = np.nan
    with pytest.raises(AssertionError, match=f"^{numbers} of 3 numbers are NaN in both arrays$"):
        gap({"x": A, "y": a}, {"x": A, "y": b})
    assert gap(a, b, nan=True) == (1.0 if numbers == 1 else 0.0)


def test_trees_of_another_structure():
    with pytest.raises(ValueError, match="different lengths of tuple"):
        gap((A, A), (A,))
