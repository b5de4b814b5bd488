"""Methods by layer, as released models have them: layers use different encodings.

They are made with `per_layer`, as other such methods can be. What models have besides positions,
such as sinks, and norms of queries and keys, is not part of them.
"""

import jax.numpy as jnp
import numpy as np

from posenc_jax.combinators import chain, per_layer
from posenc_jax.encoding import Encoding
from posenc_jax.encodings.bias_formulas import distances
from posenc_jax.encodings.card import Positive, Range, Several, register, require, with_axes
from posenc_jax.encodings.rotary import rope
from posenc_jax.encodings.rotary_axes import mrope, split_three
from posenc_jax.encodings.rotary_scaling import pi, yarn
from posenc_jax.encodings.rotation import Pairing
from posenc_jax.recipes import recorded


@recorded
def chunked(chunk: int, back: int = 0) -> Encoding:
    """Hides keys of other chunks: positions 0 .. chunk - 1, chunk .. 2 chunk - 1, and so on.

    back: so many chunks before the query's are seen, too.
    """
    require(chunk >= 1, "chunk", chunk, "must be 1 or more")
    require(back >= 0, "back", back, "must be 0 or more")

    def bias(params, q_placed, k_placed, dims):
        q_BQ, k_BK = (with_axes(placed) // chunk for placed in (q_placed, k_placed))
        apart_B1QK = (q_BQ[:, :, None] - k_BK[:, None])[:, None].astype(float)
        hidden_B1QK = (apart_B1QK < 0) | (apart_B1QK > back)
        return jnp.where(hidden_B1QK, -jnp.inf, 0 * apart_B1QK)  # 0 * NaN refuses a position

    return Encoding(bias=bias)


@recorded
def stepped(temperature: float, floor: int, ahead: int = 1) -> Encoding:
    """Multiplies logits of a query at t by 1 + temperature ln(1 + floor((t + ahead) / floor))."""
    require(temperature >= 0, "temperature", temperature, "must be 0 or more")
    require(floor >= 1, "floor", floor, "must be 1 or more")

    def temper(params, count, q_pos_BQ, dims):
        steps_BQ = jnp.floor((with_axes(q_pos_BQ).astype(float) + ahead) / floor)
        return (1 + temperature * jnp.log1p(steps_BQ))[..., None]

    return Encoding(temper=temper)


@register(
    kind="by_layer",
    formula="rope where i // chunk = j // chunk, and in layers every - 1, 2 every - 1, ...: "
    "q.k / sqrt(C) (1 + temperature ln(1 + floor((i + 1) / floor)))",
    paper="Meta 2025 (Llama 4), released code; temperature after arXiv 2501.19399",
    shift_invariant=False,
    reads=lambda o, n: Range(0, np.inf),
)
def irope(
    every: Several = 4,
    base: Positive = 500_000.0,
    pairing: Pairing = "half",
    temperature: float = 0.1,
    floor: int = 8192,
    chunk: int | None = None,
) -> Encoding:
    """Llama 4's layers: rope in most, no positions in every fourth.

    In layers without positions, attention is made sharper as the query's position grows, by a step
    at each multiple of `floor`; for this alone, or with chunks, scores depend on more than i - j.

    Args:
      every: the last of so many layers has no positions.
      base, pairing: as in `rope`; the released code pairs "interleaved".
      temperature: growth of the logits' scale in layers without positions; 0 for no growth.
      floor: positions from one step to the next.
      chunk: layers with rope see only the keys of their query's chunk of so many positions, 8,192
        in Llama 4; None: they see all.
    """
    turned = rope(base, pairing) if chunk is None else chain(rope(base, pairing), chunked(chunk))
    return per_layer([turned] * (every - 1) + [stepped(temperature, floor)])


@recorded
def nearer(window: int) -> Encoding:
    """Hides keys that are `window` or more tokens away, also where positions are fractions."""
    require(window >= 1, "window", window, "must be 1 or more")

    def bias(params, q_placed, k_placed, dims):
        apart_B1QK = distances(q_placed, k_placed)
        return jnp.where(apart_B1QK >= window, -jnp.inf, 0 * apart_B1QK)  # 0 * NaN, as above

    return Encoding(bias=bias, relative=True)


def _local_layers(every: int, window: int, near: Encoding, everywhere: Encoding) -> Encoding:
    """`near` within a window in most layers; `everywhere` in the last of `every` layers."""
    return per_layer([chain(near, nearer(window))] * (every - 1) + [everywhere])


@register(
    kind="by_layer",
    formula="rope of local_base where |i - j| < window; in layers every - 1, 2 every - 1, ...: "
    "rope of base at t / factor",
    paper="Gemma Team 2025 (Gemma 3), arXiv 2503.19786",
)
def local_global(
    every: Several = 6,
    base: Positive = 1_000_000.0,
    local_base: Positive = 10_000.0,
    window: Several = 1024,
    factor: float = 1.0,
    pairing: Pairing = "half",
) -> Encoding:
    """Gemma 3's layers: five that see a window of near tokens, then one that sees all.

    Args:
      every: the last of so many layers is global.
      base: of rope in global layers.
      local_base: of rope in the others.
      window: tokens that a local layer sees up to and including the query's own; on both sides
        if attention is not causal.
      factor: positions are divided by it in global layers, as in `pi`: 8 in the released 12B
        model.
    """
    return _local_layers(every, window, rope(local_base, pairing), pi(base, pairing, factor))


@register(
    kind="by_layer",
    formula="rope where |i - j| < window; in layers every - 1, 2 every - 1, ...: yarn",
    paper="Olmo Team 2025 (Olmo 3), arXiv 2512.13961 and its released configs",
)
def olmo3(
    every: Several = 4,
    window: Several = 4096,
    base: Positive = 500_000.0,
    factor: float = 8.0,
    length: int = 8192,
    pairing: Pairing = "half",
) -> Encoding:
    """Olmo 3's layers: three that see a window, with rope, then one that sees all, with YaRN.

    Args:
      every, window: as in `local_global`.
      base, pairing: as in `rope`, in all layers.
      factor, length: of `yarn` in global layers, whose ramp is "pairs_truncated". Factor 1 is the
        model before it was extended.
    """
    everywhere = yarn(base, pairing, factor, length, ramp="pairs_truncated")
    return _local_layers(every, window, rope(base, pairing), everywhere)


@register(
    kind="by_layer",
    formula="yarn, and |i - j| < window except in layers every - 1, 2 every - 1, ...",
    paper="OpenAI 2025 (gpt-oss), arXiv 2508.10925 and its released configs",
)
def gpt_oss(
    every: Several = 2,
    window: Several = 128,
    base: Positive = 150_000.0,
    factor: float = 32.0,
    length: int = 4096,
    pairing: Pairing = "half",
) -> Encoding:
    """gpt-oss's layers: all with YaRN, and every other one sees a window.

    The model's sinks, learned logits of each head that join the softmax, are an option of `attend`.

    Args:
      every, window: as in `local_global`.
      factor, length: of `yarn`, whose ramp is "pairs".

    FieldError: base is not above 1.
    """
    everywhere = yarn(base, pairing, factor, length, ramp="pairs")
    return _local_layers(every, window, everywhere, everywhere)


@register(
    kind="by_layer",
    formula="as mrope; layers 0, 2, ... read the ids on circles, layers 1, 3, ... those of mrope",
    paper="Wang et al. 2025 (Circle-RoPE), arXiv 2505.16416 and its public code",
    axes=3,
)
def circle_rope(
    base: Positive = 1_000_000.0, pairing: Pairing = "half", sections: tuple[int, ...] = ()
) -> Encoding:
    """Circle-RoPE's layers: M-RoPE with images on circles, and as in `mrope`, in turn.

    Positions are [B, T, 6]: a token's `multimodal_ids.circle_ids`, then its `multimodal_ids.ids`;
    or [B, T, 3] where both are the same, as in text. The layers are those of "strategy_4" in the
    public code; in its two other orders one half of the layers follows the other.

    Args:
      base, pairing, sections: as in `mrope`.

    FieldError: as `mrope`.
    """

    def reading(ids: slice) -> Encoding:
        cut = lambda pos_BTA: pos_BTA[..., ids] if pos_BTA.shape[2:] == (6,) else pos_BTA
        place = lambda key, at: split_three(key, at.replace(pos_BT=cut(at.pos_BT)))
        return mrope(base, pairing, sections)._replace(place=place)

    return per_layer([reading(slice(0, 3)), reading(slice(3, 6))])
