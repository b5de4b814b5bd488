"""The layers of a small Transformer, and an LSTM; the only modules that import Flax."""

from posenc_jax.lab.model.layers.block import write
from posenc_jax.lab.model.layers.lstm import LSTM
from posenc_jax.lab.model.layers.stack import EncoderDecoder, Transformer

__all__ = ["LSTM", "EncoderDecoder", "Transformer", "write"]
