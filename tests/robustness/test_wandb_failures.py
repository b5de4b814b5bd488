"""Runs against W&B servers that refuse, hang, fail or die: same results, and an end in time.

This includes a run that is interrupted while its server does not answer. Secrets in the environment
must appear neither in the run's folder nor on the server.
"""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from posenc_jax.lab import runs
from tests.lab.runs.test_runs import RECORD
from tests.support import ROOT
from tests.support.train_process import TrainProcess, complete, interrupt, whole
from tests.support.wandb_server import FAULTS, FakeWandb, environment, leaks

LIMIT = 10.0  # seconds from the finished page, or a signal, to the end of the process
ONLINE = "--config.wandb.mode=online"


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
        variables = environment(workdir, server)
        subprocess.run(
            [sys.executable, "-c", LOGGED, str(workdir), json.dumps(RECORD)], cwd=ROOT,
            env={**os.environ, **variables}, capture_output=True, check=True, timeout=60,
        )  # fmt: skip
        assert len(server.requests) > 1
        assert leaks(workdir, server.requests) == []
    assert [record["step"] for record in runs.read(workdir).records] == [0, 1, 2]
    (workdir / "log").write_text(variables["HF_TOKEN"])
    assert len(leaks(workdir, [variables["PASSWORD"]])) == 2, "control"


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
        variables = os.environ | environment(workdir, server)
        child = subprocess.Popen(
            [sys.executable, "-c", INTERRUPTED, str(workdir)], cwd=ROOT, env=variables,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        while child.stdout.readline() != "ready\n":
            pass
        since = time.monotonic()
        child.send_signal(signal.SIGTERM)
        _, said = child.communicate(timeout=60)
        seconds = time.monotonic() - since
    assert child.returncode == 75, said
    assert seconds < LIMIT
    assert "Traceback" not in said
    assert len(server.requests) > 1, "control: W&B was there, and waited for"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def wanted(folder):
    """The outcome of a run without W&B."""
    return whole(TrainProcess(folder / "whole"))


@pytest.mark.thorough
@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_server_changes_no_bit_holds_nothing_up_and_learns_no_secret(
    folder, wanted, fault
):
    workdir = folder / fault.replace(" ", "_")
    with FakeWandb(fault) as server:
        process = TrainProcess(workdir, ONLINE, environment=environment(workdir, server))
        assert not complete(wanted, process)
        assert time.time() - (workdir / "report.html").stat().st_mtime < LIMIT
        assert leaks(workdir, server.requests) == []


@pytest.mark.thorough
def test_a_run_interrupted_before_a_silent_server_leaves_in_time_and_ends_in_the_same_bits(
    folder, wanted
):
    workdir = folder / "interrupted"
    with FakeWandb("going silent") as server:
        variables = environment(workdir, server)
        seconds, wrong = interrupt(
            workdir, "training:2", signal.SIGTERM, ONLINE, environment=variables
        )
        assert leaks(workdir, server.requests) == []
    assert not wrong
    assert seconds < LIMIT
    assert not complete(wanted, TrainProcess(workdir))


@pytest.mark.thorough
def test_the_control_without_a_bound_on_wandb_overstays(folder):
    workdir = folder / "control"
    with FakeWandb("going silent") as server:
        variables = environment(workdir, server)
        process = TrainProcess(workdir, ONLINE, without="bounds", environment=variables)
        process.wait_until((workdir / "report.html").exists)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1.5 * LIMIT)
