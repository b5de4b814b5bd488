"""Places in the files of a split that are joined with one byte between them."""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import numpy as np

from posenc_jax.lab.tasks.text_windows import SEPARATOR
from posenc_jax.options import FieldError


class Spans(NamedTuple):
    """Bytes start .. stop of the joined files, and where the file of each begins: int32 [N]."""

    file_N: np.ndarray
    start_N: np.ndarray
    stop_N: np.ndarray


def spans(texts: Iterable[bytes], find: Callable[[bytes], Iterable[tuple[int, int]]]) -> Spans:
    """The spans that `find` finds in each file."""
    rows, begin = [], 0
    for text in texts:
        rows += [(begin, begin + start, begin + stop) for start, stop in find(text)]
        begin += len(text) + len(SEPARATOR)
    return Spans(*np.array(rows, np.int32).reshape(-1, 3).T)


def spread(known: Spans, most: int) -> Spans:
    """At most so many spans, evenly spread."""
    count = len(known.file_N)
    kept = np.unique(np.linspace(0, count - 1, min(most, count)).round().astype(int))
    return Spans(*(places_N[kept] for places_N in known))


def check_any(source: str, known: Mapping[str, Spans], what: str) -> None:
    """Raises a FieldError if a split has no span; `what` says what a span is."""
    for split, found in known.items():
        if not len(found.file_N):
            raise FieldError("task.name", f"{source} has no {what} for {split}")
