"""Attention in one fused kernel for a TPU, forward and backward, into which a bias enters.

As `blockwise`, but a block's logits never leave the chip's vector memory. Arrays are [B, H, C, T],
which a TPU stores without padding, and a block of logits is [K, Q]: the softmax then sums over
rows, which is cheaper than over lanes, and its state is one row of queries. Elsewhere the kernel is
interpreted, which is slow and for tests.

README.md in this folder draws how it is put together.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from posenc_jax import encoding as hooks
from posenc_jax.attention.block_plan import Plan, fill, plan_of
from posenc_jax.attention.block_sizes import LANES
from posenc_jax.attention.kernels import tpu_bias, tpu_blocks
from posenc_jax.attention.kernels.block_ranges import BlockRanges, block_ranges
from posenc_jax.attention.kernels.interface import refused_method
from posenc_jax.attention.kernels.key_sums import feature_gradient, key_sums, summed_features
from posenc_jax.attention.kernels.tpu_bias import Operands
from posenc_jax.attention.kernels.tpu_blocks import Inputs, Sides
from posenc_jax.attention.kernels.tpu_grid import Grid
from posenc_jax.attention.kernels.traced_bias import TracedBias, floats, trace
from posenc_jax.attention.layers import Layer
from posenc_jax.attention.score_options import ScoreOptions
from posenc_jax.attention.softmax import known, sink_gradient, sum_to
from posenc_jax.backends.form_choice import holds
from posenc_jax.backends.target import tuned_for, vector_memory


class Learned(NamedTuple):
    """What is added to logits, and has a gradient.

    row:      of a relative bias, in blocks, the lowest offset first, [1, H|1, I + J, 1, size].
    operands: what a traced bias reads.
    fade_BHK: each key's summed features, see `key_sums`.
    sink_H:   the sinks' logits.
    """

    row: jax.Array | None
    operands: Operands | None
    fade_BHK: jax.Array | None
    sink_H: jax.Array | None


def refuses(layer: Layer) -> str:
    """Why this kernel does not take the method of a layer; "" if it does."""
    dims = layer.dims
    by_row = layer.encoding.relative and layer.straight is not None
    traces = layer.encoding.bias is not None and not by_row
    if traces and tuned_for("tpu") and not holds(dims.heads, dims.head, LANES):
        return f"a bias of {dims.heads} heads of {dims.head}: they do not fit in the chip's memory"
    return refused_method(layer, lambda traced: "")


def refuses_call(q_BQHC, k_BKGC, v_BKGC, options: ScoreOptions) -> str:
    """It takes all arrays and options."""
    return ""


def fits(layer: Layer) -> bool:
    """It takes tokens in any order."""
    return True


@partial(jax.jit, inline=True)
def kernel(
    q_BQHC, k_BKHC, v_BKHC, layer: Layer, options: ScoreOptions
) -> tuple[jax.Array, jax.Array]:
    """softmax(q k / sqrt(C) + bias) v over visible keys, and the log-sum-exp; see `Kernel`."""
    plan, row, q, k = plan_of(layer, options.cap), None, layer.q, layer.k
    bias, operands = None, None
    fade_BHK = None if layer.encoding.walk is None else summed_features(layer, plan.keys)
    if layer.row_BHN is not None:
        row = layer.row_BHN[..., ::-1].reshape(*layer.row_BHN.shape[:2], -1, 1, plan.keys)
    elif layer.encoding.bias is not None:
        bias_fn = partial(hooks.bias, layer.encoding)
        placed = jax.tree.map(lambda x: fill(x, plan.keys), (q.placed, k.placed))
        bias = trace(bias_fn, plan.dims, q_BQHC.dtype, layer.params, *placed)
        operands = tpu_bias.operands(bias, layer.params, *placed)
    ranges, q_mask, k_mask = block_ranges(plan, q, k)
    tokens_last = lambda x: fill(x, plan.queries).transpose(0, 2, 3, 1)
    learned = Learned(row, operands, fade_BHK, options.sink_H)
    qkv = tokens_last(q_BQHC), tokens_last(k_BKHC), tokens_last(v_BKHC)
    results: Any = _attention(plan, bias, *qkv, learned, ranges, q_mask, k_mask)
    o_BHCQ, log_BH1Q = results
    lse_BQH = known(log_BH1Q[:, :, 0]).swapaxes(1, 2)
    queries = q_BQHC.shape[1]
    return o_BHCQ.transpose(0, 3, 1, 2)[:, :queries], lse_BQH[:, :queries]


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _attention(plan: Plan, bias, q_BHCQ, k_BHCK, v_BHCK, learned, ranges, q_mask, k_mask):
    return _forward(plan, bias, q_BHCQ, k_BHCK, v_BHCK, learned, ranges, q_mask, k_mask)[0]


def _forward(plan: Plan, bias, q_BHCQ, k_BHCK, v_BHCK, learned, ranges, q_mask, k_mask):
    rows = None if learned.row is None else (learned.row, learned.row)
    sums = None if learned.fade_BHK is None else key_sums(learned.fade_BHK, plan.keys)
    inputs = Inputs(q_BHCQ, k_BHCK, v_BHCK, q_mask, k_mask, rows, sums, learned.operands)
    grid = Grid(plan, bias, inputs, ranges, keys_first=False)
    batch, heads, _, queries = q_BHCQ.shape
    width, line = v_BHCK.shape[2], (1, plan.queries)
    outputs = [
        grid.output((batch, heads, width, queries), v_BHCK.dtype, 0),
        grid.output((batch, heads, 1, queries), jnp.float32, 0),
    ]
    scratch = [line, line, (width, plan.queries)]
    o_BHCQ, log_BH1Q = grid.call("forward", tpu_blocks.forward, outputs, scratch)
    if learned.sink_H is not None:
        before = known(log_BH1Q)
        log_BH1Q = jnp.logaddexp(before, learned.sink_H[None, :, None, None])
        share_BH1Q = jnp.exp(before - log_BH1Q)
        o_BHCQ = (o_BHCQ.astype(jnp.float32) * share_BH1Q).astype(o_BHCQ.dtype)
    return (o_BHCQ, log_BH1Q), (inputs, ranges, o_BHCQ, log_BH1Q, learned.sink_H)


def _backward(plan: Plan, bias, residuals, gradients):
    inputs, ranges, o_BHCQ, log_BH1Q, sink_H = residuals
    g_BHCQ, g_log_BH1Q = gradients
    g_o_BHCQ = g_BHCQ.astype(jnp.float32) * o_BHCQ.astype(jnp.float32)
    # A logit's gradient is its weight times (what its value gets - delta + what the log gets).
    delta_BH1Q = g_o_BHCQ.sum(axis=2, keepdims=True) - g_log_BH1Q
    inputs = inputs._replace(g=g_BHCQ, log=log_BH1Q, delta=delta_BH1Q)
    if one_pass(plan, inputs):
        d_queries, d_bias, d_keys = _gradients(plan, bias, inputs, ranges, Sides(True, True))
    else:
        d_queries, d_bias, _ = _gradients(plan, bias, inputs, ranges, Sides(True, False))
        *_, d_keys = _gradients(plan, bias, inputs, ranges, Sides(False, True))
    (dq_BHCQ, *d_queries), (dk_BHCK, dv_BHCK, *d_keys) = d_queries, d_keys
    d_learned = Learned(
        None if inputs.rows is None else sum_to(d_queries[0], inputs.rows[0]),
        _operand_gradients(d_bias, inputs.operands),
        None if inputs.sums is None else feature_gradient(d_queries[-1], d_keys[0]),
        sink_gradient(sink_H, log_BH1Q, delta_BH1Q),
    )
    dk_BHCK, dv_BHCK = (  # summed over the heads of queries that share a head of keys
        d.reshape(d.shape[0], x.shape[1], -1, *d.shape[2:]).sum(axis=2).astype(d.dtype)
        for d, x in ((dk_BHCK, inputs.k), (dv_BHCK, inputs.v))
    )
    return dq_BHCQ, dk_BHCK, dv_BHCK, d_learned, None, None, None


_attention.defvjp(_forward, _backward)


def one_pass(plan: Plan, inputs: Inputs) -> bool:
    """Whether one kernel makes all gradients; otherwise one makes those of queries, one of keys.

    One kernel makes each block's logits once in place of twice. It keeps the sums of all queries,
    which must fit in a quarter of the vector memory. A traced bias keeps those of all heads.
    """
    _, heads, width, queries = inputs.q.shape
    together = 1 if inputs.operands is None else heads
    return 4 * together * width * queries <= vector_memory() // 4


def _gradients(
    plan: Plan, bias: TracedBias | None, inputs: Inputs, ranges: BlockRanges, sides: Sides
) -> tuple[list, list, list]:
    """Three lists of gradients: of queries, a relative bias's row and sums up to queries; of what a
    traced bias reads; of keys, values and sums after keys.

    They are of each row of the batch and each head of queries. Rows or heads that read the same
    array are not added up yet.
    """
    grid = Grid(plan, bias, inputs, ranges, sides.keys)
    batch, heads, width, queries = inputs.q.shape
    of_queries, of_keys, scratch = [], [], []
    if sides.queries:
        blocks = queries // plan.queries if sides.keys else 1
        of_queries.append(grid.output(inputs.q.shape, inputs.q.dtype, 0))
        scratch.append((blocks, width, plan.queries))
        if inputs.rows is not None:
            shape = batch, heads, *inputs.rows[0].shape[2:]
            spec = pl.BlockSpec((None, None, *shape[2:]), lambda b, h, *_: (b, h, 0, 0, 0))
            of_queries.append((grid.array(shape, jnp.float32), spec))
        if inputs.sums is not None:
            of_queries.append(grid.output(inputs.sums.until.shape, jnp.float32, 0))
            scratch.append((blocks, 1, plan.queries))
    if sides.keys:
        for x in (inputs.k, inputs.v):
            of_keys.append(grid.output((batch, heads, *x.shape[2:]), x.dtype, 1))
            scratch.append((x.shape[2], plan.keys))
        if inputs.sums is not None:
            of_keys.append(grid.output(inputs.sums.after.shape, jnp.float32, 1))
            scratch.append((plan.keys, LANES))
    of_bias = grid.of_bias() if sides.queries else []
    body = partial(tpu_blocks.backward, sides)
    outputs = grid.call("backward", body, [*of_queries, *of_keys], scratch, of_bias)
    cuts = len(of_queries), len(of_queries) + len(of_keys)
    return outputs[: cuts[0]], outputs[cuts[1] :], outputs[cuts[0] : cuts[1]]


def _operand_gradients(d_bias: list[jax.Array], operands: Operands | None) -> Operands | None:
    """The gradients of what a traced bias reads, summed over rows of the batch that read the same.

    None for arrays of whole numbers, and for positions.
    """
    if operands is None:
        return None
    gradients = iter(d_bias)

    def summed(x: jax.Array) -> jax.Array:
        return sum_to(next(gradients), x if x.ndim == 4 else x[None]).reshape(x.shape)

    def of_arrays(arrays: Sequence[jax.Array]) -> list[jax.Array | None]:
        return [summed(x) if floats(x) else None for x in arrays]

    d_whole, d_weights, d_q = map(of_arrays, operands[:3])
    return Operands(d_whole, d_weights, d_q, [None] * len(operands.k))
