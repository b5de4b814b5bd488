"""Layouts over layers that released models use: each layer an encoding of its own.

Others are made with `per_layer`, which these are. Definitions read which layer is asked as o.layer.
"""

import jax.numpy as jnp
import numpy as np

from posenc_jax.encoding import Encoding, chain, per_layer
from posenc_jax.encodings.angles import (
    Pairing,
    check_positive,
    offsets,
    one_axis,
    powers,
    turned_scores,
)
from posenc_jax.encodings.card import method
from posenc_jax.encodings.extension import sharpened
from posenc_jax.encodings.kernels import window as windowed
from posenc_jax.encodings.rotary import rope


def _check_every(every: int) -> None:
    if every < 2:
        raise ValueError(f"encoding.every: {every} must be 2 or more")


def _irope_scores(o, params, q, k, pos, n):
    if (o.layer + 1) % o.every:
        return turned_scores(q, k, offsets(pos) * powers(o.base, q.shape[-1]), o.pairing)
    scale_T = [1 + o.temperature * np.log(1 + np.floor((t + 1) / o.floor)) for t in pos]
    scores_HQK = np.einsum("qhc,khc->hqk", q, k) / np.sqrt(q.shape[-1])
    return np.array(scale_T)[None, :, None] * scores_HQK


@method(
    kind="layout",
    formula="rope, and in layers every - 1, 2 every - 1, ...: "
    "q.k / sqrt(C) (1 + temperature ln(1 + floor((i + 1) / floor)))",
    paper="Meta 2025 (Llama 4), released code; temperature after arXiv 2501.19399",
    scores=_irope_scores,
    example={"every": 2, "floor": 8},
    reference="transformers",
)
def irope(
    every: int = 4,
    base: float = 500_000.0,
    pairing: Pairing = "half",
    temperature: float = 0.1,
    floor: int = 8192,
) -> Encoding:
    """Llama 4's layers: rope in most, no positions in every fourth.

    Layers without positions see all of a long text alike, so their attention is made sharper as the
    query's position grows: a step at each multiple of `floor`. That alone tells more than i - j.
    Llama 4 also cuts what its rope layers see into chunks of 8,192 tokens, which is not done here.

    Args:
      every: the last of so many layers has no positions.
      base, pairing: as in `rope`; the released code pairs "interleaved".
      temperature: growth of the logits' scale where there are no positions; 0 for none.
      floor: positions of one step of it.

    Raises:
      ValueError: every below 2, base or floor not positive, temperature below 0, an unknown
        pairing; later, an odd width of a head.
    """
    _check_every(every)
    check_positive(floor=floor)
    if not 0 <= temperature < np.inf:
        raise ValueError(f"encoding.temperature: {temperature} must be 0 or more, and finite")

    def beta(pos_BT):
        steps_BT = jnp.floor((one_axis(pos_BT).astype(float) + 1) / floor)
        return 1 + temperature * jnp.log1p(steps_BT)

    return per_layer([rope(base, pairing)] * (every - 1) + [sharpened(beta)])


def _local_global_scores(o, params, q, k, pos, n):
    turned = lambda base: turned_scores(q, k, offsets(pos) * powers(base, q.shape[-1]), o.pairing)
    if not (o.layer + 1) % o.every:
        return turned(o.base)
    unseen_QK = np.abs(offsets(pos)[:, :, 0, 0]) >= o.window
    return np.where(unseen_QK, -np.inf, turned(o.local_base))


@method(
    kind="layout",
    formula="rope of local_base where |i - j| < window; in layers every - 1, 2 every - 1, ...: "
    "rope of base",
    paper="Gemma Team 2025 (Gemma 3), arXiv 2503.19786",
    relative=True,
    scores=_local_global_scores,
    example={"every": 2, "window": 6},
    reference="transformers",
)
def local_global(
    every: int = 6,
    base: float = 1_000_000.0,
    local_base: float = 10_000.0,
    window: int = 1024,
    pairing: Pairing = "half",
) -> Encoding:
    """Gemma 3's layers: five that see a window of near tokens, then one that sees all.

    Args:
      every: the last of so many layers is global.
      base: of rope in global layers.
      local_base: of rope in the others.
      window: tokens that a local layer sees up to and including the query's own, on both sides
        where attention is not causal.
      pairing: as in `rope`.

    Raises:
      ValueError: every below 2, a base not positive, window below 2, an unknown pairing; later, an
        odd width of a head.
    """
    _check_every(every)
    check_positive(local_base=local_base)
    if window < 2:
        raise ValueError(f"encoding.window: {window} must be 2 or more")
    local = chain(rope(local_base, pairing), windowed(window - 1))
    return per_layer([local] * (every - 1) + [rope(base, pairing)])
