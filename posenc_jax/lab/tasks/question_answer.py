"""Questions and answers in bytes: BOS question SEP answer EOS; tokens after SEP are predicted.

`pairs:PATH` is a file with a question, a tab and an answer in each line, such as a sentence and its
translation; a hash of the question decides its split: 80, 10 and 10 of 100.

Byte b is token SYMBOL + b. A size n stands for all lines of which the model reads n tokens or
fewer. The test examples of a size are these lines, shortest first.
"""

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.lab.tasks.task import (
    BOS,
    EOS,
    SEP,
    SPLITS,
    SYMBOL,
    Task,
    arrays_sha256,
    hash_split,
    next_token,
)
from posenc_jax.lab.tasks.user_files import tab_separated
from posenc_jax.options import FieldError


def pairs(path: str) -> Task:
    """The task of answering the questions of a file; a size stands for all lines of up to so many
    tokens.

    FieldError: there is no such file, a line has not one tab, or there are too few lines.
    """
    name = f"pairs:{path}"
    by_split: dict[str, list[tuple[bytes, bytes]]] = {split: [] for split in SPLITS}
    for question, answer in tab_separated(name, path, "a question, a tab and an answer"):
        by_split[hash_split(sha256(question).digest(), 80, 10)].append((question, answer))
    for split in SPLITS:
        if not by_split[split]:
            raise FieldError("task.name", f"{name} has too few lines; none is for {split}")
    return answered(name, by_split, {})


def text(tokens: Iterable[int]) -> str:
    """The text of an answer up to its EOS; bytes that are not UTF-8 become replacement signs."""
    content = bytearray()
    for token in tokens:
        if token == EOS:
            break
        content.append(max(token - SYMBOL, 0))
    return content.decode("utf-8", "replace")


def answered(
    source: str, read: Mapping[str, Sequence[tuple[bytes, bytes]]], facts: Mapping[str, Any]
) -> Task:
    """The task of answering the questions of (question, answer) pairs, by split."""
    lines = {split: _lines(read[split]) for split in SPLITS}
    tokens = [lines[split]["tokens"].astype("<u2") for split in SPLITS]
    widths = {split: lines[split]["width"] for split in SPLITS}
    least = max(int(width_N[0]) for width_N in widths.values())
    most = max(int(width_N[-1]) for width_N in widths.values())

    def count(data, split, size):
        return jnp.searchsorted(data[split]["width"], size, side="right").astype(jnp.int32)

    def batch(lines, index_B, width, counts_B):
        place_L = jnp.arange(width + 1, dtype=jnp.int32)
        at_BL = lines["start"][index_B][:, None] + place_L[None]
        token_BL = lines["tokens"][jnp.minimum(at_BL, len(lines["tokens"]) - 1)]
        answer_BL = place_L[None] > lines["asked"][index_B][:, None]
        answer_BL &= counts_B[:, None]
        return next_token(token_BL.astype(jnp.int32), answer_BL, lines["width"][index_B])

    def sample(data, key, size_B, width):
        index_B = jax.random.randint(key, size_B.shape, 0, count(data, "train", size_B))
        return batch(data["train"], index_B, width, jnp.ones(index_B.shape, bool))

    def numbered(data, index_B, size_B, width, split):
        count_B = count(data, split, size_B)
        return batch(data[split], jnp.minimum(index_B, count_B - 1), width, index_B < count_B)

    return Task(
        name=source, vocab=SYMBOL + 256, metric="exact_match", least=least, most=most,
        examples=lambda size: int(np.searchsorted(widths["test"], size, side="right")),
        data=jax.tree.map(jnp.asarray, lines), sample=sample,
        numbered=numbered, baselines=dict,
        facts={
            "sha256": arrays_sha256([len(token_N) for token_N in tokens], tokens),
            "examples": {split: len(read[split]) for split in SPLITS},
            **facts,
        },
    )  # fmt: skip


def _lines(read: Sequence[tuple[bytes, bytes]]) -> dict[str, np.ndarray]:
    """All lines as one array, shortest first, with the start, the width and the place of SEP of
    each.
    """
    ordered = sorted(read, key=lambda pair: len(pair[0]) + len(pair[1]))
    symbols = lambda text: SYMBOL + np.frombuffer(text, np.uint8).astype(np.uint16)
    bos, sep, eos = (np.array([token], np.uint16) for token in (BOS, SEP, EOS))
    parts = [np.concatenate([bos, symbols(q), sep, symbols(a), eos]) for q, a in ordered]
    start = np.cumsum([0, *map(len, parts)])
    return {
        "tokens": np.concatenate(parts),
        "start": start.astype(np.int32),
        "width": (np.diff(start) - 1).astype(np.int32),
        "asked": np.array([len(question) + 1 for question, _ in ordered], np.int32),
    }
