"""Functions to complete: where their bodies begin, what counts, own folders, the experiment."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import experiments
from experiments.compare.completion.run import EDGES, by_offset
from posenc_jax.lab import runs, tasks
from posenc_jax.lab.metrics import Scores, Sums
from posenc_jax.lab.tasks.functions import ANSWER, bodies
from tests.support.refusing import config_of, refused

FILE = '''"""A module."""
import os


def first(a):
    """Says é.

    More."""
    return a + 1  # one


class One:
    async def second(self): return self

    def third(self):
        """Nothing but this."""

    def fourth(self):
        def fifth():
            yield 1234567890123456789012345678901234567890
        return fifth
'''


def test_a_body_begins_after_its_docstring():
    text = FILE.encode()
    actual = [text[start:stop] for start, stop in bodies(text)]
    assert actual == [
        b"return a + 1",
        b"return self",
        b"def fifth():\n            yield 123"[:ANSWER],
        b"yield 1234567890123456789012345678901234567890"[:ANSWER],
    ]
    assert [*map(len, actual)] == [12, 11, ANSWER, ANSWER]
    assert bodies(b"def broken(:\n") == []


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder of 80 files, each with its number in it; not all of them Python."""
    folder = tmp_path_factory.mktemp("project")
    for n in range(80):
        (folder / f"file_{n}.py").write_text(FILE.replace("import os", f"import n{n:03}") * (n + 1))
        (folder / f"notes_{n}.txt").write_text("def no(): return python")
    return folder


@pytest.mark.thorough
def test_a_window_is_the_file_before_the_function(folder):
    task = tasks.make(f"functions:{folder}", tested=60)
    text, (file_N, start_N, stop_N) = (
        np.asarray(task.data["test"]), map(np.asarray, task.data["test ends"])
    )  # fmt: skip
    count, size = task.examples(96), 96
    assert count == 60
    batch = jax.device_get(task.test(task.data, jnp.arange(count + 3), size, 100))
    assert not batch.weights_BT[count:].any()
    for row in range(count):
        inside = batch.layout.segment_BT[row] > 0
        window = bytes(batch.tokens_BT[row][inside].tolist())
        counted = batch.weights_BT[row] > 0
        answer = bytes(batch.targets_BT[row][counted].tolist())
        assert answer == text[start_N[row] : stop_N[row]].tobytes()
        assert window == text[max(file_N[row], stop_N[row] - 97) : stop_N[row] - 1].tobytes()
        assert len(window) <= size
        assert counted.nonzero()[0].max() == inside.nonzero()[0].max()
    assert len(set(file_N)) > 2
    assert b"notes" not in text.tobytes()


def test_completion_is_recorded_by_place_in_the_file():
    config = experiments.check(config_of("completion", seeds=1))
    offset_E = np.repeat([10, 2000, 70000], 8)
    right_SE = np.repeat([[1.0, 2.0, 3.0]], 8, axis=1)
    scores = Scores({"token_accuracy": Sums(right_SE, np.full((1, 24), 4.0))}, {})
    row = type("One", (), {"label": "rope", "length": 64})()
    actual = [*by_offset(config, offset_E, None, row, scores)]
    assert [(r["labels"]["offset"], r["value"]) for r in actual] == [
        (0, 0.25), (EDGES[1], 0.5), (EDGES[-1], 0.75)
    ]  # fmt: skip


@pytest.mark.thorough
def test_it_runs_to_its_report_and_page(folder, tmp_path):
    config = config_of("completion", "rope,quick", seeds=1, task__name=f"functions:{folder}")
    config["model"].update(width=16)
    config["train"].update(steps=2, chunk=2, batch=2)
    config["eval"]["lengths"] = (64,)
    config["task"]["tested"] = 200
    experiments.prepare(config, str(tmp_path))()
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert set(summary["results"]) == {"rope", "rope, shuffled"}
    assert set(summary["baselines"]) == {"bigram"}
    assert "by_place.png" in {path.name for path in (tmp_path / "figures").iterdir()}
    name, said, parts = experiments.document([runs.read(tmp_path)])
    assert name == "completion"
    assert said[-2].startswith(
        "Share of a function's first bytes that are right: in the first 1024 bytes"
    )
    of_task, limits = parts
    assert of_task.title == f"functions:{folder}, complete, tested 200"
    assert limits.title == "What it does not show"
    # What is folded, such as every seed, comes after it.
    assert "By place in the file" in [getattr(part, "title", "") for part in of_task.parts]


def test_folders_without_functions_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"task\.name: functions:.*: no such folder; give a"):
        tasks.check("functions:nowhere", reads="code")
    for n in range(200):
        (tmp_path / f"{n}.py").write_text(f"x_{n} = 1\n" * 50)
    with pytest.raises(ValueError, match="has no function with a body of code") as caught:
        tasks.make(f"functions:{tmp_path}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model.kind": "encoder"}, ["model.kind", "encoder", "decoder"]),
        ({"task.name": "stdlib"}, ["task.name", "stdlib", "functions:PATH"]),
        ({"task.tested": 0}, ["task.tested", "0", "1 or more"]),
        ({"train.length": 16, "train.min_length": 16}, ["train.min_length", "16", "32 to"]),
        ({"eval.lengths": (128,)}, ["eval.lengths", "must hold", "64"]),
        ({"encoding.name": "axial"}, ["encoding.name", "axial", "2 axes"]),
    ],
)
def test_wrong_fields_are_refused_in_one_line(changes, words):
    refused(config_of("completion"), changes, words)
