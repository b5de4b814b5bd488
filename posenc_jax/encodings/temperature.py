"""Attention made sharper by a factor of the queries that grows with length or position."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.encoding import Encoding, Placed
from posenc_jax.encodings.card import method
from posenc_jax.encodings.checks import at_least


def sharpened(beta: Callable[[Placed], jax.Array], place: Callable | None = None) -> Encoding:
    """Queries times beta(placed), which changes the scale of the logits and tells no positions.

    Args:
      beta: positions -> the factor of each query's logits, [B, T], float32 or wider.
      place: as in `Encoding`.
    """

    def rotate(table, x_BTHC, side):
        return x_BTHC if side == "k" else (x_BTHC.astype(table.dtype) * table).astype(x_BTHC.dtype)

    return Encoding(
        place=place,
        table=lambda params, placed, dims: beta(placed)[:, :, None, None],
        rotate=rotate,
    )


def _drope_scores(o, params, q, k, pos, n):
    beta = 1 + o.temperature * np.log(max(1.0, n / o.length))
    return beta * np.einsum("qhc,khc->hqk", q, k) / np.sqrt(q.shape[-1])


@method(
    kind="none",
    formula="q.k / sqrt(C) (1 + temperature ln max(1, n / length))",
    paper="Gelberg et al. 2025, arXiv 2512.12167",
    scores=_drope_scores,
    example={"length": 8},
)
def drope(length: int = 2048, temperature: float = 0.412) -> Encoding:
    """DroPE: positions dropped after training, and attention sharper past the trained length.

    Train with `rope`, then for a while with this method on the same parameters and at the same
    length, and read longer texts: only the causal mask tells order then. n is the sequence's
    length, the layout's `length_BT`.

    Args:
      length: tokens the model was trained on; up to it this is `nope`.
      temperature: growth of the logits' scale. The paper fits it at the length wanted: 0.412 for
        its model trained from scratch, 0.103 for SmolLM. 0 for no growth.

    FieldError: length is below 1, or temperature below 0.
    """
    at_least(1, length=length)
    at_least(0, temperature=temperature)

    def beta(length_BT):
        stretch_BT = jnp.maximum(length_BT, length).astype(float) / length
        return 1 + temperature * jnp.log(stretch_BT)

    return sharpened(beta, place=lambda key, layout: layout.length_BT)
