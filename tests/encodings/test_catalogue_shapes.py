"""The battery, shapes: heads, widths, lengths, offsets and padding drawn by Hypothesis.

In every run one shape, whose sizes no block divides; with `pytest --hypothesis-profile=thorough` 25
others.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posenc_jax import Dims
from posenc_jax.encoding import place
from tests.support.catalogue import (
    EVERY_METHOD,
    attention,
    encoding_of,
    gap,
    in_blocks,
    stir,
    where,
)


class Shape(NamedTuple):
    """What is drawn. `real` of `width` tokens count, the last of a sequence whose first `shift` are
    not here; the rest is padding.

    Few sizes of arrays, so that small operations compile once. The shapes of the other tests are
    among them, but not first.
    """

    heads: int
    head: int
    width: int
    real: int
    shift: int
    block: int


SHAPES = st.builds(
    Shape,
    heads=st.sampled_from([3, 4, 1]),
    head=st.sampled_from([12, 8]),
    width=st.sampled_from([10, 24]),
    real=st.sampled_from([9, *range(2, 9)]),
    shift=st.sampled_from([5, *range(7)]),
    block=st.sampled_from([7, 8]),
)

WIDTHS = {"prope": 8}  # of a head, for methods that take multiples of this number alone


def outputs(name, shape: Shape, mask_padding: bool = True, **form):
    """What the method makes of the real tokens, in float64: embeddings, and attention by layer.

    Of one sequence in two rows, padded on the right and on the left: [2, N].
    """
    shape = shape._replace(head=WIDTHS.get(name, shape.head))
    dims = Dims(shape.heads * shape.head, shape.heads, shape.head, 2)
    encoding = encoding_of(name)
    params = stir(encoding.init(jax.random.key(0), dims), 1)
    params = jax.tree.map(lambda leaf: jnp.asarray(leaf, float), params)
    right_T = np.arange(shape.width) < shape.real
    real_BT = np.stack([right_T, right_T[::-1]])
    at = where(name, real_BT.astype(np.int32), shift=shape.shift)
    at = at.replace(length_BT=at.length_BT + shape.shift)
    heads = (shape.heads, shape.head)
    qkv = np.random.default_rng(1).normal(size=(3, 2, shape.width, *heads)) * 3  # the padding's
    qkv[:, :, ::2] = np.nan
    content = np.random.default_rng(0).normal(size=(3, shape.real, *heads))
    qkv[:, real_BT] = np.concatenate([content, content], axis=1)
    q, k, v = map(jnp.asarray, qkv)
    x = q.reshape(2, shape.width, -1)
    actual = []
    if encoding.embed is not None:
        actual.append(encoding.embed(params, x, place(encoding, None, at)))
    for layer in range(1 if encoding.at is None else dims.layers):
        actual.append(
            attention(encoding, params, q, k, v, at, layer, mask_padding=mask_padding, **form)
        )
    return np.concatenate([np.asarray(out)[real_BT].reshape(2, -1) for out in actual], axis=1)


@pytest.mark.parametrize("name", EVERY_METHOD)
@given(shape=SHAPES)
def test_catalogue_shapes(name, shape):
    """Padding on the left or on the right, in one piece or in blocks: the same, at any shape."""
    with jax.enable_x64(True):
        right, left = dense = outputs(name, shape, form="dense")
        assert np.isfinite(dense).all()
        assert gap(right, left) < 1e-9
        if in_blocks(encoding_of(name)):
            blocks = outputs(name, shape, form="blockwise", block=shape.block)
            assert gap(dense, blocks) < 1e-9
        leak = outputs(name, shape, mask_padding=False, form="dense")
        assert gap(right, leak[1]) > 1e-6, "control: padding that is not masked must be seen"
