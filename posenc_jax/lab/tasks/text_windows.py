"""Next-byte prediction on windows of text.

In a window of size n the input is n bytes of the text, and the targets are the n bytes from the
next byte on. With `packed` each 0 byte begins a document: positions start at 0 there, and no token
attends to another document. The 0 byte is the first token of its document and the last target of
the document before, so every byte is predicted once.

The test windows of each size cover the first `stretch` bytes of the test split without overlap; the
last one is shorter if the size does not divide the stretch. So all sizes predict the same bytes.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.lab.tasks.baselines import baselines, unigram_bits
from posenc_jax.lab.tasks.masked import check_share, masked
from posenc_jax.lab.tasks.task import (
    SPLITS,
    Batch,
    Feed,
    Task,
    arrays_sha256,
    check_least,
    next_token,
)
from posenc_jax.options import FieldError

SEPARATOR = b"\0"
SMALLEST = 1024  # bytes a split must have


def windowed(
    source: str,
    text: Mapping[str, np.ndarray],
    stretch: int,
    share: float,
    *,
    packed: bool = False,
    feed: Feed | None = None,
    facts: Mapping[str, Any],
) -> Task:
    """The task of a text, uint8 [N] for each split, at most 2 GiB.

    Args:
      source: the task's name.
      stretch: bytes of the test split that are predicted, and of the validation split.
      share: the share of bytes that are hidden and predicted, see `masked.py`; 0: the next byte is
        predicted.
      packed: keep documents apart.
      feed: reads the training rows, see `Task.feed`; `text` is then the beginning of each split.
      facts: facts about the text besides its bytes and their hash.

    FieldError: a split is too small, or the text too large.
    """
    sizes = {split: len(text[split]) for split in SPLITS}
    most = largest_window(source, sizes, stretch)
    task = windows(
        source,
        text,
        most,
        vocab=256,
        separator=SEPARATOR[0] if packed else None,
        baselines=lambda: baselines(text, most),
        facts={"sha256": text_sha256(text), "bytes": sizes, "stretch": most, **facts},
        feed=feed,
    )
    if not share:
        return task
    unigram = lambda: {"unigram": unigram_bits(text, most)}
    return masked(task, share)._replace(baselines=unigram)


def windows(
    name: str,
    ids: Mapping[str, np.ndarray],
    most: int,
    *,
    vocab: int,
    separator: int | None,
    baselines: Callable[[], Mapping[str, float]],
    facts: Mapping[str, Any],
    feed: Feed | None = None,
    bytes_of_id_V: np.ndarray | None = None,
) -> Task:
    """The task of windows of ids, [N] for each split: bytes or other tokens.

    Args:
      name: the task's name.
      ids: without "train" if `feed` reads the training rows.
      most: how many ids are predicted at each size.
      separator: the id that begins a document; None: the ids of a split are one document.
      baselines, facts, feed: as in `Task`.
      bytes_of_id_V: the bytes that each id stands for; None: one.
    """

    def sample(data, key, size_B, width):
        all_B = jnp.ones(size_B.shape, bool)
        if feed is not None:
            return batch(data[:, : width + 1], all_B, size_B, separator)
        start_B = jax.random.randint(key, size_B.shape, 0, len(data["train"]) - size_B)
        return batch(_cut(data["train"], start_B, width), all_B, size_B, separator)

    def numbered(data, index_B, size_B, width, split):
        start_B = index_B * size_B
        exists_B = start_B < most
        size_B = jnp.where(exists_B, jnp.minimum(size_B, most - start_B), size_B)
        rows = batch(_cut(data[split], start_B, width), exists_B, size_B, separator)
        if bytes_of_id_V is None:
            return rows
        return rows._replace(bytes_BT=data["bytes_of_id"][rows.targets_BT])

    data = {split: jnp.asarray(ids_N) for split, ids_N in ids.items()}
    if bytes_of_id_V is not None:
        data["bytes_of_id"] = jnp.asarray(bytes_of_id_V, jnp.float32)
    return Task(
        name=name,
        vocab=vocab,
        metric="bits_per_byte",
        least=1,
        most=most,
        examples=lambda size: -(-most // size),
        data=data,
        sample=sample,
        numbered=numbered,
        baselines=baselines,
        facts=facts,
        feed=feed,
    )


def _cut(text_N: jax.Array, start_B: jax.Array, width: int) -> jax.Array:
    """The `width` + 1 bytes from each start on, [B, width + 1]; beyond the text its last byte."""
    place_L = jnp.arange(width + 1, dtype=jnp.int32)
    return text_N[jnp.minimum(start_B[:, None] + place_L[None], len(text_N) - 1)]


def batch(id_BL: jax.Array, counts_B: jax.Array, size_B: jax.Array, separator: int | None) -> Batch:
    """The batch of rows of ids [B, T + 1]; the first size_B ids of a row are inputs.

    counts_B: whether the targets of a row count. separator: as for `windows`.
    """
    id_BL = jnp.asarray(id_BL, jnp.int32)
    segment_BT = None
    if separator is not None:
        first_BT = (id_BL[:, :-1] == separator).at[:, 0].set(False)
        segment_BT = 1 + jnp.cumsum(first_BT, axis=1, dtype=jnp.int32)
    return next_token(id_BL, counts_B[:, None], size_B, segment_BT=segment_BT)


def document(text: bytes | str) -> bytes:
    """A document of a packed text: a 0 byte, then the text with spaces for its 0 bytes."""
    stored = text.encode() if isinstance(text, str) else text
    return SEPARATOR + stored.replace(SEPARATOR, b" ")


def check_options(stretch: int, share: float) -> None:
    """Raises a FieldError if an option of `windowed` is outside its range."""
    check_least("stretch", stretch, 1)
    check_share(share)


def largest_window(source: str, sizes: Mapping[str, int], stretch: int) -> int:
    """The longest window of a text, which is also the number of bytes predicted at each size.

    sizes: the bytes of each split.

    FieldError: a split is too small, or all together are too large for int32 indices.
    """
    for split, size in sizes.items():
        if size < SMALLEST:
            raise FieldError(
                "task.name",
                f"{source} is too small: {sum(sizes.values())} bytes, of which {size} for {split}; "
                f"each split needs {SMALLEST} or more",
            )
    if sum(sizes.values()) >= 2**31:
        raise FieldError("task.name", f"{source} is too large: it must be less than 2 GiB")
    return min(stretch, min(sizes.values()) - 1)


def text_sha256(text: Mapping[str, np.ndarray]) -> str:
    """The hash of a text: of the sizes of its three splits and of their bytes."""
    return arrays_sha256([len(text[split]) for split in SPLITS], [text[split] for split in SPLITS])
