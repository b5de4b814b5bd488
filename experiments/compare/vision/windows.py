"""Attention in shifted windows, as in a Swin Transformer."""

import jax.numpy as jnp

from posenc_jax.combinators import per_layer
from posenc_jax.encoding import Encoding


def shifted_windows(window: int) -> Encoding:
    """Hides patches of other windows; in every second layer windows are shifted by half a window.

    Windows have `window` patches a side. Positions are (row, column), [B, T, 2]. Liu et al. 2021
    (arXiv 2103.14030) roll the picture up and left by `window` // 2 patches, cut it into windows,
    and mask what did not lie side by side before. The patches that then see each other are those of
    one window of the shifted grid, whose windows at the edges are smaller: this is the bias here,
    0 within a window and -inf elsewhere. If windows do not fill a canvas, those at its edges are
    smaller too.
    """

    def cut(shift: int) -> Encoding:
        def bias(params, q_placed, k_placed, dims):
            q_BQ2, k_BK2 = (
                (pos_BT2 + window - shift) // window for pos_BT2 in (q_placed, k_placed)
            )
            same_BQK = (q_BQ2[:, :, None] == k_BK2[:, None]).all(axis=-1)
            return jnp.where(same_BQK[:, None], 0.0, -jnp.inf)

        return Encoding(bias=bias)

    return per_layer([cut(0), cut(window // 2)])
