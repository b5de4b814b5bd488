"""Positions of nodes of graphs by eigenvectors of the Laplacian, and by random walks. For trees see
`rotary_generators.tree`.
"""

import jax
import numpy as np

from posenc_jax.encoding import Encoding
from posenc_jax.encodings import input_codes as codes
from posenc_jax.encodings.card import Count, register, require
from posenc_jax.encodings.positions_augmented import per_token, sequence_keys


def eigenvectors(adjacency_TT: np.ndarray, count: int) -> np.ndarray:
    """Eigenvectors of I - N A N, N = diag(degree^-1/2), by growing eigenvalue, float32 [T, count].

    The first, trivial one is left out. Columns that a small graph has no eigenvector for are 0. It
    runs on the host. ValueError: the adjacency is not square and symmetric.
    """
    a_TT = _symmetric(adjacency_TT)
    scale_T = np.maximum(a_TT.sum(axis=1), 1) ** -0.5
    _, vector_TT = np.linalg.eigh(np.eye(len(a_TT)) - scale_T[:, None] * a_TT * scale_T)
    vector_TA = vector_TT[:, 1 : count + 1]
    return np.pad(vector_TA, ((0, 0), (0, count - vector_TA.shape[1]))).astype(np.float32)


def return_probabilities(adjacency_TT: np.ndarray, count: int) -> np.ndarray:
    """The probability that a random walk of n steps from a node ends there, float32 [T, count].

    n goes from 0, where it is 1, to count - 1. A step leads to each neighbour with equal
    probability, or by the weights of the edges; a walk from a node without neighbours ends nowhere.
    It runs on the host. ValueError: the adjacency is not square and symmetric.
    """
    a_TT = _symmetric(adjacency_TT)
    degree_T1 = a_TT.sum(axis=1, keepdims=True)
    step_TT = np.divide(a_TT, degree_T1, out=np.zeros_like(a_TT), where=degree_T1 > 0)
    walk_TT, columns = np.eye(len(a_TT)), []
    for _ in range(count):
        columns.append(walk_TT.diagonal())
        walk_TT = walk_TT @ step_TT
    return np.stack(columns, axis=1).astype(np.float32)


def _symmetric(adjacency_TT: np.ndarray) -> np.ndarray:
    """The adjacency in float64. ValueError: it is not square and symmetric."""
    a_TT = np.asarray(adjacency_TT, np.float64)
    if a_TT.ndim != 2 or a_TT.shape != a_TT.T.shape or (a_TT != a_TT.T).any():
        raise ValueError(f"adjacency: shape {a_TT.shape}; give a symmetric matrix [T, T]")
    return a_TT


@register(
    kind="input",
    formula="c(t) = p(t), p_n(t) the probability that a walk of n steps from node t ends there",
    paper="Ma et al. 2023 (GRIT), arXiv 2305.17589; Dwivedi et al. 2021, arXiv 2110.07875",
    axes=3,
)
def random_walk(steps: Count = 3, how: codes.How = "add") -> Encoding:
    """Return probabilities of random walks on a graph whose nodes are the tokens, linearly mapped.

    Positions are [B, T, A], which `return_probabilities` makes on the host. This is what GRIT adds
    to nodes; what it adds to pairs of nodes, the probabilities of walks from one to the other, and
    its attention, which reads them in place of products, are left out.

    Args:
      steps: how many of these numbers are read, at most A; 16 to 32 in GRIT's settings.

    FieldError, later: positions with fewer numbers.
    """

    def place(key, layout):
        shape = layout.pos_BT.shape
        fits = len(shape) == 3 and shape[2] >= steps
        require(fits, "steps", steps, f"numbers are not in positions of shape {shape}")
        return layout.pos_BT[..., :steps].astype(float)

    code = lambda params, p_BTA, width: p_BTA
    return codes.coded(how, steps, code, axes=steps, place=place)


@register(
    kind="input",
    formula="c(t) = s u(t), u(t) the node's entries in eigenvectors of the graph's Laplacian; "
    "s = 1, in training -1 or 1 for each eigenvector",
    paper="Dwivedi & Bresson 2020, arXiv 2012.09699",
    axes=3,
)
def laplacian(vectors: Count = 3, how: codes.How = "add") -> Encoding:
    """Laplacian eigenvectors of a graph whose nodes are the tokens, through a linear map.

    Positions are [B, T, A], the node's entries in the first A eigenvectors, which `eigenvectors`
    makes on the host. An eigenvector's sign is arbitrary, so in training each is drawn for each
    graph. The authors' code draws one for a batch, and its map has a bias.

    Args:
      vectors: how many eigenvectors are read, at most A; 8 and 10 in the authors' settings.

    FieldError, later: positions with fewer eigenvectors.
    """

    def place(key, layout):
        shape = layout.pos_BT.shape
        fits = len(shape) == 3 and shape[2] >= vectors
        require(fits, "vectors", vectors, f"eigenvectors are not in positions of shape {shape}")
        u_BTA = layout.pos_BT[..., :vectors].astype(float)
        if key is None:
            return u_BTA
        draw = lambda k: jax.random.rademacher(k, (vectors,), u_BTA.dtype)
        return u_BTA * per_token(draw, sequence_keys(key, layout))

    code = lambda params, u_BTA, width: u_BTA
    return codes.coded(how, vectors, code, axes=vectors, place=place)
