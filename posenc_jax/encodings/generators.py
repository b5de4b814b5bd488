"""Rotary methods whose rotations are exponentials of learned antisymmetric generators."""

from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.encoding import Encoding, each_layer
from posenc_jax.encodings.angles import Turn, angles, check_positive, turn, turns
from posenc_jax.encodings.card import method
from posenc_jax.encodings.rotary_axes import TIMED, crossed, split_axes

Basis = Literal["cayley", "circulant"]
EXACT = jax.lax.Precision.HIGHEST  # tensor cores would cut a rotation to ten bits
REACH = 8  # trained images that the positions of `liere` may span


def _liere_scores(o, params, q, k, pos, n):
    """Definition in float64: the exponential by eigenvectors of the Hermitian i A."""
    raw_AHGUV = np.asarray(params["skew"], np.float64)
    skew_AHGUV = np.triu(raw_AHGUV, 1) - np.swapaxes(np.triu(raw_AHGUV, 1), -1, -2)
    block = skew_AHGUV.shape[-1]
    turned = np.zeros((2, *q.shape))
    for t, (row, column) in enumerate(np.asarray(pos, np.float64) / (o.size - 1)):
        values, vectors = np.linalg.eigh(1j * (row * skew_AHGUV[0] + column * skew_AHGUV[1]))
        matrix_HGUV = np.einsum(
            "hgue,hge,hgve->hguv", vectors, np.exp(-1j * values), vectors.conj()
        ).real
        for side, x in enumerate((q, k)):
            cut = x[t].reshape(x.shape[1], -1, block)
            turned[side, t] = np.einsum("hguv,hgv->hgu", matrix_HGUV, cut).reshape(x.shape[1:])
    scores_HQK = np.einsum("qhc,khc->hqk", *turned) / np.sqrt(q.shape[-1])
    far = (np.asarray(pos) >= REACH * o.size).any(axis=1)
    return np.where(far[None, :, None] | far[None, None], np.nan, scores_HQK)


@method(
    kind="rotary",
    formula="blocks of q and k times exp((row A + column B) / (size - 1)), A and B learned, "
    "antisymmetric",
    paper="Ostmeier et al. 2024, arXiv 2406.10322",
    beyond="error",
    axes=2,
    scores=_liere_scores,
    example={"block": 4},
    vary={"block": 2},
)
def liere(block: int = 8, size: int = 14) -> Encoding:
    """LieRE: a dense rotation of each block of channels, the exponential of learned generators.

    Positions are [B, T, 2], (row, column), as fractions of the trained image, as in the authors'
    code. Generators of the two axes do not commute, so scores tell more than i - j, and no angle
    can be reduced by whole turns: positions of 8 * size and more, where float32 has lost 1e-4, are
    refused. Parameters `skew` [2, H, C / block, block, block] of each layer, entries above the
    diagonal, begin uniform in 0 .. 2 pi.

    Args:
      block: channels that turn together; 2 is `mixed` with other first frequencies, C one rotation.
      size: rows and columns of the trained image.

    Raises:
      ValueError: a block or a size below 2; later, a width of a head that the block does not
        divide, positions of another shape.
    """
    if block < 2 or size < 2:
        raise ValueError(f"encoding.block, size: {block}, {size} must be 2 or more")

    def init(key, dims):
        _check_block(dims.head, block)
        shape = 2, dims.heads, dims.head // block, block, block
        return {"skew": jax.random.uniform(key, shape, float, 0, 2 * np.pi)}

    def table(params, pos_BTA, dims):
        _check_block(dims.head, block)
        pos_BTA = jnp.stack(split_axes("liere", pos_BTA, TIMED[1:]), axis=-1).astype(float)
        held_BT = ((pos_BTA >= 0) & (pos_BTA < REACH * size)).all(axis=-1)
        part_BTA = jnp.where(held_BT[..., None], pos_BTA, 0) / (size - 1)
        upper = jnp.triu(params["skew"].astype(float), 1)
        skew_AHGUV = upper - jnp.swapaxes(upper, -1, -2)
        sum_BTHGUV = jnp.einsum("bta,ahguv->bthguv", part_BTA, skew_AHGUV, precision=EXACT)
        turned = jax.scipy.linalg.expm(sum_BTHGUV)
        return jnp.where(held_BT[:, :, None, None, None, None], turned, jnp.nan)

    def rotate(matrix_BTHGUV, x_BTHC, side):
        cut = x_BTHC.reshape(*x_BTHC.shape[:3], -1, block, 1).astype(matrix_BTHGUV.dtype)
        turned = jnp.matmul(matrix_BTHGUV, cut, precision=EXACT)
        return turned.reshape(x_BTHC.shape).astype(x_BTHC.dtype)

    return each_layer(Encoding(init=init, table=table, rotate=rotate))


def _check_block(head: int, block: int) -> None:
    if head % block:
        raise ValueError(f"encoding.block: {block} does not divide a head of {head} channels")


def _waves(head: int) -> np.ndarray:
    """sin(2 pi f m / C) for the frequencies f = 1 .. C/2 - 1 of circulant generators, [F, C]."""
    return np.sin(2 * np.pi * np.arange(1, head // 2)[:, None] * np.arange(head) / head)


def _string_scores(o, params, q, k, pos, n):
    """Definition in float64: q^T exp(sum_a L_a (r_k - r_q)_a) k, by eigenvectors."""
    heads, head = q.shape[1:]
    generator_AHCC = np.zeros((2, heads, head, head))
    for a in range(2):
        for h in range(heads):
            if o.basis == "circulant":
                first_C = np.asarray(params["first"], np.float64)[a, h]
                full = np.stack([np.roll(first_C, c) for c in range(head)], axis=1)
                generator_AHCC[a, h] = full - full.T
            else:
                free = np.triu(np.asarray(params["skew"], np.float64)[h], 1)
                skew, eye = free - free.T, np.eye(head)
                basis = (eye - skew) @ np.linalg.inv(eye + skew)
                theta = np.asarray(params["freq_AHF"], np.float64)[a, h]
                plane = np.zeros((head, head))
                for f in range(head // 2):
                    plane[head // 2 + f, f], plane[f, head // 2 + f] = theta[f], -theta[f]
                generator_AHCC[a, h] = basis @ plane @ basis.T
    shift_QKA = np.asarray(pos, np.float64)[None] - np.asarray(pos, np.float64)[:, None]
    sum_QKHCC = np.einsum("qka,ahcd->qkhcd", shift_QKA, generator_AHCC)
    values, vectors = np.linalg.eigh(1j * sum_QKHCC)
    turned = np.einsum("qkhce,qkhe,qkhde->qkhcd", vectors, np.exp(-1j * values), vectors.conj())
    return np.einsum("qhc,qkhcd,khd->hqk", q, turned.real, k) / np.sqrt(head)


@method(
    kind="rotary",
    formula="q^T P R(D) P^T k / sqrt(C), R the turns of mixed, P = (I - S)(I + S)^-1, learned",
    paper="Schenck et al. 2025, arXiv 2502.02562",
    relative=True,
    axes=2,
    scores=_string_scores,
)
def string(base: float = 10.0, basis: Basis = "cayley") -> Encoding:
    """STRING: commuting learned generators, the most general rotations that tell i - j alone.

    They are the turns of `mixed` in a basis P of the head's channels. Queries and keys are turned
    in that basis and stay there, since the way back cancels between them. Positions are [B, T, 2],
    (row, column). Which channels pair is a matter of the basis; there is no option for it.

    Args:
      base: first frequencies are those of `mixed`.
      basis: "cayley" learns P as the Cayley transform of the entries of S above the diagonal,
        skew [H, C, C], which begin at 0, where P is the identity, and the frequencies freq_AHF.
        "circulant" learns circulant generators C_a - C_a^T by their first columns, `first`
        [2, H, C]: P is the real Fourier basis, two channels of which stand still. Frequencies are
        then sums in float32: far out queries and keys are off by one angle, which cancels.

    Raises:
      ValueError: base not positive, an unknown basis; later, a width of a head that 4 does not
        divide, positions of another shape.
    """
    check_positive(base=base)
    if basis not in ("cayley", "circulant"):
        raise ValueError(f"encoding.basis: {basis!r} is not one of: 'cayley', 'circulant'")

    def init(key, dims):
        freq_AHF = crossed(key, dims.heads, dims.head, base, "string")
        if basis == "circulant":
            waves_FC = jnp.asarray(_waves(dims.head), float)
            return {"first": freq_AHF[..., : len(waves_FC)] @ waves_FC / dims.head}
        return {"freq_AHF": freq_AHF, "skew": jnp.zeros((dims.heads, dims.head, dims.head), float)}

    def table(params, pos_BTA, dims):
        if basis == "circulant":
            freq_AHF = 2 * jnp.einsum(
                "ahc,fc->ahf",
                params["first"].astype(float),
                jnp.asarray(_waves(dims.head), float),
                precision=EXACT,
            )
            basis_CC = jnp.asarray(_fourier(dims.head), float)
            basis_HCC = jnp.broadcast_to(basis_CC[None], (freq_AHF.shape[1], dims.head, dims.head))
        else:
            freq_AHF, basis_HCC = params["freq_AHF"].astype(float), _cayley(params["skew"])
        pairs = zip(split_axes("string", pos_BTA, TIMED[1:]), freq_AHF, strict=True)
        row, column = (angles(pos_BT, freq_HF) for pos_BT, freq_HF in pairs)
        return {"turn": turns(row + column), "basis": basis_HCC[None, None]}

    def rotate(table, x_BTHC, side):
        made: Turn = table["turn"]
        wide = x_BTHC.astype(made.cos.dtype)
        inside = jnp.einsum("bthc,hcd->bthd", wide, table["basis"][0, 0], precision=EXACT)
        return turn(made, inside, "half").astype(x_BTHC.dtype)

    return each_layer(Encoding(init=init, table=table, rotate=rotate))


def _cayley(skew_HCC: jax.Array) -> jax.Array:
    """(I - S)(I + S)^-1 of each head, S antisymmetric by the entries above the diagonal."""
    upper = jnp.triu(skew_HCC.astype(float), 1)
    skew_HCC = upper - jnp.swapaxes(upper, -1, -2)
    eye = jnp.eye(skew_HCC.shape[-1], dtype=skew_HCC.dtype)[None]
    return jnp.linalg.solve(eye + skew_HCC, eye - skew_HCC)


def _fourier(head: int) -> np.ndarray:
    """Orthonormal columns [C, C]: cosines, sines, the constant and the alternating wave."""
    m, f = np.arange(head)[:, None], np.arange(1, head // 2)[None]
    angle = 2 * np.pi * m * f / head
    waves = [
        np.cos(angle),
        np.sin(angle),
        np.ones((head, 1)) / np.sqrt(2),
        (-1.0) ** m / np.sqrt(2),
    ]
    return np.concatenate(waves, axis=1) * np.sqrt(2 / head)
