"""Arithmetic of binary numbers (Deletang et al. 2022, arXiv 2207.02098).

    task                   line                                             reads
    binary_addition        BOS a1 .. ai + b1 .. bj SEP  the sum, EOS        up to 2n + 2
    binary_multiplication  BOS a1 .. ai * b1 .. bj SEP  the product, EOS    up to 2n + 1
    compute_sqrt           BOS x1 .. xn SEP  the root, rounded down, EOS    n + 2 + (n + 1) // 2

The tokens after SEP are the answer, which counts in the loss. "reads" is the number of tokens that
the model is given. The operator is EXTRA. In sums and products, i + j + 1 = n, i is drawn evenly
from 1 to n - 2, and units are first; an answer ends at its highest 1, and 0 is one digit. A root
has its highest place first, and (n + 1) // 2 digits. Unlike theirs, numbers may be 0, the answer
does not go on with zeros after its end token, and a root has an end token.
"""

import jax
import jax.numpy as jnp

from posenc_jax.lab.tasks.arithmetic import add_digits
from posenc_jax.lab.tasks.catalog import register
from posenc_jax.lab.tasks.task import (
    EOS,
    EXTRA,
    SYMBOL,
    Padding,
    Task,
    draw,
    generated,
    question_answer,
)


@register()
def binary_addition(padding: Padding = "right") -> Task:
    """The sum of two binary numbers of any lengths."""
    add = lambda a_L, b_L: add_digits(a_L, b_L, base=2)
    return _two_number_task("binary_addition", add, lambda n: 2 * n + 3, padding)


@register()
def binary_multiplication(padding: Padding = "right") -> Task:
    """The product of two binary numbers of any lengths."""
    return _two_number_task("binary_multiplication", multiply, lambda n: 2 * n + 2, padding)


@register()
def compute_sqrt(padding: Padding = "right") -> Task:
    """The square root of a binary number of n places, rounded down."""

    def line(key, n, place_L):
        bit_L = draw(key, place_L, 2)
        root_L = root(n, bit_L)
        question = [(SYMBOL + bit_L, n)]
        return question_answer(place_L, question, [(SYMBOL + root_L, (n + 1) // 2), (EOS, 1)])

    length = lambda n: n + 3 + (n + 1) // 2
    return generated("compute_sqrt", line, length, symbols=2, padding=padding)


def multiply(a_L: jax.Array, b_L: jax.Array) -> jax.Array:
    """The bits of a product, units first; numbers and product must fit into L bits."""

    def step(state, bit):
        carry, window_L = state  # at step k, place i of the window is b[k - i]
        window_L = jnp.roll(window_L, 1).at[0].set(bit)
        total = carry + jnp.sum(a_L * window_L)
        return (total // 2, window_L), total % 2

    start = jnp.zeros_like(a_L[0]), jnp.zeros_like(b_L)
    return jax.lax.scan(step, start, b_L)[1]


def root(n: jax.Array, bit_L: jax.Array) -> jax.Array:
    """The bits of the square root of the first n bits, highest first, by digit-by-digit extraction.

    Two bits at a time come down to the remainder; the next bit of the root is 1 if the remainder
    is at least 4 root + 1, which is then taken away.
    """
    size = len(bit_L) // 2 + 3  # a remainder is at most twice the root
    padded_L = jnp.pad(bit_L, (1, 2))  # an odd number of places begins with a 0
    index_R = jnp.arange(size, dtype=jnp.int32)

    def step(state, pair):
        remainder_R, root_R = state  # units first
        at = 2 * pair + 1 - n % 2
        down_R = jnp.roll(remainder_R, 2).at[0].set(padded_L[at + 1]).at[1].set(padded_L[at])
        less_R = down_R - jnp.roll(root_R, 2).at[0].set(1).at[1].set(0)
        decided_R = jnp.where(less_R == 0, 0, 2 * index_R + jnp.where(less_R < 0, 3, 2))
        borrow_R = jax.lax.cummax(decided_R) % 2
        fits = borrow_R[-1] == 0
        taken_R = (less_R - jnp.pad(borrow_R, (1, 0))[:-1]) % 2
        root_R = jnp.roll(root_R, 1).at[0].set(fits.astype(root_R.dtype))
        return (jnp.where(fits, taken_R, down_R), root_R), root_R[0]

    pair_P = jnp.arange((len(bit_L) + 1) // 2, dtype=jnp.int32)
    start = jnp.zeros_like(index_R), jnp.zeros_like(index_R)
    return jax.lax.scan(step, start, pair_P)[1]


def _two_number_task(name, operation, length, padding) -> Task:
    """A task whose answer is the result of an operation on two numbers, of up to n bits."""

    def line(key, n, place_L):
        count_key, a_key, b_key = jax.random.split(key, 3)
        i = jax.random.randint(count_key, (), 1, n - 1)
        j = n - 1 - i
        a_L = jnp.where(place_L < i, draw(a_key, place_L, 2), 0)
        b_L = jnp.where(place_L < j, draw(b_key, place_L, 2), 0)
        result_L = operation(a_L, b_L)
        count = jnp.maximum(1, jnp.max(jnp.where(result_L == 1, place_L + 1, 0)))
        question = [(SYMBOL + a_L, i), (EXTRA, 1), (SYMBOL + b_L, j)]
        return question_answer(place_L, question, [(SYMBOL + result_L, count), (EOS, 1)])

    return generated(name, line, length, symbols=2, padding=padding, least=3)
