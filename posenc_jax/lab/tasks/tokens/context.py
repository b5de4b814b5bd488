"""Tests of what a model takes from its context, on long documents: the option `test` of tokens.

    test           a line of size n                                           scored
    same_end       n + 1 tokens that end at one place of a document           the last 256
    recall         n - 15 tokens that end there, then 16 of these again       the last 12 of the 16
    recall_absent  n - 15 tokens that end there, then 16 of another document  the last 12 of the 16

`same_end` scores the same targets at every size, so its bits per byte at two sizes differ only by
the context: what more of it is worth. In `recall` no 4 tokens in a row of the 16 occur elsewhere in
the longest line, so whoever finds the 4 before a scored token can copy it. Where they were read is
drawn anew for each document, evenly over the line. `recall_absent` is its floor: how well a model
predicts such tokens if they are not in its context.

A line is part of one document, around its middle; each document of more than `context` tokens gives
one line.
"""

from collections.abc import Mapping
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.lab.tasks.task import Task, example_keys, next_token
from posenc_jax.lab.tasks.tokens.shards import Stream
from posenc_jax.options import FieldError

Test = Literal["windows", "same_end", "recall", "recall_absent"]
END = 256  # targets that "same_end" scores
SPAN, KEY = 16, 4  # tokens that are read again, and those of them that say which ones follow


def sizes(test: Test, context: int, most: int) -> tuple[int, int]:
    """The smallest and the largest size of a test.

    most: the largest of windows.

    FieldError: `context`, the largest of the other tests, is too small.
    """
    if test == "windows":
        return 1, most
    smallest = END if test == "same_end" else 3 * SPAN
    if context < smallest:
        raise FieldError(("task", "context"), f"{context} is too small; {smallest} or more")
    return smallest, context


def tested(
    task: Task, streams: Mapping[str, Stream], separator: int, test: Test, context: int, most: int
) -> Task:
    """The task with another test on documents of more than `context` tokens.

    Args:
      streams: the tokens of each split; a document begins with `separator`.
      context: the longest size.
      most: targets that "same_end" scores in all documents together.

    FieldError: a split has no document of that length, or none with a span to recall.
    """
    held_out = [split for split in streams if split != "train"]
    lines = {
        split: _lines(streams[split].read(0, len(streams[split])), separator, context)
        for split in held_out
    }
    count = min(min(map(len, lines.values())), max(most // END, 1))
    longest = f"of more than {context} tokens"
    if not count:
        raise FieldError(("task", "context"), f"{context}: a split has no document {longest}")
    lines = {split: line_EL[:count] for split, line_EL in lines.items()}
    data: dict[str, Any] = {"bytes_of_id": task.data["bytes_of_id"]}
    for split, line_EL in lines.items():
        data[split] = {"line": jnp.asarray(line_EL, jnp.int32)}
        if test != "same_end":
            next_EL = np.stack(
                [next_start(spans_without_copy(line_L, line_L)) for line_L in line_EL]
            )
            data[split]["next"] = jnp.asarray(next_EL, jnp.int32)
        if test == "recall_absent":
            data[split]["absent"] = jnp.asarray(_absent(line_EL), jnp.int32)

    def numbered(data, index_B, size_B, width, split):
        row_B = jnp.minimum(index_B, count - 1)
        exists_B = index_B < count
        lines = {name: rows[row_B] for name, rows in data[split].items()}
        place_1L = jnp.arange(width + 1, dtype=jnp.int32)[None]
        first_B = context - size_B  # of the longest line
        id_BL = _taken(lines["line"], first_B[:, None] + place_1L)
        scored_BL = place_1L > (size_B - END)[:, None]
        if test != "same_end":
            # The line moves up by the span that follows it.
            span_B = size_B + 1 - SPAN
            id_BL = _taken(lines["line"], (first_B + SPAN)[:, None] + place_1L)
            again_BL, has_B = _span(lines, first_B + SPAN, index_B, size_B, test, split)
            offset_BL = place_1L - span_B[:, None]
            id_BL = jnp.where(offset_BL >= 0, _taken(again_BL, offset_BL), id_BL)
            scored_BL = offset_BL >= KEY
            exists_B = exists_B & has_B
        rows = next_token(id_BL, scored_BL & exists_B[:, None], size_B)
        return rows._replace(bytes_BT=data["bytes_of_id"][rows.targets_BT])

    def _span(lines, first_B, index_B, size_B, test, split):
        """(the span that is read again [B, SPAN], whether there is one [B])."""
        if test == "recall_absent":
            return lines["absent"], jnp.ones(index_B.shape, bool)
        last = context + 1 - 2 * SPAN  # the last start whose span ends SPAN tokens before the end
        key_B = example_keys(task.name, split, index_B, size_B)
        drawn_B = jax.vmap(lambda key, first: jax.random.randint(key, (), first, last + 1))(
            key_B, first_B
        )
        start_B, wrapped_B = (
            jnp.take_along_axis(lines["next"], place_B[:, None], axis=1)[:, 0]
            for place_B in (drawn_B, first_B)
        )
        start_B = jnp.where(start_B <= last, start_B, wrapped_B)
        again_BL = _taken(lines["line"], start_B[:, None] + jnp.arange(SPAN, dtype=jnp.int32)[None])
        return again_BL, start_B <= last

    smallest, largest = sizes(test, context, most)
    facts = {**task.facts, "test": test, "documents_tested": count}
    return task._replace(
        least=smallest, most=largest, examples=lambda size: count, data=data, numbered=numbered,
        baselines=lambda: {}, facts=facts,
    )  # fmt: skip


def _taken(id_BL: jax.Array, place_BT: jax.Array) -> jax.Array:
    """The ids of each row at these places; at places outside of the row those of its ends."""
    return jnp.take_along_axis(id_BL, jnp.clip(place_BT, 0, id_BL.shape[1] - 1), axis=1)


def _lines(id_N: np.ndarray, separator: int, context: int) -> np.ndarray:
    """`context` + 1 tokens of each document that has as many, around its middle: [E, context + 1],
    in the order of the documents.
    """
    starts = np.flatnonzero(id_N == separator)
    sizes = np.diff(np.append(starts, len(id_N)))
    long = sizes > context
    first_E = starts[long] + (sizes[long] - context - 1) // 2
    return id_N[first_E[:, None] + np.arange(context + 1)]


def spans_without_copy(id_N: np.ndarray, other_N: np.ndarray) -> np.ndarray:
    """Whether no KEY tokens in a row of the span at each place occur elsewhere: bool [N].

    Args:
      id_N: the tokens with the spans.
      other_N: tokens in which at most one such occurrence is allowed if they are `id_N` itself, and
        none if they are not.
    """
    grams = lambda x_N: np.lib.stride_tricks.sliding_window_view(x_N.astype(np.int64), KEY)
    spans, others = grams(id_N), grams(other_N)
    _, number_G = np.unique(np.concatenate([spans, others]), axis=0, return_inverse=True)
    number_G = number_G.reshape(-1)
    occurs = np.bincount(number_G[len(spans) :], minlength=number_G.max() + 1)
    alone = occurs[number_G[: len(spans)]] <= (id_N is other_N)
    inside = np.lib.stride_tricks.sliding_window_view(alone, SPAN - KEY + 1).min(axis=1)
    return np.pad(inside, (0, len(id_N) - len(inside)))


def next_start(span_N: np.ndarray) -> np.ndarray:
    """The first place at or after each where a span may begin; N if there is none."""
    place_N = np.where(span_N, np.arange(len(span_N)), len(span_N))
    return np.minimum.accumulate(place_N[::-1])[::-1]


def _absent(line_EL: np.ndarray) -> np.ndarray:
    """For each line a span of another one, of which it has no KEY tokens in a row: [E, SPAN]. It is
    from about the middle of those that there are.

    FieldError: there is none.
    """
    spans = []
    for number, line_L in enumerate(line_EL):
        others = np.roll(line_EL, -number - 1, axis=0)[:-1]
        places = (
            (other_L, np.flatnonzero(spans_without_copy(other_L, line_L))) for other_L in others
        )
        chosen = next(((x_L, place) for x_L, place in places if len(place)), None)
        if chosen is None:
            reason = "no document has 16 tokens that are new to another"
            raise FieldError(("task", "test"), f"'recall_absent': {reason}")
        other_L, place = chosen
        start = place[len(place) // 2]
        spans.append(other_L[start : start + SPAN])
    return np.stack(spans)
