"""The copy of a run in W&B: a run for each training, a report; its failures never stop ours."""

import contextlib
import itertools
import subprocess
import sys
import threading
import time
import types
from pathlib import Path

import pytest

from posenc_jax.lab import runs
from posenc_jax.lab.hosts import failpoints
from posenc_jax.lab.wandb import client, logger
from tests.lab.runs.test_runs import CONFIG, RECORD, labelled

SEVERAL = CONFIG | {"encoding": {"name": "rope,alibi", "base": 1e4}, "task": {"name": "copy"}}
CELL = {"mean": 2.5, "low": None, "high": None, "seeds": [2.5]}
SUMMARY = {"metric": "bits_per_byte", "train_length": 4, "results": {"rope": {"8": CELL}}}


@pytest.mark.thorough
def test_a_disabled_mirror_does_not_import_wandb(tmp_path):
    code = (
        "import sys; from posenc_jax.lab import runs\n"
        "with runs.Run(sys.argv[1], {}, {'mode': sys.argv[2]}): pass\n"
        "sys.exit('wandb' in sys.modules)"
    )
    run = [sys.executable, "-c", code, str(tmp_path), "disabled"]
    assert subprocess.run(run, check=False).returncode == 0


class FakeRun:
    """A run of `Fake`; `history` is what W&B has of it, from all starts."""

    def __init__(self, fake, history, given):
        self.fake, self.history, self.given = fake, history, given
        self.summary, self.ended = {}, None
        self.url, self.dir, self.group, self.project = "a page", "d/wandb/r/files", "", "p"
        self.offline, self.settings = False, types.SimpleNamespace(base_url="")
        self.starting_step = len(history)

    def define_metric(self, *names, **options):
        pass

    def log(self, row, step=None, commit=None):
        self.fake.refuse("log", self)
        self.history.append(row)

    def log_artifact(self, artifact):
        self.fake.refuse("artifact", self)
        return types.SimpleNamespace(wait=lambda: None)

    def finish(self, exit_code):
        self.fake.refuse("finish", self)
        self.ended = exit_code


class Fake:
    """Stands in for W&B, and raises an error in the given modes and calls.

    opened: each run that was opened, in order.
    histories: by id, what W&B has of a run.
    """

    def __init__(self, *refuses):
        self.refuses, self.opened, self.histories = refuses, [], {}
        self.setup_settings = types.SimpleNamespace(sweep_id="s")

    def refuse(self, call, run):
        if call in self.refuses:
            raise RuntimeError({"log": "full", "artifact": "too large", "finish": "gone"}[call])

    def Settings(self, **settings):
        return settings

    def setup(self):
        return types.SimpleNamespace(settings=self.setup_settings)

    def init(self, *, mode, id, **given):
        run = FakeRun(self, self.histories.setdefault(id, []), {"mode": mode, "id": id, **given})
        run.sweep_id = self.setup_settings.sweep_id
        self.opened.append(run)
        if mode in self.refuses:
            raise RuntimeError("no answer\nat all")
        return run

    @property
    def modes(self):
        return [run.given["mode"] for run in self.opened]

    @property
    def report(self):
        return next(run for run in self.opened if run.given["job_type"] == "report")

    @property
    def trained(self):
        """(encoding, seed) -> the last run of a training that was opened."""
        return {(run.given["config"]["encoding"], run.given["config"]["seed"]): run
                for run in self.opened if run.given["job_type"] == "training"}  # fmt: skip


@pytest.fixture
def wandb(monkeypatch):
    def use(*refuses):
        fake = Fake(*refuses)
        kind = lambda *args, **options: types.SimpleNamespace(add_file=lambda *a, **o: None)
        parts = {"Table": kind, "Artifact": kind, "Api": kind, "Settings": fake.Settings,
                 "setup": fake.setup}  # fmt: skip
        monkeypatch.setitem(sys.modules, "wandb", types.SimpleNamespace(init=fake.init, **parts))
        return fake

    return use


def trained(seed=0, encoding="rope", step=10, value=1.0, metric="loss"):
    return {**labelled(encoding=encoding, split="train"), "seed": seed, "step": step,
            "value": value, "metric": metric}  # fmt: skip


def run_mirrored(path, mode="online", config=SEVERAL, count=4, **options):
    """A run of two encodings with two seeds."""
    with runs.Run(path, config, {"mode": mode, **options}) as run:
        run.trainings(count)
        for name in ("rope", "alibi"):
            run.log([trained(seed, name) for seed in (0, 1)])
            run.log([{**labelled(encoding=name), "seed": seed} for seed in (0, 1)])
            run.end_trainings()
        run.finish(SUMMARY)
    return runs.read(path).records


def test_each_training_is_a_run_with_the_same_keys_in_the_group_of_ours(tmp_path, wandb, capsys):
    fake = wandb()
    run_mirrored(tmp_path / "mine", project="p", group="", tags=("t",))
    pairs = itertools.product(("rope", "alibi"), (0, 1))
    assert list(fake.trained) == list(pairs)
    for (encoding, seed), run in fake.trained.items():
        test = {"test/bits_per_byte/8": 2.5, "length": 8, "by_length/bits_per_byte": 2.5}
        assert run.history == [{"step": 10, "train/loss": 1.0}, {"step": 10, **test}]
        assert run.given["config"].items() >= {"encoding": encoding, "seed": seed}.items()
        assert run.given["config"]["encodings"] == {"name": "rope,alibi", "base": 1e4}
        assert run.given["tags"] == ["t", "copy", encoding]
        assert run.given["reinit"] == "create_new"
        assert run.ended == 0
    (group,) = {run.given["group"] for run in fake.opened}
    assert group.startswith("mine-")
    assert len({run.given["id"] for run in fake.opened}) == 5
    assert fake.report.given["tags"] == ["t", "copy", "rope", "alibi"]
    assert [set(row) for row in fake.report.history] == [{"results"}], "tables, and no curves"
    assert fake.report.summary == {"test/bits_per_byte/8": 2.5, "extrapolation/mean": 2.5}
    assert capsys.readouterr().out == "W&B: a page\n", "of the report alone"
    settings = fake.report.given["settings"]
    assert settings["init_timeout"] > 0
    assert settings["finish_timeout"] > 0
    assert fake.report.given["project"] == "p"
    assert not (tmp_path / "mine" / "unsent").exists()


def test_a_sweeps_group_is_that_of_its_runs_too(tmp_path, wandb):
    fake = wandb()
    run_mirrored(tmp_path / "a", group="sweep")
    assert {run.given["group"].split("-")[0] for run in fake.opened} == {"sweep/a"}


def test_more_trainings_than_64_have_the_report_alone(tmp_path, wandb):
    fake = wandb()
    run_mirrored(tmp_path / "many", count=65)
    assert len(fake.opened) == 1
    fake = wandb()
    run_mirrored(tmp_path / "few", count=64)
    assert len(fake.opened) == 5, "control"


def test_the_report_has_the_id_of_an_agent_of_a_sweep_and_its_objective(
    tmp_path, wandb, monkeypatch
):
    fake = wandb()
    monkeypatch.setenv("WANDB_RUN_ID", "abc123")
    run_mirrored(tmp_path / "a")
    assert fake.report.given["id"] == "abc123"
    assert {"train/loss": 1.0, "step": 10} in fake.report.history
    assert fake.report.sweep_id == "s"
    assert [run.sweep_id for run in fake.trained.values()] == [None] * 4
    monkeypatch.delenv("WANDB_RUN_ID")
    fake = wandb()
    run_mirrored(tmp_path / "b")
    assert fake.report.given["id"] != "abc123", "control"
    assert not any("train/loss" in row for row in fake.report.history)


@pytest.mark.parametrize(
    ("task", "tags"),
    [
        ("copy", ["copy"]), ("tfds:wiki40b/en", ["tfds:wiki40b/en"]),
        ("file:/home/me/x.txt", ["x.txt"]), ("tokens:/home/me/set/", ["set"]),
        ("labels:tfds:ag_news", ["labels:tfds:ag_news"]), ("labels:../x.csv", ["x.csv"]),
        ("x" * 65, []),
    ],
)  # fmt: skip
def test_no_path_is_a_tag(tmp_path, wandb, task, tags):
    fake = wandb()
    run_mirrored(tmp_path, config=SEVERAL | {"task": {"name": task}})
    assert fake.report.given["tags"] == [*tags, "rope", "alibi"]


@pytest.mark.parametrize(
    ("refuses", "modes", "warnings"),
    [
        (("online",), ["online"] + ["offline"] * 5, ["logging offline"]),
        (("online", "offline"), ["online", "offline"], ["logging offline", "not logging"]),
        (("log",), ["online"] * 2, ["logging failed (full)"]),
        (("artifact",), ["online"] * 5, ["sending the report failed (too large)"]),
        (("finish",), ["online"] * 3 + ["offline"] * 2,
         [f"the end of {name}, seed {seed} failed (gone)" for name in ("rope", "alibi")
          for seed in (0, 1)] + ["the end failed (gone)"]),
        ((), ["online"] * 5, []),
    ],
)  # fmt: skip
def test_no_failure_of_the_mirror_stops_a_run(tmp_path, wandb, capsys, refuses, modes, warnings):
    fake = wandb(*refuses)
    assert len(run_mirrored(tmp_path)) == 8
    assert fake.modes == modes
    said = capsys.readouterr().err.splitlines()
    assert len(said) == len(warnings)
    assert all(part in line for part, line in zip(warnings, said, strict=True))
    assert (tmp_path / "unsent").exists() == (refuses not in ((), ("online",)))


STEPS = (20, 40, 60, 80)


def killed_and_resumed(path, fake, received):
    """Two starts of a training: the first is killed at step 60, when W&B has `received` rows; the
    second goes on from step 40. Returns the steps of the rows that W&B has in the end.
    """
    options = {"mode": "online"}
    with contextlib.suppress(KeyboardInterrupt), runs.Run(path, SEVERAL, options) as run:
        run.trainings(1)
        for step in STEPS[:3]:
            run.log([trained(step=step)])
            if step == 40:
                mark = run.journal.mark()
        raise KeyboardInterrupt
    (history,) = (history for history in fake.histories.values() if history)
    del history[received:]
    with runs.Run(path, SEVERAL, options) as run:
        run.trainings(1)
        run.journal.go_back("rope", mark)
        for step in STEPS[2:]:
            run.log([trained(step=step)])
        run.end_trainings()
        run.finish(SUMMARY)
    return [row["step"] for row in history if "step" in row]


@pytest.mark.parametrize("received", range(4))
def test_a_run_that_was_killed_and_resumed_has_each_row_once(tmp_path, wandb, received):
    assert killed_and_resumed(tmp_path, wandb(), received) == list(STEPS)


def test_the_control_that_sends_the_records_of_each_start_doubles_or_loses_rows(
    tmp_path, wandb, monkeypatch
):
    def send(self, records):
        for row in self._make_rows(records):
            self.run.log(row)

    monkeypatch.setattr(logger._Stream, "send", send)
    assert killed_and_resumed(tmp_path / "a", wandb(), 3).count(60) == 2


def test_what_an_earlier_start_left_unsent_is_sent_though_its_training_has_ended(tmp_path, wandb):
    """W&B lost the rows of the first encoding, whose stages are not repeated."""
    fake = wandb("finish")
    options = {"mode": "online"}
    with contextlib.suppress(KeyboardInterrupt), runs.Run(tmp_path, SEVERAL, options) as run:
        run.trainings(2)
        run.log([trained(encoding="alibi")])
        run.end("alibi")
        run.end_trainings()
        raise KeyboardInterrupt
    lost = fake.trained["alibi", 0].history
    lost.clear()
    fake.refuses = ()
    with runs.Run(tmp_path, SEVERAL, options) as run:
        run.trainings(2)
        run.log([trained(encoding="rope")])
        run.finish(SUMMARY)
    assert lost == [{"step": 10, "train/loss": 1.0}]
    assert fake.trained["alibi", 0].ended == 0
    assert not (tmp_path / "unsent").exists()


def test_training_waits_for_nothing_and_the_end_for_a_time_that_ten_trainings_do_not_lengthen(
    tmp_path, wandb, monkeypatch, capsys
):
    """W&B takes a second to open a run, and longer to end one."""
    fake, release = wandb(), threading.Event()
    init = fake.init

    def slow_init(**arguments):
        if arguments["job_type"] == "training":
            release.wait(1.0)
        return init(**arguments)

    monkeypatch.setattr(sys.modules["wandb"], "init", slow_init)
    monkeypatch.setattr(logger, "UPLOAD_SECONDS", 1.0)
    with runs.Run(tmp_path, SEVERAL, {"mode": "online"}) as run:
        run.trainings(10)
        start = time.monotonic()
        for name in ("rope", "alibi"):
            run.log([trained(seed, name) for seed in range(5)])
            run.end_trainings()
        assert time.monotonic() - start < 0.5
        run.finish(SUMMARY)
        start = time.monotonic()
    assert 0.9 < time.monotonic() - start < 2.5, "the ten take longer, one after another"
    release.set()
    assert "no answer in 1 s" in capsys.readouterr().err
    content = logger.Unsent(tmp_path)
    assert content.report
    assert ("rope", 0) in content.trainings, "so it is sent at the next start"


def test_a_server_that_falls_silent_after_the_start_holds_the_end_up_once(
    tmp_path, wandb, monkeypatch, capsys
):
    """No training can be opened online any more, and the report, which is, is not waited for."""
    fake, init = wandb(), sys.modules["wandb"].init

    def refusing_init(**arguments):
        if arguments["job_type"] == "training" and arguments["mode"] == "online":
            raise RuntimeError("no answer")
        return init(**arguments)

    monkeypatch.setattr(sys.modules["wandb"], "init", refusing_init)
    monkeypatch.setattr(sys.modules["wandb"], "Api", lambda **arguments: time.sleep(60))
    monkeypatch.setattr(client, "ANSWER_SECONDS", 0.2)
    start = time.monotonic()
    run_mirrored(tmp_path)
    assert time.monotonic() - start < 30, "the report is not waited for, which takes 60"
    assert fake.report.history == []
    assert [run.given["mode"] for run in fake.trained.values()] == ["offline"] * 4
    said = capsys.readouterr().err
    assert said.count("logging offline") == 1
    assert "no answer in 0 s" in said
    assert logger.Unsent(tmp_path).report


def test_files_without_a_row_of_a_killed_start_are_deleted_and_others_stay(tmp_path, monkeypatch):
    monkeypatch.delenv("WANDB_DIR", raising=False)
    sizes = {
        "offline-run-1-abc/run-abc.wandb": 7,
        "offline-run-2-abc-0f/run-abc-0f.wandb": 7,
        "offline-run-3-abc/run-abc.wandb": 99,
        "offline-run-4-xyz/run-xyz.wandb": 7,
    }
    for name, size in sizes.items():
        path = tmp_path / "wandb" / name
        path.parent.mkdir(parents=True)
        path.write_bytes(b"x" * size)
    client.delete_empty(tmp_path, "abc")
    left = [path.parent.name for path in Path(tmp_path, "wandb").glob("*/*.wandb")]
    assert sorted(left) == ["offline-run-3-abc", "offline-run-4-xyz"]


def test_a_report_that_was_not_sent_is_sent_at_the_next_start_once(tmp_path, wandb, monkeypatch):
    tables = lambda fake: [row for run in fake.opened for row in run.history if "results" in row]

    def killed(name):
        if name == "finished":
            raise KeyboardInterrupt

    fake = wandb()
    monkeypatch.setattr(failpoints, "reach", killed)
    with pytest.raises(KeyboardInterrupt):
        run_mirrored(tmp_path)
    assert runs.run_status(tmp_path, SEVERAL) == "finished"
    assert tables(fake) == []
    runs.send_report(tmp_path, SEVERAL, {"mode": "disabled"})
    assert len(fake.opened) == 5
    for _ in range(2):
        runs.send_report(tmp_path, SEVERAL, {"mode": "online"})
    assert len(fake.opened) == 6
    first, again = fake.opened[0], fake.opened[-1]
    assert first.given["id"] == again.given["id"], "the same run, once more"
    assert ["results" in row for row in again.history] == [True]
    assert again.summary["test/bits_per_byte/8"] == 2.5


def test_the_report_of_a_run_of_an_earlier_version_is_sent_too(tmp_path, wandb):
    fake = wandb()
    run_mirrored(tmp_path, mode="disabled")
    (tmp_path / "unsent").write_text("12345678")  # the id, as those versions wrote it
    runs.send_report(tmp_path, SEVERAL, {"mode": "online"})
    assert [run.given["id"] for run in fake.opened] == ["12345678"]
    assert not (tmp_path / "unsent").exists()


def test_a_report_that_wandb_refuses_is_sent_again_and_an_accepted_one_is_not(tmp_path, wandb):
    wandb()
    run_mirrored(tmp_path / "taken")
    fake = wandb("artifact")
    run_mirrored(tmp_path / "refused")
    runs.send_report(tmp_path / "taken", SEVERAL, {"mode": "online"})
    assert len(fake.opened) == 5, "control: nothing was left to send"
    fake.refuses = ()
    runs.send_report(tmp_path / "refused", SEVERAL, {"mode": "online"})
    assert len(fake.opened) == 6
    assert not (tmp_path / "refused" / "unsent").exists()


def test_a_run_without_encodings_has_the_report_alone(tmp_path, wandb):
    fake = wandb()
    with runs.Run(tmp_path, CONFIG, {"mode": "online"}) as run:
        run.log([RECORD])
        run.finish({"own": 1})
    assert len(fake.opened) == 1
