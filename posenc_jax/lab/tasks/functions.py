"""Questions about held-out Python files: complete a function, tell the kind of a closing bracket.

    task            files                                           split
    functions       the standard library of this machine            by file: 90, 5 and 5 of 100
    functions:PATH  the .py files in a folder                       by file: 90, 5 and 5 of 100

    question        a test example ends in                          the model answers
    complete        a function                                      each byte from those before it
    brackets        a closing bracket around another pair           its kind, see `brackets.py`

A size is the number of bytes of a window. In `complete` training windows are cut anywhere, and all
of their bytes count, as in `stdlib`. At test the first bytes of the function's body after the
docstring, ANSWER of them at most, count, and the bytes of its file before them fill the window.
"""

import ast
import codecs
import warnings
from collections.abc import Mapping
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np

from posenc_jax.lab.tasks import corpus
from posenc_jax.lab.tasks.baselines import SMOOTHING, bigram, pair_counts, unigram
from posenc_jax.lab.tasks.brackets import NEAR, hidden_brackets
from posenc_jax.lab.tasks.catalog import register
from posenc_jax.lab.tasks.task import SPLITS, Plan, Task, check_least, next_token
from posenc_jax.lab.tasks.text_spans import Spans, check_any, spans, spread
from posenc_jax.lab.tasks.text_windows import SEPARATOR, largest_window, windowed
from posenc_jax.lab.tasks.user_files import path_kind, user_path
from posenc_jax.options import FieldError

Question = Literal["complete", "brackets"]
ANSWER = 32
MOST = 2**16
LARGEST_CODE = 2**22  # bytes of a file; its tree takes over 100 times as many


@register(reads="code", unit="bytes")
def functions(question: Question = "complete", tested: int = 256) -> Plan:
    """A question about the standard library.

    question: see above.
    tested: how many examples of the test split, and of the validation split, at most; spread
      evenly.
    """
    return _plan(corpus.standard_library(), question, tested)


def functions_file(path: str, question: Question = "complete", tested: int = 256) -> Plan:
    """A question about the .py files of a folder; options as of `functions`.

    FieldError: there is no such folder, or it holds too little Python.
    """
    name = f"functions:{path}"
    if not path or path_kind(name, user_path(name, path)) != "folder":
        raise FieldError("task.name", f"{name}: no such folder; give a folder of .py files")
    files = corpus.files_at(path)
    python = lambda pieces: [piece for piece in pieces if piece[0].suffix == ".py"]
    pieces = {split: python(files.pieces[split]) for split in SPLITS}
    return _plan(files._replace(source=name, pieces=pieces), question, tested)


def _plan(code: corpus.Corpus, question: Question, tested: int) -> Plan:
    """The plan of a question about the .py files of a corpus."""
    check_least("tested", tested, 1)
    most = largest_window(code.source, code.sizes, MOST)
    questions = {"complete": (ANSWER, _completion), "brackets": (NEAR, hidden_brackets)}
    least, make_task = questions[question]

    def read() -> Task:
        files = corpus.texts(code)
        texts = {split: [text for _, text in files[split]] for split in SPLITS}
        text = {split: np.frombuffer(SEPARATOR.join(texts[split]), np.uint8) for split in SPLITS}
        facts = {"files": {split: len(texts[split]) for split in SPLITS}}
        return make_task(windowed(code.source, text, most, 0.0, facts=facts), texts, tested)

    return Plan(least, most, read)


def _completion(windows: Task, texts: Mapping[str, list[bytes]], tested: int) -> Task:
    """The task of completing functions: windows anywhere in training, functions at test."""
    functions = {split: spans(texts[split], bodies) for split in SPLITS[1:]}
    check_any(windows.name, functions, "function with a body of code")
    chosen = {split: spread(split_spans, tested) for split, split_spans in functions.items()}

    def numbered(data, index_B, size_B, width, split):
        exists_B = index_B < len(chosen[split].file_N)
        index_B = jnp.minimum(index_B, len(chosen[split].file_N) - 1)
        file_B, start_B, stop_B = (places_N[index_B] for places_N in data[f"{split} ends"])
        begin_B = jnp.maximum(file_B, stop_B - 1 - size_B)
        at_BL = begin_B[:, None] + jnp.arange(width + 1, dtype=jnp.int32)[None]
        byte_BL = data[split][jnp.minimum(at_BL, len(data[split]) - 1)].astype(jnp.int32)
        answer_BL = (at_BL >= start_B[:, None]) & exists_B[:, None]
        return next_token(byte_BL, answer_BL, stop_B - 1 - begin_B)

    places = {f"{split} ends": tuple(map(jnp.asarray, held)) for split, held in chosen.items()}
    counts = {split: len(split_spans.file_N) for split, split_spans in functions.items()}
    return windows._replace(
        least=ANSWER,
        data={**windows.data, **places},
        numbered=numbered,
        examples=lambda size: len(chosen["test"].file_N),
        baselines=lambda: {"bigram": _bigram_bits(windows.data, chosen)},
        facts={**windows.facts, "functions": counts},
    )


def offsets(task: Task) -> np.ndarray:
    """The place in its file of each test function, in bytes before the first byte that counts; for
    `brackets` that of the last bracket.
    """
    file_N, start_N, _ = task.data["test ends"]
    return np.asarray(start_N - file_N)


def bodies(text: bytes) -> list[tuple[int, int]]:
    """(start, stop) of the first bytes of each function's body, ANSWER at most, in order.

    The body begins at its first statement that is no docstring; functions without one are left
    out. There are none in a text that is not Python of this version in UTF-8, is nested deeper than
    Python's parser goes, or has more than LARGEST_CODE bytes.
    """
    if len(text) > LARGEST_CODE:
        return []
    marked = len(text) - len(text.removeprefix(codecs.BOM_UTF8))  # the parser does not count it
    try:
        with warnings.catch_warnings(action="ignore"):  # of odd escapes in the strings of others
            # As str, since columns of another encoding than UTF-8 are not places in the file.
            tree = ast.parse(text[marked:].decode("utf-8"))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    # The parser's lines end in \n, \r\n or \r.
    lines = text[marked:].splitlines(keepends=True)
    line_start = marked + np.cumsum([0, *map(len, lines)])
    ranges = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = 0 if ast.get_docstring(node, clean=False) is None else 1
            body = node.body[first:]
            if body and body[-1].end_lineno is not None:
                start = int(line_start[body[0].lineno - 1]) + body[0].col_offset
                stop = int(line_start[body[-1].end_lineno - 1]) + (body[-1].end_col_offset or 0)
                ranges.append((start, min(stop, start + ANSWER)))
    return sorted(ranges)


def _bigram_bits(data: Mapping[str, Any], chosen: Mapping[str, Spans]) -> float:
    """Bits per byte of the bigram model on the bytes that count."""
    text = {split: np.asarray(data[split]) for split in SPLITS}
    counts_VV = pair_counts(text["train"])

    def bits(k: float, split: str) -> float:
        split_spans = chosen[split]
        pairs = zip(split_spans.start_N, split_spans.stop_N, strict=True)
        at = np.concatenate([np.arange(start, stop) for start, stop in pairs])
        p_VV = bigram(counts_VV, unigram(counts_VV, k), k)
        return float(-np.log2(p_VV[text[split][at - 1], text[split][at]]).mean())

    return bits(min(SMOOTHING, key=lambda k: bits(k, "valid")), "test")
