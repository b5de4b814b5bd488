"""A stack of blocks between embedding and read-out, and two of them as an encoder-decoder."""

from functools import partial
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from posenc_jax.attention import frame
from posenc_jax.backends.target import target, tuned_for
from posenc_jax.encoding import Encoding
from posenc_jax.lab.config.schema import ModelConfig
from posenc_jax.lab.model.layers.block import Block
from posenc_jax.lab.model.layers.dense_norm import REMAT_POLICIES, norm
from posenc_jax.lab.model.layers.embedding import embedded, final, read_out
from posenc_jax.layout import Layout, join


class Source(NamedTuple):
    """What the decoder attends to: the encoder's output, and its layout.

    x_BKD:  None where a cache has its keys and values.
    placed: positions drawn in training, of queries and of keys; None: see `frame`.
    """

    layout: Layout
    x_BKD: jax.Array | None = None
    placed: Any = None


class Transformer(nn.Module):
    """Token embedding, blocks, norm and read-out; causal if the config's kind is "decoder".

    cross:  the encoding of cross-attention to a source.
    states: the last hidden states take the place of the logits.
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
        remat=None,
        source=None,
        **form,
    ):
        """Returns (logits, hidden states at each layer's input, what each layer stores in a
        cache).
        """
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
            mask_padding=c.masks.attention,
            **form,
        )
        x_BTD = view.embed(embedded(self, tokens_BT, layout))
        if c.embedding == "norm":
            x_BTD = norm(c, "embed_norm")(x_BTD)
        cross = None if source is None else self._across(source, layout, form)
        source_BKD = None if source is None else source.x_BKD
        # The arguments 2 and 3, `at_layer` and `at_cross`, are functions, not arrays.
        kind: Any = Block
        if remat:
            kind = nn.remat(Block, static_argnums=(2, 3), policy=REMAT_POLICIES[remat])
        make = partial(kind, c)
        inputs, entries = [], []
        if memory is None and cache is None and self._alike(view, cross):
            block = make(parent=None)
            x_BTD, (inputs, entries) = _scanned(self, block, view, cross, x_BTD, source_BKD)
            return self._output(x_BTD, layout), inputs, entries
        for n in range(c.layers):
            inputs.append(x_BTD)
            block = make(normed=n > 0 or c.first_norm, name=f"block_{n}")
            past = None if memory is None else memory.x[n]
            cached = (None, None) if cache is None else cache.layers[n]
            layers = _layers(n, view, cross)
            x_BTD, keep = block(x_BTD, *layers, past, cached, column, source_BKD)
            entries.append(keep)
        return self._output(x_BTD, layout), tuple(inputs), tuple(entries)

    def _output(self, x_BTD, layout):
        return final(self, x_BTD) if self.states else read_out(self, x_BTD, layout)

    def _across(self, source, layout, form):
        """The frame of cross-attention from the tokens of `layout` to those of the source."""
        dims, cross = self.config.dims, self.cross
        params = self.param("cross_encoding", lambda k: cross.init(k, dims))
        if self.is_initializing():
            cross, params = Encoding(), {}
        options = {"placed": source.placed, "mask_padding": self.config.masks.attention, **form}
        return frame(cross, params, layout, dims, source.layout, **options)

    def _alike(self, *views) -> bool:
        """Whether the blocks run as one scan, compiled once; never on a CPU, which runs a scan more
        slowly.
        """
        looped = target().loops and not tuned_for("cpu")
        if not looped or self.is_initializing() or self.is_mutable_collection("intermediates"):
            return False
        one_block = self.config.layers > 1 and self.config.first_norm
        return one_block and all(view is None or view.layers_alike() for view in views)


def _layers(n, *views):
    """For each frame the function that makes its layer n; None for None."""
    return [None if view is None else partial(view.layer, n) for view in views]


def _scanned(module, block, view, cross, x_BTD, source_BKD):
    """Runs all blocks as one scan: (hidden states, (inputs of each layer, cache entries of each
    layer)).
    """
    layers = module.config.layers
    block_params = [module.get_variable("params", f"block_{n}") for n in range(layers)]

    def apply_block(x_BTD, params_n):
        params, n = params_n
        args = x_BTD, *_layers(n, view, cross), None, (None, None), None, source_BKD
        after, keep = block.apply({"params": params}, *args)
        return after, (x_BTD, keep)

    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *block_params)
    x_BTD, every = jax.lax.scan(apply_block, x_BTD, (stacked, jnp.arange(layers)))
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
    def __call__(self, tokens, layout, placed=None, cache=None, remat=None, **form):
        """`Transformer.__call__` of the decoder, for a `Pair` of tokens and a `Pair` of layouts.

        With a cache, which has the source, they are those of the target alone.
        """
        encoding, decoding, cross = self.encodings
        source_placed, target_placed, cross_placed = (
            (None, None, None) if placed is None else placed
        )
        encodes, decodes = (
            self.config.model_copy(update={"kind": kind}) for kind in ("encoder", "decoder")
        )
        if cache is None:
            encoder = Transformer(encoding, self.vocab, encodes, states=True, name="encoder")
            x_BKD, *_ = encoder(tokens.source, layout.source, source_placed, remat=remat, **form)
            source = Source(layout.source, x_BKD, cross_placed)
            tokens, layout = tokens.target, layout.target
        else:
            source = Source(cache.source)
        decoder = Transformer(decoding, self.vocab, decodes, self.pooled, cross, name="decoder")
        return decoder(
            tokens, layout, target_placed, cache=cache, remat=remat, source=source, **form
        )
