"""TAPA: products of queries and keys times the cosine of a phase that content and distance set."""

import jax.numpy as jnp
import numpy as np

from posenc_jax.dtypes import widest
from posenc_jax.encoding import Encoding, Walk
from posenc_jax.encodings.bias import offsets
from posenc_jax.encodings.card import method
from posenc_jax.encodings.checks import positive, require
from posenc_jax.options import FieldError


@method(
    kind="content",
    formula="q_A.k_A / sqrt(A) cos(2 pi |i - j|^power q_P.k_P / sqrt(P)), A = share C, P = C - A",
    paper="Wang et al. 2025, arXiv 2509.12635",
    vary={"share": 0.25},
)
def tapa(share: float = 0.5, power: float = 0.1) -> Encoding:
    """TAPA: some channels make the logit, the others a phase that turns it as distance grows.

    Each head's first int(share C) channels of q and k make the amplitude, the rest the phase.
    Nothing is learned besides q and k. It takes the place of a rotation: the cosine multiplies the
    product of q and k as they are before other methods of a chain rotate them, and no bias.

    Args:
      share: of a head's channels that make the amplitude.
      power: of the distance; at distance 0 the cosine is 1.

    FieldError: share not between 0 and 1, or power not positive; later, a head in which no channel
    is left for one of the two.
    """
    require(0 < share < 1, "share", share, "must be between 0 and 1, both excluded")
    positive(power=power)

    def split(head: int) -> int:
        cut = int(share * head)
        if not 0 < cut < head:
            raise FieldError("head", f"{head} channels cannot be split at share {share}")
        return cut

    def init(key, dims):
        split(dims.head)
        return {}

    def table(params, placed, dims):
        # Attention divides by sqrt(C), not sqrt(A); the channels of the phase are not to count.
        cut = split(dims.head)
        return jnp.where(jnp.arange(dims.head) < cut, (dims.head / cut) ** 0.5, 0.0)[
            None, None, None
        ]

    def score(params, s_BHQK, q, k, visible_BHQK, carry):
        head = q.x_BTHC.shape[-1]
        cut, wide = split(head), widest(q.x_BTHC.dtype)
        dots = lambda a, b: jnp.einsum("bqhc,bkhc->bhqk", a, b, preferred_element_type=wide)
        amplitude = dots(q.x_BTHC[..., :cut], k.x_BTHC[..., :cut]) * cut**-0.5
        phase = dots(q.x_BTHC[..., cut:], k.x_BTHC[..., cut:]) * (head - cut) ** -0.5
        away_BQK = jnp.abs(offsets(q.placed, k.placed)).astype(wide)
        # The derivative of a power below 1 is infinite at 0.
        far_BQK = jnp.where(away_BQK == 0, 0, jnp.where(away_BQK == 0, 1, away_BQK) ** power)
        turned = amplitude * (jnp.cos(2 * np.pi * far_BQK[:, None] * phase) - 1)
        return s_BHQK + turned.astype(s_BHQK.dtype), carry

    def rotate(factor, x_BTHC, side):
        return (
            (x_BTHC.astype(factor.dtype) * factor).astype(x_BTHC.dtype) if side == "q" else x_BTHC
        )

    walk = Walk(score=score, corrects=True)
    return Encoding(init=init, table=table, rotate=rotate, walk=walk)
