"""Rotary methods of several axes: sections, learned crosses, time in seconds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax.encoding import Dims, at_layer, place
from posenc_jax.encodings import rotary, rotary_axes
from posenc_jax.encodings.rotary_axes import pair_axes
from tests.encodings.test_rotary import DIMS, counted, first_layer, logits, spread, vectors
from tests.support.catalogue import gap, standing


def test_axial():
    """Rows and columns each shift on their own; one is not the other."""
    encoding = rotary_axes.axial()
    q, k = vectors(8)
    grid = spread(counted(0), 2)
    score = lambda pos: logits(encoding, {}, q, k, pos)
    moved = jnp.asarray([1000, -3], jnp.int32)[None, None]
    assert gap(score(grid), score(grid + moved)) < 5e-6
    assert gap(score(grid), score(grid[..., ::-1])) > 1e-2
    with pytest.raises(ValueError, match=r"^positions: shape \(1, 12\)"):
        encoding.table({}, counted(0), DIMS)
    with pytest.raises(ValueError, match=r"^positions: shape \(1, 12, 2\) is not \[B, T\]$"):
        rotary.rope().table({}, grid, DIMS)


def test_mixed_begins_with_crosses():
    """Sizes are a ladder, both halves of the pairs at a right angle, tilted for each head."""
    encoding = rotary_axes.mixed(base=10.0)
    params = encoding.init(jax.random.key(1), Dims(24, 3, 8, layers=2))
    assert [leaf["freq_AHF"].shape for leaf in params] == [(2, 3, 4)] * 2
    assert gap(params[0]["freq_AHF"], params[1]["freq_AHF"]) > 1e-2
    row_HF, column_HF = params[0]["freq_AHF"]
    sizes = np.tile(10.0 ** (-np.arange(2) / 2), 2)
    assert gap(np.hypot(row_HF, column_HF), np.tile(sizes, (3, 1))) < 1e-6
    across = row_HF[:, :2] * row_HF[:, 2:] + column_HF[:, :2] * column_HF[:, 2:]
    assert gap(across, 0 * across) < 1e-6
    tilt_H = np.arctan2(row_HF[:, 0], column_HF[:, 0])
    assert abs(np.diff(tilt_H)).min() > 1e-2


def test_mixed_turns_along_diagonals():
    """A pair with equal frequencies sees row + column alone; `axial` has no such pair."""
    encoding, params = first_layer("mixed")
    params = {"freq_AHF": jnp.broadcast_to(params["freq_AHF"][:1], (2, 3, 4))}
    q, k = vectors(9)
    grid = spread(counted(0), 2)
    slide = jnp.stack([counted(0), -counted(0)], axis=-1)
    assert (
        gap(logits(encoding, params, q, k, grid), logits(encoding, params, q, k, grid + slide))
        < 1e-5
    )
    axial = rotary_axes.axial()
    assert gap(logits(axial, {}, q, k, grid), logits(axial, {}, q, k, grid + slide)) > 1e-2


@pytest.mark.parametrize("order", ["sections", "interleaved"])
@pytest.mark.parametrize("pairing", ["half", "interleaved"])
def test_mrope_of_text_is_rope(order, pairing):
    """Three equal ids are rope to the bit, so one model reads text and pictures."""
    q, k = vectors(10)
    mrope = rotary_axes.mrope(base=500.0, pairing=pairing, order=order)
    rope = rotary.rope(base=500.0, pairing=pairing)
    equal = jnp.stack([counted(1000)] * 3, axis=-1)
    wanted = logits(rope, {}, q, k, counted(1000))
    assert gap(logits(mrope, {}, q, k, equal), wanted) == 0.0
    assert gap(logits(mrope, {}, q, k, spread(counted(1000), 3)), wanted) > 1e-2, "control"


def test_sections_of_released_models():
    """A head of 128: 16 time, 24 height, 24 width; dealt out in turn, 24, 20, 20."""
    assert list(pair_axes(64, (), "sections")) == [0] * 16 + [1] * 24 + [2] * 24
    assert list(pair_axes(64, (), "interleaved")) == [0, 1, 2] * 20 + [0] * 4
    assert list(pair_axes(64, (24, 20, 20), "interleaved")) == [0, 1, 2] * 20 + [0] * 4
    assert list(pair_axes(1, (), "sections")) == [0]


@pytest.mark.thorough(after=2)
@pytest.mark.parametrize("width", [2, 4, 6, 10])
@pytest.mark.parametrize("order", ["sections", "interleaved"])
def test_default_sections_fit_any_width(width, order):
    q, k = vectors(11, dims=Dims(width, 1, width))
    score = logits(rotary_axes.mrope(order=order), {}, q, k, spread(counted(0), 3))
    assert bool(jnp.isfinite(score).all())


def test_tmrope_reads_seconds():
    """Sound at 40 ms and a frame of the same moment have one id, as `mrope` would be given."""
    q, k = vectors(12)
    tmrope, mrope = rotary_axes.tmrope(), rotary_axes.mrope()
    ids = np.array([0, 1, 2, 3, 12, 12, 25, 37, 50, 75, 100, 25_000])
    seconds = np.array([0, 0.04, 0.08, 0.12, 0.5, 0.48, 1, 1.5, 2, 3, 4, 1000], np.float32)
    wanted = jnp.stack([jnp.asarray(ids, jnp.int32)] * 3, axis=-1)[None]
    places = jnp.asarray(wanted, float).at[0, :, 0].set(seconds)
    time_BT, *_ = place(tmrope, None, standing(places))
    assert time_BT.dtype == jnp.int32
    assert time_BT[0].tolist() == ids.tolist()
    assert gap(logits(tmrope, {}, q, k, places), logits(mrope, {}, q, k, wanted)) < 1e-6
    assert gap(logits(tmrope, {}, q, k, places * 2), logits(mrope, {}, q, k, wanted)) > 1e-2


def test_tmrope_whole_seconds_are_exact():
    """Ids past 2^24, which no float32 holds, still count up by the rate."""
    at = jnp.stack([counted(2_000_000)] * 3, axis=-1)
    time_BT, *_ = place(rotary_axes.tmrope(), None, standing(at))
    assert time_BT[0].tolist() == [25 * (2_000_000 + t) for t in range(12)]


@pytest.mark.parametrize(
    ("build", "options", "message"),
    [
        (rotary_axes.axial, {"base": 0.0}, "encoding.base: 0.0 must be positive"),
        (rotary_axes.mixed, {"pairing": "x"}, "encoding.pairing: 'x' is not one of"),
        (rotary_axes.mrope, {"order": "x"}, "encoding.order: 'x' is not one of: 'sections'"),
        (
            rotary_axes.mrope,
            {"sections": (1, 2)},
            r"encoding.sections: \(1, 2\) is not three",
        ),
        (rotary_axes.mrope, {"sections": (1, 2, -1)}, "encoding.sections: .* is not three"),
        (rotary_axes.tmrope, {"rate": 0}, "encoding.rate: 0 must be 1 or more"),
    ],
)
def test_refused_options(build, options, message):
    with pytest.raises(ValueError, match=f"^{message}") as refusal:
        build(**options)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("encoding", "head", "message"),
    [
        (rotary_axes.axial(), 6, "head: 6 channels; two axes"),
        (rotary_axes.mixed(), 6, "head: 6 channels; two axes"),
        (rotary_axes.mrope(), 7, "head: 7 channels do not pair"),
        (
            rotary_axes.mrope(sections=(2, 2, 2)),
            8,
            r"encoding.sections: \(2, 2, 2\) sum to 6",
        ),
        (
            rotary_axes.mrope(sections=(1, 2, 1), order="interleaved"),
            8,
            r"encoding.sections: \(1, 2, 1\) do not interleave",
        ),
    ],
)
def test_refused_widths(encoding, head, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        encoding.init(jax.random.key(0), Dims(head, 1, head))


@pytest.mark.parametrize("build", [rotary_axes.mixed, rotary_axes.mrope, rotary_axes.tmrope])
def test_refused_positions(build):
    encoding = build()
    _, params = at_layer(encoding, 0, encoding.init(jax.random.key(0), DIMS))
    with pytest.raises(ValueError, match=r"^positions: shape \(1, 12\) is not \[B, T, [23]\], \("):
        logits(at_layer(encoding, 0, ({},))[0], params, *vectors(0), counted(0))
