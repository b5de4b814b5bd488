"""Methods by layer, as released models have them: layers use different encodings.

They are made with `per_layer`, as other such methods can be.
"""

import jax.numpy as jnp
import numpy as np

from posenc_jax.encoding import Encoding, chain, per_layer
from posenc_jax.encodings.bias_formulas import window as windowed
from posenc_jax.encodings.card import Range, method
from posenc_jax.encodings.checks import at_least, positive, with_axes
from posenc_jax.encodings.definitions import dots, offsets, powers, turned_scores
from posenc_jax.encodings.rotary import rope
from posenc_jax.encodings.rotation import Pairing


def _irope_scores(o, params, q, k, pos, n):
    if (o.layer + 1) % o.every:
        return turned_scores(q, k, offsets(pos) * powers(o.base, q.shape[-1]), o.pairing)
    scale_T = [1 + o.temperature * np.log(1 + np.floor((t + 1) / o.floor)) for t in pos]
    return np.array(scale_T)[None, :, None] * dots(q, k)


@method(
    kind="by_layer",
    formula="rope, and in layers every - 1, 2 every - 1, ...: "
    "q.k / sqrt(C) (1 + temperature ln(1 + floor((i + 1) / floor)))",
    paper="Meta 2025 (Llama 4), released code; temperature after arXiv 2501.19399",
    shift_invariant=False,
    scores=_irope_scores,
    reads=lambda o, n: Range(0, np.inf),
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

    In layers without positions, attention is made sharper as the query's position grows, by a step
    at each multiple of `floor`; for this alone, scores depend on more than i - j. Llama 4 also
    limits its rope layers to chunks of 8,192 tokens, which is not done here.

    Args:
      every: the last of so many layers has no positions.
      base, pairing: as in `rope`; the released code pairs "interleaved".
      temperature: growth of the logits' scale in layers without positions; 0 for no growth.
      floor: positions from one step to the next.

    FieldError: every below 2, base or floor not positive, temperature below 0; later, an odd head
    width.
    """
    at_least(2, every=every)
    positive(floor=floor)
    at_least(0, temperature=temperature)

    def temper(params, count_BQ, q_pos_BQ, dims):
        steps_BQ = jnp.floor((with_axes(q_pos_BQ).astype(float) + 1) / floor)
        return (1 + temperature * jnp.log1p(steps_BQ))[..., None]

    return per_layer([rope(base, pairing)] * (every - 1) + [Encoding(temper=temper)])


def _local_global_scores(o, params, q, k, pos, n):
    turned = lambda base: turned_scores(q, k, offsets(pos) * powers(base, q.shape[-1]), o.pairing)
    if not (o.layer + 1) % o.every:
        return turned(o.base)
    unseen_QK = np.abs(offsets(pos)[:, :, 0, 0]) >= o.window
    return np.where(unseen_QK, -np.inf, turned(o.local_base))


@method(
    kind="by_layer",
    formula="rope of local_base where |i - j| < window; in layers every - 1, 2 every - 1, ...: "
    "rope of base",
    paper="Gemma Team 2025 (Gemma 3), arXiv 2503.19786",
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
      window: tokens that a local layer sees up to and including the query's own; on both sides
        if attention is not causal.
      pairing: as in `rope`.

    FieldError: every below 2, a base not positive, window below 2; later, an odd head width.
    """
    at_least(2, every=every, window=window)
    positive(local_base=local_base)
    local = chain(rope(local_base, pairing), windowed(window - 1))
    return per_layer([local] * (every - 1) + [rope(base, pairing)])
