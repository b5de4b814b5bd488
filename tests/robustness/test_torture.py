"""The short form of `make torture`: real runs ended in real ways, and controls that must fail."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from experiments import stages
from posenc_jax.lab import runs
from posenc_jax.lab.hosts import devices
from posenc_jax.lab.training import evaluation
from scripts.torture import configs, results, simultaneous_starts, unprotected, wandb_failures
from scripts.torture.__main__ import CHECKS
from scripts.torture.processes import ROOT, TINY, TrainProcess, outcome, own_compiled, side_by_side
from scripts.torture.results import Attempt, CheckResult
from scripts.torture.wandb_server import FakeWandb
from tests.lab.runs.test_runs import CONFIG, RECORD

SMALL = (
    *TINY, "--config.encoding.name=nope", "--config.seeds=1", "--config.train.steps=12",
    "--config.eval.lengths=(8,)",
)  # fmt: skip


def run(workdir, failpoint=""):
    return TrainProcess(workdir, config=SMALL, failpoint=failpoint).wait()


@pytest.mark.thorough
def test_a_run_killed_and_interrupted_ends_in_the_same_bits(tmp_path):
    """SIGKILL between the commit of a checkpoint and its seal, then SIGTERM in training."""
    assert run(tmp_path / "whole").status == 0
    wanted = outcome(tmp_path / "whole")
    assert run(tmp_path / "run", "committed:1").status == -signal.SIGKILL
    asked = run(tmp_path / "run", "training@TERM")
    assert (asked.status, asked.traceback) == (75, False), asked.err
    assert "checkpoints/nope/6: not used: the save did not finish" in asked.err
    last = run(tmp_path / "run")
    assert (last.status, last.err) == (0, ""), last.err
    assert "goes on from nope, step 6 of 12" in last.out
    assert outcome(tmp_path / "run") == wanted
    metrics = tmp_path / "run" / "metrics.jsonl"
    metrics.write_text(metrics.read_text().replace('"value": ', '"value": 1', 1))
    assert outcome(tmp_path / "run") != wanted, "control"


def test_cases_side_by_side_never_share_a_core():
    busy, most, own = set(), [], devices.cores()

    def attempt(case):
        (core,) = devices.cores()
        assert core not in busy
        busy.add(core)
        time.sleep(0.02)
        most.append(len(busy))
        busy.remove(core)
        return -case

    assert side_by_side(attempt, range(5)) == [0, -1, -2, -3, -4]
    assert max(most) == min(2, len(own))
    assert devices.cores() == own


@pytest.mark.parametrize(
    ("at", "fresh"), [("training:2", False), ("compiling+1", True), (1.5, True)]
)
def test_a_run_that_may_be_killed_in_compiling_has_an_empty_cache(tmp_path, at, fresh):
    compiled = own_compiled(tmp_path / "run", at)
    assert compiled == (tmp_path / "run.compiled" if fresh else None)


def test_one_of_many_simultaneous_starts_wins(tmp_path):
    assert simultaneous_starts.count(5, tmp_path / "run") == (1, 4, 0)
    # The control: with no lock nobody is refused; they win, or fail over each other's files.
    assert simultaneous_starts.count(3, tmp_path / "control", unprotected.locking) != (1, 2, 0)


@pytest.mark.thorough
def test_wrong_lines_are_refused_and_good_ones_accepted():
    wrong, good = list(configs.wrong_lines()), list(configs.good_lines())
    for lines in (wrong[::150], good[::100]):
        assert len(lines) > 5
        assert not [tried.failure for tried in map(configs.attempt, lines) if tried.wrong]
    assert configs.unchecked(wrong[::300]) > 0, "control"


@pytest.mark.parametrize(
    ("argument", "said"),
    [
        ("--config=configs/common.py", "--config: configs/common.py: module"),
        ("--config=configs/rope_extrap.py:zz", "--config: argument 'zz' is not known"),
        ("--config=", "--config: must be given"),
        ("--config.encoding=rope", "config.encoding: has fields of its own"),
        ("--config.train.steps.x=3", "config.train.steps.x: no such field"),
        ("--config.train.steps=3000000000", "config.train.steps: 3000000000 is wrong"),
        ("--config.first_seed=2147483647", "config: first_seed 2147483647 and 2 seeds go past"),
        ("--config.encoding.name=rope,nope,rope", "config.encoding.name: 'rope' is given twice"),
        (f"--workdir={'x' * 300}", f"workdir: {'x' * 300}: File name too long"),
    ],
)
def test_lines_once_refused_badly_are_refused_in_one_line(argument, said):
    line = configs.refusal(configs.BASES[0], argument)
    assert line.startswith(said)
    assert "\n" not in line
    assert "Traceback" not in line


def test_a_sweep_s_agent_cannot_name_a_run_out_of_its_folder(monkeypatch):
    for name, said in (("../../etc", "name: '../../etc' cannot be a folder"), ("ab12", "")):
        monkeypatch.setenv("WANDB_RUN_ID", name)
        assert configs.refusal(configs.BASES[0]).startswith(said)


LOGGED = """
import json, sys
from posenc_jax.lab import runs
from posenc_jax.lab.hosts import signals
with runs.Run(sys.argv[1], {}, {"mode": "online", "project": "p"}) as run:
    for step in range(3):
        run.log([{**json.loads(sys.argv[2]), "step": step}])
    run.finish({"results": {}})
signals.exit_within(3.0, 0)
"""


@pytest.mark.thorough
def test_a_server_that_goes_silent_holds_nothing_up_and_learns_no_secret(tmp_path):
    workdir = tmp_path / "run"
    with FakeWandb("going silent") as server:
        environment = wandb_failures.environment(workdir, server)
        subprocess.run(
            [sys.executable, "-c", LOGGED, str(workdir), json.dumps(RECORD)], cwd=ROOT,
            env={**os.environ, **environment}, capture_output=True, check=True, timeout=60,
        )  # fmt: skip
        assert len(server.requests) > 1
        assert wandb_failures.leaks(workdir, server.requests) == []
    assert [record["step"] for record in runs.read(workdir).records] == [0, 1, 2]
    (workdir / "log").write_text(environment["HF_TOKEN"])
    assert len(wandb_failures.leaks(workdir, [environment["PASSWORD"]])) == 2, "control"


INTERRUPTED = """
import os, sys, time
from posenc_jax.lab import runs
from posenc_jax.lab.hosts import exit_status, signals
signals.install()
status = 0
try:
    with runs.Run(sys.argv[1], {}, {"mode": "online", "project": "p"}) as run:
        print("ready", flush=True)
        while True:
            time.sleep(0.01)
            signals.stop_if_requested()
except exit_status.Interrupted as stop:
    status = stop.status
signals.exit_within(3.0, status)
sys.exit(status)
"""


@pytest.mark.thorough
def test_a_run_interrupted_while_a_server_is_silent_ends_in_time(tmp_path):
    workdir = tmp_path / "run"
    with FakeWandb("going silent") as server:
        environment = os.environ | wandb_failures.environment(workdir, server)
        child = subprocess.Popen(
            [sys.executable, "-c", INTERRUPTED, str(workdir)], cwd=ROOT, env=environment,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        while child.stdout.readline() != "ready\n":
            pass
        since = time.monotonic()
        child.send_signal(signal.SIGTERM)
        _, said = child.communicate(timeout=60)
        seconds = time.monotonic() - since
    assert child.returncode == 75, said
    assert seconds < wandb_failures.LIMIT
    assert "Traceback" not in said
    assert len(server.requests) > 1, "control: W&B was there, and waited for"


def test_a_length_that_does_not_fit_is_a_fact_with_its_reason(tmp_path):
    def read(one):
        if one.length == 16:
            raise evaluation.DoesNotFit("needs more")
        record.log([RECORD])

    plan = [stages.Evaluation("nope", length, None, f"nope at {length}") for length in (8, 16)]
    with runs.Run(tmp_path, CONFIG) as record:
        stages.evaluation_stages(plan, record, read)
    with runs.Run(tmp_path, CONFIG) as record:
        stages.evaluation_stages(plan, record, read)  # nothing is repeated
        entry = {"encoding": "nope", "length": 16, "reason": "needs more"}
        assert record.facts["not_measured"] == [entry]
        assert len(record.records()) == 1


def test_the_page_takes_one_check_at_a_time(tmp_path):
    path = tmp_path / "page.md"
    rows, notes = "| files | old |\n| kills | old |\n", "- **files**: old\n- **kills**: old\n"
    path.write_text(f"by hand\n{rows}\n{notes}  - went wrong: old\nafter\n")
    attempts = [Attempt("x", ["status 1"]), Attempt("y", []), Attempt("z", [], 2.0, limit=3.0)]
    one = CheckResult("ends | well", attempts, "no rollback", [True], "one core", "0.1 s")
    good = one._replace(attempts=[*attempts[1:], Attempt("x", [])])
    results.write(path, "kills", one, 60.0)
    text = path.read_text()
    assert text.count("old") == 2, "those of the other check"
    results.write(path, "files", good, 5.0)
    text = path.read_text()
    assert text.startswith("by hand\n| files | ends | well | 3 of 3 |")
    assert text.endswith("after\n")
    assert "old" not in text
    assert "| kills | ends | well | 2 of 3 | no rollback | 1 of 1 |" in text
    assert text.count("  - went wrong: x: status 1") == 1
    assert text.count("`python -m scripts.torture --only=kills`, 20") == 1
    results.write(path, "kills", good, 60.0)
    text = path.read_text()
    assert "went wrong" not in text
    assert text.count("| kills |") == text.count("| files |") == 1
    with pytest.raises(RuntimeError, match="add a row"):
        results.write(path, "new", good, 1.0)
    late = good._replace(attempts=[Attempt("z", [], 2.0, limit=1.0)])
    assert late.failures == ["z: 2.0 s"]
    unfound = good._replace(control_found=[False])
    assert [each.passed for each in (good, one, late, unfound)] == [True, False, False, False]


def test_every_check_has_its_row_and_note():
    text = Path("docs/reliability.md").read_text("utf-8")
    assert re.findall(r"^\| ([a-z-]+) \|", text, re.MULTILINE) == ["check", *CHECKS]
    assert re.findall(r"^- \*\*([a-z-]+)\*\*:", text, re.MULTILINE) == list(CHECKS)
