"""Training windows of a text that does not fit in memory, read step by step.

The documents of a step are one block of neighbours in storage, which TFDS has shuffled. Grain
shuffles the blocks, differently in every epoch; if there are few, several epochs together. Each row
begins in another document, at a random byte if the document is longer than the window, and
continues with the documents after it. The rows of a step depend only on its number and the seed, so
steps can be read in any order.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from posenc_jax.lab.tasks.task import Feed, Rows
from posenc_jax.lab.tasks.text_windows import document

FEW = 1024  # blocks; Grain's shuffle takes microseconds for so many, milliseconds for 40


def feeder(source: Sequence[Mapping[str, Any]], feature: str, mean: float) -> Feed:
    """Returns a function for `Task.feed`, whose rows are uint8 [S, N, B, width + 1].

    Args:
      source: the documents, with random access.
      feature: the feature that holds the text.
      mean: bytes of a document, on average.
    """
    import grain  # most of a second

    @cache
    def batches(seed: int, batch: int, length: int) -> Any:
        """Grain's pipeline, whose element `step` is the rows of that step."""
        size = min(batch * max(1, round(length / mean)), len(source))
        count = len(source) // size

        def rows(block: int, rng: np.random.Generator) -> np.ndarray:
            read = (source[i] for i in range(block * size, (block + 1) * size))
            return filled([document(example[feature]) for example in read], rng, batch, length)

        blocks = grain.MapDataset.range(count).seed(seed).repeat(-(-FEW // count))
        return blocks.shuffle().repeat().random_map(rows)

    def feed(seeds: Sequence[int], steps: range, batch: int, width: int) -> Rows:
        pipelines = [batches(seed, batch, width + 1) for seed in seeds]

        def fill(seeds_at: slice, steps_at: slice, rows_at: slice) -> np.ndarray:
            chosen = [[rows[n][rows_at] for n in steps[steps_at]] for rows in pipelines[seeds_at]]
            return np.array(chosen)

        return Rows((len(seeds), len(steps), batch, width + 1), fill)

    return feed


def filled(
    documents: Sequence[bytes], rng: np.random.Generator, batch: int, length: int
) -> np.ndarray:
    """Rows uint8 [B, length]: each begins in another document, and continues with the documents
    after it.
    """
    rows = []
    for row in range(batch):
        at = row * len(documents) // batch
        text = documents[at]
        if len(text) > length:
            start = rng.integers(len(text) - length + 1)
            text = text[start : start + length]
        while len(text) < length:
            at = (at + 1) % len(documents)
            text += documents[at][: length - len(text)]
        rows.append(np.frombuffer(text, np.uint8))
    return np.stack(rows)
