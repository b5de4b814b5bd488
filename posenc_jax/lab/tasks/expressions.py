"""Arithmetic with brackets, modulo 5 (Deletang et al. 2022, arXiv 2207.02098).

    task                         line                                          reads
    modular_arithmetic_brackets  BOS expression SEP  its value                 n + 2
    solve_equation               BOS expression with x, = value SEP  x         n + 2

The tokens after SEP are the answer, which counts in the loss. "reads" is the number of tokens that
the model is given. An expression of 1 to 4 tokens is d, -d, (d) or (-d), with a digit d. A longer
one is (a+b), (a-b) or (a*b), with the length of the expression a drawn evenly. Symbols are the
digits, then + - ( ), then * or, in equations, x and =.
"""

import jax
import jax.numpy as jnp

from posenc_jax.lab.tasks.catalog import register
from posenc_jax.lab.tasks.task import (
    SYMBOL,
    Padding,
    Task,
    check_symbols,
    draw,
    generated,
    question_answer,
)

PLUS, MINUS, OPEN, CLOSE, TIMES = range(5)  # numbers after the digits
UNKNOWN, EQUALS = 4, 5


@register()
def modular_arithmetic_brackets(
    modulus: int = 5, times: bool = True, padding: Padding = "right"
) -> Task:
    """The value of an expression of n tokens.

    times: with products, as in the paper's experiments, or only sums and differences.
    """
    check_symbols("modulus", modulus)

    def line(key, n, place_L):
        symbol_L, value = expression(key, n, place_L, modulus, times)
        return question_answer(place_L, [(SYMBOL + symbol_L, n)], [(SYMBOL + value, 1)])

    name, length = "modular_arithmetic_brackets", lambda n: n + 3
    return generated(name, line, length, symbols=modulus + 5, padding=padding, chance=1 / modulus)


@register()
def solve_equation(modulus: int = 5, padding: Padding = "right") -> Task:
    """The digit that x stands for in an equation of n tokens, without products.

    x replaces the first digit at or after a random place of the expression, or else its first.
    """
    check_symbols("modulus", modulus)

    def line(key, n, place_L):
        expression_key, place_key = jax.random.split(key)
        count = n - 2
        symbol_L, value = expression(expression_key, count, place_L, modulus, times=False)
        start = jax.random.randint(place_key, (), 0, count)
        is_digit_L = (symbol_L < modulus) & (place_L < count)
        steps_L = jnp.where(is_digit_L, (place_L - start) % count, count)
        at = jnp.argmin(steps_L)
        shown_L = SYMBOL + symbol_L.at[at].set(modulus + UNKNOWN)
        question = [(shown_L, count), (SYMBOL + modulus + EQUALS, 1), (SYMBOL + value, 1)]
        return question_answer(place_L, question, [(SYMBOL + symbol_L[at], 1)])

    return generated(
        "solve_equation", line, lambda n: n + 3, symbols=modulus + 6, padding=padding, least=3,
        chance=1 / modulus,
    )  # fmt: skip


def expression(
    key: jax.Array, n: jax.Array, place_L: jax.Array, modulus: int, times: bool
) -> tuple[jax.Array, jax.Array]:
    """The symbols of a random expression of n tokens, int32 [L], and its value.

    An expression inside it is known by the place where it begins. From left to right each place
    hands lengths to the expressions inside; from right to left each gets its value from theirs.
    """
    digit_key, sign_key, split_key = jax.random.split(key, 3)
    digit_L = draw(digit_key, place_L, modulus)
    sign_L = jnp.asarray([PLUS, MINUS, TIMES], jnp.int32)[draw(sign_key, place_L, 2 + times)]
    split_L = draw(split_key, place_L, 2**30)
    end = len(place_L)

    def write(x_L, at, value, when):
        return x_L.at[jnp.where(when, at, end)].set(value, mode="drop")

    def divide(state, inputs):
        length_L, symbol_L = state
        at, digit, sign, split = inputs
        length = length_L[at]
        two = length >= 5
        left = jnp.where(two, 1 + split % jnp.maximum(length - 4, 1), length - 2)
        left = jnp.where(length == 2, 1, left)
        first = jnp.where(length == 2, MINUS, OPEN) + modulus
        first = jnp.where(length == 1, digit, first)
        symbol_L = write(symbol_L, at, first, length > 0)
        symbol_L = write(symbol_L, at + 1 + left, modulus + sign, two)
        symbol_L = write(symbol_L, at + length - 1, modulus + CLOSE, length > 2)
        length_L = write(length_L, at + 1, left, length > 1)
        length_L = write(length_L, at + 2 + left, length - left - 3, two)
        return (length_L, symbol_L), (length, left)

    def evaluate(value_L, inputs):
        at, digit, sign, length, left = inputs
        a, b = value_L[jnp.minimum(at + 1, end - 1)], value_L[jnp.minimum(at + 2 + left, end - 1)]
        both = jnp.where(sign == PLUS, a + b, jnp.where(sign == MINUS, a - b, a * b))
        short = jnp.where(length == 1, digit, jnp.where(length == 2, -a, a))
        return value_L.at[at].set(jnp.where(length >= 5, both, short) % modulus), None

    start = jnp.zeros_like(place_L).at[0].set(n), jnp.zeros_like(place_L)
    (_, symbol_L), (length_L, left_L) = jax.lax.scan(
        divide, start, (place_L, digit_L, sign_L, split_L)
    )
    inputs = place_L, digit_L, sign_L, length_L, left_L
    value_L, _ = jax.lax.scan(evaluate, jnp.zeros_like(place_L), inputs, reverse=True)
    return symbol_L, value_L[0]
