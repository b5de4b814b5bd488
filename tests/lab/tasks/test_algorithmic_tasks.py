"""Every other generated task: its lines decoded and solved again with plain Python's integers."""

import functools
import itertools
import math
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax.lab import tasks
from posenc_jax.lab.tasks import dna
from posenc_jax.lab.tasks.task import BOS, EOS, EXTRA, PAD, SEP, SYMBOL

PADDINGS = ("right", "left")


def digits(number):
    return [int(digit) for digit in str(number)]


def bits(number):
    return [int(bit) for bit in f"{number:b}"]


def number(bits):
    """The value of bits, units first."""
    return sum(bit << i for i, bit in enumerate(bits))


def of_two(operation):
    def solve(x, o):
        at = x.index(EXTRA - SYMBOL)
        assert 0 < at < len(x) - 1
        return [*bits(operation(number(x[:at]), number(x[at + 1 :])))[::-1], EOS - SYMBOL]

    return solve


def root(x, o):
    actual = bits(math.isqrt(number(x[::-1])))
    return [0] * ((len(x) + 1) // 2 - len(actual)) + actual + [EOS - SYMBOL]


def written(x, signs):
    """The expression as text."""
    return "".join(str(s) if s < 5 else signs[s - 5] for s in x)


def chain(x, o):
    text = written(x, "+-*")
    assert re.fullmatch(r"\d([-+*]\d)*", text)
    return [eval(text) % 5]


def brackets(x, o):
    text = written(x, "+-()*")
    check_grammar(text)
    return [eval(text) % 5]


def equation(x, o):
    text = written(x, "+-()x=")
    left, right = text.split("=")
    assert left.count("x") == 1
    solutions = [d for d in range(5) if eval(left.replace("x", str(d))) % 5 == int(right)]
    check_grammar(left.replace("x", str(solutions[0])))
    return solutions


def check_grammar(text):
    """The expression is of the four short forms, or two such expressions in brackets."""
    reduced = re.sub(r"^-?\d$|\(-?\d\)", "d", text)
    while re.search(inner := r"\((-?\d|d)[-+*](-?\d|d)\)", reduced):
        reduced = re.sub(inner, "d", reduced)
    assert reduced in ("d", *"01234"), text


def stack(x, o):
    actual = []
    for symbol in x:
        if symbol == 2:
            actual = actual[:-1]
        else:
            actual.append(symbol % 3 if symbol > 2 else symbol)
    return [*actual[::-1], EOS - SYMBOL]


def count(x, o):
    *actions, query = x
    return [*digits(actions.count(query - 14 + 10)), EOS - SYMBOL]


def marker(x, o):
    assert x.count(EXTRA - SYMBOL) == 1
    return [*digits(1 + x.index(EXTRA - SYMBOL)), EOS - SYMBOL]


def passkey(x, o):
    at = x.index(EXTRA - SYMBOL)
    filler = x[:at] + x[at + 6 :]
    assert filler == [10 + i % 16 for i in range(len(filler))]
    return [*x[at + 1 : at + 6], EOS - SYMBOL]


def needle(x, o):
    *line, sep, query = x
    assert sep == SEP - SYMBOL
    keys = [(i, s) for i, s in enumerate(line) if s < 12]
    assert len({key for _, key in keys}) == len(keys) == 4
    (at,) = [i for i, key in keys if key == query]
    return [line[at + 1]]


def indirect(x, o):
    *line, sep, source, offset = x
    assert sep == SEP - SYMBOL
    assert len(set(line)) == len(line)
    offset -= 32
    return [line[line.index(source) + (offset - 3 if offset < 3 else offset - 2)]]


def translated(x, o):
    """With 6 nouns of two forms (0 to 11), 4 adjectives and 6 verbs; target words begin at 22."""
    phrases, verbs, actual = [], [], []
    for word in x:
        if word < 12:
            phrases.append([word])
        elif word < 16:
            phrases[-1].insert(0, word)
        else:
            verbs.insert(0, word - 16)
    assert len(phrases) == len(verbs) + 1
    for phrase, verb in zip(phrases, verbs, strict=False):
        actual += [*(22 + word for word in phrase), 38 + 2 * verb + phrase[-1] % 2, EXTRA - SYMBOL]
    return [*actual[:-1], *(22 + word for word in phrases[-1]), EOS - SYMBOL]


# name -> (task, options, answer); answer: (symbols of the question, options) -> symbols
CASES = {
    "duplicate_string": ({}, lambda x, o: [*x, *x, EOS - SYMBOL]),
    "odds_first": ({"alphabet": 6}, lambda x, o: [*x[::2], *x[1::2], EOS - SYMBOL]),
    "selective_copy": (
        {"blanks": 2},
        lambda x, o: [*(s for s in x if s != EXTRA - SYMBOL), EOS - SYMBOL],
    ),
    "bucket_sort": ({}, lambda x, o: [*sorted(x), EOS - SYMBOL]),
    "sum": ({}, lambda x, o: [sum(x) % 10]),
    "modular_arithmetic": ({}, chain),
    "modular_arithmetic_brackets": ({}, brackets),
    "solve_equation": ({}, equation),
    "binary_addition": ({}, of_two(lambda a, b: a + b)),
    "binary_multiplication": ({}, of_two(lambda a, b: a * b)),
    "compute_sqrt": ({}, root),
    "even_pairs": (
        {},
        lambda x, o: [sum(a != b for a, b in itertools.pairwise(x)) % 2],
    ),
    "cycle_navigation": ({}, lambda x, o: [sum(move - 1 for move in x) % 5]),
    "stack_manipulation": ({}, stack),
    "counting": ({}, count),
    "marker_position": ({}, marker),
    "passkey": ({}, passkey),
    "needle": ({"keys": 12, "noise": 4}, needle),
    "indirect_indexing": ({"alphabet": 32, "reach": 3}, indirect),
    "translation": ({}, translated),
}
LAST = {"needle", "indirect_indexing"}  # the question goes on after SEP


def sizes(task):
    """Sizes with one and with two digits, even and odd."""
    return jnp.asarray([task.least, task.least + 1, 7, 8, 9, 10, 13, 24], jnp.int32)


def make(name, padding="right"):
    options = CASES[name][0] if name in CASES else {}
    return tasks.make(name, padding=padding, **options)


def unoptimized(function, static=()):
    """Programs of integers give the same and compile twice as fast."""
    options = {"xla_backend_optimization_level": 0}
    return jax.jit(function, static_argnums=static, compiler_options=options)


@functools.cache
def sampled(name, padding="right", more=0):
    """16 examples of each size, in rows of the longest line and `more` tokens."""
    task = make(name, padding)
    size_B = jnp.repeat(sizes(task), 16)
    width = task.width(24) + more
    sample = unoptimized(task.sample, 3)
    return jax.device_get(sample((), jax.random.key(1), size_B, width))


def numbered(name):
    """16 examples of the largest size of the test split, and of the validation split."""
    task, index_B = make(name), jnp.arange(16, dtype=jnp.int32)
    size_B = jnp.full(16, 24, jnp.int32)
    both = lambda: [
        task.numbered((), index_B, size_B, task.width(24), s) for s in ("test", "valid")
    ]
    return jax.device_get(unoptimized(both, ())())


def lines(batch):
    """(tokens, whether each is an answer) of each row, after checking its padding."""
    actual = []
    for row in range(len(batch.tokens_BT)):
        tokens, targets, weights = (x[row] for x in batch[:3])
        inside = batch.layout.segment_BT[row] > 0
        assert not weights[~inside].any()
        assert set(tokens[~inside]) | set(targets[~inside]) <= {PAD}
        assert batch.layout.pos_BT[row][inside].tolist() == list(range(inside.sum()))
        tokens, targets = tokens[inside].tolist(), targets[inside].tolist()
        assert targets[:-1] == tokens[1:]
        actual.append(([*tokens, targets[-1]], [False, *(weights[inside] > 0).tolist()]))
    return actual


def wrong_rows(name, actual):
    """Rows whose answer is not that of plain Python."""
    wrong = []
    for row, (line, answers) in enumerate(actual):
        start = answers.index(True)
        assert all(answers[start:])
        assert line[0] == BOS
        question = line[1:start]
        if name not in LAST:
            assert question.pop() == SEP
        answer = CASES[name][1]([token - SYMBOL for token in question], None)
        if [SYMBOL + symbol for symbol in answer] != line[start:]:
            wrong.append(row)
    return wrong


@pytest.mark.thorough
@pytest.mark.parametrize("name", CASES)
def test_answers_are_those_of_plain_python(name):
    task, right = make(name), lines(sampled(name))
    assert wrong_rows(name, right) == []
    assert max(max(line) for line, _ in right) < task.vocab
    longest = [task.width(int(size)) for size in np.repeat(sizes(task), 16)]
    assert all(len(line) - 1 <= width for (line, _), width in zip(right, longest, strict=True))
    assert lines(sampled(name, "left", more=9)) == right, "in another width as well"
    changed = [([*line[:-1], line[-1] ^ 1], answers) for line, answers in right]
    assert len(wrong_rows(name, changed)) == len(right), "control: another last token is wrong"


@pytest.mark.thorough
@pytest.mark.parametrize(
    "name", ["odds_first", "sum", "solve_equation", "compute_sqrt", "needle", "flip_flop", "dna"]
)
def test_splits_are_drawn_apart(name):
    test, valid = (lines(batch) for batch in numbered(name))
    train = lines(sampled(name))[-16:]
    drawn = [{tuple(line) for line, _ in part} for part in (train, test, valid)]
    assert len(set.union(*drawn)) == sum(len(part) for part in drawn) >= 40
    assert len(set.union(*drawn, drawn[0])) < 40 + len(train), "control: equal lines are one"


@pytest.mark.thorough
def test_dna_has_the_entropy_that_it_states():
    """Bits per base under the true frame and spacing; a wrong one of either costs more."""
    task = tasks.make("dna", spacing=3)
    batch = unoptimized(task.test, (2, 3))((), jnp.arange(64), 300, 900)
    base_BT = np.asarray(batch.targets_BT) - SYMBOL
    assert set(np.unique(base_BT)) == {0, 1, 2, 3}
    assert (np.asarray(batch.weights_BT).sum(axis=1) == 900 - 9).all()

    def bits(base_BT, spacing):
        codon_BN3 = base_BT.reshape(64, -1, 3)
        pairs = np.log2(dna.pair_shares())[4 * codon_BN3[:, :, 0] + codon_BN3[:, :, 1]]
        third_BN = codon_BN3[:, :, 2]
        paired = third_BN[:, spacing:] == 3 - third_BN[:, :-spacing]
        thirds = np.where(paired, np.log2(0.9), np.log2(0.1 / 3))
        return -(pairs[:, spacing:] + thirds) / 3

    right = bits(base_BT, 3)
    error = right.std() / right.size**0.5
    assert abs(right.mean() - task.baselines()["entropy"]) < 5 * error
    assert bits(base_BT, 4).mean() > task.baselines()["entropy"] + 0.3
    assert bits(base_BT[:, 1:-2], 3).mean() > task.baselines()["entropy"] + 0.3
    assert lines(sampled("dna", "left", more=9)) == lines(sampled("dna"))


@pytest.mark.parametrize("padding", PADDINGS)
def test_flip_flop_reads_what_was_written_last(padding):
    write, ignore, read = 2, 3, 4
    kinds = []
    for line, answers in lines(sampled("flip_flop", padding)):
        symbols = [token - SYMBOL for token in line[1:]]
        memory = None
        for kind, bit, before, counts in zip(
            symbols[::2], symbols[1::2], answers[1::2], answers[2::2], strict=True
        ):
            assert not before
            assert counts == (kind == read)
            memory = bit if kind == write else memory
            if kind == read:
                assert bit == memory
        assert (symbols[0], symbols[-2]) == (write, read)
        kinds += symbols[2:-2:2]
    share = np.bincount(kinds, minlength=5)[2:] / len(kinds)
    assert np.abs(share - [0.1, 0.8, 0.1]).max() < 0.05
    ignored = [bit for line, _ in lines(sampled("flip_flop")) for bit in line[4:-2:2]]
    assert set(ignored) == {SYMBOL, SYMBOL + 1}
    assert (ignore, share.argmax()) == (3, 1)


def test_expressions_are_drawn_with_every_sign_and_shape():
    actual = lines(sampled("modular_arithmetic_brackets"))
    texts = [written([t - SYMBOL for t in line[1:-2]], "+-()*") for line, _ in actual]
    assert {"+", "-", "*"} <= set("".join(texts))
    of_size = {}
    for text in texts:
        of_size.setdefault(len(text), set()).add(re.sub(r"\d", "d", text))
    assert of_size[2] == {"-d"}
    assert of_size[7] <= {"(d*(d))", "(-d+-d)", *shapes(7)}
    assert len(of_size[24]) == 16


def shapes(size):
    """All shapes of an expression."""
    short = {1: {"d"}, 2: {"-d"}, 3: {"(d)"}, 4: {"(-d)"}}
    return short.get(size) or {
        f"({a}{sign}{b})"
        for left in range(1, size - 3)
        for a in shapes(left)
        for b in shapes(size - 3 - left)
        for sign in "+-*"
    }


def test_wrong_options_are_refused():
    cases: tuple[tuple[str, dict[str, Any], str], ...] = (
        ("flip_flop", {"ignore": 1.0}, "task.ignore: 1.0 must be at least 0 and below 1"),
        ("needle", {"needles": 99}, "task.needles: 99 is too large; 64 or less"),
        ("selective_copy", {"blanks": 0}, "task.blanks: 0 is too small; 1 or more"),
        ("indirect_indexing", {"reach": 0}, "task.reach: 0 is too small; 1 or more"),
    )
    for name, options, message in cases:
        with pytest.raises(ValueError, match=re.escape(message)):
            tasks.check(name, **options)
    with pytest.raises(ValueError, match="33 is not a size of task indirect_indexing; 2 to 32"):
        tasks.check("indirect_indexing", {"train.length": [33]}, alphabet=32)
