"""Rotary by content: RePo's positions, made by each layer, TAPA's phases of two tokens, and angles
that are sums over the tokens between a key and the query (see `gated`).
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.combinators import each_layer
from posenc_jax.dtypes import widest
from posenc_jax.encoding import Encoding, Walk
from posenc_jax.encodings.bias import offsets
from posenc_jax.encodings.card import Count, Positive, register, require
from posenc_jax.encodings.gated import WALL_STRETCH, affine, by_stretches, no_vector
from posenc_jax.encodings.rotation import (
    Pairing,
    check_share,
    ladder,
    pairs_of_share,
    rotary,
    turns,
)
from posenc_jax.heads import tell_heads
from posenc_jax.options import FieldError


@register(
    kind="none",
    formula="as rope at positions z[h] = (silu(x G) * (x C)) P instead of t, real numbers",
    paper="Li et al. 2025 (RePo), arXiv 2512.14391",
    axes=0,
)
def repo(base: Positive = 10_000.0, hidden: Count = 256, pairing: Pairing = "half") -> Encoding:
    """RePo: rope at real positions that each layer makes of a token's content, for each head.

    It does not read a token's index: order comes from the causal mask, or from other layers. The
    paper has rope in the first layers: `per_layer([rope()] * 5 + [repo() for _ in range(11)])`.

    Args:
      hidden: width of the gated layer; the authors take an eighth of the model's, 2,048.
    """

    def init(key, dims):
        shapes = {"gate": (dims.model, hidden), "content": (dims.model, hidden)}
        shapes["position"] = hidden, dims.heads
        keys = jax.random.split(key, len(shapes))
        draw = lambda key, shape: 0.02 * jax.random.normal(key, shape)
        return {name: draw(k, shape) for k, (name, shape) in zip(keys, shapes.items(), strict=True)}

    @jax.default_matmul_precision("highest")  # a rounded position turns by another angle
    def locate(params, x_BTD, placed):
        wide = widest(x_BTD.dtype)
        x_BTD, w = x_BTD.astype(wide), jax.tree.map(lambda leaf: leaf.astype(wide), params)
        return (jax.nn.silu(x_BTD @ w["gate"]) * (x_BTD @ w["content"])) @ w["position"]

    def table(params, z_BTH, dims):
        freq_F = jnp.asarray(ladder(dims.head, base), z_BTH.dtype)
        return turns(z_BTH[..., None] * freq_F[None, None, None])

    return each_layer(rotary(pairing, table, init=init, locate=locate))


@register(
    kind="content",
    formula="q_A.k_A / sqrt(A) cos(2 pi |i - j|^power q_P.k_P / sqrt(P)), A = share C, P = C - A",
    paper="Wang et al. 2025, arXiv 2509.12635",
)
def tapa(share: float = 0.5, power: Positive = 0.1) -> Encoding:
    """TAPA: some channels make the logit, the others a phase that turns it as distance grows.

    Each head's first int(share C) channels of q and k make the amplitude, the rest the phase.
    Nothing is learned besides q and k. It takes the place of a rotation: in a chain the cosine
    multiplies the product of q and k, and no bias.

    Args:
      share: of a head's channels that make the amplitude.
      power: of the distance; at distance 0 the cosine is 1.

    FieldError: share not between 0 and 1; later, a head in which no channel is left for one of the
    two.
    """
    require(0 < share < 1, "share", share, "must be between 0 and 1, both excluded")

    def split(head: int) -> int:
        cut = int(share * head)
        if not 0 < cut < head:
            raise FieldError("head", f"{head} channels cannot be split at share {share}")
        return cut

    def init(key, dims):
        split(dims.head)
        return {}

    def table(params, placed, dims):
        # Attention divides by sqrt(C), not sqrt(A); the channels of the phase are not to count.
        cut = split(dims.head)
        factor_C = jnp.where(jnp.arange(dims.head) < cut, (dims.head / cut) ** 0.5, 0.0)
        return factor_C[None, None, None]

    def score(params, s_BHQK, q, k, visible_BHQK, carry):
        head = q.x_BTHC.shape[-1]
        cut, wide = split(head), widest(q.x_BTHC.dtype)
        dots = lambda a, b: jnp.einsum("bqhc,bkhc->bhqk", a, b, preferred_element_type=wide)
        amplitude = dots(q.x_BTHC[..., :cut], k.x_BTHC[..., :cut])
        amplitude = amplitude * ((head / cut) ** 0.5 * q.factor)
        phase = dots(q.x_BTHC[..., cut:], k.x_BTHC[..., cut:]) * (head - cut) ** -0.5
        away_BQK = jnp.abs(offsets(q.placed, k.placed)).astype(wide)
        # The derivative of a power below 1 is infinite at 0.
        far_BQK = jnp.where(away_BQK == 0, 0, jnp.where(away_BQK == 0, 1, away_BQK) ** power)
        turned = amplitude * (jnp.cos(2 * np.pi * far_BQK[:, None] * phase) - 1)
        return s_BHQK + turned.astype(s_BHQK.dtype), carry

    def rotate(factor, x_BTHC, side):
        wide_BTHC = x_BTHC.astype(factor.dtype) * factor
        return wide_BTHC.astype(x_BTHC.dtype) if side == "q" else x_BTHC

    walk = Walk(score=score, corrects=True)
    return Encoding(init=init, table=table, rotate=rotate, walk=walk)


def _pairs(x_BHTC: jax.Array, pairs: int, pairing: Pairing) -> tuple[jax.Array, jax.Array]:
    """The two channels of each of the first `pairs` pairs, [B, H, T, F] each."""
    x_BHTC = x_BHTC[..., : 2 * pairs]
    if pairing == "half":
        return x_BHTC[..., :pairs], x_BHTC[..., pairs:]
    return x_BHTC[..., ::2], x_BHTC[..., 1::2]


def _summed_angles(prepare: Callable, pairs_of: Callable, pairing: Pairing, **hooks) -> Encoding:
    """Turns q and k by the sum of angles of the tokens after the key, up to the query.

    Args:
      prepare: (params, x_BTD) -> the angle that each token adds, [B, T, H, F].
      pairs_of: params -> F.
      hooks: other hooks of the `Encoding` of one layer.
    """

    # The backward pass computes a stretch again: all of its cosines are [B, H, Q, K, F].
    @jax.checkpoint
    def step(q_BHQC, angle_BHQF, k_BHSC, added_BHSF, visible_BHSQ):
        pairs = added_BHSF.shape[-1]
        seen_BHQS1 = visible_BHSQ.swapaxes(2, 3)[..., None]
        added_BHQSF = jnp.where(seen_BHQS1, added_BHSF[:, :, None], 0)
        later_BHQSF = jax.lax.cumsum(added_BHQSF, axis=3, reverse=True) - added_BHQSF
        turned_BHQSF = angle_BHQF[:, :, :, None] + later_BHQSF
        (q0, q1), (k0, k1) = (_pairs(x, pairs, pairing) for x in (q_BHQC, k_BHSC))
        dots = partial(jnp.einsum, "bhqf,bhsf,bhqsf->bhqs", precision="highest")
        less, sin = -2 * jnp.sin(turned_BHQSF / 2) ** 2, jnp.sin(turned_BHQSF)  # less: cos - 1
        change = dots(q0, k0, less) + dots(q1, k1, less) + dots(q0, k1, sin) - dots(q1, k0, sin)
        return angle_BHQF + added_BHQSF.sum(3), change

    start = lambda params, q: no_vector(params, q, pairs_of(params))
    score = by_stretches(step, WALL_STRETCH)
    walk = Walk(score=score, prepare=prepare, start=start, corrects=True)
    return each_layer(Encoding(walk=walk, **hooks))


@register(
    kind="content",
    formula="as rope at the angle sum of base^(-2k/C) (B[h] A u[l])_k over l = j + 1 .. i, "
    "u = the heads' slices of x, each of norm 1",
    paper="Movahedi et al. 2025 (Selective RoPE), arXiv 2511.17388",
    axes=0,
)
def selective_rope(
    base: Positive = 500_000.0, rank: Count = 16, pairing: Pairing = "half"
) -> Encoding:
    """Selective RoPE: each token between a key and the query turns the pair by an angle of its own.

    It reads no positions: a token's content says how far it turns, in each layer, head and pair.
    Left out: the convolution over four tokens that the released code puts before the sum, by which
    an angle depends on the tokens before, and its options: a bias, a gate, maps of each head's own,
    other and learned frequencies. Its models start both maps at a normal of 0.02.

    Args:
      rank: of the map from x to the angles; 16 by default in the code, 32 in all its configs.

    FieldError, later: a width of the model that its heads do not divide.
    """

    def init(key, dims):
        if dims.model % dims.heads:
            raise FieldError("model", f"{dims.model} channels have no slice for {dims.heads} heads")
        a_key, b_key = jax.random.split(key)
        pairs = len(ladder(dims.head, base))
        uniform = lambda key, width, *shape: jax.random.uniform(
            key, (width, *shape), float, -(width**-0.5), width**-0.5
        )
        return {
            "a": uniform(a_key, dims.model, rank),
            "b": uniform(b_key, rank, dims.heads, pairs),
        }

    def prepare(params, x_BTD):
        _, heads, pairs = params["b"].shape
        here = params.get("heads_here")  # on a device with some of the model's heads
        slices = heads if here is None else here.total
        wide_BTD = x_BTD.astype(widest(x_BTD.dtype))
        x_BTHS = wide_BTD.reshape(*x_BTD.shape[:2], slices, -1)
        unit_BTHS = x_BTHS * jax.lax.rsqrt((x_BTHS**2).sum(-1, keepdims=True) + 1e-6)
        angle_BTHF = affine(affine(unit_BTHS.reshape(wide_BTD.shape), params["a"]), params["b"])
        freq_F = jnp.asarray(ladder(2 * pairs, base), angle_BTHF.dtype)
        return angle_BTHF * freq_F[None, None, None]

    pairs_of = lambda params: params["b"].shape[-1]
    return _summed_angles(prepare, pairs_of, pairing, init=init, of_heads=tell_heads)


@register(
    kind="content",
    formula="as partial at the angle sum of pi tanh((A x[l])_k) softplus(d[h].x[l] + b[h]) over "
    "l = j + 1 .. i",
    paper="the public code state-spaces/mamba, Mamba3",
    axes=0,
)
def mamba3_rope(share: float = 0.5, pairing: Pairing = "interleaved") -> Encoding:
    """Mamba-3's rotation: angles of content, times a step of content, summed from key to query.

    It reads no positions. A pair's angle is the same in all heads, the step in all pairs; the step
    is that of the state space model. Its decay, and the sum of two steps, are left out: here the
    rotation is one of attention; so are the norms and learned biases before the rotation. For a
    decay by content see `fox`.

    Args:
      share: of a head's channels, the first ones, that turn; 1/2 or 1 in the code.
      pairing: "interleaved" as in the code; its form of several inputs (MIMO) pairs channel i with
        C/2 + i, which is "half" where all channels turn.

    FieldError: share outside (0, 1]; later, a share of less than one pair.
    """
    check_share(share)

    def init(key, dims):
        angle_key, step_key, bias_key = jax.random.split(key, 3)
        pairs = pairs_of_share(dims.head, share)
        draw = lambda key, width: dims.model**-0.5 * jax.random.normal(key, (dims.model, width))
        low, high = np.log(0.001), np.log(0.1)
        step_H = jnp.exp(jax.random.uniform(bias_key, (dims.heads,), float, low, high))
        step_bias = step_H + jnp.log(-jnp.expm1(-step_H))  # softplus of it is step_H
        return {
            "angle": draw(angle_key, pairs),
            "step": draw(step_key, dims.heads),
            "step_bias": step_bias,
        }

    def prepare(params, x_BTD):
        angle_BTF = np.pi * jnp.tanh(affine(x_BTD, params["angle"]))
        step_BTH = jax.nn.softplus(affine(x_BTD, params["step"], params["step_bias"]))
        return step_BTH[..., None] * angle_BTF[:, :, None]

    return _summed_angles(prepare, lambda params: params["angle"].shape[-1], pairing, init=init)
