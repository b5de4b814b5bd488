"""Rules of content: each against loops in plain Python, floors against what was measured apart."""

import math
from collections import Counter
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax.lab import tasks
from posenc_jax.lab.hosts.compiling import jit_quick
from posenc_jax.lab.model.transformer import Model
from posenc_jax.lab.tasks import content_rules
from posenc_jax.lab.tasks.content_rules import Fitted
from posenc_jax.lab.tasks.task import BOS, EOS, PAD, SEP, SYMBOL
from posenc_jax.lab.training.evaluation import batch_scorer


def drawn(task, size, examples=32, padding=0):
    draw = jit_quick(lambda i_B: task.test((), i_B, size, task.width(size) + padding))
    return draw(jnp.arange(examples, dtype=jnp.int32))


def ended(token):
    return EOS if token in (BOS, SEP) else token


def choose(which, at, predicts):
    """The prediction of one of these places, ascending."""
    if which == "vote":
        votes = Counter(predicts(s) for s in at)
        most = max(votes.values())
        # Of equal numbers the one whose last vote came last.
        return predicts(max(s for s in at if votes[predicts(s)] == most))
    return predicts(min(at) if which == "earliest" else max(at))


def suffix(k, which, line, t):
    """What follows the longest run of at most k tokens that ends at t and stood before."""
    begun = [BOS if token == SEP else token for token in line]
    end = line.index(SEP) if SEP in line else len(line)
    for length in range(min(k, t + 1), 0, -1):
        run = begun[t - length + 1 : t + 1]
        at = [s for s in range(length - 1, t) if begun[s - length + 1 : s + 1] == run]
        at = [s for s in at if which != "shown" or s < end]
        if at:
            return choose(which, at, lambda s: ended(line[s + 1]))
    return PAD


def mirror(k, which, line, t):
    """What stands before the longest run up to SEP that is the last tokens backwards."""
    end = line.index(SEP) if SEP in line else len(line)
    for length in range(min(k, t + 1), 0, -1):
        run = line[t - length + 1 : t + 1][::-1]
        at = [s for s in range(1, end + 2 - length) if line[s : s + length] == run]
        if at:
            return choose(which, at, lambda s: ended(line[s - 1]))
    return PAD


def pairs(k, which, line, t):
    """The first token of the pair after the longest run of first tokens that is the run of the last
    second ones. The token at t is the first one of its pair.
    """
    firsts, seconds = line[t % 2 : t + 1 : 2], line[(t + 1) % 2 : t : 2]
    for length in range(min(k, len(seconds)), 0, -1):
        run = seconds[-length:]
        at = [i for i in range(length - 1, len(firsts) - 1)
              if firsts[i - length + 1 : i + 1] == run]  # fmt: skip
        if at:
            return choose(which, at, lambda i: ended(firsts[i + 1]))
    return PAD


def after(m, line, t):
    at = [s for s in range(t) if line[s] == m]
    return ended(line[max(at) + 1]) if at else PAD


def hops(places, line, t):
    """The token so many places from the newest one that is the last token but one."""
    hop = places.get(line[t], 0)
    at = [s for s in range(t - 1) if line[s] == line[t - 1]]
    if not hop or not at or not 0 <= max(at) + hop <= t:
        return PAD
    return ended(line[max(at) + hop])


PLAIN = {"suffix": suffix, "mirror": mirror, "pairs": pairs}
FITTED = Fitted(SYMBOL + 1, {SYMBOL: 1, SYMBOL + 1: -2, SYMBOL + 4: 3})


def plain_rule(name):
    kind, *rest = name.split()
    if rest:
        return partial(PLAIN[kind], int(rest[0]), rest[1])
    return partial(after, FITTED.after) if kind == "after" else partial(hops, FITTED.hops)


@pytest.mark.parametrize(
    ("name", "options", "size"),
    [("copy", {"alphabet": 3}, 12), ("recall_order", {"keys": 2, "values": 3}, 7),
     ("flip_flop", {}, 12), ("reverse", {"alphabet": 2}, 12),
     ("delay", {"lag": 3, "alphabet": 2}, 12),
     ("indirect_indexing", {"alphabet": 16, "reach": 3, "queries": 3}, 9)],
)  # fmt: skip
def test_every_rule_is_that_of_plain_python(name, options, size):
    task = tasks.make(name, **options)
    tokens_BT = np.asarray(drawn(task, size, 8, padding=3).tokens_BT)
    actual = content_rules.guesses(tokens_BT, FITTED)
    assert len(actual) == 16 + 12 + 12 + 2
    for rule, guess_BT in actual.items():
        plain = plain_rule(rule)
        for tokens, guesses in zip(tokens_BT.tolist(), guess_BT.tolist(), strict=True):
            inside = [token for token in tokens if token != PAD]
            assert guesses[: len(inside)] == [plain(inside, t) for t in range(len(inside))], rule
    distinct = {guess_BT.tobytes() for guess_BT in actual.values()}
    assert len(distinct) > 7, "control: the rules are not one"


def test_rules_are_scored_as_models_are():
    """The scores of rules are those of a model that has their predictions as its largest logits."""
    task = tasks.make("copy", alphabet=5)
    batch = drawn(task, 9)
    by_rule = content_rules.scores(batch)
    guesses = content_rules.guesses(np.asarray(batch.tokens_BT))
    for rule in ("suffix 2 earliest", "suffix 1 newest", "mirror 3 newest"):
        logits_BTV = jnp.eye(task.vocab)[guesses[rule]]
        # The scorer reads rows in parts; all 32 fit in one.
        model = Model(lambda key: jnp.zeros(()), lambda params, *_, x=logits_BTV, **form: x)
        scores = batch_scorer(model, content_rules.METRICS)(jnp.zeros(1), batch)
        assert by_rule[rule] == {name: float(values[0]) for name, values in scores.items()}
    assert 0.3 < by_rule["suffix 1 newest"]["token_accuracy"] < 0.9, "control: neither 0 nor 1"


# What was measured apart, tokens and exact match of 26 and 2 letters at 14, 30 and 62 symbols.
MEASURED = [
    ("copy", 26, "suffix 1 newest", ((0.64, 0.01), (0.36, 0.0), (0.14, 0.0))),
    ("copy", 26, "suffix 2 earliest", ((0.99, 0.89), (0.98, 0.54), (0.96, 0.06))),
    ("copy", 2, "suffix 8 earliest", ((1.0, 0.98), (0.99, 0.67), (0.96, 0.06))),
]


@pytest.mark.thorough(after=1)
@pytest.mark.parametrize(("name", "alphabet", "rule", "expected"), MEASURED)
def test_floors_are_those_that_were_measured_apart(name, alphabet, rule, expected):
    task = tasks.make(name, alphabet=alphabet)
    for size, (tokens, exact) in zip((14, 30, 62), expected, strict=True):
        scores = content_rules.scores(drawn(task, size, 256))[rule]
        assert scores["token_accuracy"] == pytest.approx(tokens, abs=0.015)
        assert scores["exact_match"] == pytest.approx(exact, abs=0.1)


# The best rule of a few tokens, and its score, at twice the sizes of training.
ONE_LINE: list[tuple[str, dict[str, Any], str, float]] = [
    ("copy", {"symbols": "distinct", "alphabet": 64}, "suffix 1", 1.0),
    ("reverse", {"symbols": "distinct", "alphabet": 64}, "mirror 1", 1.0),
    ("associative_recall", {"keys": 64, "queries": 8}, "suffix 1", 1.0),
    ("flip_flop", {}, "after", 1.0),
    ("recall_order", {"answers": "first"}, "suffix 1 earliest", 1.0),
    ("recall_order", {"answers": "last"}, "suffix 1 shown", 1.0),
    ("recall_order", {}, "suffix", 0.53),
    ("delay", {"lag": 8, "alphabet": 2}, "pairs 3 vote", 0.70),
    # 6 of the 16 offsets, which go up to 8 to each side.
    ("indirect_indexing", {"alphabet": 128, "queries": 8}, "hops", 0.38),
]


@pytest.mark.thorough(after=3)
@pytest.mark.parametrize(("name", "options", "rule", "expected"), ONE_LINE)
def test_what_solves_each_task_without_positions(name, options, rule, expected):
    task = tasks.make(name, **options)
    (floors,) = content_rules.by_size(task, (12, 24), (48,), examples=64).values()
    name, score = floors["token_accuracy"].short
    assert name.startswith(rule)
    assert score == pytest.approx(expected, abs=0.07)
    assert floors["token_accuracy"].long[1] >= score


def test_a_score_above_the_floor():
    assert content_rules.above_floor(0.75, 0.5) == 0.5
    assert content_rules.above_floor(0.25, 0.5) == -0.5
    assert content_rules.above_floor(1.0, 0.9) == 1.0
    assert math.isnan(content_rules.above_floor(1.0, 1.0))


def test_ends_of_answers_that_have_none_are_not_scored():
    task = tasks.make("associative_recall", keys=32)
    scores = content_rules.scores(drawn(task, 8))["suffix 1 newest"]
    assert scores["token_accuracy"] == scores["symbol_accuracy"] == 1.0
    assert math.isnan(scores["end_accuracy"])
    copy = tasks.make("copy", symbols="distinct", alphabet=32)
    scores = content_rules.scores(drawn(copy, 8))["suffix 1 earliest"]
    assert scores["end_accuracy"] == 1.0, "control: an answer with an end"
