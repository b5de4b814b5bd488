"""A periodic pattern to continue.

    task      line                                                                reads
    periodic  BOS x1 .. xn with x(i) = x(i - period); all past the first period   n

The symbols past the first period are the answer and count; "reads" is the number of tokens the
model is given. The pattern has no end, so there is no EOS.
"""

import jax.numpy as jnp

from posenc_jax.lab.tasks.task import (
    BOS,
    SYMBOL,
    Padding,
    Task,
    check_least,
    check_symbols,
    draw,
    generated,
)


def periodic(period: int = 8, alphabet: int = 16, padding: Padding = "right") -> Task:
    """Continue a random pattern of `period` symbols; a size is the length of the whole line."""
    check_least("period", period, 1)
    check_symbols("alphabet", alphabet)

    def line(key, n, place_L):
        del n
        symbol_L = SYMBOL + draw(key, (place_L - 1) % period, alphabet)
        return jnp.where(place_L == 0, BOS, symbol_L), place_L > period

    return generated(
        "periodic",
        line,
        lambda n: n + 1,
        symbols=alphabet,
        padding=padding,
        least=period + 1,
    )
