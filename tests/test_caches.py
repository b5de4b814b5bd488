"""Caches whose rows are filled up to columns of their own; the code of docs/caches.md."""

import zlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax import Dims, attend, frame, full, layout, make
from tests.catalogue import gap, stir

DIMS = Dims(16, 2, 8, 2)
CAPACITY, NEW = 10, 2
FILLED = np.array([3, 8, 0])  # tokens of each row before the new ones
METHODS = ["rope", "alibi", "ssmax", "sinusoidal", "repo", "fox+alibi", "stick_breaking", "dape_v2"]


def drawn(heads=1):
    rng = np.random.default_rng(0)
    shapes = [(3, CAPACITY, 16), *[(3, CAPACITY, n, 8) for n in (2, heads, heads)]]
    return [jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in shapes]


def rows_of(name: str, form: Any = "dense", at=None):
    """(attention of the new tokens of rows that begin at start_B, that of all tokens of all)."""
    encoding, (x, q, k, v) = make(name), drawn()
    params = stir(encoding.init(jax.random.key(0), DIMS), zlib.crc32(name.encode()))
    every = frame(encoding, params, full(3, CAPACITY), DIMS, form="dense")
    whole_x = every.embed(x)

    def new(start, filled_B):
        held = layout(np.arange(CAPACITY) < filled_B[:, None] + NEW) if at is None else at
        view = frame(encoding, params, held, DIMS, queries=(start, NEW), form=form, block=4)
        rows, columns = np.arange(3)[:, None], filled_B[:, None] + np.arange(NEW)
        view.embed(x[rows, columns])
        layer = view.layer(1, whole_x[rows, columns], whole_x)
        return attend(q[rows, columns], k, v, layer)

    return new, lambda: attend(q, k, v, every.layer(1, whole_x))


@pytest.mark.parametrize("name", METHODS)
def test_rows_may_begin_at_columns_of_their_own(name):
    columns = FILLED[:, None] + np.arange(NEW)
    for form in ["dense", *(["blockwise"] if name != "dape_v2" else [])]:
        new, whole = rows_of(name, form)
        run = jax.jit(lambda start, new=new: new(start, FILLED))
        wanted = np.asarray(whole())[np.arange(3)[:, None], columns]
        assert gap(run(FILLED), wanted) < 1e-5
        assert gap(new(FILLED, FILLED), wanted) < 1e-5, "known when tracing"
        assert gap(run(FILLED - np.array([1, 1, 0]))[2], wanted[2]) < 1e-5
        assert gap(run(FILLED - np.array([1, 1, 0]))[:2], wanted[:2]) > 1e-3, (
            "control: other columns"
        )
        outside = np.asarray(run(FILLED + np.array([0, 1, -1])))
        assert np.isnan(outside[1:]).all(), "past the end, and before the beginning"
        assert gap(outside[0], wanted[0]) < 1e-5, "a row within is right beside them"


@pytest.mark.parametrize("name", ["rope", "alibi", "t5"])
def test_kernels_take_rows_that_begin_at_columns_of_their_own(name):
    new, whole = rows_of(name, "kernel")
    wanted = np.asarray(whole())[np.arange(3)[:, None], FILLED[:, None] + np.arange(NEW)]
    assert gap(new(FILLED, FILLED), wanted) < 1e-5


@pytest.mark.parametrize("name", ["rope", "alibi", "fox"])
def test_one_layout_may_be_of_all_rows(name):
    """What differs is the start alone: all rows of the cache are full."""
    for form in ("dense", "blockwise"):
        new, whole = rows_of(name, form, full(1, CAPACITY))
        wanted = np.asarray(whole())[np.arange(3)[:, None], FILLED[:, None] + np.arange(NEW)]
        assert gap(new(FILLED, FILLED), wanted) < 1e-5


@pytest.mark.parametrize(
    ("start", "line"),
    [
        (FILLED + 1, "queries: columns 9 to 9 + 2 of 10 tokens"),
        (jnp.asarray(FILLED - 1), "queries: columns -1 to -1 + 2 of 10 tokens"),
        (FILLED[:2], "queries: start: shape (2,); give one number, or one a row, [3]"),
        (FILLED[:, None], "queries: start: shape (3, 1); give one number, or one a row, [3]"),
        (FILLED + 0.0, "queries: start: dtype float64; give whole numbers"),
        (FILLED > 0, "queries: start: dtype bool; give whole numbers"),
    ],
)
def test_a_start_that_does_not_fit_is_refused_in_one_line(start, line):
    with pytest.raises(ValueError, match="queries") as refusal:
        frame(make("rope"), {}, full(3, CAPACITY), DIMS, queries=(start, NEW))
    assert str(refusal.value) == line
