"""Tasks whose answer consists of symbols of the question.

    task                      line (x1 .. xn are the problem's symbols, n its size)      reads
    copy                      BOS x1 .. xn SEP  x1 .. xn EOS                             2n + 2
    reverse                   BOS x1 .. xn SEP  xn .. x1 EOS                             2n + 2
    duplicate_string          BOS x1 .. xn SEP  x1 .. xn x1 .. xn EOS                    3n + 2
    odds_first                BOS x1 .. xn SEP  x1 x3 x5 .. x2 x4 .. EOS                 2n + 2
    selective_copy            BOS x1 .. xn among bn blanks, SEP  x1 .. xn EOS            2n + bn + 2
    sort, bucket_sort         BOS x1 .. xn SEP  x1 .. xn in order, EOS                   2n + 2
    missing_duplicate_string  BOS x1 .. xn x1 .. xn, one of them a hole, SEP  what fits  2n + 2

The tokens after SEP are the answer, which counts in the loss. "reads" is the number of tokens that
the model is given. The blank is EXTRA.
"""

from typing import Literal

import jax
import jax.numpy as jnp

from posenc_jax.lab.tasks import bag_of_words
from posenc_jax.lab.tasks.catalog import register
from posenc_jax.lab.tasks.task import (
    BOS,
    EOS,
    EXTRA,
    SEP,
    SYMBOL,
    Padding,
    Task,
    check_least,
    check_symbols,
    draw,
    generated,
    question_answer,
    shuffled,
)

Symbols = Literal["random", "repeated", "distinct", "doubled", "changing"]
MOST_DISTINCT = 4096  # an example of distinct symbols shuffles the whole alphabet


@register()
def copy(symbols: Symbols = "random", alphabet: int = 100, padding: Padding = "right") -> Task:
    """Repeat the symbols (Kazemnejad et al. 2023, arXiv 2305.19466).

    symbols: "random": each is drawn from the alphabet. "repeated": one is drawn and repeated n
      times, so the model only has to predict the length. "distinct": no symbol is drawn twice, so
      the symbol before tells which one is next; the alphabet is the largest size. "doubled": each
      symbol that is drawn stands twice in a row. "changing": each differs from the one before.
    """
    return _rearranged("copy", lambda i, n: i, symbols, alphabet, padding)


@register()
def reverse(symbols: Symbols = "random", alphabet: int = 100, padding: Padding = "right") -> Task:
    """Repeat the symbols backwards (Kazemnejad et al. 2023, arXiv 2305.19466).

    symbols: as for `copy`; the paper's reverse has random symbols only.
    """
    return _rearranged("reverse", lambda i, n: n - 1 - i, symbols, alphabet, padding)


@register()
def duplicate_string(alphabet: int = 2, padding: Padding = "right") -> Task:
    """Repeat the symbols twice (Deletang et al. 2022, arXiv 2207.02098).

    Their answer has no end token.
    """
    check_symbols("alphabet", alphabet)

    def line(key, n, place_L):
        symbol_L = SYMBOL + draw(key, place_L, alphabet)
        return question_answer(place_L, [(symbol_L, n)], [(symbol_L, n), (symbol_L, n), (EOS, 1)])

    length, bag = lambda n: 3 * n + 3, bag_of_words.unused(alphabet, times=2)
    name = "duplicate_string"
    return generated(name, line, length, symbols=alphabet, padding=padding, bag=bag)


@register()
def odds_first(alphabet: int = 2, padding: Padding = "right") -> Task:
    """Repeat the symbols of odd places, then those of even places (arXiv 2207.02098).

    Places count from 1, as in the paper's definition. Its code counts from 0, so that its answers
    begin with x2; they have no end token.
    """
    odd = lambda n: (n + 1) // 2
    source = lambda i, n: jnp.where(i < odd(n), 2 * i, 2 * (i - odd(n)) + 1)
    return _rearranged("odds_first", source, "random", alphabet, padding)


@register()
def selective_copy(alphabet: int = 16, blanks: int = 1, padding: Padding = "right") -> Task:
    """Repeat n symbols that stand among blanks (Gu & Dao 2023, arXiv 2312.00752).

    Golovneva et al. 2024, arXiv 2405.18719, train with as many blanks as symbols, and test with
    half and twice as many. Here n grows with the size and the share of blanks stays; in the first
    paper 16 symbols stand among any number of blanks.

    blanks: blanks for each symbol.
    """
    check_symbols("alphabet", alphabet)
    check_least("blanks", blanks, 1)

    def line(key, n, place_L):
        symbol_key, place_key = jax.random.split(key)
        symbol_L = SYMBOL + draw(symbol_key, place_L, alphabet)
        # The n smallest of distinct random numbers are the places of the symbols.
        low = jnp.uint32((1 << (place_L.shape[0] - 1).bit_length()) - 1)
        number_L = draw(place_key, place_L, 2**31).astype(jnp.uint32)
        number_L = (number_L << 1) & ~low | place_L.astype(jnp.uint32)
        number_L = jnp.where(place_L < (1 + blanks) * n, number_L, jnp.uint32(2**32 - 1))
        held_L = number_L <= jnp.sort(number_L)[n - 1]
        shown_L = jnp.where(held_L, symbol_L[jnp.cumsum(held_L, dtype=jnp.int32) - 1], EXTRA)
        return question_answer(place_L, [(shown_L, (1 + blanks) * n)], [(symbol_L, n), (EOS, 1)])

    length, bag = lambda n: (2 + blanks) * n + 3, bag_of_words.unused(alphabet)
    name = "selective_copy"
    return generated(name, line, length, symbols=alphabet, padding=padding, bag=bag)


@register()
def sort(alphabet: int = 50, padding: Padding = "right") -> Task:
    """Repeat the symbols in ascending order (Kazemnejad et al. 2023, arXiv 2305.19466)."""
    return _sorted("sort", alphabet, padding)


@register()
def bucket_sort(alphabet: int = 5, padding: Padding = "right") -> Task:
    """Repeat symbols in ascending order; there are few symbols, each many times (arXiv 2207.02098).

    Their answer has no end token.
    """
    return _sorted("bucket_sort", alphabet, padding)


@register()
def missing_duplicate_string(padding: Padding = "right") -> Task:
    """Fill the hole in a binary string shown twice (Deletang et al. 2022, arXiv 2207.02098).

    The paper's length counts both copies, so it is 2n. The paper also has odd lengths, with one
    symbol of padding; they do not exist here.
    """

    def line(key, n, place_L):
        string_key, hole_key = jax.random.split(key)
        hole = jax.random.randint(hole_key, (), 0, 2 * n)
        is_answer_L = place_L == 2 * n + 2
        index_L = jnp.where(is_answer_L, hole, place_L - 1)
        token_L = SYMBOL + draw(string_key, index_L % n, 2)
        token_L = jnp.where(place_L - 1 == hole, EXTRA, token_L)
        token_L = jnp.where(place_L == 0, BOS, token_L)
        return jnp.where(place_L == 2 * n + 1, SEP, token_L), is_answer_L

    name, length, bag = "missing_duplicate_string", lambda n: 2 * n + 3, {"odd symbol": _odd_symbol}
    return generated(name, line, length, symbols=2, padding=padding, chance=0.5, bag=bag)


def _odd_symbol(token, question_V, answer_V):
    """The symbol that occurs an odd number of times: the one in the hole."""
    del token, answer_V
    return SYMBOL + question_V[SYMBOL + 1] % 2


def _rearranged(name, source, symbols, alphabet, padding) -> Task:
    """A task in which symbol i of the answer is symbol source(i, n) of the question."""
    distinct = symbols == "distinct"
    check_symbols("alphabet", alphabet, **({"most": MOST_DISTINCT} if distinct else {}))

    def line(key, n, place_L):
        if distinct:
            symbol_L = SYMBOL + shuffled(key, alphabet)  # read at indices below n alone
        elif symbols == "changing":
            step_L = jnp.where(place_L == 0, draw(key, place_L, alphabet),
                               1 + draw(key, place_L, alphabet - 1))  # fmt: skip
            symbol_L = SYMBOL + jnp.cumsum(step_L) % alphabet
        else:
            drawn_L = {"repeated": jnp.zeros_like(place_L), "doubled": place_L // 2}
            index_L = drawn_L.get(symbols, place_L)
            symbol_L = SYMBOL + draw(key, index_L, alphabet)
        answer_L = symbol_L[source(place_L, n)]
        return question_answer(place_L, [(symbol_L, n)], [(answer_L, n), (EOS, 1)])

    length, bag = lambda n: 2 * n + 3, bag_of_words.unused(alphabet)
    most = alphabet if distinct else None
    return generated(name, line, length, symbols=alphabet, padding=padding, most=most, bag=bag)


def _sorted(name, alphabet, padding) -> Task:
    """A task whose answer is the symbols in ascending order."""
    check_symbols("alphabet", alphabet)

    def line(key, n, place_L):
        shown_L = SYMBOL + draw(key, place_L, alphabet)
        sorted_L = jnp.sort(jnp.where(place_L < n, shown_L, SYMBOL + alphabet))
        return question_answer(place_L, [(shown_L, n)], [(sorted_L, n), (EOS, 1)])

    length, bag = lambda n: 2 * n + 3, bag_of_words.in_order(alphabet)
    return generated(name, line, length, symbols=alphabet, padding=padding, bag=bag)
