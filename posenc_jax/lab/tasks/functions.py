"""Completion of Python functions in held-out files, after as much of the file as a window holds.

    task            files                                           split
    functions       the standard library of this machine            by file: 90, 5 and 5 of 100
    functions:PATH  the .py files in a folder                       by file: 90, 5 and 5 of 100

A size is the number of bytes of a window. Training windows are cut anywhere, and all of their bytes
count, as in `stdlib`. A test example ends in a function: the first bytes of its body after the
docstring, ANSWER of them at most, count, and the bytes of its file before them fill the window.
"""

import ast
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from posenc_jax.lab.tasks import corpus
from posenc_jax.lab.tasks.baselines import SMOOTHING, bigram, pair_counts, unigram
from posenc_jax.lab.tasks.task import SPLITS, Plan, Task, check_least, next_token
from posenc_jax.lab.tasks.text_windows import SEPARATOR, largest_window, windowed
from posenc_jax.options import FieldError

ANSWER = 32
MOST = 2**16


class Functions(NamedTuple):
    """Places in the bytes of a split: where a function's file begins, and the bytes that count."""

    file_N: np.ndarray
    start_N: np.ndarray
    stop_N: np.ndarray


def functions(tested: int = 256) -> Plan:
    """Complete functions of the standard library.

    tested: how many functions of the test split, and of the validation split, at most; spread
      evenly.
    """
    return _plan(corpus.standard_library(), tested)


def functions_file(path: str, tested: int = 256) -> Plan:
    """Complete functions of a folder's .py files; tested: as of `functions`.

    FieldError: there is no such folder, or it holds too little Python.
    """
    name = f"functions:{path}"
    if not path or not Path(path).expanduser().is_dir():
        raise FieldError("task.name", f"{name}: no such folder; give a folder of .py files")
    found = corpus.files_at(path)
    python = lambda pieces: [piece for piece in pieces if piece[0].suffix == ".py"]
    return _plan(
        found._replace(source=name, pieces={s: python(found.pieces[s]) for s in SPLITS}), tested
    )


def _plan(found: corpus.Corpus, tested: int) -> Plan:
    check_least("tested", tested, 1)
    most = largest_window(found.source, found.sizes, MOST)

    def read() -> Task:
        files = corpus.texts(found)
        held = {split: _held_out([text for _, text in files[split]]) for split in SPLITS[1:]}
        for split, known in held.items():
            if not len(known.file_N):
                reason = f"{found.source} has no function with a body of code for {split}"
                raise FieldError("task.name", reason)
        chosen = {split: _spread(known, tested) for split, known in held.items()}
        text = {s: SEPARATOR.join(text for _, text in files[s]) for s in SPLITS}
        facts = {
            "files": {split: len(files[split]) for split in SPLITS},
            "functions": {split: len(known.file_N) for split, known in held.items()},
        }
        arrays = {split: np.frombuffer(text[split], np.uint8) for split in SPLITS}
        return _completion(windowed(found.source, arrays, most, 0.0, facts=facts), arrays, chosen)

    return Plan(ANSWER, most, read)


def _completion(task: Task, text: Mapping[str, np.ndarray], chosen: Mapping[str, Functions]):
    """The task of windows with functions as its test and validation examples."""

    def numbered(data, index_B, size_B, width, split):
        exists_B = index_B < len(chosen[split].file_N)
        index_B = jnp.minimum(index_B, len(chosen[split].file_N) - 1)
        file_B, start_B, stop_B = (places_N[index_B] for places_N in data[f"{split} functions"])
        begin_B = jnp.maximum(file_B, stop_B - 1 - size_B)
        at_BL = begin_B[:, None] + jnp.arange(width + 1, dtype=jnp.int32)[None]
        byte_BL = data[split][jnp.minimum(at_BL, len(data[split]) - 1)].astype(jnp.int32)
        answer_BL = (at_BL >= start_B[:, None]) & exists_B[:, None]
        return next_token(byte_BL, answer_BL, stop_B - 1 - begin_B)

    places = {f"{s} functions": tuple(map(jnp.asarray, known)) for s, known in chosen.items()}
    return task._replace(
        least=ANSWER,
        data={**task.data, **places},
        numbered=numbered,
        examples=lambda size: len(chosen["test"].file_N),
        baselines=lambda: {"bigram": _bigram_bits(text, chosen)},
    )


def offsets(task: Task) -> np.ndarray:
    """The place in its file of each test function, in bytes before the first that counts."""
    file_N, start_N, _ = task.data["test functions"]
    return np.asarray(start_N - file_N)


def _held_out(texts: Iterable[bytes]) -> Functions:
    """The functions of files that are joined with one byte between them."""
    rows, begin = [], 0
    for text in texts:
        rows += [(begin, begin + start, begin + stop) for start, stop in bodies(text)]
        begin += len(text) + len(SEPARATOR)
    return Functions(*np.array(rows, np.int32).reshape(-1, 3).T)


def bodies(text: bytes) -> list[tuple[int, int]]:
    """(start, stop) of the first bytes of each function's body, ANSWER at most, in order.

    The body begins at its first statement that is no docstring; functions without one are left
    out, and so is a text that is not Python of this version.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return []
    lines = text.split(b"\n")
    line_start = np.cumsum([0, *(len(line) + 1 for line in lines)])
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = 0 if ast.get_docstring(node, clean=False) is None else 1
            body = node.body[first:]
            if body and body[-1].end_lineno is not None:
                start = int(line_start[body[0].lineno - 1]) + body[0].col_offset
                stop = int(line_start[body[-1].end_lineno - 1]) + (body[-1].end_col_offset or 0)
                found.append((start, min(stop, start + ANSWER)))
    return sorted(found)


def _spread(known: Functions, most: int) -> Functions:
    """At most so many functions, evenly spread."""
    count = len(known.file_N)
    kept = np.unique(np.linspace(0, count - 1, min(most, count)).round().astype(int))
    return Functions(*(places_N[kept] for places_N in known))


def _bigram_bits(text: Mapping[str, np.ndarray], chosen: Mapping[str, Functions]) -> float:
    """Bits per byte that counts, of byte frequencies after the byte before."""
    counts_VV = pair_counts(text["train"])

    def bits(k: float, split: str) -> float:
        known = chosen[split]
        pairs = zip(known.start_N, known.stop_N, strict=True)
        at = np.concatenate([np.arange(start, stop) for start, stop in pairs])
        p_VV = bigram(counts_VV, unigram(counts_VV, k), k)
        return float(-np.log2(p_VV[text[split][at - 1], text[split][at]]).mean())

    return bits(min(SMOOTHING, key=lambda k: bits(k, "valid")), "test")
