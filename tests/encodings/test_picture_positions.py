"""Positions of a vision tower's tokens, against those of transformers, frozen."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax import Dims, frame, layout, make
from posenc_jax.encodings import picture_positions
from posenc_jax.options import FieldError
from tests.support import ROOT
from tests.support.catalogue import gap

FROZEN = ROOT / "tests" / "goldens" / "huggingface" / "towers.npz"
PICTURES = [(6, 8), (10, 6, 2)]


def frozen(case):
    with np.load(FROZEN) as file:
        start = f"{case}/"
        return {name.removeprefix(start): file[name] for name in file.files if start in name}


def test_patches_come_block_by_block_as_in_qwen2_vl():
    at = picture_positions.tokens(PICTURES, merge=2)
    np.testing.assert_array_equal(at.pos_T2, frozen("qwen2")["pos"])
    assert np.bincount(at.frame_T).tolist() == [0, 48, 60, 60]
    plain = picture_positions.tokens(PICTURES)
    assert (plain.pos_T2 != at.pos_T2).any(), "control: without merging"


def test_blocks_come_window_by_window_as_in_qwen2_5_vl():
    at, expected = picture_positions.tokens(PICTURES, merge=2, window=8), frozen("qwen2_5")
    np.testing.assert_array_equal(at.pos_T2, expected["pos"])
    ends = np.cumsum(np.bincount(at.window_T)[1:])
    np.testing.assert_array_equal(ends, expected["ends"][1:])
    assert (np.diff(at.window_T) >= 0).all()
    other = picture_positions.tokens(PICTURES, merge=2, window=4)
    assert (other.pos_T2 != at.pos_T2).any(), "control: other windows"


def turned(q_TC, at):
    """Queries of one head as `dinov3` turns them in a picture of 6 x 4 patches."""
    encoding, dims = make("dinov3", rows=6, columns=4), Dims(16, 1, 16)
    tokens = layout(at.frame_T[None], jnp.asarray(at.pos_T2)[None])
    q_BTHC = jnp.asarray(q_TC)[None, :, None]
    return frame(encoding, {}, tokens, dims).layer(0).rotate(q_BTHC, q_BTHC)[0][0, :, 0]


def test_class_and_register_tokens_of_dinov3_do_not_turn():
    case = frozen("dinov3")
    middle = picture_positions.tokens([(6, 4)], prefix=5, prefix_at="middle")
    expected = jnp.asarray(case["turned"])
    assert gap(turned(case["q"], middle), expected) < 1e-5
    np.testing.assert_array_equal(case["turned"][:5], case["q"][:5])
    before = picture_positions.tokens([(6, 4)], prefix=5)
    assert gap(turned(case["q"], before), expected) > 1e-2, "control: they stand elsewhere"


def test_prefix_tokens_have_rows_of_the_table():
    """The class token reads the first row, also in a picture of another size than trained."""
    encoding = make("learned_grid", rows=3, columns=3, prefix=2, image_rows=2, image_columns=4)
    params = encoding.init(jax.random.key(0), Dims(8, 1, 8))
    at = picture_positions.tokens([(2, 4)], prefix=2)
    tokens = layout(at.frame_T[None], jnp.asarray(at.pos_T2)[None])
    added = frame(encoding, params, tokens, Dims(8, 1, 8)).embed(jnp.zeros((1, 10, 8)))[0]
    assert gap(added[:2], params["table"][:2]) == 0
    assert not jnp.isnan(added).any()


@pytest.mark.parametrize(
    ("pictures", "options", "line"),
    [
        ([(6, 0)], {}, "pictures: 6 x 0 patches, 1 frames: not positive"),
        ([(6, 5)], {"merge": 2}, "pictures: merge 2 does not divide 6 x 5 patches"),
        ([], {}, "pictures: there is none"),
        ([(4, 4)], {"window": 3, "merge": 2}, "window: 3 is not a multiple of merge 2"),
        ([(4, 4)], {"window": 2, "prefix": 1}, "prefix: 1 tokens belong to no window"),
        ([(4, 4)], {"prefix": -1}, "prefix: -1 must be 0 or more"),
        ([(4, 4)], {"merge": 0}, "merge: 0 must be 1 or more"),
        ([(4, 4)], {"prefix_at": "end"}, "prefix_at: 'end' is not one of: 'before', 'middle'"),
    ],
)
def test_what_no_tower_has_is_one_line(pictures, options, line):
    with pytest.raises(FieldError, match=f"^{line}"):
        picture_positions.tokens(pictures, **options)
