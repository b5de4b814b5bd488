"""Tasks with several answers in a line, of distinct symbols and of counts: their lines are
read again in plain Python.
"""

import functools
import itertools
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax.lab import tasks
from posenc_jax.lab.tasks.task import BOS, EOS, SEP, SYMBOL
from tests.lab.tasks.test_algorithmic_tasks import unoptimized

MOST, EACH = 13, 12
# Inputs of the first two test examples of size 7, of 12 symbols, when a line had one query.
GOLDEN = {
    "associative_recall": [
        [1, 6, 21, 13, 22, 9, 24, 12, 21, 8, 22, 11, 21, 5, 28, 2, 5],
        [1, 12, 20, 8, 27, 14, 28, 10, 25, 15, 20, 16, 20, 7, 31, 2, 16],
    ],
    "indirect_indexing": [
        [1, 6, 13, 8, 16, 7, 9, 11, 2, 13, 26],
        [1, 6, 13, 12, 16, 7, 11, 5, 2, 16, 25],
    ],
}


def halves(line):
    """The symbols before and after SEP."""
    at = line.index(SEP - SYMBOL)
    return line[:at], line[at + 1 :]


def copied(line):
    question, _ = halves(line)
    assert len(set(question)) == len(question), "distinct"
    return {len(question) + 1 + i: s for i, s in enumerate([*question, EOS - SYMBOL])}


def reversed_(line):
    question, _ = halves(line)
    assert len(set(question)) == len(question), "distinct"
    return backwards(line)


def backwards(line):
    question, _ = halves(line)
    return {len(question) + 1 + i: s for i, s in enumerate([*question[::-1], EOS - SYMBOL])}


def delayed(line):
    return {i: line[i - 7] for i in range(1, len(line), 2) if i >= 7}


def recalled(line):
    pairs, queries = halves(line)
    assert len(queries) == 6
    assert len(set(pairs[::2])) == len(pairs) // 2
    value_of = dict(zip(pairs[::2], pairs[1::2], strict=True))
    start = len(pairs) + 1
    return {start + i: value_of[queries[i - 1]] for i in (1, 3, 5)}


def ordered(line, counted=(0, 1)):
    """Keys 0 to 2, values 3 to 9, then first and last."""
    pairs, queries = halves(line)
    keys, values = pairs[::2], pairs[1::2]
    assert set(keys) == {0, 1, 2}
    assert set(values) <= set(range(3, 10))
    asked = list(zip(queries[::3], queries[1::3], strict=True))
    assert sorted(asked) == [(mode, key) for mode in (10, 11) for key in range(3)]
    answers = {}
    for n, (mode, key) in enumerate(asked):
        shown = [value for k, value in zip(keys, values, strict=True) if k == key]
        if mode - 10 in counted:
            answers[len(pairs) + 1 + 3 * n + 2] = shown[0] if mode == 10 else shown[-1]
    return answers


def indexed(line):
    question, queries = halves(line)
    answers = {}
    for n in range(2):
        source, offset = queries[3 * n], queries[3 * n + 1] - 32
        by = offset - 3 if offset < 3 else offset - 2
        answers[len(question) + 1 + 3 * n + 2] = question[question.index(source) + by]
    return answers


def most_frequent(line):
    question, _ = halves(line)
    ones = sum(question)
    assert 2 * ones != len(question)
    return {len(question) + 1: int(2 * ones > len(question))}


def doubled(line):
    question, _ = halves(line)
    pairs = list(zip(question[::2], question[1::2], strict=False))
    assert all(first == second for first, second in pairs)
    return backwards(line)


def changing(line):
    question, _ = halves(line)
    assert all(first != second for first, second in itertools.pairwise(question))
    return backwards(line)


# label -> (task, options, line -> {place: answer})
CASES: dict[str, tuple[str, dict[str, Any], Any]] = {
    "copy distinct": ("copy", {"symbols": "distinct", "alphabet": 16}, copied),
    "reverse distinct": ("reverse", {"symbols": "distinct", "alphabet": 16}, reversed_),
    "doubled": ("reverse", {"symbols": "doubled", "alphabet": 4}, doubled),
    "changing": ("reverse", {"symbols": "changing", "alphabet": 4}, changing),
    "delay": ("delay", {"lag": 3}, delayed),
    "recall": ("associative_recall", {"keys": 16, "queries": 3}, recalled),
    "order": ("recall_order", {"keys": 3, "values": 7}, ordered),
    "order, first": (
        "recall_order", {"keys": 3, "values": 7, "answers": "first"},
        functools.partial(ordered, counted=(0,)),
    ),
    "indirect": ("indirect_indexing", {"alphabet": 32, "reach": 3, "queries": 2}, indexed),
    "majority": ("majority", {}, most_frequent),
}  # fmt: skip


@functools.cache
def drawn(label):
    """(line without BOS, {place: answer}) of 12 training examples of each size up to MOST."""
    name, options, _ = CASES[label]
    task = tasks.make(name, **options)
    size_B = jnp.repeat(jnp.arange(task.least, MOST + 1, dtype=jnp.int32), EACH)
    program = unoptimized(task.sample, 3)
    batch = jax.device_get(program((), jax.random.key(1), size_B, task.width(MOST) + 3))
    rows = []
    for row in range(len(size_B)):
        inside_T = batch.layout.segment_BT[row] > 0
        assert inside_T.sum() == task.width(int(size_B[row])), "of this size"
        tokens, targets, weights = (x[row][inside_T] for x in batch[:3])
        assert tokens[0] == BOS
        assert (targets[:-1] == tokens[1:]).all()
        assert set(np.unique(weights)) <= {0.0, 1.0}
        assert targets.max() < task.vocab
        symbols = [int(token) - SYMBOL for token in targets]
        rows.append((symbols, {int(i): symbols[i] for i in np.flatnonzero(weights)}))
    return rows


@pytest.mark.parametrize("label", CASES)
def test_answers_are_those_of_plain_python(label):
    rows, solve = drawn(label), CASES[label][2]
    assert [answers for _, answers in rows] == [solve(line) for line, _ in rows]
    wrong = 0
    for line, answers in rows:
        changed = {place: answer ^ 1 for place, answer in answers.items()}
        wrong += changed != solve(line)
    assert wrong == len(rows), "control: other answers are wrong"
    assert len({tuple(line) for line, _ in rows}) > len(rows) // 2, "control: not one line"


def test_one_query_is_drawn_as_before():
    for name, tokens in GOLDEN.items():
        task = tasks.make(name, **{"keys" if "recall" in name else "alphabet": 12})
        draw = unoptimized(lambda index_B, task=task: task.test((), index_B, 7, task.width(7)))
        batch = draw(jnp.arange(2, dtype=jnp.int32))
        assert np.asarray(batch.tokens_BT).tolist() == tokens
        assert np.asarray(batch.weights_BT).sum(axis=1).tolist() == [1, 1]


def test_modes_share_their_lines():
    """The lines in which only "first" or only "last" counts are those in which both do."""
    lines = {label: drawn(label) for label in ("order", "order, first")}
    both, first = ([line for line, _ in rows] for rows in lines.values())
    assert both == first
    counts = [len(answers) for rows in lines.values() for _, answers in rows]
    assert set(counts) == {6, 3}


def test_first_and_last_are_anywhere():
    """No key is first or last more often at one place than chance says; of every key one occurs."""
    rows = drawn("order")
    longest = [line for line, _ in rows][-EACH:]
    places = {line[:24:2].index(key) for line in longest for key in range(3)}
    assert len(places) > 3, "control: a key that always came first would have one place"


def test_wrong_options_and_sizes_are_refused():
    cases: tuple[tuple[str, dict[str, Any], str], ...] = (
        ("copy", {"symbols": "distinct", "alphabet": 5000}, "task.alphabet: 5000 is too large"),
        ("associative_recall", {"queries": 0}, "task.queries: 0 is too small; 1 or more"),
        ("indirect_indexing", {"queries": 0}, "task.queries: 0 is too small; 1 or more"),
        ("delay", {"lag": 0}, "task.lag: 0 is too small; 1 or more"),
        ("recall_order", {"answers": "middle"}, "task.answers: 'middle' is not one of: 'both'"),
    )
    for name, options, message in cases:
        with pytest.raises(ValueError, match=re.escape(message)):
            tasks.check(name, **options)
    sizes: tuple[tuple[str, dict[str, Any], int], ...] = (
        ("copy", {"symbols": "distinct", "alphabet": 8}, 9),
        ("recall_order", {}, 3),
        ("delay", {}, 8),
    )
    for name, options, size in sizes:
        with pytest.raises(ValueError, match=f"{size} is not a size of task {name}"):
            tasks.check(name, {"train.length": [size]}, **options)
