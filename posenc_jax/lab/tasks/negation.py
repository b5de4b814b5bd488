"""Reviews whose verdict turns on the place of one word, "not".

A review of size n has 2n clauses: a noun, perhaps an adverb, and an adjective. Half of the
adjectives praise and half blame. One clause has a "not" after its noun, which reverses its
adjective; so the review as a whole is positive if a blame is negated, and negative if a praise is.

    "soup very good, wine not bad, bread good, cake quite bad"   positive
    "soup very good, wine bad, bread not good, cake quite bad"   negative

Both have the same words. Each review has a twin of the same words and the other verdict, made by
exchanging the places of praise and blame, so a bag of words is right on half of them.
"""

import jax
import jax.numpy as jnp

from posenc_jax.lab.tasks.catalog import register
from posenc_jax.lab.tasks.encoder_tasks import labelled
from posenc_jax.lab.tasks.task import BOS, EXTRA, PAD, SYMBOL, Task, check_symbols, draw
from posenc_jax.lab.tasks.translation import without_gaps

NOT = EXTRA


@register(reads="whole", unit="pairs of clauses")
def negation(words: int = 8) -> Task:
    """Say whether a review is positive (1) or negative (0); a size is half its number of clauses.

    words: nouns, adverbs, praising adjectives and blaming adjectives, each so many.
    """
    check_symbols("words", words, 2**16)
    noun, adverb, good, bad = (SYMBOL + i * words for i in range(4))

    def line(key, n, place_T):
        order_key, not_key, adverb_key, *word_keys = jax.random.split(key, 6)
        inside_K = place_T < 2 * n  # one number for each clause
        rank_K = jnp.argsort(
            jnp.argsort(jnp.where(inside_K, draw(order_key, place_T, 2**30), 2**30))
        )
        praise_K = rank_K < n
        negated = jax.random.randint(not_key, (), 0, 2 * n)
        noun_K, adverb_K, adjective_K = (draw(k, place_T, words) for k in word_keys)
        slots = [
            noun + noun_K,
            jnp.where(place_T == negated, NOT, PAD),
            jnp.where(draw(adverb_key, place_T, 2) > 0, adverb + adverb_K, PAD),
            jnp.where(praise_K, good, bad) + adjective_K,
        ]
        slot_KS = jnp.where(inside_K[:, None], jnp.stack(slots, axis=1), PAD)
        token_G, count = without_gaps(slot_KS.ravel())
        token_T = jnp.where(place_T == 0, BOS, token_G[jnp.maximum(place_T - 1, 0)])
        token_T = jnp.where(place_T <= count, token_T, PAD)
        return token_T, 1 - praise_K[negated].astype(jnp.int32)

    return labelled(
        "negation", line, lambda n: 6 * n + 2, symbols=4 * words, baselines={"bag of words": 0.5}
    )
