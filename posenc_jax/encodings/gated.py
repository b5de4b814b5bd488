"""Methods that sum gates, made of content, over the tokens between a key and the query.

They read no positions, only the order of the keys that a query sees; padding, other documents and
later tokens add nothing. The papers are causal. In a bidirectional encoder, a query sums over all
of its keys, as if it were the last token.

Sums run backwards from the query to the key. The difference of two sums from the start would have a
rounding error that grows with the position: half a unit at 1e7.
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.backends.table_lookup import look_up_each
from posenc_jax.combinators import each_layer
from posenc_jax.dtypes import widest
from posenc_jax.encoding import Encoding, Walk
from posenc_jax.encodings.bias import layered
from posenc_jax.encodings.card import Count, register

# Keys whose sums are one product with a triangle of ones; the totals of such stretches are summed
# in the same way. Forward and backward for 4 heads of 512 x 512 on the CPU this takes 2.3 ms, a
# cumulative sum 13 ms, one triangle 40 ms.
STRETCH = 32
WALL_STRETCH = 16  # keys whose decays are in memory at once, [B, H, Q, WALL_STRETCH, C]


def stretches(x: jax.Array, axis: int, most: int) -> jax.Array:
    """Splits an axis in two, [..., number, stretch, ...], into stretches of at most `most`, padded
    with zeros.
    """
    size = x.shape[axis]
    stretch = min(most, size)
    pads = [(0, 0)] * x.ndim
    pads[axis] = (0, -size % stretch)
    return jnp.pad(x, pads).reshape(*x.shape[:axis], -1, stretch, *x.shape[axis + 1 :])


def sums_after(x_BHQK: jax.Array, carry_BHQ1: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The sum over all later keys of each key, in the block and in `carry`; and the new carry."""
    after_BHQK = _after(x_BHQK) + carry_BHQ1
    return after_BHQK, after_BHQK[..., :1] + x_BHQK[..., :1]


def _after(x_BHQK: jax.Array) -> jax.Array:
    """The sum over the later keys of each key within the block, [B, H, Q, K]."""
    x_BHQMS = stretches(x_BHQK, 3, STRETCH)
    size, stretch = x_BHQK.shape[-1], x_BHQMS.shape[-1]
    # Tensor cores would round the terms to a few bits.
    later_SS = np.tril(np.ones((stretch, stretch), x_BHQK.dtype), -1)
    sums_BHQMS = jnp.matmul(x_BHQMS, later_SS, precision="highest")
    if size > stretch:
        sums_BHQMS = sums_BHQMS + _after(x_BHQMS.sum(-1))[..., None]
    return sums_BHQMS.reshape(*x_BHQK.shape[:-1], -1)[..., :size]


def no_vector(params, q, width: int | None = None) -> jax.Array:
    """The carry of queries that have met no key: zeros [B, H, Q, C], or of another width."""
    return jnp.zeros_like(q.x_BTHC[..., :width].swapaxes(1, 2), widest(q.x_BTHC.dtype))


no_sum = partial(no_vector, width=1)


def by_stretches(step: Callable, most: int) -> Callable:
    """A `score` that processes the keys of a block in stretches of at most `most`, from last to
    first.

    step(q_BHQC, carry_BHQC, k_BHSC, *features of keys, visible_BHSQ) -> (the carry after a stretch,
    what is added to q.k of its keys, [B, H, Q, S]). visible_BHSQ is [B, H|1, S, Q].
    """

    def score(params, s_BHQK, q, k, visible_BHQK, carry_BHQC):
        wide, size = s_BHQK.dtype, s_BHQK.shape[-1]
        heads_first = lambda x: jnp.moveaxis(x.astype(wide), 1, 2)
        q_BHQC, *keys = map(heads_first, (q.x_BTHC, k.x_BTHC, *jax.tree.leaves(k.feat)))
        keys.append(jnp.moveaxis(visible_BHQK, 3, 2))
        keys_M = [jnp.moveaxis(stretches(x, 2, most), 2, 0) for x in keys]
        add_stretch = lambda carry_BHQC, stretch: step(q_BHQC, carry_BHQC, *stretch)
        carry_BHQC, added_MBHQS = jax.lax.scan(add_stretch, carry_BHQC, keys_M, reverse=True)
        added_BHQK = jnp.moveaxis(added_MBHQS, 0, 3).reshape(*s_BHQK.shape[:3], -1)[..., :size]
        return s_BHQK + added_BHQK * q.factor, carry_BHQC

    return score


def affine(x_BTD: jax.Array, w: jax.Array, b: jax.Array | None = None) -> jax.Array:
    """x W + b for a matrix [D, ...] and a vector [...]; float32 or wider."""
    wide = widest(x_BTD.dtype)
    projected = jnp.tensordot(x_BTD.astype(wide), w.astype(wide), 1)
    return projected if b is None else projected + b.astype(wide)[None, None]


def log_gates(params, x_BTD: jax.Array) -> jax.Array:
    """`prepare` of gates: ln sigmoid(x W + b), [B, T, ...]."""
    return jax.nn.log_sigmoid(affine(x_BTD, params["gate"], params["gate_bias"]))


@register(
    kind="content",
    formula="q.(k + E[p]) / sqrt(C), p = sum of sigmoid(q.k[l] / sqrt(C)) over l = j .. i",
    paper="Golovneva et al. 2024, arXiv 2405.18719",
    beyond="clamp",
    axes=0,
)
def cope(length: Count = 64, scaled: bool = True, shared: bool = False) -> Encoding:
    """CoPE: a key's position is the number of tokens from it to the query, counted by soft gates.

    All heads of a layer share the table, which starts at 0 and is interpolated between rows. Gates
    are made of the logits with the biases of other methods before this one. Left out: gates from
    values or from separate keys, variants in the paper.

    Args:
      length: rows of the table; counts from length - 1 on read the last row.
      scaled: False adds q.E[p] not divided by sqrt(C), as the listing in the paper's appendix does,
        unlike its formula and the released code.
    """
    last = length - 1
    init = lambda key, dims: {"table": jnp.zeros((length, dims.head))}

    def start(params, q):
        e_PC = params["table"].astype(q.x_BTHC.dtype)
        wide = widest(q.x_BTHC.dtype)
        z_BHQP = jnp.einsum("bqhc,pc->bhqp", q.x_BTHC, e_PC, preferred_element_type=wide)
        return z_BHQP * (q.factor if scaled else 1.0), no_sum(params, q)

    def score(params, s_BHQK, q, k, visible_BHQK, carry):
        z_BHQP, count_BHQ1 = carry
        gate_BHQK = jnp.where(visible_BHQK, jax.nn.sigmoid(s_BHQK), 0)
        after_BHQK, count_BHQ1 = sums_after(gate_BHQK, count_BHQ1)
        p_BHQK = jnp.minimum(after_BHQK + gate_BHQK, last)
        low_BHQK = p_BHQK.astype(jnp.int32)
        share_BHQK = p_BHQK - low_BHQK.astype(p_BHQK.dtype)
        at_low = look_up_each(z_BHQP, low_BHQK)
        at_high = look_up_each(z_BHQP, jnp.minimum(low_BHQK + 1, last))
        s_BHQK = s_BHQK + at_low + share_BHQK * (at_high - at_low)
        return s_BHQK, (z_BHQP, count_BHQ1)

    return layered(Encoding(init=init, walk=Walk(score=score, start=start)), shared)


@register(
    kind="content",
    formula="q.k / sqrt(C) + sum of ln sigmoid(w[h].x[l] + b[h]) over l = j + 1 .. i",
    paper="Lin et al. 2025, arXiv 2503.02130",
    axes=0,
)
def fox(gate_bias: float = 0.0) -> Encoding:
    """Forgetting attention: each token between a key and the query lowers its logit by a gate.

    Each layer and head has a gate, a function of the attention's input x, whose weights start
    small. Cable (arXiv 2503.08067) sums -softplus(w.x + b), which is the same with the signs of w
    and b changed, and starts in the same way; its code does not divide q.k by sqrt(C), as
    `attend(scale=1.0)`. Left out: the "Pro" block's norms, output gate, and shifts of k and v.

    Args:
      gate_bias: first value of b. At 0, as in the paper's code, each token between lowers a logit
        by ln 2; at ln n, n tokens lower it by about 1.
    """

    def init(key, dims):
        gate_DH = 0.02 * jax.random.normal(key, (dims.model, dims.heads))
        return {"gate": gate_DH, "gate_bias": jnp.full(dims.heads, gate_bias, float)}

    def score(params, s_BHQK, q, k, visible_BHQK, carry):
        fade_BHQK = k.feat.transpose(0, 2, 1)[:, :, None].astype(s_BHQK.dtype)
        fade_BHQK, carry = sums_after(jnp.where(visible_BHQK, fade_BHQK, 0), carry)
        return s_BHQK + fade_BHQK, carry

    walk = Walk(score=score, prepare=log_gates, start=no_sum, summed=True)
    return each_layer(Encoding(init=init, walk=walk))


@register(
    kind="content",
    formula="q.k / sqrt(C) + sum of ln sigmoid(A[h] x[i] . B[h] x[l] / sqrt(width)) over "
    "l = j .. i - 1",
    paper="no paper; the package's PerRowDataDependentAlibi, after arXiv 2503.02130",
    axes=0,
)
def fox_rows(width: Count = 8) -> Encoding:
    """Forgetting attention whose gates depend on the query too: each row has gates of its own.

    A gate is the product of two small vectors, one of the query and one of the token passed, both
    linear in the attention's input x; A and B have `width` rows for each layer and head. As in the
    package, a key's own gate counts and the query's does not, unlike `fox`; also where the query
    sees later tokens, it leaves out its own gate alone.

    Args:
      width: of the vectors that make a gate.
    """

    def init(key, dims):
        reader_key, keeper_key = jax.random.split(key)
        draw = lambda key: jax.random.normal(key, (dims.model, dims.heads, width))
        names = {"readers": reader_key, "keepers": keeper_key}
        return {name: dims.model**-0.5 * draw(key) for name, key in names.items()}

    def prepare(params, x_BTD):
        return affine(x_BTD, params["readers"]), affine(x_BTD, params["keepers"])

    def score(params, s_BHQK, q, k, visible_BHQK, carry):
        readers_BQHW, keepers_BKHW = q.feat[0], k.feat[1]
        gate_BHQK = jnp.einsum("bqhw,bkhw->bhqk", readers_BQHW, keepers_BKHW) * width**-0.5
        other_BQK = q.token_BT[:, :, None] != k.token_BT[:, None]
        passed_BHQK = visible_BHQK & other_BQK[:, None]
        fade_BHQK = jnp.where(passed_BHQK, jax.nn.log_sigmoid(gate_BHQK).astype(s_BHQK.dtype), 0)
        after_BHQK, carry = sums_after(fade_BHQK, carry)
        return s_BHQK + after_BHQK + fade_BHQK, carry

    walk = Walk(score=score, prepare=prepare, start=no_sum)
    return each_layer(Encoding(init=init, walk=walk))


@register(
    kind="content",
    formula="sum over c of q[c] k[c] (product of sigmoid(W[h,c].x[l] + b[h,c]) over l = j + 1 .. i)"
    " / sqrt(C)",
    paper="Tilde Research, blog.tilderesearch.com/blog/wall-attn; fla-core's naive_wall_attn",
    axes=0,
)
def wall(gate_bias: float = 8.0) -> Encoding:
    """Wall attention: each token between a key and the query shrinks each channel of q.k by a gate.

    Each layer, head and channel has a gate, a function of the attention's input x. It is a decay
    inside the product, where that of `fox` is added to the logit. It is the exponential of a sum of
    at most 0, one for each channel of each pair of tokens, which cannot overflow. Left out: the
    optional gate for each head (the chain "wall+fox"), that of the output, and sinks, which
    `attend` has (`sink_H`).

    Args:
      gate_bias: first value of b; at 8, as in the public layer, gates start nearly open.
    """

    def init(key, dims):
        gate_DHC = 0.02 * jax.random.normal(key, (dims.model, dims.heads, dims.head))
        return {"gate": gate_DHC, "gate_bias": jnp.full((dims.heads, dims.head), gate_bias, float)}

    # The backward pass computes the decays of a stretch again: all of them are [B, H, Q, K, C].
    score = by_stretches(jax.checkpoint(_faded), WALL_STRETCH)
    return each_layer(Encoding(init=init, walk=Walk(score, log_gates, no_vector, corrects=True)))


def _faded(q_BHQC, fade_BHQC, k_BHSC, g_BHSC, visible_BHSQ):
    """`fade` after a stretch of keys, and what the gates add to q.k of each key.

    `fade` is the sum of the log gates between each query and the keys so far.
    """
    seen_BHQS1 = visible_BHSQ.swapaxes(2, 3)[..., None]
    gate_BHQSC = jnp.where(seen_BHQS1, g_BHSC[:, :, None], 0)
    later_BHQSC = jax.lax.cumsum(gate_BHQSC, axis=3, reverse=True) - gate_BHQSC
    lost_BHQSC = jnp.expm1(fade_BHQC[:, :, :, None] + later_BHQSC)
    args = q_BHQC, k_BHSC, lost_BHQSC
    added_BHQS = jnp.einsum("bhqc,bhsc,bhqsc->bhqs", *args, precision="highest")
    return fade_BHQC + gate_BHQSC.sum(3), added_BHQS


@register(
    kind="content",
    formula="weight b[j] * product of 1 - b[l] over l = j + 1 .. i - 1, b = sigmoid(q.k / sqrt(C))",
    paper="Tan et al. 2025, arXiv 2410.17980",
    axes=0,
)
def stick_breaking(own: bool = False) -> Encoding:
    """Weights without a softmax: each key, the nearest first, takes a share of what is left of 1.

    Weights sum to less than 1. The public model gives the rest to a learned vector, with a norm
    after it; as in the paper's formula, both are left out. The first token of a sequence attends to
    nothing and gets 0.

    Args:
      own: whether a query attends to its own token too; in the paper it does not.
    """

    def score(params, s_BHQK, q, k, visible_BHQK, carry):
        offered_BHQK = visible_BHQK
        if not own:
            other_BQK = q.token_BT[:, :, None] != k.token_BT[:, None]
            offered_BHQK = offered_BHQK & other_BQK[:, None]
        remaining_BHQK = jnp.where(offered_BHQK, jax.nn.log_sigmoid(-s_BHQK), 0)
        remaining_BHQK, carry = sums_after(remaining_BHQK, carry)
        log_BHQK = jnp.where(offered_BHQK, jax.nn.log_sigmoid(s_BHQK) + remaining_BHQK, -jnp.inf)
        return log_BHQK, carry

    return Encoding(walk=Walk(score=score, start=no_sum, weighs=True))
