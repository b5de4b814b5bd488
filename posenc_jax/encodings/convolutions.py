"""Positions read by convolutions over neighbouring tokens at the model's input.

They are no method of the catalogue: a token's embedding depends on tokens on both sides of it, so
causality and decoding with a cache, which hold for every method there, cannot hold.
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from posenc_jax.dtypes import widest
from posenc_jax.encoding import Encoding
from posenc_jax.encodings.card import Count
from posenc_jax.layout import Layout, order_of, rising, sequences
from posenc_jax.meshes import vary_alike
from posenc_jax.options import FieldError, checked_all
from posenc_jax.recipes import recorded

Activation = Literal["gelu", "gelu_tanh", "relu", "silu", "tanh"]
ACTIVATIONS = {
    "gelu": lambda x: jax.nn.gelu(x, approximate=False),
    "gelu_tanh": lambda x: jax.nn.gelu(x, approximate=True),
    "relu": jax.nn.relu,
    "silu": jax.nn.silu,
    "tanh": jnp.tanh,
}
TINY = 1e-5  # added to a variance, as PyTorch's layer norm does
# Steps of a kernel that one matrix product takes. With one at a time the sum would be read from
# memory and written for each of them; all at once are a copy of x for each of them.
TAPS = 8


class InSequence(NamedTuple):
    """Where tokens stand in their sequences, int32 [B, T].

    segment_BT: which sequence of the row; 0 is padding.
    number_BT:  the token's number in it, from 0; -1 where it is not known.
    length_BT:  how many tokens the sequence has, whether they are among these or not.
    """

    segment_BT: jax.Array
    number_BT: jax.Array
    length_BT: jax.Array


@recorded
def convolved(
    kernel: Count = 128,
    groups: Count = 16,
    layers: Count = 1,
    norm: bool = False,
    activation: Activation = "gelu",
) -> Encoding:
    """Convolution positions of wav2vec 2.0 (Baevski et al. 2020, arXiv 2006.11477): x + a(conv(x)).

    For encoders alone: a token's embedding depends on tokens on both sides of it, so it is no
    method of the catalogue, and in a causal decoder it would show a token what comes after it.
    `frame` takes it with `causal=False`.

    The convolution reads the kernel // 2 tokens before a token, the token, and as many behind it,
    one less if the kernel is even. Neighbours are those of a token's own sequence, by their number
    in it, wherever they are stored: the positions of a layout that is `counted`, else the order of
    `index_BT`. Positions of one's own change nothing. Outside of the sequence it reads zeros:
    padding of either side and other documents of the row are not read, whatever they hold.

    A token is NaN if the sequence has a neighbour that it reads and the row does not have it: token
    by token with a cache, tokens spread over devices, queries cut out of a row. So are all tokens
    of a sequence that is cut in a layout that is not `counted`, since their numbers are not known.

    Parameters: "kernel" [layers, kernel, D / groups, D], of (step, input in its group, output), and
    "bias" [layers, D]. PyTorch's weight has these axes the other way round: weight.T[None]. A
    weight g v / |v|, normalised for each step (`weight_norm` with dim=2), is a parametrization of
    training: multiply it out, |v| over the axes of inputs and outputs.

    Args:
      kernel: tokens that a convolution reads.
      groups: of channels; an output reads the inputs of its own group. They divide D.
      layers: convolutions, each of the one before it; x + the last one's output.
      norm: whether outputs, before the activation, have a mean of 0 and a variance of 1 over
        channels, as data2vec's do (arXiv 2202.03555).
      activation: the function a; "gelu_tanh" is its approximation by a tanh.

    FieldError: an option of another type or out of its bounds; later, groups that do not divide the
    channels of the model.
    """
    options = dict(kernel=kernel, groups=groups, layers=layers, norm=norm, activation=activation)
    checked_all("encoding", convolved, **options)
    act = ACTIVATIONS[activation]

    def init(key, dims):
        width = dims.model
        if width % groups:
            reason = f"{groups} do not divide the {width} channels of the model"
            raise FieldError(("encoding", "groups"), reason)
        # As in fairseq, where the outputs start with a variance of 4 / groups.
        scale = 2 * (kernel * width) ** -0.5
        shape = layers, kernel, width // groups, width
        return {"kernel": scale * jax.random.normal(key, shape), "bias": jnp.zeros((layers, width))}

    def embed(params, x_BTD, at: InSequence):
        stored = rising(at.segment_BT, at.number_BT, strictly=True)
        order = order_of(stored, at.segment_BT, at.number_BT)
        at = order.arranged(at)
        real_BT1 = (at.segment_BT > 0)[..., None]
        inside_BKT, complete_BT = window(at, kernel)
        refused_BT1 = real_BT1 & ~complete_BT[..., None]
        wide = widest(x_BTD.dtype)
        h_BTD = order.arranged(x_BTD.astype(wide))
        for n in range(layers):
            kernel_KID, bias_D = (params[name][n].astype(wide) for name in ("kernel", "bias"))
            h_BTD = convolution(h_BTD, kernel_KID, inside_BKT) + bias_D[None, None]
            h_BTD = jnp.where(refused_BT1, jnp.nan, act(_normed(h_BTD) if norm else h_BTD))
        added_BTD = order.restored(jnp.where(real_BT1, h_BTD, 0))
        return (x_BTD.astype(wide) + added_BTD).astype(x_BTD.dtype)

    return Encoding(init=init, place=in_sequence, embed=embed, both_sides=True)


def in_sequence(key: jax.Array | None, layout: Layout) -> InSequence:
    """The number of each token in its sequence, a hook `place`.

    Where positions are not `counted`, it is the token's place in the order of the index, equal ones
    as they are stored; in a sequence that is not whole it is not known.
    """
    segment_BT, length_BT = layout.segment_BT, layout.length_BT
    if layout.counted:
        return InSequence(segment_BT, layout.pos_BT, length_BT)
    order = order_of(rising(segment_BT, layout.index_BT), segment_BT, layout.index_BT)
    _, rank_BT, count_BT = order.restored(sequences(order.arranged(segment_BT)))
    number_BT = jnp.where(count_BT == length_BT, rank_BT, -1)
    return InSequence(segment_BT, number_BT, length_BT)


def window(at: InSequence, kernel: int) -> tuple[jax.Array, jax.Array]:
    """What a convolution over tokens in the order of their sequences reads.

    Returns:
      inside_BKT: whether column t + k - kernel // 2 has the token that stands so many steps from
        token t in its sequence.
      complete_BT: whether it has all of those that the sequence has.
    """
    before = kernel // 2
    after = kernel - 1 - before
    segment_BT, number_BT, length_BT = at
    step_K = jnp.arange(kernel, dtype=jnp.int32)
    column_KT = step_K[:, None] + jnp.arange(segment_BT.shape[1], dtype=jnp.int32)[None]
    near = lambda x_BT: jnp.pad(x_BT, ((0, 0), (before, after)))[:, column_KT]
    wanted_BKT = number_BT[:, None] + (step_K - before).astype(number_BT.dtype)[None, :, None]
    inside_BKT = (segment_BT[:, None] > 0) & (near(segment_BT) == segment_BT[:, None])
    inside_BKT &= near(number_BT) == wanted_BKT
    last_BT = length_BT.astype(number_BT.dtype) - 1
    known_BT = (number_BT >= 0) & (number_BT <= last_BT)
    count_BT = 1 + jnp.minimum(number_BT, before) + jnp.minimum(last_BT - number_BT, after)
    read_BT = inside_BKT.sum(1, dtype=number_BT.dtype)
    return inside_BKT, known_BT & (read_BT == count_BT)


def convolution(x_BTD: jax.Array, kernel_KID: jax.Array, inside_BKT: jax.Array) -> jax.Array:
    """The sum over steps k of x[t + k - K // 2] times the kernel's matrix, in groups of channels.

    Args:
      kernel_KID: I inputs of each of D / I groups, and the D outputs.
      inside_BKT: which x are read, [B|1, K, T]; others count as 0.
    """
    size, inputs, width = kernel_KID.shape
    rows, time, _ = x_BTD.shape
    more = -size % TAPS
    grouped = width // inputs, inputs
    kernel_KID = jnp.pad(kernel_KID, ((0, more), (0, 0), (0, 0)))
    kernel_SKIGO = kernel_KID.reshape(-1, TAPS, inputs, *grouped)
    inside_BKT = jnp.pad(inside_BKT, ((0, 0), (0, more), (0, 0)))
    inside_SBTK = inside_BKT.reshape(-1, len(kernel_SKIGO), TAPS, time).transpose(1, 0, 3, 2)
    around = size // 2, size - 1 - size // 2 + more
    padded_BTD = jnp.pad(x_BTD, ((0, 0), around, (0, 0)))
    padded_BTGI = padded_BTD.reshape(*padded_BTD.shape[:2], *grouped)

    zeros_BTGO = jnp.zeros((rows, time, width // inputs, inputs), x_BTD.dtype)
    starts_S = TAPS * jnp.arange(len(kernel_SKIGO), dtype=jnp.int32)
    arrays = zeros_BTGO, padded_BTGI, starts_S, kernel_SKIGO, inside_SBTK
    zeros_BTGO, padded_BTGI, *taps = vary_alike(arrays)

    @jax.checkpoint  # the backward pass would keep the shifted copies of x
    def summed(padded_BTGI, start, kernel_KIGO, inside_BTK):
        near_BTGI = jax.lax.dynamic_slice_in_dim(padded_BTGI, start, time + TAPS - 1, axis=1)
        shifted = [near_BTGI[:, k : k + time] for k in range(TAPS)]
        x_BTKGI = jnp.where(inside_BTK[..., None, None], jnp.stack(shifted, axis=2), 0)
        return jnp.einsum("btkgi,kigo->btgo", x_BTKGI, kernel_KIGO)

    add = lambda sum_BTGO, taps: (sum_BTGO + summed(padded_BTGI, *taps), None)
    sum_BTGO, _ = jax.lax.scan(add, zeros_BTGO, taps)
    return sum_BTGO.reshape(rows, time, width)


def _normed(x_BTD: jax.Array) -> jax.Array:
    """x with a mean of 0 and a variance of 1 over its channels."""
    x_BTD = x_BTD - x_BTD.mean(-1, keepdims=True)
    return x_BTD * jax.lax.rsqrt(jnp.square(x_BTD).mean(-1, keepdims=True) + TINY)
