"""Trains one encoding under every subset of the masks, and measures what padding changes.

More letters of shapes: A amounts of padding, 2 states (untrained, trained), O output mask and L
loss mask off and on, D sides, S seeds; R all runs of a program, O x L x D x S.
"""

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.methods import largest, small_layout
from experiments.padding_leakage.config import Config, Data
from posenc_jax.encoding import Encoding
from posenc_jax.lab.config import schema
from posenc_jax.lab.hosts.compiling import jit_quick
from posenc_jax.lab.model import transformer
from posenc_jax.lab.model.transformer import Model
from posenc_jax.lab.tasks.task import PAD
from posenc_jax.lab.training.loop import over_seeds, refuse_not_finite
from posenc_jax.lab.training.step import (
    BATCH,
    INIT,
    PLACE,
    SIZE,
    mean_loss,
    random_key,
    train_small,
)
from posenc_jax.layout import Layout

MASKS = ("attention", "output", "loss")
TEST = 2**31 - 1  # the seed of the sequences that are measured
SUBSETS = tuple(itertools.product((False, True), repeat=len(MASKS)))
ModelOf = Callable[[Any], Model]  # of the output mask
# A quantity is ("content" or "amount", field of Computed), ("token" or "pooled", condition) for an
# accuracy, or ("mass",) for the attention on padding.
Quantity = tuple[str, ...]
Leaks = dict[tuple[Quantity, str], np.ndarray]  # (quantity, subset of the masks) -> [A, 2, D, S]


class Batch(NamedTuple):
    """Padded sequences, and their targets: the token before each token, the favourite symbol."""

    tokens_BT: jax.Array
    before_BT: jax.Array
    favourite_B: jax.Array
    layout: Layout


class Computed(NamedTuple):
    """Results on one batch: outputs of the N real tokens [B, N, V], the pooled output [B, V], the
    loss of the tokens, its gradient.
    """

    outputs: Any
    pooled: Any
    loss: Any
    gradient: Any


class Run(NamedTuple):
    """What differs between the runs of a program, each [R]; scalars inside a run."""

    output_mask: jax.Array
    loss_mask: jax.Array
    left: jax.Array
    seed: jax.Array


def subset(used: Sequence[bool]) -> str:
    """The name of a subset of the masks: "attention+loss", "none"."""
    return "+".join(mask for mask, on in zip(MASKS, used, strict=True) if on) or "none"


def sequences(key, data: Data, count: int, size_B: jax.Array, width: int, left) -> Batch:
    """Random sequences in which about half of the tokens are one symbol, the favourite.

    Width and side change only the padding, not the tokens.
    """
    keys = jax.random.split(key, 3)
    longest = max(data.length, data.measured)
    favourite_B = jax.random.randint(keys[0], (count,), 1, data.symbols + 1, jnp.int32)
    other_BN = jax.random.randint(keys[1], (count, longest), 1, data.symbols + 1, jnp.int32)
    chosen_BN = jax.random.bernoulli(keys[2], 0.5, (count, longest))
    symbol_BN = jnp.where(chosen_BN, favourite_B[:, None], other_BN)
    symbol_BT = jnp.pad(symbol_BN, ((0, 0), (0, max(width - longest, 0))))[:, :width]
    before_BT = jnp.concatenate([symbol_BT[:, :1], symbol_BT[:, :-1]], axis=1)
    real_BT = jnp.arange(width, dtype=jnp.int32)[None] < size_B[:, None]
    move_B = jnp.where(left, width - size_B, 0)
    roll = lambda x_BT: jax.vmap(jnp.roll)(jnp.where(real_BT, x_BT, PAD), move_B)
    segment_BT = roll(jnp.ones_like(symbol_BT))
    return Batch(roll(symbol_BT), roll(before_BT), favourite_B, small_layout(segment_BT))


def pool(out_BTV: jax.Array, batch: Batch, output_mask: jax.Array | bool) -> jax.Array:
    """The mean output [B, V], over real tokens or over all, as in a `pooled` model."""
    real_BT = batch.layout.segment_BT > 0
    counts_BT1 = (real_BT | jnp.logical_not(output_mask))[..., None]
    total_BV = jnp.where(counts_BT1, out_BTV, 0).sum(axis=1)
    return total_BV / counts_BT1.sum(axis=1).astype(out_BTV.dtype)


def measure(config: Config, label: str, encoding: Encoding) -> Leaks:
    """Trains one encoding under all subsets of the masks, and measures it before and after.

    Raises:
      Diverged: names the row, the masks, the step and the seed of a loss that is not finite.
    """
    shape = (2, 2, len(config.data.sides), config.seeds)
    output_R, loss_R, side_R, seed_R = (x.reshape(-1) for x in np.indices(shape))
    left_R = np.asarray(config.data.sides)[side_R] == "left"
    seed_R = np.asarray(config.seed_range, np.int32)[seed_R]
    runs = Run(*map(jnp.asarray, (output_R > 0, loss_R > 0, left_R, seed_R)))
    twice = jax.tree.map(lambda leaf: jnp.concatenate([leaf, leaf]), runs)

    def reader(attention: bool, amount: int):
        one = partial(_read, config.data, partial(_model, config, encoding, attention), amount)
        read = jit_quick(lambda params: over_seeds(one, params, twice))
        return lambda params: jax.device_get(read(params))

    init = lambda seed: _model(config, encoding, True, True).init(random_key(seed, INIT))
    fresh = jit_quick(jax.vmap(init))(runs.seed)
    read_plain = reader(True, 0)  # without padding there is nothing to mask
    found: Leaks = {}
    for attention in (False, True):
        learn = partial(_learn, config, partial(_model, config, encoding, attention))
        learned, metrics = jax.jit(partial(over_seeds, learn))(fresh, runs)
        where = f"{label}, attention mask {'on' if attention else 'off'}, "
        refuse_not_finite(jax.device_get(metrics), seed_R.tolist(), where)
        both = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), fresh, learned)
        plain = read_plain(both)
        padded = [reader(attention, amount)(both) for amount in config.data.amounts]
        for name, rows in _quantities(plain, padded).items():
            value_A2OLDS = np.stack(rows).reshape(-1, 2, *shape)
            for output, loss in np.ndindex(2, 2):
                found[name, subset((attention, output, loss))] = value_A2OLDS[:, :, output, loss]
    return found


def _model(config: Config, encoding: Encoding, attention: bool, output: Any) -> Model:
    """The model with masks on or off; `output` may be traced, so that one program serves both."""
    masks = schema.MaskConfig.model_construct(attention=attention, output=output)
    model = config.model.model_copy(update={"masks": masks})
    return transformer.build(model, encoding, config.data.symbols + 1)


def _quantities(plain, padded: list) -> dict[Quantity, list[np.ndarray]]:
    """Every quantity, [R] for each amount, from what `_read` returns without and with padding."""
    found: dict[Quantity, list[np.ndarray]] = {}
    computed, scores, _ = plain
    for padded_computed, padded_scores, gaps in padded:
        for name in Computed._fields:
            gap = jax.tree.map(_largest, getattr(padded_computed, name), getattr(computed, name))
            found.setdefault(("amount", name), []).append(np.max(jax.tree.leaves(gap), axis=0))
            found.setdefault(("content", name), []).append(getattr(gaps, name))
        for name, value in padded_scores.items():
            found.setdefault(name, []).append(value)
        for name in ("token", "pooled"):
            found.setdefault((name, "unpadded"), []).append(scores[name, "padded"])
    return found


def _largest(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The largest difference of each run: [R, ...] and [R, ...] to [R]."""
    return np.abs(a - b).reshape(len(a), -1).max(axis=1)


def _token_loss(logits_BTV, batch: Batch, loss_mask):
    real_BT = batch.layout.segment_BT > 0
    return mean_loss(logits_BTV, batch.before_BT, (real_BT | ~loss_mask).astype(jnp.float32))


def _learn(config: Config, model_of: ModelOf, params, run: Run):
    """Trains one run on the loss of tokens plus that of sequences: parameters, metrics."""
    data, learning, model = config.data, config.learning, model_of(run.output_mask)

    def loss_of(params, step):
        least, most = data.min_length, data.length + 1
        key = random_key(run.seed, SIZE, step)
        size_B = jax.random.randint(key, (learning.batch,), least, most, jnp.int32)
        key = random_key(run.seed, BATCH, step)
        batch = sequences(key, data, learning.batch, size_B, data.length, run.left)
        placed = model.place(random_key(run.seed, PLACE, step), batch.layout)
        logits_BTV = model.apply(params, batch.tokens_BT, batch.layout, placed)
        logits_BV = pool(logits_BTV, batch, run.output_mask)
        whole = jnp.ones_like(batch.favourite_B, jnp.float32)[:, None]
        favourite = mean_loss(logits_BV[:, None], batch.favourite_B[:, None], whole)
        return _token_loss(logits_BTV, batch, run.loss_mask) + favourite, None

    params, _, metrics = train_small(loss_of, params, run.seed, learning, learning.steps)
    return params, metrics


def _read(data: Data, model_of: ModelOf, amount: int, params, run: Run):
    """One run on the measured sequences: (results with zeros as padding, scores, content gaps)."""
    model = model_of(run.output_mask)
    count, width = data.examples, data.measured + amount
    size_B = jnp.full((count,), data.measured, jnp.int32)
    key = random_key(TEST, BATCH)
    batch = sequences(key, data, count, size_B, width, run.left)
    junk_BT = jax.random.randint(key, (count, width), 1, data.symbols + 1, jnp.int32)
    real_BT = batch.layout.segment_BT > 0
    start = jnp.where(run.left, amount, 0)
    cut = lambda x: jax.lax.dynamic_slice_in_dim(x, start, data.measured, axis=1)

    def read(tokens_BT):
        def loss_of(params):
            logits_BTV = model.apply(params, tokens_BT, batch.layout)
            return _token_loss(logits_BTV, batch, run.loss_mask), logits_BTV

        (loss, logits_BTV), grads = jax.value_and_grad(loss_of, has_aux=True)(params)
        logits_BV = pool(logits_BTV, batch, run.output_mask)
        computed = Computed(cut(logits_BTV), logits_BV, loss, grads)
        right_BN = computed.outputs.argmax(axis=-1) == cut(batch.before_BT)
        right_B = logits_BV.argmax(axis=-1) == batch.favourite_B
        return computed, right_BN.astype(jnp.float32).mean(), right_B.astype(jnp.float32).mean()

    contents = jnp.stack([batch.tokens_BT, jnp.where(real_BT, batch.tokens_BT, junk_BT)])
    computed, token_2, pooled_2 = jax.lax.map(read, contents)
    gap_of = lambda leaf: largest(jnp.abs(leaf[0] - leaf[1]))
    gaps = [jax.tree.leaves(jax.tree.map(gap_of, field)) for field in computed]
    gaps = Computed(*(largest(jnp.stack(gap)) for gap in gaps))
    assert model.attention is not None
    weights = model.attention(params, batch.tokens_BT, batch.layout)
    pads_BK = (~real_BT).astype(jnp.float32)
    mass_BQ = sum(jnp.einsum("bhqk,bk->bq", w, pads_BK) / w.shape[1] for w in weights)
    mass = cut(mass_BQ / len(weights)).mean()
    scores = {("mass",): mass, ("token", "padded"): token_2[0], ("pooled", "padded"): pooled_2[0],
              ("token", "junk"): token_2[1], ("pooled", "junk"): pooled_2[1]}  # fmt: skip
    return jax.tree.map(lambda leaf: leaf[0], computed), scores, gaps
