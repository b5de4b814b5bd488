"""Tasks whose answer consists of symbols of the question.

    task                      line (x1 .. xn are the problem's symbols, n its size)      reads
    copy                      BOS x1 .. xn SEP  x1 .. xn EOS                             2n + 2
    reverse                   BOS x1 .. xn SEP  xn .. x1 EOS                             2n + 2
    sort                      BOS x1 .. xn SEP  x1 .. xn in order, EOS                   2n + 2
    missing_duplicate_string  BOS x1 .. xn x1 .. xn, one of them a hole, SEP  what fits  2n + 2

The tokens after SEP are the answer, which counts in the loss. "reads" is the number of tokens that
the model is given.
"""

from typing import Literal

import jax
import jax.numpy as jnp

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
)


def copy(
    symbols: Literal["random", "repeated"] = "random",
    alphabet: int = 100,
    padding: Padding = "right",
) -> Task:
    """Repeat the symbols (Kazemnejad et al. 2023, arXiv 2305.19466).

    symbols: "random": each is drawn from the alphabet. "repeated": one is drawn and repeated n
      times, so the model only has to predict the length.
    """
    return _rearranged("copy", lambda i, n: i, symbols, alphabet, padding)


def reverse(
    symbols: Literal["random", "repeated"] = "random",
    alphabet: int = 100,
    padding: Padding = "right",
) -> Task:
    """Repeat the symbols backwards (Kazemnejad et al. 2023, arXiv 2305.19466); see `copy`."""
    return _rearranged("reverse", lambda i, n: n - 1 - i, symbols, alphabet, padding)


def sort(alphabet: int = 50, padding: Padding = "right") -> Task:
    """Repeat the symbols in sorted order (Kazemnejad et al. 2023, arXiv 2305.19466)."""
    check_symbols("alphabet", alphabet)

    def line(key, n, place_L):
        shown_L = draw(key, place_L, alphabet)
        sorted_L = jnp.sort(jnp.where(place_L < n, shown_L, alphabet))
        return _question_answer(n, place_L, shown_L[place_L - 1], sorted_L[place_L - n - 2])

    return generated("sort", line, lambda n: 2 * n + 3, symbols=alphabet, padding=padding)


def missing_duplicate_string(padding: Padding = "right") -> Task:
    """Fill the hole in a binary string shown twice (Deletang et al. 2022, arXiv 2207.02098).

    The paper's length counts both copies, so it is 2n. The paper also has odd lengths, with one
    symbol of padding; they do not exist here.
    """

    def line(key, n, place_L):
        string_key, hole_key = jax.random.split(key)
        hole = jax.random.randint(hole_key, (), 0, 2 * n)
        asked = place_L == 2 * n + 2
        index_L = jnp.where(asked, hole, place_L - 1)
        token_L = SYMBOL + draw(string_key, index_L % n, 2)
        token_L = jnp.where(place_L - 1 == hole, EXTRA, token_L)
        token_L = jnp.where(place_L == 0, BOS, token_L)
        return jnp.where(place_L == 2 * n + 1, SEP, token_L), asked

    name = "missing_duplicate_string"
    return generated(name, line, lambda n: 2 * n + 3, symbols=2, padding=padding, chance=0.5)


def _rearranged(name, source, symbols, alphabet, padding) -> Task:
    """A task in which symbol i of the answer is symbol source(i, n) of the question."""
    check_symbols("alphabet", alphabet)

    def line(key, n, place_L):
        answer_L = source(place_L - n - 2, n)
        index_L = jnp.where(place_L <= n, place_L - 1, answer_L)
        index_L = jnp.zeros_like(index_L) if symbols == "repeated" else index_L
        symbol_L = draw(key, index_L, alphabet)
        return _question_answer(n, place_L, symbol_L, symbol_L)

    return generated(name, line, lambda n: 2 * n + 3, symbols=alphabet, padding=padding)


def _question_answer(n, place_L, shown_L, answer_L):
    """The line BOS, n symbols, SEP, n symbols of the answer, EOS, and where its answer is."""
    token_L = SYMBOL + jnp.where(place_L <= n, shown_L, answer_L)
    for place, token in ((0, BOS), (n + 1, SEP), (2 * n + 2, EOS)):
        token_L = jnp.where(place_L == place, token, token_L)
    return token_L, place_L > n + 1
