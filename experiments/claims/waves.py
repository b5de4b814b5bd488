"""Sinusoidal vectors in float64, as the catalogue makes them, and what follows from sin-2."""

import jax
import jax.numpy as jnp
import numpy as np

from experiments.claims.ledger import Curve
from posenc_jax import make

ROUNDING = 1e-9  # sines of a position of 1e6 are right to 1e-10 in float64


def vectors(pos_T: np.ndarray, width: int, **options) -> np.ndarray:
    """What the catalogue's `sinusoidal` adds at each position, in float64, [T, width]."""
    with jax.enable_x64(True):
        x_BTD = jnp.zeros((1, len(pos_T), width))
        encoding = make("sinusoidal", **options)
        assert encoding.embed is not None
        return np.asarray(encoding.embed({}, x_BTD, jnp.asarray(pos_T)[None]))[0]


def frequencies(width: int, base: float = 10_000.0) -> np.ndarray:
    """Radians a token of each pair of channels."""
    return base ** (-2 * np.arange(width // 2) / width)


def apart(distance_T: np.ndarray, width: int, base: float = 10_000.0) -> np.ndarray:
    """|PE(t + distance) - PE(t)| over |PE|, from the sum of cosines that sin-2 checks."""
    total_T = np.zeros(len(distance_T))
    for freq in frequencies(width, base):
        total_T += 1 - np.cos(freq * distance_T)
    return np.sqrt(2 * total_T / (width / 2))


def kernel(distance_T: np.ndarray, width: int) -> np.ndarray:
    return np.cos(distance_T[:, None] * frequencies(width)).mean(axis=1)


def nearest(x_T: np.ndarray, y_T: np.ndarray) -> Curve:
    """The smallest y in each of some stretches of x, each half as far out again."""
    edges = np.unique(np.geomspace(x_T[0], x_T[-1] + 1, 60).astype(int)) - x_T[0]
    starts = edges[:-1]
    return Curve(x_T[starts], [np.minimum.reduceat(y_T, starts)])
