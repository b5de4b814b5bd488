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

from posenc_jax.attention import triton_blocks as blocks
from posenc_jax.attention.blockwise import Plan, fill, plan_of, sink_gradient
from posenc_jax.attention.derivatives import not_differentiated
from posenc_jax.attention.kernel import fade_gradient, spans_of, summed, sums_of
from posenc_jax.attention.kernel_blocks import Spans
from posenc_jax.attention.layers import GPU_BLOCK, Layer
from posenc_jax.attention.scalars import Numbers, gather, reading
from posenc_jax.attention.softmax import sum_to
from posenc_jax.attention.traced_bias import floats, trace
from posenc_jax.attention.triton_blocks import Given
from posenc_jax.tuning import interpreted

WIDE = 128  # channels from which on a program has 8 warps instead of 4


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
    plan, of_bias, q, k = plan_of(layer, cap), layer.encoding.bias, layer.q, layer.k
    traced = made = None
    if of_bias is not None and layer.row_BHN is None:
        placed = jax.tree.map(lambda x: fill(x, plan.keys), (q.placed, k.placed))
        traced = reading(trace(of_bias, plan.dims, q_BQHC.dtype, layer.params, *placed))
        made = gather(traced, layer.params, *placed)
    fade_BHK = None if layer.encoding.walk is None else summed(layer, plan.keys)
    spans, q_seen, k_seen = spans_of(plan, q, k)
    qkv = (_powers(fill(x, plan.queries)) for x in (q_BQHC, k_BKHC, v_BKHC))
    learned = Learned(layer.row_BHN, made, fade_BHK, sink_H)
    o_BQHC: jax.Array = _attention(plan, traced, *qkv, learned, spans, q_seen, k_seen)
    return o_BQHC[:, : q_BQHC.shape[1], :, : v_BKHC.shape[3]]


def _powers(x_BTHC: jax.Array) -> jax.Array:
    """Channels filled up with zeros to a power of 2, as blocks in registers must be."""
    width = x_BTHC.shape[-1]
    more = max(GPU_BLOCK[0], 1 << (width - 1).bit_length()) - width
    return jnp.pad(x_BTHC, [(0, 0)] * 3 + [(0, more)])


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _attention(plan: Plan, traced, q_BQHC, k_BKHC, v_BKHC, learned, spans: Spans, q_seen, k_seen):
    return _forward(plan, traced, q_BQHC, k_BKHC, v_BKHC, learned, spans, q_seen, k_seen)[0]


def _forward(plan: Plan, traced, q_BQHC, k_BKHC, v_BKHC, learned, spans: Spans, q_seen, k_seen):
    sums = None if learned.fade_BHK is None else sums_of(learned.fade_BHK, plan.keys)
    row = learned.row_BHN
    given = Given(q_BQHC, k_BKHC, v_BKHC, q_seen, k_seen, row, sums, learned.made)
    batch, queries, heads, _ = q_BQHC.shape
    outputs = (*q_BQHC.shape[:3], v_BKHC.shape[3]), (batch, heads, queries)
    o_BQHC, log_BHQ = _call(
        blocks.forward, plan, traced, given, spans, _counts(spans)[0],
        *zip(outputs, (v_BKHC.dtype, jnp.float32), strict=True),
    )  # fmt: skip
    if learned.sink_H is not None:
        log_BHQ, before = jnp.logaddexp(log_BHQ, learned.sink_H[None, :, None]), log_BHQ
        share_BQH1 = jnp.exp(before - log_BHQ).swapaxes(1, 2)[..., None]
        o_BQHC = (o_BQHC * share_BQH1).astype(o_BQHC.dtype)
    return o_BQHC, (given, spans, o_BQHC, log_BHQ, learned.sink_H)


def _backward(plan: Plan, traced, kept, g_BQHC):
    given, spans, o_BQHC, log_BHQ, sink_H = kept
    drop_BQH = (g_BQHC.astype(jnp.float32) * o_BQHC.astype(jnp.float32)).sum(axis=-1)
    given = given._replace(g=g_BQHC, log=log_BHQ, drop=drop_BQH.swapaxes(1, 2))
    call = lambda body, count, *outputs: _call(body, plan, traced, given, spans, count, *outputs)
    (i, j), q, k, v = _counts(spans), given.q, given.k, given.v
    of_sums = lambda x: [] if given.sums is None else [(getattr(given.sums, x).shape, jnp.float32)]
    dq_BQHC, *d_until = call(blocks.backward_of_queries, i, (q.shape, q.dtype), *of_sums("until"))
    each = lambda x: ((*x.shape[:2], q.shape[2], x.shape[3]), x.dtype)
    dk, dv, *d_after = call(blocks.backward_of_keys, j, each(k), each(v), *of_sums("after"))
    d_learned = Learned(
        None if given.row is None else _row_gradient(call, given, spans),
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


def _counts(spans: Spans) -> tuple[int, int]:
    """Blocks of queries and of keys."""
    return len(spans.first_I), len(spans.first_J)


def _row_gradient(call: Callable, given: Given, spans: Spans) -> jax.Array:
    """The sum of what each diagonal of blocks has of it, which overlaps by a block."""
    (batch, _, heads, _), size = given.q.shape, given.row.shape[2] // sum(_counts(spans))
    diagonals = sum(_counts(spans)) - 1
    (d_BHN,) = call(
        blocks.gradient_of_row, diagonals, ((batch, heads, diagonals, 2 * size), jnp.float32)
    )
    one, after = [(0, 0)] * 2, [(0, 1), (0, 0)]
    first, second = d_BHN[..., :size], d_BHN[..., size:]
    row_BHN = jnp.pad(first, one + after) + jnp.pad(second, [*one, after[0][::-1], after[1]])
    return sum_to(row_BHN.reshape(batch, heads, -1), given.row)


def _made_gradient(call: Callable, given: Given, count: int) -> Numbers:
    """Of each number that is a float; None of whole numbers."""
    (batch, queries, heads, _), made = given.q.shape, given.made
    outputs = [((batch, heads, count, x.shape[1]), x.dtype) for x in floats(made.whole)]
    outputs += [((batch, heads, x.shape[2], queries), x.dtype) for x in floats(made.q)]
    found = iter(call(blocks.gradient_of_numbers, count, *outputs) if outputs else [])
    whole = lambda x: sum_to(next(found).sum(axis=(0, 2))[:, None], x[:, None])[:, 0]
    return Numbers(
        [whole(x) if floats(x) else None for x in made.whole],
        [sum_to(next(found), x) if floats(x) else None for x in made.q],
        [None] * len(made.k),
    )


def _call(body: Callable, plan: Plan, traced, given: Given, spans: Spans, count: int, *outputs):
    """The outputs of a kernel with `count` blocks for each row and head; each: shape and dtype."""
    batch, _, heads, width = given.q.shape

    def run(given, spans, *found):
        n, h, b = map(pl.program_id, range(3))
        body(blocks.Program(plan, traced, given, spans, b, h), n, *found)

    axes = jax.typeof(given.q).manual_axis_type
    return pl.pallas_call(
        run,
        grid=(count, heads, batch),
        out_shape=[jax.ShapeDtypeStruct(*x, manual_axis_type=axes) for x in outputs],
        compiler_params=gpu.CompilerParams(num_warps=8 if width >= WIDE else 4, num_stages=2),
        interpret=interpreted(),
        name=body.__name__,
    )(not_differentiated(given), spans)
