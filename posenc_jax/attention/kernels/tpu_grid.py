"""The grid of a kernel of `tpu`: its steps, and which block of each array a step reads."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from posenc_jax.attention.block_plan import Plan
from posenc_jax.attention.derivatives import not_differentiated
from posenc_jax.attention.kernels import tpu_bias
from posenc_jax.attention.kernels.block_ranges import BlockRanges, meet
from posenc_jax.attention.kernels.key_sums import KeySums
from posenc_jax.attention.kernels.tpu_blocks import Inputs
from posenc_jax.attention.kernels.traced_bias import TracedBias, floats
from posenc_jax.backends.target import tuned_for, vector_memory

Outputs = Sequence[tuple[Any, pl.BlockSpec]]  # of a kernel: shapes, and blocks of them


class Grid(NamedTuple):
    """The steps of a kernel: every row and head, and every pair of blocks.

    bias:       a traced one, or None. It is made for all heads at once, so heads are then the
      innermost axis of steps.
    keys_first: whether keys are the outer axis of pairs of blocks, and queries the inner one.
    """

    plan: Plan
    bias: TracedBias | None
    inputs: Inputs
    ranges: BlockRanges
    keys_first: bool

    def call(
        self,
        name: str,
        body: Callable,
        outputs: Outputs,
        scratch: list[tuple],
        of_bias: Outputs = (),
    ):
        """The kernel's outputs. Pairs of blocks that see nothing of each other fetch nothing.

        Args:
          name: of the kernel, in profiles.
          body: what one step does, `tpu_blocks.forward` or `backward`.
          outputs: shapes, and their blocks.
          scratch: shapes of float32 arrays that last from step to step.
          of_bias: outputs for the gradients of what a traced bias reads.
        """
        plan, operands = self.plan, self.inputs.operands
        batch, heads, _, queries = self.inputs.q.shape
        sizes = queries // plan.queries, self.inputs.k.shape[3] // plan.keys
        sizes = sizes[::-1] if self.keys_first else sizes
        grid, specs, room = (batch, heads, *sizes), [spec for _, spec in outputs], []
        if operands is not None:
            grid, specs = (batch, *sizes, heads), [*map(self._of_all_heads, specs)]
            scratch = [(heads, *shape) for shape in scratch]
            of_keys = *operands.k, self.inputs.k_mask
            room = [pltpu.VMEM((plan.keys, x.shape[1]), x.dtype) for x in of_keys]
            room.append(pltpu.VMEM((heads, plan.keys, plan.queries), jnp.float32))
        # Sums of gradients of a traced bias go over heads and blocks, so these steps have an order.
        second = "parallel" if operands is None else "arbitrary"
        return pl.pallas_call(
            partial(self._step, body, len(outputs), len(of_bias), len(scratch)),
            out_shape=[shape for shape, _ in (*outputs, *of_bias)],
            grid_spec=pltpu.PrefetchScalarGridSpec(
                num_scalar_prefetch=len(self.ranges),
                grid=grid,
                in_specs=[self.specs()],
                out_specs=[*specs, *(spec for _, spec in of_bias)],
                scratch_shapes=[*(pltpu.VMEM(shape, jnp.float32) for shape in scratch), *room],
            ),
            compiler_params=pltpu.CompilerParams(
                dimension_semantics=("parallel", second, "arbitrary", "arbitrary"),
                vmem_limit_bytes=vector_memory(),
            ),
            interpret=not tuned_for("tpu"),
            name=name,
        )(*self.ranges, not_differentiated(self.inputs))

    def _step(self, body: Callable, outputs: int, of_bias: int, scratch: int, *refs):
        """One step: `body`, and before and after it what a traced bias needs.

        refs: the ranges, the inputs, outputs, those `of_bias`, scratch; for a traced bias also room
          for its keys and for the logits of all heads.
        """
        ranges, inputs = BlockRanges(*refs[: len(self.ranges)]), refs[len(self.ranges)]
        refs, plan, bias = [*refs[len(self.ranges) + 1 :]], self.plan, self.bias
        _, h, outer, inner = self._order(*map(pl.program_id, range(4)))
        i, j = (inner, outer) if self.keys_first else (outer, inner)
        if bias is None:
            return body(plan, ranges, i, j, inputs, *refs)
        sums = [refs.pop(outputs) for _ in range(of_bias)]
        entries = of_bias - len(floats(self.inputs.operands.q))  # from here on one for each query
        if self.keys_first:
            at = pl.ds(pl.multiple_of(i * plan.queries, plan.queries), plan.queries)
            sums[entries:] = [total.at[..., at] for total in sums[entries:]]
        body_refs, used = refs[: outputs + scratch], meet(ranges, i, j)
        block = inputs, refs[len(body_refs) : -1], refs[-1]
        pl.when(used & (h == 0))(partial(tpu_bias.fill, plan, bias, *block))
        inputs = inputs._replace(bias=refs[-1].at[h])
        body(plan, ranges, i, j, inputs, *(ref.at[h] for ref in body_refs))
        for n, total in enumerate(sums):
            clear = partial(total.__setitem__, ..., jnp.zeros(total.shape, total.dtype))
            pl.when((j == 0) & (h == 0) & ((n >= entries) | (i == 0)))(clear)
        if sums:
            last = self.inputs.q.shape[1] - 1
            pl.when(used & (h == last))(partial(tpu_bias.pull, bias, *block, sums))

    def _order(self, b, *step):
        """Row, head, outer and inner block of a step."""
        return (b, *step) if self.bias is None else (b, step[2], *step[:2])

    def _of_all_heads(self, spec: pl.BlockSpec) -> pl.BlockSpec:
        assert spec.block_shape is not None
        shape, index = (None, self.inputs.q.shape[1], *spec.block_shape[2:]), spec.index_map
        assert index is not None
        return pl.BlockSpec(shape, lambda *step: (index(*step)[0], 0, *index(*step)[2:]))

    def of_bias(self) -> Outputs:
        """Outputs for the gradients of what a traced bias reads, of each row of the batch."""
        rows, outputs = len(self.inputs.q), []
        for x in floats(self.inputs.operands[:3] if self.inputs.operands else ()):
            shape = rows, *(x.shape if x.ndim < 4 else x.shape[1:])
            whole = x.ndim < 4 or self.keys_first  # else a block of an entry of each query
            block = None, *shape[1:-1], shape[-1] if whole else self.plan.queries
            index = lambda b, i, *_, at=shape[1:-1], whole=whole: (
                b, *(0 for _ in at), 0 if whole else i
            )  # fmt: skip
            outputs.append((self.array(shape, x.dtype), pl.BlockSpec(block, index)))
        return outputs

    def specs(self) -> Inputs:
        """Which block of each array a step reads."""
        inputs, plan = self.inputs, self.plan
        of_queries = lambda x: None if x is None else self.tokens(x, 0)
        sums = None
        if inputs.sums is not None:
            shape = None, None, None, 1, inputs.sums.between.shape[-1]
            index = lambda b, h, i, j: (b, h, i, 0, 0)
            between = self._spec(shape, index, memory_space=pltpu.SMEM)
            until, after = self.tokens(inputs.sums.until, 0), self.tokens(inputs.sums.after, 1)
            sums = KeySums(until, after, between)
        rows = None
        if inputs.rows is not None:
            _, heads, _, _, size = inputs.rows[0].shape
            last = inputs.k.shape[3] // plan.keys - 1
            row = lambda n: self._spec(
                (None, None, None, 1, size),
                lambda b, h, i, j: (0, h if heads > 1 else 0, last + i - j + n, 0, 0),
            )
            rows = row(0), row(1)
        if (operands := inputs.operands) is not None:
            whole = lambda x: self._spec(x.shape, lambda *step: (0,) * x.ndim)
            operands = jax.tree.map(whole, operands)._replace(
                q=[self.tokens(x, 0, heads=False) for x in operands.q],
                k=[self.tokens(x, 1, heads=False) for x in operands.k],
            )
        return Inputs(
            q=self.tokens(inputs.q, 0),
            k=self.tokens(inputs.k, 1),
            v=self.tokens(inputs.v, 1),
            q_mask=self.tokens(inputs.q_mask, 0, heads=False),
            k_mask=self.tokens(inputs.k_mask, 1, heads=False),
            rows=rows,
            sums=sums,
            operands=operands,
            g=of_queries(inputs.g),
            log=of_queries(inputs.log),
            delta=of_queries(inputs.delta),
        )

    def output(self, shape: tuple, dtype: Any, side: int) -> tuple[Any, pl.BlockSpec]:
        """An output of queries or keys, [B, H, ..., T]; see `tokens`.

        One of queries whose axis is the inner one is complete with the last block of keys.
        """
        array = self.array(shape, dtype)
        if not (self.keys_first and side == 0):
            return array, self.tokens(array, side)
        last = self.inputs.k.shape[3] // self.plan.keys - 1

        def index(*step):
            b, h, j, i = self._order(*step[:4])
            return b, h, *[0] * (len(shape) - 3), jnp.where(j == last, i, 0)

        return array, pl.BlockSpec((None, None, *shape[2:-1], self.plan.queries), index)

    def array(self, shape: tuple, dtype: Any) -> jax.ShapeDtypeStruct:
        """An output's array, which varies over the mesh axes that all inputs vary over."""
        axes = jax.typeof(self.inputs.q).manual_axis_type
        return jax.ShapeDtypeStruct(shape, dtype, manual_axis_type=axes)

    def tokens(self, x: Any, side: int, heads: bool = True) -> pl.BlockSpec:
        """A block of queries (0) or keys (1) of [B, H / group, ..., T], or of [B|1, ..., T]."""
        lead = 2 if heads else 1
        group = self.inputs.q.shape[1] // x.shape[1]

        def index(b, h, i, j):
            if heads:
                first = b, jax.lax.div(h, h.dtype.type(group)) if side else h
            else:
                first = (b if x.shape[0] > 1 else 0,)
            return *first, *[0] * (x.ndim - lead - 1), (i, j)[side]

        return self._spec((*[None] * lead, *x.shape[lead:-1], self.plan.queries), index)

    def _spec(self, shape: tuple, index: Callable, **memory) -> pl.BlockSpec:
        def of_step(*step):
            b, h, outer, inner = self._order(*step[:4])
            ranges = BlockRanges(*step[4:])
            first, end = ranges[2:4] if self.keys_first else ranges[:2]
            least, most = first[outer], jnp.maximum(end[outer] - 1, first[outer])
            if self.bias is not None:
                last = jnp.where(inner > most, self.inputs.q.shape[1] - 1, h)
                h = jnp.where(inner < least, 0, last)
            inner = jnp.clip(inner, least, most)
            i, j = (inner, outer) if self.keys_first else (outer, inner)
            return index(b, h, i, j)

        return pl.BlockSpec(shape, of_step, **memory)
