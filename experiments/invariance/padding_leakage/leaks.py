"""Trains one encoding under every subset of the masks, and measures what padding changes.

More letters of shapes: A amounts of padding, 2 states (untrained, trained), M subsets of the masks,
D sides, S seeds; R all runs of a program, M x S.
"""

import itertools
from collections.abc import Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.invariance.padding_leakage.fields import Config, Data
from experiments.invariance.padding_leakage.sequences import Batch, Drawn, drawn
from experiments.invariance.small_models import largest
from posenc_jax.encoding import Encoding, Placed
from posenc_jax.lab.config import schema
from posenc_jax.lab.hosts.compiling import jit_quick
from posenc_jax.lab.hosts.fast_training import over_seeds
from posenc_jax.lab.model import transformer
from posenc_jax.lab.model.transformer import Model
from posenc_jax.lab.training.loop import refuse_not_finite
from posenc_jax.lab.training.step import (
    INIT,
    PLACE,
    mean_loss,
    random_key,
    train_small,
)
from posenc_jax.layout import Layout

MASKS = ("attention", "output", "loss")
SUBSETS = tuple(itertools.product((False, True), repeat=len(MASKS)))
# A quantity is ("content" or "amount", field of Computed), ("token" or "pooled", condition) for an
# accuracy, or ("mass",) for the attention on padding.
Quantity = tuple[str, ...]
Leaks = dict[tuple[Quantity, str], np.ndarray]  # (quantity, subset of the masks) -> [A, 2, D, S]


class Computed(NamedTuple):
    """Results on one batch: outputs of the N real tokens [B, N, V], the pooled output [B, V], the
    loss of the tokens, its gradient.
    """

    outputs: Any
    pooled: Any
    loss: Any
    gradient: Any


class Run(NamedTuple):
    """What differs between the runs of a program, each [R]; scalars inside a run.

    row: the index of the seed.
    """

    attention_mask: jax.Array
    output_mask: jax.Array
    loss_mask: jax.Array
    row: jax.Array
    seed: jax.Array


def subset(used: Sequence[bool]) -> str:
    """The name of a subset of the masks: "attention+loss", "none"."""
    return "+".join(mask for mask, on in zip(MASKS, used, strict=True) if on) or "none"


def pool(out_BTV: jax.Array, layout: Layout, output_mask: jax.Array | bool) -> jax.Array:
    """The mean output [B, V], over real tokens or over all, as in a `pooled` model."""
    counts_BT1 = _counts(layout, output_mask)[..., None]
    total_BV = jnp.where(counts_BT1, out_BTV, 0).sum(axis=1)
    return total_BV / counts_BT1.sum(axis=1).astype(out_BTV.dtype)


def _counts(layout: Layout, mask: jax.Array | bool) -> jax.Array:
    """Which tokens count, bool [B, T]: with the mask the real ones, without it padding too."""
    return layout.segment_BT >= jnp.where(mask, 1, 0)


def measure(config: Config, label: str, encoding: Encoding) -> Leaks:
    """Trains one encoding under all subsets of the masks, and measures it before and after.

    Raises:
      Diverged: names the row, the masks, the step and the seed of a loss that is not finite.
    """
    data, model = config.data, masked_model(config, encoding)
    hashed: Any = config  # pyright does not know that frozen models have a hash
    given = drawn(hashed.data, hashed.learning, config.seed_range)
    masks_R, row_R = (x.reshape(-1) for x in np.indices((len(SUBSETS), config.seeds)))
    seed_R = np.asarray(config.seed_range, np.int32)[row_R]
    runs = Run(*map(jnp.asarray, (*np.asarray(SUBSETS)[masks_R].T, row_R, seed_R)))
    fresh = jax.tree.map(lambda leaf: leaf[row_R], _initial(config, encoding))
    learn = partial(over_seeds, partial(_learn, config, model), given=(given.taught,))
    learned, metrics = jax.jit(learn)(fresh, runs)
    metrics = jax.device_get(metrics)
    for masks, rows in zip(SUBSETS, np.split(np.arange(len(row_R)), len(SUBSETS)), strict=True):
        own = {name: values[rows] for name, values in metrics.items()}
        refuse_not_finite(own, config.seed_range, f"{label}, masks: {subset(masks)}, ")
    read = jit_quick(partial(over_seeds, partial(_read, data, model), given=(given,)))
    states = jax.device_get([read(params, runs) for params in (fresh, learned)])
    shape = (2, len(SUBSETS), config.seeds, len(data.sides), len(data.amounts))
    found: Leaks = {}
    for name in states[0]:
        value_2MSDA = np.stack([state[name] for state in states]).reshape(shape)
        for n, masks in enumerate(SUBSETS):
            found[name, subset(masks)] = value_2MSDA[:, n].transpose(3, 0, 2, 1)
    return found


def masked_model(config: Config, encoding: Encoding) -> Model:
    """The model that `apply` gives its masks."""
    masks = schema.MaskConfig(output=False)
    model = config.model.model_copy(update={"masks": masks})
    return transformer.build(model, encoding, config.data.symbols + 1)


@cache
def _shared(model: schema.ModelConfig, symbols: int, seeds: range) -> dict:
    """The untrained weights of a model without positions, leaves [S, ...]."""
    plain = transformer.build(model, Encoding(), symbols + 1)
    init = lambda seed: plain.init(random_key(seed, INIT))
    return jit_quick(jax.vmap(init))(jnp.asarray(seeds, jnp.int32))


def _initial(config: Any, encoding: Encoding) -> dict:
    """The untrained weights of each seed, leaves [S, ...]; all but the encoding's are shared."""
    seed_S = jnp.asarray(config.seed_range, jnp.int32)
    own = lambda seed: encoding.init(random_key(seed, INIT), config.model.dims)
    shared = _shared(config.model, config.data.symbols, config.seed_range)
    return {**shared, "encoding": jit_quick(jax.vmap(own))(seed_S)}


def seen(model: Model, layout: Layout, run: Run, key: Any = None) -> tuple[Layout, Placed]:
    """The layout and the positions that attention reads: without its mask, padding belongs to the
    sequence of its row, and has the positions of padding.

    key: draws positions, in training.
    """
    kept_BT = run.attention_mask | (layout.segment_BT < 0)
    segment_BT = jnp.where(kept_BT, layout.segment_BT, 1)
    return layout.replace(segment_BT=segment_BT, counted=False), model.place(key, layout)


def apply(model: Model, params, tokens_BT, layout: Layout, run: Run, key: Any = None):
    """The logits [B, T, V] of a model with the masks of the run.

    In a model masks are constants; here they are arguments, so that all subsets share one program.
    With the output mask the output at padding is the bias of the read-out.

    key: draws positions, in training.
    """
    out_BTV = model.apply(params, tokens_BT, *seen(model, layout, run, key))
    counts_BT1 = _counts(layout, run.output_mask)[..., None]
    return jnp.where(counts_BT1, out_BTV, params["read_out"]["bias"])


def _token_loss(logits_BTV, batch: Batch, loss_mask):
    counts_BT = _counts(batch.layout, loss_mask)
    return mean_loss(logits_BTV, batch.before_BT, counts_BT.astype(jnp.float32))


def _learn(config: Config, model: Model, taught: Batch, params, run: Run):
    """Trains one run on the loss of tokens plus that of sequences: parameters, metrics."""

    def loss_of(params, step):
        batch = jax.tree.map(lambda leaf: leaf[run.row, step], taught)
        key = random_key(run.seed, PLACE, step)
        logits_BTV = apply(model, params, batch.tokens_BT, batch.layout, run, key)
        logits_BV = pool(logits_BTV, batch.layout, run.output_mask)
        whole = jnp.ones_like(batch.favourite_B, jnp.float32)[:, None]
        favourite = mean_loss(logits_BV[:, None], batch.favourite_B[:, None], whole)
        return _token_loss(logits_BTV, batch, run.loss_mask) + favourite, None

    learning = config.learning
    params, _, metrics = train_small(loss_of, params, run.seed, learning, learning.steps)
    return params, metrics


def _read(data: Data, model: Model, given: Drawn, params, run: Run) -> dict[Quantity, jax.Array]:
    """Every quantity of one run on the measured sequences, [D A]."""
    read = partial(_results, data, model, params, run)
    plain, plain_scores = read(given.plain, 0, given.plain.tokens_BT)

    def one(given):
        batch, junk_BT, start = given
        contents = jnp.stack([batch.tokens_BT, junk_BT])
        computed, scores = jax.lax.map(partial(read, batch, start), contents)
        found: dict[Quantity, jax.Array] = {
            ("mass",): _mass(data, model, params, run, batch, start)
        }
        for name, unpadded, values in zip(Computed._fields, plain, computed, strict=True):
            zeros = jax.tree.map(lambda leaf: leaf[0], values)
            junk = jax.tree.map(lambda leaf: leaf[1], values)
            found["amount", name] = _gap(unpadded, zeros)
            found["content", name] = _gap(zeros, junk)
        for kind, score in scores.items():
            found[kind, "unpadded"] = plain_scores[kind]
            found[kind, "padded"], found[kind, "junk"] = score
        return found

    return jax.lax.map(one, (given.padded, given.junk, given.start))


def _gap(a: Any, b: Any) -> jax.Array:
    """The largest difference of two trees."""
    gaps = jax.tree.map(lambda x, y: largest(jnp.abs(x - y)), a, b)
    return largest(jnp.stack(jax.tree.leaves(gaps)))


def _results(data: Data, model: Model, params, run: Run, batch: Batch, start, tokens_BT):
    """What the model computes on the batch with other tokens, and its share of right answers.

    start: the column of the first real token.
    """
    cut = lambda x: jax.lax.dynamic_slice_in_dim(x, start, data.measured, axis=1)

    def loss_of(params):
        logits_BTV = apply(model, params, tokens_BT, batch.layout, run)
        return _token_loss(logits_BTV, batch, run.loss_mask), logits_BTV

    (loss, logits_BTV), grads = jax.value_and_grad(loss_of, has_aux=True)(params)
    logits_BV = pool(logits_BTV, batch.layout, run.output_mask)
    computed = Computed(cut(logits_BTV), logits_BV, loss, grads)
    right_BN = computed.outputs.argmax(axis=-1) == cut(batch.before_BT)
    right_B = logits_BV.argmax(axis=-1) == batch.favourite_B
    share = lambda right: right.astype(jnp.float32).mean()
    return computed, {"token": share(right_BN), "pooled": share(right_B)}


def _mass(data: Data, model: Model, params, run: Run, batch: Batch, start) -> jax.Array:
    """The share of attention from real tokens to padding, mean over layers and heads."""
    assert model.attention is not None
    layout, placed = seen(model, batch.layout, run)
    weights = model.attention(params, batch.tokens_BT, layout, placed=placed)
    pads_BK = (batch.layout.segment_BT == 0).astype(jnp.float32)
    mean_NBQ = jnp.stack([jnp.einsum("bhqk,bk->bq", w, pads_BK) / w.shape[1] for w in weights])
    return jax.lax.dynamic_slice_in_dim(mean_NBQ, start, data.measured, axis=2).mean()


# A claim's hash covers the sources above with their names, and other modules need these two.
gap, mass = _gap, _mass
