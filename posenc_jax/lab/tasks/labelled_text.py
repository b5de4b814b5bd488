"""Texts with labels, as bytes, of a file or of a TFDS set; a size is the number of bytes read.

    labels:PATH       a file with a label, a tab and a text in each line; split by hash: 80, 10, 10
    labels:tfds:NAME  a prepared TFDS set with a text and a class label; see `tfds_tasks.py`

Byte b is token SYMBOL + b, after BOS. A text is cut after so many bytes as the size says.
"""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.lab.tasks.encoder_tasks import label_batch
from posenc_jax.lab.tasks.task import BOS, PAD, SPLITS, SYMBOL, Task, arrays_sha256, hash_split
from posenc_jax.lab.tasks.user_files import tab_separated
from posenc_jax.options import FieldError

MOST_CLASSES = 256
Texts = Mapping[str, Sequence[tuple[bytes, int]]]  # (text, label) of each split


def labels(path: str) -> Task:
    """Say which label the text of a line has; labels are numbered in alphabetic order.

    FieldError: there is no such file, a line has not one tab, or there are too few labels or texts.
    """
    name = f"labels:{path}"
    rows = tab_separated(name, path, "a label, a tab and a text")
    distinct = sorted({label for label, _ in rows})
    if not 2 <= len(distinct) <= MOST_CLASSES:
        raise FieldError("task.name", f"{name} has {len(distinct)} labels; 2 to {MOST_CLASSES}")
    texts: dict[str, list[tuple[bytes, int]]] = {split: [] for split in SPLITS}
    for label, text in rows:
        texts[hash_split(sha256(text).digest(), 80, 10)].append((text, distinct.index(label)))
    return labelled_texts(name, texts, {"labels": [label.decode() for label in distinct]})


def labelled_texts(source: str, texts: Texts, facts: Mapping[str, Any]) -> Task:
    """The task of telling the labels of texts. FieldError: a split has none."""
    for split in SPLITS:
        if not texts[split]:
            raise FieldError("task.name", f"{source} has too few texts; none is for {split}")
    arrays = {split: _arrays(texts[split]) for split in SPLITS}
    counts = {split: len(texts[split]) for split in SPLITS}

    def batch(held, index_B, size_B, width, counts_B):
        place_T = jnp.arange(width, dtype=jnp.int32) - 1
        start_B, length_B = held["start"][index_B], held["length"][index_B]
        at_BT = jnp.minimum(start_B[:, None] + place_T[None], len(held["bytes"]) - 1)
        inside_BT = place_T[None] < jnp.minimum(length_B, size_B)[:, None]
        token_BT = SYMBOL + held["bytes"][jnp.maximum(at_BT, 0)].astype(jnp.int32)
        token_BT = jnp.where(place_T[None] < 0, BOS, token_BT)
        return label_batch(jnp.where(inside_BT, token_BT, PAD), held["label"][index_B], counts_B)

    def sample(data, key, size_B, width):
        index_B = jax.random.randint(key, size_B.shape, 0, counts["train"])
        return batch(data["train"], index_B, size_B, width, jnp.ones(size_B.shape, bool))

    def numbered(data, index_B, size_B, width, split):
        exists_B = index_B < counts[split]
        index_B = jnp.minimum(index_B, counts[split] - 1)
        return batch(data[split], index_B, size_B, width, exists_B)

    held = [arrays[split][part] for split in SPLITS for part in ("bytes", "label")]
    return Task(
        name=source, vocab=SYMBOL + 256, metric="accuracy", least=1, most=None,
        width=lambda size: size + 1, examples=lambda size: counts["test"],
        data=jax.tree.map(jnp.asarray, arrays), sample=sample, numbered=numbered,
        baselines=lambda: {"most frequent label": _most_frequent(arrays)},
        facts={
            "sha256": arrays_sha256([len(array) for array in held], held),
            "texts": counts,
            **facts,
        },
    )  # fmt: skip


def _arrays(texts: Sequence[tuple[bytes, int]]) -> dict[str, np.ndarray]:
    """The texts as one array, with the start, the length and the label of each."""
    length = np.array([len(text) for text, _ in texts], np.int32)
    return {
        "bytes": np.frombuffer(b"".join(text for text, _ in texts), np.uint8),
        "start": (np.cumsum(length) - length).astype(np.int32),
        "length": length,
        "label": np.array([label for _, label in texts], np.int32),
    }


def _most_frequent(arrays: Mapping[str, Mapping[str, np.ndarray]]) -> float:
    """The accuracy of the most frequent label of the training split."""
    label = np.bincount(arrays["train"]["label"]).argmax()
    return float((arrays["test"]["label"] == label).mean())
