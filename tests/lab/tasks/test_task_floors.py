"""The floor of a task: tables against a count in plain Python, rules against the known answers."""

from collections import Counter, defaultdict

import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax.lab import tasks
from posenc_jax.lab.tasks import task_floors as floors
from posenc_jax.lab.tasks.task import SYMBOL

KNOWN = ("missing_duplicate_string", "parity", "sum", "cycle_navigation", "counting", "bucket_sort")


@pytest.mark.thorough
def test_tables_equal_a_count_in_plain_python():
    task = tasks.make("copy", alphabet=3)
    train, test = floors._drawn(task, (2, 5), 300), next(floors._tested(task, (7,), 40))
    guesses = floors._table_guesses(train, test)

    def answers(rows):
        for tokens, targets, answer in zip(*rows[:3], strict=True):
            for t in np.flatnonzero(answer):
                history = [-1, -1, *tokens[: t + 1].tolist()]
                yield history, int(targets[t])

    counted = defaultdict(Counter)
    for history, target in answers(train):
        for order in range(4):
            counted[order, *history[len(history) - order :]][target] += 1
    for most, name in enumerate(floors.TABLES):
        for (history, _), guess in zip(
            answers(test), guesses[name][test.answer_BT].tolist(), strict=True
        ):
            contexts = [(order, *history[len(history) - order :]) for order in range(most, -1, -1)]
            counts = next(counted[context] for context in contexts if context in counted)
            assert guess == min(counts, key=lambda token: (-counts[token], token))
    assert len(counted) > 50


@pytest.mark.thorough
@pytest.mark.parametrize("name", KNOWN)
def test_the_bag_knows_the_answer(name):
    actual = floors.floor(tasks.make(name), (2, 8), 13, examples=64, fitted=256)
    assert actual.exact_match[1] == actual.token_accuracy[1] == 1.0
    assert actual.exact_match[0] in tasks.make(name).bag


@pytest.mark.thorough
def test_the_floors_of_several_sizes_are_those_of_each():
    task, options = tasks.make("copy"), {"examples": 64}
    actual = floors.by_metric(task, (2, 8), (8, 16), **options)
    for metric, by_size in actual.items():
        assert by_size == {
            n: getattr(floors.floor(task, (2, 8), n, **options), metric)[1] for n in (8, 16)
        }
    assert actual["token_accuracy"][8] > actual["token_accuracy"][16] > 0.1
    assert floors.by_metric(task._replace(metric="bits_per_byte"), (2, 8), (8,), **options) == {}


@pytest.mark.thorough
def test_repeated_symbols_need_no_positions_and_random_ones_do():
    repeated = floors.floor(tasks.make("copy", symbols="repeated"), (3, 8), 8, 64, 256)
    assert repeated.exact_match == ("most frequent unused symbol", 1.0)
    random = floors.floor(tasks.make("copy"), (3, 8), 8, 64, 256)
    assert random.token_accuracy[0] == "most frequent unused symbol"
    assert random.token_accuracy[1] < 0.6
    assert random.exact_match[1] < 0.1


@pytest.mark.thorough
def test_the_next_larger_symbol_scores_what_was_measured():
    """Windows of 32 and 64 tokens; repeats make the rule fail, not the exact counts."""
    task = tasks.make("sort", alphabet=30)
    for window, expected in ((32, 0.811), (64, 0.642)):
        actual = floors.predictors(task, (3, 15), (window - 2) // 2, examples=512, fitted=256)
        assert actual["next larger symbol"].token_accuracy == pytest.approx(expected, abs=0.01)
        assert actual["smallest unused symbol"].exact_match == 1.0
        assert actual["bigram table"].token_accuracy < expected - 0.1


def test_a_rule_sees_counts_of_the_question_and_of_the_answer():
    rows = floors._Rows(
        tokens_BT=np.asarray([[1, SYMBOL, SYMBOL + 1, 2, SYMBOL + 1, SYMBOL]]),
        targets_BT=np.zeros((1, 6), int),
        answer_BT=np.asarray([[False, False, False, True, True, True]]),
        inside_BT=np.ones((1, 6), bool),
    )
    read = lambda token, q_V, a_V: 1000 * token + 100 * q_V[SYMBOL] + 10 * a_V[SYMBOL] + a_V.sum()
    guess_BT = floors._guesses(read, SYMBOL + 2, rows)
    assert guess_BT.tolist() == [[1000, 5100, 6100, 2100, 6101, 5112]]
    assert jnp.asarray(guess_BT).dtype == jnp.int32


def test_text_has_a_floor_of_tables():
    actual = floors.floor(tasks.make("stdlib", stretch=2048), (32, 32), 32, fitted=512)
    assert actual.token_accuracy[0] in floors.TABLES
    assert 0.2 < actual.token_accuracy[1] < 0.8
