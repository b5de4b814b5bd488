"""Attention in fused kernels for a GPU, forward and backward, into which a bias enters.

As `kernel`, for a TPU. A program of a kernel has one block of queries, or of keys, and visits the
blocks of the other side in a loop; a block of logits [Q, K] is in its registers. No two programs
add to one place in memory, so two runs give the same bits. Where there is no GPU the kernels are
interpreted, which is slow and for tests.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as gpu

from posenc_jax import encoding as hooks
from posenc_jax.attention.block_plan import Plan, fill, plan_of
from posenc_jax.attention.block_sizes import GPU_BLOCK
from posenc_jax.attention.derivatives import not_differentiated
from posenc_jax.attention.kernels import triton_blocks as blocks
from posenc_jax.attention.kernels.block_ranges import Spans, spans_of
from posenc_jax.attention.kernels.key_sums import fade_gradient, summed, sums_of
from posenc_jax.attention.kernels.traced_bias import floats, trace
from posenc_jax.attention.kernels.triton_bias import Numbers, Reading, gather, reading
from posenc_jax.attention.kernels.triton_program import Given, Program, Whole
from posenc_jax.attention.layers import Layer
from posenc_jax.attention.softmax import sink_gradient, sum_to
from posenc_jax.backends.target import interpreted

# Pairs of blocks up to which XLA may see that a layout is constant. It then computes spans when it
# compiles, which saves a GPU some small kernels, and takes minutes for millions of pairs.
FOLDED = 2**15
TOGETHER = 12  # numbers of a traced bias whose gradients one kernel makes


class Learned(NamedTuple):
    """What is added to logits: a relative bias's row, what a traced bias reads, and each key's
    summed features; and the sinks' logits.
    """

    row_BHN: jax.Array | None
    made: Numbers | None
    fade_BHK: jax.Array | None
    sink_H: jax.Array | None


@partial(jax.jit, static_argnames="cap", inline=True)
def kernel(
    q_BQHC, k_BKHC, v_BKHC, layer: Layer, sink_H: jax.Array | None, cap: float | None
) -> jax.Array:
    """softmax(q k / sqrt(C) + bias) v over visible keys, [B, Q, H, C]; q and k are rotated."""
    plan, q, k = plan_of(layer, cap), layer.q, layer.k
    traced, made, row_BHN = None, None, layer.row_BHN
    if layer.encoding.bias is not None:
        placed = jax.tree.map(lambda x: fill(x, plan.keys), (q.placed, k.placed))
        if (traced := _reading(plan, q_BQHC.dtype, layer, placed)) is not None:
            row_BHN, plan = None, plan._replace(row=False, hidden=False)
            made = gather(traced, layer.params, *placed)
    fade_BHK = None if layer.encoding.walk is None else summed(layer, plan.keys)
    if q_BQHC.shape[1] * k_BKHC.shape[1] > FOLDED * plan.queries * plan.keys:
        q, k = jax.lax.optimization_barrier((q, k))
    spans, q_seen, k_seen = spans_of(plan, q, k)
    steering = spans, _whole(plan, spans)
    qkv = (_powers(fill(x, plan.queries)) for x in (q_BQHC, k_BKHC, v_BKHC))
    learned = Learned(row_BHN, made, fade_BHK, sink_H)
    o_BQHC: jax.Array = _attention(plan, traced, *qkv, learned, steering, q_seen, k_seen)
    return o_BQHC[:, : q_BQHC.shape[1], :, : v_BKHC.shape[3]]


def _reading(plan: Plan, dtype, layer: Layer, placed: tuple) -> Reading | None:
    """How the bias is read number by number; None: it is looked up in its row of offsets."""
    of_bias = partial(hooks.bias, layer.encoding)
    try:
        found = reading(trace(of_bias, plan.dims, dtype, layer.params, *placed))
    except NotImplementedError:
        if layer.row_BHN is None:
            raise
        return None
    return found if layer.row_BHN is None or found.fast else None


def _whole(plan: Plan, spans: Spans) -> Whole:
    """Which blocks need no mask. A relative bias's row has -inf for keys ahead of the query."""
    i, j = (jnp.arange(len(x), dtype=jnp.int32) for x in (spans.first_I, spans.first_J))
    whole_IJ = spans.one_I[:, None] == spans.one_J[None]
    if plan.causal and not plan.hidden:
        whole_IJ &= spans.low_I[:, None] >= spans.high_J[None]
    stop_IJ = ~whole_IJ & (j[None] >= spans.first_I[:, None])
    end_I = jnp.where(stop_IJ.any(axis=1), jnp.argmax(stop_IJ, axis=1), len(j))
    before_IJ = ~whole_IJ & (i[:, None] < spans.end_J[None])
    last_J = len(i) - jnp.argmax(before_IJ[::-1], axis=0)
    first_J = jnp.where(before_IJ.any(axis=0), last_J, 0)
    clip = lambda x, least, most: jnp.minimum(jnp.maximum(x, least), most).astype(jnp.int32)
    return Whole(clip(end_I, spans.first_I, spans.end_I), clip(first_J, spans.first_J, spans.end_J))


def _powers(x_BTHC: jax.Array) -> jax.Array:
    """Channels filled up with zeros to a power of 2, as blocks in registers must be."""
    width = x_BTHC.shape[-1]
    more = max(GPU_BLOCK[0], 1 << (width - 1).bit_length()) - width
    return jnp.pad(x_BTHC, [(0, 0)] * 3 + [(0, more)])


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _attention(plan: Plan, traced, q_BQHC, k_BKHC, v_BKHC, learned, steering, q_seen, k_seen):
    return _forward(plan, traced, q_BQHC, k_BKHC, v_BKHC, learned, steering, q_seen, k_seen)[0]


def _forward(plan: Plan, traced, q_BQHC, k_BKHC, v_BKHC, learned, steering, q_seen, k_seen):
    sums = None if learned.fade_BHK is None else sums_of(learned.fade_BHK, plan.keys)
    row = learned.row_BHN
    given = Given(q_BQHC, k_BKHC, v_BKHC, q_seen, k_seen, row, sums, learned.made)
    batch, queries, heads, _ = q_BQHC.shape
    outputs = (*q_BQHC.shape[:3], v_BKHC.shape[3]), (batch, heads, queries)
    o_BQHC, log_BHQ = _call(
        blocks.forward, plan, traced, given, steering, _counts(steering)[0],
        *zip(outputs, (v_BKHC.dtype, jnp.float32), strict=True),
    )  # fmt: skip
    if learned.sink_H is not None:
        log_BHQ, before = jnp.logaddexp(log_BHQ, learned.sink_H[None, :, None]), log_BHQ
        share_BQH1 = jnp.exp(before - log_BHQ).swapaxes(1, 2)[..., None]
        o_BQHC = (o_BQHC * share_BQH1).astype(o_BQHC.dtype)
    return o_BQHC, (given, steering, o_BQHC, log_BHQ, learned.sink_H)


def _backward(plan: Plan, traced, kept, g_BQHC):
    given, steering, o_BQHC, log_BHQ, sink_H = kept
    drop_BQH = (g_BQHC.astype(jnp.float32) * o_BQHC.astype(jnp.float32)).sum(axis=-1)
    given = given._replace(g=g_BQHC, log=log_BHQ, drop=drop_BQH.swapaxes(1, 2))
    call = lambda body, count, *outputs: _call(body, plan, traced, given, steering, count, *outputs)
    (i, j), q, k, v = _counts(steering), given.q, given.k, given.v
    of_sums = lambda x: [] if given.sums is None else [(getattr(given.sums, x).shape, jnp.float32)]
    dq_BQHC, *d_until = call(blocks.backward_of_queries, i, (q.shape, q.dtype), *of_sums("until"))
    each = lambda x: ((*x.shape[:2], q.shape[2], x.shape[3]), x.dtype)
    dk, dv, *d_after = call(blocks.backward_of_keys, j, each(k), each(v), *of_sums("after"))
    d_learned = Learned(
        None if given.row is None else _row_gradient(call, given, steering),
        None if given.made is None else _made_gradient(call, given, i),
        None if given.sums is None else fade_gradient(*d_until, *d_after),
        sink_gradient(sink_H, log_BHQ[..., None], given.drop[..., None]),
    )
    dk_BKHC, dv_BKHC = (
        d.reshape(*x.shape[:3], -1, x.shape[3]).sum(axis=3).astype(d.dtype)
        for d, x in ((dk, k), (dv, v))
    )
    return dq_BQHC, dk_BKHC, dv_BKHC, d_learned, None, None, None


_attention.defvjp(_forward, _backward)


def _counts(steering: tuple[Spans, Whole]) -> tuple[int, int]:
    """Blocks of queries and of keys."""
    spans, _ = steering
    return len(spans.first_I), len(spans.first_J)


def _row_gradient(call: Callable, given: Given, steering) -> jax.Array:
    """The sum of what each diagonal of blocks has of it, which overlaps by a block."""
    (batch, _, heads, _), size = given.q.shape, given.row.shape[2] // sum(_counts(steering))
    diagonals = sum(_counts(steering)) - 1
    (d_BHN,) = call(
        blocks.gradient_of_row, diagonals, ((batch, heads, diagonals, 2 * size), jnp.float32)
    )
    one, after = [(0, 0)] * 2, [(0, 1), (0, 0)]
    first, second = d_BHN[..., :size], d_BHN[..., size:]
    row_BHN = jnp.pad(first, one + after) + jnp.pad(second, [*one, after[0][::-1], after[1]])
    return sum_to(row_BHN.reshape(batch, heads, -1), given.row)


def _made_gradient(call: Callable, given: Given, count: int) -> Numbers:
    """Of each number that is a float; None of whole numbers.

    A kernel makes `TOGETHER` of them: of more, what the bias makes on the way fills the registers.
    """
    (batch, queries, heads, _), made, first = given.q.shape, given.made, 0
    found: tuple[list, list] = [], []
    for of_side, arrays, axis in zip(found, (made.whole, made.q), (1, 2), strict=True):
        for x in arrays:
            size, parts = x.shape[axis], []
            for start in range(0, size if floats(x) else 0, TOGETHER):
                group = range(first + start, first + min(start + TOGETHER, size))
                shape = (count, len(group)) if axis == 1 else (len(group), queries)
                body = partial(blocks.gradient_of_numbers, group)
                parts += call(body, count, ((batch, heads, *shape), x.dtype))
            first += size
            if axis == 1:
                parts = [d_BHIN.sum(axis=(0, 2)) for d_BHIN in parts]
            joined = jnp.concatenate(parts, axis=axis) if parts else None
            of_side.append(None if joined is None else sum_to(joined[None], x[None])[0])
    return Numbers(*found, [None] * len(made.k))


def _call(body: Callable, plan: Plan, traced, given: Given, steering, count: int, *outputs):
    """The outputs of a kernel with `count` blocks for each row and head; each: shape and dtype."""
    batch, _, heads, _ = given.q.shape

    def run(given, steering, *found):
        (spans, whole), (n, h, b) = steering, map(pl.program_id, range(3))
        body(Program(plan, traced, given, spans, whole, b, h), n, *found)

    warps = 8 if traced is not None and traced.heavy else 4
    stages = 2 if given.row is None else 1  # what is read of a row is not worth fetching ahead
    axes = jax.typeof(given.q).manual_axis_type
    return pl.pallas_call(
        run,
        grid=(count, heads, batch),
        out_shape=[jax.ShapeDtypeStruct(*x, manual_axis_type=axes) for x in outputs],
        compiler_params=gpu.CompilerParams(num_warps=warps, num_stages=stages),
        interpret=interpreted(),
        name=getattr(body, "func", body).__name__,
    )(not_differentiated(given), steering)
