"""Attention in one fused kernel for a TPU, forward and backward, into which a bias enters.

As `blockwise`, but a block's logits never leave the chip's vector memory. Arrays are [B, H, C, T],
which a TPU stores without padding, and a block of logits is [K, Q]: the softmax then sums over
rows, which is cheaper than over lanes, and its state is one row of queries. Elsewhere the kernel is
interpreted, which is slow and for tests.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from posenc_jax import encoding as hooks
from posenc_jax.attention.block_plan import Plan, fill, plan_of
from posenc_jax.attention.block_sizes import LANES
from posenc_jax.attention.kernels import tpu_bias, tpu_blocks
from posenc_jax.attention.kernels.block_ranges import Spans, spans_of
from posenc_jax.attention.kernels.key_sums import fade_gradient, summed, sums_of
from posenc_jax.attention.kernels.tpu_blocks import Given, Sides
from posenc_jax.attention.kernels.tpu_grid import Grid
from posenc_jax.attention.kernels.traced_bias import Made, floats, trace
from posenc_jax.attention.layers import Layer
from posenc_jax.attention.softmax import sink_gradient, sum_to
from posenc_jax.backends.target import vector_memory


class Learned(NamedTuple):
    """What is added to logits: a relative bias's row in blocks, what a traced bias reads, and each
    key's summed features; and the sinks' logits.
    """

    row: jax.Array | None
    made: Made | None
    fade_BHK: jax.Array | None
    sink_H: jax.Array | None


@partial(jax.jit, static_argnames="cap", inline=True)
def kernel(
    q_BQHC, k_BKHC, v_BKHC, layer: Layer, sink_H: jax.Array | None, cap: float | None
) -> jax.Array:
    """softmax(q k / sqrt(C) + bias) v over visible keys, [B, Q, H, C]; q and k are rotated."""
    plan, row, q, k = plan_of(layer, cap), None, layer.q, layer.k
    bias, made = None, None
    fade_BHK = None if layer.encoding.walk is None else summed(layer, plan.keys)
    if layer.row_BHN is not None:  # in blocks, the lowest offset first, [1, H|1, I + J, 1, size]
        row = layer.row_BHN[..., ::-1].reshape(*layer.row_BHN.shape[:2], -1, 1, plan.keys)
    elif layer.encoding.bias is not None:
        of_pair = partial(hooks.bias, layer.encoding)
        placed = jax.tree.map(lambda x: fill(x, plan.keys), (q.placed, k.placed))
        bias = trace(of_pair, plan.dims, q_BQHC.dtype, layer.params, *placed)
        made = tpu_bias.make(bias, layer.params, *placed)
    spans, q_seen, k_seen = spans_of(plan, q, k)
    turned = lambda x: fill(x, plan.queries).transpose(0, 2, 3, 1)
    learned = Learned(row, made, fade_BHK, sink_H)
    qkv = turned(q_BQHC), turned(k_BKHC), turned(v_BKHC)
    o_BHCQ: jax.Array = _attention(plan, bias, *qkv, learned, spans, q_seen, k_seen)
    return o_BHCQ.transpose(0, 3, 1, 2)[:, : q_BQHC.shape[1]]


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _attention(plan: Plan, bias, q_BHCQ, k_BHCK, v_BHCK, learned, spans: Spans, q_seen, k_seen):
    return _forward(plan, bias, q_BHCQ, k_BHCK, v_BHCK, learned, spans, q_seen, k_seen)[0]


def _forward(plan: Plan, bias, q_BHCQ, k_BHCK, v_BHCK, learned, spans: Spans, q_seen, k_seen):
    rows = None if learned.row is None else (learned.row, learned.row)
    sums = None if learned.fade_BHK is None else sums_of(learned.fade_BHK, plan.keys)
    given = Given(q_BHCQ, k_BHCK, v_BHCK, q_seen, k_seen, rows, sums, learned.made)
    grid = Grid(plan, bias, given, spans, keys_first=False)
    batch, heads, _, queries = q_BHCQ.shape
    width, one = v_BHCK.shape[2], (1, plan.queries)
    outputs = [
        grid.output((batch, heads, width, queries), v_BHCK.dtype, 0),
        grid.output((batch, heads, 1, queries), jnp.float32, 0),
    ]
    scratch = [one, one, (width, plan.queries)]
    o_BHCQ, log_BH1Q = grid.call("forward", tpu_blocks.forward, outputs, scratch)
    if learned.sink_H is not None:
        log_BH1Q, before = jnp.logaddexp(log_BH1Q, learned.sink_H[None, :, None, None]), log_BH1Q
        o_BHCQ = (o_BHCQ * jnp.exp(before - log_BH1Q)).astype(o_BHCQ.dtype)
    return o_BHCQ, (given, spans, o_BHCQ, log_BH1Q, learned.sink_H)


def _backward(plan: Plan, bias, kept, g_BHCQ):
    given, spans, o_BHCQ, log_BH1Q, sink_H = kept
    drop_BH1Q = (g_BHCQ.astype(jnp.float32) * o_BHCQ.astype(jnp.float32)).sum(axis=2, keepdims=True)
    given = given._replace(g=g_BHCQ, log=log_BH1Q, drop=drop_BH1Q)
    if one_pass(plan, given):
        of_queries, of_bias, of_keys = _gradients(plan, bias, given, spans, Sides(True, True))
    else:
        of_queries, of_bias, _ = _gradients(plan, bias, given, spans, Sides(True, False))
        *_, of_keys = _gradients(plan, bias, given, spans, Sides(False, True))
    (dq_BHCQ, *of_queries), (dk_BHCK, dv_BHCK, *of_keys) = of_queries, of_keys
    d_learned = Learned(
        None if given.rows is None else sum_to(of_queries[0], given.rows[0]),
        _made_gradient(of_bias, given.made),
        None if given.sums is None else fade_gradient(of_queries[-1], of_keys[0]),
        sink_gradient(sink_H, log_BH1Q, drop_BH1Q),
    )
    dk_BHCK, dv_BHCK = (
        d.reshape(d.shape[0], x.shape[1], -1, *d.shape[2:]).sum(axis=2).astype(d.dtype)
        for d, x in ((dk_BHCK, given.k), (dv_BHCK, given.v))
    )
    return dq_BHCQ, dk_BHCK, dv_BHCK, d_learned, None, None, None


_attention.defvjp(_forward, _backward)


def one_pass(plan: Plan, given: Given) -> bool:
    """Whether one kernel makes all gradients, for which it keeps the sums of all queries: they must
    fit in a quarter of the vector memory. A traced bias keeps those of all heads.
    """
    _, heads, width, queries = given.q.shape
    together = 1 if given.made is None else heads
    return 4 * together * width * queries <= vector_memory() // 4


def _gradients(plan: Plan, bias, given: Given, spans: Spans, sides: Sides) -> tuple[list, ...]:
    """Of queries, a relative bias's row and sums up to queries; of what a traced bias reads; of
    keys, values and sums after keys. They are not added yet where rows or heads read the same.
    """
    grid, (batch, heads, width, queries) = Grid(plan, bias, given, spans, sides.keys), given.q.shape
    of_queries, of_keys, scratch = [], [], []
    if sides.queries:
        blocks = queries // plan.queries if sides.keys else 1
        of_queries.append(grid.output(given.q.shape, given.q.dtype, 0))
        scratch.append((blocks, width, plan.queries))
        if given.rows is not None:
            shape = batch, heads, *given.rows[0].shape[2:]
            spec = pl.BlockSpec((None, None, *shape[2:]), lambda b, h, *_: (b, h, 0, 0, 0))
            of_queries.append((grid.array(shape, jnp.float32), spec))
        if given.sums is not None:
            of_queries.append(grid.output(given.sums.until.shape, jnp.float32, 0))
            scratch.append((blocks, 1, plan.queries))
    if sides.keys:
        for x in (given.k, given.v):
            of_keys.append(grid.output((batch, heads, *x.shape[2:]), x.dtype, 1))
            scratch.append((x.shape[2], plan.keys))
        if given.sums is not None:
            of_keys.append(grid.output(given.sums.after.shape, jnp.float32, 1))
            scratch.append((plan.keys, LANES))
    of_bias = grid.of_bias() if sides.queries else []
    body = partial(tpu_blocks.backward, sides)
    found = grid.call("backward", body, [*of_queries, *of_keys], scratch, of_bias)
    cuts = len(of_queries), len(of_queries) + len(of_keys)
    return found[: cuts[0]], found[cuts[1] :], found[cuts[0] : cuts[1]]


def _made_gradient(found: list[jax.Array], made: Made | None) -> Made | None:
    """Sums over rows of the batch; None of whole numbers, which have no gradient."""
    rest = iter(found)
    of = lambda x: sum_to(next(rest), x if x.ndim == 4 else x[None]).reshape(x.shape)
    gradient = lambda some: [of(x) if floats(x) else None for x in some]
    if made is None:
        return None
    d_whole, d_weights, d_q = map(gradient, made[:3])
    return Made(d_whole, d_weights, d_q, [None] * len(made.k))
