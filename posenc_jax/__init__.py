"""Positional encodings for JAX: pure functions on one interface.

Names are loaded when they are first used: what only reads a config does not wait for JAX.
"""

import importlib
from typing import TYPE_CHECKING, Any

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

_HOMES = ("attention", "encoding", "encodings")


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return importlib.import_module(f"{__name__}.{name}")
    if name in __all__:
        for home in _HOMES:
            module = importlib.import_module(f"{__name__}.{home}")
            if hasattr(module, name):
                return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *__all__]
