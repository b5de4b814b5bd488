"""Tasks whose answer was shown earlier in the line.

    task                line                                                           reads
    associative_recall  BOS k1 v1 .. kn vn SEP ki  vi, for q queries                   2n + 2q + 1
    recall_order        BOS k1 v1 .. kn vn SEP first k  v, last k  v ..                2n + 6k + 1
    lookup              BOS k=v k=v k? v .., n tokens                                  n
    periodic            BOS x1 .. xn with x(i) = x(i - period)                         n
    delay               BOS b1 a1 .. bn an with a(t) = b(t - lag)                      2n

"reads" is the number of tokens that the model is given; k is the number of keys. The answers, which
count in the loss, are the v after each ki, after each key that follows "first" or "last" and after
each k?, all symbols after the first period, and each a(t) whose b is in the line. Keys are the
first symbols of the vocabulary, values the ones after them. No line has an end, so there is no EOS.
"""

from typing import Literal

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
    question_answer,
    shuffled,
)
from posenc_jax.lab.tasks.translation import without_gaps


@register()
def associative_recall(
    keys: int = 256, values: int = 16, queries: int = 1, padding: Padding = "right"
) -> Task:
    """Predict the value that follows one of n different keys (Ba et al. 2016, arXiv 1610.06258).

    keys, values: the number of each; a problem has at most `keys` pairs. Values may repeat.
    queries: keys that are asked for, one after the other; a key may be asked for again.
    """
    check_symbols("keys", keys, most=4096)
    check_symbols("values", values)
    check_least("queries", queries, 1)

    def line(key, n, place_L):
        order_key, value_key, query_key = jax.random.split(key, 3)
        order = shuffled(order_key, keys)
        queried_Q = jax.random.randint(query_key, (queries,), 0, n)
        query_L = jnp.clip(place_L // 2 - n - 1, 0, queries - 1)
        pair_L = jnp.where(place_L <= 2 * n, (place_L - 1) // 2, queried_Q[query_L])
        key_L = order[jnp.clip(pair_L, 0, keys - 1)]
        value_L = keys + draw(value_key, pair_L, values)
        asks_L = (place_L > 2 * n + 1) & (place_L % 2 == 0)
        is_key_L = jnp.where(place_L <= 2 * n, place_L % 2 == 1, asks_L)
        token_L = SYMBOL + jnp.where(is_key_L, key_L, value_L)
        token_L = jnp.where(place_L == 0, BOS, token_L)
        answer_L = (place_L > 2 * n + 1) & ~asks_L
        return jnp.where(place_L == 2 * n + 1, SEP, token_L), answer_L

    return generated(
        "associative_recall",
        line,
        lambda n: 2 * (n + queries) + 2,
        symbols=keys + values,
        padding=padding,
        most=keys,
        chance=1 / values,
        bag=bag_of_words.shown(values, first=keys),
    )


@register()
def recall_order(
    keys: int = 4,
    values: int = 16,
    answers: Literal["both", "first", "last"] = "both",
    padding: Padding = "right",
) -> Task:
    """Predict the value that followed a key first, or last, among n pairs with few keys.

    The questions of "first" and "last" are those of Jobanputra et al. 2025, arXiv 2505.21785. A
    line asks for each key in both ways, in random order. Every key occurs; a size is at least their
    number. Symbols are the keys, the values, then the two modes, first and last.

    answers: which answers count; the lines are the same.
    """
    check_symbols("keys", keys, most=1024)
    check_symbols("values", values)
    first, last = keys + values, keys + values + 1
    counted = {"both": (first, last), "first": (first,), "last": (last,)}[answers]

    def line(key, n, place_L):
        key_key, place_key, value_key, order_key = jax.random.split(key, 4)
        number_L = jnp.where(place_L < n, draw(place_key, place_L, 2**30), 2**30)
        _, held_K = jax.lax.top_k(-number_L, keys)  # distinct pairs, one for each key
        index_K = jnp.arange(keys, dtype=jnp.int32)
        key_L = draw(key_key, place_L, keys).at[held_K].set(index_K)
        is_key_KL = (key_L[None] == index_K[:, None]) & (place_L < n)[None]
        first_K = is_key_KL.argmax(axis=1)
        last_K = jnp.where(is_key_KL, place_L[None], 0).max(axis=1)
        pair_L = jnp.stack([key_L, keys + draw(value_key, place_L, values)], axis=1).ravel()
        pair_Q = jnp.concatenate([first_K, last_K]).astype(jnp.int32)
        mode_Q = jnp.repeat(jnp.asarray([first, last], jnp.int32), keys)
        value_Q = keys + draw(value_key, pair_Q, values)
        query_Q3 = jnp.stack([mode_Q, jnp.tile(index_K, 2), value_Q], axis=1)
        query_R = query_Q3[shuffled(order_key, 2 * keys)].ravel()
        parts = [(SYMBOL + pair_L, 2 * n)], [(SYMBOL + query_R, 6 * keys)]
        token_L, is_answer_L = question_answer(place_L, *parts)
        is_value_L = is_answer_L & ((place_L - 2 * n - 2) % 3 == 2)
        mode_L = jnp.roll(token_L, 2) - SYMBOL
        return token_L, is_value_L & jnp.isin(mode_L, jnp.asarray(counted))

    return generated(
        "recall_order", line, lambda n: 2 * n + 2 + 6 * keys, symbols=keys + values + 2,
        padding=padding, least=keys, chance=1 / values, bag=bag_of_words.shown(values, first=keys),
    )  # fmt: skip


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


@register(unit="pairs")
def delay(lag: int = 8, alphabet: int = 2, padding: Padding = "right") -> Task:
    """Predict the symbol that stood `lag` pairs before, at an exact distance of 2 lag + 1 tokens.

    Every pair is a random symbol b(t), then a(t) = b(t - lag); a size is the number of pairs. The
    symbols before the line are random too, and answers that would be one of them do not count. With
    few symbols what stands before an answer does not tell where it was shown.
    """
    check_least("lag", lag, 1)
    check_symbols("alphabet", alphabet)

    def line(key, n, place_L):
        del n
        pair_L, is_answer_L = jnp.maximum(place_L - 1, 0) // 2, place_L % 2 == 0
        symbol_L = draw(key, jnp.where(is_answer_L, pair_L, pair_L + lag), alphabet)
        token_L = jnp.where(place_L == 0, BOS, SYMBOL + symbol_L)
        return token_L, is_answer_L & (pair_L >= lag) & (place_L > 0)

    return generated(
        "delay", line, lambda n: 2 * n + 1, symbols=alphabet, padding=padding, least=lag + 1
    )  # fmt: skip
