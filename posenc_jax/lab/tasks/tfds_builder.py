"""The tasks of this package as TFDS sets, for other programs to read by name.

    import tensorflow_datasets as tfds
    import posenc_jax.lab.tasks.tfds_builder

    tfds.builder("posenc_jax/copy", file_format="array_record").download_and_prepare()
    source = tfds.data_source("posenc_jax/copy", split="test")

Each task is a config of the set `posenc_jax`, with its default options. Nothing is downloaded, and
TensorFlow is not needed. An example of the standard library is one of its files, in the same split
as in the task. An example of the digits is an image and its label. A generated task has 2,000 lines
in each split, of its 20 smallest sizes in turn: in "test" and "valid" line i is example i of the
task at its size, and in "train" the lines are drawn with key 0.
"""

import sysconfig
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tensorflow_datasets as tfds
from PIL import Image

from posenc_jax.lab.tasks import corpus, make, names
from posenc_jax.lab.tasks.task import SPLITS, Task

SIZES, COUNT = 20, 2000  # of a generated task: sizes, and lines of a split
LINE = ("tokens", "targets", "weights")


class PosencJax(tfds.core.GeneratorBasedBuilder):
    """Tasks for positional encodings."""

    name = "posenc_jax"
    VERSION = tfds.core.Version("1.0.0")
    BUILDER_CONFIGS = [  # noqa: RUF012 - as TFDS reads it
        tfds.core.BuilderConfig(name=task) for task in (*names("tokens"), *names("patches"))
    ]

    def _info(self) -> tfds.core.DatasetInfo:
        assert self.builder_config is not None
        name, f = self.builder_config.name, tfds.features
        keys = None
        if name == "stdlib":
            features: dict[str, Any] = {"path": f.Text(), "text": f.Text()}
        elif name in names("patches"):
            shape = (*make(name).data["train"]["pixels"].shape[1:3], 1)
            image = f.Image(shape=shape, encoding_format="png")
            features = {"image": image, "label": f.ClassLabel(num_classes=10)}
            keys = ("image", "label")
        else:
            line = f.Tensor(shape=(None,), dtype=np.int32)
            features = {"size": f.Scalar(dtype=np.int32)} | dict.fromkeys(LINE, line)
        return tfds.core.DatasetInfo(
            builder=self, description=__doc__, features=f.FeaturesDict(features),
            supervised_keys=keys,
        )  # fmt: skip

    def _split_generators(self, dl_manager) -> dict[str, Iterator]:
        return {split: self._generate_examples(split) for split in SPLITS}

    def _generate_examples(self, split: str) -> Iterator[tuple[Any, dict]]:
        assert self.builder_config is not None
        name = self.builder_config.name
        if name == "stdlib":
            return _files(split)
        return (
            _pictures(make(name), split) if name in names("patches") else _lines(make(name), split)
        )


def _files(split: str) -> Iterator[tuple[str, dict]]:
    root = sysconfig.get_path("stdlib")
    for path, text in corpus.texts(corpus.standard_library())[split]:
        inside = path.relative_to(root).as_posix()
        yield inside, {"path": inside, "text": text}


def _pictures(task: Task, split: str) -> Iterator[tuple[int, dict]]:
    pixels, labels = (np.asarray(task.data[split][part]) for part in ("pixels", "labels"))
    for i, (image, label) in enumerate(zip(pixels, labels, strict=True)):
        yield i, {"image": Image.fromarray(image[..., 0]), "label": int(label)}


def _lines(task: Task, split: str) -> Iterator[tuple[int, dict]]:
    sizes = np.arange(task.least, min(task.most or np.inf, task.least + SIZES - 1) + 1, dtype=int)
    size_B = np.resize(sizes, COUNT)
    for number, (size, *row) in enumerate(zip(size_B, *lines(task, split, size_B), strict=True)):
        width = task.width(int(size))
        line = {name: part[:width] for name, part in zip(LINE, row, strict=True)}
        yield number, {"size": int(size), **line}


def lines(task: Task, split: str, size_B: np.ndarray) -> list[np.ndarray]:
    """Tokens, targets and weights, int32 [B, T]; row b is example b of size size_B[b]."""
    width, size_B = task.width(int(size_B.max())), size_B.astype(np.int32)
    if split == "train":
        key = jax.random.key(0, impl="threefry2x32")
        data = task.training_data(0, len(size_B), width)
        batch = jax.jit(task.sample, static_argnums=3)(data, key, size_B, width)
    else:
        one = lambda index, size: task.test(task.data, index[None], size, width, split)
        index_B = jnp.arange(len(size_B), dtype=jnp.int32)
        batch = jax.tree.map(lambda x: x[:, 0], jax.jit(jax.vmap(one))(index_B, size_B))
    return [np.asarray(part, np.int32) for part in batch[:3]]
