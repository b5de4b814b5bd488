"""Models of stored runs: loaded, and evaluated again without a change to the run."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import experiments
from configs import common
from experiments.compare import loading
from posenc_jax import full, lab
from posenc_jax.lab import runs
from posenc_jax.options import FieldError
from scripts import evaluate, report
from tests.support import ROOT


def tiny(**fields: Any):
    """A config whose programs compile in a second."""
    config: Any = common.config(
        "length_extrapolation",
        encoding={"name": "rope"},
        task={"name": "copy", "alphabet": 4},
        model={"width": 8, "heads": 1, "layers": 1, "mlp": 1},
        train={"length": 4, "batch": 2, "steps": 4, "chunk": 2, "warmup": 1},
        eval={"lengths": (4,), "examples": 4},
        checkpoint={"at": (2,)},
        seeds=2,
    )
    config.update(fields)
    return config


def hashes(folder: Path) -> dict[str, str]:
    """The SHA-256 of every file of a run, without those of its evaluations."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.relative_to(folder).parts[0] != "evaluations"
    }


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    experiments.prepare(tiny().to_dict(), str(folder))()
    return folder


def values(records, **labels):
    """(length, encoding, seed, metric) -> value of the test records."""
    return {
        (r["labels"]["length"], r["labels"]["encoding"], r["seed"], r["metric"]): r["value"]
        for r in records
        if r["labels"]["split"] == "test" and r["metric"] not in runs.TIMES
        and labels.items() <= r["labels"].items()
    }  # fmt: skip


@pytest.mark.thorough
def test_a_loaded_model_gives_the_scores_and_attention_of_the_run(run):
    trained = lab.load(run, "rope", seed=1)
    assert (trained.seed, trained.step, trained.config.train.steps) == (1, 4, 4)
    size, index_B = 4, jnp.arange(4)
    batch = trained.task.test(trained.task.data, index_B, size, trained.task.width(size))
    logits_BTV = trained.model.apply(trained.params, batch.tokens_BT, batch.layout)
    right_BT = logits_BTV.argmax(-1) == batch.targets_BT
    share = float(jnp.average(right_BT.astype(jnp.float32), weights=batch.weights_BT))
    wanted = values(runs.read(run).records)
    assert share == pytest.approx(wanted[4, "rope", 1, "token_accuracy"])
    assert trained.model.attention is not None
    maps = trained.model.attention(trained.params, jnp.ones((1, 5), jnp.int32), full(1, 5))
    assert [weights_BHTT.shape for weights_BHTT in maps] == [(1, 1, 5, 5)]
    np.testing.assert_allclose(np.asarray(maps[0]).sum(-1), 1, rtol=1e-6)
    other = lab.load(run, seed=0, step=2)
    gap = np.abs(np.asarray(other.params["embed"]) - np.asarray(trained.params["embed"])).max()
    assert (other.step, gap > 1e-4) == (2, True), "control: another seed, another step"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"encoding": "ropes"}, r"^encoding: no row 'ropes' in \S+; did you mean rope"),
        ({"seed": 7}, r"^seed: 7: \S+ has the seeds 0, 1$"),
        ({"step": 3}, r"^step: 3: \S+ has no such checkpoint of rope; choices: 2, 4$"),
    ],
)
def test_what_a_run_does_not_have_is_one_line(run, arguments, said):
    with pytest.raises(FieldError, match=said):
        lab.load(run, **arguments)


def test_a_folder_without_a_run_is_one_line(tmp_path):
    with pytest.raises(FieldError, match=r"^run: \S+config.json: No such file or directory$"):
        lab.load(tmp_path)


def test_an_evaluation_touches_nothing_else_and_is_the_same_again(run, capsys):
    before = hashes(run)
    first = lab.evaluate(run, lengths=(4, 8), encodings=("rope", "pi"))
    assert first.path == run / "evaluations" / "4-8-rope-pi"
    assert hashes(run) == before
    assert hashes(first.path), "control: an evaluation writes files"
    trained, again = values(runs.read(run).records), values(first.records)
    same = {key: value for key, value in again.items() if key[:2] == (4, "rope")}
    assert same == trained
    assert {key[:2] for key in again} == {(n, e) for n in (4, 8) for e in ("rope", "pi")}
    assert {record["step"] for record in first.records} == {4}
    source = json.loads((first.path / "start.json").read_text())["rope"]
    assert source["step"] == 4
    assert source["id"] == json.loads((run / "progress.json").read_text())["id"]
    written = hashes(first.path)
    capsys.readouterr()
    assert lab.evaluate(run, lengths=(4, 8), encodings=("rope", "pi")).records == first.records
    assert "finished already; nothing to do" in capsys.readouterr().out
    assert hashes(first.path) == written
    assert report.main([str(first.path)]) == 0
    assert runs.finished([run.parent]) == [run], "a folder of runs has no evaluations in it"


def test_a_kept_step_is_evaluated_as_the_training_was_then(run):
    evaluation = lab.evaluate(run, step=2)
    assert evaluation.path.name == "step2"
    assert {record["step"] for record in evaluation.records} == {2}
    assert values(evaluation.records) != values(runs.read(run).records)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--lengths=x"], "--lengths: 'x' is not a whole number"),
        (["--step=3"], "step: 3: {run} has no such checkpoint; choices: 2, 4"),
        (["--encoding=alibi"], "encoding: {run} did not train 'alibi'; choices: rope"),
        (["--encodings=ropes"], "config.eval.variants: ropes: no method 'ropes'; did you mean"),
        (["--encodings=learned"], "config.eval.variants: learned reads the weights"),
        (["--lengths=0"], "config.eval.lengths[0]: 0 is wrong"),
        (["--name=a/b"], "name: 'a/b' cannot be a folder"),
    ],
)
def test_what_cannot_be_evaluated_is_one_line(run, flags, said, capsys):
    before = sorted(path.name for path in (run / "evaluations").glob("*"))
    monkeyed = evaluate.job.run
    evaluate.job.run = lambda config, workdir, named: _refused(config, workdir)
    try:
        assert evaluate.main([str(run), *flags]) == 2
    finally:
        evaluate.job.run = monkeyed
    line = capsys.readouterr().err
    assert line.startswith(f"error: {said.format(run=run)}"), line
    assert line.count("\n") == 1
    assert sorted(path.name for path in (run / "evaluations").glob("*")) == before


def test_of_a_run_of_several_encodings_the_one_whose_weights_are_read_is_named(run, monkeypatch):
    config = loading.read_config(run)
    names = config.encoding.model_copy(update={"name": "rope,alibi"})
    both = config.model_copy(update={"encoding": names})
    monkeypatch.setattr(loading, "read_config", lambda folder: both)
    monkeypatch.setattr(loading.source, "steps", lambda folder, name: [4])
    with pytest.raises(
        FieldError, match=r"^encoding: \S+ trained rope, alibi; choose whose weights"
    ):
        loading.evaluation(run, encodings=("rope", "yarn"))
    assert loading.evaluation(run, encodings=("yarn",), encoding="rope")[0]["start"]["step"] == 4


def _refused(config, workdir) -> int:
    """`job.run` up to the checks, which is the part before devices are set up."""
    try:
        experiments.prepare(config, workdir)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


@pytest.mark.thorough
def test_the_lab_is_imported_without_what_load_needs():
    program = (
        "import sys, posenc_jax.lab\n"
        "assert 'jax' in sys.modules and 'flax' not in sys.modules\n"
        "assert 'orbax' not in sys.modules and 'experiments' not in sys.modules\n"
        "assert callable(posenc_jax.lab.load) and 'flax' in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT / "docs", text=True,
                          env={"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu", "HOME": "/tmp"},
                          capture_output=True)  # fmt: skip
    assert done.returncode == 0, done.stderr[-500:]
