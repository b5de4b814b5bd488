"""Tasks whose answer was shown earlier in the line.

    task                line                                                           reads
    associative_recall  BOS k1 v1 .. kn vn SEP ki  vi                                  2n + 3
    periodic            BOS x1 .. xn with x(i) = x(i - period)                         n

"reads" is the number of tokens that the model is given. The answers, which count in the loss, are
vi, and all symbols after the first period. Keys are the first symbols of the vocabulary, values the
ones after them. A periodic pattern has no end, so there is no EOS.
"""

import jax
import jax.numpy as jnp

from posenc_jax.lab.tasks import bags
from posenc_jax.lab.tasks.task import (
    BOS,
    SEP,
    SYMBOL,
    Padding,
    Task,
    check_least,
    check_symbols,
    draw,
    generated,
)


def associative_recall(keys: int = 256, values: int = 16, padding: Padding = "right") -> Task:
    """Predict the value that follows one of n different keys (Ba et al. 2016, arXiv 1610.06258).

    keys, values: the number of each; a problem has at most `keys` pairs. Values may repeat.
    """
    check_symbols("keys", keys, most=4096)
    check_symbols("values", values)

    def line(key, n, place_L):
        order_key, value_key, query_key = jax.random.split(key, 3)
        order = shuffled(order_key, keys)
        asked = jax.random.randint(query_key, (), 0, n)
        pair_L = jnp.where(place_L <= 2 * n, (place_L - 1) // 2, asked)
        key_L = order[jnp.clip(pair_L, 0, keys - 1)]
        value_L = keys + draw(value_key, pair_L, values)
        is_key_L = jnp.where(place_L <= 2 * n, place_L % 2 == 1, place_L == 2 * n + 2)
        token_L = SYMBOL + jnp.where(is_key_L, key_L, value_L)
        token_L = jnp.where(place_L == 0, BOS, token_L)
        return jnp.where(place_L == 2 * n + 1, SEP, token_L), place_L > 2 * n + 2

    return generated(
        "associative_recall",
        line,
        lambda n: 2 * n + 4,
        symbols=keys + values,
        padding=padding,
        most=keys,
        chance=1 / values,
        bag=bags.shown(values, first=keys),
    )


def periodic(period: int = 8, alphabet: int = 16, padding: Padding = "right") -> Task:
    """Continue a random pattern of `period` symbols; the size is the length of the line."""
    check_least("period", period, 1)
    check_symbols("alphabet", alphabet)

    def line(key, n, place_L):
        del n
        symbol_L = SYMBOL + draw(key, (place_L - 1) % period, alphabet)
        return jnp.where(place_L == 0, BOS, symbol_L), place_L > period

    def unused(token, question_V, answer_V):
        del token
        begun = jnp.sum(answer_V) // period + 1  # periods of the answer
        return SYMBOL + jnp.argmax((begun * question_V - answer_V)[SYMBOL:])

    return generated(
        "periodic", line, lambda n: n + 1, symbols=alphabet, padding=padding, least=period + 1,
        bag={"most frequent symbol not yet used in this period": unused},
    )  # fmt: skip


def shuffled(key: jax.Array, count: int) -> jax.Array:
    """0 .. count - 1 in random order, int32.

    Sorts random numbers whose low bits are the result; 20 or more bits are random. On a CPU a plain
    sort is four times faster than an argsort.
    """
    low = jnp.uint32((1 << (count - 1).bit_length()) - 1)
    number = jnp.arange(count, dtype=jnp.uint32)
    return (jnp.sort(jax.random.bits(key, (count,)) & ~low | number) & low).astype(jnp.int32)
