"""The layers of a small Transformer, and an LSTM; the only file that imports Flax."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

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
    """Pre-norm attention, cross-attention if there is a source, and MLP, each added to x."""

    config: ModelConfig

    @nn.compact
    def __call__(
        self,
        x_BTD,
        at_layer,
        at_cross=None,
        past_BMD=None,
        cached=(None, None),
        column=None,
        source_BKD=None,
    ):
        """The new hidden states, and what a cache keeps of attention and of cross-attention.

        Both are (keys, values, features): of all tokens that the new ones can see, and of the
        source; None if there is none.

        Args:
          x_BTD: hidden states of the tokens of the queries.
          at_layer: `frame.layer` of this layer's number.
          at_cross: the same of cross-attention.
          past_BMD: hidden states of earlier tokens, which are only keys and values.
          cached: of both attentions what was kept before: of earlier tokens, to which the new ones
            are written, and of the source.
          column: the first column of the new tokens in `cached`.
          source_BKD: the encoder's output; not read if something is kept of it.
        """
        own, crossed = cached
        seen = x_BTD if past_BMD is None else jnp.concatenate([past_BMD, x_BTD], axis=1)
        h_BKD = Norm(name="attention_norm")(seen)
        h_BQD = h_BKD[:, -x_BTD.shape[1] :]
        layer = at_layer(h_BQD, None if past_BMD is None else h_BKD)
        kept = *_keys_values(self, "", h_BKD), layer.q_kept
        if own is not None:
            kept = jax.tree.map(partial(write, column=column), own, kept)
            layer = layer.with_keys(kept[2])
        x_BTD = x_BTD + _attended(self, "", h_BQD, kept, layer)
        if at_cross is not None:
            h_BQD = Norm(name="cross_norm")(x_BTD)
            if crossed is None:
                layer = at_cross(h_BQD, source_BKD)
                crossed = *_keys_values(self, "cross_", source_BKD), layer.k_kept
            else:
                layer = at_cross(h_BQD).with_keys(crossed[2])
            x_BTD = x_BTD + _attended(self, "cross_", h_BQD, crossed, layer)
        c, width = self.config, x_BTD.shape[-1]
        dense = partial(Dense, dtype=jnp.dtype(c.dtype))
        h_BTF = nn.gelu(dense(c.mlp * width, name="up")(Norm(name="mlp_norm")(x_BTD)))
        x_BTD = x_BTD + dense(width, gain=1 / (2 * c.layers), name="down")(h_BTF)
        return x_BTD, (kept, crossed)


def _keys_values(block: Block, prefix: str, h_BKD):
    """Keys and values [B, K, G, C] of one attention of a block."""
    heads = block.config.kv_heads or block.config.heads
    return tuple(_heads(block, f"{prefix}{name}", h_BKD, heads) for name in ("key", "value"))


def _attended(block: Block, prefix: str, h_BQD, kept, layer):
    """What one attention of a block adds to the stream, [B, Q, D].

    prefix: the names of its weights begin with it.
    """
    c, (k_BKGC, v_BKGC, _) = block.config, kept
    zeros = nn.initializers.zeros_init()
    sink_H = weight(block, f"{prefix}sink", zeros, (c.heads,)) if c.sinks else None
    options = {"sink_H": sink_H, "cap": c.cap}
    q_BQHC = _heads(block, f"{prefix}query", h_BQD, c.heads)
    o_BQHC = attend(q_BQHC, k_BKGC, v_BKGC, layer, **options)
    if block.is_mutable_collection("intermediates"):  # see `Model.attention`
        block.sow("intermediates", f"{prefix}attention", weights(q_BQHC, k_BKGC, layer, **options))
    out = Dense(h_BQD.shape[-1], jnp.dtype(c.dtype), 1 / (2 * c.layers), name=f"{prefix}out")
    return out(o_BQHC.reshape(h_BQD.shape))


def _heads(block: Block, name: str, x_BTD, count: int):
    """An affine map of x to so many heads, [B, T, H, C]."""
    head = block.config.dims.head
    made = Dense(count * head, jnp.dtype(block.config.dtype), name=name)(x_BTD)
    return made.reshape(*x_BTD.shape[:2], count, head)


class Source(NamedTuple):
    """What the decoder attends to: the encoder's output, at the positions of its layout.

    x_BKD:  None where a cache has the keys and values made of it.
    placed: positions drawn in training, of queries and of keys; None: see `frame`.
    """

    layout: Layout
    x_BKD: jax.Array | None = None
    placed: Any = None


class Transformer(nn.Module):
    """Token embedding, blocks, norm and read-out; causal if the config's kind is "decoder".

    cross:  the encoding of cross-attention to a source.
    states: the normalised hidden states take the place of the logits.
    """

    encoding: Encoding
    vocab: int
    config: ModelConfig
    pooled: bool = False
    cross: Encoding = Encoding()
    states: bool = False

    @nn.compact
    def __call__(
        self,
        tokens_BT,
        layout,
        placed=None,
        memory=None,
        cache=None,
        remat=False,
        source=None,
        **form,
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
        cross = None if source is None else self._across(source, layout, form)
        source_BKD = None if source is None else source.x_BKD
        # 2 and 3: `at_layer` and `at_cross`
        kind: Any = nn.remat(Block, static_argnums=(2, 3)) if remat else Block
        make = partial(kind, c)
        inputs, kept = [], []
        if memory is None and cache is None and self._alike(view, cross):
            block = make(parent=None)
            x_BTD, (inputs, kept) = _scanned(self, block, view, cross, x_BTD, source_BKD)
            return self._output(x_BTD, layout), inputs, kept
        for n in range(c.layers):
            inputs.append(x_BTD)
            block = make(name=f"block_{n}")
            past = None if memory is None else memory.x[n]
            cached = (None, None) if cache is None else cache.kept[n]
            layers = _layers(n, view, cross)
            x_BTD, keep = block(x_BTD, *layers, past, cached, column, source_BKD)
            kept.append(keep)
        return self._output(x_BTD, layout), tuple(inputs), tuple(kept)

    def _output(self, x_BTD, layout):
        return Norm(name="norm")(x_BTD) if self.states else _read_out(self, x_BTD, layout)

    def _across(self, source, layout, form):
        """The frame of cross-attention from the tokens of `layout` to those of the source."""
        dims, cross = self.config.dims, self.cross
        params = self.param("cross_encoding", lambda k: cross.init(k, dims))
        if self.is_initializing():
            cross, params = Encoding(), {}
        options = {"placed": source.placed, "mask": self.config.masks.attention, **form}
        return frame(cross, params, layout, dims, source.layout, **options)

    def _alike(self, *views) -> bool:
        """Whether the blocks are one program that is compiled once. A CPU runs it more slowly."""
        looped = target().loops and not tuned_for_cpu()
        if not looped or self.is_initializing() or self.is_mutable_collection("intermediates"):
            return False
        several = self.config.layers > 1
        return several and all(view is None or view.layers_alike() for view in views)


def _layers(n, *views):
    """For each frame what makes its layer number n; None for None."""
    return [None if view is None else partial(view.layer, n) for view in views]


def _scanned(module, block, view, cross, x_BTD, source_BKD):
    """(hidden states, (inputs of each layer, what each layer keeps)) of all blocks, one program."""
    layers = module.config.layers
    given = [module.get_variable("params", f"block_{n}") for n in range(layers)]

    def one(x_BTD, params_n):
        params, n = params_n
        given = x_BTD, *_layers(n, view, cross), None, (None, None), None, source_BKD
        after, keep = block.apply({"params": params}, *given)
        return after, (x_BTD, keep)

    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *given)
    x_BTD, every = jax.lax.scan(one, x_BTD, (stacked, jnp.arange(layers)))
    by_layer = [jax.tree.map(lambda x, n=n: x[n], every) for n in range(layers)]
    return x_BTD, tuple(zip(*by_layer, strict=True))


class EncoderDecoder(nn.Module):
    """A Transformer that encodes the source, and one that decodes the target and attends to it.

    encodings: in the encoder, in the decoder, and in cross-attention.
    """

    encodings: tuple[Encoding, Encoding, Encoding]
    vocab: int
    config: ModelConfig
    pooled: bool = False

    @nn.compact
    def __call__(self, tokens, layout, placed=None, cache=None, remat=False, **form):
        """As the decoder's, of a `Pair` of tokens and a `Pair` of layouts.

        With a cache, which has the source, they are those of the target alone.
        """
        encoding, decoding, cross = self.encodings
        drawn, own, across = (None, None, None) if placed is None else placed
        encodes, decodes = (
            self.config.model_copy(update={"kind": kind}) for kind in ("encoder", "decoder")
        )
        if cache is None:
            encoder = Transformer(encoding, self.vocab, encodes, states=True, name="encoder")
            x_BKD, *_ = encoder(tokens.source, layout.source, drawn, remat=remat, **form)
            source = Source(layout.source, x_BKD, across)
            tokens, layout = tokens.target, layout.target
        else:
            source = Source(cache.source)
        decoder = Transformer(decoding, self.vocab, decodes, self.pooled, cross, name="decoder")
        return decoder(tokens, layout, own, cache=cache, remat=remat, source=source, **form)


class LSTM(nn.Module):
    """A stacked LSTM; positions act at its input alone. Each segment starts from a state of zeros.

    encoding: acts at the input; by default the order of the steps is all that it knows.
    """

    encoding: Encoding
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
        if self.encoding.embed is not None:
            x_BTD = self._told(x_BTD, layout, placed)
        for n in range(self.config.layers):
            cell = nn.OptimizedLSTMCell(self.config.width, dtype=x_BTD.dtype, name=f"lstm_{n}")
            zeros = jnp.zeros((len(tokens_BT), self.config.width), x_BTD.dtype)
            _, x_BTD = run(cell, (zeros, zeros), (x_BTD, real_BT, fresh_BT))
        return (_read_out(self, x_BTD, layout),)

    def _told(self, x_BTD, layout, placed):
        """The embeddings with positions, added or concatenated as the encoding does it."""
        dims = self.config.dims
        params = self.param("encoding", lambda k: self.encoding.init(k, dims))
        if self.is_initializing():  # the other weights need no positions
            return x_BTD
        return frame(self.encoding, params, layout, dims, placed=placed).embed(x_BTD)


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
