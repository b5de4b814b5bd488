"""Positional encodings for JAX: pure functions on one interface.

Names are loaded when they are first used: what only reads a config does not wait for JAX.
"""

from typing import TYPE_CHECKING

from posenc_jax.faces import face

if TYPE_CHECKING:
    from posenc_jax.attention import Frame, attend, frame
    from posenc_jax.encoding import (
        Dims,
        Encoding,
        Side,
        Walk,
        at_layer,
        chain,
        each_layer,
        per_layer,
    )
    from posenc_jax.encodings import CATALOG, describe, make

__all__ = [
    "CATALOG",
    "Dims",
    "Encoding",
    "Frame",
    "Side",
    "Walk",
    "at_layer",
    "attend",
    "chain",
    "describe",
    "each_layer",
    "frame",
    "make",
    "per_layer",
]

__getattr__, __dir__ = face(__name__, ("attention", "encoding", "encodings"), __all__)
