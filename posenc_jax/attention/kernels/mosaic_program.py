"""How one program of a kernel of `mosaic` gets what it reads: copies into shared memory.

A program has blocks of one side, which stay, and visits those of the other side in a loop. While it
computes with one, the next is on its way into a second room.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

from posenc_jax.attention.kernels.gpu_program import Program
from posenc_jax.attention.kernels.mosaic_operations import SIZE

ROOMS = 2  # of blocks that are visited
# How blocks of channels are stored in shared memory, as products read them.
TILES = plgpu.TilingTransform((8, 64)), plgpu.SwizzleTransform(128)


class Sides(NamedTuple):
    """What is copied of a block of queries, of one of keys, and of a pair; None: nothing.

    q, k, v, g:     [64, C].
    q_mask, k_mask: index and segment of each token, [2, 64].
    until, after, log, delta: [64].
    q_numbers, k_numbers:     what a traced bias reads, each [N, 64].
    window:         of a row of offsets, [128].
    """

    q: Any = None
    q_mask: Any = None
    until: Any = None
    g: Any = None
    log: Any = None
    delta: Any = None
    q_numbers: Any = None
    k: Any = None
    v: Any = None
    k_mask: Any = None
    after: Any = None
    k_numbers: Any = None
    window: Any = None


class MosaicProgram(Program):
    """A program that copies blocks into shared memory."""

    def queries(self, i) -> Sides:
        """Where block i of queries is in memory."""
        inputs = self.inputs
        sums, numbers = inputs.sums, inputs.numbers
        line = lambda x: None if x is None else self.line(x, i)
        return Sides(
            q=self.tokens(inputs.q, i),
            q_mask=self.columns(inputs.q_mask, i),
            until=None if sums is None else line(sums.until),
            g=None if inputs.g is None else self.tokens(inputs.g, i),
            log=line(inputs.log),
            delta=line(inputs.delta),
            q_numbers=None if numbers is None else [self.columns(x, i) for x in numbers.q],
        )

    def keys(self, j) -> Sides:
        """Where block j of keys is in memory."""
        inputs = self.inputs
        sums, numbers = inputs.sums, inputs.numbers
        return Sides(
            k=self.tokens(inputs.k, j),
            v=self.tokens(inputs.v, j),
            k_mask=self.columns(inputs.k_mask, j),
            after=None if sums is None else self.line(sums.after, j),
            k_numbers=None if numbers is None else [self.columns(x, j) for x in numbers.k],
        )

    def pair(self, i, j) -> Sides:
        """Where the biases of a pair of blocks are in memory."""
        if (row := self.inputs.row) is None:
            return Sides()
        blocks = self.ranges.first_I.shape[0]
        _, head = self.row_and_head(row)
        return Sides(window=row.at[0, head, pl.ds((blocks - 1 - i + j) * SIZE, 2 * SIZE)])

    def tokens(self, x, n) -> Any:
        """Block n of an array [B, T, H, C], or of one with fewer heads."""
        group = self.inputs.q.shape[2] // x.shape[2]
        return x.at[self.b, self.at(n), jax.lax.div(self.h, self.h.dtype.type(group))]

    def line(self, x, n) -> Any:
        """Block n of an array [B, H, ..., T], all of whose other axes have size 1."""
        return x.at[self.b, self.h, *[0] * (x.ndim - 3), self.at(n)]

    def columns(self, x, n) -> Any:
        """Block n of an array [B|1, N, T] or [B|1, H|1, N, T]."""
        lead = self.row_and_head(x)[: x.ndim - 2]
        return x.at[*lead, :, self.at(n)]


def rooms(blocks: Sides, count: int) -> Sides:
    """The shared memory for so many of these blocks."""

    def of(name: str, block) -> Any:
        tiles = TILES if name in ("q", "k", "v", "g") else ()
        memory = lambda x: plgpu.SMEM((count, *x.shape), x.dtype, transforms=tiles)
        return jax.tree.map(memory, block, is_leaf=_is_reference)

    return Sides(**{name: of(name, block) for name, block in blocks._asdict().items()})


def barrier(blocks: Sides, count: int) -> Any:
    """As many barriers, each for a copy of all blocks."""
    return plgpu.Barrier(num_arrivals=len(_references(blocks)), num_barriers=count)


def _is_reference(x) -> bool:
    return hasattr(x, "at")


def _references(sides: Sides) -> list[Any]:
    return jax.tree.leaves(sides, is_leaf=_is_reference)


def merged(*parts: Sides) -> Sides:
    """What all parts have."""
    return Sides(*(next((x for x in of if x is not None), None) for of in zip(*parts, strict=True)))


def copy(blocks: Sides, into: Sides, barrier: Any) -> None:
    """Begins to copy blocks; the barrier is passed when all are there."""
    for block, room in zip(_references(blocks), _references(into), strict=True):
        plgpu.copy_gmem_to_smem(block, room, barrier)


def room(rooms: Sides, n) -> Sides:
    """Room n of rooms for several blocks."""
    return jax.tree.map(lambda x: x.at[n], rooms)


def over(
    runs: Sequence[tuple[Any, Any, bool]],
    blocks: Callable[[Any], Sides],
    into: Sides,
    barriers: Any,
    visit: Callable,
    state: Any,
    meets: Callable[[Any], Any] | None = None,
) -> Any:
    """The state after visit(masked, n, sides, state) of all blocks of the runs.

    Args:
      runs: (start, end, masked), each beginning where the last ends.
      blocks: where the blocks of number n are in memory.
      into, barriers: rooms for two of them.
      meets: whether block n is visited; None: all are.
    """
    first, end = runs[0][0], runs[-1][1]
    # Beyond the last block there is nothing to ask.
    there = lambda n: (n < end) & (meets is None or meets(jnp.minimum(n, end - 1)))

    def fetch(n) -> None:
        at = jax.lax.rem(n - first, ROOMS)
        copy(blocks(n), room(into, at), barriers.at[at])

    def step(masked: bool, n, state):
        at = jax.lax.rem(n - first, ROOMS)
        # All have read the other room, before a copy writes it again.
        plgpu.commit_smem()
        pl.when(there(n + 1))(lambda: fetch(n + 1))

        def visited():
            plgpu.barrier_wait(barriers.at[at])
            return visit(masked, n, room(into, at), state)

        return visited() if meets is None else jax.lax.cond(meets(n), visited, lambda: state)

    pl.when(there(first))(lambda: fetch(first))
    for start, stop, masked in runs:
        # From 0 on: in `jax.shard_map` JAX takes what is read of memory for another type of loop
        # index than the next one.
        body = lambda m, state, start=start, masked=masked: step(masked, start + m, state)
        state = jax.lax.fori_loop(0, stop - start, body, state)
    return state
