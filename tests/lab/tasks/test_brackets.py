"""Closing brackets to tell apart: which are found, what is hidden and counts, and the floors."""

import io
import json
import tokenize

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import experiments
from posenc_jax.lab import runs, tasks
from posenc_jax.lab.tasks import corpus
from posenc_jax.lab.tasks.brackets import (
    CLOSING,
    HIDDEN,
    NEAR,
    OPENING,
    OPENS,
    last_opened,
    marked,
    pairs,
)
from posenc_jax.lab.tasks.shuffled import shuffled
from tests.support.refusing import config_of

FILE = r'''# One of a kind :-)
def first(a, b={"(": [1]}):
    """Not (a) bracket."""
    return [a[0], r"\")"[b["("]], f"{a}"]  # ]
'''
FILES = 80


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("project")
    for n in range(FILES):
        (folder / f"file_{n}.py").write_text(f"n{n:03} = {n}\n" + FILE * (n % 7 + 3))
    return folder


@pytest.fixture(scope="module")
def task(folder):
    return tasks.make(f"functions:{folder}", question="brackets", tested=40)


def written(text):
    """The pairs of brackets that Python's own tokenizer finds."""
    lines = np.cumsum([0, *(len(line) for line in text.splitlines(keepends=True))])
    opened, actual, formatted = [], [], 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        name = tokenize.tok_name[token.type]  # from Python 3.12 on, f-strings are several tokens
        formatted += name.endswith("STRING_START") - name.endswith("STRING_END")
        if formatted:
            continue
        at = lines[token.start[0] - 1] + token.start[1]
        if token.type == tokenize.OP and token.string in "([{":
            opened.append(at)
        elif token.type == tokenize.OP and token.string in ")]}":
            actual.append((opened.pop(), at))
    return np.array(actual)


def test_brackets_are_those_of_the_tokenizer():
    texts = [text for _, text in corpus.texts(corpus.standard_library())["test"]]
    for text in (FILE, *(t.decode() for t in texts if t.isascii() and b"\f" not in t)):
        np.testing.assert_array_equal(pairs(text.encode()).reshape(-1, 2), written(text))
    assert len(texts) > 10
    plain = FILE.replace('"', "").encode()
    assert len(pairs(plain)) != len(written(FILE)), "control: the same without its strings"


@pytest.mark.parametrize("text", [b"(]", b"f(1", b"a)", b"([)]"])
def test_a_text_whose_brackets_do_not_match_has_none(text):
    assert pairs(text).shape == (0, 2)


def test_a_window_ends_in_a_closing_bracket_around_another_pair():
    texts = [b"f(g(1), [])", b"(" + b" " * NEAR + b"())", b"[()]"]
    mark_N, (file_E, end_E, stop_E) = marked(texts)
    joined = b"\0".join(texts)
    assert len(mark_N) == len(joined)
    assert [joined[a:b] for a, b in zip(file_E, stop_E, strict=True)] == [texts[0], texts[2]]
    np.testing.assert_array_equal(end_E, stop_E - 1)
    assert mark_N[:11].tolist() == [0, OPENS, 0, OPENS, 0, 2, 0, 0, OPENS, 1, 9]


def batches(task, size=96):
    """The training, the test and the validation examples of one size."""
    number_B = jnp.arange(40, dtype=jnp.int32)
    size_B = jnp.full(40, size, jnp.int32)
    yield task.sample(task.data, jax.random.key(0), size_B, 128)
    for split in ("test", "valid"):
        yield task.test(task.data, number_B, size, 128, split)


@pytest.mark.thorough
def test_what_is_hidden_is_the_kind_of_the_bracket_that_it_closes(task):
    """A stack of the brackets in sight gives every answer."""
    kinds = []
    for batch in map(jax.device_get, batches(task)):
        for token_T, target_T, weight_T, inside_T in zip(
            batch.tokens_BT, batch.targets_BT, batch.weights_BT, batch.layout.segment_BT,
            strict=True,
        ):  # fmt: skip
            text = bytes(np.where(token_T == HIDDEN, 1, token_T).tolist()[: inside_T.sum()])
            opened = []
            for at, byte in enumerate(unquoted(text)):
                if byte in OPENING:
                    opened.append(byte)
                elif byte == 1 and opened:
                    assert target_T[at] == CLOSING[OPENING.index(opened.pop())]
                    assert weight_T[at] == 1
                    kinds.append(target_T[at])
                else:
                    assert weight_T[at] == 0
            assert text.endswith(b"\1")
            assert weight_T[inside_T.sum() - 1] == 1
        assert last_opened(batch) < 0.9, "control: without a stack"
    shares = np.unique(kinds, return_counts=True)[1] / len(kinds)
    assert shares.shape == (3,)
    assert 0.25 < shares.min() <= shares.max() < 0.42


def unquoted(text):
    """The text without the brackets in the strings and comments of FILE, at the same places."""
    for quoted in (b":-)", b'"("', b"Not (a)", b'"{a}"', b"# ]"):
        text = text.replace(quoted, b"_" * len(quoted))
    return text


@pytest.mark.thorough
def test_numbers_past_the_examples_do_not_count(task):
    batch = task.test(task.data, jnp.arange(38, 44), NEAR, NEAR)
    assert batch.weights_BT.any(axis=1).tolist() == [True, True, False, False, False, False]


@pytest.mark.thorough
def test_an_example_is_the_same_in_any_width_and_the_longer_window_has_more(task):
    number_B = jnp.arange(8)
    short, same = (task.test(task.data, number_B, NEAR, width) for width in (NEAR, 2 * NEAR))
    np.testing.assert_array_equal(short.targets_BT, same.targets_BT[:, :NEAR])
    longer = task.test(task.data, number_B, 2 * NEAR, 2 * NEAR)
    assert longer.weights_BT.sum() > short.weights_BT.sum()


@pytest.mark.thorough
def test_floors_are_far_below_the_answer():
    actual = tasks.make("functions", question="brackets").baselines()
    assert 1 / 3 <= actual["most frequent"] < 0.4
    assert actual["most frequent"] < actual["byte before"] < 0.5 < actual["last opened"] < 0.8


@pytest.mark.thorough
def test_the_control_moves_answers_away_from_their_brackets(task):
    plain, moved = (
        one.test(task.data, jnp.arange(40), NEAR, NEAR) for one in (task, shuffled(task))
    )
    assert moved.weights_BT.sum() == plain.weights_BT.sum()
    assert (moved.tokens_BT != plain.tokens_BT).any(axis=1).all()
    assert last_opened(moved) < last_opened(plain) - 0.1


@pytest.mark.thorough
def test_it_runs_to_its_report_and_the_page_of_both_questions(folder, tmp_path):
    for question in ("complete", "brackets"):
        named = f"functions:{folder}"
        config = config_of("completion", f"{question},rope,quick", seeds=1, task__name=named)
        config["model"].update(width=16)
        config["train"].update(steps=2, chunk=2, batch=2)
        config["eval"]["lengths"] = (64,)
        config["task"]["tested"] = 40
        experiments.prepare(config, str(tmp_path / question))()
    summary = json.loads((tmp_path / "brackets" / "summary.json").read_text())
    assert summary["metric"] == "token_accuracy"
    assert set(summary["results"]) == {"rope", "rope, shuffled"}
    assert set(summary["baselines"]) == {"most frequent", "byte before", "last opened"}
    actual = [runs.read(tmp_path / question) for question in ("complete", "brackets")]
    name, said, parts = experiments.document(actual)
    assert name == "completion"
    assert [part.title.split(", ")[1] for part in parts[:-1]] == ["complete", "brackets"]
    assert any(line.startswith("Share of closing brackets that are right: ") for line in said)
    with pytest.raises(ValueError, match="are both on functions"):
        experiments.document([actual[0], actual[0]])


def test_code_without_nested_brackets_is_refused(tmp_path):
    for n in range(200):
        (tmp_path / f"{n}.py").write_text(f"x_{n} = f(1)\n" * 50)
    with pytest.raises(ValueError, match="no closing bracket around another pair") as caught:
        tasks.make(f"functions:{tmp_path}", question="brackets")
    assert "\n" not in str(caught.value)
