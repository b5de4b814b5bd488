"""Context extension of rotary by distance: near keys as in rope, far keys at shortened distances.

A far distance is a difference of two other angles of query and key, so each kind of far key takes a
product of its own. The methods use the weights of `rope` and have no parameters. The papers are
causal; keys ahead of the query have the same distances with the opposite sign.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.dtypes import scaled
from posenc_jax.encoding import Encoding, Walk
from posenc_jax.encodings.bias_formulas import distances
from posenc_jax.encodings.card import Count, Factor, Positive, Whole, register, require
from posenc_jax.encodings.rotary import rope
from posenc_jax.encodings.rotation import Pairing, angles, ladder, turn, turns


class Far(NamedTuple):
    """A kind of far key, with the angles of queries and of keys: functions (positions [B, T],
    frequencies [F]) -> [B, T, 1, F].

    here: (query's position, key's position) -> whether a key behind the query is of this kind.
    """

    query: Callable[[jax.Array, np.ndarray], jax.Array]
    key: Callable[[jax.Array, np.ndarray], jax.Array]
    here: Callable[[jax.Array, jax.Array], jax.Array]


def at(pos_BT: jax.Array, freq_F: np.ndarray) -> jax.Array:
    """The angles of `rope`, [B, T, 1, F]."""
    return angles(pos_BT, freq_F[None])


def by_distance(far: Sequence[Far], base: float, pairing: Pairing) -> Encoding:
    """`rope`, with another product of query and key for each kind of far key.

    Logits of near keys are those of `rope` to the bit.
    """

    def score(params, s_BHQK, q, k, visible_BHQK, carry):
        freq_F = ladder(q.x_BTHC.shape[-1], base)

        def product(q_angle, k_angle):
            q_BQHC, k_BKHC = (
                turn(turns(angle), side.x_BTHC, pairing)
                for angle, side in ((q_angle, q), (k_angle, k))
            )
            # Scaled before the product as in attention, so that both round alike.
            q_BQHC = scaled(q_BQHC, q.factor)
            wide = s_BHQK.dtype
            return jnp.einsum("bqhc,bkhc->bhqk", q_BQHC, k_BKHC, preferred_element_type=wide)

        i, j = q.placed, k.placed
        near_BHQK = product(at(i, freq_F), at(j, freq_F))
        i_BQ1, j_B1K = i[:, :, None], j[:, None]
        for query, key, here in far:
            behind_BQK, ahead_BQK = here(i_BQ1, j_B1K), here(j_B1K, i_BQ1)
            for kind_BQK, q_angle, k_angle in (
                (behind_BQK, query(i, freq_F), key(j, freq_F)),
                (ahead_BQK, key(i, freq_F), query(j, freq_F)),
            ):
                change_BHQK = product(q_angle, k_angle) - near_BHQK
                s_BHQK = s_BHQK + jnp.where(kind_BQK[:, None], change_BHQK, 0)
        return s_BHQK, carry

    return rope(base, pairing)._replace(walk=Walk(score, corrects=True))


def _beyond(window: int) -> Callable:
    """A function (query's position, key's position) -> whether the key is `window` or more
    behind.
    """
    return lambda i, j: i - j >= window


@register(
    kind="rotary",
    formula="rope at distance min(D, window)",
    paper="Su 2023, https://github.com/bojone/rerope; first tokens: Han et al. 2023 (LM-Infinite), "
    "arXiv 2308.16137",
    in_chain="alone",
)
def rerope(
    window: Count = 512,
    first: Whole | None = None,
    base: Positive = 10_000.0,
    pairing: Pairing = "half",
) -> Encoding:
    """ReRoPE: keys from `window` tokens away on are all rotated as for that distance.

    Left out: the public code's factor of queries, max(1, ln(i + 1) / ln length).

    Args:
      window: nearer keys have the distances of rope; no distance is larger, so choose one below the
        length that the model was trained on.
      first: LM-Infinite: of the keys from `window` tokens away on, only so many at the start of the
        sequence are seen; its `window` is the trained length, and it takes 10 to 100. None: all.
      base: as in `pi`.
    """
    edge = lambda pos_BT, freq_F: at(jnp.full_like(pos_BT, window), freq_F)
    still = lambda pos_BT, freq_F: at(jnp.zeros_like(pos_BT), freq_F)
    encoding = by_distance([Far(edge, still, _beyond(window))], base, pairing)
    if first is None:
        return encoding

    def bias(params, q_placed, k_placed, dims):
        apart_B1QK = distances(q_placed, k_placed)
        hidden_B1QK = (apart_B1QK >= window) & (k_placed >= first)[:, None, None]
        return jnp.where(hidden_B1QK, -jnp.inf, 0 * apart_B1QK)  # 0 * NaN refuses a position

    return encoding._replace(bias=bias)


@register(
    kind="rotary",
    formula="rope at distance D < window, else window + (D - window) / factor",
    paper="Su 2023, https://github.com/bojone/rerope",
    in_chain="alone",
)
def leaky_rerope(
    window: Count = 512, factor: Factor = 16.0, base: Positive = 10_000.0, pairing: Pairing = "half"
) -> Encoding:
    """Leaky ReRoPE: distances grow `factor` times slower from `window` tokens on.

    As in `rerope`, the public code's growth of the logits is not done here.

    Args:
      window: nearer keys have the distances of rope; choose one so that n tokens have no distance
        above the length that the model was trained on: window + (n - window) / factor.
      factor: tokens further away that make one more unit of distance; 1 is rope.
      base: as in `pi`.
    """
    slow = lambda pos_BT, freq_F: at(pos_BT, freq_F / factor)

    def shifted(pos_BT, freq_F):
        angle = slow(pos_BT, freq_F)
        further = (window - window / factor) * freq_F % (2 * np.pi)  # before it is rounded
        return angle + further[None, None, None].astype(angle.dtype)

    return by_distance([Far(shifted, slow, _beyond(window))], base, pairing)


@register(
    kind="rotary",
    formula="rope at distance D < window, else i // group - j // group + window - window // group",
    paper="Jin et al. 2024, arXiv 2401.01325",
    shift_invariant=False,
    in_chain="alone",
)
def self_extend(
    window: Count = 1024, group: Count = 8, base: Positive = 10_000.0, pairing: Pairing = "half"
) -> Encoding:
    """Self-Extend: positions of far keys and of their queries are divided by `group`, rounded down.

    Scores depend on more than i - j, because groups begin at multiples of `group`. A model trained
    on L tokens reads (L - window) group + window. Later public code subtracts window / group not
    rounded, which is the same where group divides window.

    Args:
      window: nearer keys have the distances of rope; choose one below the length L that the model
        was trained on.
      group: positions of far tokens that become one; more reads longer texts, (L - window) group +
        window.
      base: as in `pi`.
    """
    grouped = lambda pos_BT, freq_F: at(pos_BT // group, freq_F)
    gap = window - window // group
    shifted = lambda pos_BT, freq_F: at(pos_BT // group + gap, freq_F)
    return by_distance([Far(shifted, grouped, _beyond(window))], base, pairing)


@register(
    kind="rotary",
    formula="rope at distance D in one chunk, min(i mod chunk + chunk, most) - j mod chunk to the "
    "chunk before, most - j mod chunk to earlier ones",
    paper="An et al. 2024, arXiv 2402.17463",
    shift_invariant=False,
    in_chain="alone",
)
def dual_chunk(
    chunk: Count = 1408, most: int = 1536, base: Positive = 10_000.0, pairing: Pairing = "half"
) -> Encoding:
    """Dual chunk attention: positions count inside chunks, and no distance exceeds `most`.

    In one chunk distances are those of rope. A query reads the chunk before its own as if it stood
    at i mod chunk + chunk, at most at `most`, so its last most - chunk tokens or more are at their
    distance; it reads earlier chunks as if it stood at `most`. Left out: a factor of queries and
    keys in the public code, 0.05 ln(n / trained length) + 1 for longer texts.

    Args:
      chunk: tokens of a chunk, fewer than the model was trained on.
      most: the largest distance: c - 1 in the paper for a model trained on c tokens; in the public
        code `chunk_size`, where `chunk` is `chunk_size` less `local_window`. The defaults are its
        settings for 2,048 tokens with `local_window` 128; later versions have 256, a chunk of 1280.
      base: as in `pi`.

    FieldError: most is not in chunk .. 2 chunk - 1.
    """
    fits = chunk <= most < 2 * chunk
    require(fits, "most", most, f"must be from chunk, {chunk}, to 2 chunk - 1, {2 * chunk - 1}")
    inside = lambda pos_BT, freq_F: at(pos_BT % chunk, freq_F)
    after = lambda pos_BT, freq_F: at(jnp.minimum(pos_BT % chunk + chunk, most), freq_F)
    last = lambda pos_BT, freq_F: at(jnp.full_like(pos_BT, most), freq_F)
    apart = lambda i, j: i // chunk - j // chunk
    next_chunk = Far(after, inside, lambda i, j: apart(i, j) == 1)
    later_chunks = Far(last, inside, lambda i, j: apart(i, j) > 1)
    return by_distance([next_chunk, later_chunks], base, pairing)
