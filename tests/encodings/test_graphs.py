"""Graphs and units: eigenvectors of Laplacians with their signs, and BiPE's two positions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax import Dims, full, make
from posenc_jax.attention import frame, logits
from posenc_jax.encoding import place
from posenc_jax.encodings.graphs import eigenvectors, return_probabilities
from posenc_jax.layout import layout, unit_places

RING = np.roll(np.eye(7), 1, axis=1) + np.roll(np.eye(7), -1, axis=1)
RING[0, 3] = RING[3, 0] = 1  # a chord, so that eigenvalues are apart


def laplacian(adjacency):
    scale = np.diag(adjacency.sum(axis=0) ** -0.5)
    return np.eye(len(adjacency)) - scale @ adjacency @ scale


def test_eigenvectors_are_those_of_the_laplacian_after_the_trivial_one():
    u = eigenvectors(RING, 4).astype(np.float64)
    value = np.diag(u.T @ laplacian(RING) @ u)
    np.testing.assert_allclose(laplacian(RING) @ u, u * value, atol=1e-5)
    np.testing.assert_allclose(value, np.linalg.eigvalsh(laplacian(RING))[1:5], atol=1e-5)
    assert np.abs(laplacian(np.ones((7, 7))) @ u - u * value).max() > 0.1, "control: other edges"


def test_eigenvectors_follow_the_nodes_and_fill_a_small_graph_with_zeros():
    order = np.random.default_rng(0).permutation(7)
    u, moved = eigenvectors(RING, 3), eigenvectors(RING[order][:, order], 3)
    np.testing.assert_allclose(np.abs(moved), np.abs(u[order]), atol=1e-5)
    assert np.abs(np.abs(moved) - np.abs(u)).max() > 0.1, "control"
    few = eigenvectors(RING, 9)
    assert few.shape == (7, 9)
    assert (few[:, 6:] == 0).all()
    assert np.abs(few[:, :6]).max(axis=0).min() > 0


def test_signs_are_drawn_for_each_graph_in_training_alone():
    u_TA = jnp.asarray(eigenvectors(RING, 3))
    at = layout(jnp.array([[1] * 7 + [2] * 7] * 200), jnp.tile(u_TA, (200, 2, 1)))
    encoding = make("laplacian", vectors=3)
    np.testing.assert_array_equal(place(encoding, None, at)[0, :7], u_TA)
    actual = np.asarray(place(encoding, jax.random.key(0), at))
    sign = actual / np.asarray(at.pos_BT)
    graphs = sign.reshape(400, 7, 3)
    np.testing.assert_allclose(graphs, np.broadcast_to(graphs[:, :1], graphs.shape), rtol=1e-5)
    assert set(np.unique(np.round(graphs))) == {-1, 1}
    assert len({tuple(g) for g in np.round(graphs[:, 0])}) == 8, "control: all combinations"
    assert (graphs[::2, 0] != graphs[1::2, 0]).any(), "control: two graphs of a row"


def test_laplacian_refuses_fewer_eigenvectors_than_it_reads():
    at = layout(jnp.ones((1, 7), jnp.int32), jnp.asarray(eigenvectors(RING, 3))[None])
    with pytest.raises(ValueError, match=r"encoding\.vectors: 8 eigenvectors are not in positions"):
        place(make("laplacian", vectors=8), None, at)
    with pytest.raises(ValueError, match="adjacency: shape"):
        eigenvectors(np.triu(RING), 3)


def test_walks_return_as_often_as_they_are_counted():
    """Probabilities by counting all walks of n steps in a small graph with a lone node."""
    path = np.array([[0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0]])
    wanted = [[1, 0, 0.5, 0, 0.5], [1, 0, 1, 0, 1], [1, 0, 0.5, 0, 0.5], [1, 0, 0, 0, 0]]
    np.testing.assert_allclose(return_probabilities(path, 5), wanted)
    heavy = return_probabilities(np.array([[0, 3, 1], [3, 0, 1], [1, 1, 0]]), 3)
    np.testing.assert_allclose(heavy[:, 2], [0.75**2 + 0.25 / 2] * 2 + [0.25], rtol=1e-6)
    with pytest.raises(ValueError, match="adjacency: shape"):
        return_probabilities(np.triu(RING), 3)


def test_random_walk_refuses_fewer_numbers_than_it_reads():
    at = layout(jnp.ones((1, 7), jnp.int32), jnp.asarray(return_probabilities(RING, 3))[None])
    assert place(make("random_walk", steps=3), None, at).shape == (1, 7, 3)
    with pytest.raises(ValueError, match=r"encoding\.steps: 8 numbers are not in positions"):
        place(make("random_walk", steps=8), None, at)


STOP, LINE = 1, 2
TEXT = [[5, 6, STOP, 7, LINE, STOP, 8, 9, 5], [5, 6, 7, 8, 9, 5, 6, 7, STOP]]


@pytest.mark.thorough
def test_units_are_those_of_reading_the_text():
    """Place in the unit and number of the unit, token by token; a separator ends its unit."""
    inner, outer = [], []
    for line in TEXT:
        place_in, unit = 0, 0
        inner.append([])
        outer.append([])
        for token in line:
            inner[-1].append(place_in)
            outer[-1].append(unit)
            ends = token in (STOP, LINE)
            place_in, unit = (0, unit + 1) if ends else (place_in + 1, unit)
    at = full(2, 9).replace(group_BT=unit_places(jnp.asarray(TEXT), (STOP, LINE)))
    np.testing.assert_array_equal(place(make("bipe_inner"), None, at), inner)
    np.testing.assert_array_equal(place(make("bipe_outer"), None, at), outer)
    only_stops = at.replace(group_BT=unit_places(jnp.asarray(TEXT), (STOP,)))
    assert np.asarray(place(make("bipe_outer"), None, only_stops)).max() == 2, "control"


@pytest.mark.thorough
def test_bipe_rope_counts_units_in_attention_and_places_at_the_input():
    """Equal tokens: attention sees whole units apart, and embeddings differ by place alone."""
    encoding = make("bipe_inner+learned+bipe_outer+rope", length=4, beyond="clamp")
    dims = Dims(16, 2, 8)
    params = encoding.init(jax.random.key(0), dims)
    at = full(1, 9).replace(group_BT=unit_places(jnp.asarray(TEXT[:1]), (STOP, LINE)))
    view = frame(encoding, params, at, dims, form="dense")
    x_TD = np.asarray(view.embed(jnp.zeros((1, 9, 16))))[0]
    np.testing.assert_array_equal(x_TD[[0, 3, 5, 6]], np.tile(x_TD[0], (4, 1)))
    assert np.abs(x_TD[1] - x_TD[0]).max() > 0.01, "control: another place"
    q = jnp.ones((1, 9, 2, 8))
    s_K = np.asarray(logits(q, q, view.layer(0)))[0, 0, 8]
    unit_T = [0, 0, 0, 1, 1, 2, 3, 3, 3]
    first = {unit: s_K[unit_T.index(unit)] for unit in unit_T}
    np.testing.assert_allclose(s_K, [first[unit] for unit in unit_T], rtol=1e-6)
    assert len(set(np.round(list(first.values()), 3))) == 4, "control: units are told apart"
