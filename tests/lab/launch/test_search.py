"""A search: what W&B gets, what Optuna draws, which trials are stopped, what a restart repeats."""

import json
import time

import pytest
import yaml

from posenc_jax.lab.config import searches
from posenc_jax.lab.config.searches import Range, Search
from posenc_jax.lab.config.sweeps import Point, Sweep
from posenc_jax.lab.hosts.exit_status import Interrupted
from posenc_jax.lab.launch import agents, search
from posenc_jax.options import FieldError
from scripts import sweep as script
from tests.support import ROOT

# A run whose loss is lowest at a rate of 0.001. With "slow" in its folder's parent a run whose rate
# is far from that goes on for a minute.
TRAIN = """
import json, math, pathlib, sys, time
given = dict(a.removeprefix("--").split("=", 1) for a in sys.argv if "=" in a)
folder, lr = pathlib.Path(given["workdir"]), float(given["config.train.lr"])
folder.mkdir(exist_ok=True)
with (folder / "starts").open("a") as file:
    file.write("x")
(folder / "config.json").write_text(json.dumps({"train": {"lr": lr}, "environment": {}}))
off = abs(math.log10(lr) + 3)
labels = {"encoding": "rope", "split": "valid", "length": 8}
(folder / "metrics.jsonl").write_text("".join(
    json.dumps({"step": n, "seed": 0, "labels": labels, "metric": "loss", "value": off + 1 / n})
    + chr(10) for n in (1, 2, 3, 4)))
if (folder.parent / "slow").exists() and off > 0.6:
    time.sleep(60)
cell = lambda mean: {"mean": mean, "low": None, "high": None, "seeds": [mean]}
results = {"rope": {"8": cell(9.0), "16": cell(off)}}
summary = {"metric": "bits_per_byte", "train_length": 8, "results": results}
(folder / "summary.json").write_text(json.dumps(summary))
"""
LR = Range(1e-5, 1e-1, log=True)
SEARCH = Search({"train.lr": LR}, "extrapolation/mean", "minimize", trials=14)
SWEEP = Sweep("s", "c.py", [Point("shared", {})])


@pytest.fixture
def go(tmp_path):
    """Runs a search in a folder; returns its trials."""
    pytest.importorskip("optuna", reason="of the extra search, and of requirements-dev.txt")
    train = tmp_path / "train.py"
    train.write_text(TRAIN)
    check = lambda fields: {"train": {"lr": fields["train.lr"]}}

    def run(drawn=SEARCH, name="a", show=lambda trial: None):
        return search.run(SWEEP, drawn, tmp_path / name, train, check, show)

    return run


def plain(trials):
    return [(trial.name, trial.drawn, trial.status.state, trial.value) for trial in trials]


def starts(folder):
    return [len((path / "starts").read_text()) for path in sorted(folder.glob("trial-*/"))]


def test_bayes_goes_where_the_objective_is_best_and_random_does_not(go):
    drawn = lambda trials: [abs(trial.value) for trial in trials[10:]]
    bayes, random = go(), go(SEARCH._replace(method="random"), "b")
    assert plain(bayes[:3]) == plain(random[:3])  # before there is anything to learn from
    assert max(drawn(bayes)) < 1 < max(drawn(random))
    best = search.best(bayes, SEARCH)
    assert best.value == min(trial.value for trial in bayes)
    worst = search.best(bayes, SEARCH._replace(goal="maximize"))
    assert worst.value == max(trial.value for trial in bayes)


def test_a_search_that_is_started_again_repeats_nothing_and_draws_the_same(go, tmp_path):
    whole = go(SEARCH._replace(trials=12))
    begun = go(SEARCH._replace(trials=11), "b")
    assert plain(begun) == plain(whole[:11])
    assert plain(go(SEARCH._replace(trials=12), "b")) == plain(whole)
    assert starts(tmp_path / "b") == [1] * 12
    # The control: if the worst trial had been the best, the next one is drawn from elsewhere.
    for file in (tmp_path / "b").glob("trial-011/*"):
        file.unlink()
    worst = max(whole[:11], key=lambda trial: trial.value)
    summary = tmp_path / "b" / worst.name / "summary.json"
    stored = json.loads(summary.read_text())
    stored["results"]["rope"]["16"]["mean"] = -100.0
    summary.write_text(json.dumps(stored))
    assert go(SEARCH._replace(trials=12), "b")[11].drawn != whole[11].drawn


def test_a_trial_that_falls_behind_is_stopped_and_stays_stopped(go, tmp_path):
    early = SEARCH._replace(trials=1, objective="valid/loss", compare_at=3, method="random")
    go(early)  # the first trial is the best so far
    (tmp_path / "a" / "slow").touch()
    started = time.monotonic()
    trials = go(early._replace(trials=6))
    assert time.monotonic() - started < 30
    states = [trial.status.state for trial in trials]
    assert set(states) == {"finished", "stopped"}
    off = lambda trial: trial.value is None
    assert [state == "stopped" for state in states] == [*map(off, trials)]
    # Started again, those that were stopped are not run.
    before = starts(tmp_path / "a")
    assert plain(go(early._replace(trials=6))) == plain(trials)
    assert starts(tmp_path / "a") == before
    # The control: without a comparison every trial ends by itself.
    (tmp_path / "a" / "slow").unlink()
    assert {t.status.state for t in go(early._replace(trials=6, compare_at=0))} == {"finished"}


def test_a_folder_of_another_search_is_refused_in_one_line(go):
    go(SEARCH._replace(trials=2))
    other = SEARCH._replace(trials=2, fields={"train.lr": Range(1.0, 2.0)})
    with pytest.raises(
        FieldError, match=r"^train\.lr: [^\n]* is outside of this search; choose another --folder$"
    ):
        go(other)


def test_a_run_without_the_objective_is_a_failed_trial(go):
    (trial,) = go(SEARCH._replace(trials=1, objective="test/accuracy/8"))
    assert trial.status.state == "failed"
    assert trial.status.note == "it has no test/accuracy/8"


CONFIG = """
from configs import common
from posenc_jax.lab.config.searches import Range, Search

def get_config(argument=""):
    return common.quick(common.config("length_extrapolation", encoding={{"name": "rope"}}))

def get_sweep(argument=""):
    return Search({fields}, {rest})
"""
FIELDS = '{"train.lr": Range(1e-4, 1e-2, log=True), "encoding.name": ("rope", "alibi")}'


def write(path, fields=FIELDS, rest='"valid/loss", "minimize", 9, compare_at=2'):
    path.write_text(CONFIG.format(fields=fields, rest=rest))
    return f"--config={path}"


def test_wandb_gets_method_metric_goal_ranges_and_early_stopping(tmp_path, capsys):
    config = write(tmp_path / "mine.py")
    flags = [config, "--launch=wandb", f"--folder={tmp_path / 's'}", "--config.seeds=1"]
    assert script.main([*flags, "--dry-run"]) == 0
    assert not (tmp_path / "s").exists()
    assert script.main(flags) == 0
    assert "9 trials; next: wandb sweep" in capsys.readouterr().out
    content = yaml.safe_load((tmp_path / "s" / "wandb.yaml").read_text())
    assert content["method"] == "bayes"
    assert content["metric"] == {"name": "valid/loss", "goal": "minimize"}
    assert content["early_terminate"] == {"type": "hyperband", "min_iter": 2, "eta": 3}
    assert content["run_cap"] == 9
    assert content["program"] == "train.py"
    assert content["parameters"] == {
        "config.wandb.group": {"value": "mine"},
        "config.seeds": {"value": 1},
        "config.train.lr": {"distribution": "log_uniform_values", "min": 1e-4, "max": 1e-2},
        "config.encoding.name": {"values": ["rope", "alibi"]},
    }
    whole = Sweep("s", "c", SWEEP.points, SEARCH._replace(fields={"model.layers": Range(1, 4)}))
    (text,) = agents.files(whole, "p", tmp_path).values()
    assert yaml.safe_load(text)["parameters"]["config.model.layers"] == {
        "distribution": "int_uniform", "min": 1, "max": 4
    }  # fmt: skip
    assert "early_terminate" not in yaml.safe_load(text)


@pytest.mark.parametrize(
    ("fields", "rest", "words"),
    [
        ('{"train.lr": Range(1e-2, 1e-4)}', '"a", "minimize", 2', ["train.lr", "no range"]),
        ('{"model.layers": Range(1, 4, True)}', '"a", "minimize", 2', ["logarithmic"]),
        ('{"train.lr": Range(-1.0, 1.0)}', '"a", "minimize", 2', ["config.train.lr", "-1.0"]),
        ('{"train.stepz": (1, 2)}', '"a", "minimize", 2', ["did you mean steps"]),
        ('{"encoding.name": ("rope", "rop")}', '"a", "minimize", 2', ["rop"]),
        ('{"encoding.name": "rope"}', '"a", "minimize", 2', ["a Range or choices"]),
        ("{}", '"a", "minimize", 2', ["no fields"]),
        (FIELDS, '"a", "minimise", 2', ["search.goal", "minimise", "did you mean minimize"]),
        (FIELDS, '"a", "minimize", 2, "grid"', ["search.method", "bayes"]),
        (FIELDS, '"a", "minimize", 0', ["search.trials", "0"]),
        (FIELDS, '"test/x/8", "minimize", 2, compare_at=2', ["search.objective", "at the end"]),
    ],
)
def test_a_wrong_search_is_refused_in_one_line(fields, rest, words, tmp_path, capsys):
    assert script.main([write(tmp_path / "mine.py", fields, rest), "--dry-run"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert all(word in error for word in words), error


def test_a_search_is_not_run_where_points_must_be_known_before(tmp_path, capsys):
    config = write(tmp_path / "mine.py")
    assert script.main([config, "--launch=slurm"]) == 2
    assert "choices: local, wandb" in capsys.readouterr().err
    assert script.main([config, "--point=trial-000"]) == 2
    assert "has no points" in capsys.readouterr().err


def test_a_dry_run_of_a_search_says_what_is_drawn_and_writes_nothing(tmp_path, capsys):
    folder = tmp_path / "s"
    assert script.main([write(tmp_path / "mine.py"), "--dry-run", f"--folder={folder}"]) == 0
    said = capsys.readouterr().out
    assert "0.0001 to 0.01, evenly in the logarithm" in said
    assert "9 trials by bayes, to minimize valid/loss" in said
    assert not folder.exists()


def test_the_documented_search_is_one(tmp_path):
    page = (ROOT / "docs" / "sweeps.md").read_text("utf-8")
    (code,) = (part.split("```")[0] for part in page.split("```python\n") if "Search(" in part)
    names: dict = {}
    exec(code, names)
    drawn = searches.check(names["get_sweep"]())
    (tmp_path / "mine.py").write_text(CONFIG.format(fields={}, rest="''") + code)
    assert script.read(str(tmp_path / "mine.py"), {})[0].search == drawn


def test_every_end_and_every_choice_is_checked():
    actual = [*searches.extremes(Search({"a": Range(1, 3), "b": ("x", "y")}, "o", "minimize", 1))]
    assert actual == [{"a": 1}, {"a": 3}, {"b": "x"}, {"b": "y"}]


def test_a_search_that_is_stopped_says_so_and_then_goes_on(tmp_path, go, monkeypatch, capsys):
    """The whole script with a train.py of this test; test_sweep_local.py sends a SIGTERM."""
    drawn = SEARCH._replace(fields={"train.lr": (0.1, 0.001)}, trials=3, method="random")
    shared = SWEEP._replace(search=drawn), {"shared": {}}
    monkeypatch.setattr(script, "ROOT", tmp_path)
    monkeypatch.setattr(script, "read", lambda *arguments: shared)
    checked = lambda base, fields: {"train": {"lr": fields["train.lr"]}}
    monkeypatch.setattr(script, "checked", checked)
    monkeypatch.setattr(script.comparison, "compare", lambda *arguments: {"metrics": []})
    flags = ["--config=c", f"--folder={tmp_path / 's'}"]

    def stop(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(search.local, "run_point", stop)
        assert script.main(flags) == Interrupted.status
    assert "start it again" in capsys.readouterr().err
    assert script.main(flags) == 0
    said = capsys.readouterr().out
    assert "trial-002: finished" in said
    assert "best: trial-00" in said
    assert said.splitlines()[-2].endswith(" 0: --config.train.lr=0.001")
