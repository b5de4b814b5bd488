"""Rotary methods: pairs of channels of queries and keys turn by an angle of the position.

In all rotary modules `base` and `pairing` are as in `rope`, and a width of a head that does not fit
is refused by `init` with a FieldError.
"""

from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.encoding import Encoding, Extent
from posenc_jax.encodings import rotation
from posenc_jax.encodings.card import Count, Positive, Range, register, require, with_axes
from posenc_jax.encodings.rotation import Pairing, Turn
from posenc_jax.heads import by_head, tell_heads
from posenc_jax.options import FieldError

XPOS_GAMMA = 0.4
# Largest exponent of the factor of queries or of keys. The product of a query with a key ahead of
# it, which a mask hides, has twice that: e^80 is 6,000 times below the largest float32. In float16,
# e^-8 times a number of size 1 is rounded by half as much as the number itself.
XPOS_REACH, XPOS_REACH_HALF = 40.0, 8.0


@register(
    kind="rotary",
    formula="s_ij = Re sum_k q_k conj(k_k) e^(i D theta_k) / sqrt(C), theta_k = base^(-2k/C)",
    paper="Su et al. 2021, arXiv 2104.09864",
)
def rope(base: Positive = 10_000.0, pairing: Pairing = "half", values: bool = False) -> Encoding:
    """Rotary positions: channel pair k of queries and keys turns by t * base^(-2k/C).

    "interleaved" pairs neighbouring channels, as the paper does; "half" pairs channel k with
    k + C/2, as GPT-NeoX and Llama in Hugging Face do. With the same weights they are two different
    functions; `convert_pairing` converts weights from one to the other.

    Args:
      base: frequencies fall by nearly this factor from the fastest pair to the slowest
        (`rope_theta` of a config.json).
      values: values turn as keys do, and the output of a query turns back, so that what is read of
        a key depends on its distance too (arXiv 2310.10375).
    """
    return rotation.turning(lambda head: rotation.ladder(head, base), pairing, turns_values=values)


@register(
    kind="rotary",
    formula="as rope on the first R = int(share C) channels of a head, theta_k = base^(-2k/R)",
    paper="Black et al. 2022 (GPT-NeoX-20B), arXiv 2204.06745",
)
def partial(share: float = 0.25, base: Positive = 10_000.0, pairing: Pairing = "half") -> Encoding:
    """Partial rotary: the first share of a head's channels turn; the others carry content alone.

    Args:
      share: of a head's channels, those that turn; `partial_rotary_factor` of a config.json.

    FieldError: share outside (0, 1]; later, a share that is 0 channels or odd.
    """
    rotation.check_share(share)

    def frequencies(head):
        width = int(head * share)
        rule = f"of a head of {head} is {width} channels; choose a share of an even number of them"
        require(width >= 2 and width % 2 == 0, "share", share, rule)
        return rotation.ladder(width, base)

    return rotation.turning(frequencies, pairing)


@register(
    kind="rotary",
    formula="as rope, theta_k = base^(-2k/C) for k < int(share C/2), else 0",
    paper="Barbero et al. 2024, arXiv 2410.06205",
)
def p_rope(share: float = 0.75, base: Positive = 10_000.0, pairing: Pairing = "half") -> Encoding:
    """p-RoPE: the fastest share of the pairs turns as in rope; the slowest pairs carry content.

    Pairs are those of the whole head, so the weights are those of rope, and `convert_pairing`
    converts all channels. `partial` makes its pairs within the first channels, with all frequencies
    from 1 to 1/base.

    Args:
      share: of a head's pairs, those that turn.

    FieldError: share outside (0, 1]; later, a share of less than one pair.
    """
    rotation.check_share(share)

    def frequencies(head):
        turning = rotation.pairs_of_share(head, share)
        return np.where(np.arange(head // 2) < turning, rotation.ladder(head, base), 0.0)

    return rotation.turning(frequencies, pairing)


@register(
    kind="rotary",
    formula="as rope, theta_k = base^(-2k/C) where that is 2 pi / length or more, else 0",
    paper="Chen et al. 2024 (high-frequency rotary), arXiv 2410.21216",
)
def hope(base: Positive = 10_000.0, pairing: Pairing = "half", length: Count = 2048) -> Encoding:
    """HoPE: pairs that make no whole turn within the trained length do not turn at all.

    A slow pair learns only a part of its wave within `length`, and reads the unknown rest in longer
    sequences. Pairs and weights are those of rope, as in `p_rope`, which has a share instead.

    Args:
      length: tokens the model is trained on.

    FieldError, later: no pair makes a turn.
    """

    def frequencies(head):
        freq_F = rotation.ladder(head, base)
        return np.where(rotation.whole_turns(freq_F, length), freq_F, 0.0)

    return rotation.turning(frequencies, pairing)


@register(
    kind="rotary",
    formula="as rope with theta_hk = base^(-(h C/2 + k) / (H C/2)): a band for each head",
    paper="bands: textbook; learned: the 1-D form of Heo et al. 2024, arXiv 2403.13298",
)
def headwise(
    base: Positive = 10_000.0, pairing: Pairing = "half", learned: bool = False
) -> Encoding:
    """Rotary with a band of frequencies for each head: together the bands go from 1 to 1/base.

    Head 0 turns fastest, the last head slowest.

    Args:
      learned: the frequencies are parameters freq_HF [H, F], in radians per token, which start at
        the bands.
    """

    def bands(dims):
        pairs = len(rotation.ladder(dims.head, base))
        return rotation.ladder(dims.heads * dims.head, base).reshape(dims.heads, pairs)

    def init(key, dims):
        band_HF = bands(dims)
        return {"freq_HF": jnp.asarray(band_HF, float)} if learned else {}

    def table(params, pos_BT, dims):
        if learned:
            return rotation.turns_at(pos_BT, params["freq_HF"])
        return by_head(lambda dims: rotation.turns_at(pos_BT, bands(dims)), params, dims, axis=2)

    return rotation.rotary(pairing, table, init=init, of_heads=None if learned else tell_heads)


@register(
    kind="rotary",
    formula="as rope with each pair times zeta_k^(D / span), zeta_k = (2k/C + 0.4) / 1.4",
    paper="Sun et al. 2022, arXiv 2212.10554",
    beyond="error",
    reads=lambda o, n: Range(-np.inf, 2 * XPOS_REACH / -_xpos_log_decay(2)[0] * o.span),
)
def xpos(base: Positive = 10_000.0, pairing: Pairing = "half", span: Positive = 512.0) -> Encoding:
    """Rotary with a decay: queries times zeta^(t / span), keys times its inverse.

    The exponent counts from the middle of the positions of the row's tokens, in cross-attention of
    both sides' tokens. Rows whose positions span up to 63 * span are exact; of longer ones the
    tokens at both ends, whose factors float32 does not hold together, give NaN: a row of 40,000
    tokens needs a `span` of 640 or more. In float16 that is so from 12 * span on. It is meant for
    causal attention: keys ahead of the query are amplified.

    Args:
      span: tokens of distance over which a pair decays by its zeta.
    """

    def place(key, layout):
        pos_BT = with_axes(layout.pos_BT)
        real_BT, at_BT = layout.segment_BT > 0, jnp.floor(pos_BT).astype(pos_BT.dtype)
        within = lambda pick, ends: (
            0 * at_BT + pick(at_BT, axis=1, keepdims=True, where=real_BT, initial=ends(at_BT))
        )
        return pos_BT, Extent(within(jnp.min, jnp.max), within(jnp.max, jnp.min))

    def table(params, placed, dims):
        pos_BT, (low_BT, high_BT) = placed
        centred_BT = pos_BT - (low_BT + (high_BT - low_BT) // 2)
        spans = centred_BT.astype(float)[:, :, None, None] / span
        decay_F = _xpos_log_decay(dims.head)
        exponent = spans * decay_F[None, None, None].astype(spans.dtype)
        held = jnp.abs(exponent[..., :1]) <= XPOS_REACH
        gain = jnp.where(held, jnp.exp(exponent), jnp.nan)
        cos, sin = rotation.turns(rotation.angles(pos_BT, rotation.ladder(dims.head, base)[None]))
        return {"q": Turn(cos * gain, sin * gain), "k": Turn(cos / gain, sin / gain)}

    turned = rotation.rotary(pairing, table, place=place)
    assert turned.rotate is not None
    plain = turned.rotate

    def rotate(table, x_BTHC, side):
        y_BTHC = plain(table, x_BTHC, side)
        if x_BTHC.dtype != jnp.float16:
            return y_BTHC
        first = jax.tree.map(lambda leaf: leaf[..., :1], table[side])  # the pair that decays most
        exponent = jnp.log(first.cos**2 + first.sin**2) / 2
        return jnp.where(jnp.abs(exponent) <= XPOS_REACH_HALF, y_BTHC, jnp.nan)

    return turned._replace(rotate=rotate)


def _xpos_log_decay(head: int) -> np.ndarray:
    """ln zeta of the pairs of a head, float64; the first pair decays most."""
    zeta_F = (2 * np.arange(head // 2) / head + XPOS_GAMMA) / (1 + XPOS_GAMMA)
    return np.log(zeta_F)


@register(
    kind="rotary",
    formula="as rope, theta_k = base^(asinh((1 - u_k) sinh(tau)) / tau - 1), u_k = (2k + 1) / C",
    paper="no paper; the public code misaya-yang/hybrid-rope (EVQ-Cosh)",
)
def evq(tau: Positive = 1.414, base: Positive = 500_000.0, pairing: Pairing = "half") -> Encoding:
    """EVQ-Cosh: frequencies whose logarithms are denser among the fast ones, by a cosh.

    Exponents are the quantiles (k + 1/2) / (C/2) of the density cosh(tau (1 - u)), which becomes
    even as tau becomes 0. Then frequencies are those of rope, half a step slower.

    Args:
      tau: of the density; in the authors' code C / sqrt(length), 1.414 for 64 channels and 2,048
        tokens.
    """

    def frequencies(head):
        pairs = len(rotation.ladder(head, base))
        from_last_F = 1 - (np.arange(pairs) + 0.5) / pairs
        return base ** (np.arcsinh(from_last_F * np.sinh(tau)) / tau - 1)

    return rotation.turning(frequencies, pairing)


@register(
    kind="rotary",
    formula="as rope; in the other half of the heads Im in place of Re",
    paper="Liu et al. 2025 (RoPE++), arXiv 2512.07525",
)
def rope_pp(
    base: Positive = 10_000.0,
    pairing: Pairing = "half",
    imaginary: Literal["alternate", "last"] = "alternate",
) -> Encoding:
    """RoPE++: half of the heads read the imaginary part of the product that rope takes the real
    part of.

    Their queries turn by a quarter of a turn less. In the paper two heads, one real and one
    imaginary, have the same queries, keys and values; that is for the model that makes them. It
    halves either their number (RoPE++EH) or the size of the output's projection (RoPE++EC).

    Args:
      imaginary: which heads: "alternate": those of odd number, as in the paper; "last": the second
        half.
    """

    def table(params, pos_BT, dims):
        cos, sin = rotation.turns_at(pos_BT, rotation.ladder(dims.head, base)[None])

        def imaginary_heads(dims):
            head_H = jnp.arange(dims.heads)
            odd_H = head_H % 2 == 1 if imaginary == "alternate" else head_H >= (dims.heads + 1) // 2
            return odd_H.astype(cos.dtype)

        odd_11H1 = by_head(imaginary_heads, params, dims)[None, None, :, None]
        pick = lambda real, other: real + odd_11H1 * (other - real)
        return {"q": Turn(pick(cos, sin), pick(sin, -cos)), "k": Turn(cos, sin)}

    return rotation.rotary(pairing, table, of_heads=tell_heads)


def convert_pairing(
    w: jax.Array, heads: int, to: Pairing, channels: int | None = None
) -> jax.Array:
    """Weights of queries or keys for the other pairing: the channels of each head reordered.

    A model trained with "interleaved" computes the same logits with "half" after the weights and
    biases that make q and k are converted with to="half".

    Args:
      w: [..., heads * C]; its last axis is the one that q or k is made along.
      heads: number of heads in that axis.
      to: the pairing wanted; w has the other.
      channels: how many channels of a head are in pairs, the first ones: int(share C) for
        `partial`; None, for all other methods: all, those of pairs that do not turn included.

    FieldError: an unknown pairing, a last axis that is not an even width for each head, or a number
    of channels that is odd or more than a head has.
    """
    if to not in ("half", "interleaved"):
        raise FieldError("to", f"{to!r} is not one of: 'half', 'interleaved'")
    if w.shape[-1] % (2 * heads):
        raise FieldError("heads", f"{heads} do not cut {w.shape[-1]} channels into even widths")
    head = w.shape[-1] // heads
    paired = head if channels is None else channels
    if paired % 2 or not 0 < paired <= head:
        reason = f"{paired} is not an even number of a head's {head} channels"
        raise FieldError("channels", reason)
    order = np.arange(paired).reshape((-1, 2) if to == "half" else (2, -1)).T
    order = np.append(order, np.arange(paired, head))
    return w.reshape(*w.shape[:-1], heads, head)[..., order].reshape(w.shape)
