"""Tasks that retrieve one item of a long line: by a mark, by its key, or by its place.

    task               line                                                          reads
    marker_position    BOS x1 .. mark .. xn SEP  the place of the mark, EOS          up to n + c + 2
    passkey            BOS filler, mark, digits, filler SEP  digits EOS              n + 2d + 3
    needle             BOS noise, k1 v1, noise, k2 v2, .. SEP ki  vi                 n + 2m + 3
    indirect_indexing  BOS x1 .. xn SEP xi offset  x(i + offset), for q queries      n + 3q + 1

"reads" is the number of tokens that the model is given; c is the number of digits of n, d that of
the passkey, and m the number of needles. The answers, which count in the loss, come last. The mark
is EXTRA.
"""

import jax
import jax.numpy as jnp

from posenc_jax.lab.tasks import bag_of_words
from posenc_jax.lab.tasks.catalog import register
from posenc_jax.lab.tasks.state_tracking import decimal, digit_count
from posenc_jax.lab.tasks.task import (
    EOS,
    EXTRA,
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

FILLER = 16  # symbols of the sentence that a passkey is hidden in


@register()
def marker_position(alphabet: int = 16, padding: Padding = "right") -> Task:
    """The place, counted from 1, of a mark that replaces one of n random symbols, in decimal
    digits.

    Symbols are the 10 digits, which only the answer has, then the alphabet.
    """
    check_symbols("alphabet", alphabet)

    def line(key, n, place_L):
        symbol_key, mark_key = jax.random.split(key)
        at = jax.random.randint(mark_key, (), 0, n)
        symbol_L = SYMBOL + 10 + draw(symbol_key, place_L, alphabet)
        digit_L, digits = decimal(at + 1, place_L)
        question = [(jnp.where(place_L == at, EXTRA, symbol_L), n)]
        return question_answer(place_L, question, [(SYMBOL + digit_L, digits), (EOS, 1)])

    length = lambda n: n + 3 + digit_count(n)
    return generated("marker_position", line, length, symbols=10 + alphabet, padding=padding)


@register()
def passkey(digits: int = 5, padding: Padding = "right") -> Task:
    """The digits that stand once, after a mark, in a repetitive text (arXiv 2305.16300).

    The filler of n tokens repeats the same 16 symbols, as the sentences of Mohtashami & Jaggi 2023
    do; theirs names the key, a number from 1 to 50,000, twice.
    """
    check_least("digits", digits, 1)

    def line(key, n, place_L):
        digit_key, place_key = jax.random.split(key)
        before = jax.random.randint(place_key, (), 0, n + 1)
        digit_L = SYMBOL + draw(digit_key, place_L, 10)
        filler_L = SYMBOL + 10 + place_L % FILLER
        after_L = SYMBOL + 10 + (before + place_L) % FILLER
        question = [(filler_L, before), (EXTRA, 1), (digit_L, digits), (after_L, n - before)]
        return question_answer(place_L, question, [(digit_L, digits), (EOS, 1)])

    length, bag = lambda n: n + 2 * digits + 4, bag_of_words.unused(10)
    return generated("passkey", line, length, symbols=10 + FILLER, padding=padding, bag=bag)


@register()
def needle(
    needles: int = 4, keys: int = 64, values: int = 16, noise: int = 64, padding: Padding = "right"
) -> Task:
    """The value of one of several keys, which stand at random places among n random symbols.

    As in the retrieval with several keys of RULER (Hsieh et al. 2024, arXiv 2404.06654). Symbols
    are the keys, then the values, then the noise.

    needles: pairs of a key and its value; the keys are different.
    """
    check_symbols("keys", keys, most=4096)
    check_symbols("values", values)
    check_symbols("noise", noise)
    check_symbols("needles", needles, most=keys)

    def line(key, n, place_L):
        order_key, value_key, noise_key, place_key, chosen_key = jax.random.split(key, 5)
        index_M = jnp.arange(needles, dtype=jnp.int32)
        key_M = SYMBOL + shuffled(order_key, keys)[:needles]
        value_M = SYMBOL + keys + draw(value_key, index_M, values)
        before_M = jnp.sort(draw(place_key, index_M, 2**30) % (n + 1))  # noise before each needle
        start_M = before_M + 2 * index_M
        symbol_L = SYMBOL + keys + values + draw(noise_key, place_L, noise)
        for tokens_M, offset in ((key_M, 0), (value_M, 1)):
            symbol_L = symbol_L.at[start_M + offset].set(tokens_M, mode="drop")
        chosen = jax.random.randint(chosen_key, (), 0, needles)
        question = [(symbol_L, n + 2 * needles)]
        pair = [(key_M[chosen], 1), (value_M[chosen], 1)]
        token_L, _ = question_answer(place_L, question, pair)
        return token_L, place_L > n + 2 * needles + 2

    return generated(
        "needle", line, lambda n: n + 2 * needles + 4, symbols=keys + values + noise,
        padding=padding, bag=bag_of_words.shown(values, first=keys),
    )  # fmt: skip


@register()
def indirect_indexing(
    alphabet: int = 256, reach: int = 8, queries: int = 1, padding: Padding = "right"
) -> Task:
    """The symbol at an offset from a named one, among n different symbols (arXiv 2509.10534).

    As in Gopalakrishnan et al. 2025 the offset, to the left or to the right, is one token.

    alphabet: number of symbols, and so the largest size.
    reach: the largest offset.
    queries: symbols that are asked for, one after the other.
    """
    check_symbols("alphabet", alphabet, most=4096)
    check_least("reach", reach, 1)
    check_least("queries", queries, 1)

    def line(key, n, place_L):
        order_key, target_key, offset_key = jax.random.split(key, 3)
        symbol_K = SYMBOL + shuffled(order_key, alphabet)
        target_Q = jax.random.randint(target_key, (queries,), 0, n)
        # Sources within reach of the target, without itself.
        first_Q = jnp.maximum(target_Q - reach, 0)
        others_Q = jnp.minimum(target_Q + reach, n - 1) - first_Q
        source_Q = first_Q + jax.random.randint(offset_key, (queries,), 0, others_Q)
        source_Q = jnp.where(source_Q >= target_Q, source_Q + 1, source_Q)
        offset_Q = target_Q - source_Q
        number_Q = jnp.where(offset_Q < 0, offset_Q + reach, offset_Q + reach - 1)  # 0 is left out
        query = [symbol_K[source_Q], SYMBOL + alphabet + number_Q, symbol_K[target_Q]]
        asked = [(jnp.stack(query, axis=1).ravel(), 3 * queries)]
        token_L, is_asked_L = question_answer(place_L, [(symbol_K, n)], asked)
        return token_L, is_asked_L & ((place_L - n - 2) % 3 == 2)

    def once(token, question_V, answer_V):
        del token, answer_V
        return SYMBOL + jnp.argmax(question_V[SYMBOL : SYMBOL + alphabet] == 1)

    return generated(
        "indirect_indexing", line, lambda n: n + 3 * queries + 2, symbols=alphabet + 2 * reach,
        padding=padding, least=2, most=alphabet, bag={"a symbol shown once": once},
    )  # fmt: skip
