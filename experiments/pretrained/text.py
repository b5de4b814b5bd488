"""Text as the tokens of a released model: windows to read, and windows to train on."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from tokenizers import Tokenizer

from posenc_jax.lab import tasks
from posenc_jax.lab.hosts.exit_status import first_line
from posenc_jax.options import FieldError

MOST_BYTES = 8  # of a token, on average: a guess that is doubled where it is too small


class Text(NamedTuple):
    """The text of a test split as W stretches of the longest window.

    first:    tokens that the tokenizer puts before a text, such as <s>.
    id_WL:    int32 [W, L + 1]: the first token of a stretch is the last one of the stretch before.
    bytes_WL: bytes of each target, [W, L].
    """

    first: list[int]
    id_WL: np.ndarray
    bytes_WL: np.ndarray


def text(task: tasks.Task, words: Tokenizer, longest: int) -> Text:
    """The beginning of the test split, of whole stretches.

    FieldError: it has fewer than two, or a word that the tokenizer cannot read.
    """
    content = _decoded(np.asarray(task.data["test"])[: task.most])
    try:
        encoded = words.encode(content, add_special_tokens=False)
    except Exception as error:  # the library raises no class of its own
        raise FieldError("task.name", f"the tokenizer fails: {first_line(error)}") from None
    count = (len(encoded.ids) - 1) // longest
    if count < 2:
        reason = f"{len(encoded.ids)} tokens are fewer than two windows of {longest}"
        raise FieldError("task.stretch", f"{task.most} bytes or the text is too small: {reason}")
    used = count * longest
    ids = np.array(encoded.ids[: used + 1], np.int32)
    id_WL = np.stack([ids[n * longest : (n + 1) * longest + 1] for n in range(count)])
    size = np.diff(_ends(content, encoded.offsets[: used + 1]))
    return Text(words.encode("").ids, id_WL, size.reshape(count, longest))


def _ends(content: str, offsets: list[tuple[int, int]]) -> np.ndarray:
    """The bytes of the text up to the end of each token; tokens of one character share its end."""
    bytes_C = np.array([len(character.encode()) for character in content])
    until_C = np.concatenate([[0], np.cumsum(bytes_C)])
    return until_C[np.maximum.accumulate([end for _, end in offsets])]


def rows(
    data: Mapping[str, Any], words: Tokenizer, first: list[int], seed: int, step: int, shape: tuple
) -> np.ndarray:
    """The windows of a step, int32 [B, L + 1], each from a random byte of the training split on."""
    batch, length = shape
    train, random = np.asarray(data["train"]), np.random.default_rng([seed, step])
    windows = []
    for _ in range(batch):
        ids, size = [], MOST_BYTES * length
        while len(ids) <= length:
            start = int(random.integers(0, max(len(train) - size, 1)))
            ids = words.encode(_decoded(train[start : start + size]), add_special_tokens=False).ids
            if size > len(train):
                break
            size *= 2
        windows.append((first + ids * (length // max(len(ids), 1) + 1))[: length + 1])
    return np.array(windows, np.int32)


def _decoded(byte_N: np.ndarray) -> str:
    return byte_N.astype(np.uint8).tobytes().decode("utf-8", "replace")
