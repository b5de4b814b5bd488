"""Positional encodings for JAX: pure functions of explicit positions on one interface."""

from posenc_jax.attention import Frame, Layer, attend, frame, logits, rotate, weights
from posenc_jax.combinators import chain, each_layer, on_heads, per_layer
from posenc_jax.context_parallel import merge, ring, zigzag
from posenc_jax.encoding import Dims, Encoding, Side, Walk, at_layer
from posenc_jax.encodings import CATALOG, describe, make, register
from posenc_jax.encodings.convolutions import convolved
from posenc_jax.heads import head_specs
from posenc_jax.huggingface import from_huggingface, parts_from_huggingface, to_huggingface
from posenc_jax.layout import Layout, full, layout

__version__ = "1.0.0"

__all__ = [
    "CATALOG",
    "Dims",
    "Encoding",
    "Frame",
    "Layer",
    "Layout",
    "Side",
    "Walk",
    "at_layer",
    "attend",
    "chain",
    "convolved",
    "describe",
    "each_layer",
    "frame",
    "from_huggingface",
    "full",
    "head_specs",
    "layout",
    "logits",
    "make",
    "merge",
    "on_heads",
    "parts_from_huggingface",
    "per_layer",
    "register",
    "ring",
    "rotate",
    "to_huggingface",
    "weights",
    "zigzag",
]


def __dir__() -> list[str]:
    """The public names alone."""
    return sorted([*__all__, "__doc__", "__name__", "__version__"])
