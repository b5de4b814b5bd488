"""Tasks whose answer was shown earlier in the line.

    task                line                                                           reads
    associative_recall  BOS k1 v1 .. kn vn SEP ki  vi                                  2n + 3
    lookup              BOS k v k v .. , n tokens; every key is shown twice            n
    periodic            BOS x1 .. xn with x(i) = x(i - period)                         n

"reads" is the number of tokens that the model is given. The answers, which count in the loss, are
vi, the value after the second time that a key is shown, and all symbols after the first period.
Keys are the first symbols of the vocabulary, values the ones after them.
A periodic pattern and a lookup have no end, so there is no EOS.
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
from posenc_jax.options import FieldError


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


def lookup(keys: int = 128, values: int = 8, waiting: int = 16, padding: Padding = "right") -> Task:
    """Recall the value of a key when it is shown for the second time, near or far; a size is the
    number of tokens.

    Each pair is a new key with its value, or one of the keys that were shown once, with the same
    value. Which one is drawn so that the logarithm of its age among them is nearly uniform.

    keys, values: the number of each.
    waiting: the most keys that were shown once and not yet a second time.
    """
    check_symbols("values", values)
    check_least("waiting", waiting, 1)
    if keys <= waiting:
        raise FieldError("task.keys", f"{keys} is too small; more than waiting, {waiting}")
    check_symbols("keys", keys, most=4096)

    def line(key, n, place_L):
        del n
        order_key, value_key, new_key, age_key = jax.random.split(key, 4)
        pair_P = place_L[: len(place_L) // 2 + 1]
        new_P = draw(new_key, pair_P, 2) > 0
        share_P = draw(age_key, pair_P, 2**16).astype(jnp.float32) / 2**16

        def step(state, given):
            """`waiting_W`: numbers of keys that were shown once, the newest first; -1: none."""
            waiting_W, number = state
            new, share = given
            count = (waiting_W >= 0).sum()
            new = (new & (count < waiting)) | (count == 0)
            age = (jnp.exp(share * jnp.log(count + 1.0)) - 1).astype(jnp.int32)
            shown = jnp.where(new, number, waiting_W[age])
            pushed_W = jnp.append(number, waiting_W[:-1])
            later_W = jnp.arange(waiting) >= age
            pulled_W = jnp.where(later_W, jnp.append(waiting_W[1:], -1), waiting_W)
            state = jnp.where(new, pushed_W, pulled_W), number + new.astype(jnp.int32)
            return state, (shown, new)

        start = jnp.full(waiting, -1, jnp.int32), jnp.zeros((), jnp.int32)
        _, (number_P, first_P) = jax.lax.scan(step, start, (new_P, share_P))
        key_P, value_P = shuffled(order_key, keys)[number_P], draw(value_key, number_P, values)
        pair_L = jnp.maximum(place_L - 1, 0) // 2
        is_value_L = (place_L % 2 == 0) & (place_L > 0)
        token_L = SYMBOL + jnp.where(is_value_L, keys + value_P[pair_L], key_P[pair_L])
        return jnp.where(place_L == 0, BOS, token_L), is_value_L & ~first_P[pair_L]

    task = generated(
        "lookup", line, lambda n: n + 1, symbols=keys + values, padding=padding, least=8,
        most=2 * (2 * keys - waiting), chance=1 / values, bag=bags.shown(values, first=keys),
    )  # fmt: skip
    return task._replace(metric="token_accuracy")


def distance(tokens_BT: jax.Array) -> jax.Array:
    """How many tokens back each token was shown last, [B, T]; 0 if it was not."""
    place_T = jnp.arange(tokens_BT.shape[1], dtype=jnp.int32)
    same_BQK = (tokens_BT[:, :, None] == tokens_BT[:, None]) & (place_T[:, None] > place_T)[None]
    last_BT = jnp.where(same_BQK, place_T[None, None], -1).max(axis=-1)
    return jnp.where(last_BT < 0, 0, place_T[None] - last_BT)


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
