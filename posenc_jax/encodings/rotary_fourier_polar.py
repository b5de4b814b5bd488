"""Rotary methods whose pairs do not turn by one angle: FoPE (sums of waves), PoPE (polar)."""

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.backends.pair_rotation import polar
from posenc_jax.combinators import each_layer
from posenc_jax.encoding import Encoding
from posenc_jax.encodings import rotation
from posenc_jax.encodings.card import Count, Positive, register
from posenc_jax.encodings.rotation import Pairing, Turn
from posenc_jax.heads import by_head, tell_heads


@register(
    kind="rotary",
    formula="pair m times sum_g a_gm cos(t w_g) + i sum_g b_gm sin(t w_g), a and b near identity; "
    "pairs of less than a turn within length stand still",
    paper="Hua et al. 2024, arXiv 2412.17739",
    shift_invariant=False,
)
def fope(
    base: Positive = 10_000.0,
    pairing: Pairing = "half",
    length: Count = 2048,
    sigma: Positive = 0.3,
    learned: bool = False,
    seed: int = 0,
) -> Encoding:
    """FoPE: each pair turns by a sum of all frequencies, and slow pairs do not turn.

    Scores depend on more than i - j, because products of two frequencies do. The authors' code
    gives a sum to at most half of the pairs, and the pairs that do not turn have a sine of 1, which
    doubles their logits. Here, as in the paper, each pair that turns has its sum, and the others
    keep their content.

    Args:
      length: tokens trained on; frequencies that make no whole turn within it become 0.
      sigma: size of the noise. For G frequencies and H heads its standard deviation is
        sigma sqrt(2 / (G^2 + H G)), as in the authors' code.
      learned: the sums are parameters of each layer, cos and sin [H, G, G]; False, as in the paper:
        they are fixed, and here the same in all layers.
      seed: of the noise that is not learned.

    FieldError, later: no pair turns.
    """

    def turning_frequencies(head):
        freq_F = rotation.ladder(head, base)
        return freq_F[rotation.whole_turns(freq_F, length)]

    def near_identity(heads, waves, draw):
        """The sums for cosines and for sines, [2, H, G, G]."""
        spread = sigma * float(np.sqrt(2 / (waves * waves + heads * waves)))
        noise = jnp.asarray(spread * draw((2, heads, waves, waves)), float)
        return jnp.eye(waves)[None, None] + noise

    def init(key, dims):
        waves = len(turning_frequencies(dims.head))
        noisy = near_identity(dims.heads, waves, lambda shape: jax.random.normal(key, shape))
        return dict(zip(("cos", "sin"), noisy, strict=True)) if learned else {}

    def drawn(dims):
        draw = np.random.default_rng(seed).standard_normal
        return near_identity(dims.heads, len(turning_frequencies(dims.head)), draw)

    def table(params, pos_BT, dims):
        freq_G = turning_frequencies(dims.head)
        learned_sums = (params["cos"], params["sin"]) if learned else None
        sums = learned_sums or by_head(drawn, params, dims, axis=1)
        waves = rotation.turns_at(pos_BT, freq_G[None])
        still = [(0, 0)] * 3 + [(0, dims.head // 2 - len(freq_G))]

        def summed(wave, sum_HGG, fill):
            sum_HGG = sum_HGG.astype(wave.dtype)  # tensor cores would round to ten bits
            mixed = jnp.einsum("btg,hgf->bthf", wave[:, :, 0], sum_HGG, precision="highest")
            return jnp.pad(mixed, still, constant_values=fill)

        return Turn(summed(waves.cos, sums[0], 1), summed(waves.sin, sums[1], 0))

    if learned:
        return each_layer(rotation.rotary(pairing, table, init=init))
    return rotation.rotary(pairing, table, init=init, of_heads=tell_heads)


@register(
    kind="rotary",
    formula="sum_c softplus(q_c) softplus(k_c) cos(D theta_c - delta_c) / sqrt(C), "
    "theta_c = base^(-c/C)",
    paper="Gopalakrishnan et al. 2025, arXiv 2509.10534",
    in_chain="first",
)
def pope(base: Positive = 10_000.0, uniform: bool = False) -> Encoding:
    """PoPE: content sets the length of a channel, and position alone its angle.

    Every channel is a number in polar coordinates with a frequency of its own; channels do not make
    pairs. The queries and keys that result have 2C channels; values are not changed. The angles of
    keys have the parameters delta_HC [H, C] of each layer added, clipped to -2 pi .. 0.

    Args:
      base: frequencies go from 1 down to nearly 1/base.
      uniform: delta starts uniform in its range; False: at 0.
    """

    def init(key, dims):
        shape = dims.heads, dims.head
        low = jax.random.uniform(key, shape, float, -2 * np.pi, 0)
        return {"delta_HC": low if uniform else jnp.zeros(shape, float)}

    def table(params, pos_BT, dims):
        freq_C = base ** (-np.arange(dims.head) / dims.head)
        turned = rotation.turns_at(pos_BT, freq_C[None])
        delta_HC = jnp.clip(params["delta_HC"].astype(turned.cos.dtype), -2 * np.pi, 0)
        return turned, rotation.turns(delta_HC[None, None])

    def rotate(table, x_BTHC, side):
        turned, by = table
        rotation.check_width(turned, x_BTHC.shape[-1], "channels")
        return polar(turned, by if side == "k" else None, x_BTHC)

    return each_layer(Encoding(init=init, table=table, rotate=rotate))
