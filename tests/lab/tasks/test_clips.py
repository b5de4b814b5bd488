"""Clips of frames, tones and text: their rows, positions, files; see also test_encoders.py."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import experiments
from experiments.compare.multimodal.config import rows_of
from posenc_jax.lab import tasks
from posenc_jax.lab.tasks.task import BOS, SYMBOL
from tests.support.refusing import config_of, refused


@pytest.mark.thorough
def test_a_method_of_one_axis_reads_a_clip_in_two_ways(tmp_path):
    config = config_of("multimodal", "rope,mrope,quick", seeds=1)
    names = ("nope", "rope", "mrope", "mhrope", "video_rope")
    assert [row for name in names for row in rows_of(name)] == [
        ("nope", "index"), ("rope", "index"), ("rope on time", "time"), ("mrope", "all"),
        ("mhrope", "reset"), ("video_rope", "diagonal"),
    ]  # fmt: skip
    config["train"].update(steps=2, chunk=2)
    config["eval"]["lengths"] = (4,)
    config["model"]["width"] = 16
    config["encoding"] = {"name": "rope"}
    experiments.prepare(config, str(tmp_path))()
    summary = json.loads((tmp_path / "summary.json").read_text())
    rows = ("rope", "rope on time")
    assert set(summary["results"]) == {*rows, *(f"{row}, shuffled" for row in rows)}
    assert summary["baselines"] == {"chance": 1 / 8}


@pytest.mark.thorough
def test_each_method_has_the_positions_of_its_paper():
    """Of the first patch, the middle one and the tone of each second, and of both words."""

    def read(ids):
        batch = tasks.make("clips", ids=ids).test((), jnp.arange(1), 3, 33)
        return np.asarray(batch.layout.pos_BT[0]).tolist()

    columns = [1, 5, 19, 10, 14, 20, 21, 25, 30, 31, 32]
    first = lambda t, space: [t, space, space]
    columns_of = lambda ids: [read(ids)[column] for column in columns]
    # Storage: BOS, two frames, two tones, a frame, a tone, two words.
    assert columns_of("all") == [
        [1, 1, 1], [1, 2, 2], [1, 1, 1], [2, 1, 1], [2, 2, 2], [2, 2, 2],
        [3, 1, 1], [3, 2, 2], [3, 3, 3], [4, 4, 4], [5, 5, 5],
    ]  # fmt: skip
    assert columns_of("reset")[:6] == [
        first(1, 0), first(1, 1), [1, 1, 1], first(2, 0), first(2, 1), [2, 2, 2]
    ]  # fmt: skip
    # The middle of a frame is on the diagonal at its time, 2 after the frame before it; so is its
    # tone. Words follow one after the last frame.
    assert columns_of("diagonal") == [
        [1, 0, 0], [1, 1, 1], [1, 1, 1], [3, 2, 2], [3, 3, 3], [3, 3, 3],
        [5, 4, 4], [5, 5, 5], [5, 5, 5], [6, 6, 6], [7, 7, 7],
    ]  # fmt: skip


def stored(path, count=300, **changes):
    """A file of clips of 1 to 3 seconds of 1 x 2 patches, with one word."""
    rng = np.random.default_rng(0)
    arrays = {
        "frames": rng.integers(0, 4, (count, 3, 1, 2)), "tones": rng.integers(0, 3, (count, 3)),
        "seconds": 1 + np.arange(count) % 3, "words": rng.integers(0, 2, (count, 1)),
    }  # fmt: skip
    arrays |= {"answers": arrays["words"][:, 0]} | changes
    np.savez(path, **{key: array for key, array in arrays.items() if array is not None})
    return f"clips:{path}", arrays


@pytest.mark.thorough
def test_own_clips_are_read(tmp_path):
    name, arrays = stored(tmp_path / "clips.npz")
    task = tasks.make(name)
    assert (task.least, task.most, task.width(3)) == (1, 3, 11)
    count = task.examples(3)
    batch = jax.device_get(task.test(task.data, jnp.arange(count + 2), 3, 12))
    assert batch.weights_BT[:, 0].tolist() == [1.0] * count + [0.0] * 2
    rows = [row[row > 0].tolist() for row in batch.tokens_BT[:count]]
    assert sorted(map(len, rows)) == [*map(len, rows)], "shortest first"
    clips = {}
    for n in range(300):
        (a, b, c), (i, j, k) = arrays["frames"][n].reshape(3, 2), 4 + arrays["tones"][n]
        stream = [[*a, i], [*a, *b, i, j], [*a, *b, i, j, *c, k]][arrays["seconds"][n] - 1]
        row = [BOS, *(SYMBOL + np.array([*stream, 7 + arrays["words"][n, 0]]))]
        clips[str([int(token) for token in row])] = arrays["answers"][n]
    assert [clips[str(row)] for row in rows] == batch.targets_BT[:count, 0].tolist()
    assert task.examples(1) < count, "control"


@pytest.mark.thorough
def test_a_run_on_own_clips(tmp_path):
    name, _ = stored(tmp_path / "clips.npz")
    changes = {"train__steps": 2, "train__chunk": 2, "train__length": 2, "train__min_length": 1}
    changes |= {"task__name": name, "eval__lengths": (2,)}
    config = config_of("multimodal", "mhrope,quick", seeds=1, **changes)
    experiments.prepare(config, str(tmp_path / "run"))()
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert set(summary["results"]) == {"mhrope", "mhrope, shuffled"}
    assert set(summary["baselines"]) == {"most frequent answer"}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"words": None}, ["has no array words", "the axes N W"]),
        ({"tones": np.zeros((300, 2), int)}, ["tones is int64 of shape [300, 2]", "N F"]),
        ({"frames": np.zeros((300, 3, 1, 2))}, ["frames is float64", "whole numbers"]),
        ({"seconds": np.full(300, 4)}, ["seconds holds 4; give 1 to 3"]),
        ({"answers": np.full(300, -1)}, ["answers holds -1; give 0 to"]),
        ({"tones": np.zeros((300, 3), int), "frames": np.zeros((300, 3, 1, 2), int),
          "words": np.zeros((300, 1), int)}, ["too few clips"]),
    ],
)  # fmt: skip
def test_wrong_files_of_clips_are_refused(tmp_path, changes, words):
    name, _ = stored(tmp_path / "clips.npz", **changes)
    with pytest.raises(ValueError, match=r"task\.name: clips:") as caught:
        tasks.check(name, reads="clips")
    assert "\n" not in str(caught.value)
    assert all(word in str(caught.value) for word in words), str(caught.value)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"task.name": "negation"}, ["task.name", "negation", "clips:PATH"]),
        ({"task.name": "clips:none.npz"}, ["task.name", "cannot be read: No such file"]),
        ({"task.ids": "time"}, ["task.ids", "leave it out"]),
        ({"task.question": "colour"}, ["task.question", "colour", "column"]),
        ({"encoding.name": "mrope,axial"}, ["encoding.name", "axial", "2 axes"]),
        ({"eval.lengths": (4, 17)}, ["eval.lengths", "17", "2 to 16"]),
        ({"model.kind": "decoder"}, ["model.kind", "decoder", "encoder"]),
    ],
)
def test_what_clips_cannot_be_is_refused(changes, words):
    refused(config_of("multimodal"), changes, words)
