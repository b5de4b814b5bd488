"""Images as a task, and the experiment on them: its control, its report, its refusals."""

import functools
import importlib
import json
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import experiments
from experiments.compare.images import page
from posenc_jax.lab import runs, tasks
from posenc_jax.lab.hosts import failpoints
from posenc_jax.lab.summary import parse
from posenc_jax.lab.tasks.images import SPLITS, VIEWS, patches
from tests.lab.runs.test_resume import Killed
from tests.support.browser import ask


@pytest.fixture(scope="module")
def digits():
    return tasks.make("digits")


@functools.cache
def seen(order, view, size, count=6):
    """The first test images in one view: the batch, padded a little."""
    task = tasks.make("digits", order=order)
    images = task.examples(size) // len(VIEWS)
    index_B = jnp.arange(count) + VIEWS.index(view) * images
    return reader(order)(task.data, index_B, jnp.int32(size), 67)


@functools.cache
def reader(order):
    return jax.jit(tasks.make("digits", order=order).test, static_argnums=3)


def put_together(batch, size, count=6):
    """Images [B, side, side] from patches [B, size * size, 4], and the padding behind them."""
    patch = np.asarray(batch.tokens_BT)
    image = patch[:, : size * size].reshape(count, size, size, 2, 2).transpose(0, 1, 3, 2, 4)
    return image.reshape(count, 2 * size, 2 * size), patch[:, size * size :]


def normalised(task, count=6):
    pixels = np.asarray(task.data["test"]["pixels"])[:count, ..., 0].astype(np.float32)
    return (pixels - np.float32(task.data["mean"].item())) / task.data["deviation"].item()


def test_the_own_size_shows_every_pixel_as_it_is(digits):
    image, padding = put_together(seen("grid", "counted", 4), 4)
    assert np.abs(image - normalised(digits)).max() < 1e-6
    assert (padding == 0).all()
    batch = seen("grid", "counted", 4)
    assert (np.asarray(batch.targets_BT)[:, 0] == digits.data["test"]["labels"][:6]).all()
    assert np.asarray(batch.layout.segment_BT).sum(axis=1).tolist() == [16] * 6


def test_a_larger_size_is_the_image_enlarged(digits):
    size = 8
    image, _ = put_together(seen("grid", "counted", size), size)
    whole = normalised(digits)
    shape = (len(whole), 2 * size, 2 * size)
    assert np.abs(image - jax.image.resize(whole, shape, "bilinear")).max() < 1e-5
    assert np.abs(image - jax.image.resize(whole, shape, "nearest")).max() > 0.1


def test_views_differ_in_what_they_say(digits):
    counted, interpolated, shuffled = (seen("grid", view, 8) for view in VIEWS)
    assert (counted.tokens_BT == interpolated.tokens_BT).all()
    row_T, column_T = np.divmod(np.arange(64), 8)
    pos = np.asarray(counted.layout.pos_BT)[:, :64]
    assert (pos == np.stack([row_T, column_T], axis=1)).all()
    assert (np.asarray(interpolated.layout.pos_BT)[:, :64] == (pos + 0.5) / 2 - 0.5).all()
    assert (shuffled.layout.pos_BT == counted.layout.pos_BT).all()
    in_order = lambda batch: [sorted(map(tuple, row)) for row in np.asarray(batch.tokens_BT)]
    assert in_order(shuffled) == in_order(counted)
    orders = np.asarray(shuffled.tokens_BT != counted.tokens_BT).any(axis=(1, 2))
    assert orders.all()
    assert (
        seen("grid", "interpolated", 4).layout.pos_BT == seen("grid", "counted", 4).layout.pos_BT
    ).all()


def test_a_line_counts_patches_row_after_row():
    number_T = np.arange(64)
    assert (np.asarray(seen("line", "counted", 8).layout.pos_BT)[:, :64] == number_T).all()
    squeezed = np.asarray(seen("line", "interpolated", 8).layout.pos_BT)[0, :64]
    assert np.allclose(squeezed, (number_T + 0.5) / 4 - 0.5)
    assert squeezed.max() < 16 < number_T.max()


def test_every_second_training_image_is_moved(digits):
    size_B = jnp.full(8, 4, jnp.int32)
    sample = jax.jit(digits.sample, static_argnums=3)
    pixels = np.asarray(digits.data["train"]["pixels"])[..., 0].astype(np.float32)
    scaled = (pixels - np.float32(digits.data["mean"].item())) / digits.data["deviation"].item()

    def whole(sample):
        image, _ = put_together(sample(digits.data, jax.random.key(0), size_B, 16), 4, 8)
        return [bool((np.abs(scaled - moved).max(axis=(1, 2)) < 1e-6).any()) for moved in image]

    assert whole(sample) == [True, False] * 4


@pytest.mark.thorough
def test_moved_is_a_share_of_the_side():
    """Moved down by a quarter of 8 pixels, each row is the one two further on."""
    pixels = jnp.asarray(np.random.default_rng(0).random((1, 8, 8, 1)), jnp.float32)
    moves = jnp.asarray([[[0.25, 0.0]], [[0.0, 0.0]]])
    shown = jnp.arange(16)[None]
    actual = patches(pixels, shown, jnp.asarray([4]), 2, moves)
    image = np.asarray(actual).reshape(4, 4, 2, 2).transpose(0, 2, 1, 3).reshape(8, 8)
    assert np.allclose(image[:6], pixels[0, 2:, :, 0], atol=1e-6)
    assert np.allclose(image[6:], pixels[0, -1:, :, 0], atol=1e-6), "the edge"


def test_no_image_is_in_two_splits(digits):
    actual = {
        s: {image.tobytes() for image in np.asarray(digits.data[s]["pixels"])} for s in SPLITS
    }
    assert sum(map(len, actual.values())) == len(set.union(*actual.values()))
    assert sum(digits.facts["images"].values()) == 1797
    assert digits.facts["images"]["test"] > 500


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of the quick config with more steps: its folder and its summary."""
    workdir = tmp_path_factory.mktemp("images")
    config = importlib.import_module("configs.images").get_config("nope,axial,quick")
    config.train.update(steps=200, chunk=100)
    config.seeds = 1
    experiments.prepare(config.to_dict(), str(workdir))()
    return workdir, json.loads((workdir / "summary.json").read_text())


@pytest.mark.thorough
def test_shuffled_patches_are_the_control(run):
    results = run[1]["results"]
    mean = lambda row, size=4: results[row][str(size)]["mean"]
    assert results["nope, shuffled"]["4"]["seeds"] == pytest.approx(
        results["nope"]["4"]["seeds"], abs=4e-3
    )
    assert mean("axial") > mean("nope") + 0.1
    assert mean("axial, shuffled") < mean("axial") - 0.2
    assert mean("axial, interpolated", 8) > mean("axial", 8), "it knows where patches are"


@pytest.mark.thorough
def test_it_ends_in_a_report(run):
    workdir, summary = run
    assert set(summary["results"]) == {
        f"{name}{view}"
        for name in ("nope", "axial")
        for view in ("", *(f", {v}" for v in VIEWS[1:]))
    }
    figures = {path.name for path in (workdir / "figures").iterdir()}
    names = {"by_resolution", "control", "shown"}
    assert figures == {f"{name}.{kind}" for name in names for kind in ("png", "svg")}
    assert (workdir / "report.html").stat().st_size > 10_000
    _, sections = page.sections(runs.read(workdir))
    said = " ".join(part for part in sections[0].parts if isinstance(part, str))
    assert "Shuffled patches, the control: with positions accuracy falls by 0." in said
    assert "4 × 4 shuffled" in sections[1].parts[0].columns
    name, said, parts = experiments.document([runs.read(workdir)])
    assert (name, len(said)) == ("images", 3)
    assert "enlarged to 8 x 8 patches" in said[0]
    assert parts[0].title == "Accuracy"


@pytest.mark.thorough
@pytest.mark.browser
def test_a_browser_shows_the_pictures(run, tmp_path):
    """The page allows no scripts; it must allow the one with which this test looks for errors."""
    page = (run[0] / "report.html").read_text()
    page = page.replace("default-src 'none'", "default-src 'none'; script-src 'unsafe-inline'")
    count = "return document.querySelectorAll('svg image').length"
    assert ask(page, count, tmp_path) == (3, [])
    _, trouble = ask(page.replace("img-src data:", ""), count, tmp_path)
    assert trouble, "the control: pictures that the page does not let through"


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("model.kind", "decoder", "config.model.kind: 'decoder' reads patches in order"),
        ("task.order", "line", "config.task.order: each method gets its own order"),
        ("task.patch", 3, "config.task.patch: 3 does not divide the 8 pixels of digits; choices:"),
        ("task.name", "copy", "config.task.name: copy is a task of token after token; choices:"),
        ("eval.lengths", (8,), "config.eval.lengths: must hold the trained one, 4"),
        ("eval.lengths", (3, 4), "config.eval.lengths: 3 is not a size of task digits; 4 or more"),
        ("encoding.name", "mrope", "encoding.name: mrope reads positions of 3 axes"),
        ("encoding.name", "abacus", "config.encoding.name: abacus reads the groups 'place'"),
        ("encoding.beyond", "error", "config.eval.lengths: 8 is past what"),
        ("model.width", 24, "config.model.width: 24 over 4 heads does not suit axial"),
    ],
)
def test_what_cannot_run_is_refused(field, value, message, tmp_path):
    config = importlib.import_module("configs.images").get_config("quick").to_dict()
    config["encoding"]["name"] = "axial"
    if field == "encoding.beyond":
        config["encoding"]["name"] = "learned_2d"
    part, name = field.split(".")
    config[part][name] = value
    with pytest.raises(ValueError, match=re.escape(message.removeprefix("config."))) as caught:
        experiments.prepare(config, str(tmp_path / "run"))
    assert "\n" not in str(caught.value)


def test_text_experiments_refuse_images(tmp_path):
    config = importlib.import_module("configs.extrap").get_config("quick").to_dict()
    config["task"] = {"name": "digits"}
    with pytest.raises(ValueError, match=r"config.task.name: digits is a task of images; choices:"):
        experiments.prepare(config, str(tmp_path / "run"))


def small(workdir, kill="", count=0):
    """One method, 4 steps in 2 chunks, killed at the so-manyth time a failpoint is reached."""
    config = importlib.import_module("configs.images").get_config("nope,quick")
    config.model.update(width=8, heads=1)
    config.train.update(steps=4, chunk=2, batch=4)
    config.eval.update(lengths=(4,))
    config.checkpoint.seconds = 0.0
    config.seeds = 1
    reached = []

    def reach(name):
        reached.append(name)
        if kill and reached.count(kill) == count:
            raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(failpoints, "reach", reach)
        patch.setattr(experiments, "show", lambda workdir: None)
        experiments.prepare(config.to_dict(), str(workdir))()
    return runs.read(workdir)


@pytest.mark.thorough
def test_a_run_killed_in_training_and_in_evaluation_resumes(tmp_path, capsys):
    whole = small(tmp_path / "whole")
    for at in (("training", 2), ("evaluating", 1)):
        with pytest.raises(Killed):
            small(tmp_path / "run", *at)
    capsys.readouterr()
    again = small(tmp_path / "run")
    assert "goes on from nope: read at 4" in capsys.readouterr().out
    assert again.summary.starts == 3
    key = lambda r: (r["labels"], r["metric"], r["step"])
    for a, b in zip(again.records, whole.records, strict=True):
        assert key(a) == key(b)
        assert a["value"] == pytest.approx(b["value"], rel=1e-3) or a["metric"] in runs.TIMES
    trained = [record for record in again.records if record["metric"] == "loss"]
    assert [r["step"] for r in trained if r["labels"]["split"] == "train"] == [2, 4], (
        "none twice, none lost"
    )


@pytest.mark.thorough
def test_a_resolution_that_does_not_fit_leaves_the_others(run):
    lost = {"encoding": "axial", "length": 8, "reason": "too large"}
    whole, summary = parse(run[1]), parse({**run[1], "not_measured": [lost]})
    assert page._sizes(whole) == [4, 8]
    assert page._sizes(summary) == [4]
    assert "8 × 8 patches, axial: not measured: too large." in page.findings(summary)
    assert not any("not measured" in said for said in page.findings(whole)), "control"
