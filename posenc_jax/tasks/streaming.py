"""Training text that does not fit: windows read as they are needed, each a function of its number.

Row r of step s of a seed is row number s * batch + r of that seed. It begins in the document that
Grain's shuffle puts at its turn, at a random byte where the document is longer than the window, and
goes on with the documents behind it. Nothing is kept between steps: any step can be read first.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np

from posenc_jax.tasks.task import Fed
from posenc_jax.tasks.windows import document

READERS = 4  # threads; array_record reads outside Python's lock


def feeder(
    source: Sequence[Mapping[str, Any]], feature: str, mean: float
) -> Callable[[range, range, int, int], Fed]:
    """A `Task.feed`: (seeds, steps, batch, width) -> Fed, its rows uint8 [S, N, B, width + 1].

    Args:
      source: the documents, with random access.
      feature: where an example has its text.
      mean: bytes of a document, on average.
    """
    import grain  # most of a second

    @cache
    def shuffled(seed: int) -> Any:
        return grain.MapDataset.source(source).seed(seed).shuffle().repeat()

    def row(seed: int, number: int, length: int) -> np.ndarray:
        documents, at = shuffled(seed), number * max(1, round(length / mean))
        read = bytearray()
        while len(read) < length:
            text = document(documents[at][feature])
            if not read and len(text) > length:
                start = np.random.default_rng((seed, number)).integers(len(text) - length + 1)
                text = text[start:]
            read += text[: length - len(read)]
            at += 1
        return np.frombuffer(bytes(read), np.uint8)

    readers = ThreadPoolExecutor(READERS)

    def feed(seeds: range, steps: range, batch: int, width: int) -> Fed:
        first, count = steps.start * batch, len(steps) * batch
        wanted = [(seed, first + number) for seed in seeds for number in range(count)]
        found = readers.map(lambda asked: row(asked[0], asked[1], width + 1), wanted)
        rows = np.stack(list(found)).reshape(len(seeds), len(steps), batch, width + 1)
        return Fed(rows, np.int32(seeds.start), np.int32(steps.start))

    return feed
