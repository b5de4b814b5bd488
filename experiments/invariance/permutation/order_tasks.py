"""One row of the experiment: a method trained on two order tasks, and how far it is equivariant."""

import itertools
import math
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.invariance.permutation.config import LENGTHS, EquivarianceConfig, OrderConfig
from experiments.invariance.small_models import largest, small_layout
from posenc_jax.encoding import Encoding
from posenc_jax.lab.config import schema
from posenc_jax.lab.hosts.compiling import jit_quick
from posenc_jax.lab.metrics import cross_entropy
from posenc_jax.lab.model import transformer
from posenc_jax.lab.model.transformer import Model
from posenc_jax.lab.training.loop import refuse_not_finite
from posenc_jax.lab.training.step import INIT, PLACE, random_key, train_small
from posenc_jax.layout import Layout

KINDS = math.factorial(LENGTHS[-1])


class Setting(NamedTuple):
    """What all rows share."""

    model: schema.ModelConfig
    order: OrderConfig
    equivariance: EquivarianceConfig
    seeds: tuple[int, ...]


class Subject(NamedTuple):
    """One row: an encoding, in a model of some kind, that reads positions of some axes."""

    label: str
    encoding: Encoding
    kind: str
    axes: int


class Measured(NamedTuple):
    """The results of one row; state 0 is untrained, state 1 trained.

    right_NS:    accuracy on pairs and on triples, for each seed.
    swap_gap_2S: largest |f(a, b) - f(b, a)| over all pairs, for each state and seed.
    errors:      dtype -> (error, carried), each [2, lengths], of the first seed's model; NaN past
                 the method's range. See `_gaps`.
    """

    right_NS: np.ndarray
    swap_gap_2S: np.ndarray
    errors: dict[str, tuple[np.ndarray, np.ndarray]]


class Orders(NamedTuple):
    """All examples of one order task, all of one length; `weight_B` is 0 for padding rows.

    All rows share one layout, [1, T], so that tables of positions are computed once.
    """

    tokens_BT: Any
    segment_1T: Any
    label_B: Any
    weight_B: Any


def measure(setting: Setting, subject: Subject) -> Measured:
    """Trains one row on both tasks, all seeds, and measures it before and after.

    Raises:
      Diverged: names the row, the step and the seed of a loss that is not finite.
    """
    config = setting.model.model_copy(update={"kind": subject.kind})
    vocab = max(setting.order.symbols, KINDS)
    build = partial(transformer.build, encoding=subject.encoding, vocab=vocab, axes=subject.axes)
    model = build(config, pooled=True)
    seed_S = jnp.asarray(setting.seeds, jnp.int32)
    # Without jit: methods share the programs of the operations.
    fresh = jax.vmap(lambda seed: model.init(random_key(seed, INIT)))(seed_S)
    learn = jit_quick(partial(_learn, setting, subject, model))
    states, right_NS, logits_2SBV, metrics = jax.device_get(learn(seed_S, fresh))
    for n, length in enumerate(LENGTHS):
        of_task = jax.tree.map(lambda leaf, n=n: leaf[n], metrics)
        refuse_not_finite(of_task, setting.seeds, f"{subject.label}, {length} tokens, ")
    errors = {"float32": _errors(setting, subject, build(config), states)}
    if subject.label in setting.equivariance.float64:
        with jax.enable_x64(True):
            # A config cannot choose float64: without x64 JAX computes in float32, with no error.
            wide = config.model_copy(update={"dtype": "float64"})
            states = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), states)
            errors["float64"] = _errors(setting, subject, build(wide), states)
    return Measured(right_NS, _swap_gap(setting.order.symbols, logits_2SBV), errors)


def orders(symbols: int) -> list[Orders]:
    """Every sequence of 2, and of 3, different symbols; the label is the rank order of a sequence.

    Both tasks are padded to one shape, so that one program trains on both.
    """
    most, wide = math.perm(symbols, LENGTHS[-1]), LENGTHS[-1]
    found = []
    for n in LENGTHS:
        tokens_BT = np.array(list(itertools.permutations(range(symbols), n)), np.int32)
        kinds = list(itertools.permutations(range(n)))
        label_B = [kinds.index(tuple(row)) for row in np.argsort(tokens_BT, axis=1).tolist()]
        rows = (0, most - len(tokens_BT))
        found.append(
            Orders(
                np.pad(tokens_BT, (rows, (0, wide - n))),
                (np.arange(wide, dtype=np.int32)[None] < n).astype(np.int32),
                np.pad(np.array(label_B, np.int32), rows),
                np.pad(np.ones(len(tokens_BT), np.float32), rows),
            )
        )
    return found


def _learn(setting: Setting, subject: Subject, model: Model, seed_S: jax.Array, fresh: Any):
    """Trains on both tasks, all seeds: (states, accuracy [N, S], logits of pairs [2, S, B, V],
    metrics [N, S, steps]).

    The states are the first seed's parameters, untrained and trained on triples.
    """
    tasks = [Orders(*map(jnp.asarray, task)) for task in orders(setting.order.symbols)]
    tasks = jax.tree.map(lambda *leaves: jnp.stack(leaves), *tasks)
    solve = partial(_solve, setting.order, subject, model)
    each_seed = jax.vmap(solve, in_axes=(0, 0, None))
    each_task = jax.vmap(each_seed, in_axes=(None, None, 0))
    trained, right_NS, logits_NS2BV, metrics = each_task(fresh, seed_S, tasks)
    states = jax.tree.map(lambda a, b: jnp.stack([a[0], b[-1, 0]]), fresh, trained)
    return states, right_NS, jnp.moveaxis(logits_NS2BV[0], 1, 0), metrics


def _solve(config: OrderConfig, subject: Subject, model: Model, params: Any, seed, task: Orders):
    """Trains on one task with one seed: parameters, accuracy, logits before and after training
    [2, B, V], metrics.
    """
    random = subject.encoding.place is not None
    # Rows that share a layout would share their random positions.
    shape = task.tokens_BT.shape if random else task.segment_1T.shape
    at = small_layout(jnp.broadcast_to(task.segment_1T, shape), subject.axes)

    def loss_of(params, step):
        placed = model.place(random_key(seed, PLACE, step), at)
        logits_BV = model.apply(params, task.tokens_BT, at, placed)
        loss_B = cross_entropy(logits_BV[:, None], task.label_B[:, None])[:, 0]
        return (loss_B * task.weight_B).sum() / task.weight_B.sum(), logits_BV

    # The rate ends at 0: the last step does not change the parameters that gave its logits.
    falls = max(config.steps - 1, 1)
    trained, logits_NBV, metrics = train_small(loss_of, params, seed, config, falls)
    logits_2BV = logits_NBV[jnp.array([0, -1])]
    if random:  # positions in training are drawn, those in evaluation are not
        both = jax.tree.map(lambda *leaves: jnp.stack(leaves), params, trained)
        logits_2BV = jax.lax.map(lambda p: model.apply(p, task.tokens_BT, at), both)
    right_B = (logits_2BV[1].argmax(axis=-1) == task.label_B).astype(jnp.float32)
    return trained, (right_B * task.weight_B).sum() / task.weight_B.sum(), logits_2BV, metrics


def _swap_gap(symbols: int, logits_2SBV: np.ndarray) -> np.ndarray:
    """Largest |f(a, b) - f(b, a)| over all pairs, [2, S]."""
    pairs = list(itertools.permutations(range(symbols), 2))
    swapped = [pairs.index((b, a)) for a, b in pairs]
    real = logits_2SBV[:, :, : len(pairs)]
    return np.abs(real - real[:, :, swapped]).max(axis=(2, 3))


def _errors(setting: Setting, subject: Subject, model: Model, states: Any):
    """(error, carried), each [2, lengths], of untrained and trained parameters; NaN past the
    method's range.

    A NaN spreads to all sequences of its row: the longest is left out until there is no NaN.
    """
    lengths = setting.equivariance.lengths
    found_2N2 = np.full((2, len(lengths), 2), np.nan)
    tried = list(lengths)
    while tried:
        one = partial(_gaps, setting, subject, model, tried)
        gaps_2N2 = np.asarray(jit_quick(partial(jax.lax.map, one))(states))
        if not np.isnan(gaps_2N2).any():
            found_2N2[:, [lengths.index(length) for length in tried]] = gaps_2N2
            break
        tried.remove(max(tried))
    return found_2N2[..., 0], found_2N2[..., 1]


def _gaps(setting: Setting, subject: Subject, model: Model, lengths: list[int], params: Any):
    """Largest |f(Px) - P f(x)|, [lengths, 2]: with positions in storage order, and with positions
    carried along with the tokens. A row packs a sequence of each length, as documents are packed.
    """
    count = setting.equivariance.permutations
    ends = np.cumsum(lengths)
    start_T = jnp.asarray(np.repeat(ends - lengths, lengths), jnp.int32)
    segment_T = jnp.asarray(np.repeat(np.arange(1, len(lengths) + 1), lengths), jnp.int32)
    place_T = jnp.arange(ends[-1], dtype=jnp.int32)
    token_key, order_key = jax.random.split(random_key(setting.seeds[0], INIT))
    token_T = jax.random.randint(token_key, place_T.shape, 0, setting.order.symbols, jnp.int32)
    lot_PT = jax.random.uniform(order_key, (count, *place_T.shape), jnp.float32)
    order_PT = jnp.lexsort((lot_PT, jnp.broadcast_to(segment_T, lot_PT.shape))).astype(jnp.int32)
    # Rows: x itself, x permuted, and x permuted with its positions.
    order_RT = jnp.concatenate([place_T[None], order_PT, order_PT])
    straight_RT = jnp.broadcast_to(place_T[None], (1 + count, *place_T.shape))
    pos_RT = jnp.concatenate([straight_RT, order_PT]) - start_T[None]
    at = small_layout(jnp.broadcast_to(segment_T, order_RT.shape), subject.axes, pos_RT)
    out_RTV = model.apply(params, token_T[order_RT], at)
    gap_RTV = jnp.abs(out_RTV - out_RTV[0][order_RT])
    gaps = [gap_RTV[:, end - length : end] for end, length in zip(ends, lengths, strict=True)]
    both = [(largest(gap[1 : 1 + count]), largest(gap[1 + count :])) for gap in gaps]
    return jnp.stack([jnp.stack(pair) for pair in both])


def permuted(order_PT: jax.Array, lengths: Sequence[int], axes: int) -> tuple[jax.Array, Layout]:
    """The columns that rows of packed sequences read, [1 + 2 P, T], and the layout of the rows: x
    itself, x permuted, and x permuted with its positions.

    order_PT: P permutations of the columns, each within the sequences.

    `_gaps` has the same lines: a claim's hash covers its source.
    """
    count, ends = len(order_PT), np.cumsum(lengths)
    start_T = jnp.asarray(np.repeat(ends - lengths, lengths), jnp.int32)
    segment_T = jnp.asarray(np.repeat(np.arange(1, len(lengths) + 1), lengths), jnp.int32)
    place_T = jnp.arange(ends[-1], dtype=jnp.int32)
    order_RT = jnp.concatenate([place_T[None], order_PT, order_PT])
    straight_RT = jnp.broadcast_to(place_T[None], (1 + count, *place_T.shape))
    pos_RT = jnp.concatenate([straight_RT, order_PT]) - start_T[None]
    return order_RT, small_layout(jnp.broadcast_to(segment_T, order_RT.shape), axes, pos_RT)


def moved(out_RTV: jax.Array, order_RT: jax.Array, lengths: Sequence[int]) -> jax.Array:
    """Largest |f(Px) - P f(x)| of each sequence, of the rows of `permuted`: [lengths, 2], with
    positions in storage order, and with positions carried along with the tokens.
    """
    gap_RTV = jnp.abs(out_RTV - out_RTV[0][order_RT])
    # A slice of each sequence makes a program that takes a minute to compile for two dozen.
    number_T = np.repeat(np.arange(len(lengths)), lengths)
    largest_RT = jax.vmap(jax.vmap(largest))(gap_RTV)
    halves = jnp.split(largest_RT[1:], 2)
    return jnp.stack([_largest_of(half_PT, number_T, len(lengths)) for half_PT in halves], axis=1)


def _largest_of(gap_PT: jax.Array, number_T: np.ndarray, count: int) -> jax.Array:
    """`largest` of the columns with each number, [count]."""
    by_number = lambda x_T: jax.ops.segment_max(x_T, number_T, count, indices_are_sorted=True)
    unknown_PT = jnp.isnan(gap_PT)
    known_L = by_number(jnp.where(unknown_PT, 0, gap_PT).max(axis=0))
    return jnp.where(by_number(unknown_PT.any(axis=0).astype(jnp.int32)) > 0, jnp.nan, known_L)
