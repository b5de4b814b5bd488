"""Rules that predict the answer of a task without positions, from how often each token occurs.

A rule gets the current token and two causal bags of words, see `task.generated`. A decoder without
positions can compute all of them: its first layer marks the tokens after SEP, its second one counts
each kind apart. Rules are named, so that a page can show which one gave a task's floor.
"""

from collections.abc import Mapping

import jax.numpy as jnp

from posenc_jax.lab.tasks.task import EOS, SYMBOL, Rule


def unused(symbols: int, first: int = 0, times: int = 1) -> Mapping[str, Rule]:
    """A rule: the symbol with the most occurrences in the question that the answer has not used
    yet; then EOS.

    For answers in an order that the bag does not know, this is the best prediction.

    symbols, first: symbol numbers first .. first + symbols - 1 may be in the answer.
    times: how often the answer uses each symbol of the question.
    """
    start = SYMBOL + first

    def rule(token, question_V, answer_V):
        del token
        remaining_V = (times * question_V - answer_V)[start : start + symbols]
        return jnp.where((remaining_V > 0).any(), start + jnp.argmax(remaining_V), EOS)

    return {"most frequent unused symbol": rule}


def shown(symbols: int, first: int = 0) -> Mapping[str, Rule]:
    """A rule: the most frequent symbol of the question, among `symbols` numbers from `first` on."""
    start = SYMBOL + first

    def rule(token, question_V, answer_V):
        del token, answer_V
        return start + jnp.argmax(question_V[start : start + symbols])

    return {"most frequent symbol of the question": rule}


def in_order(symbols: int) -> Mapping[str, Rule]:
    """Two rules for sorted answers: the next larger symbol, and the smallest unused one.

    The first rule needs to know which symbols occur, and fails where one repeats. The second also
    needs their exact counts, and is always right.
    """
    number_V = jnp.arange(symbols, dtype=jnp.int32)

    def smallest(possible_V):
        return jnp.where(possible_V.any(), SYMBOL + jnp.argmax(possible_V), EOS)

    def next_larger(token, question_V, answer_V):
        del answer_V
        return smallest((question_V[SYMBOL:] > 0) & (SYMBOL + number_V > token))

    def smallest_unused(token, question_V, answer_V):
        del token
        return smallest((question_V > answer_V)[SYMBOL:])

    return {"next larger symbol": next_larger, "smallest unused symbol": smallest_unused}
