"""Tasks whose answer is a state after a series of actions.

    task                line                                                        reads
    even_pairs          BOS x1 .. xn SEP  whether 01 and 10 occur an odd number     n + 2
                        of times
    cycle_navigation    BOS m1 .. mn SEP  the place on a circle after all moves     n + 2
    stack_manipulation  BOS stack, actions SEP  the stack from its top, EOS         up to 2n + 2
    counting            BOS a1 .. an variable SEP  its value in digits, EOS         up to n + c + 3
    flip_flop           BOS w b, i b, r b ..                                        2n

"reads" is the number of tokens that the model is given; c is the number of digits of n. The tokens
after SEP are the answer, which counts in the loss; in flip_flop it is the bit after each r.
"""

from typing import Any

import jax
import jax.numpy as jnp

from posenc_jax.lab.tasks.catalog import register
from posenc_jax.lab.tasks.task import (
    BOS,
    EOS,
    SYMBOL,
    Integer,
    Padding,
    Task,
    check_least,
    draw,
    generated,
    question_answer,
)
from posenc_jax.options import FieldError

CYCLE = 5  # places on the circle, as in arXiv 2207.02098
POP, PUSH = 2, 3  # symbols of stack_manipulation: 0 and 1 are bits, 3 and 4 push them
DIGITS = 10  # of a count: it is below 2**31
STEPS = 2**16  # a share of flip_flop is rounded to a multiple of 1 / STEPS


@register()
def even_pairs(padding: Padding = "right") -> Task:
    """Say whether the pairs 01 and 10 together are odd in number (arXiv 2207.02098).

    They are if the first bit differs from the last one.
    """

    def line(key, n, place_L):
        bit_L = draw(key, place_L, 2)
        odd = (bit_L[0] + bit_L[n - 1]) % 2
        return question_answer(place_L, [(SYMBOL + bit_L, n)], [(SYMBOL + odd, 1)])

    length = lambda n: n + 3
    return generated("even_pairs", line, length, symbols=2, padding=padding, chance=0.5)


@register()
def cycle_navigation(padding: Padding = "right") -> Task:
    """The place on a circle of 5 after n moves to the left, to the right, or none (arXiv
    2207.02098).

    Symbols 0, 1 and 2 are a move to the left, none, and a move to the right.
    """

    def line(key, n, place_L):
        move_L = draw(key, place_L, 3)
        place = jnp.sum(move_L - 1, where=place_L < n) % CYCLE
        return question_answer(place_L, [(SYMBOL + move_L, n)], [(SYMBOL + place, 1)])

    def rights_less_lefts(token, question_V, answer_V):
        del token, answer_V
        return SYMBOL + (question_V[SYMBOL + 2] - question_V[SYMBOL]) % CYCLE

    return generated(
        "cycle_navigation", line, lambda n: n + 3, symbols=CYCLE, padding=padding, chance=1 / CYCLE,
        bag={"moves right less moves left": rights_less_lefts},
    )  # fmt: skip


@register()
def stack_manipulation(padding: Padding = "right") -> Task:
    """A stack of bits after pushes and pops, read from its top (arXiv 2207.02098).

    The question has the stack from its bottom, 1 to n - 1 bits, then the actions; a pop of the
    empty stack does nothing. Their answer goes on with zeros after the end token.
    """

    def line(key, n, place_L):
        height_key, bit_key, action_key = jax.random.split(key, 3)
        height = jax.random.randint(height_key, (), 1, n)
        bit_L, action_L = draw(bit_key, place_L, 2), POP + draw(action_key, place_L, 3)
        shown_L = jnp.where(place_L < height, bit_L, action_L)
        pushed_L = jnp.where(place_L < height, bit_L, action_L - PUSH)

        def step(state, inputs):
            depth, stack_L = state
            place, symbol, bit = inputs
            pushes, acts = symbol != POP, place < n
            at = jnp.where(pushes & acts, depth, len(place_L))  # past the end: nothing is written
            stack_L = stack_L.at[at].set(bit, mode="drop")
            changed = jnp.where(pushes, depth + 1, jnp.maximum(depth - 1, 0))
            return (jnp.where(acts, changed, depth), stack_L), None

        start = jnp.zeros_like(n), jnp.zeros_like(place_L)
        (depth, stack_L), _ = jax.lax.scan(step, start, (place_L, shown_L, pushed_L))
        answer_L = SYMBOL + stack_L[depth - 1 - place_L]
        return question_answer(place_L, [(SYMBOL + shown_L, n)], [(answer_L, depth), (EOS, 1)])

    name, length = "stack_manipulation", lambda n: 2 * n + 3
    return generated(name, line, length, symbols=5, padding=padding, least=2)


@register()
def counting(variables: int = 3, padding: Padding = "right") -> Task:
    """The number of times that one of several variables was incremented, in decimal digits.

    A simple form of the counting task of Golovneva et al. 2024, arXiv 2405.18719. Each of n actions
    increments one of the variables or passes, all with equal probability. Symbols are the 10
    digits, an increment of each variable, the pass, and the question for each variable.
    """
    check_least("variables", variables, 1)
    pass_ = 10 + variables

    def line(key, n, place_L):
        action_key, variable_key = jax.random.split(key)
        action_L = draw(action_key, place_L, variables + 1)
        variable = jax.random.randint(variable_key, (), 0, variables)
        count = jnp.sum((action_L == variable) & (place_L < n), dtype=jnp.int32)
        digit_L, digits = decimal(count, place_L)
        question = [(SYMBOL + 10 + action_L, n), (SYMBOL + pass_ + 1 + variable, 1)]
        return question_answer(place_L, question, [(SYMBOL + digit_L, digits), (EOS, 1)])

    def count_of_the_bag(token, question_V, answer_V):
        del token
        variable = jnp.argmax(question_V[SYMBOL + pass_ + 1 :])
        done = jnp.sum(answer_V)
        count = question_V[SYMBOL + 10 + variable]
        digit_D, digits = decimal(count, jnp.arange(DIGITS, dtype=jnp.int32))
        return jnp.where(done < digits, SYMBOL + digit_D[jnp.minimum(done, DIGITS - 1)], EOS)

    length, symbols = lambda n: n + 4 + digit_count(n), 10 + 2 * variables + 1
    bag = {"count of the bag": count_of_the_bag}
    return generated("counting", line, length, symbols=symbols, padding=padding, bag=bag)


@register()
def flip_flop(ignore: float = 0.8, padding: Padding = "right") -> Task:
    """The last bit written to a one-bit memory (Liu et al. 2023, arXiv 2306.00946).

    A line has n instructions: write, ignore or read, each followed by a bit; the first is a write,
    the last a read. The bit after a read, the answer, is that of the last write. Symbols are the
    bits 0 and 1, then write, ignore and read.

    ignore: the probability of ignore; the others share the rest equally. The paper trains at 0.8
      and tests also at 0.1 (dense) and 0.98 (sparse).

    FieldError: ignore is not between 0 and 1.
    """
    if not 0 <= ignore < 1:
        raise FieldError("task.ignore", f"{ignore} must be at least 0 and below 1")
    write, skip, read = 2, 3, 4

    def line(key, n, place_L):
        kind_key, bit_key = jax.random.split(key)
        pair_L = jnp.maximum(place_L - 1, 0) // 2
        random_L = draw(kind_key, pair_L, STEPS)
        bound = round(ignore * STEPS)
        reads_L = jnp.where(random_L < (bound + STEPS) // 2, write, read)
        kind_L = jnp.where(random_L < bound, skip, reads_L)
        kind_L = jnp.where(pair_L == 0, write, jnp.where(pair_L == n - 1, read, kind_L))
        last_L = jax.lax.cummax(jnp.where(kind_L == write, pair_L, 0))
        bit_L = draw(bit_key, jnp.where(kind_L == read, last_L, pair_L), 2)
        first_L = place_L % 2 == 1
        token_L = SYMBOL + jnp.where(first_L, kind_L, bit_L)
        return jnp.where(place_L == 0, BOS, token_L), ~first_L & (kind_L == read) & (place_L > 0)

    length = lambda n: 2 * n + 1
    return generated("flip_flop", line, length, symbols=5, padding=padding, least=2)


def decimal(number: jax.Array, index_L: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The decimal digits of a number, most significant first, [L], and their number."""
    power_D = jnp.asarray([10**k for k in range(DIGITS)], jnp.int32)
    digits = digit_count(number)
    return number // power_D[jnp.clip(digits - 1 - index_L, 0, DIGITS - 1)] % 10, digits


def digit_count(number: Any) -> Any:
    """The number of decimal digits of a number: an int for an int, an array for an array."""
    if isinstance(number, Integer):
        return len(str(number))
    return 1 + sum((number >= 10**k).astype(jnp.int32) for k in range(1, DIGITS))
