"""Attention in fused kernels for a GPU, forward and backward, into which a bias enters.

As `tpu`, for a GPU. A program of a kernel has one block of queries, or of keys, and visits the
blocks of the other side in a loop; a block of logits is in its registers. No two programs add to
one place in memory, so two runs give the same bits. `triton` and `mosaic` are two languages of
these programs; here is what both have in common.

README.md in this folder draws how it is put together.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from posenc_jax import encoding as hooks
from posenc_jax.attention.block_plan import Plan, fill, plan_of
from posenc_jax.attention.kernels.block_ranges import BlockRanges, block_ranges, unmasked
from posenc_jax.attention.kernels.gpu_bias import Numbers, Reading, gather, reading
from posenc_jax.attention.kernels.gpu_program import Inputs, UnmaskedBlocks
from posenc_jax.attention.kernels.interface import refused_method
from posenc_jax.attention.kernels.key_sums import feature_gradient, key_sums, summed_features
from posenc_jax.attention.kernels.traced_bias import TracedBias, floats, trace
from posenc_jax.attention.layers import Layer
from posenc_jax.attention.score_options import ScoreOptions
from posenc_jax.attention.softmax import known, sink_gradient, sum_to

# Pairs of blocks up to which XLA may see that a layout is constant. It then computes ranges when it
# compiles, which saves a GPU some small kernels, and takes minutes for millions of pairs.
FOLDED = 2**15
TOGETHER = 12  # numbers of a traced bias whose gradients one kernel makes


class Learned(NamedTuple):
    """What is added to logits, and has a gradient.

    row_BHN:  of a relative bias, see `Layer.row_BHN`.
    numbers:  what a traced bias reads.
    fade_BHK: each key's summed features, see `key_sums`.
    sink_H:   the sinks' logits.
    """

    row_BHN: jax.Array | None
    numbers: Numbers | None
    fade_BHK: jax.Array | None
    sink_H: jax.Array | None


class Programs(NamedTuple):
    """The programs of the kernels in one language; static, so it is hashable.

    call(body, plan, traced, inputs, steering, count, *outputs) runs a body for `count` blocks of
    each row and head, and returns its outputs, of which the shape and dtype are given. The bodies
    are in the order in which a backward pass calls them:

    forward:  the output, [B, Q, H, C], and the logarithm of each query's sum, [B, H, Q].
    queries:  gradients of queries, [B, Q, H, C], and of sums up to them.
    keys:     gradients of keys and of values for each head of queries, and of sums after keys.
    row:      the gradient of a row of offsets, of each diagonal of blocks the sums along its
      diagonals, [B, H, I + J - 1, 2 size].
    numbers:  those of a group of the numbers that a traced bias reads, [B, H, N, Q].
    """

    call: Callable
    forward: Callable
    queries: Callable
    keys: Callable
    row: Callable
    numbers: Callable


def refuses(layer: Layer) -> str:
    """Why kernels of a GPU do not take the method of a layer; "" if they do."""

    def of_bias(traced: TracedBias) -> str:
        return "a bias of many operations" if reading(traced).heavy and layer.chosen else ""

    return refused_method(layer, of_bias)


def attention(
    programs: Programs, least: int, q_BQHC, k_BKHC, v_BKHC, layer: Layer, options: ScoreOptions
) -> tuple[jax.Array, jax.Array]:
    """What `interface.Kernel.kernel` returns.

    least: channels of which arrays have a multiple, powers of 2 of it.
    """
    plan, q, k = plan_of(layer, options.cap), layer.q, layer.k
    traced, numbers, row_BHN = None, None, layer.row_BHN
    if layer.encoding.bias is not None:
        placed = jax.tree.map(lambda x: fill(x, plan.keys), (q.placed, k.placed))
        if (traced := _reading(plan, q_BQHC.dtype, layer, placed)) is not None:
            row_BHN, plan = None, plan._replace(row=False, hidden=False)
            numbers = gather(traced, layer.params, *placed)
    fade_BHK = None if layer.encoding.walk is None else summed_features(layer, plan.keys)
    # Behind the barrier XLA does not see that the layout is constant, see `FOLDED`.
    if q_BQHC.shape[1] * k_BKHC.shape[1] > FOLDED * plan.queries * plan.keys:
        q, k = jax.lax.optimization_barrier((q, k))
    ranges, q_mask, k_mask = block_ranges(plan, q, k)
    steering = ranges, _unmasked_blocks(plan, ranges)
    qkv = (_filled_channels(fill(x, plan.queries), least) for x in (q_BQHC, k_BKHC, v_BKHC))
    learned = Learned(row_BHN, numbers, fade_BHK, options.sink_H)
    arrays = *qkv, learned, steering, q_mask, k_mask
    results: Any = _attention(programs, plan, traced, *arrays)
    o_BQHC, log_BHQ = results
    lse_BQH = known(log_BHQ).swapaxes(1, 2)
    queries = q_BQHC.shape[1]
    return o_BQHC[:, :queries, :, : v_BKHC.shape[3]], lse_BQH[:, :queries]


def _reading(plan: Plan, dtype, layer: Layer, placed: tuple) -> Reading | None:
    """How the bias is read number by number; None: it is looked up in its row of offsets."""
    bias_fn = partial(hooks.bias, layer.encoding)
    try:
        traced = reading(trace(bias_fn, plan.dims, dtype, layer.params, *placed))
    except NotImplementedError:
        if layer.row_BHN is None:
            raise
        return None
    return traced if layer.row_BHN is None or traced.fast else None


def _unmasked_blocks(plan: Plan, ranges: BlockRanges) -> UnmaskedBlocks:
    """Which blocks need no mask."""
    i, j = (jnp.arange(len(x), dtype=jnp.int32) for x in (ranges.first_I, ranges.first_J))
    segments = ranges.segment_I[:, None], ranges.segment_J[None]
    whole_IJ = unmasked(plan, *segments, ranges.low_I[:, None], ranges.high_J[None])
    stop_IJ = ~whole_IJ & (j[None] >= ranges.first_I[:, None])
    end_I = jnp.where(stop_IJ.any(axis=1), jnp.argmax(stop_IJ, axis=1), len(j))
    before_IJ = ~whole_IJ & (i[:, None] < ranges.end_J[None])
    last_J = len(i) - jnp.argmax(before_IJ[::-1], axis=0)
    first_J = jnp.where(before_IJ.any(axis=0), last_J, 0)
    clip = lambda x, least, most: jnp.minimum(jnp.maximum(x, least), most).astype(jnp.int32)
    end_I = clip(end_I, ranges.first_I, ranges.end_I)
    return UnmaskedBlocks(end_I, clip(first_J, ranges.first_J, ranges.end_J))


def _filled_channels(x_BTHC: jax.Array, least: int) -> jax.Array:
    """Channels filled up with zeros to a power of 2, as blocks in registers must be."""
    width = x_BTHC.shape[-1]
    more = max(least, 1 << (width - 1).bit_length()) - width
    return jnp.pad(x_BTHC, [(0, 0)] * 3 + [(0, more)])


@partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def _attention(programs, plan, traced, q_BQHC, k_BKHC, v_BKHC, learned, steering, q_mask, k_mask):
    arrays = q_BQHC, k_BKHC, v_BKHC, learned, steering, q_mask, k_mask
    return _forward(programs, plan, traced, *arrays)[0]


def _forward(
    programs: Programs,
    plan: Plan,
    traced,
    q_BQHC,
    k_BKHC,
    v_BKHC,
    learned,
    steering,
    q_mask,
    k_mask,
):
    sums = None if learned.fade_BHK is None else key_sums(learned.fade_BHK, plan.keys)
    row = learned.row_BHN
    inputs = Inputs(q_BQHC, k_BKHC, v_BKHC, q_mask, k_mask, row, sums, learned.numbers)
    batch, queries, heads, _ = q_BQHC.shape
    outputs = (*q_BQHC.shape[:3], v_BKHC.shape[3]), (batch, heads, queries)
    o_BQHC, log_BHQ = programs.call(
        programs.forward, plan, traced, inputs, steering, _counts(steering)[0],
        *zip(outputs, (v_BKHC.dtype, jnp.float32), strict=True),
    )  # fmt: skip
    if learned.sink_H is not None:
        before = known(log_BHQ)
        log_BHQ = jnp.logaddexp(before, learned.sink_H[None, :, None])
        share_BQH1 = jnp.exp(before - log_BHQ).swapaxes(1, 2)[..., None]
        o_BQHC = (o_BQHC.astype(jnp.float32) * share_BQH1).astype(o_BQHC.dtype)
    return (o_BQHC, log_BHQ), (inputs, steering, o_BQHC, log_BHQ, learned.sink_H)


def _backward(programs: Programs, plan: Plan, traced, residuals, gradients):
    inputs, steering, o_BQHC, log_BHQ, sink_H = residuals
    g_BQHC, g_log_BHQ = gradients
    delta_BQH = (g_BQHC.astype(jnp.float32) * o_BQHC.astype(jnp.float32)).sum(axis=-1)
    # A logit's gradient is its weight times (what its value gets - delta + what the log gets).
    delta_BHQ = delta_BQH.swapaxes(1, 2) - g_log_BHQ
    inputs = inputs._replace(g=g_BQHC, log=log_BHQ, delta=delta_BHQ)
    call = lambda body, *args: programs.call(body, plan, traced, inputs, steering, *args)
    (i, j), (q, k, v, sums) = _counts(steering), (inputs.q, inputs.k, inputs.v, inputs.sums)
    of_sums = lambda name: [] if sums is None else [(getattr(sums, name).shape, jnp.float32)]
    dq_BQHC, *d_until = call(programs.queries, i, (q.shape, q.dtype), *of_sums("until"))
    # Of each head of queries; those that share a head of keys are added below.
    of_heads = lambda x: ((*x.shape[:2], q.shape[2], x.shape[3]), x.dtype)
    of_keys = of_heads(k), of_heads(v), *of_sums("after")
    dk, dv, *d_after = call(programs.keys, j, *of_keys)
    row = partial(_row_gradient, programs, call, inputs, steering)
    d_learned = Learned(
        None if inputs.row is None else row(),
        None if inputs.numbers is None else _number_gradients(programs, call, inputs, i),
        None if inputs.sums is None else feature_gradient(*d_until, *d_after),
        sink_gradient(sink_H, log_BHQ[..., None], inputs.delta[..., None]),
    )
    dk_BKHC, dv_BKHC = (
        d.reshape(*x.shape[:3], -1, x.shape[3]).sum(axis=3).astype(d.dtype)
        for d, x in ((dk, k), (dv, v))
    )
    return dq_BQHC, dk_BKHC, dv_BKHC, d_learned, None, None, None


_attention.defvjp(_forward, _backward)


def _counts(steering: tuple[BlockRanges, UnmaskedBlocks]) -> tuple[int, int]:
    """Blocks of queries and of keys."""
    ranges, _ = steering
    return len(ranges.first_I), len(ranges.first_J)


def _row_gradient(programs: Programs, call: Callable, inputs: Inputs, steering) -> jax.Array:
    """The gradient of a row of offsets.

    A kernel makes the part of each diagonal of blocks, [2 size]; neighbours overlap by a block.
    """
    (batch, _, heads, _), size = inputs.q.shape, inputs.row.shape[2] // sum(_counts(steering))
    diagonals = sum(_counts(steering)) - 1
    shape = batch, heads, diagonals, 2 * size
    (d_BHN,) = call(programs.row, diagonals, (shape, jnp.float32))
    not_padded, after = [(0, 0)] * 2, [(0, 1), (0, 0)]
    first, second = d_BHN[..., :size], d_BHN[..., size:]
    row_BHN = jnp.pad(first, not_padded + after)
    row_BHN = row_BHN + jnp.pad(second, [*not_padded, after[0][::-1], after[1]])
    return sum_to(row_BHN.reshape(batch, heads, -1), inputs.row)


def _number_gradients(programs: Programs, call: Callable, inputs: Inputs, count: int) -> Numbers:
    """The gradients of the numbers that a traced bias reads; None for whole numbers and positions.

    A kernel makes `TOGETHER` of them: for more, intermediate values of the bias fill the registers.
    """
    (batch, queries, heads, _), numbers, first = inputs.q.shape, inputs.numbers, 0
    d_whole, d_q = [], []
    sides = (d_whole, numbers.whole, 1), (d_q, numbers.q, 2)
    for gradients, arrays, axis in sides:
        for x in arrays:
            size, parts = x.shape[axis], []
            for start in range(0, size if floats(x) else 0, TOGETHER):
                group = range(first + start, first + min(start + TOGETHER, size))
                shape = batch, heads, len(group), queries
                body = partial(programs.numbers, group)
                parts += call(body, count, (shape, x.dtype))
            first += size
            if axis == 1:
                parts = [d_BHNQ.sum(axis=(0, 3)) for d_BHNQ in parts]
            joined = jnp.concatenate(parts, axis=axis) if parts else None
            gradients.append(None if joined is None else sum_to(joined[None], x[None])[0])
    return Numbers(d_whole, d_q, [None] * len(numbers.k))
