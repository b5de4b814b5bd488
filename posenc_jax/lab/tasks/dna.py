"""DNA-like sequences with a reading frame, spaced motifs and introns, made on the device.

    task           sequence                                         answer
    dna            BOS b1 .. b3n, the bases of n codons             the next base
    reading_frame  BOS b1 .. b3n, one base of some codons hidden    the hidden bases
    splice         BOS exon GT intron AG exon .., n introns         the base after each intron
    spacing        BOS b1 .. bn with the boxes GG and CC            whether they fit together

The bases A, C, G, T are symbols 0 to 3; A pairs with T, C with G. The last three tasks are for
encoders; for other sequences, DNA or protein, `file:PATH` reads a FASTA file.

Task `dna`: a codon begins with one of 16 pairs of bases, some of which are frequent. Its third base
complements the third base of the codon `spacing` codons before, with probability 0.9, else it is
one of the other three: the halves of a motif at a fixed distance. So the pair of a base depends on
its place in the frame, and its partner on a place far away. All bases after the first `spacing`
codons count, and the entropy is known.
"""

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.lab.tasks import encoder_tasks
from posenc_jax.lab.tasks.catalog import register
from posenc_jax.lab.tasks.task import (
    BOS,
    PAD,
    SYMBOL,
    Padding,
    Task,
    check_least,
    draw,
    generated,
)
from posenc_jax.lab.tasks.translation import without_gaps

A, C, G, T = (SYMBOL + i for i in range(4))
HIDDEN = T + 1  # added to a base that is hidden

PAIRED = 0.9  # probability of a complement
STEPS = 2**16  # probabilities are rounded to a multiple of 1 / STEPS
# The shares of the pairs follow Zipf's law, 1 / (1 + rank); 7 spreads the ranks over the bases.
RANK_P = np.arange(16) * 7 % 16


@register(unit="codons")
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
    return task._replace(metric="bits_per_base", baselines=lambda: {"entropy": entropy()})


def thirds(key: jax.Array, spacing: int, codon_L: jax.Array) -> jax.Array:
    """The third base of each codon, 0 to 3, [L]."""
    first_key, noise_key, other_key = jax.random.split(key, 3)
    paired_L = draw(noise_key, codon_L, STEPS) < round(PAIRED * STEPS)
    other_L = draw(other_key, codon_L, 3)
    first_L = draw(first_key, codon_L, 4)

    def step(before_S, inputs):
        codon, paired, other, first = inputs
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
    """The mean entropy in bits of a base that counts, given all before it: the least possible
    loss.
    """
    share_P = np.diff(np.round(np.cumsum(pair_shares()) * STEPS), prepend=0) / STEPS
    paired = round(PAIRED * STEPS) / STEPS
    third = -paired * np.log2(paired) - (1 - paired) * np.log2((1 - paired) / 3)
    return float((third - (share_P * np.log2(share_P)).sum()) / 3)


@register(reads="whole", unit="codons")
def reading_frame() -> Task:
    """Predict the first or the third base of codons; a size is a number of codons.

    A codon is a purine (A, G), any base, and the complement of the first, so a pyrimidine. Every
    second codon, at random, hides its first or its third base. What the hidden base is stands two
    places on or two places back, depending on the reading frame.
    """

    def line(key, n, place_T):
        first_key, second_key, hidden_key = jax.random.split(key, 3)
        codon_T, within_T = (place_T - 1) // 3, (place_T - 1) % 3
        first_T = 2 * draw(first_key, codon_T, 2)
        base_T = jnp.where(within_T == 1, draw(second_key, codon_T, 4), first_T)
        base_T = jnp.where(within_T == 2, 3 - first_T, base_T)
        chosen_T = draw(hidden_key, codon_T, 4)  # 0 and 1: the first or the third base is hidden
        hidden_T = (within_T == 2 * chosen_T) & (place_T > 0)
        token_T = jnp.where(place_T == 0, BOS, SYMBOL + base_T)
        return jnp.where(place_T <= 3 * n, token_T, PAD), hidden_T

    return encoder_tasks.hidden(
        "reading_frame", line, lambda n: 3 * n + 1, symbols=4, least=4, baselines={"chance": 0.25}
    )


@register(reads="whole", unit="introns")
def splice(intron: int = 4) -> Task:
    """Predict the base after each intron; a size is a number of introns.

    An intron begins with GT, ends with AG, and has 1 to `intron` pyrimidines (C, T) between. The
    exons around it have 2 to 5 of the bases A, C, T. The base after an intron is the complement of
    the base before it, so the dependence spans the intron, whose length varies.
    """
    check_least("intron", intron, 1)

    def line(key, n, place_T):
        exon_key, inner_key, *size_keys = jax.random.split(key, 4)
        units = -(-len(place_T) // 8)  # the shortest exon and intron have 8 bases
        unit_U1 = jnp.arange(units, dtype=jnp.int32)[:, None]

        def drawn(key, bases, columns):
            cell_N = jnp.arange(units * columns, dtype=jnp.int32)
            return jnp.asarray(bases)[draw(key, cell_N, len(bases))].reshape(units, columns)

        repeated = lambda *bases: jnp.broadcast_to(
            jnp.asarray(bases, jnp.int32), (units, len(bases))
        )
        exon_UX, inner_UX = drawn(exon_key, (A, C, T), 5), drawn(inner_key, (C, T), intron)
        more_U1, inner_U1 = (draw(k, unit_U1[:, 0], 4 * intron)[:, None] for k in size_keys)
        exon_size_U1, inner_size_U1 = 2 + more_U1 % 4, 1 + inner_U1 % intron
        short = lambda x_UX, size_U1: jnp.where(
            jnp.arange(x_UX.shape[1])[None] < size_U1, x_UX, PAD
        )
        last_U1 = jnp.take_along_axis(exon_UX, exon_size_U1 - 1, axis=1)
        after_U1 = HIDDEN + A + T - last_U1
        parts = [
            short(exon_UX, exon_size_U1),
            repeated(G, T),
            short(inner_UX, inner_size_U1),
            repeated(A, G),
        ]
        base_UX = jnp.where(unit_U1 < n, jnp.concatenate([*parts, after_U1], axis=1), PAD)
        base_N, count = without_gaps(base_UX.ravel())
        base_T = jnp.where(place_T == 0, BOS, base_N[jnp.maximum(place_T - 1, 0)])
        base_T = jnp.where(place_T <= count, base_T, PAD)
        hidden_T = base_T >= HIDDEN
        return jnp.where(hidden_T, base_T - HIDDEN, base_T), hidden_T

    most = 5 + 2 + intron + 2 + 1
    return encoder_tasks.hidden(
        "splice", line, lambda n: most * n + 1, symbols=4, baselines={"chance": 1 / 3}
    )


@register(reads="whole", unit="bases")
def spacing(distance: int = 6) -> Task:
    """Say whether the box CC begins `distance` bases after the box GG (1) or at another distance
    (0), which is at most 3 more or less; a size is the number of bases, of which the others are A
    and T.
    """
    check_least("distance", distance, 5)

    def line(key, n, place_T):
        start_key, label_key, other_key, base_key = jax.random.split(key, 4)
        label = jax.random.randint(label_key, (), 0, 2)
        other = jax.random.randint(other_key, (), 0, 6)
        other = distance - 3 + jnp.where(other < 3, other, other + 1)
        apart = jnp.where(label > 0, distance, other)
        start = jax.random.randint(start_key, (), 1, n - apart)
        token_T = jnp.asarray([A, T])[draw(base_key, place_T, 2)]
        box = lambda first: (place_T == first) | (place_T == first + 1)
        token_T = jnp.where(box(start), G, jnp.where(box(start + apart), C, token_T))
        token_T = jnp.where(place_T == 0, BOS, token_T)
        return jnp.where(place_T <= n, token_T, PAD), label

    return encoder_tasks.labelled(
        "spacing", line, lambda n: n + 1, symbols=4, least=distance + 5, baselines={"chance": 0.5}
    )
