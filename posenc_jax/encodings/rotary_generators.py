"""Rotary methods whose rotations are exponentials of learned antisymmetric generators.

Products have the highest precision: tensor cores would round a rotation to ten bits.
"""

from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.backends.matrix_rotation import cayley, each_times, exponential, exponentials
from posenc_jax.combinators import each_layer
from posenc_jax.encoding import Encoding
from posenc_jax.encodings import rotation
from posenc_jax.encodings.card import (
    Count,
    Positive,
    Range,
    Several,
    register,
    require,
    with_axes,
)
from posenc_jax.encodings.rotary_axes import (
    axial,
    check_quarters,
    crossed,
    turns_2d,
)
from posenc_jax.encodings.rotation import Pairing, Turn, turn

REACH = 8  # trained images, side by side, that the positions of `liere` may span


def antisymmetric(raw: jax.Array) -> jax.Array:
    """Antisymmetric matrices, float32 or wider, made of the entries of `raw` above the diagonal."""
    upper = jnp.triu(raw.astype(float), 1)
    return upper - jnp.swapaxes(upper, -1, -2)


def turned_blocks(
    block: int, size: int, draw: Callable, exponents: Callable[[Any, jax.Array], jax.Array]
) -> Encoding:
    """An encoding that multiplies blocks of channels by exponentials of antisymmetric matrices.

    Args:
      block: channels that turn together. FieldError, later: it does not divide a head.
      size: patches along a side of the trained image; positions of REACH * size and more, and
        those below 0, give NaN.
      draw: (key, heads, blocks of a head) -> the parameters of a layer.
      exponents: (params, pos_BTA) -> the matrices to exponentiate, [B, T, H, blocks, block, block].
    """

    def blocks_of(head):
        require(head % block == 0, "block", block, f"does not divide a head of {head} channels")
        return head // block

    def table(params, pos_BTA, dims):
        blocks_of(dims.head)
        pos_BTA = with_axes(pos_BTA, 2).astype(float)
        held_BT = ((pos_BTA >= 0) & (pos_BTA < REACH * size)).all(axis=-1)
        matrix = exponentials(exponents(params, jnp.where(held_BT[..., None], pos_BTA, 0)))
        return jnp.where(held_BT[..., None, None, None, None], matrix, jnp.nan)

    init = lambda key, dims: draw(key, dims.heads, blocks_of(dims.head))
    rotate = lambda matrix_BTHGUV, x_BTHC, side: each_times(matrix_BTHGUV, x_BTHC)
    return each_layer(Encoding(init=init, table=table, rotate=rotate))


@register(
    kind="rotary",
    formula="blocks of q and k times exp((row A + column B) / (size - 1)), A and B learned, "
    "antisymmetric",
    paper="Ostmeier et al. 2024, arXiv 2406.10322",
    beyond="error",
    axes=2,
    shift_invariant=False,
    reads=lambda o, n: Range(0, REACH * o.size),
)
def liere(block: Several = 8, size: Several = 14) -> Encoding:
    """LieRE: a dense rotation of each block of channels, the exponential of learned generators.

    Positions are [B, T, 2], (row, column), and are divided by the trained image's size, as in the
    authors' code. Generators of the two axes do not commute, so scores depend on more than i - j,
    and whole turns cannot be dropped. Positions of 8 * size and more give NaN: there float32 has an
    error of 1e-4. Each layer has the parameters `skew` [2, H, C / block, block, block]; the entries
    above the diagonal are used, and start uniform in 0 .. 2 pi.

    Args:
      block: channels that turn together; 2 is `mixed` with other first frequencies, C one rotation.
      size: rows and columns of the trained image.
    """

    def draw(key, heads, blocks):
        shape = 2, heads, blocks, block, block
        return {"skew": jax.random.uniform(key, shape, float, 0, 2 * np.pi)}

    def exponents(params, pos_BTA):
        skew_AHGUV = antisymmetric(params["skew"])
        part_BTA = pos_BTA / (size - 1)
        return jnp.einsum("bta,ahguv->bthguv", part_BTA, skew_AHGUV, precision="highest")

    return turned_blocks(block, size, draw, exponents)


@register(
    kind="rotary",
    formula="blocks of q and k times exp(row A_1 + column A_2), A_a = s_a (P - P^T), or 0 but in "
    "each second block, learned",
    paper="Yu et al. 2025 (ComRoPE), arXiv 2506.03737",
    beyond="error",
    axes=2,
    reads=lambda o, n: Range(0, REACH * o.size),
)
def comrope(
    block: Several = 8,
    size: Several = 14,
    commuting: Literal["dependent", "partition"] = "dependent",
) -> Encoding:
    """ComRoPE: generators as in `liere` that commute, so that scores depend on i - j alone.

    Positions are [B, T, 2], (row, column), and are read as (row + 1/2) / size, as in the authors'
    code; those of 8 * size and more give NaN, as in `liere`. Each layer has parameters `generator`
    [H, C / block, block, block], which start normal. In the code the middle of a picture is where
    its class token stands, ((size - 1) / 2, (size - 1) / 2) here; it also moves patches at random
    in training, which is left out.

    Args:
      block: channels that turn together.
      size: rows and columns of the trained image.
      commuting: "dependent" (ComRoPE-LD): the generators of a block are learned multiples s_a of
        one, `multiple` [2, C / block]; "partition" (ComRoPE-AP): even blocks turn by the row alone,
        odd ones by the column.

    FieldError, later: a block that does not divide a head.
    """

    def draw(key, heads, blocks):
        generator_key, multiple_key = jax.random.split(key)
        params = {"generator": jax.random.normal(generator_key, (heads, blocks, block, block))}
        if commuting == "dependent":
            params["multiple"] = jax.random.normal(multiple_key, (2, blocks))
        return params

    def exponents(params, pos_BTA):
        raw_HGUV = params["generator"].astype(float)
        skew_HGUV = raw_HGUV - raw_HGUV.swapaxes(-1, -2)
        if commuting == "dependent":
            multiple_AG = params["multiple"].astype(float)
        else:
            number_1G = np.arange(raw_HGUV.shape[1])[None]
            multiple_AG = jnp.asarray(number_1G % 2 == np.arange(2)[:, None], float)
        part_BTA = (pos_BTA + 0.5) / size
        angle_BTG = jnp.einsum("bta,ag->btg", part_BTA, multiple_AG, precision="highest")
        return angle_BTG[:, :, None, :, None, None] * skew_HGUV[None, None]

    return turned_blocks(block, size, draw, exponents)


@register(
    kind="rotary",
    formula="axial of M[h] q and M[h]^-T k, M = U S V^T, U and V exponentials, S > 0, learned",
    paper="Li et al. 2025 (HARoPE), arXiv 2510.10489",
    axes=2,
)
def harope(base: Positive = 10_000.0, pairing: Pairing = "interleaved") -> Encoding:
    """HARoPE: a learned map of each head before the rotation, undone at distance 0.

    Positions are [B, T, 2], (row, column), and turn as in `axial`. Queries are multiplied by M and
    keys by its inverse transposed, so that a token's product with another at its own place is that
    of q and k. Each layer has the parameters left, right [H, C, C], of which (A - A^T) / 2 is
    exponentiated, and log_scale [H, C], whose softplus plus 1e-6 is the diagonal of S. M starts as
    the identity. `string` has a rotation in place of M.

    FieldError, later: a width of a head that 4 does not divide.
    """

    turns_of_patches = axial(base, pairing).table
    assert turns_of_patches is not None

    def init(key, dims):
        check_quarters(dims.head)
        square = jnp.zeros((dims.heads, dims.head, dims.head), float)
        one = jnp.full((dims.heads, dims.head), np.log(np.e - 1), float)  # its softplus is 1
        return {"left": square, "right": square, "log_scale": one}

    def table(params, pos_BTA, dims):
        turn_of = lambda raw: exponential((raw - raw.swapaxes(-1, -2)).astype(float) / 2)
        left_HCC, right_HCC = turn_of(params["left"]), turn_of(params["right"])
        scale_HC = jax.nn.softplus(params["log_scale"].astype(float)) + 1e-6
        product = lambda scale_HC: jnp.einsum(
            "hcs,hs,hds->hcd", left_HCC, scale_HC, right_HCC, precision="highest"
        )
        maps = {"q": product(scale_HC)[None, None], "k": product(1 / scale_HC)[None, None]}
        return {"turn": turns_of_patches({}, pos_BTA, dims), **maps}

    def rotate(table, x_BTHC, side):
        map_HCC, wide = table[side][0, 0], table[side].dtype
        x_BTHC, dtype = x_BTHC.astype(wide), x_BTHC.dtype
        mapped_BTHC = jnp.einsum("bthd,hcd->bthc", x_BTHC, map_HCC, precision="highest")
        return turn(table["turn"], mapped_BTHC.astype(dtype), pairing)

    return each_layer(Encoding(init=init, table=table, rotate=rotate))


def _waves(head: int) -> np.ndarray:
    """sin(2 pi f m / C) for the frequencies f = 1 .. C/2 - 1 of circulant generators, [F, C]."""
    return np.sin(2 * np.pi * np.arange(1, head // 2)[:, None] * np.arange(head) / head)


@register(
    kind="rotary",
    formula="q^T P R(D) P^T k / sqrt(C), R the turns of mixed, P = (I - S)(I + S)^-1, learned",
    paper="Schenck et al. 2025, arXiv 2502.02562",
    axes=2,
)
def string(base: Positive = 10.0, basis: Literal["cayley", "circulant"] = "cayley") -> Encoding:
    """STRING: commuting learned generators, the most general rotations that depend on i - j alone.

    They are the rotations of `mixed` in a learned basis P of the head's channels. Queries and keys
    stay in that basis, since the way back cancels between them. Positions are [B, T, 2],
    (row, column). There is no option `pairing`: which channels pair depends on the basis.

    Args:
      base: first frequencies are those of `mixed`.
      basis: "cayley" learns P as the Cayley transform of the entries of S above the diagonal,
        skew [H, C, C], which start at 0, where P is the identity, and the frequencies freq_AHF.
        "circulant" learns circulant generators C_a - C_a^T by their first columns, `first`
        [2, H, C]: P is the real Fourier basis, in which two channels do not turn. Frequencies are
        then sums in float32; at far positions queries and keys have the same error in their angle,
        which cancels.
    """

    def init(key, dims):
        freq_AHF = crossed(key, dims.heads, dims.head, base)
        if basis == "circulant":
            waves_FC = jnp.asarray(_waves(dims.head), float)
            return {"first": freq_AHF[..., : len(waves_FC)] @ waves_FC / dims.head}
        return {"freq_AHF": freq_AHF, "skew": jnp.zeros((dims.heads, dims.head, dims.head), float)}

    def table(params, pos_BTA, dims):
        if basis == "circulant":
            first_AHC = params["first"].astype(float)
            waves_FC = jnp.asarray(_waves(dims.head), float)
            freq_AHF = 2 * jnp.einsum("ahc,fc->ahf", first_AHC, waves_FC, precision="highest")
            basis_HCC = jnp.asarray(np.stack([_fourier(dims.head)] * dims.heads), float)
        else:
            freq_AHF, basis_HCC = params["freq_AHF"], cayley(antisymmetric(params["skew"]))
        return turns_2d(pos_BTA, freq_AHF), basis_HCC[None, None]

    return each_layer(Encoding(init=init, table=table, rotate=turn_in_basis))


def turn_in_basis(table: tuple[Turn, jax.Array], x_BTHC: jax.Array, side: str) -> jax.Array:
    """The hook `rotate`: turns vectors in the basis [1, 1, H, C, C], and leaves them in it.

    Their dtype there is that of x, as after any projection: XLA for a TPU would keep copies of
    float32, twice the memory.
    """
    turned, basis_11HCC = table
    wide = x_BTHC.astype(turned.cos.dtype)
    inside = jnp.einsum("bthc,hcd->bthd", wide, basis_11HCC[0, 0], precision="highest")
    return turn(turned, inside.astype(x_BTHC.dtype), "half")


def _fourier(head: int) -> np.ndarray:
    """Orthonormal columns [C, C]: cosines, sines, the constant and the alternating wave."""
    m, f = np.arange(head)[:, None], np.arange(1, head // 2)[None]
    angle = 2 * np.pi * m * f / head
    constant, alternating = np.ones((head, 1)) / np.sqrt(2), (-1.0) ** m / np.sqrt(2)
    waves = [np.cos(angle), np.sin(angle), constant, alternating]
    return np.concatenate(waves, axis=1) * np.sqrt(2 / head)


def _nodes(branches: int, depth: int) -> int:
    """The number of nodes of a complete tree."""
    return sum(branches**level for level in range(depth + 1))


@register(
    kind="rotary",
    formula="q^T M(i)^T M(j) k / sqrt(C), M(n) = M(parent of n) exp(A[branch of n]), A learned, "
    "antisymmetric",
    paper="Kogkalidis et al. 2024, arXiv 2312.16045",
    beyond="error",
    shift_invariant=False,
    reads=lambda o, n: Range(0, _nodes(o.branches, o.depth)),
)
def tree(branches: Several = 2, depth: Count = 8, base: Positive = 10_000.0) -> Encoding:
    """Algebraic encoding of trees: a rotation for each branch on the path between two nodes.

    Scores depend on the steps from a query up to the nearest common ancestor and down to the key;
    the path above it, which they share, cancels. Positions are [B, T], numbers of nodes in the
    breadth-first order of the complete tree, given by the layout: 0 is the root, and the children
    of n are n * branches + 1 and the following. Nodes below `depth` give NaN. All layers share the
    generators, skew [branches, H, C, C], of which the entries above the diagonal are used. As in
    the authors' code, all branches start as the same turns, those of rope for one token. Left out:
    the decay with the number of steps that this code adds.

    Args:
      branches: children of a node.
      depth: levels below the root.
      base: of the frequencies at the start.

    FieldError: a tree of 2^31 nodes or more.
    """
    nodes = _nodes(branches, depth) if depth < 32 else 2**31
    require(nodes < 2**31, "depth", depth, f"with {branches} branches makes 2^31 nodes or more")

    def init(key, dims):
        freq_F = rotation.ladder(dims.head, base)
        first_CC = np.zeros((dims.head, dims.head))
        even = np.arange(0, dims.head, 2)
        first_CC[even, even + 1] = -freq_F
        shape = branches, dims.heads, dims.head, dims.head
        return {"skew": jnp.broadcast_to(jnp.asarray(first_CC, float), shape)}

    def table(params, pos_BT, dims):
        pos_BT = with_axes(pos_BT)
        held_BT = (pos_BT >= 0) & (pos_BT < nodes)
        node_BT, taken = jnp.where(held_BT, pos_BT, 0).astype(jnp.int32), []
        for _ in range(depth):  # from the node up; -1 where the root is reached
            above_BT = jnp.maximum(node_BT - 1, 0)
            taken.append(jnp.where(node_BT > 0, above_BT % branches, -1))
            node_BT = above_BT // branches
        step_RHCC = exponential(antisymmetric(params["skew"]))
        valid_BT = jnp.where(held_BT, jnp.ones((), step_RHCC.dtype), jnp.nan)
        return {"taken": jnp.stack(taken, -1), "step": step_RHCC[None, None], "kept": valid_BT}

    def rotate(table, x_BTHC, side):
        step_RHCC = table["step"][0, 0]

        def up(x_BTHC, branch_BT):
            turned_RBTHC = jnp.einsum("bthd,rhcd->rbthc", x_BTHC, step_RHCC, precision="highest")
            for branch, turned_BTHC in enumerate(turned_RBTHC):
                x_BTHC = jnp.where((branch_BT == branch)[..., None, None], turned_BTHC, x_BTHC)
            return x_BTHC, None

        levels = jnp.moveaxis(table["taken"], -1, 0)
        turned_BTHC, _ = jax.lax.scan(up, x_BTHC.astype(step_RHCC.dtype), levels)
        return (turned_BTHC * table["kept"][..., None, None]).astype(x_BTHC.dtype)

    return Encoding(init=init, table=table, rotate=rotate)
