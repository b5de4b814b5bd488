"""Tasks of digits and bits, without brackets.

    task                line                                                     reads
    addition            BOS a1 .. an + b1 .. bn SEP  s0 s1 .. sn EOS             3n + 4
    parity              BOS x1 .. xn SEP  sum of the bits modulo 2               n + 2
    majority            BOS x1 .. xn SEP  the more frequent bit                  n + 2
    sum                 BOS x1 .. xn SEP  sum of the digits 1 to 9 modulo 10     n + 2
    modular_arithmetic  BOS x1 * x2 - .. + xn SEP  its value modulo 5            2n + 1

The tokens after SEP are the answer, which counts in the loss. "reads" is the number of tokens that
the model is given. The plus sign is EXTRA; in modular arithmetic
+, - and * are the symbols after the digits.
"""

from typing import Literal

import jax
import jax.numpy as jnp

from posenc_jax.lab.tasks.catalog import register
from posenc_jax.lab.tasks.task import (
    BOS,
    EOS,
    EXTRA,
    SEP,
    SYMBOL,
    Padding,
    Task,
    check_symbols,
    draw,
    generated,
    question_answer,
)


@register()
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
        written = zip((a_L, b_L, add_digits(a_L, b_L)), numbers(n, place_L), strict=True)
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


@register()
def parity(padding: Padding = "right") -> Task:
    """Say whether the number of ones is odd (Deletang et al. 2022, arXiv 2207.02098)."""

    def line(key, n, place_L):
        bit_L = draw(key, place_L - 1, 2)
        answer = jnp.sum(bit_L, where=(place_L >= 1) & (place_L <= n)) % 2
        token_L = SYMBOL + jnp.where(place_L <= n, bit_L, answer)
        token_L = jnp.where(place_L == 0, BOS, token_L)
        return jnp.where(place_L == n + 1, SEP, token_L), place_L > n + 1

    return generated(
        "parity", line, lambda n: n + 3, symbols=2, padding=padding, chance=0.5,
        bag={"count of ones": lambda token, q_V, a_V: SYMBOL + q_V[SYMBOL + 1] % 2},
    )  # fmt: skip


@register()
def majority(padding: Padding = "right") -> Task:
    """Say which of two bits is the more frequent one; it needs no positions.

    As MAJORITY of Huang et al. 2024, arXiv 2410.02140, without strings in which both are as
    frequent: the first bit of such a string is changed.
    """

    def line(key, n, place_L):
        bit_L = draw(key, place_L, 2)
        ones = lambda bit_L: jnp.sum(bit_L, where=place_L < n)
        bit_L = bit_L.at[0].set(jnp.where(2 * ones(bit_L) == n, 1 - bit_L[0], bit_L[0]))
        answer = (2 * ones(bit_L) > n).astype(jnp.int32)
        return question_answer(place_L, [(SYMBOL + bit_L, n)], [(SYMBOL + answer, 1)])

    def more_frequent(token, question_V, answer_V):
        del token, answer_V
        return SYMBOL + jnp.argmax(question_V[SYMBOL : SYMBOL + 2])

    return generated(
        "majority", line, lambda n: n + 3, symbols=2, padding=padding, chance=0.5,
        bag={"the more frequent bit": more_frequent},
    )  # fmt: skip


@register(name="sum")
def digit_sum(padding: Padding = "right") -> Task:
    """The sum of n digits from 1 to 9, modulo 10 (Kazemnejad et al. 2023, arXiv 2305.19466)."""
    value_V = jnp.arange(10, dtype=jnp.int32)

    def line(key, n, place_L):
        digit_L = 1 + draw(key, place_L, 9)
        total = jnp.sum(digit_L, where=place_L < n) % 10
        return question_answer(place_L, [(SYMBOL + digit_L, n)], [(SYMBOL + total, 1)])

    def sum_of_bag(token, question_V, answer_V):
        del token, answer_V
        return SYMBOL + jnp.sum(question_V[SYMBOL:] * value_V) % 10

    return generated(
        "sum", line, lambda n: n + 3, symbols=10, padding=padding, chance=0.1,
        bag={"sum of the bag": sum_of_bag},
    )  # fmt: skip


@register()
def modular_arithmetic(modulus: int = 5, padding: Padding = "right") -> Task:
    """The value of a chain of n numbers with +, - and *, modulo 5 (arXiv 2207.02098).

    Products are computed before sums and differences. The paper's length is 2n - 1.
    """
    check_symbols("modulus", modulus)

    def line(key, n, place_L):
        number_key, sign_key = jax.random.split(key)
        number_L = draw(number_key, place_L, modulus)
        sign_L = draw(sign_key, place_L, 3)  # + - * before the number of the same index
        shown_L = modulus + sign_L[(place_L + 1) // 2]
        token_L = jnp.where(place_L % 2 == 0, number_L[place_L // 2], shown_L)
        value = _chain(n, number_L, sign_L, modulus)
        return question_answer(place_L, [(SYMBOL + token_L, 2 * n - 1)], [(SYMBOL + value, 1)])

    name, length = "modular_arithmetic", lambda n: 2 * n + 2
    return generated(name, line, length, symbols=modulus + 3, padding=padding, chance=1 / modulus)


def _chain(n, number_L, sign_L, modulus):
    """The value of the first n numbers, products first; sign i, of + - * as 0 1 2, is before number
    i.
    """

    def step(state, inputs):
        total, term = state  # the sum of the finished terms, and the product that goes on
        index, number, sign = inputs
        finished = jnp.where(sign == 2, total, total + term)
        signed = jnp.where(sign == 1, -number, number)
        term_now = jnp.where(sign == 2, term * number, signed) % modulus
        goes_on = (index > 0) & (index < n)
        new_state = (
            jnp.where(goes_on, finished % modulus, total),
            jnp.where(goes_on, term_now, term),
        )
        return new_state, None

    inputs = jnp.arange(len(number_L), dtype=jnp.int32), number_L, sign_L
    (total, term), _ = jax.lax.scan(step, (jnp.zeros_like(n), number_L[0]), inputs)
    return (total + term) % modulus


def _number(key, n, index_L):
    """The digits of a random number of n digits, units first, followed by zeros."""
    digit_L = draw(key, index_L, 10)
    lead = 1 + jax.random.randint(jax.random.fold_in(key, n), (), 0, 9)
    return jnp.where(index_L < n - 1, digit_L, jnp.where(index_L == n - 1, lead, 0))


def add_digits(a_L, b_L, base=10):
    """The digits of the sum of two numbers, units first.

    A digit sum of base - 1 passes on the carry that it gets; any other sum sets the carry. So the
    carry out of place i is set by the last place up to i whose sum is not base - 1.
    """
    sum_L = a_L + b_L
    index_L = jnp.arange(sum_L.shape[0], dtype=sum_L.dtype)
    decided_L = jnp.where(sum_L == base - 1, 0, 2 * index_L + sum_L // base)
    carry_L = jax.lax.cummax(decided_L) % 2
    return (sum_L + jnp.pad(carry_L, (1, 0))[:-1]) % base
