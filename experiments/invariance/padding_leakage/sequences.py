"""The padded sequences of the experiment: those of training, and those that are measured.

Letters of shapes: A amounts of padding, D sides, S seeds; besides those of docs/design.md.
"""

from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.invariance.padding_leakage.fields import Data, Learning
from experiments.invariance.small_models import small_layout
from posenc_jax.lab.hosts.compiling import jit_quick
from posenc_jax.lab.tasks.task import PAD
from posenc_jax.lab.training.step import BATCH, SIZE, random_key
from posenc_jax.layout import Layout

TEST = 2**31 - 1  # the seed of the sequences that are measured


class Batch(NamedTuple):
    """Padded sequences, and their targets: the token before each token, the favourite symbol."""

    tokens_BT: jax.Array
    before_BT: jax.Array
    favourite_B: jax.Array
    layout: Layout


class Drawn(NamedTuple):
    """The sequences of all runs; they are the same for every encoding, and drawn once.

    taught: batches of training, leaves [S, steps, ...]; each row is padded on a random side.
    plain: the measured sequences without padding.
    padded: the same with padding, leaves [D A, ...].
    junk: tokens [D A, B, T] of `padded` with random symbols as padding.
    start: the column of their first real token, [D A].
    """

    taught: Batch
    plain: Batch
    padded: Batch
    junk: jax.Array
    start: jax.Array


def sequences(key, data: Data, size_B: jax.Array, width, left, columns: int | None = None) -> Batch:
    """Random sequences in which about half of the tokens are one symbol, the favourite.

    Width and side change only the padding, not the tokens. With `columns` the arrays have so many
    columns, and the width may be traced; the columns past it have segment -1, so that no token
    attends to them and they are not counted as padding.
    """
    count, columns = len(size_B), width if columns is None else columns
    keys = jax.random.split(key, 3)
    longest = max(data.length, data.measured)
    favourite_B = jax.random.randint(keys[0], (count,), 1, data.symbols + 1, jnp.int32)
    other_BN = jax.random.randint(keys[1], (count, longest), 1, data.symbols + 1, jnp.int32)
    chosen_BN = jax.random.bernoulli(keys[2], 0.5, (count, longest))
    symbol_BN = jnp.where(chosen_BN, favourite_B[:, None], other_BN)
    symbol_BT = jnp.pad(symbol_BN, ((0, 0), (0, max(columns - longest, 0))))[:, :columns]
    before_BT = jnp.concatenate([symbol_BT[:, :1], symbol_BT[:, :-1]], axis=1)
    place_T = jnp.arange(columns, dtype=jnp.int32)
    real_BT = place_T[None] < size_B[:, None]
    move_B = jnp.where(left, width - size_B, 0)
    roll = lambda x_BT: jax.vmap(jnp.roll)(jnp.where(real_BT, x_BT, PAD), move_B)
    segment_BT = jnp.where(place_T[None] < width, roll(jnp.ones_like(symbol_BT)), -1)
    return Batch(roll(symbol_BT), roll(before_BT), favourite_B, small_layout(segment_BT))


@cache
def drawn(data: Data, learning: Learning, seeds: range) -> Drawn:
    """The sequences of all runs of a config."""
    sides = np.asarray([side == "left" for side in data.sides])
    left_P, amount_P = np.repeat(sides, len(data.amounts)), np.tile(data.amounts, len(sides))
    columns, key = data.measured + max(data.amounts), random_key(TEST, BATCH)
    size_B = jnp.full((data.examples,), data.measured, jnp.int32)

    def taught(seed, step):
        rows, least, most = (learning.batch,), data.min_length, data.length + 1
        keys = jax.random.split(random_key(seed, SIZE, step))
        size_B = jax.random.randint(keys[0], rows, least, most, jnp.int32)
        side_B = jax.random.randint(keys[1], rows, 0, len(sides), jnp.int32)
        left_B = jnp.asarray(sides)[side_B]
        return sequences(random_key(seed, BATCH, step), data, size_B, data.length, left_B)

    def padded(left, amount):
        batch = sequences(key, data, size_B, data.measured + amount, left, columns)
        junk_BT = jax.random.randint(key, batch.tokens_BT.shape, 1, data.symbols + 1, jnp.int32)
        pads_BT = batch.layout.segment_BT == 0
        return batch, jnp.where(pads_BT, junk_BT, batch.tokens_BT)

    def draw(seed_S, step_N, left_P, amount_P):
        batches = jax.vmap(jax.vmap(taught, (None, 0)), (0, None))(seed_S, step_N)
        plain = sequences(key, data, size_B, data.measured, False)
        start_P = jnp.where(left_P, amount_P, 0)
        return Drawn(batches, plain, *jax.vmap(padded)(left_P, amount_P), start_P)

    numbers = (np.asarray(n, np.int32) for n in (seeds, range(learning.steps)))
    return jit_quick(draw)(*numbers, left_P, amount_P.astype(np.int32))
