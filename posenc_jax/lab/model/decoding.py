"""Greedy and beam decoding with the cache of a decoder or of an encoder-decoder.

Tokens and layout are those of `Model.apply`: a prompt [B, P], or of an encoder-decoder a `Pair` of
the source and the target's prompt. A row is one sequence. The prompt's padding is on the left; a
row whose last token is padding has scores of NaN.
"""

from typing import Any

import jax
import jax.numpy as jnp

from posenc_jax.lab.model.transformer import Cache, Model
from posenc_jax.lab.tasks.task import Pair
from posenc_jax.layout import Layout


def greedy(
    model: Model, params: Any, tokens: Any, layout: Any, steps: int, end: int
) -> tuple[jax.Array, jax.Array]:
    """The most probable token at each step: (tokens [B, N], their log-probability [B]).

    Args:
      model, params: a decoder or an encoder-decoder.
      tokens, layout: the prompt, see above.
      steps: N, the most tokens.
      end: the token id that ends a sequence. What comes after it is filled with it.
    """
    cache, logits_BV, last = _begin(model, params, tokens, layout, steps)
    zeros_B = jnp.zeros(len(logits_BV), logits_BV.dtype)

    def step(carry, n):
        cache, logits_BV, score_B, ended_B = carry
        logp_BV = _logp(logits_BV, ended_B, end)
        token_B = logp_BV.argmax(axis=-1)
        ended_B |= token_B == end
        cache, logits_BV = _append(model, params, cache, token_B, last, n)
        return (cache, logits_BV, score_B + logp_BV.max(axis=-1), ended_B), token_B

    carry = cache, logits_BV, zeros_B, zeros_B > 0
    (_, _, score_B, _), token_NB = jax.lax.scan(step, carry, jnp.arange(steps))
    return token_NB.T, score_B


def beam(
    model: Model, params: Any, tokens: Any, layout: Any, steps: int, end: int, width: int
) -> tuple[jax.Array, jax.Array]:
    """The sequences that beam search finds, most probable first: (tokens [B, W, N], scores [B, W]).

    Every step keeps the `width` sequences of each row with the largest log-probability, which is
    the score; an ended sequence keeps its own. Scores are not normalised by length.

    Arguments as of `greedy`; with width 1 the sequences are the same. A score of -inf means that
    there are fewer sequences than `width`.
    """
    cache, logits_BV, last = _begin(model, params, tokens, layout, steps)
    batch, vocab = logits_BV.shape
    row_BW = jnp.broadcast_to(jnp.arange(batch)[:, None], (batch, width))
    logits_RV, last = logits_BV[row_BW.ravel()], _rows(last, row_BW)
    first_W = jnp.where(jnp.arange(width) == 0, 0.0, -jnp.inf)  # at first all W are one
    score_BW = jnp.broadcast_to(first_W.astype(logits_BV.dtype), (batch, width))

    def step(carry, n):
        cache, logits_RV, token_BWN, score_BW, ended_BW = carry
        logp_RV = _logp(logits_RV, ended_BW.ravel(), end)
        every_BWV = score_BW[..., None] + logp_RV.reshape(batch, width, vocab)
        score_BW, best_BW = jax.lax.top_k(every_BWV.reshape(batch, -1), width)
        parent_BW, new_BW = best_BW // vocab, best_BW % vocab
        token_BWN = jnp.take_along_axis(token_BWN, parent_BW[..., None], axis=1)
        token_BWN = token_BWN.at[:, :, n].set(new_BW)
        ended_BW = jnp.take_along_axis(ended_BW, parent_BW, axis=1) | (new_BW == end)
        cache = _cache_rows(cache, row_BW * width + parent_BW)
        cache, logits_RV = _append(model, params, cache, new_BW.ravel(), last, n)
        return (cache, logits_RV, token_BWN, score_BW, ended_BW), None

    token_BWN = jnp.full((batch, width, steps), end, jnp.int32)
    carry = _cache_rows(cache, row_BW), logits_RV, token_BWN, score_BW, row_BW < 0
    (_, _, token_BWN, score_BW, _), _ = jax.lax.scan(step, carry, jnp.arange(steps))
    return token_BWN, score_BW


def _begin(model: Model, params, tokens, layout, steps: int) -> tuple[Cache, jax.Array, Layout]:
    """Reads the prompt: (its cache, logits [B, V] of the next token, layout [B, 1] of the last
    token).
    """
    assert model.start is not None
    assert model.decode is not None
    target_BT = tokens.target if isinstance(tokens, Pair) else tokens
    batch, time = target_BT.shape
    if isinstance(tokens, Pair):
        cache = model.start(params, tokens.source, layout.source, time + steps)
        layout = layout.target
    else:
        cache = model.start(params, batch, time + steps)
    logits_BTV, cache = model.decode(params, target_BT, layout, cache)
    newest = lambda leaf: jnp.broadcast_to(leaf[:, -1:], (batch, 1, *leaf.shape[2:]))
    last = jax.tree.map(newest, layout)
    return cache, jnp.where(last.segment_BT > 0, logits_BTV[:, -1], jnp.nan), last


def _append(model: Model, params, cache: Cache, token_B, last: Layout, n) -> tuple:
    """Decodes token number n, which belongs to no group: (cache, logits [B, V] of the next token).

    Methods that read the length of the sequence read the one so far.
    """
    assert model.decode is not None
    here = last.replace(
        pos_BT=last.pos_BT + n + 1,
        index_BT=last.index_BT + n + 1,
        length_BT=last.length_BT + n + 1,
        group_BT=jnp.zeros_like(last.group_BT),
    )
    length_BT = jnp.broadcast_to(here.length_BT, cache.layout.length_BT.shape)
    cache = cache._replace(layout=cache.layout.replace(length_BT=length_BT))
    logits_BTV, cache = model.decode(params, token_B[:, None], here, cache)
    return cache, logits_BTV[:, 0]


def _logp(logits_BV: jax.Array, ended_B: jax.Array, end: int) -> jax.Array:
    """The log-probability of each next token; after the end of a sequence it is 0 for `end` and
    -inf for the others.
    """
    only_V = jnp.where(jnp.arange(logits_BV.shape[1]) == end, 0.0, -jnp.inf)
    logp_BV = jax.nn.log_softmax(logits_BV)
    return jnp.where(ended_B[:, None], only_V.astype(logp_BV.dtype)[None], logp_BV)


def _cache_rows(cache: Cache, row_BW: jax.Array) -> Cache:
    """The cache of the rows `row_BW`, which may repeat, in this order."""
    layout, layers, source = _rows((cache.layout, cache.layers, cache.source), row_BW)
    return Cache(layout, layers, cache.filled, source)


def _rows(tree: Any, row_BW: jax.Array) -> Any:
    return jax.tree.map(lambda leaf: leaf[row_BW.ravel()], tree)
