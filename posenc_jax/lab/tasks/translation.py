"""Translation between two languages made by a grammar: with other words, in another order.

A sentence of n clauses has n + 1 noun phrases and n verbs. Clause k + 1 is the object of clause k,
so clauses are nested; the object of the last one is a noun phrase.

    source, verb last:  N1 N2 .. Nn Nobject Vn .. V2 V1      noun adjective
    target, verb second: N1 V1 that N2 V2 that .. Nn Vn Nobject   adjective noun

Each language has its own words. Nouns are singular or plural. A verb of the target agrees with its
subject, one of the source does not. Half of the nouns have an adjective, so a word's place depends
on the words before it.

    task         line                                     reads (at most)
    translation  BOS source SEP  target EOS               7n + 5
"""

from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp

from posenc_jax.lab.tasks.catalog import register
from posenc_jax.lab.tasks.task import (
    EOS,
    EXTRA,
    PAD,
    SYMBOL,
    Padding,
    Rule,
    Task,
    check_symbols,
    draw,
    generated,
    question_answer,
)

THAT = EXTRA


class Language(NamedTuple):
    """The ids of a language's first noun, adjective and verb, and the first id after its words.

    Noun i is `noun + 2 * i`, and one more in the plural; so are verbs of a language that agrees.
    """

    noun: int
    adjective: int
    verb: int
    end: int


def languages(nouns: int, adjectives: int, verbs: int) -> tuple[Language, Language]:
    """The source and the target language."""

    def language(start: int, forms: int) -> Language:
        adjective = start + 2 * nouns
        verb = adjective + adjectives
        return Language(start, adjective, verb, verb + forms * verbs)

    source = language(SYMBOL, 1)
    return source, language(source.end, 2)


@register(unit="clauses")
def translation(
    nouns: int = 6, adjectives: int = 4, verbs: int = 6, padding: Padding = "right"
) -> Task:
    """Translate a sentence of nested clauses; a size is the number of clauses.

    nouns, adjectives, verbs: words of each kind in a language; a noun's plural is one word more.
    """
    for option, count in {"nouns": nouns, "adjectives": adjectives, "verbs": verbs}.items():
        check_symbols(option, count, 2**16)
    source, target = languages(nouns, adjectives, verbs)

    def line(key, n, place_L):
        noun_key, adjective_key, verb_key = jax.random.split(key, 3)
        noun_L = draw(noun_key, place_L, 2 * nouns)
        adjective_L = draw(adjective_key, place_L, 2 * adjectives)
        verb_L = draw(verb_key, place_L, verbs)
        phrase_L, clause_L, bare_L = place_L <= n, place_L < n, adjective_L >= adjectives
        word = lambda token_L, there_L: jnp.where(there_L, token_L, PAD)
        noun = lambda language: word(language.noun + noun_L, phrase_L)
        described = lambda language: word(language.adjective + adjective_L, phrase_L & ~bare_L)
        last_first_L = word(source.verb + verb_L[jnp.maximum(n - 1 - place_L, 0)], clause_L)
        agreeing_L = word(target.verb + 2 * verb_L + noun_L % 2, clause_L)
        that_L = word(jnp.full_like(place_L, THAT), clause_L & (place_L > 0))
        phrases_G = jnp.stack([noun(source), described(source)], axis=1).ravel()
        question = without_gaps(jnp.concatenate([phrases_G, last_first_L]))
        clauses_LG = jnp.stack([that_L, described(target), noun(target), agreeing_L], axis=1)
        return question_answer(place_L, [question], [without_gaps(clauses_LG.ravel()), (EOS, 1)])

    return generated(
        "translation", line, lambda n: 7 * n + 6, symbols=target.end - SYMBOL, padding=padding,
        bag=_bag(source, target),
    )  # fmt: skip


def without_gaps(token_G: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The tokens moved to the front, in order, with all PAD after them, and the number of
    tokens.
    """
    there_G = token_G != PAD
    return token_G[jnp.argsort(~there_G, stable=True)], there_G.sum(dtype=jnp.int32)


def _bag(source: Language, target: Language) -> Mapping[str, Rule]:
    """A rule: the most frequent untranslated word of the kind that the grammar requires next.

    It knows all but the order of equal kinds of words in the source.
    """

    def rule(token, question_V, answer_V):
        noun_V = question_V[source.noun : source.adjective]
        noun_V = noun_V - answer_V[target.noun : target.adjective]
        adjective_V = question_V[source.adjective : source.verb]
        adjective_V = adjective_V - answer_V[target.adjective : target.verb]
        used_V = answer_V[target.verb : target.end].reshape(-1, 2).sum(axis=1)
        verb_V = question_V[source.verb : source.end] - used_V
        noun = target.noun + jnp.argmax(noun_V)
        described = 2 * adjective_V.sum() > noun_V.sum()
        phrase = jnp.where(described, target.adjective + jnp.argmax(adjective_V), noun)
        verb = target.verb + 2 * jnp.argmax(verb_V) + (token - target.noun) % 2
        after_noun = jnp.where(verb_V.any(), verb, EOS)
        after_verb = jnp.where(verb_V.any(), THAT, phrase)
        is_noun = (token >= target.noun) & (token < target.adjective)
        is_adjective = (token >= target.adjective) & (token < target.verb)
        word = jnp.where(token >= target.verb, after_verb, phrase)
        word = jnp.where(is_adjective, noun, word)
        return jnp.where(is_noun, after_noun, word)

    return {"grammar without order": rule}
