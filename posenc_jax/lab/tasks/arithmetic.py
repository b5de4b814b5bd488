"""Tasks of digits and bits.

    task      line                                                     reads
    addition  BOS a1 .. an + b1 .. bn SEP  s0 s1 .. sn EOS             3n + 4
    parity    BOS x1 .. xn SEP  sum of the bits modulo 2               n + 2

The tokens after SEP are the answer, which counts in the loss. "reads" is the number of tokens that
the model is given. The plus sign is EXTRA.
"""

from typing import Literal

import jax
import jax.numpy as jnp

from posenc_jax.lab.tasks.task import BOS, EOS, EXTRA, SEP, SYMBOL, Padding, Task, draw, generated


def addition(
    reverse: bool = False,
    padding: Padding = "right",
    groups: Literal["place", "significance"] = "place",
) -> Task:
    """Add two numbers of n digits each; the sum has n + 1 digits.

    The first digit of a summand is never 0; the first digit of the sum may be. The most significant
    digit is first, as in Kazemnejad et al. 2023, arXiv 2305.19466.

    Args:
      reverse: the least significant digit of all three numbers is first, as in McLeish et al. 2024,
        arXiv 2405.17399.
      padding: the side of the padding.
      groups: the groups in the layout, which some encodings read. "place": the place of a digit in
        its number as written, from 1, and 0 for other tokens (arXiv 2405.17399). "significance": 1
        for the plus sign, 2 for the units digit, 3 for the tens and so on; SEP has one less than
        the first digit of the sum if that is the units digit, else one more (arXiv 2405.20671).
    """

    def numbers(n, place_L):
        """Of each number: its start, the power of ten of each place, which places are in it."""
        for start, count in ((1, n), (n + 2, n), (2 * n + 3, n + 1)):
            index_L = place_L - start if reverse else start + count - 1 - place_L
            yield start, index_L, (place_L >= start) & (place_L < start + count)

    def line(key, n, place_L):
        # Digit i is worth 10 ** i, so a carry depends only on digits of smaller i.
        a_L, b_L = (_number(k, n, place_L) for k in jax.random.split(key))
        token_L = jnp.full_like(place_L, EXTRA)
        written = zip((a_L, b_L, _add(a_L, b_L)), numbers(n, place_L), strict=True)
        for digit_L, (_, index_L, held_L) in written:
            token_L = jnp.where(held_L, SYMBOL + digit_L[index_L], token_L)
        for place, token in ((0, BOS), (2 * n + 2, SEP), (3 * n + 4, EOS)):
            token_L = jnp.where(place_L == place, token, token_L)
        return token_L, place_L > 2 * n + 2

    def group(n, place_L):
        group_L = jnp.zeros_like(place_L)
        if groups == "significance":
            group_L = jnp.where(place_L == n + 1, 1, group_L)
            group_L = jnp.where(place_L == 2 * n + 2, 1 if reverse else n + 3, group_L)
        for start, index_L, held_L in numbers(n, place_L):
            counted_L = index_L + 2 if groups == "significance" else place_L - start + 1
            group_L = jnp.where(held_L, counted_L, group_L)
        return group_L

    length = lambda n: 3 * n + 5
    return generated("addition", line, length, symbols=10, padding=padding, group=group)


def parity(padding: Padding = "right") -> Task:
    """Whether the number of ones is odd (Deletang et al. 2022, arXiv 2207.02098)."""

    def line(key, n, place_L):
        bit_L = draw(key, place_L - 1, 2)
        answer = jnp.sum(bit_L, where=(place_L >= 1) & (place_L <= n)) % 2
        token_L = SYMBOL + jnp.where(place_L <= n, bit_L, answer)
        token_L = jnp.where(place_L == 0, BOS, token_L)
        return jnp.where(place_L == n + 1, SEP, token_L), place_L > n + 1

    return generated("parity", line, lambda n: n + 3, symbols=2, padding=padding, chance=0.5)


def _number(key, n, index_L):
    """The digits of a random number of n digits, units first, then zeros."""
    digit_L = draw(key, index_L, 10)
    lead = 1 + jax.random.randint(jax.random.fold_in(key, n), (), 0, 9)
    return jnp.where(index_L < n - 1, digit_L, jnp.where(index_L == n - 1, lead, 0))


def _add(a_L, b_L):
    """The digits of the sum of two numbers, units first.

    A digit sum of 9 passes on the carry that it gets; any other sum sets the carry. So the carry
    out of place i is set by the last place up to i whose sum is not 9.
    """
    sum_L = a_L + b_L
    index_L = jnp.arange(sum_L.shape[0], dtype=sum_L.dtype)
    decided_L = jnp.where(sum_L == 9, 0, 2 * index_L + sum_L // 10)
    carry_L = jax.lax.cummax(decided_L) % 2
    return (sum_L + jnp.pad(carry_L, (1, 0))[:-1]) % 10
