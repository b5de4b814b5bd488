"""A small model for every method in the catalogue: what the battery runs its properties on."""

import functools
import zlib
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax import CATALOG, Dims, Encoding, attend, frame, make
from posenc_jax.encodings import card
from posenc_jax.encodings.card import Card
from posenc_jax.lab.config.schema import ModelConfig
from posenc_jax.lab.definitions.trial_options import SMALL
from posenc_jax.lab.gallery.measure import on_axes
from posenc_jax.lab.model import transformer
from posenc_jax.layout import Layout, full, layout

VOCAB, TIME, COLUMNS, GROUPS = 11, 24, 6, 5
ROWS = 4  # of a pass: with one number for all, small operations compile once
NAMES = sorted(CATALOG)
# Of each kind one or two: `make test` runs the battery on these methods, `make test-all` on all.
FEW = {"alibi", "fox", "learned", "path", "randomized", "rope", "shaw", "t5"}
EVERY_METHOD = [
    pytest.param(name, id=name, marks=() if name in FEW else pytest.mark.thorough) for name in NAMES
]
CAP = 3.0
# With what is optional in attention, which every method must be right with; other tests have none.
CONFIG = ModelConfig(width=32, heads=4, kv_heads=2, layers=1, mlp=2, sinks=True, cap=CAP)


class Case(NamedTuple):
    """One method in a model: its card, encoding, parameters, and the model's functions.

    They run op by op: small operations compile once for all methods, a program for each alone.
    """

    card: Card
    encoding: Encoding
    model: transformer.Model
    params: Any
    apply: Any  # (params, tokens_BT, layout) -> logits, dense


def encoding_of(name: str, **options: Any) -> Encoding:
    """The method with its options for a small model; one that only places, at work on two others.

    `rope` does not see a shift of all positions, `sinusoidal` does.
    """
    options = {**SMALL.get(name, {}), **options}
    only_places = card(name).kind == "positions"
    return make(f"{name}+sinusoidal+rope" if only_places else name, **options)


@functools.cache
def case(name: str, kind: str = "decoder", attention_mask: bool = True) -> Case:
    """The method's case; cached. All kinds have the same weights."""
    masks = CONFIG.masks.model_copy(update={"attention": attention_mask})
    config = CONFIG.model_copy(update={"kind": kind, "masks": masks})
    return _case(name, encoding_of(name), config)


def with_options(name: str, **options: Any) -> Case:
    """The method with other options, in a model whose other weights are the same for all.

    An option about keys ahead of the query shows where attention is not causal.
    """
    kind = "encoder" if "ahead" in card(name).options else CONFIG.kind
    return _case(name, encoding_of(name, **options), CONFIG.model_copy(update={"kind": kind}))


def _case(name: str, encoding: Encoding, config: ModelConfig) -> Case:
    """Weights outside the encoding depend on their shapes alone, so many methods share them."""
    config = config.model_copy(update=shape(encoding))
    layer_params = stir(encoding.init(jax.random.key(0), config.dims), zlib.crc32(name.encode()))
    model = transformer.build(config, encoding, VOCAB, axes=card(name).axes)
    params = {**stem(config.layers, config.sinks), "encoding": layer_params}
    return Case(card(name), encoding, model, params, model.apply)


@functools.cache
def stem(layers: int, sinks: bool) -> Any:
    config = CONFIG.model_copy(update={"layers": layers, "sinks": sinks})
    return transformer.build(config, Encoding(), VOCAB).init(jax.random.key(0))


def shape(encoding: Encoding) -> dict[str, Any]:
    """The fields of the model's config that follow from the method."""
    return {
        "layers": layers(encoding),
        "sinks": normalised(encoding),
        "cap": CAP if capped(encoding) else None,
    }


def normalised(encoding: Encoding) -> bool:
    """Whether a softmax makes the weights, so that a sink can take part."""
    return encoding.walk is None or not encoding.walk.weighs


def capped(encoding: Encoding) -> bool:
    """Whether the logits are made of products that a cap can bound."""
    return encoding.walk is None or not encoding.walk.corrects


def in_blocks(encoding: Encoding) -> bool:
    """Whether attention may take the keys in blocks."""
    return encoding.walk is None or not encoding.walk.whole


def layers(encoding: Encoding) -> int:
    """One, or two where the method tells layers apart.

    That layers repeat what one does is shown for models, not for methods: test_transformer.py.
    """
    return 1 if encoding.at is None else 2


def stir(params: Any, seed: int) -> Any:
    """An encoding's parameters with noise, so that one that starts at 0 is seen at work."""
    rng = np.random.default_rng(seed)
    return jax.tree.map(
        lambda leaf: leaf + np.asarray(0.3 * rng.normal(size=leaf.shape), leaf.dtype), params
    )


def passes(c: Case, **rows: tuple[Any, Layout]) -> dict[str, np.ndarray]:
    """The logits [T, V] of each named row, of tokens [T] and the layout of this row alone.

    Rows of one length, a few in a pass: running a pass op by op costs more than what it computes.
    """
    actual, names = {}, list(rows)
    for group in (names[n : n + ROWS] for n in range(0, len(names), ROWS)):
        filled = [rows[name] for name in group + group[:1] * (ROWS - len(group))]
        ids_BT = jnp.asarray(np.stack([np.asarray(ids) for ids, _ in filled]))
        join = lambda *leaves: jnp.asarray(np.concatenate([np.asarray(leaf) for leaf in leaves]))
        at = jax.tree.map(join, *(at for _, at in filled))
        actual |= dict(zip(group, np.asarray(c.apply(c.params, ids_BT, at)), strict=False))
    return actual


def sentence(seed: int, time: int = TIME) -> np.ndarray:
    """Tokens [T]."""
    return np.asarray(tokens(seed, 1, time))[0]


def tokens(seed: int, batch: int = 2, time: int = TIME) -> jax.Array:
    return jax.random.randint(jax.random.key(seed), (batch, time), 0, VOCAB)


def where(name: str, segment_BT: Any, shift: int = 0, stretch: int = 1) -> Layout:
    """The layout of the rows as the method reads it: counted, or ([time,] row, column).

    Groups go round in each sequence, 0 1 2 3 4 0 1 and so on, as numbers of four digits would.
    """
    actual = layout(jnp.asarray(segment_BT))
    actual = actual.replace(group_BT=actual.pos_BT % GROUPS * stretch)
    pos, axes = actual.pos_BT, card(name).axes
    pos, *grid = (axis * stretch + shift for axis in (pos, pos // COLUMNS, pos % COLUMNS))
    return actual.replace(pos_BT=pos if axes < 2 else on_axes(axes, pos, *grid))


def row(name: str, segment_T: Any = (1,) * TIME, **moved: int) -> Layout:
    """The layout of one row."""
    return where(name, np.array([segment_T], np.int32), **moved)


def whole(name: str, batch: int = ROWS, time: int = TIME, **moved: int) -> Layout:
    return where(name, np.ones((batch, time), np.int32), **moved)


def standing(pos_BT: jax.Array, length_BT: Any = None) -> Layout:
    """One sequence a row at these positions; `length_BT` is stated to be its length."""
    actual = full(*pos_BT.shape[:2]).replace(pos_BT=pos_BT)
    if length_BT is None:
        return actual
    return actual.replace(length_BT=jnp.broadcast_to(length_BT, pos_BT.shape[:2]))


def attention(
    encoding: Encoding,
    params: Any,
    q,
    k,
    v,
    at: Layout,
    layer: int = 0,
    options=None,
    x_keys=None,
    **form: Any,
):
    """What one layer makes of queries, keys and values [B, T, H, C]; `form` goes to `frame`, and
    `options` to `attend`. The layer's input is q, and `x_keys` for keys that are other tokens.

    The parameters are those of two layers where the method tells layers apart, as `layers` has it.
    """
    heads, head = q.shape[2:]
    dims = Dims(heads * head, heads, head, layers(encoding))
    view = frame(encoding, params, at, dims, **form)
    wide = lambda x: x.reshape(*x.shape[:2], -1)
    x = view.embed(wide(q))
    x_k = None if x_keys is None else view.embed(wide(x_keys), "k")
    return attend(x.reshape(q.shape), k, v, view.layer(layer, x, x_k), **(options or {}))


def gap(a: Any, b: Any, relative: bool = False, nan: bool = False) -> float:
    """The largest difference of two arrays, or of the leaves of two trees.

    Infinite where one alone is NaN. Numbers that are NaN in both are no evidence, neither that the
    arrays are equal nor, in a control, that they differ.

    Args:
      relative: differences of a leaf are divided by the largest finite number of that leaf of
        `a`, or by 1 if all are less.
      nan: NaN is what both must have at some places; the others are compared.

    AssertionError: NaN in both at the same place, and not `nan`.
    """
    gaps = jax.tree.map(lambda x, y: _leaf_gap(x, y, relative, nan), a, b)
    return max(jax.tree.leaves(gaps), default=0.0)


def _leaf_gap(a: Any, b: Any, relative: bool, nan: bool) -> float:
    a, b = np.broadcast_arrays(np.asarray(a, np.float64), np.asarray(b, np.float64))
    neither = np.isnan(a) & np.isnan(b)
    if neither.any() and not nan:
        raise AssertionError(f"{neither.sum()} of {neither.size} numbers are NaN in both arrays")
    with np.errstate(invalid="ignore"):  # infinity less infinity
        apart = np.where((a == b) | neither, 0.0, np.abs(a - b))
    size = np.max(np.abs(a), where=np.isfinite(a), initial=1.0) if relative else 1.0
    return float(np.max(np.where(np.isnan(apart), np.inf, apart / size), initial=0.0))
