"""Context extension of trained models: Llama 3's scaling, LongRoPE, Resonance RoPE; temperatures.

As in `rotary_scaling`, `llama3`, `longrope` and `resonance` use the weights of `rope` and have no
parameters. `drope`, `ssmax` and `logn` make attention sharper in longer sequences, or where a query
sees more keys; they tell no position.
"""

import jax.numpy as jnp
import numpy as np

from posenc_jax.combinators import each_layer
from posenc_jax.encoding import Encoding
from posenc_jax.encodings import rotary_scaling, rotation
from posenc_jax.encodings.card import (
    Count,
    Factor,
    NotNegative,
    Positive,
    Several,
    Whole,
    register,
    require,
)
from posenc_jax.encodings.rotary_scaling import Ramp, louder
from posenc_jax.encodings.rotation import TURN, Pairing


@register(
    kind="rotary",
    formula="theta_k ((1 - g) / factor + g), g = (length theta_k / 2 pi - low) / (high - low) "
    "in [0, 1]",
    paper="Dubey et al. 2024 (Llama 3.1), arXiv 2407.21783 and its released code",
)
def llama3(
    base: Positive = 500_000.0,
    pairing: Pairing = "half",
    factor: float = 8.0,
    length: int = 8192,
    low: Positive = 1.0,
    high: float = 4.0,
) -> Encoding:
    """Llama 3.1's scaling: slow pairs interpolated, fast pairs as they are, a ramp between.

    The paper has the base alone; low, high, the ramp and the defaults are those of the released
    code. It is `ntk_by_parts` with a ramp from 1 to 4 turns instead of 1 to 32.

    Args:
      base: as in `pi`.
      factor: slow frequencies are divided by it; 8 in Llama 3.1, which was extended 16 times.
      length: as in `ntk_by_parts`.
      low: pairs with fewer turns within `length` are slow.
      high: pairs with more turns are fast; the same as `low` for no ramp, as in Llama 4 Scout.

    FieldError: high is below low.
    """
    require(low <= high, "high", high, f"must be low {low} or more")
    return rotary_scaling.ntk_by_parts(base, pairing, factor, length, beta_fast=high, beta_slow=low)


@register(
    kind="rotary",
    formula="theta_k / s_k, s_k of the short or the long list; logits times "
    "1 + ln factor / ln length",
    paper="Ding et al. 2024, arXiv 2402.13753",
)
def longrope(
    base: Positive = 10_000.0,
    pairing: Pairing = "half",
    factor: Factor = 4.0,
    length: Several = 2048,
    short: tuple[float, ...] = (),
    long: tuple[float, ...] = (),
    start: Whole = 0,
) -> Encoding:
    """LongRoPE: each frequency has a factor of its own, from a list for short or for long texts.

    A sequence of more than `length` tokens, by the layout's `length_BT`, uses the long list, also
    while it is decoded: its keys are turned again. Queries and keys are each multiplied by
    sqrt(1 + ln factor / ln length), at every length, as in the released models.

    Args:
      base: as in `pi`.
      factor: how many times `length` the model is extended to; the temperature is made of it.
      length: as in `ntk_by_parts`; longer sequences use the long list.
      short: divisors of the C/2 frequencies up to `length`; () for 1.
      long: the divisors beyond it, as the search of LongRoPE or LongRoPE2 (arXiv 2502.20082)
        finds them; () for `factor`, as in `pi`.
      start: positions below this keep their frequencies with both lists. The paper searches for it;
        released models and Hugging Face do not have it. With it, scores depend on more than i - j.
        The authors' code leaves out the factor of queries and keys there too.

    FieldError: a number of a list that is not positive; later, a list that does not have C/2
    numbers.
    """
    lists = {"long": long, "short": short}
    for name, divisors in lists.items():
        good = all(0 < divisor < np.inf for divisor in divisors)
        require(good, name, divisors, "must be positive and finite")

    def frequencies(head):
        freq_F = rotation.ladder(head, base)
        for name, divisors in lists.items():
            rule = f"has {len(divisors)} numbers; a head of {head} has {len(freq_F)} pairs"
            require(len(divisors) in (0, len(freq_F)), name, divisors, rule)
        return freq_F

    def table(params, placed, dims):
        pos_BT, length_BT = placed
        freq_F = frequencies(dims.head)
        at = lambda divisors: rotation.angles(pos_BT, (freq_F / np.array(divisors))[None])
        far, near = at(long or factor), at(short or 1.0)
        angle = jnp.where((length_BT > length)[:, :, None, None], far, near)
        if start:
            angle = jnp.where((pos_BT < start)[:, :, None, None], at(1.0), angle)
        return rotation.turns(angle)

    amplitude = float(np.sqrt(1 + np.log(factor) / np.log(length)))
    turned = rotation.rotary(pairing, table, frequencies, place=rotation.with_length)
    return louder(turned, amplitude)


@register(
    kind="rotary",
    formula="yarn with every wavelength 2 pi / theta_k rounded to a whole number of tokens",
    paper="Wang et al. 2024, arXiv 2403.00071",
)
def resonance(
    base: Positive = 10_000.0,
    pairing: Pairing = "half",
    factor: Factor = 1.0,
    length: Count = 2048,
    beta_fast: float = 32.0,
    beta_slow: Positive = 1.0,
    ramp: Ramp = "turns",
) -> Encoding:
    """Resonance RoPE: every pair makes a whole turn in a whole number of tokens.

    A pair whose wavelength is at most the trained length then meets no new angle in longer
    sequences. Factor 1, the default, is the paper's Resonance RoPE; with a larger one it is
    Resonance YaRN: the frequencies of `yarn`, rounded, and its temperature.

    Args:
      base, length, beta_fast, beta_slow, ramp: as in `ntk_by_parts`.
      factor: as in `pi`; 1 is the paper's Resonance RoPE, more is Resonance YaRN.

    FieldError: as `ntk_by_parts`.
    """
    plain = rotary_scaling.by_parts(base, factor, length, beta_fast, beta_slow, ramp)
    rounded = rotation.turning(lambda head: TURN / np.round(TURN / plain(head)), pairing)
    return louder(rounded, rotary_scaling.root_temperature(factor))


@register(
    kind="none",
    formula="q.k / sqrt(C) (1 + temperature ln max(1, n / length))",
    paper="Gelberg et al. 2025, arXiv 2512.12167",
)
def drope(length: Count = 2048, temperature: NotNegative = 0.412) -> Encoding:
    """DroPE: positions dropped after training, and attention sharper past the trained length.

    Train with `rope`, then for a while with this method on the same parameters and at the same
    length, and read longer texts: only the causal mask tells order then. n is the sequence's
    length, the layout's `length_BT`.

    Args:
      length: tokens the model was trained on; up to it this is `nope`.
      temperature: growth of the logits' scale. The paper fits it at the length wanted: 0.412 for
        its model trained from scratch, 0.103 for SmolLM. 0 for no growth.
    """

    def temper(params, count, length_BQ, dims):
        stretch_BQ = jnp.maximum(length_BQ, length).astype(float) / length
        return (1 + temperature * jnp.log(stretch_BQ))[..., None]

    return Encoding(place=lambda key, layout: layout.length_BT, temper=temper)


@register(
    kind="none",
    formula="s[h] ln(n_i) q.k / sqrt(C), n_i keys that the query sees",
    paper="Nakanishi 2025, arXiv 2501.19399",
    axes=0,
)
def ssmax(initial: float = 0.43) -> Encoding:
    """Scalable softmax: logits times s ln n, so that attention does not flatten as n grows.

    n counts the keys that a query sees: in a packed row those of its own document, in a causal one
    those up to it. Each layer and head has a scale s. The paper chooses its start so that it fits
    what models learn.

    Args:
      initial: s of every head at initialisation.
    """
    init = lambda key, dims: {"s": jnp.full(dims.heads, initial, float)}

    def temper(params, count, q_placed, dims):
        log_BQ = jnp.log(jnp.maximum(count(), 1))
        return params["s"].astype(log_BQ.dtype)[None, None] * log_BQ[..., None]

    return each_layer(Encoding(init=init, temper=temper))


@register(
    kind="none",
    formula="max(1, ln n_i / ln length) q.k / sqrt(C), n_i keys that the query sees",
    paper="Chiang & Cholak 2022, arXiv 2202.12172; past a length only, as in Qwen's released code",
    axes=0,
)
def logn(length: Several = 2048) -> Encoding:
    """Log-n scaling: logits grow with the logarithm of the number of keys past the trained length.

    Args:
      length: tokens the model was trained on; queries that see no more keys are left as they are.
    """

    def temper(params, count, q_placed, dims):
        return (jnp.log(jnp.maximum(count(), length)) / np.log(length))[..., None]

    return Encoding(temper=temper)
