"""Biases that content weighs, vectors of rows and columns, BAM's curve and Swin V2's network."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax import Dims, Side, at_layer, layout, make
from posenc_jax.encodings import card
from posenc_jax.encodings.offset_vectors import irpe_buckets
from tests.support.catalogue import attention, encoding_of, gap, layers, stir

DIMS = Dims(model=12, heads=3, head=4, layers=1)
SIDE = 5
GRID = jnp.stack(jnp.meshgrid(jnp.arange(SIDE), jnp.arange(SIDE), indexing="ij"), -1)


def layer_of(name, **options):
    """The encoding of a layer, and parameters with noise."""
    encoding = make(name, **options)
    return at_layer(encoding, 0, stir(encoding.init(jax.random.key(0), DIMS), 1))


def added(name, pos, **options):
    """What the method adds to logits of 0, [H, Q, K]."""
    encoding, params = layer_of(name, **options)
    q, k = jax.random.normal(jax.random.key(1), (2, 1, len(pos), DIMS.heads, DIMS.head))
    x = q.reshape(1, len(pos), DIMS.model)
    feat = encoding.walk.prepare and encoding.walk.prepare(params, x)
    sides = (Side(side, jnp.asarray(pos)[None], feat) for side in (q, k))
    zeros = jnp.zeros((1, DIMS.heads, len(pos), len(pos)))
    return encoding.walk.score(params, zeros, *sides, None, None)[0][0]


def bias_of(name, params, pos, **options):
    encoding, _ = layer_of(name, **options)
    pos = jnp.asarray(pos)[None]
    return encoding.bias(params, pos, pos, DIMS)


def interaction(name):
    """s(row, column) - s(row, 0) - s(0, column) + s(0, 0), for offsets of a middle query."""
    s_HQRC = added(name, GRID.reshape(-1, 2)).reshape(DIMS.heads, -1, SIDE, SIDE)
    s_HQRC = s_HQRC - s_HQRC[..., :1, :]
    return float(jnp.abs(s_HQRC - s_HQRC[..., :1]).max())


@pytest.mark.thorough
def test_decomposed_offsets_of_rows_and_columns_do_not_interact():
    assert interaction("decomposed") < 1e-5
    assert interaction("irpe") > 0.1, "control: it has a vector for each pair of offsets"


@pytest.mark.thorough
def test_irpe_has_a_bucket_for_each_near_distance_and_shares_far_ones():
    assert irpe_buckets(1.9)[:6].tolist() == [0, 1, 2, 2, 3, 3]
    assert irpe_buckets(1.9)[-1] == 3
    fine = irpe_buckets(5.0)
    assert fine[:6].tolist() == [0, 1, 2, 3, 4, 5]
    assert (np.diff(fine) >= 0).all()
    assert fine[-1] == 10
    assert fine[-2] < 11
    far = added("irpe", [[0, 0], [0, 16], [0, 99]])
    assert gap(far[:, 0, 1], far[:, 0, 2]) == 0.0
    assert gap(far[:, 0, 1], far[:, 1, 0]) > 1e-2, "control: the other direction"


def test_content_bias_is_given_to_keys_behind_the_query_within_its_reach():
    s_HQK = np.asarray(added("content_bias", np.arange(9), distance=4))
    away_QK = np.arange(9)[:, None] - np.arange(9)
    inside_QK = (away_QK >= 0) & (away_QK < 4)
    assert (s_HQK[:, ~inside_QK] == 0).all()
    assert np.abs(s_HQK[:, inside_QK]).min() > 0


TABLES = ["clipped", "swin_2d", "shaw", "deberta", "decomposed", "irpe", "content_bias"]


@pytest.mark.parametrize("name", TABLES)
def test_a_table_of_whole_offsets_gives_nan_at_a_fraction(name):
    encoding = encoding_of(name)
    params = stir(encoding.init(jax.random.key(0), Dims(12, 3, 4, layers(encoding))), 1)
    q, k, v = jax.random.normal(jax.random.key(1), (3, 1, 3, 3, 4))

    def at(*pos):
        pos_BT = jnp.asarray([pos])
        pos_BT = pos_BT if card(name).axes < 2 else jnp.stack([pos_BT, 0 * pos_BT], -1)
        return attention(encoding, params, q, k, v, layout(pos_BT=pos_BT), causal=False)

    assert gap(at(0.0, 1.0, 3.0), at(0, 1, 3)) < 1e-6, "control: whole numbers, as floats"
    assert gap(at(0.0, 1.0, 3.0), at(0, 1, 2)) > 1e-4
    assert np.isnan(at(0.0, 1.0, 2.5)).all()
    assert not np.isnan(at(0.5, 1.5, 2.5)).any(), "control: offsets, not positions"


def test_bam_starts_as_alibi():
    pos = np.arange(40)
    params = make("bam").init(jax.random.key(0), DIMS)
    alibi = bias_of("alibi", {}, pos)
    assert gap(bias_of("bam", params, pos), alibi) < 1e-4
    moved = {**params, "loc": params["loc"] - 1}
    assert gap(bias_of("bam", moved, pos), alibi) > 0.1


def test_bam_peaks_at_its_centre_and_a_negative_shape_avoids_it():
    params = {"log_scale": jnp.zeros(3), "shape": jnp.asarray([2.0, 1.0, -0.5])}
    loc = np.arcsinh(-3 / 2)  # 3 tokens behind the query
    row = bias_of("bam", {**params, "loc": jnp.full(3, loc)}, np.arange(9))[0, :, 6]
    assert row.argmax(-1).tolist()[:2] == [3, 3]
    assert row.argmin(-1).tolist()[2] == 3


@pytest.mark.thorough
def test_bam_has_finite_derivatives_at_distance_0():
    params = make("bam").init(jax.random.key(0), DIMS)
    params = {**params, "shape": params["shape"] / 2}
    slopes = jax.grad(lambda params: bias_of("bam", params, [0, 0, 1]).sum())(params)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(slopes))
    bare = jax.grad(lambda loc: jnp.abs(loc) ** 0.5)(0.0)
    assert not np.isfinite(bare), "control: without what is added to the distance"


@pytest.mark.thorough
def test_swin_v2_in_one_row_is_mlp():
    _, params = layer_of("swin_v2", hidden=6)
    pos = np.stack([np.zeros(7, int), np.arange(7)], axis=1)
    one_axis = {**params, "w1": params["w1"][1]}
    wanted = bias_of("mlp", one_axis, pos[:, 1], reach=8, squash=True, hidden=6)
    assert gap(bias_of("swin_v2", params, pos, hidden=6), wanted) < 1e-6
    assert gap(bias_of("swin_v2", params, pos, hidden=6, window=9), wanted) > 1e-3


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("swin_v2", {"window": 1}, "encoding.window: 1 must be 2 or more"),
        ("decomposed", {"window": 0}, "encoding.window: 0 must be 1 or more"),
        ("irpe", {"ratio": 0.4}, "encoding.ratio: 0.4 must be 0.5 or more"),
        ("content_bias", {"curves": 0}, "encoding.curves: 0 must be 1 or more"),
        ("tapa", {"share": 1.0}, "encoding.share: 1.0 must be between 0 and 1"),
        ("grape_ap", {"width": 3}, "encoding.width: 3 must be positive and even"),
    ],
)
def test_a_bad_option_is_refused_in_one_line(name, options, message):
    with pytest.raises(ValueError, match="encoding") as refusal:
        make(name, **options)
    assert str(refusal.value).startswith(message)
    assert "\n" not in str(refusal.value)
