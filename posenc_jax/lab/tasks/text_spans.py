"""Ranges of bytes in the files of a split, which are joined with one byte between them."""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import numpy as np

from posenc_jax.lab.tasks.text_windows import SEPARATOR
from posenc_jax.options import FieldError


class Spans(NamedTuple):
    """Bytes start .. stop of the joined files, and where the file of each range begins: int32
    [N].
    """

    file_N: np.ndarray
    start_N: np.ndarray
    stop_N: np.ndarray


def spans(texts: Iterable[bytes], find: Callable[[bytes], Iterable[tuple[int, int]]]) -> Spans:
    """The ranges that `find` returns for each file."""
    rows, begin = [], 0
    for text in texts:
        rows += [(begin, begin + start, begin + stop) for start, stop in find(text)]
        begin += len(text) + len(SEPARATOR)
    return Spans(*np.array(rows, np.int32).reshape(-1, 3).T)


def spread(spans: Spans, most: int) -> Spans:
    """At most `most` spans, evenly spread over all."""
    count = len(spans.file_N)
    chosen = np.unique(np.linspace(0, count - 1, min(most, count)).round().astype(int))
    return Spans(*(places_N[chosen] for places_N in spans))


def check_any(source: str, by_split: Mapping[str, Spans], what: str) -> None:
    """Raises a FieldError if a split has no span; `what` names a span in the error."""
    for split, spans in by_split.items():
        if not len(spans.file_N):
            raise FieldError("task.name", f"{source} has no {what} for {split}")
