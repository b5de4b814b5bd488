"""The battery: what every method must prove inside a model, each property with a control.

A method enters by its card alone. The numbers (parity with the definition in float64, precision,
range policy, options) are in test_catalogue_numbers.py.
"""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax import CATALOG
from posenc_jax.encodings import card
from posenc_jax.lab import definitions
from tests.catalogue import (
    CAP,
    NAMES,
    TIME,
    attention,
    capped,
    case,
    encoding_of,
    gap,
    normalised,
    tokens,
    where,
    whole,
)

PLACED = [name for name in NAMES if card(name).kind != "positions"]


def padded(pads: int) -> np.ndarray:
    """Segments of two rows, padded on the right and on the left."""
    right_T = (np.arange(TIME) < TIME - pads).astype(np.int32)
    return np.stack([right_T, right_T[::-1]])


def test_catalogue_is_complete():
    for name, build in CATALOG.items():
        assert build.card.name == name, f"{name}: registered under another name"
        assert build.__doc__, f"{name}: no docstring"
        assert build.card.paper
        assert build.card.formula


def test_catalogue_is_defined_in_float64():
    """Every method has one definition, in the table that its kind asks for, and none is left over.

    That a definition would notice a wrong score is shown in test_catalogue_numbers.py.
    """
    tables = {"input": definitions.EMBEDS, "positions": definitions.PLACES}
    wanted = {name: tables.get(card(name).kind, definitions.SCORES) for name in NAMES}
    assert [name for name, table in wanted.items() if name not in table] == []
    assert sum(map(len, (definitions.EMBEDS, definitions.PLACES, definitions.SCORES))) == len(NAMES)
    turning = {name for name in NAMES if encoding_of(name).turns_values}
    assert turning == set(definitions.OUTPUTS)


@pytest.mark.parametrize("name", NAMES)
def test_catalogue_causal(name):
    """A later token does not change an earlier output, to the bit."""

    def change(kind):
        c, at = case(name, kind), whole(name)
        before, after = tokens(1), tokens(1).at[:, 16:].set(tokens(2)[:, 16:])
        return gap(c.apply(c.params, before, at)[:, :16], c.apply(c.params, after, at)[:, :16])

    assert change("decoder") == 0.0
    assert change("encoder") > 1e-3, "control: a bidirectional model must see later tokens"


@pytest.mark.parametrize("name", NAMES)
def test_catalogue_causal_gradient(name):
    """The gradient of an early loss with respect to all later embeddings is exactly zero."""
    c, at = case(name), whole(name)
    # Tokens 0 .. 5 stand early, 6 .. 10 late: rows of the embedding are told apart by time.
    ids = jnp.where(jnp.arange(TIME) < 12, tokens(3) % 6, 6 + tokens(4) % 5)

    logits, pull = jax.vjp(lambda params: c.model.apply(params, ids, at), c.params)

    def late(until):
        """The gradient that losses before `until` have in the embeddings of late tokens."""
        counts = (jnp.arange(TIME) < until)[None, :, None]
        (grads,) = pull(jnp.where(counts, jnp.ones_like(logits), 0.0))
        return float(jnp.abs(grads["embed"][6:]).max())

    assert late(12) == 0.0
    assert late(TIME) > 1e-3


@pytest.mark.parametrize("name", NAMES)
def test_catalogue_padding(name):
    """What stands in the padding, on either side, changes no real output, to the bit."""
    segment_BT = padded(12)
    at, real = where(name, segment_BT), segment_BT > 0
    other = jnp.where(real, tokens(5), tokens(6))

    def changes(attention_mask):
        """The largest change of each row."""
        c = case(name, "encoder", attention_mask)
        before, after = (np.asarray(c.apply(c.params, ids, at)) for ids in (tokens(5), other))
        return [gap(before[row][real[row]], after[row][real[row]]) for row in range(2)]

    assert changes(attention_mask=True) == [0.0, 0.0]
    assert min(changes(attention_mask=False)) > 1e-4, "control: with the mask off it must leak"


@pytest.mark.parametrize("name", NAMES)
def test_catalogue_padding_side(name):
    """A sequence gives the same outputs with padding on the left, on the right, or with none."""
    c, segment_BT, real = case(name), padded(7), TIME - 7
    ids = jnp.tile(tokens(7, batch=1, time=real), (2, 1))
    put = jnp.zeros((2, TIME), jnp.int32).at[segment_BT > 0].set(ids.reshape(-1))
    at = where(name, segment_BT)
    alone = c.apply(c.params, ids, whole(name, time=real))[0]
    right, left = c.apply(c.params, put, at)
    assert gap(alone, right[:real]) < 1e-5
    assert gap(alone, left[-real:]) < 1e-5
    if card(name).kind != "none":
        row = whole(name, shift=1)  # counted from its start, the padding too
        unaware = at.replace(pos_BT=row.pos_BT * 2, group_BT=row.group_BT)
        changed = gap(left[-real:], c.apply(c.params, put, unaware)[1, -real:])
        assert changed > 1e-4 if card(name).axes else changed == 0.0


@pytest.mark.parametrize("name", NAMES)
def test_catalogue_blockwise(name):
    """The blockwise form equals the dense one, in values and gradients; keys shared, sinks, cap."""
    c, at = case(name), where(name, np.array([[1] * 9 + [2] * 15, [1] * 20 + [0] * 4]))
    real = np.asarray(at.segment_BT > 0)[..., None, None]
    rng = np.random.default_rng(8)
    weights, *qkv = rng.normal(size=(4, 2, TIME, 4, 8)).astype(np.float32)
    weights = np.where(real, weights, 0)
    q, k, v = map(jnp.asarray, qkv)
    sink_H = jnp.asarray(rng.normal(size=4), jnp.float32) if normalised(c.encoding) else None

    def loss(params, given, at, form):
        *qkv, sink_H = given
        options = {"sink_H": sink_H, "cap": CAP if capped(c.encoding) else None}
        layers = range(1 if c.encoding.at is None else 2)
        run = functools.partial(attention, c.encoding, params, *qkv, at, options=options)
        outs = [run(n, form=form, block=8) for n in layers]
        return sum((out * weights).sum() for out in outs), outs

    run = jax.value_and_grad(loss, argnums=(0, 1), has_aux=True)
    given = c.params["encoding"], [q, k[:, :, :2], v[:, :, :2], sink_H]
    (_, dense), dense_grads = run(*given, at, "dense")
    (_, block), block_grads = run(*given, at, "blockwise")
    off = lambda a, b: max(jax.tree.leaves(jax.tree.map(gap, a, b)))
    assert off(dense, block) < 1e-5
    assert off(dense_grads, block_grads) < 2e-4
    _, joined = loss(*given, whole(name), "dense")
    assert off(dense, joined) > 1e-2, "control: other segments"


@pytest.mark.parametrize("name", NAMES)
def test_catalogue_decode(name):
    """Tokens, and a few at once, with a cache equal the full pass, padded on the left or not."""
    c, at = case(name), where(name, np.array([[1] * TIME, [0] * 5 + [1] * (TIME - 5)]))
    full = c.apply(c.params, tokens(10), at)
    cut = lambda a, b: jax.tree.map(lambda leaf: leaf[:, a:b], at)

    def run(*ends):
        cache, parts = c.model.start(c.params, 2, TIME), []
        for a, b in itertools.pairwise(ends):
            logits, cache = c.model.decode(c.params, tokens(10)[:, a:b], cut(a, b), cache)
            parts.append(logits)
        return np.concatenate(parts, axis=1)

    single = run(0, 8, 9, 10, 18, 19, 20)
    real = np.asarray(at.segment_BT)[:, :20] > 0
    assert gap(np.asarray(full)[:, :20][real], single[real]) < 1e-5
    # The control: a cache that forgets its first tokens.
    cache = c.model.start(c.params, 2, TIME)
    late, _ = c.model.decode(c.params, tokens(10)[:, 8:16], cut(8, 16), cache)
    assert gap(full[:, 8:16], late) > 1e-3


@pytest.mark.parametrize("name", NAMES)
def test_catalogue_packed(name):
    """Packed documents: each is as if alone, and changing one leaves the other to the bit."""
    c, at = case(name), where(name, np.array([[1] * 7 + [2] * 17] * 2))
    ids = tokens(11)
    out = c.apply(c.params, ids, at)
    first = c.apply(c.params, ids.at[:, 7:].set(tokens(12)[:, 7:]), at)
    second = c.apply(c.params, ids.at[:, :7].set(tokens(12)[:, :7]), at)
    assert gap(out[:, :7], first[:, :7]) == 0.0
    assert gap(out[:, 7:], second[:, 7:]) == 0.0
    alone = c.apply(c.params, ids[:, 7:], whole(name, time=17))
    assert gap(out[:, 7:], alone) < 1e-5
    joined = c.apply(c.params, ids, whole(name))
    assert gap(out[:, 7:], joined[:, 7:]) > 1e-3, "control: one long document must differ"


@pytest.mark.parametrize("name", PLACED)
def test_catalogue_shift(name):
    """Moving all positions changes nothing where the card says relative, something elsewhere."""
    c = case(name)
    still = c.apply(c.params, tokens(13), whole(name))
    moved = c.apply(c.params, tokens(13), whole(name, shift=7))
    if card(name).shift_invariant:
        assert gap(still, moved) < 2e-5
    else:
        assert gap(still, moved) > 1e-4


@pytest.mark.parametrize("name", NAMES)
def test_catalogue_permutation(name):
    """Without a mask, no encoding means permutation equivariance; every encoding breaks it."""
    c, order = case(name, "encoder"), np.random.default_rng(0).permutation(TIME)
    plain = c.apply(c.params, tokens(14), whole(name))[:, order]
    shuffled = c.apply(c.params, tokens(14)[:, order], whole(name))
    if card(name).kind == "none":
        assert gap(plain, shuffled) < 1e-5
    else:
        assert gap(plain, shuffled) > 1e-3
