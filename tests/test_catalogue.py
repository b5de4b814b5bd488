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
    ROWS,
    TIME,
    VOCAB,
    attention,
    capped,
    case,
    encoding_of,
    gap,
    in_blocks,
    layers,
    normalised,
    passes,
    row,
    sentence,
    tokens,
    where,
    whole,
)

ORDER = np.random.default_rng(0).permutation(TIME)
PLACED = [name for name in NAMES if card(name).kind != "positions"]


RIGHT, LEFT = ([1] * 17 + [0] * 7, [0] * 7 + [1] * 17)  # padding on the right, on the left


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


@functools.cache
def read(name: str, kind: str = "decoder") -> dict[str, np.ndarray]:
    """What a model makes of the rows that the next tests compare: logits [T, V] of each.

    `alone` is the last 17 tokens of the text, first in their row and not padded. Another document
    follows, which no causal model sees, so that all rows are the same programs.
    """
    text, other = sentence(1), sentence(2)
    later = np.where(np.arange(TIME) < 16, text, other)
    rows = {"text": (text, row(name)), "later": (later, row(name))}
    if kind == "encoder":
        rows["shuffled"] = text[ORDER], row(name)
        return passes(case(name, kind), **rows)
    packed = row(name, [1] * 7 + [2] * 17)
    unaware = row(name, shift=1)  # counted from its start, the padding too
    left = row(name, LEFT)
    last = np.concatenate([text[7:], other[:7]])
    return passes(
        case(name),
        **rows,
        alone=(last, row(name, [1] * 17 + [2] * 7)),
        moved=(text, row(name, shift=7)),
        packed=(text, packed),
        first=(np.where(np.arange(TIME) < 7, text, other), packed),
        second=(np.where(np.arange(TIME) < 7, other, text), packed),
        right=(np.roll(text, -7), row(name, RIGHT)),
        left=(text, left),
        unaware=(text, left.replace(pos_BT=unaware.pos_BT * 2, group_BT=unaware.group_BT)),
    )


@pytest.mark.parametrize("name", NAMES)
def test_catalogue_causal(name):
    """A later token does not change an earlier output, to the bit."""

    def change(kind):
        found = read(name, kind)
        return gap(found["text"][:16], found["later"][:16])

    assert change("decoder") == 0.0
    assert change("encoder") > 1e-3, "control: a bidirectional model must see later tokens"


@pytest.mark.parametrize("name", NAMES)
def test_catalogue_padding(name):
    """What stands in the padding, on either side, changes no real output, to the bit."""

    def changes(attention_mask):
        """The largest change of a row padded on the right, and of one on the left."""
        c = case(name, "encoder", attention_mask)
        rows, real = {}, {"right": np.arange(TIME) < 12, "left": np.arange(TIME) >= 12}
        for side, real_T in real.items():
            at = row(name, real_T.astype(np.int32))
            rows[side] = sentence(5), at
            rows[f"{side}, other"] = np.where(real_T, sentence(5), sentence(6)), at
        found = passes(c, **rows)
        return [gap(found[s][real[s]], found[f"{s}, other"][real[s]]) for s in real]

    assert changes(attention_mask=True) == [0.0, 0.0]
    assert min(changes(attention_mask=False)) > 1e-4, "control: with the mask off it must leak"


@pytest.mark.parametrize("name", NAMES)
def test_catalogue_padding_side(name):
    """A sequence gives the same outputs with padding on the left, on the right, or with none."""
    found = read(name)
    assert gap(found["alone"][:17], found["right"][:17]) < 1e-5
    assert gap(found["alone"][:17], found["left"][7:]) < 1e-5
    if card(name).kind != "none":
        changed = gap(found["left"][7:], found["unaware"][7:])
        assert changed > 1e-4 if card(name).axes else changed == 0.0


@pytest.mark.parametrize("name", NAMES)
def test_catalogue_packed(name):
    """Packed documents: each is as if alone, and changing one leaves the other to the bit."""
    found = read(name)
    assert gap(found["packed"][:7], found["first"][:7]) == 0.0
    assert gap(found["packed"][7:], found["second"][7:]) == 0.0
    assert gap(found["packed"][7:], found["alone"][:17]) < 1e-5
    assert gap(found["packed"][7:], found["text"][7:]) > 1e-3, "control: one long document"


@pytest.mark.parametrize("name", PLACED)
def test_catalogue_shift(name):
    """Moving all positions changes nothing where the card says relative, something elsewhere."""
    found = read(name)
    if card(name).shift_invariant:
        assert gap(found["text"], found["moved"]) < 2e-5
    else:
        assert gap(found["text"], found["moved"]) > 1e-4


@pytest.mark.parametrize("name", NAMES)
def test_catalogue_permutation(name):
    """Without a mask, no encoding means permutation equivariance; every encoding breaks it."""
    found = read(name, "encoder")
    if card(name).kind == "none":
        assert gap(found["text"][ORDER], found["shuffled"]) < 1e-5
    else:
        assert gap(found["text"][ORDER], found["shuffled"]) > 1e-3


@pytest.mark.parametrize("name", NAMES)
def test_catalogue_blockwise(name):
    """The blockwise form equals the dense one, in values and gradients; keys shared, sinks, cap.

    And what stands late has no part, exactly, in the gradient of early outputs.
    """
    c, at = case(name), where(name, np.array([[1] * 9 + [2] * 15, [1] * 20 + [0] * 4, LEFT, RIGHT]))
    real = np.asarray(at.segment_BT > 0)[..., None, None]
    rng = np.random.default_rng(8)
    weights, *qkv = rng.normal(size=(4, ROWS, TIME, 4, 8)).astype(np.float32)
    weights = np.where(real, weights, 0)
    early = np.where(np.arange(TIME)[:, None, None] < 16, weights, 0)
    q, k, v = map(jnp.asarray, qkv)
    sink_H = jnp.asarray(rng.normal(size=4), jnp.float32) if normalised(c.encoding) else None
    given = c.params["encoding"], [q, k[:, :, :2], v[:, :, :2], sink_H]
    options = {"cap": CAP if capped(c.encoding) else None}

    def run(params, given, at, **form):
        *qkv, sink_H = given
        layers = range(1 if c.encoding.at is None else 2)
        every = functools.partial(attention, c.encoding, params, *qkv, at)
        return [every(n, options={"sink_H": sink_H, **options}, **form) for n in layers]

    def late(grads):
        """The largest gradient with respect to queries, keys and values of late tokens."""
        return max(gap(grad[:, 16:], 0 * grad[:, 16:]) for grad in grads[1][:3])

    off = lambda a, b: max(jax.tree.leaves(jax.tree.map(gap, a, b)))

    def results(form):
        """Outputs, and their gradients with all weights; checks those of early outputs."""
        outs, pull = jax.vjp(functools.partial(run, at=at, form=form, block=8), *given)
        grads, of_early = (pull([jnp.asarray(w)] * len(outs)) for w in (weights, early))
        assert late(of_early) == 0.0
        assert late(grads) > 1e-3, "control: late outputs"
        return outs, grads

    dense, dense_grads = results("dense")
    if in_blocks(c.encoding):
        block, block_grads = results("blockwise")
        assert off(dense, block) < 1e-5
        assert off(dense_grads, block_grads) < 2e-4
        joined = run(*given, whole(name), form="dense")
        assert off(dense, joined) > 1e-2, "control: other segments"
    else:
        with pytest.raises(ValueError, match="form: 'blockwise' does not take scores that read"):
            run(*given, at, form="blockwise")


@pytest.mark.parametrize("name", NAMES)
def test_catalogue_cross(name):
    """Fewer queries, as tokens of their own beside the keys, attend as they do among all tokens.

    In both forms; keys shared, a sink, a cap; keys in the padding change nothing, to the bit.
    """
    c, few = case(name), slice(0, 11)
    at = where(name, np.array([[1] * 9 + [2] * 15, *[[1] * 20 + [0] * 4] * 3]))
    real = np.asarray(at.segment_BT > 0)[..., None, None]
    rng = np.random.default_rng(8)
    q, k, v, other = rng.normal(size=(4, 2, TIME, 4, 8)).astype(np.float32)[:, [0, 1, 1, 1]]
    hidden = (np.arange(4) == 2)[:, None, None, None] & ~real  # in the third row
    k, v = (jnp.asarray(np.where(hidden, other, x)) for x in (k, v))
    moved = where(name, at.segment_BT, shift=3, stretch=2)
    some = lambda here, there: jnp.concatenate([here[:3, few], there[3:, few]])
    cut = jax.tree.map(some, at, moved).replace(counted=False)
    sink_H = jnp.asarray(rng.normal(size=4), jnp.float32) if normalised(c.encoding) else None
    options = {"sink_H": sink_H, "cap": CAP if capped(c.encoding) else None}
    run = functools.partial(attention, c.encoding, c.params["encoding"], options=options)
    q, shared, layer = jnp.asarray(q), (k[:, :, :2], v[:, :, :2]), layers(c.encoding) - 1
    among = run(q, *shared, at, layer, form="dense", causal=False)[:3, few]
    for form in ("dense", "blockwise")[: 1 + in_blocks(c.encoding)]:
        found = run(q[:, few], *shared, cut, layer, form=form, block=8, keys=at, x_keys=q)
        assert gap(found[:3], among) < 1e-5
        assert gap(found[1], found[2]) == 0.0
        change = gap(found[1], found[3])
        # grape_ap turns keys alone, by their own positions.
        if card(name).kind == "none" or name == "grape_ap" or not card(name).axes:
            assert change == 0.0
        else:
            assert change > 1e-4, "control: queries elsewhere"


@pytest.mark.parametrize("name", NAMES)
def test_catalogue_decode(name):
    """Tokens, and a few at once, with a cache equal the full pass, padded on the left or not.

    Other tokens in the padding change nothing, to the bit.
    """
    c, segment_BT = case(name), np.array([[1] * TIME, [0] * 5 + [1] * (TIME - 5)])
    ids, at = tokens(10)[:2], where(name, np.tile(segment_BT, (2, 1)))
    full = passes(c, **{str(n): (ids[n], row(name, segment_BT[n])) for n in range(2)})
    full, real = np.stack(list(full.values())), segment_BT[:, :18] > 0
    other = jnp.where(segment_BT > 0, ids, (ids + 1) % VOCAB)
    rows = jnp.concatenate([ids, other])

    def step(a, b, cache):
        cut = jax.tree.map(lambda leaf: leaf[:, a:b], at)
        return c.model.decode(c.params, rows[:, a:b], cut, cache)

    start, parts = c.model.start(c.params, len(rows), TIME), []
    cache = start
    for a, b in itertools.pairwise((0, 8, 16, 17, 18)):
        logits, cache = step(a, b, cache)
        parts.append(logits)
    found, noise = np.split(np.concatenate(parts, axis=1), 2)
    assert gap(full[:, :18][real], found[real]) < 1e-5
    assert gap(found[real], noise[real]) == 0.0
    late, _ = step(8, 16, start)
    assert gap(full[:, 8:16], late[:2]) > 1e-3, "control: a cache that forgets its first tokens"
