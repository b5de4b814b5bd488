"""Tasks whose answer was shown earlier in the line.

    task                line                                                           reads
    associative_recall  BOS k1 v1 .. kn vn SEP ki  vi                                  2n + 3
    lookup              BOS k=v k=v k? v .., n tokens                                  n
    periodic            BOS x1 .. xn with x(i) = x(i - period)                         n

"reads" is the number of tokens that the model is given. The answers, which count in the loss, are
vi, the v after each k?, and all symbols after the first period. In associative_recall keys are the
first symbols of the vocabulary, values the ones after them. Lookups and periodic patterns have no
end, so there is no EOS.
"""

import jax
import jax.numpy as jnp

from posenc_jax.lab.tasks import bag_of_words
from posenc_jax.lab.tasks.catalog import register
from posenc_jax.lab.tasks.task import (
    BOS,
    PAD,
    SEP,
    SYMBOL,
    Padding,
    Task,
    check_least,
    check_symbols,
    draw,
    generated,
)
from posenc_jax.lab.tasks.translation import without_gaps


@register()
def associative_recall(keys: int = 256, values: int = 16, padding: Padding = "right") -> Task:
    """Predict the value that follows one of n different keys (Ba et al. 2016, arXiv 1610.06258).

    keys, values: the number of each; a problem has at most `keys` pairs. Values may repeat.
    """
    check_symbols("keys", keys, most=4096)
    check_symbols("values", values)

    def line(key, n, place_L):
        order_key, value_key, query_key = jax.random.split(key, 3)
        order = shuffled(order_key, keys)
        queried = jax.random.randint(query_key, (), 0, n)
        pair_L = jnp.where(place_L <= 2 * n, (place_L - 1) // 2, queried)
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
        bag=bag_of_words.shown(values, first=keys),
    )


@register(unit="tokens")
def lookup(keys: int = 16, values: int = 8, padding: Padding = "right") -> Task:
    """Recall the value that was last given to a key, near or far; a size is the number of tokens.

    The line has assignments "k = v", one token each, and queries "k ?" with their answer v, two
    tokens. A key is asked for once after each assignment. Which of the keys that wait for it is
    drawn so that the logarithm of its rank by age is nearly uniform. At most three of four keys
    wait, mostly nearly as many, so that some answers are far.

    keys, values: the number of each.
    """
    check_symbols("keys", keys, most=1024)
    check_symbols("values", values, most=1024)
    waiting = max(1, 3 * keys // 4)

    def line(key, n, place_L):
        del n
        order_key, value_key, new_key, age_key = jax.random.split(key, 4)
        new_L, value_L = draw(new_key, place_L, 4) > 0, draw(value_key, place_L, values)
        share_L = draw(age_key, place_L, 2**16).astype(jnp.float32) / 2**16
        after_K = jnp.arange(keys, dtype=jnp.int32)

        def step(state, inputs):
            """`order_K`: first `count` keys that wait, the newest first, then the others."""
            order_K, count, value_K = state
            new, value, share = inputs
            new = (new & (count < waiting)) | (count == 0)
            age = jnp.expm1(share * jnp.log1p(count.astype(jnp.float32))).astype(jnp.int32)
            at = jnp.where(new, count, age)
            chosen = order_K[at]
            others_K = jnp.where(after_K < at, order_K, jnp.roll(order_K, -1))[:-1]
            order_K = jnp.where(new, jnp.append(chosen, others_K), jnp.append(others_K, chosen))
            value_K = value_K.at[chosen].set(jnp.where(new, value, value_K[chosen]))
            count = count + jnp.where(new, 1, -1)
            return (order_K, count, value_K), (chosen, value_K[chosen], new)

        start = shuffled(order_key, keys), jnp.zeros((), jnp.int32), jnp.zeros_like(after_K)
        _, (key_L, value_L, new_L) = jax.lax.scan(step, start, (new_L, value_L, share_L))
        query = SYMBOL + keys * values
        answer_L = jnp.where(new_L, PAD, query + keys + value_L)
        shown_L = jnp.where(new_L, SYMBOL + key_L * values + value_L, query + key_L)
        token_G, _ = without_gaps(jnp.stack([shown_L, answer_L], axis=1).ravel())
        token_L = jnp.where(place_L == 0, BOS, token_G[jnp.maximum(place_L - 1, 0)])
        return token_L, token_L >= query + keys

    task = generated(
        "lookup", line, lambda n: n + 1, symbols=keys * values + keys + values, padding=padding,
        least=4, chance=1 / values,
    )  # fmt: skip
    return task._replace(metric="token_accuracy")


def lookup_distance(tokens_BT: jax.Array, keys: int, values: int) -> jax.Array:
    """The distance in tokens from each query of `lookup` back to the last assignment of its key,
    [B, T]; 0 elsewhere.
    """
    query = SYMBOL + keys * values
    assigned_BT = jnp.where((tokens_BT >= SYMBOL) & (tokens_BT < query), tokens_BT - SYMBOL, -1)
    assigned_BT = jnp.where(assigned_BT < 0, -1, assigned_BT // values)
    queried_BT = jnp.where((tokens_BT >= query) & (tokens_BT < query + keys), tokens_BT - query, -2)
    place_T = jnp.arange(tokens_BT.shape[1], dtype=jnp.int32)
    before_QK = place_T[:, None] > place_T[None]
    same_BQK = (queried_BT[:, :, None] == assigned_BT[:, None]) & before_QK[None]
    last_BT = jnp.where(same_BQK, place_T[None, None], -1).max(axis=-1)
    return jnp.where(last_BT < 0, 0, place_T[None] - last_BT)


@register()
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
    """A random permutation of 0 .. count - 1, int32.

    Sorts random numbers whose low bits are the result; 20 or more bits are random. On a CPU a plain
    sort is four times faster than an argsort.
    """
    low = jnp.uint32((1 << (count - 1).bit_length()) - 1)
    number = jnp.arange(count, dtype=jnp.uint32)
    return (jnp.sort(jax.random.bits(key, (count,)) & ~low | number) & low).astype(jnp.int32)
