"""What one program of a kernel of `triton` reads: a block of queries or of keys, and all others."""

from typing import Any, NamedTuple

import jax

from posenc_jax.attention.kernels.gpu_program import Program


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


class TritonProgram(Program):
    """A program that loads blocks into registers."""

    def tokens(self, x, n) -> jax.Array:
        """Block n of an array [B, T, H, C], or of one with fewer heads."""
        group = self.inputs.q.shape[2] // x.shape[2]
        return x[self.b, self.at(n), jax.lax.div(self.h, self.h.dtype.type(group)), :]

    def line(self, x, n) -> jax.Array:
        """Block n of an array [B, H, ..., T], all of whose other axes have size 1."""
        return x[self.b, self.h, *[0] * (x.ndim - 3), self.at(n)]

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
