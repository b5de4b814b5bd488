"""Training text that does not fit: windows read as they are needed, a step's by its number alone.

The documents of a step are neighbours in storage, where TFDS has shuffled them; which block of them
a step gets is Grain's shuffle, anew in every epoch. A row begins in a document of its own, at a
random byte where that is longer than the window, and goes on with the documents behind it. Nothing
is kept between steps: any step can be read first. Where blocks are few, several epochs are shuffled
as one.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from posenc_jax.lab.tasks.task import Fed
from posenc_jax.lab.tasks.text_windows import document

FEW = 1024  # blocks; Grain's shuffle takes microseconds of so many, milliseconds of 40


@dataclasses.dataclass(frozen=True)
class Blocks:
    """Neighbours as one element: a data source for Grain, whose own cost is then paid once a step.

    size: documents in a block, at most as many as there are.
    """

    source: Any
    feature: str
    size: int

    def __len__(self) -> int:
        return len(self.source) // self.size

    def __getitem__(self, index: Any) -> list[bytes]:
        own = range(index * self.size, (index + 1) * self.size)
        return [document(self.source[i][self.feature]) for i in own]


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
    def batches(seed: int, batch: int, length: int) -> Any:
        """Grain's pipeline: [step] -> rows."""
        size = min(batch * max(1, round(length / mean)), len(source))
        blocks = grain.MapDataset.source(Blocks(source, feature, size)).seed(seed)
        epochs = -(-FEW // len(blocks))
        cut = lambda documents, rng: filled(documents, rng, batch, length)
        return blocks.repeat(epochs).shuffle().repeat().random_map(cut)

    def feed(seeds: range, steps: range, batch: int, width: int) -> Fed:
        of_seed = [batches(seed, batch, width + 1) for seed in seeds]
        rows = np.stack([[batches[step] for step in steps] for batches in of_seed])
        return Fed(rows, np.int32(seeds.start), np.int32(steps.start))

    return feed


def filled(
    documents: Sequence[bytes], rng: np.random.Generator, batch: int, length: int
) -> np.ndarray:
    """Rows uint8 [B, length], each begun in a document of its own and filled with the next ones."""
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
