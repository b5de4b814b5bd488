"""An encoding and a task of one's own, in a file outside of posenc_jax."""

import jax.numpy as jnp

import posenc_jax
from posenc_jax.encodings.card import Positive
from posenc_jax.lab import tasks
from posenc_jax.lab.tasks.task import SYMBOL, Task, generated, question_answer


@posenc_jax.register(kind="bias", formula="-m[h] sqrt|i - j|, m learned", paper="an example")
def root(slope: Positive = 0.5) -> posenc_jax.Encoding:
    """A penalty that grows with the square root of the distance, with a learned slope per head.

    Args:
      slope: of every head before training.
    """

    def init(key, dims):
        return {"slope": jnp.full(dims.heads, slope, float)}

    def bias(params, q_pos_BQ, k_pos_BK, dims):
        distance_BQK = jnp.abs(q_pos_BQ[:, :, None] - k_pos_BK[:, None, :]).astype(float)
        slope_1H11 = params["slope"].astype(float)[None, :, None, None]
        return -slope_1H11 * jnp.sqrt(distance_BQK)[:, None]

    return posenc_jax.Encoding(init=init, bias=bias, relative=True)


@tasks.register()
def threes(symbols: int = 10) -> Task:
    """Count up, each symbol three times: 0 0 0 1 1 1 2; a size is the number of symbols."""

    def line(key, n, place_L):
        counting_L = SYMBOL + place_L // 3 % symbols
        return question_answer(place_L, [], [(counting_L, n)])

    return generated("threes", line, lambda n: n + 2, symbols=symbols, padding="right")
