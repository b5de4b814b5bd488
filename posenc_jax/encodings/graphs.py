"""Positions of nodes of graphs by eigenvectors of the Laplacian. For trees see
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
    a_TT = np.asarray(adjacency_TT, np.float64)
    if a_TT.ndim != 2 or a_TT.shape != a_TT.T.shape or (a_TT != a_TT.T).any():
        raise ValueError(f"adjacency: shape {a_TT.shape}; give a symmetric matrix [T, T]")
    scale_T = np.maximum(a_TT.sum(axis=1), 1) ** -0.5
    _, vector_TT = np.linalg.eigh(np.eye(len(a_TT)) - scale_T[:, None] * a_TT * scale_T)
    vector_TA = vector_TT[:, 1 : count + 1]
    return np.pad(vector_TA, ((0, 0), (0, count - vector_TA.shape[1]))).astype(np.float32)


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
