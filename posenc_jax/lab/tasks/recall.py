"""Associative recall: a task that asks for a value shown before.

    task                line                                     reads
    associative_recall  BOS k1 v1 .. kn vn SEP ki  vi            2n + 3

vi is the answer and counts; "reads" is the number of tokens the model is given. The first symbols
are keys, the ones after them values.
"""

import jax
import jax.numpy as jnp

from posenc_jax.lab.tasks.task import (
    BOS,
    SEP,
    SYMBOL,
    Padding,
    Task,
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
        order = _shuffled(order_key, keys)
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
    )


def _shuffled(key: jax.Array, count: int) -> jax.Array:
    """0 .. count - 1 in random order, int32.

    Each number is in the low bits of a random one, which leaves 20 random bits or more to sort by:
    on a CPU a plain sort is four times faster than an argsort.
    """
    low = jnp.uint32((1 << (count - 1).bit_length()) - 1)
    number = jnp.arange(count, dtype=jnp.uint32)
    return (jnp.sort(jax.random.bits(key, (count,)) & ~low | number) & low).astype(jnp.int32)
