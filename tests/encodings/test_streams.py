"""Positions of mixed streams: worked examples, and the order of sound and picture."""

import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax import Dims, attend, frame, make
from posenc_jax.encoding import place
from posenc_jax.encodings.multimodal_ids import (
    Audio,
    Image,
    Text,
    Video,
    circle_ids,
    corner_ids,
    diagonal_ids,
    ids,
    positions,
)
from posenc_jax.encodings.rotary_axes import tmrope
from tests.support.catalogue import gap, standing


def test_text_counts_up_in_all_axes():
    assert ids([Text(2), Text(3)]).tolist() == [[n] * 3 for n in range(5)]
    assert ids([]).shape == (0, 3)


def test_video_then_text():
    """The example in Hugging Face's Qwen2.5-Omni: frames 2 s apart, 2 x 2 patches, 5 words."""
    actual = ids([Video(2, 2, (0.0, 2.0, 4.0)), Text(5)]).T.tolist()
    assert actual[0] == [0] * 4 + [50] * 4 + [100] * 4 + [101, 102, 103, 104, 105]
    assert actual[1] == [0, 0, 1, 1] * 3 + [101, 102, 103, 104, 105]
    assert actual[2] == [0, 1, 0, 1] * 3 + [101, 102, 103, 104, 105]


def test_image_between_words():
    """An image stands at one moment; words go on from its largest side."""
    actual = ids([Text(2), Image(2, 3), Text(1)]).T.tolist()
    assert actual[0] == [0, 1] + [2] * 6 + [5]
    assert actual[1] == [0, 1, 2, 2, 2, 3, 3, 3, 5]
    assert actual[2] == [0, 1] + [2, 3, 4] * 2 + [5]


def test_sound_and_picture_of_a_moment_agree():
    """Chunks of 2 s, frames before sound; both begin together, and the next after both."""
    parts = [Text(1), Video(1, 1, (0.0, 1.0, 3.0), sound=90), Text(1)]
    time_T, row_T, _ = ids(parts).T
    picture = [1, 26, 76]
    sound = list(range(1, 91))
    assert time_T.tolist() == [0, 1, 26, *sound[:50], 76, *sound[50:], 91]
    assert row_T.tolist() == [0, 1, 1, *sound[:50], 1, *sound[50:], 91]
    assert picture[1] in sound
    apart = ids([Text(1), Video(1, 1, (0.0, 1.0, 3.0)), Audio(90), Text(1)])[:, 0]
    assert apart.tolist() != time_T.tolist(), "control: sound after the video"


def test_the_next_part_starts_after_the_largest_id():
    """Also where a video's last chunk holds sound alone, or ends before its frames do."""
    assert ids([Video(1, 1, (0.0, 9.0), sound=10), Text(1)])[-1].tolist() == [226] * 3
    assert ids([Video(1, 1, (0.0,), sound=100), Text(1)])[-1].tolist() == [100] * 3


def test_rate_and_chunk():
    actual = ids([Video(1, 1, (0.0, 1.0), sound=4)], rate=2, chunk=1)[:, 0]
    assert actual.tolist() == [0, 0, 1, 2, 2, 3]


def test_positions_are_placed_as_ids():
    """Seconds in float32 come back as the same ids, hours from the start."""
    parts = [Text(3), Video(1, 2, (0.0, 0.48, 0.5, 3600.0), sound=60), Image(2, 2), Text(2)]
    seconds = positions(parts)
    assert seconds.dtype == np.float32
    far = seconds + np.array([144_000, 0, 0], np.float32)
    for given, start in ((seconds, 0), (far, 144_000 * 25)):
        placed = place(tmrope(), None, standing(given[None]))
        actual = np.stack([np.asarray(p)[0] for p in placed], axis=1)
        assert (actual - [start, 0, 0]).tolist() == ids(parts).tolist()


def test_spatial_reset():
    """Rows and columns of patches begin at 0; time, text, sound and the parts' starts stay."""
    parts = [Text(2), Image(2, 3), Text(1), Video(1, 2, (0.0, 1.0), sound=30), Text(1)]
    plain, reset = ids(parts), ids(parts, reset=True)
    patch_T = (plain != plain[:, :1]).any(axis=1) | (reset != plain).any(axis=1)
    assert (reset[:, 0] == plain[:, 0]).all()
    assert (reset[~patch_T] == plain[~patch_T]).all()
    image = ids([Text(2), Image(2, 3), Text(1)], reset=True).T.tolist()
    assert image[0] == [0, 1] + [2] * 6 + [5]
    assert image[1] == [0, 1, 0, 0, 0, 1, 1, 1, 5]
    assert image[2] == [0, 1] + [0, 1, 2] * 2 + [5]
    frames = reset[9:][reset[9:, 0] != reset[9:, 1]]
    assert frames[:, 1:].tolist() == [[0, 0], [0, 1]] * 2


def test_diagonal():
    """As VideoRoPE's code makes them: the middle of a frame at its time, `stride` apart."""
    actual = diagonal_ids([Text(2), Video(3, 2, (0.0, 0.5)), Text(2)], stride=2.0).T.tolist()
    assert actual[0] == [0, 1] + [2] * 6 + [4] * 6 + [5, 6]
    assert actual[1] == [0, 1, 1, 1, 2, 2, 3, 3, 3, 3, 4, 4, 5, 5, 5, 6]
    assert actual[2] == [0, 1] + [2, 3] * 3 + [4, 5] * 3 + [5, 6]
    slower = diagonal_ids([Text(2), Video(3, 2, (0.0, 0.5)), Text(2)], stride=0.5)
    assert slower[-1].tolist() == [4.5] * 3
    assert diagonal_ids([Image(2, 2), Text(1)])[-1].tolist() == [1.0] * 3


def test_circle():
    """Each token of text is equally far from all patches; with `ids` it is not."""
    parts = [Text(2), Image(3, 4), Text(2)]
    actual = circle_ids(parts, radius=5.0, mix=0.5)
    image, words = actual[2:14], actual[[0, 1, 14, 15]]
    assert np.abs(words - words[:, :1]).max() < 1e-6, "words stay on the line"
    np.testing.assert_allclose(words[2, 0], image.max() + 1, rtol=1e-6)
    apart = lambda ids: np.ptp(
        np.linalg.norm(ids[2:14, None] - ids[None, [0, 1, 14, 15]], axis=-1), 0
    )
    assert apart(actual).max() < 1e-5
    assert apart(ids(parts)).min() > 0.1, "control"


def circle_public(rows, columns, radius, alpha):
    """The authors' code, transcribed: centred, mapped to a circle, and turned across (1, 1, 1)."""
    h, w = np.indices((rows, columns)).astype(float)
    y, x = h - (rows - 1) / 2, w - (columns - 1) / 2
    theta = np.arctan2(y, x)
    norm = (theta - theta.min()) / (theta.max() - theta.min()) * 2 * np.pi
    index = np.arange(rows * columns).reshape(rows, columns) / (rows * columns) * 2 * np.pi
    uniform = alpha * norm + (1 - alpha) * index
    text = np.ones(3) / np.sqrt(3)
    u = np.array([-text[1], text[0], 0.0])
    u /= np.linalg.norm(u)
    v = np.cross(text, u)
    v /= np.linalg.norm(v)
    wht = [radius * (np.cos(uniform) * u[a] + np.sin(uniform) * v[a]) for a in range(3)]
    return np.stack(wht[::-1], axis=-1).reshape(-1, 3)


def test_circle_of_the_public_code():
    for rows, columns, alpha in ((3, 4, 0.5), (2, 5, 0.7), (3, 3, 1.0), (4, 2, 0.0)):
        actual = circle_ids([Text(3), Image(rows, columns)], radius=10.0, mix=alpha)[3:]
        np.testing.assert_allclose(actual, 3 + circle_public(rows, columns, 10.0, alpha), atol=1e-5)
        wrong = circle_public(rows, columns, 10.0, 1 - alpha if alpha != 0.5 else 0.4)
        assert np.abs(actual - 3 - wrong).max() > 1e-2, "control: another mix"


def test_refused_circle():
    with pytest.raises(ValueError, match=r"^parts: Video.* is a video"):
        circle_ids([Video(1, 1, (0.0,))], radius=1.0, mix=0.5)
    with pytest.raises(ValueError, match=r"^radius: 0.0 must be positive"):
        circle_ids([Text(1)], radius=0.0, mix=0.5)
    with pytest.raises(ValueError, match=r"^mix: 2.0 must be from 0 to 1"):
        circle_ids([Text(1)], radius=1.0, mix=2.0)


def test_refused_diagonal():
    with pytest.raises(ValueError, match=r"^parts: Video.* has sound"):
        diagonal_ids([Video(1, 1, (0.0,), sound=1)])
    with pytest.raises(ValueError, match=r"^stride: 0.0 must be positive"):
        diagonal_ids([Text(1)], stride=0.0)


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (Text(0), r"parts: Text\(tokens=0\) has a size that is not positive"),
        (Image(2, 0), "parts: Image.* has a size that is not positive"),
        (Video(1, 1, ()), "parts: Video.* needs times that rise"),
        (Video(1, 1, (1.0, 1.0)), "parts: Video.* needs times that rise"),
        (Video(1, 1, (-1.0,)), "parts: Video.* needs times that rise"),
        (Video(1, 1, (0.0,), sound=-1), "parts: Video.* and sound >= 0"),
    ],
)
def test_refused_parts(part, message):
    with pytest.raises(ValueError, match=f"^{message}") as refusal:
        ids([part])
    assert "\n" not in str(refusal.value)


def test_refused_rate():
    with pytest.raises(ValueError, match=r"^rate, chunk: 0, 2 must be positive"):
        ids([Text(1)], rate=0)


def test_layers_read_circle_ids_or_those_of_the_grid():
    """Layers of `circle_rope` are `mrope` at the ids of their kind; [B, T, 3] are ids of both."""
    parts = [Text(2), Image(2, 3), Text(1)]
    circle, grid = (
        jnp.asarray(f, jnp.float32)[None] for f in (circle_ids(parts, 5.0, 0.5), ids(parts))
    )
    encoding = make("circle_rope")
    q, k, v = np.random.default_rng(0).normal(size=(3, 1, 9, 2, 8)).astype(np.float32)
    dims = Dims(16, 2, 8, 4)
    attended = lambda encoding, params, pos, layer: attend(
        q, k, v, frame(encoding, params, standing(pos), dims).layer(layer)
    )
    both = jnp.concatenate([circle, grid], axis=-1)
    actual = [attended(encoding, ({}, {}), both, layer) for layer in range(4)]
    wanted = [attended(make("mrope"), {}, pos, 0) for pos in (circle, grid)]
    assert max(map(gap, actual, wanted * 2)) < 1e-6
    assert gap(*actual[:2]) > 1e-3, "control: the layers differ"
    alike = [attended(encoding, ({}, {}), grid, layer) for layer in (0, 1)]
    assert max(map(gap, alike, wanted[1:] * 2)) < 1e-6
    with pytest.raises(ValueError, match=r"^positions: shape \(1, 9, 4\) is not \[B, T, 3\]"):
        attended(encoding, ({}, {}), both[..., :4], 0)


def test_ids_from_corners():
    """Two frames of 2 x 3 patches between words: steps from each corner, and room for the next."""
    actual = corner_ids([Text(2), Video(2, 3, (0.0, 0.5)), Text(2)]).T.tolist()
    frame = [[0, 1, 2, 1, 2, 3], [2, 1, 0, 3, 2, 1], [1, 2, 3, 0, 1, 2], [3, 2, 1, 2, 1, 0]]
    for corner, wanted in zip(actual, frame, strict=True):
        first, second = ([start + step for step in wanted] for start in (2, 6))
        assert corner == [0, 1, *first, *second, 10, 11]
    assert corner_ids([]).shape == (0, 4)
    with pytest.raises(ValueError, match=r"^parts: .* has sound"):
        corner_ids([Video(1, 1, (0.0,), sound=3)])


def test_corners_are_alike_to_the_text_behind():
    """The mean id of each side of a picture is as far from the next word; of `ids` it is not."""
    parts = [Image(4, 4), Text(1)]
    apart = lambda ids: ids[-1].mean() - ids[:-1].mean(axis=1)
    assert np.ptp(apart(corner_ids(parts))) == 0
    assert np.ptp(apart(ids(parts))) > 1, "control"
