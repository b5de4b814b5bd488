"""Rotary methods of vision models: coordinates of patches, heads and pairs of an axis."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax.encoding import Dims, at_layer, place
from posenc_jax.encodings import CATALOG, rotary, rotary_axes, rotary_vision
from posenc_jax.layout import full
from tests.encodings.test_rotary import DIMS, counted, logits, spread, vectors
from tests.support.catalogue import gap, standing


def test_dinov3_is_axial_from_minus_1_to_1():
    """Patches' centres lie within the image; an image of twice the size is twice as dense."""
    grid = spread(counted(0), 2)  # rows 0 to 2, columns 0 to 3
    dinov3 = rotary_vision.dinov3(rows=3, columns=4)
    centre = 2 * (np.asarray(grid) + 0.5) / np.array([3, 4]) - 1
    assert np.abs(centre).max() == 0.75
    q, k = vectors(1)
    axial = rotary_axes.axial()
    wanted = logits(axial, {}, q, k, jnp.asarray(2 * np.pi * centre, float))
    assert gap(logits(dinov3, {}, q, k, grid), wanted) < 1e-5
    large = rotary_vision.dinov3(rows=6, columns=8)
    assert gap(logits(large, {}, q, k, 2 * grid), wanted) < 1e-5
    assert gap(logits(large, {}, q, k, grid), wanted) > 1e-2, "control: of another size"


def coordinates(images, **options):
    """In training, of the corners of images of 2 x 2 patches, [images, 4, 2]."""
    options = {"jitter": 1.0, "rescale": 1.0, **options}
    encoding = rotary_vision.dinov3(rows=2, columns=2, **options)
    corners = jnp.asarray([[[0, 0], [0, 1], [1, 0], [1, 1]]] * images, jnp.int32)
    at = full(images, 4).replace(pos_BT=corners)
    (_, moved_A) = jax.jit(lambda key: place(encoding, key, at))(jax.random.key(0))
    return np.stack([np.asarray(moved_BT) for moved_BT in moved_A], axis=-1)


STILL = np.array([[-0.5, -0.5], [-0.5, 0.5], [0.5, -0.5], [0.5, 0.5]])


@pytest.mark.thorough
def test_dinov3_draws():
    """A stretch of each axis, and one of both, for each image."""
    assert gap(coordinates(3), np.broadcast_to(STILL, (3, 4, 2))) < 1e-6
    jitter = np.log(coordinates(2000, jitter=1.5) / STILL)
    assert gap(jitter, np.broadcast_to(jitter[:, :1], jitter.shape)) < 1e-5
    assert 0.95 * np.log(1.5) < np.abs(jitter).max() < np.log(1.5) + 1e-5
    assert abs(np.corrcoef(*jitter[:, 0].T)[0, 1]) < 0.1, "axes are drawn apart"
    rescale = np.log(coordinates(2000, rescale=2.0) / STILL)
    assert gap(rescale[..., 0], rescale[..., 1]) < 1e-5, "one for both axes"
    assert 0.95 * np.log(2) < np.abs(rescale).max() < np.log(2) + 1e-5
    assert np.std(rescale[:, 0, 0]) > 0.3


def test_dinov3_does_not_turn_the_middle():
    """Where a token of the whole image stands; a corner turns."""
    encoding = rotary_vision.dinov3(rows=3, columns=4)
    at = jnp.asarray([[[1.0, 1.5], [0.0, 0.0]]])
    sin = encoding.table({}, place(encoding, None, standing(at)), DIMS).sin
    assert gap(sin[:, 0], 0 * sin[:, 0]) < 1e-6
    assert float(jnp.abs(sin[:, 1]).min()) > 1e-3


def test_dinov3_trains_on_its_draws():
    """The table in training is that of the drawn coordinates; in evaluation nothing is drawn."""
    encoding = rotary_vision.dinov3(rows=3, columns=4)
    at = standing(spread(counted(0), 2))
    _, still = place(encoding, None, at)
    assert still is None
    placed = place(encoding, jax.random.key(3), at)
    actual = encoding.table({}, placed, DIMS)
    coordinate = jnp.stack(placed[1], axis=-1) * np.float32(2 * np.pi)
    wanted = rotary_axes.axial().table({}, coordinate, DIMS)
    assert gap(actual.cos, wanted.cos) < 1e-5
    assert gap(actual.cos, encoding.table({}, place(encoding, None, at), DIMS).cos) > 1e-2


@pytest.mark.parametrize("name", ["mhrope", "video_rope"])
def test_text_is_rope(name):
    """Where the three numbers of a token are equal, to the bit."""
    q, k = vectors(2)
    at = jnp.repeat(counted(5)[..., None], 3, axis=-1)
    encoding, rope = CATALOG[name](base=500.0), rotary.rope(base=500.0)
    assert gap(logits(encoding, {}, q, k, at), logits(rope, {}, q, k, counted(5))) == 0.0
    moved = logits(encoding, {}, q, k, at * jnp.asarray([1, 2, 1], jnp.int32)[None, None])
    assert gap(moved, logits(rope, {}, q, k, counted(5))) > 1e-2, "control"


def test_mhrope_heads():
    """Each head turns by its own axis alone, and a head that is left over by none."""
    dims = Dims(40, 5, 8)
    q, k = vectors(3, dims=dims)
    encoding = rotary_vision.mhrope(base=100.0, heads=(1, 1, 2))
    at = spread(counted(0), 3)
    still = logits(encoding, {}, q, k, at)
    for axis, heads in enumerate(([0], [1], [2, 3])):
        moved = logits(encoding, {}, q, k, at.at[..., axis].multiply(3))
        changed_H = np.abs(np.asarray(moved - still)).max(axis=(1, 2)) > 1e-3
        assert np.flatnonzero(changed_H).tolist() == heads
    plain = jnp.einsum("bqhc,bkhc->bhqk", q, k)[0] / 8**0.5
    assert gap(still[4], plain[4]) < 1e-6


def test_mhrope_shares():
    """2, 3 and 3 of 8 heads, as in the public code, and some for each axis of few."""
    assert rotary_axes.shares(8) == (2, 3, 3)
    assert rotary_axes.shares(16) == (4, 6, 6)
    assert rotary_axes.shares(3) == (1, 1, 1)


def test_video_rope_pairs():
    """The axes of pairs as the authors' code deals them: height and width in turn, time last."""
    sections = 16, 24, 24
    dealt = [1 if j % 2 == 0 else 2 for j in range(sections[1] + sections[2])] + [0] * sections[0]
    video, freq_F = rotary_vision.video_rope(), 1e6 ** (-np.arange(64) / 64)
    for axis in range(3):
        at = jnp.zeros((1, 1, 3), jnp.int32).at[..., axis].set(1)
        table = video.table({}, place(video, None, standing(at)), Dims(128, 1, 128))
        angle_F = np.arctan2(table.sin, table.cos)[0, 0, 0]
        np.testing.assert_allclose(
            angle_F, np.where(np.array(dealt) == axis, freq_F, 0), 1e-5, 1e-8
        )


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("dinov3", {"rows": 0}, "encoding.rows: 0 must be 1 or more"),
        ("dinov3", {"jitter": 0.5}, "encoding.jitter: 0.5 must be 1 or more"),
        ("dinov3", {"rescale": 0.5}, "encoding.rescale: 0.5 must be 1 or more"),
        ("mhrope", {"heads": (1, 2)}, r"encoding.heads: \(1, 2\) is not three whole numbers"),
        (
            "mhrope",
            {"heads": (2, 1, 1)},
            r"encoding.heads: \(2, 1, 1\) are more than the model",
        ),
        ("video_rope", {"time": -1}, "encoding.time: -1 must be 0 or more"),
        ("video_rope", {"time": 5}, "encoding.time: 5 is more than the 4 pairs of a head"),
    ],
)
def test_refused_options(name, options, message):
    q, k = vectors(0)
    with pytest.raises(ValueError, match=f"^{message}") as refusal:
        logits(CATALOG[name](**options), {}, q, k, spread(counted(0), CATALOG[name].card.axes))
    assert "\n" not in str(refusal.value)


# What docs/differences.md says of packages.


def test_frequencies_of_pixels_are_weights():
    """rotary-embedding-torch's: pi linspace(1, max_freq / 2) at positions -1 .. 1, on two axes."""
    q, k = vectors(5)
    freq_F = np.pi * np.linspace(1, 5, DIMS.head // 4)
    still_F = np.zeros_like(freq_F)
    both_AF = np.stack([np.append(freq_F, still_F), np.append(still_F, freq_F)])
    freq_AHF = jnp.asarray(np.repeat(both_AF[:, None], DIMS.heads, axis=1))
    pos_BT2 = jnp.stack(jnp.meshgrid(*map(jnp.linspace, (-1, -1), (1, 1), (3, 4))), -1)
    pos_BT2 = pos_BT2.reshape(1, 12, 2)

    def turned(x_THC, first_F):
        """Each axis turns its half of the channels, in pairs of neighbours."""
        x_THF = x_THC[..., ::2] + 1j * x_THC[..., 1::2]
        angle_TF = np.concatenate([np.asarray(pos_BT2)[0, :, a, None] * first_F for a in (0, 1)], 1)
        return x_THF * np.exp(1j * angle_TF)[:, None]

    encoding, params = at_layer(
        CATALOG["mixed"](pairing="interleaved"), 0, [{"freq_AHF": freq_AHF}]
    )
    actual = logits(encoding, params, q, k, pos_BT2)
    score = lambda first_F: (
        np.einsum("qhf,khf->hqk", turned(np.asarray(q)[0], first_F),
                  turned(np.asarray(k)[0], first_F).conj()).real * DIMS.head**-0.5
    )  # fmt: skip
    np.testing.assert_allclose(actual, score(freq_F), atol=1e-5)
    assert gap(actual, score(freq_F * 1.01)) > 1e-3, "control: other frequencies"


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
def test_a_norm_without_weights_is_the_same_before_the_rotation_and_after(pairing):
    """As in Llama 4, which divides queries and keys by their root mean square after it."""
    encoding, (q, k) = CATALOG["rope"](pairing=pairing), vectors(6)
    table = encoding.table({}, counted(0), DIMS)
    normed = lambda x: x * jax.lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-6)
    for x in (q, 3 * k):
        after = normed(encoding.rotate(table, x, "q"))
        assert gap(encoding.rotate(table, normed(x), "q"), after) < 1e-5
        assert gap(encoding.rotate(table, x, "q"), after) > 0.1, "control: without the norm"
