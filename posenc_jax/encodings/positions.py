"""Which position a token is shown: methods that move positions for the parts to their right.

All read one-axis positions 0 .. n - 1 and the length n of the token's sequence, nothing else, so
padding on either side, packed documents and cached decoding change nothing in evaluation.
"""

from functools import partial
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.encoding import Encoding
from posenc_jax.encodings.card import method
from posenc_jax.encodings.inputs import one_of, require

Evaluate = Literal["spread", "random", "plain"]
Per = Literal["example", "batch"]


def require_one_axis(name: str, pos_BT: jax.Array) -> None:
    if pos_BT.ndim != 2:
        raise ValueError(f"positions: shape {pos_BT.shape} is not [B, T], all that {name} can move")


def documents(pos_BT: jax.Array, length_BT: jax.Array) -> jax.Array:
    """A number for each document of a row, 0 for the last; -1 for padding of two or more tokens.

    A document begins at a 0 that 1 follows, or is one token long. Counting from the right, queries
    have the same numbers whether or not a memory of earlier keys stands before them.
    """
    after_BT = jnp.pad(pos_BT, ((0, 0), (0, 1)))[:, 1:]
    first_BT = (pos_BT == 0) & ((after_BT == 1) | (length_BT == 1))
    from_here_BT = jnp.cumsum(first_BT[:, ::-1], axis=1, dtype=jnp.int32)[:, ::-1]
    later_BT = from_here_BT - first_BT.astype(jnp.int32)
    return jnp.where(first_BT | (pos_BT > 0), later_BT, -1)


def drawn(key, group_BT, pos_BT, length_BT, limit: int, each_row: bool) -> jax.Array:
    """Token p of n is shown the p-th of n sorted draws from range(limit), without replacement.

    Tokens of a row with one group share a draw and must share a length; rows share draws unless
    `each_row`. A draw is the n smallest of `limit` random numbers: exactly uniform over subsets
    but for ties, one in 2^32. Time and memory: [B, limit] for each group in turn.
    """
    rows = len(group_BT) if each_row else 1
    ranks_of = jax.vmap(partial(jnp.searchsorted, side="right"))

    def draw(state):
        group, shown_BT = state
        mine_BT = group_BT == group
        n_B1 = jnp.max(jnp.where(mine_BT, length_BT, 1), axis=1, keepdims=True)
        bits_RL = jax.random.bits(jax.random.fold_in(key, group), (rows, limit), jnp.uint32)
        nth_B1 = jnp.take_along_axis(jnp.sort(bits_RL, axis=1), n_B1 - 1, axis=1)
        count_BL = jnp.cumsum(bits_RL <= nth_B1, axis=1, dtype=jnp.int32)
        draw_BT = ranks_of(count_BL, pos_BT).astype(jnp.int32)
        next_group = jnp.max(jnp.where(group_BT < group, group_BT, -1))
        return next_group, jnp.where(mine_BT, draw_BT, shown_BT)

    start = jnp.max(group_BT), jnp.zeros_like(pos_BT)
    return jax.lax.while_loop(lambda state: state[0] >= 0, draw, start)[1]


def fixed_draws(seed: int, pos_BT: jax.Array, length_BT: jax.Array, limit: int) -> jax.Array:
    """One draw for each length, the same for every token of that length, whatever its row."""
    pos_1M, length_1M = pos_BT.reshape(1, -1), length_BT.reshape(1, -1)
    shown_1M = drawn(jax.random.key(seed), length_1M, pos_1M, length_1M, limit, False)
    return shown_1M.reshape(pos_BT.shape)


def spread(pos_BT: jax.Array, length_BT: jax.Array, limit: int) -> jax.Array:
    """(p + 1)(limit + 1) // (n + 1) - 1, in a form that stays within 32 bits."""
    rank_BT, among_BT = (pos_BT + 1).astype(jnp.uint32), (length_BT + 1).astype(jnp.uint32)
    whole_BT, rest_BT = jnp.uint32(limit + 1) // among_BT, jnp.uint32(limit + 1) % among_BT
    return (rank_BT * whole_BT + rank_BT * rest_BT // among_BT).astype(jnp.int32) - 1


def _randomized_shows(o, pos_T, n):
    """Definition: the n smallest of `limit` random numbers, or the mean of such draws."""
    if n > o.limit:
        return np.full(len(pos_T), np.nan)
    if o.evaluate == "plain":
        return np.asarray(pos_T, np.float64)
    if o.evaluate == "spread":
        return np.array([(int(p) + 1) * (o.limit + 1) // (n + 1) - 1 for p in pos_T], np.float64)
    key = jax.random.fold_in(jax.random.key(o.seed), n)
    bits_L = np.asarray(jax.random.bits(key, (1, o.limit), jnp.uint32))[0]
    chosen = sorted(range(o.limit), key=lambda value: bits_L[value])[:n]
    return np.array([sorted(chosen)[int(p)] for p in pos_T], np.float64)


@method(
    kind="positions",
    formula="p -> the p-th of n sorted draws from 0 .. limit - 1, without replacement",
    paper="Ruoss et al. 2023, arXiv 2305.16843",
    beyond="error",
    shows=_randomized_shows,
    example={"limit": 64, "evaluate": "random"},
)
def randomized(
    limit: int = 2048, evaluate: Evaluate = "spread", per: Per = "example", seed: int = 0
) -> Encoding:
    """Random positions out of a range longer than any sequence, in order, anew at every step.

    In training each document of each example has a draw of its own. A sequence of more than `limit`
    tokens is shown NaN, and so is a position outside its sequence; padding, of any size, 0.

    Args:
      limit: positions are below this.
      evaluate: what is shown where no key is given. "spread": the mean draw, rounded down,
        (p + 1)(limit + 1) // (n + 1) - 1, which is exact up to 65,534 tokens; "random": one draw
        for each length, fixed by `seed`; "plain": the position itself. The public code draws anew
        for each batch in evaluation too, which "random" is nearest to.
      per: "batch" shares each draw between the rows, as the public code does.
      seed: of evaluate="random".

    ValueError: limit is not positive.
    """
    require(limit > 0, "limit", limit, "must be positive")
    one_of("evaluate", evaluate, Evaluate)
    one_of("per", per, Per)

    def place(key, layout):
        pos_BT, length_BT = layout.pos_BT, layout.length_BT
        require_one_axis("randomized", pos_BT)
        token_BT = pos_BT.astype(jnp.int32)
        if key is not None:
            group_BT = documents(token_BT, length_BT)
            shown_BT = drawn(key, group_BT, token_BT, length_BT, limit, per == "example")
        elif evaluate == "random":
            shown_BT = fixed_draws(seed, token_BT, length_BT, limit)
        else:
            shown_BT = token_BT if evaluate == "plain" else spread(token_BT, length_BT, limit)
        held_BT = (token_BT < length_BT) & (length_BT <= limit)
        held_BT = jnp.where(held_BT, shown_BT.astype(float), jnp.nan)
        return jnp.where(layout.segment_BT > 0, held_BT, 0.0)

    return Encoding(place=place)


@method(
    kind="positions",
    formula="t -> t length / n where n > length, else t",
    paper="Chen et al. 2023, arXiv 2306.15595",
    beyond="interpolate",
    shows=lambda o, pos_T, n: np.array([t * o.length / n if n > o.length else t for t in pos_T]),
    example={"length": 16},
    vary={"length": 12},
)
def interpolated(length: int = 512) -> Encoding:
    """Position interpolation: sequences longer than `length` are squeezed into it.

    The paper's factor is that of the extended context, the same for all; here it is each
    sequence's own, the identity up to `length` tokens.

    ValueError: length is not positive.
    """
    require(length > 0, "length", length, "must be positive")

    def place(key, layout):
        require_one_axis("interpolated", layout.pos_BT)
        pos_BT, n_BT = layout.pos_BT.astype(float), layout.length_BT.astype(float)
        return jnp.where(n_BT > length, pos_BT * length / n_BT, pos_BT)

    return Encoding(place=place)


@method(
    kind="positions",
    formula="t -> min(t, length - 1)",
    paper="textbook",
    beyond="clamp",
    shows=lambda o, pos_T, n: np.array([min(t, o.length - 1) for t in pos_T]),
    example={"length": 16},
    vary={"length": 12},
)
def clamped(length: int = 512) -> Encoding:
    """Every position past the range is shown as its last.

    ValueError: length is not positive.
    """
    require(length > 0, "length", length, "must be positive")
    return Encoding(place=lambda key, at: jnp.minimum(at.pos_BT, length - 1))
