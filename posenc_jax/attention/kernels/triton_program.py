"""What one program of a kernel of `triton` reads: a block of queries or of keys, and all others."""

from typing import Any, NamedTuple

import jax
from jax.experimental import pallas as pl

from posenc_jax.attention.block_plan import Plan
from posenc_jax.attention.kernels.block_ranges import Spans
from posenc_jax.attention.kernels.triton_bias import Reading


class Given(NamedTuple):
    """The arrays that the kernels read.

    q, k, v:        [B, T, H, C]; keys and values may have fewer heads, each for H / K of queries.
    q_seen, k_seen: index and segment of each token, [B|1, 2, T].
    row:            of a relative bias, see `Layer.row_BHN`.
    sums:           see `Sums`.
    made:           what a traced bias reads, `Numbers`.
    g:              the output's gradient, [B, Q, H, C].
    log:            logarithm of each query's sum of exponentials, [B, H, Q].
    drop:           sum of g times the output, [B, H, Q].
    """

    q: Any
    k: Any
    v: Any
    q_seen: Any
    k_seen: Any
    row: Any = None
    sums: Any = None
    made: Any = None
    g: Any = None
    log: Any = None
    drop: Any = None


class Queries(NamedTuple):
    """A block of queries, in registers, and what is read of it; see `Given`."""

    i: Any
    q_QC: jax.Array
    index_Q1: jax.Array
    segment_Q1: jax.Array
    until_Q1: Any
    g_QC: Any
    log_Q1: Any
    drop_Q1: Any


class Keys(NamedTuple):
    """The same of a block of keys."""

    j: Any
    k_KC: jax.Array
    v_KC: jax.Array
    index_1K: jax.Array
    segment_1K: jax.Array
    after_1K: Any


class Whole(NamedTuple):
    """Blocks that see each other whole need no mask: a query block's first ones, up to end_I, and
    a key block's last ones, from first_J on.
    """

    end_I: Any
    first_J: Any


class Program(NamedTuple):
    """What a program reads, its row of the batch and its head of queries."""

    plan: Plan
    traced: Reading | None
    given: Given
    spans: Spans
    whole: Whole
    b: Any
    h: Any

    @property
    def heavy(self) -> bool:
        return self.traced is not None and self.traced.heavy

    def at(self, n) -> Any:
        """The places of the tokens of block n."""
        return pl.ds(n * self.plan.queries, self.plan.queries)

    def tokens(self, x, n) -> jax.Array:
        """Block n of an array [B, T, H, C], or of one with fewer heads."""
        group = self.given.q.shape[2] // x.shape[2]
        return x[self.b, self.at(n), jax.lax.div(self.h, self.h.dtype.type(group)), :]

    def line(self, x, n) -> jax.Array:
        """Block n of an array [B, H, ..., T], all of whose other axes have size 1."""
        return x[self.b, self.h, *[0] * (x.ndim - 3), self.at(n)]

    def own(self, x) -> tuple:
        """The first two places in an array [B|1, H|1, ...]."""
        return self.b if x.shape[0] > 1 else 0, self.h if x.shape[1] > 1 else 0

    def queries(self, i) -> Queries:
        given, seen = self.given, self.given.q_seen
        row = self.b if seen.shape[0] > 1 else 0
        index_Q1, segment_Q1 = (seen[row, n, self.at(i)][:, None] for n in (0, 1))
        column = lambda x: None if x is None else self.line(x, i)[:, None]
        until = None if given.sums is None else given.sums.until
        g_QC = None if given.g is None else self.tokens(given.g, i)
        return Queries(i, self.tokens(given.q, i), index_Q1, segment_Q1, column(until), g_QC,
                       column(given.log), column(given.drop))  # fmt: skip

    def keys(self, j) -> Keys:
        given, seen = self.given, self.given.k_seen
        row = self.b if seen.shape[0] > 1 else 0
        index_1K, segment_1K = (seen[row, n, self.at(j)][None] for n in (0, 1))
        after_1K = None if given.sums is None else self.line(given.sums.after, j)[None]
        k_KC, v_KC = self.tokens(given.k, j), self.tokens(given.v, j)
        return Keys(j, k_KC, v_KC, index_1K, segment_1K, after_1K)
