"""What one program of a kernel of `triton` reads: a block of queries or of keys, and all others."""

from typing import Any, NamedTuple

import jax
from jax.experimental import pallas as pl

from posenc_jax.attention.block_plan import Plan
from posenc_jax.attention.kernels.block_ranges import BlockRanges
from posenc_jax.attention.kernels.triton_bias import Reading


class Inputs(NamedTuple):
    """The arrays that the kernels read.

    q, k, v:        [B, T, H, C]; keys and values may have fewer heads, each for H / K of queries.
    q_mask, k_mask: index and segment of each token, [B|1, 2, T].
    row:            of a relative bias, see `Layer.row_BHN`.
    sums:           see `KeySums`.
    numbers:        what a traced bias reads, see `triton_bias.Numbers`.
    g:              the output's gradient, [B, Q, H, C].
    log:            logarithm of each query's sum of exponentials, [B, H, Q].
    delta:          sum of g times the output over channels, [B, H, Q].
    """

    q: Any
    k: Any
    v: Any
    q_mask: Any
    k_mask: Any
    row: Any = None
    sums: Any = None
    numbers: Any = None
    g: Any = None
    log: Any = None
    delta: Any = None


class Queries(NamedTuple):
    """A block of queries, in registers, and what is read of it; see `Inputs`."""

    i: Any
    q_QC: jax.Array
    index_Q1: jax.Array
    segment_Q1: jax.Array
    until_Q1: Any
    g_QC: Any
    log_Q1: Any
    delta_Q1: Any


class Keys(NamedTuple):
    """A block of keys, in registers, and what is read of it; see `Inputs`."""

    j: Any
    k_KC: jax.Array
    v_KC: jax.Array
    index_1K: jax.Array
    segment_1K: jax.Array
    after_1K: Any


class UnmaskedBlocks(NamedTuple):
    """Which blocks need no mask: of a query block the first ones that it sees, up to `end_I`; of a
    key block the last ones that see it, from `first_J` on.
    """

    end_I: Any
    first_J: Any


class Program(NamedTuple):
    """What a program reads; its row of the batch, b, and its head of queries, h."""

    plan: Plan
    traced: Reading | None
    inputs: Inputs
    ranges: BlockRanges
    unmasked: UnmaskedBlocks
    b: Any
    h: Any

    @property
    def heavy(self) -> bool:
        """Whether its bias costs more than its masks, see `Reading.heavy`."""
        return self.traced is not None and self.traced.heavy

    def at(self, n) -> Any:
        """The places of the tokens of block n."""
        return pl.ds(n * self.plan.queries, self.plan.queries)

    def tokens(self, x, n) -> jax.Array:
        """Block n of an array [B, T, H, C], or of one with fewer heads."""
        group = self.inputs.q.shape[2] // x.shape[2]
        return x[self.b, self.at(n), jax.lax.div(self.h, self.h.dtype.type(group)), :]

    def line(self, x, n) -> jax.Array:
        """Block n of an array [B, H, ..., T], all of whose other axes have size 1."""
        return x[self.b, self.h, *[0] * (x.ndim - 3), self.at(n)]

    def row_and_head(self, x) -> tuple:
        """Where this program's row and head are in an array [B|1, H|1, ...]."""
        return self.b if x.shape[0] > 1 else 0, self.h if x.shape[1] > 1 else 0

    def queries(self, i) -> Queries:
        """Block i of queries, loaded."""
        inputs, mask = self.inputs, self.inputs.q_mask
        row = self.b if mask.shape[0] > 1 else 0
        index_Q1, segment_Q1 = (mask[row, n, self.at(i)][:, None] for n in (0, 1))
        column = lambda x: None if x is None else self.line(x, i)[:, None]
        until = None if inputs.sums is None else inputs.sums.until
        g_QC = None if inputs.g is None else self.tokens(inputs.g, i)
        return Queries(i, self.tokens(inputs.q, i), index_Q1, segment_Q1, column(until), g_QC,
                       column(inputs.log), column(inputs.delta))  # fmt: skip

    def keys(self, j) -> Keys:
        """Block j of keys, loaded."""
        inputs, mask = self.inputs, self.inputs.k_mask
        row = self.b if mask.shape[0] > 1 else 0
        index_1K, segment_1K = (mask[row, n, self.at(j)][None] for n in (0, 1))
        after_1K = None if inputs.sums is None else self.line(inputs.sums.after, j)[None]
        k_KC, v_KC = self.tokens(inputs.k, j), self.tokens(inputs.v, j)
        return Keys(j, k_KC, v_KC, index_1K, segment_1K, after_1K)
