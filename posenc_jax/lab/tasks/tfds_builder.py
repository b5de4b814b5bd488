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

import io
import sysconfig
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tensorflow_datasets as tfds
from PIL import Image

from posenc_jax.lab.tasks import IMAGES, TASKS, corpus, make
from posenc_jax.lab.tasks.task import SPLITS, Task

SIZES, COUNT = 20, 2000  # of a generated task: sizes, and lines of a split


class PosencJax(tfds.core.GeneratorBasedBuilder):
    """Tasks for positional encodings."""

    name = "posenc_jax"
    VERSION = tfds.core.Version("1.0.0")
    BUILDER_CONFIGS = [  # noqa: RUF012 - as TFDS reads it
        tfds.core.BuilderConfig(name=task) for task in (*TASKS, *IMAGES)
    ]

    @property
    def _task(self) -> str:
        assert self.builder_config is not None
        return self.builder_config.name

    def _info(self) -> tfds.core.DatasetInfo:
        name, f = self._task, tfds.features
        keys = None
        if name == "stdlib":
            features: dict[str, Any] = {"path": f.Text(), "text": f.Text()}
        elif name in IMAGES:
            shape = (*make(name).data["train"]["pixels"].shape[1:3], 1)
            features = {"image": f.Image(shape=shape), "label": f.ClassLabel(num_classes=10)}
            keys = ("image", "label")
        else:
            line = f.Tensor(shape=(None,), dtype=np.int32)
            features = {"size": f.Scalar(dtype=np.int32)} | dict.fromkeys(
                ("tokens", "targets", "weights"), line
            )
        return tfds.core.DatasetInfo(
            builder=self, description=__doc__, features=f.FeaturesDict(features),
            supervised_keys=keys,
        )  # fmt: skip

    def _split_generators(self, dl_manager) -> dict[str, Iterator]:
        return {split: self._generate_examples(split) for split in SPLITS}

    def _generate_examples(self, split: str) -> Iterator[tuple[Any, dict]]:
        name = self._task
        task = make(name)
        if name == "stdlib":
            return _files(split)
        return _pictures(task, split) if name in IMAGES else _lines(task, split)


def _files(split: str) -> Iterator[tuple[str, dict]]:
    root = sysconfig.get_path("stdlib")
    for path, text in corpus.texts(corpus.standard_library())[split]:
        inside = path.relative_to(root).as_posix()
        yield inside, {"path": inside, "text": text}


def _pictures(task: Task, split: str) -> Iterator[tuple[int, dict]]:
    pixels, labels = (np.asarray(task.data[split][part]) for part in ("pixels", "labels"))
    for i, (image, label) in enumerate(zip(pixels, labels, strict=True)):
        stored = io.BytesIO()
        Image.fromarray(image[..., 0]).save(stored, "PNG")
        yield i, {"image": stored.getvalue(), "label": int(label)}


def _lines(task: Task, split: str) -> Iterator[tuple[int, dict]]:
    sizes = np.arange(task.least, min(task.most or np.inf, task.least + SIZES - 1) + 1, dtype=int)
    size_B = np.resize(sizes, COUNT)
    rows = zip(size_B, *lines(task, split, size_B), strict=True)
    for number, (size, *row) in enumerate(rows):
        names = ("tokens", "targets", "weights")
        line = {name: part[: task.width(int(size))] for name, part in zip(names, row, strict=True)}
        yield number, {"size": int(size), **line}


def lines(task: Task, split: str, size_B: np.ndarray) -> list[np.ndarray]:
    """Tokens, targets and weights, int32 [B, T]; row b is example b of size size_B[b]."""
    width = task.width(int(size_B.max()))
    if split == "train":
        key = jax.random.key(0, impl="threefry2x32")
        batch = jax.jit(task.sample, static_argnums=3)(
            task.data, key, size_B.astype(np.int32), width
        )
    else:
        read = task.test if split == "test" else task.valid
        one = lambda index, size: read(task.data, index[None], size, width)
        index_B = jnp.arange(len(size_B), dtype=jnp.int32)
        batch = jax.tree.map(
            lambda x: x[:, 0], jax.jit(jax.vmap(one))(index_B, size_B.astype(np.int32))
        )
    return [np.asarray(part, np.int32) for part in batch[:3]]
