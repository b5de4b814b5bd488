"""DNA-like sequences with a reading frame and spaced motifs, whose entropy is known.

    task  line                                                         reads
    dna   BOS b1 .. b3n, the bases of n codons                         3n

"reads" is the number of tokens that the model is given. The bases A, C, G, T are symbols 0 to 3. A
codon begins with one of 16 pairs of bases, some of which are frequent. Its third base complements
the third base of the codon `spacing` codons before, with probability 0.9, else it is one of the
other three: the halves of a motif at a fixed distance. So the pair of a base depends on its place
in the frame, and its partner on a place far away. All bases after the first `spacing` codons count.
"""

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.lab.tasks.task import BOS, SYMBOL, Padding, Task, check_least, draw, generated

PAIRED = 0.9  # probability of a complement
STEPS = 2**16  # probabilities are rounded to a multiple of 1 / STEPS
# The shares of the pairs follow Zipf's law, 1 / (1 + rank); 7 spreads the ranks over the bases.
RANK_P = np.arange(16) * 7 % 16


def dna(spacing: int = 4, padding: Padding = "right") -> Task:
    """Predict the next base; a size is a number of codons. A base is one byte of the metric.

    spacing: codons between the halves of a motif.
    """
    check_least("spacing", spacing, 1)
    ends_P = np.round(np.cumsum(pair_shares()) * STEPS).astype(np.int32)

    def line(key, n, place_L):
        del n
        pair_key, third_key = jax.random.split(key)
        codon_L = place_L // 3
        pair_L = jnp.searchsorted(jnp.asarray(ends_P), draw(pair_key, codon_L, STEPS), side="right")
        third_L = thirds(third_key, spacing, place_L)
        within_L = place_L % 3
        first_L = jnp.where(within_L == 0, pair_L // 4, pair_L % 4).astype(jnp.int32)
        base_L = jnp.where(within_L == 2, third_L[codon_L], first_L)
        token_L = jnp.where(place_L == 0, BOS, SYMBOL + base_L[place_L - 1])
        return token_L, place_L > 3 * spacing

    task = generated(
        "dna", line, lambda n: 3 * n + 1, symbols=4, padding=padding, least=spacing + 1
    )
    return task._replace(metric="bits_per_byte", baselines=lambda: {"entropy": entropy()})


def thirds(key: jax.Array, spacing: int, codon_L: jax.Array) -> jax.Array:
    """The third base of each codon, [L]."""
    first_key, noise_key, other_key = jax.random.split(key, 3)
    paired_L = draw(noise_key, codon_L, STEPS) < round(PAIRED * STEPS)
    other_L = draw(other_key, codon_L, 3)
    first_L = draw(first_key, codon_L, 4)

    def step(before_S, given):
        codon, paired, other, first = given
        complement = 3 - before_S[0]
        base = jnp.where(paired, complement, (complement + 1 + other) % 4)
        base = jnp.where(codon < spacing, first, base)
        return jnp.append(before_S[1:], base), base

    start = jnp.zeros(spacing, jnp.int32)
    return jax.lax.scan(step, start, (codon_L, paired_L, other_L, first_L))[1]


def pair_shares() -> np.ndarray:
    """The probability of each pair of bases, [16]; pair 4a + b is base a, then base b."""
    share_P = 1 / (1 + RANK_P)
    return share_P / share_P.sum()


def entropy() -> float:
    """Bits of a base that counts, on average, given all before it: the least possible loss."""
    share_P = np.diff(np.round(np.cumsum(pair_shares()) * STEPS), prepend=0) / STEPS
    paired = round(PAIRED * STEPS) / STEPS
    third = -paired * np.log2(paired) - (1 - paired) * np.log2((1 - paired) / 3)
    return float((third - (share_P * np.log2(share_P)).sum()) / 3)
