"""What one program of a kernel of `gpu` reads, in any language."""

from typing import Any, NamedTuple

from jax.experimental import pallas as pl

from posenc_jax.attention.block_plan import Plan
from posenc_jax.attention.kernels.block_ranges import BlockRanges
from posenc_jax.attention.kernels.gpu_bias import Reading


class Inputs(NamedTuple):
    """The arrays that the kernels read.

    q, k, v:        [B, T, H, C]; keys and values may have fewer heads, each for H / K of queries.
    q_mask, k_mask: index and segment of each token, [B|1, 2, T].
    row:            of a relative bias, see `Layer.row_BHN`.
    sums:           see `KeySums`.
    numbers:        what a traced bias reads, see `gpu_bias.Numbers`.
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

    def row_and_head(self, x) -> tuple:
        """Where this program's row and head are in an array [B|1, H|1, ...]."""
        return self.b if x.shape[0] > 1 else 0, self.h if x.shape[1] > 1 else 0
