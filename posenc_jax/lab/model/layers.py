"""The layers of a small Transformer, and an LSTM; the only file that imports Flax."""

from collections.abc import Callable
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from posenc_jax.attention import attend, frame, weights
from posenc_jax.dtypes import widest
from posenc_jax.encoding import Encoding
from posenc_jax.lab.config.schema import ModelConfig
from posenc_jax.lab.hosts.tuning import linear
from posenc_jax.layout import Layout, join
from posenc_jax.tuning import target, tuned_for_cpu


def weight(module: nn.Module, name: str, init: Callable, shape: tuple[int, ...]) -> jax.Array:
    """The weight of a module, made by `init` at initialisation.

    `module.param` would trace the initialiser in every pass, only to check the shape.

    ValueError: the weight has another shape.
    """
    given = module.get_variable("params", name)
    if given is None:
        return module.param(name, init, shape)
    if given.shape != shape:
        where = "/".join((*module.path, name))
        raise ValueError(f"{where}: a weight of shape {given.shape}; the model needs {shape}")
    return given


class Dense(nn.Module):
    """An affine map of the last axis; `gain` scales the variance of its initial weights."""

    features: int
    dtype: Any
    gain: float = 1.0

    @nn.compact
    def __call__(self, x):
        init = nn.initializers.variance_scaling(self.gain, "fan_in", "truncated_normal")
        w = weight(self, "kernel", init, (x.shape[-1], self.features))
        b = weight(self, "bias", nn.initializers.zeros_init(), (self.features,))
        return linear(x.astype(self.dtype), w.astype(self.dtype), b.astype(self.dtype))


class Norm(nn.Module):
    """Layer normalisation of the last axis, in float32."""

    @nn.compact
    def __call__(self, x):
        shape = (1,) * (x.ndim - 1) + x.shape[-1:]
        scale = weight(self, "scale", nn.initializers.ones_init(), x.shape[-1:]).reshape(shape)
        bias = weight(self, "bias", nn.initializers.zeros_init(), x.shape[-1:]).reshape(shape)
        wide = x.astype(widest(x.dtype))
        wide = wide - wide.mean(axis=-1, keepdims=True)
        wide = wide * jax.lax.rsqrt(jnp.square(wide).mean(axis=-1, keepdims=True) + 1e-6)
        return (wide * scale.astype(wide.dtype) + bias.astype(wide.dtype)).astype(x.dtype)


class Block(nn.Module):
    """Pre-norm attention and MLP, each added to the residual stream."""

    config: ModelConfig

    @nn.compact
    def __call__(self, x_BTD, at_layer, past_BMD=None, cached=None, column=None):
        """The new hidden states, and (keys, values, features) of all tokens that they can see.

        Args:
          x_BTD: hidden states of the tokens of the queries.
          at_layer: `frame.layer` of this layer's number.
          past_BMD: hidden states of earlier tokens, which are only keys and values.
          cached: keys, values and features of earlier tokens, into which the new ones are written.
          column: the first column of the new tokens in `cached`.
        """
        c, (time, width) = self.config, x_BTD.shape[1:]
        head, shared, gain = c.dims.head, c.kv_heads or c.heads, 1 / (2 * c.layers)
        dense = partial(Dense, dtype=jnp.dtype(c.dtype))
        heads = lambda x, name, count: dense(count * head, name=name)(x).reshape(
            *x.shape[:2], count, head
        )
        sink_H = weight(self, "sink", nn.initializers.zeros_init(), (c.heads,)) if c.sinks else None
        options = {"sink_H": sink_H, "cap": c.cap}
        seen = x_BTD if past_BMD is None else jnp.concatenate([past_BMD, x_BTD], axis=1)
        h_BKD = Norm(name="attention_norm")(seen)
        h_BQD = h_BKD[:, -time:]
        layer = at_layer(h_BQD, None if past_BMD is None else h_BKD)
        q_BQHC = heads(h_BQD, "query", c.heads)
        kept = heads(h_BKD, "key", shared), heads(h_BKD, "value", shared), layer.q_kept
        if cached is not None:
            kept = jax.tree.map(partial(write, column=column), cached, kept)
            layer = layer.with_keys(kept[2])
        k_BKGC, v_BKGC, _ = kept
        o_BQHC = attend(q_BQHC, k_BKGC, v_BKGC, layer, **options)
        if self.is_mutable_collection("intermediates"):  # see `Model.attention`
            self.sow("intermediates", "attention", weights(q_BQHC, k_BKGC, layer, **options))
        x_BTD = x_BTD + dense(width, gain=gain, name="out")(o_BQHC.reshape(x_BTD.shape))
        h_BTF = nn.gelu(dense(c.mlp * width, name="up")(Norm(name="mlp_norm")(x_BTD)))
        return x_BTD + dense(width, gain=gain, name="down")(h_BTF), kept


class Transformer(nn.Module):
    """Token embedding, blocks, norm and read-out; an encoder if not `causal`."""

    encoding: Encoding
    vocab: int
    config: ModelConfig
    pooled: bool

    @nn.compact
    def __call__(
        self, tokens_BT, layout, placed=None, memory=None, cache=None, remat=False, **form
    ):
        """(logits, hidden states at each layer's input, what each layer keeps for a cache)."""
        c, dims = self.config, self.config.dims
        params = self.param("encoding", lambda k: self.encoding.init(k, dims))
        encoding = self.encoding
        if self.is_initializing():  # the other weights need no positions
            encoding, params = Encoding(), {}
        tokens, column, time = layout, None, tokens_BT.shape[1]
        if memory is not None:
            tokens = join(memory.layout, layout)
            column = tokens.index_BT.shape[1] - time
        elif cache is not None:
            tokens, column = cache.layout, cache.filled
        view = frame(
            encoding,
            params,
            tokens,
            dims,
            queries=None if column is None else (column, time),
            causal=c.kind == "decoder",
            placed=placed,
            mask=c.masks.attention,
            **form,
        )
        x_BTD = view.embed(_embed(self, tokens_BT))
        kind: Any = nn.remat(Block, static_argnums=2) if remat else Block  # 2: `at_layer`
        make = partial(kind, c)
        inputs, kept = [], []
        if memory is None and cache is None and self._alike(view):
            x_BTD, (inputs, kept) = _scanned(self, make(parent=None), view, x_BTD)
            return _read_out(self, x_BTD, layout), inputs, kept
        for n in range(c.layers):
            inputs.append(x_BTD)
            block = make(name=f"block_{n}")
            past = None if memory is None else memory.x[n]
            cached = None if cache is None else cache.kept[n]
            x_BTD, keep = block(x_BTD, partial(view.layer, n), past, cached, column)
            kept.append(keep)
        return _read_out(self, x_BTD, layout), tuple(inputs), tuple(kept)

    def _alike(self, view) -> bool:
        """Whether the blocks are one program that is compiled once. A CPU runs it more slowly."""
        looped = target().loops and not tuned_for_cpu()
        if not looped or self.is_initializing() or self.is_mutable_collection("intermediates"):
            return False
        return self.config.layers > 1 and view.layers_alike()


def _scanned(module, block, view, x_BTD):
    """(hidden states, (inputs of each layer, what each layer keeps)) of all blocks, one program."""
    layers = module.config.layers
    given = [module.get_variable("params", f"block_{n}") for n in range(layers)]

    def one(x_BTD, params_n):
        params, n = params_n
        after, keep = block.apply({"params": params}, x_BTD, partial(view.layer, n))
        return after, (x_BTD, keep)

    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *given)
    x_BTD, every = jax.lax.scan(one, x_BTD, (stacked, jnp.arange(layers)))
    by_layer = [jax.tree.map(lambda x, n=n: x[n], every) for n in range(layers)]
    return x_BTD, tuple(zip(*by_layer, strict=True))


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
        x_BTD = _embed(self, tokens_BT)
        for n in range(self.config.layers):
            cell = nn.OptimizedLSTMCell(self.config.width, dtype=x_BTD.dtype, name=f"lstm_{n}")
            zeros = jnp.zeros((len(tokens_BT), self.config.width), x_BTD.dtype)
            _, x_BTD = run(cell, (zeros, zeros), (x_BTD, real_BT, fresh_BT))
        return (_read_out(self, x_BTD, layout),)


def write(old, new, column):
    """The old array [B, K, ...] with new columns [B or 1, T, ...] from `column` on."""
    new = jnp.broadcast_to(new, old.shape[:1] + new.shape[1:])
    return jax.lax.dynamic_update_slice_in_dim(old, new, column, axis=1)


def _embed(module, tokens_BT):
    if tokens_BT.ndim == 3:  # vectors [B, T, F], such as patches of an image
        return Dense(module.config.width, jnp.dtype(module.config.dtype), name="embed")(tokens_BT)
    init = nn.initializers.normal(1.0)
    table_VD = weight(module, "embed", init, (module.vocab, module.config.width))
    return table_VD.astype(module.config.dtype)[tokens_BT]


def _read_out(module, x_BTD, layout: Layout):
    """The logits of each token, or of the mean over tokens if pooled, in float32 or wider."""
    x_BTD = Norm(name="norm")(x_BTD)
    real_BT1 = jnp.broadcast_to(layout.segment_BT, x_BTD.shape[:2])[..., None] > 0
    real_BT1 |= jnp.logical_not(module.config.masks.output)
    x_BTD = jnp.where(real_BT1, x_BTD, 0)
    if module.pooled:
        x_BTD = x_BTD.sum(axis=1) / jnp.maximum(real_BT1.sum(axis=1), 1).astype(x_BTD.dtype)
    logits = Dense(module.vocab, x_BTD.dtype, name="read_out")(x_BTD)
    return logits.astype(widest(logits.dtype))
