"""Models of stored runs: loaded, and evaluated again without a change to the run."""

import hashlib
import importlib
import json
import re
import shutil
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
from experiments.compare.fields import Config
from experiments.compare.length_extrapolation import config as length_extrapolation
from posenc_jax import chain, full, lab, make
from posenc_jax.lab import runs
from posenc_jax.lab.hosts import failpoints
from posenc_jax.lab.hosts.exit_status import Refused
from posenc_jax.lab.runs import source
from posenc_jax.lab.runs.checkpoints import named_leaves
from posenc_jax.options import FieldError
from scripts import evaluate, report
from tests.support import ROOT
from tests.support.small_runs import COMPARISONS, small


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


class Killed(BaseException):
    """Stands in for SIGKILL: no code of the package catches it."""


def killed_at(monkeypatch, name: str, count: int, config: dict[str, Any], folder: Path) -> None:
    """Runs until the failpoint is reached for this time."""
    reached = []

    def reach(point):
        reached.append(point)
        if point == name and reached.count(name) == count:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(failpoints, "reach", reach)
        with pytest.raises(Killed):
            experiments.prepare(config, str(folder))()


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


@pytest.mark.parametrize(
    ("function", "arguments", "said"),
    [
        (lab.load, {"encoding": ["rope"]}, "encoding: ('rope',) is not of type str"),
        (lab.load, {"seed": "0"}, "seed: '0' is not of type int or None"),
        (lab.load, {"seed": True}, "seed: True is not of type int or None"),
        (lab.load, {"seed": 1.0}, "seed: 1.0 is not of type int or None"),
        (lab.load, {"step": "4"}, "step: '4' is not of type int or None"),
        (lab.evaluate, {"lengths": "64"}, "lengths: ('64',) is not of type tuple of int"),
        (lab.evaluate, {"lengths": (4.0,)}, "lengths: (4.0,) is not of type tuple of int"),
        (lab.evaluate, {"encodings": 3}, "encodings: (3,) is not of type tuple of str"),
        (lab.evaluate, {"encoding": ("rope",)}, "encoding: ('rope',) is not of type str"),
        (lab.evaluate, {"step": "4"}, "step: '4' is not of type int or None"),
        (lab.evaluate, {"task": "copy"}, "task: 'copy' is not of type dict"),
        (lab.evaluate, {"name": 3}, "name: 3 is not of type str"),
        (lab.load, {"run": 3}, "run: 3 is not of type str or Path"),
        (lab.evaluate, {"run": None}, "run: None is not of type str or Path"),
        (lab.load, {"run": "~nobody_of_this_name/run"}, "run: there is no home folder of ~nobod"),
    ],
)
def test_an_argument_of_another_type_is_one_line(run, function, arguments, said):
    with pytest.raises(FieldError, match=f"^{re.escape(said)}"):
        function(**{"run": run, **arguments})


def test_one_number_and_one_name_stand_for_themselves(run, monkeypatch):
    monkeypatch.setenv("HOME", str(run.parent))
    for lengths, encodings in ((8, "yarn"), (np.int64(8), ["yarn"]), (range(8, 9), ("yarn",))):
        config, folder = loading.evaluation("~/run", lengths, encodings)
        assert folder == run / "evaluations" / "8-yarn"
        assert (config["eval"]["lengths"], config["eval"]["variants"]) == ((8,), ("yarn",))
    assert lab.load("~/run", "rope", seed=np.int64(1)).seed == 1


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


def test_weights_are_evaluated_on_another_task_of_the_same_symbols(run):
    before = hashes(run)
    same = lab.evaluate(run, task={"alphabet": 4}, name="same_task")
    assert values(same.records) == values(runs.read(run).records)
    other = lab.evaluate(run, task={"name": "reverse", "alphabet": 4})
    assert other.path.name == "reverse-4"
    assert other.config["task"] == {"name": "reverse", "alphabet": 4}
    assert values(other.records) != values(same.records) != {}, "control"
    assert {key[3] for key in values(other.records)} == {"exact_match", "loss", "token_accuracy"}
    assert hashes(run) == before


def test_weights_of_4_symbols_are_evaluated_on_a_task_of_9_or_more(run):
    """The sizes in training are asked of a task that is trained on."""
    task = {"name": "periodic", "alphabet": 4}
    other = lab.evaluate(run, lengths=(9, 12), task=task)
    assert {key[0] for key in values(other.records)} == {9, 12}
    assert set(other.by_length.floors) == {9, 12}
    with pytest.raises(FieldError, match=r"^config.eval.lengths: 8 is not a size of task per"):
        lab.evaluate(run, lengths=(8,), task=task)
    with pytest.raises(FieldError, match=r"^config.train.min_length: 4 is not a size of task per"):
        experiments.check(tiny(task=task, eval={"lengths": (9,)}).to_dict())


def test_another_evaluation_of_the_same_name_is_told_to_choose_another(run, tmp_path):
    lab.evaluate(run, step=2, name="taken")
    said = r"^workdir: \S+taken already holds a run, with .*; choose another --name$"
    with pytest.raises(Refused, match=said):
        lab.evaluate(run, step=4, name="taken")
    with pytest.raises(Refused, match=r"; choose another --workdir$"):  # control
        experiments.prepare(tiny(seeds=3).to_dict(), str(run))


def test_a_task_of_other_symbols_is_told_by_their_number_and_leaves_nothing(run, tmp_path):
    folder = shutil.copytree(run, tmp_path / "run", ignore=lambda *_: ["evaluations"])
    before = sorted(path.name for path in folder.iterdir())
    with pytest.raises(
        FieldError, match=r"^config.task.name: 'copy' has 10 symbols; .* know 9: use"
    ):
        lab.evaluate(folder, task={"alphabet": 5})
    assert sorted(path.name for path in folder.iterdir()) == before
    lab.evaluate(folder, task={"alphabet": 4})
    assert sorted(path.name for path in folder.iterdir()) == sorted([*before, "evaluations"])


@pytest.mark.thorough
def test_a_learned_table_is_read_past_its_end_as_the_message_says(tmp_path):
    """Clamped to the trained window: the rows after it were never trained."""
    folder = tmp_path / "run"
    config = tiny(encoding={"name": "learned"}).to_dict() | {"seeds": 1}
    experiments.prepare(config, str(folder))()
    with pytest.raises(FieldError) as error:
        lab.evaluate(folder, (4, 300))
    assert str(error.value) == (
        "config.eval.lengths: 602 is past what learned reaches, 512; shorten it, or read its "
        "weights as clamped+learned or interpolated+learned, by eval.variants or --encodings"
    )
    stored = lab.evaluate(folder, (4, 300), ("clamped+learned", "interpolated+learned"))
    trained = values(runs.read(folder).records, length=4)
    here = values(stored.records, length=4, encoding="clamped+learned")
    assert [*here.values()] == [*trained.values()]
    assert len(values(stored.records, length=300)) == 2 * len(trained)

    for stated in ({}, {"length": 600}):
        whole = experiments.check(config | {"encoding": {"name": "learned", **stated}})
        assert isinstance(whole, length_extrapolation.Config)
        learned = make("learned", **{"length": 512} | stated)
        wanted = {
            "clamped+learned": chain(make("clamped", length=10), learned),
            "interpolated+learned": chain(make("interpolated", length=10), learned),
            "learned+alibi": chain(learned, make("alibi")),
        }
        for label, encoding in wanted.items():
            assert length_extrapolation.variant(whole, "learned", label, 300) == encoding
            assert make(label, length=10) != encoding, "control"


@pytest.mark.parametrize(
    ("name", "folder"),
    [("file:novel.txt", "file-novel.txt"), ("file:/a b/c.txt", "file-a-b-c.txt")],
)
def test_an_evaluation_on_another_text_has_a_folder_of_its_own(run, name, folder):
    _, workdir = loading.evaluation(run, task={"name": name})
    assert workdir == run / "evaluations" / folder


def test_a_training_goes_on_with_its_task_alone(run, tmp_path):
    """The control of the test before: where steps are left, the task may not differ."""
    start = {"run": str(run), "what": "state"}
    config = tiny(start=start, task={"name": "reverse", "alphabet": 4})
    config.train.steps = 6
    config.train.schedule = {"name": "constant"}
    with pytest.raises(
        FieldError, match=r"^config.task.name: 'reverse', but \S+ was trained with 'c"
    ):
        experiments.prepare(config.to_dict(), str(tmp_path / "new"))


@pytest.mark.thorough
@pytest.mark.parametrize("name", COMPARISONS)
def test_every_comparison_is_evaluated_and_loaded_again(name, tmp_path, capsys):
    """Also the rows of one encoding that has several."""
    folder = tmp_path / "run"
    experiments.prepare(small(name), str(folder))()
    before, config = hashes(folder), loading.read_config(folder)
    wanted, again = runs.read(folder), lab.evaluate(folder)
    assert values(again.records) == values(wanted.records) != {}
    assert values(lab.evaluate(folder, step=2).records) != values(wanted.records), "control"
    assert hashes(folder) == before
    for row in config.row_names:
        trained = lab.load(folder, row, seed=1)
        stored = source.read_weights(source.find(folder, row))
        for leaf_name, leaf in named_leaves(trained.params).items():
            np.testing.assert_array_equal(leaf, stored[leaf_name][1])
        gaps = [abs(leaf[0] - leaf[1]).max() for leaf in stored.values() if leaf.size]
        assert max(gaps) > 1e-3, "control: the other seed"
    assert "the training has not ended" not in capsys.readouterr().out
    every = re.escape(", ".join(config.row_names))
    with pytest.raises(FieldError, match=rf"^encoding: \S+ trains {every}; name one$"):
        lab.load(folder)


KEEP_NONE = [
    name for name in experiments.names() if not issubclass(experiments.config_class(name), Config)
]


@pytest.mark.parametrize("name", KEEP_NONE)
def test_a_run_that_keeps_no_models_is_refused_in_one_line(name, tmp_path, capsys):
    config = importlib.import_module(f"configs.{name}").get_config("quick")
    stored = experiments.check(config.to_dict())
    with runs.Run(tmp_path / "run", stored.model_dump()):
        pass
    said = f"{tmp_path}/run: {name} keeps no models; experiments that do: classification, "
    with pytest.raises(FieldError, match=f"^run: {re.escape(said)}"):
        lab.load(tmp_path / "run")
    assert evaluate.main([str(tmp_path / "run")]) == 2
    line = capsys.readouterr().err
    assert line.startswith(f"error: run: {said}")
    assert line.count("\n") == 1
    started = tiny(start={"run": str(tmp_path / "run"), "what": "weights"}).to_dict()
    with pytest.raises(FieldError, match=f"^config.start.run: {re.escape(said)}"):
        experiments.prepare(started, str(tmp_path / "new"))


def test_experiments_that_keep_no_models_are_few():
    """The control of the test before."""
    assert len(KEEP_NONE) < len(experiments.names()) - len(COMPARISONS)


@pytest.mark.thorough
def test_a_run_that_was_killed_is_evaluated_at_its_newest_step_and_says_so(
    tmp_path, monkeypatch, capsys
):
    folder = tmp_path / "run"
    config = tiny(encoding={"name": "rope,alibi"}, checkpoint={"seconds": 0.0}).to_dict()
    killed_at(monkeypatch, "training", 4, config, folder)  # of alibi only step 2 was saved
    capsys.readouterr()
    first = lab.evaluate(folder, encoding="alibi")
    said = f"{folder}, alibi at step 2 of 4: the training has not ended\n"
    assert capsys.readouterr().out.startswith(said)
    assert first.path.name == "alibi-step2"
    assert {record["step"] for record in first.records} == {2}
    both = lab.evaluate(folder)
    assert capsys.readouterr().out.startswith(f"{folder}: no checkpoint at step 4 of alibi, left")
    assert {record["labels"]["encoding"] for record in both.records} == {"rope"}
    loading.evaluation(folder, encodings=("rope",))
    assert "left out" not in capsys.readouterr().out, "rope alone was asked for"
    assert lab.load(folder, "alibi").step == 2
    assert capsys.readouterr().out == said
    assert lab.load(folder, "alibi", step=2).step == 2
    assert capsys.readouterr().out == "", "the step was chosen"
    experiments.prepare(config, str(folder))()
    capsys.readouterr()
    assert lab.evaluate(folder, encoding="alibi").path.name == "alibi"
    assert "the training has not ended" not in capsys.readouterr().out, "control"


@pytest.mark.thorough
def test_the_page_of_an_unfinished_run_says_at_which_step_it_was_evaluated(tmp_path, monkeypatch):
    """And its command evaluates that step again. The control is the finished run."""
    folder = tmp_path / "run"
    config = tiny(checkpoint={"seconds": 0.0}).to_dict()
    killed_at(monkeypatch, "training", 2, config, folder)
    monkeypatch.setattr(evaluate.job, "run", lambda *given, **how: _run(*given))

    def page(name: str) -> str:
        monkeypatch.setattr(sys, "argv", ["scripts/evaluate.py", str(folder)])
        assert evaluate.main() == 0
        return (folder / "evaluations" / name / "report.html").read_text()

    unfinished = page("step2")
    assert "rope · trained at length 4 · 2 seeds · weights after 2 of 4 steps · " in unfinished
    assert f"evaluate.py {folder} --step=2</code>" in unfinished
    _run(config, str(folder))
    finished = page("again")
    assert "weights after" not in finished, "control"
    assert "--step" not in finished.partition("Configuration and machine")[0], "control"


def _run(config, workdir) -> int:
    experiments.prepare(config, workdir)()
    return 0


def test_a_run_that_was_killed_before_its_first_checkpoint_is_one_line(
    tmp_path, monkeypatch, capsys
):
    folder = tmp_path / "run"
    killed_at(monkeypatch, "training", 1, tiny().to_dict(), folder)
    with pytest.raises(FieldError, match=r"^run: \S+ has no complete checkpoint of rope$"):
        lab.load(folder)
    assert evaluate.main([str(folder)]) == 2
    assert capsys.readouterr().err == f"error: run: {folder} has no complete checkpoint\n"


@pytest.mark.thorough
def test_an_encoding_is_evaluated_when_all_its_rows_have_a_checkpoint(tmp_path, monkeypatch):
    """The weights of one row would else be read as those of the other, at other positions."""
    folder, config = tmp_path / "run", small("multimodal")
    config["encoding"]["name"] = "rope"  # by index, and on time
    killed_at(monkeypatch, "training", 3, config, folder)
    assert source.steps(folder, "rope") == [2, 4]
    assert lab.load(folder, "rope").step == 4
    with pytest.raises(FieldError, match=r"^run: \S+ has no complete checkpoint$"):
        lab.evaluate(folder)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--lengths=x"], "--lengths: 'x' is not a whole number"),
        (["--step=3"], "step: 3: {run} has no such checkpoint; choices: 2, 4"),
        (["--encoding=alibi"], "encoding: {run} did not train 'alibi'; choices: rope"),
        (["--encodings=ropes"], "config.eval.variants: ropes: no method 'ropes'; did you mean"),
        (["--encodings=learned"], "config.eval.variants: learned reads the weights"),
        (["--lengths=0"], "config.eval.lengths[0]: 0 is wrong"),
        (["--config.task.name=copies"], "config.task.name: no task 'copies'; did you mean copy"),
        (["--config.train.steps=6"], "--config.train.steps: an evaluation changes fields of the"),
        (["--step", "2", "more"], "more: not a flag; a field is set as --config.FIELD=VALUE"),
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
