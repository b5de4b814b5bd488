"""A small Transformer as a bundle of pure functions; an encoder-decoder and an LSTM likewise.

`build` wraps the Flax modules of `layers`; no other file uses them.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax.core import Tracer

from posenc_jax.combinators import acts_in_attention
from posenc_jax.encoding import Encoding, Placed
from posenc_jax.lab.config.schema import ModelConfig
from posenc_jax.lab.model.layers import LSTM, EncoderDecoder, Transformer, write
from posenc_jax.lab.tasks.task import Pair
from posenc_jax.layout import Layout, full, join


class Encodings(NamedTuple):
    """The encodings of an encoder-decoder: of the source, of the target, and between the two.

    cross: acts in cross-attention, on the target's queries and the source's keys, each with the
      positions of its own side; by default nothing acts there.
    """

    encoder: Encoding
    decoder: Encoding
    cross: Encoding = Encoding()


class Memory(NamedTuple):
    """Hidden states of earlier segments at each layer's input, [B, M, D] (arXiv 1901.02860)."""

    layout: Layout
    x: tuple[jax.Array, ...]


class Cache(NamedTuple):
    """A decoding cache: keys, values and walk features of all tokens so far, from column 0 on.

    Empty columns have segment 0. Keys are stored before the rotation, because the rotation of some
    methods depends on the current length.

    layers: of each layer (k_BKHC, v_BKHC, feat) of these tokens, and the same of the source.
    source: the source's tokens, in an encoder-decoder.
    """

    layout: Layout
    layers: tuple[Any, ...]
    filled: jax.Array
    source: Layout | None = None


class Model(NamedTuple):
    """A model as pure functions of explicit parameters; an LSTM has `init`, `apply` and `place`.

    An encoder-decoder has no `extend`, `attention` and `projections`. `apply` and `place` take a
    `Pair` for tokens_BT and a `Pair` for layout, and logits are the target's; `decode` takes the
    target alone. ValueError: a layout has neither the shape of its tokens nor one row for all.

    init:   (key) -> params.
    apply:  (params, tokens_BT, layout, placed=None, remat=None, **form) -> logits [B, T, V], or
            [B, V] if pooled. `placed` is the result of `place`, in training only; `remat` names
            what layers keep for the backward pass, a key of `REMAT_POLICIES`, None: all; `form`
            goes to `attention.frame`. A model of vectors reads [B, T, F] instead of token ids.
    place:  (key, layout) -> placed, [B, T, ...]: the positions that the encoding reads, drawn in
            training; None if it reads the layout's.
    extend: (params, tokens_BT, layout, memory=None, keep=None) -> (logits, memory): a segment that
            follows those in the memory. The new memory holds the newest `keep` tokens, by default
            those of this segment; no gradient flows into it.
    decode: (params, tokens_BT, layout, cache) -> (logits, cache): the next tokens, one or many.
            ValueError: they do not fit into the cache; if `cache.filled` is traced, the logits are
            NaN instead.
    start:  (params, batch, capacity) -> an empty cache; of an encoder-decoder
            (params, source_BK, layout, capacity), which encodes the source.
    attention: (params, tokens_BT, layout, **form) -> the weights of each layer, [B, H, Q, K].
    projections: (params, tokens_BT, layout, **form) -> the queries [B, T, H, C], keys and values
            [B, T, G, C] of each layer, before positions act on them.
    """

    init: Callable[[jax.Array], Any]
    apply: Callable[..., jax.Array]
    place: Callable[[jax.Array, Any], Placed] = lambda key, layout: None
    extend: Callable[..., tuple[jax.Array, Memory]] | None = None
    decode: Callable[..., tuple[jax.Array, Cache]] | None = None
    start: Callable[..., Cache] | None = None
    attention: Callable[..., tuple[jax.Array, ...]] | None = None
    projections: Callable[..., tuple[tuple[jax.Array, jax.Array, jax.Array], ...]] | None = None


def build(
    config: ModelConfig,
    encoding: Encoding | Encodings,
    vocab: int,
    *,
    pooled: bool = False,
    axes: int = 1,
    features: int | None = None,
    states: bool = False,
) -> Model:
    """The model that the config describes.

    Args:
      config: kind, widths, masks and dtype.
      encoding: the position encoding; of an encoder-decoder its `Encodings`; of an LSTM one that
        acts at the input.
      vocab: number of token ids, which is also the number of logits.
      pooled: one output for each sequence, from the mean over its tokens.
      axes: axes of the positions: 1 for sequences, 2 for (row, column).
      features: the width of the vectors [B, T, features] that the model, or its encoder, reads
        through a linear map; None: it reads token ids.
      states: the hidden states after the last layer, [B, T, D], take the place of the logits, and
        there is no read-out; of a decoder or an encoder alone.

    Raises:
      ValueError: the encoding does not fit the model's widths or its kind.
    """
    _check_kind(config.kind, encoding)
    if states and (pooled or config.kind not in ("decoder", "encoder")):
        kind = f"a pooled {config.kind}" if pooled else f"an {config.kind}"
        raise ValueError(f"states: {kind} has no hidden states in place of logits")
    if isinstance(encoding, Encodings):
        module: Any = EncoderDecoder(encoding, vocab, config, pooled)
    elif config.kind == "lstm":
        module = LSTM(encoding, vocab, config, pooled)
    else:
        module = Transformer(encoding, vocab, config, pooled, states=states)

    def run(params, tokens_BT, layout, *args, **kwargs):
        _check_layout(tokens_BT, layout)
        return module.apply({"params": params}, tokens_BT, layout, *args, **kwargs)

    def init(key):
        words = jnp.zeros((1, 2), jnp.int32)
        tokens = words if features is None else jnp.zeros((1, 2, features))
        at = _unpadded(1, 2, axes)
        paired = isinstance(encoding, Encodings)
        args = (Pair(tokens, words), Pair(at, at)) if paired else (tokens, at)
        return module.init(key, *args)["params"]

    def apply(params, tokens_BT, layout, placed=None, remat=None, **form):
        return run(params, tokens_BT, layout, placed=placed, remat=remat, **form)[0]

    if config.kind == "lstm":
        return Model(init, apply, place=partial(_draw_positions, encoding))

    if isinstance(encoding, Encodings):
        place, start = partial(_draw_pair_positions, encoding), partial(_start_pair, run, axes)
        return Model(init, apply, place=place, decode=partial(_decode, run), start=start)

    return Model(
        init,
        apply,
        place=partial(_draw_positions, encoding),
        extend=partial(_extend, run),
        decode=partial(_decode, run),
        start=partial(_start, run, axes),
        attention=partial(_sown, run, config.layers, "attention"),
        projections=partial(_sown, run, config.layers, "projections"),
    )


def _sown(run, layers: int, name: str, params, tokens_BT, layout, **form) -> tuple[Any, ...]:
    """What the attention of each layer stores under a name, see `layers/block.py`."""
    variables = run(params, tokens_BT, layout, mutable=["intermediates"], **form)[1]
    blocks = variables["intermediates"]
    return tuple(blocks[f"block_{n}"][name][0] for n in range(layers))


def classifier(
    config: ModelConfig,
    encoding: Encoding,
    vocab: int,
    *,
    axes: int = 1,
    features: int | None = None,
    pooling: Literal["mean", "first"] = "mean",
) -> Model:
    """The model with one answer for each sequence or image: logits [B, 1, vocab].

    Args:
      config, encoding, vocab, features: as of `build`; labels are among the token ids.
      axes: axes of the positions. They need not count up by one, so no `form` goes to the
        attention.
      pooling: the answer is read from the mean over tokens, or from the token in column 0.
    """
    pooled = pooling == "mean"
    model = build(config, encoding, vocab, pooled=pooled, axes=axes, features=features)

    def apply(params, x_BT, layout, placed=None, remat=None, **form):
        del form
        logits = model.apply(params, x_BT, layout, placed, remat)
        return logits[:, None] if pooled else logits[:, :1]

    return model._replace(apply=apply)


def _check_layout(tokens: Any, layout: Any) -> None:
    """ValueError: the layout has another shape than the tokens; one row stands for all."""
    if isinstance(tokens, Pair):
        for side, side_layout in zip(tokens, layout, strict=True):
            _check_layout(side, side_layout)
        return
    (rows, time), shape = tokens.shape[:2], layout.segment_BT.shape
    if shape not in ((rows, time), (1, time)):
        raise ValueError(
            f"layout: its shape {shape} does not fit tokens of shape {(rows, time)}; it is that of "
            "the tokens, or has one row for all"
        )


def _check_kind(kind: str, encoding: Encoding | Encodings) -> None:
    """Raises ValueError if the encodings belong to another kind of model, or cannot act in
    cross-attention.
    """
    paired = kind == "encoder_decoder"
    if isinstance(encoding, Encodings) != paired:
        wanted = "Encodings(encoder, decoder, cross)" if paired else "one Encoding"
        actual = type(encoding).__name__
        raise ValueError(f"encoding: {actual}; a model of kind {kind!r} takes {wanted}")
    if kind == "lstm" and isinstance(encoding, Encoding) and acts_in_attention(encoding):
        raise ValueError("encoding: this one acts in attention, which an LSTM does not have")
    if isinstance(encoding, Encodings) and encoding.cross.embed is not None:
        raise ValueError("cross: this encoding acts at the input of a model, not in attention")


def _draw_pair_positions(encodings: Encodings, key, layout: Pair):
    """`Model.place` of an encoder-decoder: (encoder's, decoder's, cross-attention's for (queries,
    keys)).
    """
    keys = iter(jax.random.split(key, 4))
    source, target, cross = encodings
    across = tuple(
        _draw_positions(cross, next(keys), side) for side in (layout.target, layout.source)
    )
    return (
        _draw_positions(source, next(keys), layout.source),
        _draw_positions(target, next(keys), layout.target),
        across,
    )


def _draw_positions(encoding, key, layout):
    """`Model.place` of a model with one encoding; each leaf is broadcast to the rows of the
    batch.
    """
    if encoding.place is None:
        return None
    placed = encoding.place(key, layout)
    rows = len(layout.segment_BT)
    return jax.tree.map(lambda x: jnp.broadcast_to(x, (rows, *x.shape[1:])), placed)


def _extend(run, params, tokens_BT, layout, memory=None, keep=None):
    """`Model.extend`."""
    logits, inputs, _ = run(params, tokens_BT, layout, memory=memory)
    keep = tokens_BT.shape[1] if keep is None else keep
    if memory is not None:
        layout = join(memory.layout, layout)
        both = zip(memory.x, inputs, strict=True)
        inputs = tuple(jnp.concatenate(pair, axis=1) for pair in both)
    newest = lambda leaf: leaf[:, max(leaf.shape[1] - keep, 0) :]
    carried = jax.tree.map(newest, Memory(layout, inputs))
    return logits, jax.lax.stop_gradient(carried)


def _decode(run, params, tokens_BT, layout, cache):
    """`Model.decode`."""
    time, capacity = tokens_BT.shape[1], cache.layout.index_BT.shape[1]
    if not isinstance(cache.filled, Tracer) and cache.filled + time > capacity:
        raise ValueError(
            f"cache: {time} tokens do not fit after {cache.filled} of {capacity}; start it with a "
            "larger capacity"
        )
    layout, held = layout.replace(counted=False, indexed=False), cache.layout
    if jnp.issubdtype(layout.pos_BT.dtype, jnp.floating):  # a cache starts with whole positions
        held = held.replace(pos_BT=held.pos_BT.astype(layout.pos_BT.dtype))
    seen = jax.tree.map(partial(write, column=cache.filled), held, layout)
    cache = cache._replace(layout=seen)
    logits, _, entries = run(params, tokens_BT, layout, cache=cache)
    filled = cache.filled + time
    logits = jnp.where(filled <= capacity, logits, jnp.nan)
    return logits, cache._replace(layers=entries, filled=filled)


def _start(run, axes, params, batch, capacity):
    """`Model.start` of a decoder."""
    tokens = jnp.zeros((batch, capacity), jnp.int32)
    everywhere = _unpadded(batch, capacity, axes)
    entries = jax.eval_shape(run, params, tokens, everywhere)[2]
    return _empty(batch, everywhere, entries)


def _start_pair(run, axes, params, source_BK, layout, capacity):
    """`Model.start` of an encoder-decoder."""
    batch = len(source_BK)

    def layer_entries(time):
        words = jnp.zeros((batch, time), jnp.int32)
        pair = Pair(source_BK, words), Pair(layout, _unpadded(batch, time, axes))
        return run(params, *pair)[2]

    cache = _empty(
        batch, _unpadded(batch, capacity, axes), jax.eval_shape(partial(layer_entries, capacity))
    )
    # The source's keys and values do not depend on the target, of which one token is enough here.
    both = zip(cache.layers, layer_entries(1), strict=True)
    spread_rows = lambda leaf: jnp.broadcast_to(leaf, (batch, *leaf.shape[1:]))
    source = jax.tree.map(spread_rows, layout.replace(counted=False, indexed=False))
    return cache._replace(
        layers=tuple((target_kv, with_source[1]) for (target_kv, _), with_source in both),
        source=source,
    )


def _empty(batch, everywhere, entries):
    """A cache without tokens, with the shapes of a layout and of the entries of each layer."""
    empty = lambda leaf: jnp.zeros((batch, *leaf.shape[1:]), leaf.dtype)
    layout, entries = jax.tree.map(
        empty, (everywhere.replace(counted=False, indexed=False), entries)
    )
    return Cache(layout, entries, jnp.zeros((), jnp.int32))


def _unpadded(batch, time, axes):
    """The layout of rows without padding, with positions of `axes` axes."""
    rows = full(batch, time)
    if axes > 1:
        rows = rows.replace(pos_BT=jnp.stack([rows.pos_BT] * axes, axis=-1))
    return rows
