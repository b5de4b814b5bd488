"""Every generated task: its lines decoded and solved again in plain Python."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax.lab import tasks
from posenc_jax.lab.tasks import arithmetic, names, recall
from posenc_jax.lab.tasks.task import BOS, EOS, EXTRA, PAD, SEP, SYMBOL
from tests.lab.tasks import test_algorithmic_tasks, test_position_tasks

# name, options, and what the answer to a question is: (symbols of the question, options) -> tokens
CASES = {
    "copy": ("copy", {}, lambda x, o: [*x, EOS]),
    "copy-repeated": ("copy", {"symbols": "repeated", "alphabet": 9}, lambda x, o: once(x)),
    "reverse": ("reverse", {"alphabet": 7}, lambda x, o: [*x[::-1], EOS]),
    "reverse-repeated": ("reverse", {"symbols": "repeated"}, lambda x, o: once(x)),
    "sort": ("sort", {"alphabet": 5}, lambda x, o: [*sorted(x), EOS]),
    "missing_duplicate_string": ("missing_duplicate_string", {}, lambda x, o: fill_hole(x)),
    "addition": ("addition", {}, lambda x, o: add(x, 1)),
    "addition-reversed": ("addition", {"reverse": True}, lambda x, o: add(x, -1)),
    "parity": ("parity", {}, lambda x, o: [SYMBOL + sum(b - SYMBOL for b in x) % 2]),
    "associative_recall": ("associative_recall", {"keys": 12}, lambda x, o: look_up(x)),
    "periodic": ("periodic", {"period": 3}, lambda x, o: go_on(x, o["length"])),
}  # fmt: skip


def once(x):
    assert len(set(x)) == 1
    return [*x, EOS]


def fill_hole(x):
    half = len(x) // 2
    (hole,) = [i for i, token in enumerate(x) if token == EXTRA]
    whole = [a if b == EXTRA else b for a, b in zip(x[:half], x[half:], strict=True)]
    assert [w for i, w in enumerate(whole + whole) if i != hole] == [t for t in x if t != EXTRA]
    return [whole[hole % half]]


def add(x, order):
    plus = x.index(EXTRA)
    a, b = ([t - SYMBOL for t in part][::order] for part in (x[:plus], x[plus + 1 :]))
    assert len(a) == len(b)
    assert a[0] != 0 != b[0]
    digits = str(int("".join(map(str, a))) + int("".join(map(str, b)))).zfill(len(a) + 1)
    return [*[SYMBOL + int(d) for d in digits][::order], EOS]


def look_up(x):
    *pairs, query = (t for t in x if t != SEP)
    keys, values = pairs[::2], pairs[1::2]
    assert len(set(keys)) == len(keys)
    return [dict(zip(keys, values, strict=True))[query]]


def go_on(x, length):
    line = list(x)
    while len(line) < length:
        line.append(line[-len(x)])
    return line[len(x) :]


def solve(name, question, length):
    """The answer to a question, which starts with BOS and may end with SEP."""
    assert question[0] == BOS
    symbols = list(question[1:])
    if name not in ("associative_recall", "periodic"):
        assert symbols.pop() == SEP
    _, _, answer = CASES[name]
    return answer(symbols, {"length": length - 1})


def decode(batch, row):
    """(question, answer) of a row, after checking that it is one line shifted by one."""
    tokens, targets, weights = (np.asarray(x[row]) for x in batch[:3])
    inside = np.asarray(batch.layout.segment_BT[row]) > 0
    assert set(tokens[~inside]) | set(targets[~inside]) <= {PAD}
    assert not weights[~inside].any()
    tokens, targets, weights = tokens[inside], targets[inside], weights[inside]
    assert (targets[:-1] == tokens[1:]).all()
    line = [*tokens.tolist(), int(targets[-1])]
    answers = int(weights.sum())
    assert set(weights) <= {0.0, 1.0}
    assert (weights[len(weights) - answers :] == 1).all()
    return line[: len(line) - answers], line[len(line) - answers :]


def wrong_rows(name, batch):
    """Rows whose answer is not the solver's."""
    rows = [(row, *decode(batch, row)) for row in range(batch.tokens_BT.shape[0])]
    return [row for row, q, a in rows if solve(name, q, len(q) + len(a)) != a]


def make(name, **more):
    task, options, _ = CASES[name]
    return tasks.make(task, **options, **more)


def sizes(task):
    return jnp.arange(task.least, task.least + 9, dtype=jnp.int32)


@functools.cache
def sampled(name, padding="right"):
    """Training batches of three keys in one program, nine sizes in each batch: [3 * 9, T]."""
    task = make(name, padding=padding)
    width = task.width(task.least + 8) + 3
    sample = jit(jax.vmap(lambda key: task.sample((), key, sizes(task), width)))
    return jax.tree.map(lambda x: x.reshape(27, *x.shape[2:]), sample(keys()))


def keys():
    return jax.random.split(jax.random.key(1), 3)


def jit(function, static=()):
    """These programs are all integers: unoptimised they give the same and compile twice as fast."""
    options = {"xla_backend_optimization_level": 0}
    return jax.jit(function, static_argnums=static, compiler_options=options)


def same(a, b):
    return all((x == y).all() for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


def test_every_task_has_a_case():
    here = {name for name, _, _ in CASES.values()}
    text = {"stdlib", "stdlib_tokens", "prose", "dna"}
    elsewhere = {*test_algorithmic_tasks.CASES, "flip_flop", "lookup", *text}
    elsewhere |= {name for name, _, _ in test_position_tasks.CASES.values()}
    assert here | elsewhere == set(names("tokens"))


@pytest.mark.thorough(after=2)
@pytest.mark.parametrize("name", CASES)
def test_answers_are_right(name):
    task, batch = make(name), sampled(name)
    assert wrong_rows(name, batch) == []
    tokens = np.asarray(batch.tokens_BT)
    assert tokens.min() >= 0
    assert tokens.max() < task.vocab
    widths = np.asarray((batch.layout.segment_BT > 0).sum(axis=1))
    assert widths.tolist() == [task.width(int(size)) for size in sizes(task)] * 3


@pytest.mark.thorough(after=5)
@pytest.mark.parametrize("name", CASES)
def test_a_wrong_target_is_noticed(name):
    batch = sampled(name)
    targets_BT = np.array(batch.targets_BT)
    for row in (4, 20):
        targets_BT[row, np.flatnonzero(batch.weights_BT[row])[-1]] += 1
    assert wrong_rows(name, batch._replace(targets_BT=targets_BT)) == [4, 20]


@pytest.mark.thorough
@pytest.mark.parametrize("name", CASES)
def test_examples_do_not_depend_on_width_or_vmap(name):
    task, mapped = make(name), sampled(name)
    width = task.width(task.least + 8) + 10
    one = jit(task.sample, 3)((), keys()[1], sizes(task), width)
    for row in range(9):
        assert decode(one, row) == decode(mapped, 9 + row)
    assert decode(one, 8) != decode(mapped, 8)


@pytest.mark.thorough(after=1)
@pytest.mark.parametrize("name", ["copy", "addition", "associative_recall", "periodic"])
def test_padding_sides_hold_the_same_lines(name):
    right, left = sampled(name, "right"), sampled(name, "left")
    assert (right.layout.segment_BT[:, 0] == 1).all()
    assert (left.layout.segment_BT[:, -1] == 1).all()
    assert not same(right, left)
    assert wrong_rows(name, left) == []
    for row in range(27):
        assert decode(right, row) == decode(left, row)
        for batch in (right, left):
            inside = np.asarray(batch.layout.segment_BT[row]) > 0
            positions = np.asarray(batch.layout.pos_BT[row])[inside]
            assert positions.tolist() == list(range(inside.sum()))


@pytest.mark.thorough
def test_a_size_may_be_traced():
    task = make("copy")
    static = jit(task.test, (2, 3))((), jnp.arange(2), 6, 20)
    assert same(static, jit(task.test, 3)((), jnp.arange(2), jnp.int32(6), 20))
    assert not same(static, jit(task.test, (2, 3))((), jnp.arange(2), 7, 20))


@pytest.mark.thorough
def test_streams_have_no_example_in_common():
    task = make("copy")
    size, count = jnp.int32(8), 200
    width = task.width(8)
    lines = lambda batch: {tuple(row) for row in np.asarray(batch.tokens_BT).tolist()}
    index_B, size_B = jnp.arange(count), jnp.full(count, size)
    test, valid = (
        lines(jit(functools.partial(task.test, split=split), 3)((), index_B, size, width))
        for split in ("test", "valid")
    )
    train = lines(jit(task.sample, 3)((), jax.random.key(0), size_B, width))
    assert len(test) == len(valid) == len(train) == count
    assert len(test | valid | train) == 3 * count
    assert test == lines(jit(make("copy").test, 3)((), index_B, size, width))


def test_fixed_examples_are_the_same_in_every_version():
    """These numbers were written down once; published scores stand on them."""
    task = tasks.make("copy", alphabet=10)
    batch = jit(task.test, 3)((), jnp.arange(2), jnp.int32(4), task.width(4))
    assert batch.tokens_BT.tolist() == [
        [BOS, 7, 5, 7, 14, SEP, 7, 5, 7, 14],
        [BOS, 13, 7, 7, 10, SEP, 13, 7, 7, 10],
    ]


@pytest.mark.parametrize(("a", "b"), [(999999, 1), (5, 5), (123456, 876543), (45, 999955), (0, 0)])
def test_carries_run_through_nines(a, b):
    digits = lambda number: jnp.asarray([number // 10**i % 10 for i in range(7)], jnp.int32)
    total = arithmetic.add_digits(digits(a), digits(b))
    assert sum(int(d) * 10**i for i, d in enumerate(total)) == a + b


def test_shuffled_is_a_fair_permutation():
    order_BK = jax.vmap(lambda key: recall.shuffled(key, 5))(
        jax.random.split(jax.random.key(0), 4000)
    )
    assert (jnp.sort(order_BK, axis=1) == jnp.arange(5)[None]).all()
    share = np.asarray([(order_BK == k).mean(axis=0) for k in range(5)])
    assert np.abs(share - 0.2).max() < 0.03  # five standard deviations


@pytest.mark.thorough(after=2)
@pytest.mark.parametrize("name", ["parity", "missing_duplicate_string", "associative_recall"])
def test_chance_is_what_a_guess_gets(name):
    task = tasks.make(name)
    batch = jit(task.test, 3)((), jnp.arange(2000), jnp.int32(9), task.width(9))
    answers = np.asarray(batch.targets_BT)[np.asarray(batch.weights_BT) == 1]
    assert len(answers) == 2000
    share = np.bincount(answers)[answers.min() :] / 2000
    chance = task.baselines()["chance"]
    assert np.abs(share - chance).max() < 5 * np.sqrt(chance * (1 - chance) / 2000)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("cpoy", {}, "task.name: no task 'cpoy'; did you mean copy"),
        ("token:tokens", {}, "task.name: no task 'token:tokens'; did you mean tokens:PATH? choi"),
        ("tfd:a/b:1.0", {}, "task.name: no task 'tfd:a/b:1.0'; did you mean tfds:NAME? choices: "),
        ("canvass:x", {}, "task.name: no task 'canvass:x'; did you mean canvas:PATH? choices: st"),
        ("zz:path", {}, "task.name: no task 'zz:path'; choices: stdlib"),  # control
        ("tokens:", {}, "task.name: 'tokens:' lacks its path; it is written tokens:PATH"),
        ("tokens:/no/folder", {}, "py TEXT --tokenizer=bpe:SIZE --out=/no/folder"),
        ("copy", {"nam": "sort"}, "task.nam: copy takes no such option; did you mean name? "),
        ("copy", {"alphabte": 3}, "task.alphabte: copy takes no such option; did you mean alph"),
        ("copy", {"alphabet": "3"}, "task.alphabet: '3' is not of type int"),
        ("copy", {"alphabet": True}, "task.alphabet: True is not of type int"),
        ("copy", {"alphabet": 1}, "task.alphabet: 1 is too small; 2 or more"),
        ("sort", {"padding": "top"}, "task.padding: 'top' is not one of: 'right', 'left'"),
        ("addition", {"reverse": 1}, "task.reverse: 1 is not of type bool"),
        ("associative_recall", {"keys": 5000}, "task.keys: 5000 is too large; 4096 or less"),
        ("periodic", {"period": 0}, "task.period: 0 is too small; 1 or more"),
    ],
)
def test_a_wrong_name_or_option_is_refused(name, options, message):
    for refuse in (tasks.make, tasks.check):
        with pytest.raises(ValueError, match=re.escape(message)) as caught:
            refuse(name, **options)
        assert str(caught.value).startswith("task.")
        assert "\n" not in str(caught.value)


def test_sizes_a_task_does_not_have_are_refused():
    tasks.check("periodic", {"train.length": [9]}, period=8)
    with pytest.raises(ValueError, match=r"train.length: 8 is not a size of task periodic; 9 or m"):
        tasks.check("periodic", {"train.length": [9, 8]}, period=8)
    with pytest.raises(ValueError, match=r"eval.lengths: 9 is not a size .* 1 to 8"):
        tasks.check("associative_recall", {"eval.lengths": [4, 9]}, keys=8)
    copy = tasks.make("copy")
    with pytest.raises(ValueError, match="size: 0 is not a size of task copy"):
        copy.test((), jnp.arange(1), 0, 9)
    with pytest.raises(ValueError, match="width: 9 is too narrow for copy of size 4; 10 or more"):
        copy.test((), jnp.arange(1), 4, 9)


def test_facts_name_the_task_and_all_its_options():
    facts = tasks.make("copy", alphabet=7).facts
    assert facts["task"] == "copy"
    assert facts["options"] == {"symbols": "random", "alphabet": 7, "padding": "right"}
    assert tasks.options("copy")["alphabet"] == 100
