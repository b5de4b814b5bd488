"""The copy of a run in W&B: its failures never stop the run."""

import json
import os
import subprocess
import sys
import types

import pytest

from posenc_jax.lab import runs
from posenc_jax.lab.hosts import failpoints
from posenc_jax.lab.wandb import logger
from tests.lab.runs.test_runs import CONFIG, RECORD, labelled, lines


@pytest.mark.thorough
def test_a_disabled_mirror_does_not_import_wandb(tmp_path):
    code = (
        "import sys; from posenc_jax.lab import runs\n"
        "with runs.Run(sys.argv[1], {}, {'mode': sys.argv[2]}): pass\n"
        "sys.exit('wandb' in sys.modules)"
    )
    run = [sys.executable, "-c", code, str(tmp_path), "disabled"]
    assert subprocess.run(run, check=False).returncode == 0


class Fake:
    """Stands in for W&B, and raises an error in the given modes and calls."""

    def __init__(self, *refuses):
        self.refuses, self.modes, self.rows, self.summary = refuses, [], [], {}
        self.url, self.dir, self.group, self.project = "a page", "folder/files", "", "p"
        self.offline, self.settings = False, types.SimpleNamespace(base_url="")

    def Settings(self, **settings):
        return settings

    def init(self, *, mode, **rest):
        self.modes.append((mode, rest))
        if mode in self.refuses:
            raise RuntimeError("no answer\nat all")
        return self

    def define_metric(self, *names, **options):
        pass

    def log(self, row):
        if "log" in self.refuses:
            raise RuntimeError("full")
        self.rows.append(row)

    def log_artifact(self, artifact):
        if "artifact" in self.refuses:
            raise RuntimeError("too large")
        return types.SimpleNamespace(wait=lambda: None)

    def finish(self, exit_code):
        if "finish" in self.refuses:
            raise RuntimeError("gone")


@pytest.fixture
def wandb(monkeypatch):
    def use(*refuses):
        fake = Fake(*refuses)
        kind = lambda *args, **options: types.SimpleNamespace(add_file=lambda *a, **o: None)
        parts = {"Table": kind, "Artifact": kind, "Api": kind, "Settings": fake.Settings}
        monkeypatch.setitem(sys.modules, "wandb", types.SimpleNamespace(init=fake.init, **parts))
        return fake

    return use


def run_mirrored(path, mode="online", **options):
    with runs.Run(path, CONFIG, {"mode": mode, **options}) as run:
        run.log([RECORD])
        run.log([RECORD])
        cell = {"mean": 2.5, "low": None, "high": None, "seeds": [2.5]}
        results = {"rope": {"8": cell}}
        run.finish({"metric": "bits_per_byte", "train_length": 8, "results": results})
    return runs.read(path).records


def test_an_online_mirror_gets_the_rows_and_prints_its_own_address(tmp_path, wandb, capsys):
    fake = wandb()
    run_mirrored(tmp_path, project="p", group="", tags=())
    row = {"step": 10, "test/bits_per_byte/rope/L8/seed0": 2.5, "test/bits_per_byte/8": 2.5}
    assert fake.rows[:2] == [row] * 2
    by_length = {"length": 8, "by_length/bits_per_byte/rope": 2.5}
    assert fake.rows[2] == by_length, "without an interval it has no ends"
    assert [list(row) for row in fake.rows[3:]] == [["results"]]
    assert fake.summary == {"test/bits_per_byte/rope/L8/mean": 2.5, "test/bits_per_byte/8": 2.5}
    assert capsys.readouterr().out == "W&B: a page\n"
    ((mode, given),) = fake.modes
    assert mode == "online"
    assert given["settings"]["init_timeout"] > 0
    assert given["settings"]["finish_timeout"] > 0
    assert given["project"] == "p"
    assert "group" not in given


def test_an_agent_of_a_sweep_names_the_run(tmp_path, wandb, monkeypatch, capsys):
    fake = wandb()
    run_mirrored(tmp_path / "a")
    monkeypatch.setenv("WANDB_RUN_ID", "abc123")
    run_mirrored(tmp_path / "b")
    own, agents = (given["id"] for _, given in fake.modes)
    assert agents == "abc123"
    assert own != agents


@pytest.mark.parametrize(
    ("refuses", "modes", "warnings"),
    [
        (("online",), ["online", "offline"], ["logging offline"]),
        (("online", "offline"), ["online", "offline"], ["logging offline", "not logging"]),
        (("log",), ["online"], ["logging failed (full)"]),
        (("artifact",), ["online"], ["sending the report failed (too large)"]),
        (("finish",), ["online"], ["the end failed (gone)"]),
        ((), ["online"], []),
    ],
)
def test_no_failure_of_the_mirror_stops_a_run(tmp_path, wandb, capsys, refuses, modes, warnings):
    fake = wandb(*refuses)
    assert run_mirrored(tmp_path) == [RECORD, RECORD]
    assert [mode for mode, _ in fake.modes] == modes
    said = capsys.readouterr().err.splitlines()
    assert len(said) == len(warnings)
    assert all(part in line for part, line in zip(warnings, said, strict=True))


def test_by_position_records_have_names_and_an_axis_of_their_own(wandb, tmp_path):
    fake = wandb()
    with runs.Run(tmp_path, CONFIG, {"mode": "offline"}) as run:
        run.log([RECORD, labelled(position=0), labelled(position=4)])
    scalar, first, second = fake.rows
    assert "position" not in scalar
    key = "by_position/test/bits_per_byte/rope/L8/seed0"
    assert (first, second) == ({"position": 0, key: 2.5}, {"position": 4, key: 2.5})


def test_runs_overlay_by_names_that_all_have_and_have_an_objective(tmp_path, wandb):
    fakes = {}
    for name in ("rope", "alibi"):
        fakes[name] = wandb()
        mean = {"mean": 2.0, "low": None, "high": None, "seeds": [2.0]}
        rows = {"8": mean, "16": {**mean, "mean": 3.0}, "32": {**mean, "mean": 4.0}}
        trained = {**labelled(encoding=name, split="train"), "metric": "loss"}
        with runs.Run(tmp_path / name, CONFIG, {"mode": "online"}) as run:
            run.log({**trained, "seed": seed, "value": seed + 1.0} for seed in (0, 1))
            run.finish({"metric": "loss", "train_length": 8, "results": {name: rows}})
    for name, fake in fakes.items():
        assert fake.rows[0]["train/loss"] == 1.5, "the mean over seeds"
        assert fake.rows[0][f"train/loss/{name}/L8/seed1"] == 2.0
        assert fake.summary["extrapolation/mean"] == 3.5, "without the trained length"
        assert fake.summary["test/loss/16"] == 3.0
    shared = fakes["rope"].rows[0].keys() & fakes["alibi"].rows[0].keys()
    assert shared == {"step", "train/loss"}, "control: all other names are of one encoding"


def test_other_labels_are_in_a_curves_name_and_keep_curves_apart():
    names = [logger.curve_name(labelled(task=task)) for task in ("copy", "sort")]
    assert names[0] == "test/bits_per_byte/copy/rope/L8/seed0"
    assert names[0] != names[1]
    claim = {**RECORD, "labels": {"claim": "sin-5", "number": "gap", "split": "test"}}
    assert logger.curve_name(claim) == "test/bits_per_byte/sin-5/gap/seed0"


@pytest.mark.thorough
def test_the_real_wandb_keeps_an_offline_mirror(tmp_path):
    """In a process of its own: W&B leaves threads and a service behind."""
    code = (
        "import json, sys; from posenc_jax.lab import runs\n"
        "with runs.Run(sys.argv[1], {'a': (1,)}, {'mode': 'offline', 'project': 'p'}) as run:\n"
        "    run.log([json.loads(sys.argv[2])])\n"
    )
    env = os.environ | {"WANDB_DIR": str(tmp_path), "HOME": str(tmp_path)}
    arguments = [sys.executable, "-c", code, str(tmp_path / "run"), json.dumps(RECORD)]
    done = subprocess.run(arguments, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "wandb sync" in done.stdout
    (log,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    content = log.read_bytes()
    assert b"test/bits_per_byte/rope/L8/seed0" in content
    assert b"test/bits_per_byte/8" in content
    assert b"L9/seed0" not in content
    assert lines(tmp_path / "run") == [RECORD]


def test_a_report_that_was_not_sent_is_sent_at_the_next_start_once(tmp_path, wandb, monkeypatch):
    tables = lambda fake: [row for row in fake.rows if "results" in row]

    def killed(name):
        if name == "finished":
            raise KeyboardInterrupt

    fake = wandb()
    monkeypatch.setattr(failpoints, "reach", killed)
    with pytest.raises(KeyboardInterrupt):
        run_mirrored(tmp_path)
    assert runs.run_status(tmp_path, CONFIG) == "finished"
    assert tables(fake) == []
    runs.send_report(tmp_path, CONFIG, {"mode": "disabled"})
    (_, first), *rest = fake.modes
    assert not rest
    for _ in range(2):
        runs.send_report(tmp_path, CONFIG, {"mode": "online"})
    assert len(tables(fake)) == 1
    assert [given["id"] for _, given in fake.modes] == [first["id"]] * 2, "the same run, once more"
    assert fake.summary["test/bits_per_byte/rope/L8/mean"] == 2.5


def test_a_report_that_wandb_refuses_is_sent_again_and_an_accepted_one_is_not(tmp_path, wandb):
    wandb()
    run_mirrored(tmp_path / "taken")
    fake = wandb("artifact")
    run_mirrored(tmp_path / "refused")
    runs.send_report(tmp_path / "taken", CONFIG, {"mode": "online"})
    assert len(fake.modes) == 1, "control: nothing was left to send"
    fake.refuses = ()
    runs.send_report(tmp_path / "refused", CONFIG, {"mode": "online"})
    assert len(fake.modes) == 2
    assert not (tmp_path / "refused" / "unsent").exists()
