"""Next-byte prediction on windows of text.

In a window of size n the input is n bytes of the text, and the targets are the n bytes that begin
one later. With `packed` each 0 byte begins a document: positions start again there, and no token
sees another document. The 0 byte is the first token of its document and the last target of the one
before, so every byte is predicted once.

The test windows of every size cover the first `stretch` bytes of the test split without overlap, so
all sizes that divide the stretch predict the same bytes.
"""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.lab.tasks.baselines import baselines, unigram_bits
from posenc_jax.lab.tasks.masked import masked
from posenc_jax.lab.tasks.task import Batch, Task, check_size, check_width
from posenc_jax.layout import layout
from posenc_jax.options import FieldError

SPLITS = ("train", "valid", "test")
SEPARATOR = b"\0"
SMALLEST = 1024  # bytes a split must have


def windowed(
    source: str,
    text: Mapping[str, np.ndarray],
    stretch: int,
    share: float = 0.0,
    packed: bool = False,
    streamed: bool = False,
    facts: Mapping[str, Any] | None = None,
) -> Task:
    """The task of a text, uint8 [N] for each split, at most 2 GiB.

    Args:
      source: the task's name.
      stretch: bytes of the test split that are predicted, and of the validation split.
      share: the share of bytes that are hidden and predicted, see `masked.py`; 0: the next byte is
        predicted.
      packed: keep documents apart.
      streamed: training rows come from `Task.feed`; `text` is only the beginning of each split.
      facts: facts about the text besides its bytes and their hash.

    FieldError: a split is too small, or the text too large.
    """
    sizes = {split: len(text[split]) for split in SPLITS}
    check_sizes(source, sizes)
    most = largest_window(stretch, list(sizes.values()))

    def windows(text_N, start_B, size_B, width):
        place_L = jnp.arange(width + 1, dtype=jnp.int32)
        index_BL = jnp.minimum(start_B[:, None] + place_L[None], len(text_N) - 1)
        return batch(text_N[index_BL], size_B, packed)

    def sample(data, key, size_B, width):
        if streamed:
            return batch(data[:, : width + 1], size_B, packed)
        start_B = jax.random.randint(key, size_B.shape, 0, len(data["train"]) - size_B)
        return windows(data["train"], start_B, size_B, width)

    def fixed(split):
        def numbered(data, index_B, size, width):
            check_size(source, size, 1, most)
            check_width(source, size, size, width)
            size_B = jnp.broadcast_to(jnp.asarray(size, jnp.int32), index_B.shape)
            rows = windows(data[split], index_B * size_B, size_B, width)
            exists_B = (index_B + 1) * size_B <= most
            return rows._replace(weights_BT=jnp.where(exists_B[:, None], rows.weights_BT, 0.0))

        return numbered

    task = Task(
        name=source,
        vocab=256,
        metric="bits_per_byte",
        least=1,
        most=most,
        width=lambda size: size,
        examples=lambda size: most // size,
        data={split: jnp.asarray(text[split]) for split in SPLITS},
        sample=sample,
        test=fixed("test"),
        valid=fixed("valid"),
        baselines=lambda: baselines(text, most),
        facts={"sha256": text_sha256(text), "bytes": sizes, "stretch": most, **(facts or {})},
    )
    if not share:
        return task
    unigram = lambda: {"unigram": unigram_bits(text, most)}
    return masked(task, share)._replace(baselines=unigram)


def batch(byte_BL: jax.Array, size_B: jax.Array, packed: bool) -> Batch:
    """Windows of the first size_B bytes of rows [B, T + 1], as a batch of width T."""
    place_T = jnp.arange(byte_BL.shape[1] - 1, dtype=jnp.int32)
    inside_BT = place_T[None] < size_B[:, None]
    byte_BL = byte_BL.astype(jnp.int32)
    segment_BT = jnp.ones_like(byte_BL[:, :-1])
    if packed:
        first_BT = (byte_BL[:, :-1] == SEPARATOR[0]) & (place_T > 0)[None]
        segment_BT = 1 + jnp.cumsum(first_BT, axis=1, dtype=jnp.int32)
    return Batch(
        jnp.where(inside_BT, byte_BL[:, :-1], 0),
        jnp.where(inside_BT, byte_BL[:, 1:], 0),
        inside_BT.astype(jnp.float32),
        layout(jnp.where(inside_BT, segment_BT, 0)),
    )


def document(text: bytes | str) -> bytes:
    """A document of a packed text: a 0 byte, then its text with 0 bytes made spaces."""
    stored = text.encode() if isinstance(text, str) else text
    return SEPARATOR + stored.replace(SEPARATOR, b" ")


def check_sizes(source: str, sizes: Mapping[str, int]) -> None:
    """FieldError: a split is too small to measure on, or all are too large for int32 indices."""
    for split, size in sizes.items():
        if size < SMALLEST:
            raise FieldError(
                "task.name",
                f"{source} is too small: {sum(sizes.values())} bytes, of which {size} for {split}; "
                f"each split needs {SMALLEST} or more",
            )
    if sum(sizes.values()) >= 2**31:
        raise FieldError("task.name", f"{source} is too large: it must be less than 2 GiB")


def largest_window(stretch: int, sizes: list[int]) -> int:
    """The longest window, which is also the number of bytes predicted at each size."""
    return min(stretch, min(sizes) - 1)


def text_sha256(text: Mapping[str, np.ndarray]) -> str:
    """The hash of the sizes of the three splits and then their bytes."""
    digest = sha256(repr([len(text[split]) for split in SPLITS]).encode())
    for split in SPLITS:
        digest.update(text[split].data)
    return digest.hexdigest()
