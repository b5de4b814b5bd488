"""Tells the kind of each hidden closing bracket, `)`, `]` or `}`, from the Python code before it.

Every closing bracket is hidden behind one token, and the model says at its place whether it is `)`,
`]` or `}`. It counts if its opening bracket is in the window. Brackets in strings and comments are
neither hidden nor asked for. A window ends in a closing bracket around another pair, of training
files in training, less than NEAR bytes after its opening bracket.

The kind of each pair is drawn anew for each example, and so its opening bracket may be another one
than in the file. As written, most are round: in windows of 64 bytes of the standard library `)` is
right at 87 of 100 places, and the kind of the bracket that was opened last at 97.
"""

import re
from collections.abc import Iterable, Mapping

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.lab.tasks import task_floors
from posenc_jax.lab.tasks.task import SPLITS, Batch, Task, draw, example_keys, index_keys
from posenc_jax.lab.tasks.text_spans import Spans, check_any, spread
from posenc_jax.lab.tasks.text_windows import SEPARATOR
from posenc_jax.layout import layout

NEAR = 64
HIDDEN = 256  # the token of a closing bracket; bytes are 0 to 255
OPENING, CLOSING = b"([{", b")]}"
OPENS = -1  # of an opening bracket, where a closing one has the distance to it

# Strings and comments, or one bracket of the code. In raw strings too, \" does not end the string.
_TOKEN = re.compile(
    rb"#[^\r\n]*"
    rb"|'''(?:\\.|[^\\])*?'''" + rb'|"""(?:\\.|[^\\])*?"""'
    rb"|'(?:\\.|[^\\'\r\n])*'" + rb'|"(?:\\.|[^\\"\r\n])*"'
    rb"|([()\[\]{}])",
    re.DOTALL,
)


def pairs(text: bytes) -> np.ndarray:
    """The places (opening, closing) of each pair of brackets of Python code, ordered by the closing
    one, int32 [P, 2]; none if the brackets of the text do not match.
    """
    opened, matched = [], []
    for token in _TOKEN.finditer(text):
        if token[1] is None:
            continue
        if token[1] in OPENING:
            opened.append(token.start())
        elif opened and OPENING.index(text[opened[-1]]) == CLOSING.index(token[1]):
            matched.append((opened.pop(), token.start()))
        else:
            return np.empty((0, 2), np.int32)
    return np.array([] if opened else matched, np.int32).reshape(-1, 2)


def marked(texts: Iterable[bytes]) -> tuple[np.ndarray, Spans]:
    """The mark at each place of the files, joined with one byte between them, int32 [N], and the
    closing brackets in which a window may end.

    At a place is OPENS, or the distance from a closing bracket back to its opening one, or 0.
    """
    marks, ends, begin = [], [], 0
    for text in texts:
        opening_P, closing_P = pairs(text).T
        mark_N = np.zeros(len(text) + len(SEPARATOR), np.int32)
        mark_N[opening_P] = OPENS
        mark_N[closing_P] = closing_P - opening_P
        opened_N = np.cumsum(mark_N == OPENS)
        around_P = opened_N[closing_P] > opened_N[opening_P]
        end_E = begin + closing_P[around_P & (closing_P - opening_P < NEAR)]
        ends.append([np.full_like(end_E, begin), end_E, end_E + 1])
        marks.append(mark_N)
        begin += len(mark_N)
    return np.concatenate(marks)[: -len(SEPARATOR)], Spans(*np.concatenate(ends, axis=1))


def hidden_brackets(windows: Task, texts: Mapping[str, list[bytes]], tested: int) -> Task:
    """The task of windows in which every closing bracket is hidden.

    Args:
      windows: the task of windows of the same files.
      texts: the files of each split.
      tested: windows of the test split, and of the validation split, at most; evenly spread.

    FieldError: a split has no window.
    """
    marked_texts = {split: marked(texts[split]) for split in SPLITS}
    ends = {split: spans for split, (_, spans) in marked_texts.items()}
    check_any(windows.name, ends, "closing bracket around another pair")
    chosen = {s: spans if s == "train" else spread(spans, tested) for s, spans in ends.items()}
    counts = {split: len(spans.file_N) for split, spans in chosen.items()}

    def batch(data, split, index_B, key_B, size_B, width):
        exists_B = index_B < counts[split]
        index_B = jnp.minimum(index_B, counts[split] - 1)
        file_B, _, stop_B = (places_N[index_B] for places_N in data[f"{split} ends"])
        begin_B = jnp.maximum(file_B, stop_B - size_B)
        at_BT = begin_B[:, None] + jnp.arange(width, dtype=jnp.int32)[None]
        inside_BT = at_BT < stop_B[:, None]
        at_BT = jnp.where(inside_BT, at_BT, 0)
        mark_BT = data[f"{split} marks"][at_BT]
        byte_BT = data[split][at_BT].astype(jnp.int32)
        return _window_batch(byte_BT, mark_BT, at_BT, begin_B, inside_BT, exists_B, key_B)

    def sample(data, key, size_B, width):
        end_key, key = jax.random.split(key)
        index_B = jax.random.randint(end_key, size_B.shape, 0, counts["train"], jnp.int32)
        key_B = index_keys(key, jnp.arange(len(size_B), dtype=jnp.int32))
        return batch(data, "train", index_B, key_B, size_B, width)

    def numbered(data, index_B, size_B, width, split):
        key_B = example_keys("brackets", split, index_B, size_B)
        return batch(data, split, index_B, key_B, size_B, width)

    marks = {f"{split} marks": jnp.asarray(mark_N) for split, (mark_N, _) in marked_texts.items()}
    places = {f"{split} ends": tuple(map(jnp.asarray, spans)) for split, spans in chosen.items()}
    task = windows._replace(
        vocab=HIDDEN + 1,
        metric="token_accuracy",
        least=NEAR,
        data={**windows.data, **marks, **places},
        sample=sample,
        numbered=numbered,
        examples=lambda size: counts["test"],
        facts={**windows.facts, "windows": {s: len(spans.file_N) for s, spans in ends.items()}},
    )
    return task._replace(baselines=lambda: baselines(task))


def _window_batch(byte_BT, mark_BT, at_BT, begin_B, inside_BT, exists_B, key_B) -> Batch:
    """The batch of windows whose bytes are at the places at_BT of the text; see `marked`."""
    closes_BT = mark_BT > 0
    opening_BT = jnp.where(closes_BT, at_BT - mark_BT, at_BT)  # the place of the opening bracket
    kind_BT = jax.vmap(draw, (0, 0, None))(key_B, opening_BT, len(OPENING))
    opening_K, closing_K = (jnp.asarray([*kinds], jnp.int32) for kinds in (OPENING, CLOSING))
    byte_BT = jnp.where(mark_BT == OPENS, opening_K[kind_BT], byte_BT)
    counts_BT = closes_BT & inside_BT & (opening_BT >= begin_B[:, None]) & exists_B[:, None]
    return Batch(
        jnp.where(inside_BT, jnp.where(closes_BT, HIDDEN, byte_BT), 0),
        jnp.where(counts_BT, closing_K[kind_BT], 0),
        counts_BT.astype(jnp.float32),
        layout(inside_BT.astype(jnp.int32)),
    )


def baselines(task: Task) -> dict[str, float]:
    """The share of test answers of windows of NEAR bytes that are right by the most frequent
    answer, by the byte before, and by the kind of the bracket that was opened last.
    """
    count = task.examples(NEAR) or 0
    tables = task_floors.predictors(task, (NEAR, NEAR), NEAR, examples=count)
    batch = jax.device_get(
        jax.jit(lambda data, index_B: task.test(data, index_B, NEAR, NEAR))(
            task.data, jnp.arange(count, dtype=jnp.int32)
        )
    )
    return {
        "most frequent": tables["unigram table"].token_accuracy,
        "byte before": tables["trigram table"].token_accuracy,  # it also reads the hidden token
        "last opened": last_opened(batch),
    }


def last_opened(batch: Batch) -> float:
    """The share of answers that are right by closing the nearest opening bracket before them."""
    tokens_BT = np.asarray(batch.tokens_BT)
    opens_BT = np.isin(tokens_BT, [*OPENING])
    place_BT = np.where(opens_BT, np.arange(opens_BT.shape[1]), 0)
    last_BT = np.take_along_axis(tokens_BT, np.maximum.accumulate(place_BT, axis=1), axis=1)
    closing_V = np.zeros(HIDDEN + 1, int)
    closing_V[[*OPENING]] = [*CLOSING]
    return float((closing_V[last_BT] == batch.targets_BT)[batch.weights_BT > 0].mean())
