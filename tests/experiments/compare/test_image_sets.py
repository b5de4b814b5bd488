"""Images of TFDS in the experiment: sets of ours with the names and features of public ones."""

import importlib
import io
import json
import re
import time

import numpy as np
import pytest
import tensorflow_datasets as tfds
from PIL import Image

import experiments
from posenc_jax.lab import tasks

CLASSES, COUNTS = 10, {"train": 320, "test": 100}


def drawn(split, side, channels):
    """Dim noise with a bright square whose place, one of ten, is the label."""
    rng = np.random.default_rng(len(split))
    labels = rng.integers(0, CLASSES, COUNTS[split])
    pixels = rng.integers(0, 64, (len(labels), side, side, channels), dtype=np.uint8)
    for image, label in zip(pixels, labels, strict=True):
        row, column = divmod(int(label), 4)
        image[8 * row : 8 * row + 8, 6 * column : 6 * column + 8] = 255
    return pixels, labels


class Pictures(tfds.core.GeneratorBasedBuilder, skip_registration=True):
    """Two splits of square images with labels, and an id where `named`."""

    VERSION = tfds.core.Version("3.0.0")
    shape, named = (28, 28, 1), False

    def _info(self):
        f = tfds.features
        features = {"image": f.Image(shape=self.shape), "label": f.ClassLabel(num_classes=CLASSES)}
        features |= {"id": f.Text()} if self.named else {}
        return tfds.core.DatasetInfo(builder=self, features=f.FeaturesDict(features))

    def _split_generators(self, dl_manager):
        return {split: self._generate_examples(split) for split in COUNTS}

    def _generate_examples(self, split):
        for i, (image, label) in enumerate(zip(*drawn(split, *self.shape[1:]), strict=True)):
            stored = io.BytesIO()
            Image.fromarray(image.squeeze()).save(stored, "PNG")
            id = {"id": f"{split}_{i}"} if self.named else {}
            yield i, {"image": stored.getvalue(), "label": label, **id}


class Mnist(Pictures, skip_registration=True):
    """28 x 28 pixels, grey."""


class Cifar10(Pictures, skip_registration=True):
    """32 x 32 pixels in three colours."""

    shape, named = (32, 32, 3), True


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Both sets, prepared where the public ones would lie."""
    folder = tmp_path_factory.mktemp("tfds")
    tfds.disable_progress_bar()
    for builder in (Mnist, Cifar10):
        builder(data_dir=folder, file_format="array_record").download_and_prepare()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TFDS_DATA_DIR", str(folder))
        yield folder


def config(name, *sizes):
    """configs/images.py:learned_2d,quick on a set of TFDS, as its docstring says."""
    config = importlib.import_module("configs.images").get_config("learned_2d,quick")
    config.task = {"name": name, "moved": 0.0}  # where it is shown is what is asked
    config.train.update(length=sizes[0], min_length=sizes[0], steps=200, chunk=100, lr=1e-2)
    config.eval.lengths = sizes
    config.seeds = 1
    return config.to_dict()


@pytest.mark.parametrize(("name", "side", "channels"), [("mnist", 28, 1), ("cifar10", 32, 3)])
def test_a_prepared_set_reads_back_unchanged(folder, name, side, channels):
    task = tasks.make(f"tfds:{name}")
    assert task.facts["images"] == {"train": 304, "valid": 16, "test": 100}
    assert (task.vocab, task.least, task.features) == (CLASSES, side // 4, 16 * channels)
    pixels, labels = (np.asarray(task.data["test"][part]) for part in ("pixels", "labels"))
    rows = lambda pixels, labels: sorted(
        (image.tobytes(), int(label)) for image, label in zip(pixels, labels, strict=True)
    )
    assert rows(pixels, labels) == rows(*drawn("test", side, channels))
    assert rows(pixels, labels) != rows(*drawn("test", side, channels)[:1], labels), "control"


@pytest.mark.thorough
def test_the_experiment_runs_on_a_set_by_name(folder, tmp_path):
    experiments.prepare(config("tfds:mnist", 7, 10), str(tmp_path))()
    summary = json.loads((tmp_path / "summary.json").read_text())
    mean = lambda row, size=7: summary["results"][row][str(size)]["mean"]
    assert mean("learned_2d") > 0.9
    assert mean("learned_2d, interpolated", 10) > mean("learned_2d", 10) + 0.1
    assert mean("learned_2d, shuffled") < 0.3, "the control: what is shown does not say its place"
    assert (tmp_path / "report.html").exists()


@pytest.mark.parametrize(
    ("name", "sizes", "message"),
    [
        ("tfds:cifar100", (8,), "task.name: tfds:cifar100 is not prepared in {folder}; once, type: "
         "python scripts/prepare_data.py cifar100"),
        ("tfds:mnist", (4, 8), "config.train.min_length: 4 is not a size of task tfds:mnist; 7 or"),
        ("tfds:cifar10", (7, 8), "config.train.min_length: 7 is not a size of task tfds:cifar10; "),
        ("tfds:minst", (7,), "task.name: TFDS has no set 'minst'; did you mean mnist"),
    ],
)  # fmt: skip
def test_what_is_not_prepared_or_does_not_fit_is_refused_at_once(
    folder, tmp_path, name, sizes, message
):
    started = time.process_time()
    with pytest.raises(ValueError, match=re.escape(message.format(folder=folder))) as caught:
        experiments.prepare(config(name, *sizes), str(tmp_path / "run"))
    assert time.process_time() - started < 1
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()
