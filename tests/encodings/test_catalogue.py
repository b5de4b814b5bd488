"""The battery: what every method must prove, each property with a control.

A method enters by its card alone; the properties are those of `posenc_jax.testing`. The numbers
(parity with the definition in float64, precision, range policy, options) are in
test_catalogue_numbers.py.
"""

import dataclasses
import functools
import itertools
import zlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax import CATALOG, testing
from posenc_jax.encodings import card
from posenc_jax.lab import definitions
from posenc_jax.lab.gallery.measure import on_axes
from tests.support.catalogue import (
    EVERY_METHOD,
    NAMES,
    TIME,
    VOCAB,
    case,
    encoding_of,
    gap,
    passes,
    row,
    tokens,
    where,
)


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
def trial_of(name: str) -> testing.Trial:
    """The method with random parameters, held to its card; a mover beside two other methods."""
    method = card(name)
    moves = method.kind == "positions"
    trial = testing.trial(
        encoding_of(name),
        seed=zlib.crc32(name.encode()),
        axes=method.axes,
        shift_invariant=None if moves else method.shift_invariant,
        tells_order=method.kind != "none",
    )
    if method.axes > 3:  # cameras
        trial = dataclasses.replace(trial, place=functools.partial(on_axes, method.axes))
    return dataclasses.replace(trial, label=name)


# Each of these has its control; tests/test_testing.py feeds them encodings that are wrong.
PROPERTIES = [
    testing.causality,
    testing.padding,
    testing.padding_side,
    testing.positions,
    testing.storage,
    testing.packing,
    testing.shift,
    testing.order,
    functools.partial(testing.forms, kernel=False),  # the kernel is in kernels/test_tpu.py
    testing.cross,
    testing.decoding,
    testing.relative,
    testing.hooks,
]


@pytest.mark.parametrize("holds", PROPERTIES, ids=lambda f: getattr(f, "func", f).__name__)
@pytest.mark.parametrize("name", EVERY_METHOD)
def test_catalogue_property(name, holds):
    holds(trial_of(name))


def decoded() -> list[str]:
    """Methods whose features of x, or layers, a model's cache has to keep; some of each other kind.

    That every method decodes is `testing.decoding`.
    """
    kinds: dict[str, list[str]] = {}
    for name in NAMES:
        kinds.setdefault(card(name).kind, []).append(name)
    all_of = ("content", "by_layer", "none")
    return [n for kind, names in kinds.items() for n in (names if kind in all_of else names[:3])]


@pytest.mark.thorough
@pytest.mark.parametrize("name", decoded())
def test_catalogue_decode(name):
    """In a model, tokens, and a few at once, with a cache equal the full pass, padded or not.

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
    actual, noise = np.split(np.concatenate(parts, axis=1), 2)
    assert gap(full[:, :18][real], actual[real]) < 1e-5
    assert gap(actual[real], noise[real]) == 0.0
    late, _ = step(8, 16, start)
    assert gap(full[:, 8:16], late[:2]) > 1e-3, "control: a cache that forgets its first tokens"
