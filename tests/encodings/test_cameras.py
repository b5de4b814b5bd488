"""PRoPE: tokens of several cameras."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax import Dims, attend, frame, make
from posenc_jax.encodings.rotary_vision import projection
from posenc_jax.lab.definitions import OUTPUTS, SCORES
from posenc_jax.layout import layout
from tests.support.catalogue import gap

TIME, DIMS = 6, Dims(64, 2, 32)
SIZE = 640, 480
K = np.array([[500.0, 0, 300], [0, 520, 250], [0, 0, 1]])  # in pixels


def poses(seed):
    """Rotations and shifts of the world, [T, 4, 4]."""
    rng = np.random.default_rng(seed)
    actual = np.tile(np.eye(4), (TIME, 1, 1))
    turn = np.linalg.qr(rng.normal(size=(TIME, 3, 3)))[0]
    actual[:, :3, :3] = turn * np.linalg.det(turn)[:, None, None]
    actual[:, :3, 3] = rng.normal(size=(TIME, 3))
    return actual


def positions(pose_TUV):
    patch_TA = np.random.default_rng(9).integers(0, 30, (TIME, 2))
    return np.concatenate([projection(K, pose_TUV, SIZE).reshape(TIME, 16), patch_TA], axis=1)


def out(pos_TA, segment_T=(1,) * TIME):
    """What attention makes of random tokens at these positions, and q, k, v."""
    qkv = np.random.default_rng(0).normal(size=(3, 1, TIME, 2, 32))
    at = layout(jnp.asarray([segment_T]), jnp.asarray(pos_TA[None], float))
    view = frame(make("prope"), {}, at, DIMS, causal=False, form="dense")
    q, k, v = (jnp.asarray(x, float) for x in qkv)
    return attend(q, k, v, view.layer(0))[0], qkv[:, 0]


def test_projection_is_in_units_of_the_image():
    """A point of the world lies where pixels say, as a share of the image from its middle."""
    pose_TUV, point_4 = poses(1), np.array([0.3, -0.2, 5, 1])
    x, y, depth, scale = projection(K, pose_TUV, SIZE)[0] @ point_4
    u, v, w = K @ (pose_TUV[0] @ point_4)[:3]
    np.testing.assert_allclose([depth, scale], [w, 1])
    np.testing.assert_allclose([x / depth, y / depth], [u / w / 640 - 0.5, v / w / 480 - 0.5])


@pytest.mark.thorough
def test_wide_heads_have_the_frequencies_of_the_definition():
    with jax.enable_x64(True):
        pos_TA = positions(poses(1))
        actual, (q, k, v) = out(pos_TA)
        s_HQK = SCORES["prope"](types.SimpleNamespace(), {}, q, k, pos_TA, TIME)
        weight_HQK = np.exp(s_HQK) / np.exp(s_HQK).sum(axis=-1, keepdims=True)
        wanted = OUTPUTS["prope"](types.SimpleNamespace(), {}, weight_HQK, v, pos_TA, TIME)
        assert gap(actual, wanted) < 1e-10
        assert gap(actual, np.einsum("hqk,khc->qhc", weight_HQK, v)) > 1e-2, "control: plain values"


@pytest.mark.thorough
def test_the_world_may_turn_and_move_but_no_camera_alone():
    pose_TUV = poses(1)
    world = poses(2)[0]
    moved = np.where(np.arange(TIME)[:, None, None] == 2, pose_TUV @ world, pose_TUV)
    with jax.enable_x64(True):
        plain = out(positions(pose_TUV))[0]
        assert gap(plain, out(positions(pose_TUV @ world))[0]) < 1e-10
        assert gap(plain, out(positions(moved))[0]) > 1e-2, "control: one camera"


@pytest.mark.thorough
def test_padding_may_have_no_camera():
    pos_TA, real_T = positions(poses(1)), np.arange(TIME) < 4
    blank_TA = np.where(real_T[:, None], pos_TA, 0)
    plain, blank = (out(pos, real_T.astype(np.int32))[0][:4] for pos in (pos_TA, blank_TA))
    assert gap(plain, blank) == 0.0
    assert not np.isfinite(out(blank_TA)[0]).all(), "control: real tokens without a camera"


def test_prope_refuses_other_positions_and_widths():
    with pytest.raises(ValueError, match=r"^positions: shape \(1, 6, 2\) is not \[B, T, 18\]"):
        out(positions(poses(1))[:, :2])
    at = layout(jnp.ones((1, TIME), jnp.int32), jnp.asarray(positions(poses(1))[None], float))
    with pytest.raises(ValueError, match=r"^head: 12 channels; cameras need"):
        frame(make("prope"), {}, at, Dims(24, 2, 12))
