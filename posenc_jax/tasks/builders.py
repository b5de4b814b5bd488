"""The tasks of this package as TFDS sets, so that others read them by name.

    import tensorflow_datasets as tfds
    import posenc_jax.tasks.builders

    tfds.builder("posenc_jax/copy", file_format="array_record").download_and_prepare()
    source = tfds.data_source("posenc_jax/copy", split="test")

Each task is a config of the set `posenc_jax`, with its default options; nothing is downloaded, and
TensorFlow is not needed. An example of the standard library is one of its files, with the split it
has in the task, and one of the digits an image and its label. A generated task, which has no end of
its own, has 2,000 lines for each split, sizes 1 to 20 in turn: the first examples of the task's own
streams, the training lines as `sample` draws them from seed 0.
"""

import io
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tensorflow_datasets as tfds
from PIL import Image

from posenc_jax.tasks import IMAGES, TASKS, corpus, make
from posenc_jax.tasks.task import Batch, Task

SIZES, COUNT = 20, 2000  # of the lines of a generated task
SPLITS = ("train", "valid", "test")


class PosencJax(tfds.core.GeneratorBasedBuilder):
    """Tasks for positional encodings."""

    name = "posenc_jax"
    VERSION = tfds.core.Version("1.0.0")
    BUILDER_CONFIGS = [  # noqa: RUF012 - what TFDS reads
        tfds.core.BuilderConfig(name=task) for task in (*TASKS, *IMAGES)
    ]
    pkg_dir_path = Path(__file__).parent

    def _info(self) -> tfds.core.DatasetInfo:
        name, f = self.builder_config.name, tfds.features
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
            supervised_keys=keys, homepage="https://pypi.org/project/posenc_jax",
        )  # fmt: skip

    def _split_generators(self, dl_manager) -> dict[str, Iterator]:
        return {split: self._generate_examples(split) for split in SPLITS}

    def _generate_examples(self, split: str) -> Iterator[tuple[Any, dict]]:
        name = self.builder_config.name
        task = make(name)
        if name == "stdlib":
            return _files(split)
        return _pictures(task, split) if name in IMAGES else _lines(task, split)


def _files(split: str) -> Iterator[tuple[str, dict]]:
    root = sysconfig.get_path("stdlib")
    for path, text in corpus.texts(corpus.plan_stdlib())[split]:
        inside = path.relative_to(root).as_posix()
        yield inside, {"path": inside, "text": text}


def _pictures(task: Task, split: str) -> Iterator[tuple[int, dict]]:
    pixels, labels = (np.asarray(task.data[split][part]) for part in ("pixels", "labels"))
    for i, (image, label) in enumerate(zip(pixels, labels, strict=True)):
        stored = io.BytesIO()
        Image.fromarray(image[..., 0]).save(stored, "PNG")
        yield i, {"image": stored.getvalue(), "label": int(label)}


def _lines(task: Task, split: str) -> Iterator[tuple[int, dict]]:
    most = min(task.most or task.least + SIZES - 1, task.least + SIZES - 1)
    sizes = range(task.least, most + 1)
    for k, size in enumerate(sizes):
        width, number_B = task.width(size), np.arange(k, COUNT, len(sizes))
        batch = lines(task, split, size, len(number_B), width)
        for row, number in enumerate(number_B):
            parts = (batch.tokens_BT, batch.targets_BT, batch.weights_BT)
            tokens, targets, weights = (np.asarray(part[row], np.int32) for part in parts)
            example = {"tokens": tokens, "targets": targets, "weights": weights}
            yield int(number), {"size": size, **example}


def lines(task: Task, split: str, size: int, count: int, width: int) -> Batch:
    """The first examples of one size."""
    if split == "train":
        size_B = jnp.full(count, size, jnp.int32)
        key = jax.random.fold_in(jax.random.key(0, impl="threefry2x32"), size)
        return jax.jit(task.sample, static_argnums=3)(task.data, key, size_B, width)
    read = task.test if split == "test" else task.valid
    index_B = jnp.arange(count, dtype=jnp.int32)
    return jax.jit(read, static_argnums=3)(task.data, index_B, jnp.int32(size), width)
