"""Attention in one fused kernel for a TPU, forward and backward, into which a bias enters.

As `blockwise`, but a block's logits never leave the chip's vector memory. Arrays are [B, H, C, T],
which a TPU stores without padding, and a block of logits is [K, Q]: the softmax then sums over
rows, which is cheaper than over lanes, and its state is one row of queries. Elsewhere the kernel is
interpreted, which is slow and for tests.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from posenc_jax.attention import kernel_blocks, traced_bias
from posenc_jax.attention.blockwise import NEVER, Plan, cut_tokens, fill, plan_of, sink_gradient
from posenc_jax.attention.derivatives import not_differentiated
from posenc_jax.attention.kernel_blocks import Given, Spans, Sums
from posenc_jax.attention.layers import LANES, Layer, Tokens
from posenc_jax.attention.softmax import sum_to
from posenc_jax.attention.traced_bias import Made, TracedBias, floats
from posenc_jax.tuning import tuned_for_tpu

Outputs = Sequence[tuple[Any, pl.BlockSpec]]  # of a kernel: shapes, and blocks of them
MEMORY = 96 * 2**20  # bytes of vector memory that a kernel may use; a v5e and a v6e have 128 MB


class Learned(NamedTuple):
    """What is added to logits: a relative bias's row in blocks, what a traced bias reads, and each
    key's summed features; and the sinks' logits.
    """

    row: jax.Array | None
    made: Made | None
    fade_BHK: jax.Array | None
    sink_H: jax.Array | None


def kernel(
    q_BQHC, k_BKHC, v_BKHC, layer: Layer, sink_H: jax.Array | None, cap: float | None
) -> jax.Array:
    """softmax(q k / sqrt(C) + bias) v over visible keys, [B, Q, H, C]; q and k are rotated."""
    plan, fade_BHK = plan_of(layer, cap), None
    if layer.encoding.walk is not None:
        assert layer.k_kept is not None
        fade_BKH = sum(jax.tree.leaves(layer.k_kept.feat))
        fade_BHK = jnp.where(layer.k.segment_BT[..., None] > 0, fade_BKH, 0).transpose(0, 2, 1)
    learned = Learned(layer.row_BHN, None, fade_BHK, sink_H)
    params = layer.params if layer.encoding.bias is not None and not plan.row else None
    return _kernel(plan, q_BQHC, k_BKHC, v_BKHC, learned, params, layer.q, layer.k)


@partial(jax.jit, static_argnums=0, inline=True)
def _kernel(plan: Plan, q_BQHC, k_BKHC, v_BKHC, learned, params, q: Tokens, k: Tokens) -> jax.Array:
    row_BHN, _, fade_BHK, sink_H = learned
    bias, made, of_pair = None, None, plan.encoding.bias
    if of_pair is not None and params is not None:
        placed = jax.tree.map(lambda x: fill(x, plan.keys), (q.placed, k.placed))
        bias = traced_bias.trace(of_pair, plan.dims, q_BQHC.dtype, params, *placed)
        made = traced_bias.make(bias, params, *placed)
    spans, q_seen, k_seen = _spans(plan, q, k)
    turned = lambda x: fill(x, plan.queries).transpose(0, 2, 3, 1)
    row = row_BHN
    if row_BHN is not None:  # in blocks, the lowest offset first, [1, H|1, I + J, 1, size]
        row = row_BHN[..., ::-1].reshape(*row_BHN.shape[:2], -1, 1, plan.keys)
    if fade_BHK is not None:
        pad = -fade_BHK.shape[2] % plan.keys
        fade_BHK = jnp.pad(fade_BHK.astype(jnp.float32), ((0, 0), (0, 0), (0, pad)))
    learned = Learned(row, made, fade_BHK, sink_H)
    qkv = turned(q_BQHC), turned(k_BKHC), turned(v_BKHC)
    o_BHCQ: jax.Array = _attention(plan, bias, *qkv, learned, spans, q_seen, k_seen)
    return o_BHCQ.transpose(0, 3, 1, 2)[:, : q_BQHC.shape[1]]


def _spans(plan: Plan, q: Tokens, k: Tokens) -> tuple[Spans, jax.Array, jax.Array]:
    """What steers the kernels, and what masks read of queries and keys: [B, 2, T]."""
    blocks = cut_tokens(plan, q._replace(placed=()), k._replace(placed=()))
    i, j = jnp.arange(len(blocks.q.index_BT))[:, None], jnp.arange(len(blocks.k.index_BT))[None]
    used_IJ = (blocks.first_I[:, None] <= j) & (j < blocks.end_I[:, None])
    some_J = used_IJ.any(axis=0)
    first_J = jnp.where(some_J, jnp.argmax(used_IJ, axis=0), 0)
    end_J = jnp.where(some_J, len(i) - jnp.argmax(used_IJ[::-1], axis=0), 0)

    def one(segment, none: int):
        low, high = segment.min(axis=(1, 2)), segment.max(axis=(1, 2))
        return jnp.where((low == high) & (low >= (1 if plan.mask else 0)), low, none)

    spans = Spans(
        blocks.first_I,
        blocks.end_I,
        first_J,
        end_J,
        one(blocks.q.segment_BT, -1),
        one(blocks.k.segment_BT, -2),
        blocks.q.index_BT.min(axis=(1, 2)),
        blocks.k.index_BT.max(axis=(1, 2)),
    )
    seen = lambda side, size, never: jnp.stack(
        [fill(side.index_BT, size, never), fill(side.segment_BT, size, -1)], axis=1
    )
    spans = Spans(*(x.astype(jnp.int32) for x in spans))
    return spans, seen(q, plan.queries, -1), seen(k, plan.keys, NEVER)


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _attention(plan: Plan, bias, q_BHCQ, k_BHCK, v_BHCK, learned, spans: Spans, q_seen, k_seen):
    return _forward(plan, bias, q_BHCQ, k_BHCK, v_BHCK, learned, spans, q_seen, k_seen)[0]


def _forward(plan: Plan, bias, q_BHCQ, k_BHCK, v_BHCK, learned, spans: Spans, q_seen, k_seen):
    rows = None if learned.row is None else (learned.row, learned.row)
    sums = None if learned.fade_BHK is None else _sums(learned.fade_BHK, plan.keys)
    given = Given(q_BHCQ, k_BHCK, v_BHCK, q_seen, k_seen, rows, sums, learned.made)
    grid = Grid(plan, bias, given, spans, keys_first=False)
    batch, heads, _, queries = q_BHCQ.shape
    width, one = v_BHCK.shape[2], (1, plan.queries)
    outputs = [
        (_array(given, (batch, heads, width, queries), v_BHCK.dtype), grid.queries(width)),
        (_array(given, (batch, heads, 1, queries), jnp.float32), grid.queries(1)),
    ]
    scratch = [one, one, (width, plan.queries)]
    o_BHCQ, log_BH1Q = grid.call(kernel_blocks.forward, outputs, scratch)
    if learned.sink_H is not None:
        log_BH1Q, before = jnp.logaddexp(log_BH1Q, learned.sink_H[None, :, None, None]), log_BH1Q
        o_BHCQ = (o_BHCQ * jnp.exp(before - log_BH1Q)).astype(o_BHCQ.dtype)
    return o_BHCQ, (given, spans, o_BHCQ, log_BH1Q, learned.sink_H)


def _backward(plan: Plan, bias, kept, g_BHCQ):
    given, spans, o_BHCQ, log_BH1Q, sink_H = kept
    drop_BH1Q = (g_BHCQ.astype(jnp.float32) * o_BHCQ.astype(jnp.float32)).sum(axis=2, keepdims=True)
    given = given._replace(g=g_BHCQ, log=log_BH1Q, drop=drop_BH1Q)
    like = lambda x: _array(given, x.shape, x.dtype)
    width, out = given.q.shape[2], given.v.shape[2]
    grid = Grid(plan, bias, given, spans, keys_first=False)
    outputs, scratch = [(like(given.q), grid.queries(width))], [(width, plan.queries)]
    if given.rows is not None:
        shape = *given.q.shape[:2], *given.rows[0].shape[2:]
        spec = pl.BlockSpec((None, None, *shape[2:]), lambda b, h, *_: (b, h, 0, 0, 0))
        outputs.append((_array(given, shape, jnp.float32), spec))
    if given.sums is not None:
        outputs.append((like(given.sums.until), grid.queries(1)))
        scratch.append((1, plan.queries))
    found = grid.call(kernel_blocks.backward_of_queries, outputs, scratch, grid.of_bias())
    dq_BHCQ, *of_queries = found[: len(outputs)]
    d_made = _made_gradient(found[len(outputs) :], given.made)
    grid = Grid(plan, bias, given, spans, keys_first=True)
    batch, _, _, keys = given.k.shape
    of = lambda x: _array(given, (batch, given.q.shape[1], x.shape[2], keys), x.dtype)
    outputs = [(of(given.k), grid.keys(width)), (of(given.v), grid.keys(out))]
    scratch = [(width, plan.keys), (out, plan.keys)]
    if given.sums is not None:
        outputs.append((like(given.sums.after), grid.keys(1)))
        scratch.append((plan.keys, LANES))
    dk_BHCK, dv_BHCK, *of_keys = grid.call(kernel_blocks.backward_of_keys, outputs, scratch)
    d_learned = Learned(
        None if given.rows is None else sum_to(of_queries[0], given.rows[0]),
        d_made,
        None if given.sums is None else _fade_gradient(of_queries[-1], of_keys[0]),
        sink_gradient(sink_H, log_BH1Q, drop_BH1Q),
    )
    dk_BHCK, dv_BHCK = (
        d.reshape(batch, x.shape[1], -1, *d.shape[2:]).sum(axis=2).astype(d.dtype)
        for d, x in ((dk_BHCK, given.k), (dv_BHCK, given.v))
    )
    return dq_BHCQ, dk_BHCK, dv_BHCK, d_learned, None, None, None


_attention.defvjp(_forward, _backward)


def _made_gradient(found: list[jax.Array], made: Made | None) -> Made | None:
    """Sums over rows of the batch; None of whole numbers, which have no gradient."""
    rest = iter(found)
    of = lambda x: sum_to(next(rest), x if x.ndim == 4 else x[None]).reshape(x.shape)
    gradient = lambda some: [of(x) if floats(x) else None for x in some]
    if made is None:
        return None
    d_whole, d_weights, d_q = map(gradient, made[:3])
    return Made(d_whole, d_weights, d_q, [None] * len(made.k))


def _array(given: Given, shape: tuple, dtype) -> jax.ShapeDtypeStruct:
    """An output of a kernel, which varies over the mesh axes that all inputs vary over."""
    return jax.ShapeDtypeStruct(shape, dtype, manual_axis_type=jax.typeof(given.q).manual_axis_type)


def _sums(fade_BHK: jax.Array, size: int) -> Sums:
    """Sums in each block, and between blocks. None is a difference of long sums, which is inexact:
    only inside one block, where `between` takes back the block's own total."""
    fade_BHNS = fade_BHK.reshape(*fade_BHK.shape[:2], -1, size)
    total_BHN = fade_BHNS.sum(axis=-1)
    flat = lambda x: x.reshape(*fade_BHK.shape[:2], 1, -1)
    after = lambda x: jnp.flip(jnp.cumsum(jnp.flip(x, -1), axis=-1), -1) - x
    i, j = (jnp.arange(total_BHN.shape[-1]).reshape(shape) for shape in ((-1, 1), (1, -1)))
    between = after(jnp.where((j < i)[None, None], total_BHN[:, :, None], 0))
    between = between - jnp.where((i == j)[None, None], total_BHN[:, :, None], 0)
    return Sums(
        flat(jnp.cumsum(fade_BHNS, axis=-1)), flat(after(fade_BHNS)), between[:, :, :, None]
    )


def _fade_gradient(d_until_BH1Q: jax.Array, d_after_BH1K: jax.Array) -> jax.Array:
    """A token's feature is in the logits of keys before it and of queries from it on: those are the
    pairs of all queries from it on, less the pairs of all keys from it on.
    """
    rest_BHK = (d_until_BH1Q - d_after_BH1K)[:, :, 0]
    return jnp.flip(jnp.cumsum(jnp.flip(rest_BHK, -1), axis=-1), -1)


class Grid(NamedTuple):
    """The steps of a kernel: every row and head, and every pair of blocks.

    bias:       a traced one is made of all heads at once, so heads are the innermost axis.
    keys_first: the axis of blocks of queries is inside that of keys.
    """

    plan: Plan
    bias: TracedBias | None
    given: Given
    spans: Spans
    keys_first: bool

    def call(self, body: Callable, outputs: Outputs, scratch: list[tuple], of_bias: Outputs = ()):
        """The kernel's outputs. Pairs of blocks that see nothing of each other fetch nothing.

        of_bias: outputs for the gradients of what a traced bias reads.
        """
        plan, bias, made = self.plan, self.bias, self.given.made
        batch, heads, _, queries = self.given.q.shape
        sizes = queries // plan.queries, self.given.k.shape[3] // plan.keys
        sizes = sizes[::-1] if self.keys_first else sizes
        grid, scalars = (batch, heads, *sizes), len(self.spans)
        specs, room = [spec for _, spec in outputs], []
        if made is not None:
            grid, specs = (batch, *sizes, heads), [*map(self._of_all_heads, specs)]
            scratch = [(heads, *shape) for shape in scratch]
            room = [pltpu.VMEM((plan.keys, x.shape[1]), x.dtype) for x in made.k]
            room.append(pltpu.VMEM((heads, plan.keys, plan.queries), jnp.float32))
        own, of_queries = len(outputs) + len(scratch), len(floats(made.q)) if made else 0
        each = "parallel" if bias is None else "arbitrary"

        def run(*refs):
            found, given, refs = Spans(*refs[:scalars]), refs[scalars], [*refs[scalars + 1 :]]
            _, h, outer, inner = self._order(*map(pl.program_id, range(4)))
            i, j = (inner, outer) if self.keys_first else (outer, inner)
            if bias is None:
                return body(plan, found, i, j, given, *refs)
            sums = [refs.pop(len(outputs)) for _ in of_bias]
            used, block = kernel_blocks.meet(found, i, j), (given.made, refs[own:-1], refs[-1])
            pl.when(used & (h == 0))(partial(traced_bias.fill, bias, *block))
            given = given._replace(bias=refs[-1].at[h])
            body(plan, found, i, j, given, *(ref.at[h] for ref in refs[:own]))
            for n, total in enumerate(sums):
                every = n >= len(sums) - of_queries  # these begin with each block of queries
                clear = partial(total.__setitem__, ..., jnp.zeros(total.shape, total.dtype))
                pl.when((j == 0) & (h == 0) & (every | (i == 0)))(clear)
            if sums:
                pl.when(used & (h == heads - 1))(partial(traced_bias.pull, bias, *block, sums))

        return pl.pallas_call(
            run,
            out_shape=[shape for shape, _ in (*outputs, *of_bias)],
            grid_spec=pltpu.PrefetchScalarGridSpec(
                num_scalar_prefetch=scalars,
                grid=grid,
                in_specs=[self.specs()],
                out_specs=[*specs, *(spec for _, spec in of_bias)],
                scratch_shapes=[*(pltpu.VMEM(shape, jnp.float32) for shape in scratch), *room],
            ),
            compiler_params=pltpu.CompilerParams(
                dimension_semantics=("parallel", each, "arbitrary", "arbitrary"),
                vmem_limit_bytes=MEMORY,
            ),
            interpret=not tuned_for_tpu(),
            name=body.__name__,
        )(*self.spans, not_differentiated(self.given))

    def _order(self, b, *step):
        """Row, head, outer and inner block of a step."""
        return (b, *step) if self.bias is None else (b, step[2], *step[:2])

    def _of_all_heads(self, spec: pl.BlockSpec) -> pl.BlockSpec:
        assert spec.block_shape is not None
        shape, index = (None, self.given.q.shape[1], *spec.block_shape[2:]), spec.index_map
        assert index is not None
        return pl.BlockSpec(shape, lambda *step: (index(*step)[0], 0, *index(*step)[2:]))

    def of_bias(self) -> Outputs:
        """Outputs for the gradients of what a traced bias reads, of each row of the batch."""
        rows, outputs = len(self.given.q), []
        for x in floats(self.given.made[:3] if self.given.made else ()):
            whole = x.ndim < 4  # else it is an entry of each query
            shape = rows, *(x.shape if whole else x.shape[1:])
            block = None, *shape[1:-1], shape[-1] if whole else self.plan.queries
            index = lambda b, i, *_, at=shape[1:-1], whole=whole: (
                b, *(0 for _ in at), 0 if whole else i
            )  # fmt: skip
            outputs.append((_array(self.given, shape, x.dtype), pl.BlockSpec(block, index)))
        return outputs

    def specs(self) -> Given:
        """Which block of each array a step reads."""
        given, plan = self.given, self.plan
        tokens = lambda x, side: self._spec(
            (None, *x.shape[1:-1], plan.queries),
            lambda b, h, i, j: (b if len(x) > 1 else 0, *[0] * (x.ndim - 2), (i, j)[side]),
        )
        sums = None
        if given.sums is not None:
            shape = None, None, None, 1, given.sums.between.shape[-1]
            index = lambda b, h, i, j: (b, h, i, 0, 0)
            between = self._spec(shape, index, memory_space=pltpu.SMEM)
            sums = Sums(self.queries(1), self.keys(1), between)
        rows = None
        if given.rows is not None:
            _, heads, _, _, size = given.rows[0].shape
            last = given.k.shape[3] // plan.keys - 1
            row = lambda n: self._spec(
                (None, None, None, 1, size),
                lambda b, h, i, j: (0, h if heads > 1 else 0, last + i - j + n, 0, 0),
            )
            rows = row(0), row(1)
        if (made := given.made) is not None:
            whole = lambda x: self._spec(x.shape, lambda *step: (0,) * x.ndim)
            made = jax.tree.map(whole, made)._replace(
                q=[tokens(x, 0) for x in made.q], k=[tokens(x, 1) for x in made.k]
            )
        some = lambda x: None if x is None else self.queries(x.shape[2])
        return Given(
            q=self.queries(given.q.shape[2]),
            k=self.keys(given.k.shape[2], given.q.shape[1] // given.k.shape[1]),
            v=self.keys(given.v.shape[2], given.q.shape[1] // given.v.shape[1]),
            q_seen=tokens(given.q_seen, 0),
            k_seen=tokens(given.k_seen, 1),
            rows=rows,
            sums=sums,
            made=made,
            g=some(given.g),
            log=some(given.log),
            drop=some(given.drop),
        )

    def queries(self, width: int) -> pl.BlockSpec:
        """A block of queries, [width, size], of [B, H, width, Q]."""
        shape = None, None, width, self.plan.queries
        return self._spec(shape, lambda b, h, i, j: (b, h, 0, i))

    def keys(self, width: int, group: int = 1) -> pl.BlockSpec:
        """A block of keys, [width, size], of [B, H / group, width, K]."""
        shape = None, None, width, self.plan.keys
        return self._spec(shape, lambda b, h, i, j: (b, jax.lax.div(h, h.dtype.type(group)), 0, j))

    def _spec(self, shape: tuple, index: Callable, **memory) -> pl.BlockSpec:
        def of_step(*step):
            b, h, outer, inner = self._order(*step[:4])
            spans = Spans(*step[4:])
            first, end = spans[2:4] if self.keys_first else spans[:2]
            least, most = first[outer], jnp.maximum(end[outer] - 1, first[outer])
            if self.bias is not None:
                last = jnp.where(inner > most, self.given.q.shape[1] - 1, h)
                h = jnp.where(inner < least, 0, last)
            inner = jnp.clip(inner, least, most)
            i, j = (inner, outer) if self.keys_first else (outer, inner)
            return index(b, h, i, j)

        return pl.BlockSpec(shape, of_step, **memory)
