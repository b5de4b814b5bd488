"""A stacked LSTM, to which positions are given at its input alone."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from posenc_jax.attention import frame
from posenc_jax.encoding import Encoding
from posenc_jax.lab.config.schema import ModelConfig
from posenc_jax.lab.model.layers.dense_norm import REMAT_POLICIES
from posenc_jax.lab.model.layers.embedding import embedded, read_out


class LSTM(nn.Module):
    """A stacked LSTM; positions act at its input alone. Each segment starts from a state of zeros.

    encoding: acts at the input; by default the order of the steps is all that it knows.
    """

    encoding: Encoding
    vocab: int
    config: ModelConfig
    pooled: bool

    @nn.compact
    def __call__(self, tokens_BT, layout, placed=None, remat=None, **form):
        segment_BT = jnp.broadcast_to(layout.segment_BT, tokens_BT.shape)
        before_BT = jnp.pad(segment_BT, ((0, 0), (1, 0)))[:, :-1]
        real_BT, fresh_BT = segment_BT > 0, segment_BT != before_BT
        if not self.config.masks.attention:  # padding is read as if it were text
            real_BT, fresh_BT = jnp.ones_like(real_BT), fresh_BT & real_BT & (before_BT > 0)

        def step(cell, carry, inputs):
            x_BD, real_B, fresh_B = inputs
            carry = jax.tree.map(lambda s: jnp.where(fresh_B[:, None], jnp.zeros_like(s), s), carry)
            after, y_BD = cell(carry, x_BD)
            hold = lambda new, old: jnp.where(real_B[:, None], new, old)
            return jax.tree.map(hold, after, carry), y_BD

        run = nn.scan(
            step, variable_broadcast="params", split_rngs={"params": False}, in_axes=1, out_axes=1
        )
        run: Any = nn.remat(run, policy=REMAT_POLICIES[remat]) if remat else run
        x_BTD = embedded(self, tokens_BT, layout)
        if self.encoding.embed is not None:
            x_BTD = self._told(x_BTD, layout, placed)
        for n in range(self.config.layers):
            cell = nn.OptimizedLSTMCell(self.config.width, dtype=x_BTD.dtype, name=f"lstm_{n}")
            zeros = jnp.zeros((len(tokens_BT), self.config.width), x_BTD.dtype)
            _, x_BTD = run(cell, (zeros, zeros), (x_BTD, real_BT, fresh_BT))
        return (read_out(self, x_BTD, layout),)

    def _told(self, x_BTD, layout, placed):
        """The embeddings with positions added or concatenated, as `encoding.embed` does it."""
        dims = self.config.dims
        params = self.param("encoding", lambda k: self.encoding.init(k, dims))
        if self.is_initializing():  # the other weights need no positions
            return x_BTD
        return frame(self.encoding, params, layout, dims, placed=placed).embed(x_BTD)
