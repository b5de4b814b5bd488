"""A stacked LSTM, a baseline without positions."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from posenc_jax.lab.config.schema import ModelConfig
from posenc_jax.lab.model.layers.ends import embedded, read_out


class LSTM(nn.Module):
    """A stacked LSTM, a baseline without positions. Each segment starts from a state of zeros."""

    vocab: int
    config: ModelConfig
    pooled: bool

    @nn.compact
    def __call__(self, tokens_BT, layout, placed=None, remat=False, **form):
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
        run: Any = nn.remat(run) if remat else run
        x_BTD = embedded(self, tokens_BT)
        for n in range(self.config.layers):
            cell = nn.OptimizedLSTMCell(self.config.width, dtype=x_BTD.dtype, name=f"lstm_{n}")
            zeros = jnp.zeros((len(tokens_BT), self.config.width), x_BTD.dtype)
            _, x_BTD = run(cell, (zeros, zeros), (x_BTD, real_BT, fresh_BT))
        return (read_out(self, x_BTD, layout),)
