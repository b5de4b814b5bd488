"""Pictures on a canvas: the four questions, shifted windows, own pictures, and the experiment."""

import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import experiments
from experiments.compare.vision.windows import shifted_windows
from posenc_jax.lab import runs, tasks
from posenc_jax.lab.tasks.canvas import INK
from posenc_jax.lab.tasks.shuffled import shuffled
from tests.support.refusing import config_of, refused


@functools.cache
def seen(question, order="grid"):
    """16 test examples of the least size and 16 of 13, a little wider than needed."""
    patch = 1 if question == "draw" else 2
    task = tasks.make("canvas", question=question, order=order, patch=patch)
    size_B = jnp.repeat(jnp.asarray([task.least, 13]), 16)
    read = jax.jit(task.numbered, static_argnums=(3, 4))
    return task, jax.device_get(read(task.data, jnp.arange(32), size_B, 13 * 13 + 2, "test"))


def canvases(question):
    """(size, patches [size, size, F], target of each place or of the canvas, batch, row)."""
    task, batch = seen(question)
    for row in range(32):
        size = task.least if row < 16 else 13
        inside = batch.layout.segment_BT[row] > 0
        assert inside.tolist() == [i < size * size for i in range(len(inside))]
        shown = batch.tokens_BT[row][inside]
        assert not batch.tokens_BT[row][~inside].any()
        target = batch.targets_BT[row]
        yield (
            size,
            shown.reshape(size, size, -1),
            target[inside] if len(target) > 1 else target,
            row,
        )


@pytest.mark.thorough
def test_what_and_where_are_one_digit_of_the_test_split():
    for question in ("what", "where"):
        task, batch = seen(question)
        held, corners = task.data["test"], set()
        for size, shown, (target,), row in canvases(question):
            pixels = np.asarray(held["pixels"][row] / task.data["deviation"])
            wanted = pixels.reshape(4, 2, 4, 2).swapaxes(1, 2).reshape(4, 4, 4)
            fits = [
                (r, c) for r in range(size - 3) for c in range(size - 3)
                if np.allclose(shown[r : r + 4, c : c + 4], wanted, atol=1e-5)
            ]  # fmt: skip
            ((top, left),) = fits
            assert np.isclose(shown.sum(), wanted.sum()), "black elsewhere"
            places = size - 3
            thirds = 3 * (3 * top // places) + 3 * left // places
            assert target == (int(held["labels"][row]) if question == "what" else thirds)
            corners.add((top, left))
        assert len(corners) > 10
        assert batch.weights_BT.tolist() == [[1.0]] * 32


def test_which_are_the_pixels_of_the_left_digit():
    _, batch = seen("which")
    for size, shown, target, row in canvases("which"):
        ink = shown.any(axis=-1)
        weight = batch.weights_BT[row][: size * size].reshape(size, size)
        assert (weight == ink).all()
        sets = target.reshape(size, size)
        bits = (sets[..., None] >> np.arange(4)) & 1
        left, right = (np.flatnonzero(side.any(axis=0)) for side in (sets > 0, ink & (sets == 0)))
        assert left.max() < right.min()
        assert (bits[sets > 0] == shown[sets > 0]).all()
        assert left.max() - left.min() < 4
        assert right.max() - right.min() < 4


@pytest.mark.thorough
def test_draw_predicts_each_pixel_from_its_label_and_those_before():
    task, batch = seen("draw")
    for row in range(32):
        size = task.least if row < 16 else 13
        count = size * size
        label, *before = batch.tokens_BT[row][:count]
        pixels = batch.targets_BT[row][:count]
        assert before == pixels[:-1].tolist()
        assert label - INK - 2 == int(task.data["test"]["labels"][row])
        ink = task.data["test"]["pixels"][row] >= task.data["half"]
        assert (pixels - INK).sum() == ink.sum()
        at = batch.layout.pos_BT[row][:count]
        assert (at == np.stack(np.divmod(np.arange(count), size), axis=1)).all()
    line = seen("draw", "line")[1]
    assert (line.tokens_BT == batch.tokens_BT).all()
    assert line.layout.pos_BT[0][:64].tolist() == [*range(64)]


@pytest.mark.thorough
def test_training_pictures_are_others_and_move():
    task, _ = seen("what")
    size_B = jnp.full(64, 6, jnp.int32)
    batch = jax.jit(task.sample, static_argnums=3)(task.data, jax.random.key(0), size_B, 36)
    ink = np.asarray(batch.tokens_BT).any(axis=-1).reshape(64, 6, 6)
    assert {int(np.flatnonzero(one.any(axis=1))[0]) for one in ink} == {0, 1, 2}
    first = lambda split: {p.tobytes() for p in np.asarray(task.data[split]["pixels"])}
    assert not first("train") & first("test")


def test_shuffled_moves_patches_with_their_sets():
    task, plain = seen("which")
    size_B = jnp.repeat(jnp.asarray([task.least, 13]), 16)
    read = jax.jit(shuffled(task).numbered, static_argnums=(3, 4))
    moved = jax.device_get(read(task.data, jnp.arange(32), size_B, 13 * 13 + 2, "test"))
    for row in range(32):
        pairs = [
            sorted(map(str, zip(b.tokens_BT[row].tolist(), b.targets_BT[row], b.weights_BT[row],
                                strict=True)))
            for b in (plain, moved)
        ]  # fmt: skip
        assert pairs[0] == pairs[1]
    assert (plain.tokens_BT != moved.tokens_BT).any(axis=(1, 2)).all(), "control"
    assert (plain.layout.pos_BT == moved.layout.pos_BT).all()


def rolled(side, window, shift):
    """Which patches see each other as in Swin's public code: roll, cut, mask by regions."""
    region = np.zeros((side, side), int)
    cuts = [slice(0, -window), slice(-window, -shift), slice(-shift, None)]
    if shift:
        for n, (rows, columns) in enumerate((r, c) for r in cuts for c in cuts):
            region[rows, columns] = n
    number = np.roll(np.arange(side * side).reshape(side, side), (-shift, -shift), (0, 1))
    sees = np.zeros((side * side, side * side), bool)
    for r in range(0, side, window):
        for c in range(0, side, window):
            tokens = number[r : r + window, c : c + window].ravel()
            mark = region[r : r + window, c : c + window].ravel()
            sees[np.ix_(tokens, tokens)] = mark[:, None] == mark[None]
    return sees


@pytest.mark.thorough(after=1)
@pytest.mark.parametrize(("side", "window"), [(6, 3), (12, 4), (9, 3)])
def test_shifted_windows_are_those_of_the_paper(side, window):
    at = jnp.stack(jnp.divmod(jnp.arange(side * side), side), axis=-1)[None]
    encoding = shifted_windows(window)
    actual = []
    for n in range(2):
        own_encoding, params, *placed = encoding.at(
            n, encoding.init(jax.random.key(0), None), at, at
        )
        actual.append(np.asarray(own_encoding.bias(params, *placed, None))[0, 0] == 0)
    assert (actual[0] == rolled(side, window, 0)).all()
    assert (actual[1] == rolled(side, window, window // 2)).all()
    assert (actual[0] != actual[1]).any(), "control"


def pictures(path, count=60, **changes):
    rng = np.random.default_rng(0)
    arrays = {"pixels": rng.integers(0, 256, (count, 4, 4, 3)), "labels": np.arange(count) % 5}
    np.savez(path, **{k: v for k, v in (arrays | changes).items() if v is not None})
    return str(path)


@pytest.mark.thorough
def test_own_pictures_are_read(tmp_path):
    path = pictures(tmp_path / "own.npz")
    task = tasks.make(f"canvas:{path}", patch=2)
    assert (task.vocab, task.least, task.features) == (5, 2, 4)
    whole = tasks.make(f"images:{path}", patch=2)
    assert (whole.vocab, whole.features) == (5, 12)
    assert sum(whole.facts["images"].values()) == 60
    config = config_of(
        "vision", "nope,quick", seeds=1, task__name=f"canvas:{path}", train__length=3,
        train__min_length=3, eval__lengths=(3,), train__steps=2, train__chunk=2, task__patch=2,
    )  # fmt: skip
    experiments.prepare(config, str(tmp_path / "run"))()
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert set(summary["results"]) == {"nope", "nope, shuffled"}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"labels": None}, ["has no array labels"]),
        ({"labels": np.arange(7)}, ["labels is int64 of shape [7]", "the axes N"]),
        ({"labels": np.arange(60) - 1}, ["labels holds -1; give 0 to 1023"]),
        ({"pixels": np.zeros((60, 4, 5), int)}, ["pixels is int64 of shape [60, 4, 5]"]),
        ({"pixels": np.zeros((60, 4, 4))}, ["pixels is float64", "whole numbers"]),
        ({"pixels": np.full((60, 4, 4), 256)}, ["pixels holds 256; give 0 to 255"]),
        ({"pixels": np.zeros((60, 4, 4), int)}, ["too few pictures"]),
    ],
)
def test_wrong_files_of_pictures_are_refused(tmp_path, changes, words):
    path = pictures(tmp_path / "own.npz", **changes)
    with pytest.raises(ValueError, match=r"task\.name: canvas:") as caught:
        tasks.check(f"canvas:{path}", reads="canvas")
    assert "\n" not in str(caught.value)
    assert all(word in str(caught.value) for word in words), str(caught.value)


@pytest.mark.parametrize("content", [None, b"no pictures", b""])
def test_files_that_are_no_arrays_are_refused(tmp_path, content):
    path = tmp_path / "own.npz"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ValueError, match=r"cannot be read: (No such file|it is not an .npz file)"):
        tasks.make(f"images:{path}")


@pytest.mark.thorough
@pytest.mark.parametrize(("question", "names"), [("which", "swin_2d"), ("draw", "rope")])
def test_it_runs_to_its_report_and_page(question, names, tmp_path):
    config = config_of("vision", f"{question},{names},quick", seeds=1)
    config["train"].update(steps=2, chunk=2, batch=4)
    config["eval"].update(lengths=config["eval"]["lengths"][:1], examples=4)
    experiments.prepare(config, str(tmp_path))()
    summary = json.loads((tmp_path / "summary.json").read_text())
    rows = ["swin_2d", "swin_2d in windows"] if question == "which" else [names]
    assert set(summary["results"]) == {*rows, *(f"{row}, shuffled" for row in rows)}
    assert len(summary["baselines"]) == 1
    name, said, sections = experiments.document([runs.read(tmp_path)])
    assert name == "vision"
    assert said[0].startswith("At the trained length, ")
    assert [section.title for section in sections[1:]] == ["What it does not show"]


@pytest.mark.parametrize(
    ("argument", "changes", "words"),
    [
        ("", {"task.order": "line"}, ["task.order", "leave it out"]),
        ("", {"task.question": "whose"}, ["task.question", "whose", "what"]),
        ("draw", {"task.patch": 2}, ["task.patch", "2", "give 1"]),
        ("", {"task.patch": 3}, ["task.patch", "3 does not divide the 8 pixels"]),
        ("which", {"task.patch": 4}, ["task.patch", "4", "3 or less"]),
        ("draw", {"model.kind": "encoder"}, ["model.kind", "encoder", "'decoder'"]),
        ("", {"model.kind": "decoder"}, ["model.kind", "decoder", "'encoder'"]),
        ("where", {"train.min_length": 3}, ["train.min_length", "3", "4 or more"]),
        ("", {"eval.lengths": (9,)}, ["eval.lengths", "must hold", "4"]),
        ("", {"encoding.name": "mrope"}, ["encoding.name", "mrope", "3 axes"]),
        ("", {"task.name": "digits"}, ["task.name", "digits", "canvas:PATH"]),
        ("", {"window": 0}, ["window", "0"]),
    ],
)
def test_wrong_fields_are_refused_in_one_line(argument, changes, words):
    refused(config_of("vision", f"{argument},quick"), changes, words)
