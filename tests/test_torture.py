"""The short form of `make torture`: real runs ended in real ways, and controls that must fail."""

import json
import os
import signal
import subprocess
import sys

import pytest

from experiments import stages
from posenc_jax import evaluation, runs
from scripts.torture import configs, mirrors, page, starts
from scripts.torture.child import ROOT, TINY, Child, outcome
from scripts.torture.servers import serving
from scripts.torture.shown import Shown
from tests.test_runs import CONFIG, RECORD

SMALL = (
    *TINY, "--config.encoding.name=nope", "--config.seeds=1", "--config.train.steps=12",
    "--config.eval.lengths=(8,)",
)  # fmt: skip
QUICKLY = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}  # it is compiling that takes time


def run(workdir, failpoint=""):
    return Child(workdir, config=SMALL, failpoint=failpoint, environment=QUICKLY).wait()


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


def test_one_of_many_simultaneous_starts_wins(tmp_path):
    assert starts.count(5, tmp_path / "run") == (1, 4, 0)
    assert starts.count(3, tmp_path / "control", without=True)[0] > 1


@pytest.mark.filterwarnings("ignore:the load_module:DeprecationWarning")  # of ml_collections
def test_wrong_lines_are_refused_and_good_ones_accepted():
    refused = configs.bad_lines(20)
    assert refused["refused"] == refused.total(), refused
    accepted = configs.good_lines(3)
    assert accepted["accepted"] == accepted.total(), accepted
    assert configs.unchecked(5) > 0, "control"


MIRRORED = """
import json, sys
from posenc_jax import interrupts, runs
with runs.Run(sys.argv[1], {}, {"mode": "online", "project": "p"}) as run:
    for step in range(3):
        run.log([{**json.loads(sys.argv[2]), "step": step}])
    run.finish({"results": {}})
interrupts.leave_within(3.0, 0)
"""


def test_a_server_that_goes_silent_holds_nothing_up_and_learns_no_secret(tmp_path):
    workdir = tmp_path / "run"
    with serving("going silent") as server:
        environment = mirrors.environment(workdir, server)
        subprocess.run(
            [sys.executable, "-c", MIRRORED, str(workdir), json.dumps(RECORD)], cwd=ROOT,
            env={**os.environ, **environment}, capture_output=True, check=True, timeout=60,
        )  # fmt: skip
        assert server.asked > 1
        assert mirrors.leaks(workdir, server.bodies) == []
    assert [record["step"] for record in runs.read(workdir).records] == [0, 1, 2]
    (workdir / "log").write_text(environment["HF_TOKEN"])
    assert len(mirrors.leaks(workdir, [environment["PASSWORD"]])) == 2, "control"


def test_a_length_that_does_not_fit_is_a_fact_with_its_reason(tmp_path):
    def read(one):
        if one.length == 16:
            raise evaluation.DoesNotFit("needs more")
        record.log([RECORD])

    plan = [stages.Reading("nope", length, None, None, f"nope at {length}") for length in (8, 16)]
    with runs.Run(tmp_path, CONFIG) as record:
        stages.evaluate(plan, record, read)
    with runs.Run(tmp_path, CONFIG) as record:
        stages.evaluate(plan, record, read)  # nothing is repeated
        entry = {"encoding": "nope", "length": 16, "reason": "needs more"}
        assert record.facts["not_measured"] == [entry]
        assert len(record.records()) == 1


@pytest.mark.parametrize("good", [3, 2])
def test_the_page_says_what_was_found(tmp_path, good):
    path = tmp_path / "page.md"
    path.write_text(f"by hand\n{page.BEGIN}\nold\n{page.END}\nafter\n")
    one = Shown("kills", good, 3, "no rollback", 1, 1, "one core", bad=("x: status 1",)[good - 2 :])
    page.write(path, {"kills": one}, 60.0)
    text = path.read_text()
    assert text.startswith("by hand\n")
    assert text.endswith("after\n")
    assert f"| kills | {good} of 3 | no rollback | 1 of 1 |" in text
    assert ("What went wrong" in text) is (good < 3)
    assert one.passed is (good == 3)
    assert "old" not in text.split()
