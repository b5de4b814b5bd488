"""Runs mirrored by the real W&B: to a server on this machine, and offline, read back."""

import json
import os
import subprocess
import sys

import pytest

from posenc_jax.lab.wandb import logger
from tests.support import ROOT
from tests.support.wandb_server import FakeWandb, environment

pytestmark = pytest.mark.thorough

# A run of two encodings and two seeds, killed at its nth record of training if n is not 0.
RUN = """
import os, sys, time
from posenc_jax.lab import runs
CONFIG = {"experiment": "e", "encoding": {"name": "rope,alibi"}, "train": {"length": 8}}
CELL = {"mean": 2.0, "low": None, "high": None, "seeds": [2.0]}
workdir, mode, dies = sys.argv[1], sys.argv[2], int(sys.argv[3])

def records(encoding, split, metric, step, length=8, **labels):
    labels = {"encoding": encoding, "split": split, "length": length, **labels}
    return [{"step": step, "seed": seed, "labels": labels, "metric": metric, "value": step + seed}
            for seed in (0, 1)]

with runs.Run(workdir, CONFIG, {"mode": mode, "project": "p"}) as run:
    run.trainings(4)
    for name in ("rope", "alibi"):
        if run.ended(name):
            continue
        for step in (20, 40, 60):
            run.log(records(name, "train", "loss", step))
            run.log(records(name, "valid", "loss", step))
            dies -= 1
            if dies == 0:
                time.sleep(3)  # W&B is to have the rows
                os._exit(9)
        for length in (8, 16):
            run.log([*records(name, "test", "bits_per_byte", 60, length),
                     *records(name, "test", "bits_per_byte", 60, length, position=4)])
        run.end(name)
        run.end_trainings()
    run.finish({"metric": "bits_per_byte", "train_length": 8,
                "results": {"rope": {"8": CELL, "16": CELL}}})
"""
# What each training has in the end, whatever happened on the way.
ROWS = [(step, f"{split}/loss") for step in (20, 40, 60) for split in ("train", "valid")]
ROWS += [(60, f"test/bits_per_byte/{length}") for length in (8, 16)]
KILLED = "5", "0"  # in the second encoding; then to the end


def run(server, workdir, mode, dies, **variables):
    env = {**os.environ, **environment(workdir, server), **variables}
    command = [sys.executable, "-c", RUN, str(workdir), mode, dies]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == (9 if int(dies) else 0), done.stderr
    return env


def arrived(server):
    """(encoding, seed) -> the (step, key) of all rows of a training, in order."""
    trainings = [run for run in server.runs.values() if run["job_type"] == "training"]
    return {
        (run["config"]["encoding"], run["config"]["seed"]): [
            (row["step"], key) for row in run["history"] for key in row
            if key.startswith(("train/", "valid/", "test/"))
        ]
        for run in trainings
    }  # fmt: skip


ALL = {(encoding, seed): ROWS for encoding in ("rope", "alibi") for seed in (0, 1)}


def test_a_run_that_was_killed_and_resumed_arrives_once(tmp_path):
    with FakeWandb() as server:
        for dies in KILLED:
            run(server, tmp_path / "run", "online", dies)
        assert arrived(server) == ALL
        groups = {actual["group"] for actual in server.runs.values()}
        assert len(groups) == 1
        (report,) = (actual for actual in server.runs.values() if actual["job_type"] == "report")
        assert report["summary"]["extrapolation/mean"] == 2.0
        assert [name for name, kind in server.artifacts if kind == "report"]
        steps = [row["_step"] for row in server.runs.popitem()[1]["history"]]
        assert steps == sorted(set(steps))
    assert not (tmp_path / "run" / logger.UNSENT).exists()


def test_offline_runs_of_all_starts_are_read_and_synced_once(tmp_path):
    workdir = tmp_path / "run"
    with FakeWandb() as server:
        for dies in KILLED:
            env = run(server, workdir, "offline", dies)
        assert server.runs == {}, "control: nothing was sent"
        logs = sorted(workdir.glob("wandb/offline-run-*/*.wandb"))
        rows_of_runs = dict(_read(log, env) for log in logs)  # the last start's, of each run
        assert rows_of_runs == {
            f"{name}, seed {seed}": rows for (name, seed), rows in ALL.items()
        } | {"run": []}
        sync = [sys.executable, "-m", "wandb", "sync", str(workdir / "wandb")]
        done = subprocess.run(sync, cwd=tmp_path, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert arrived(server) == ALL, done.stderr


def _read(log, env):
    """The name of an offline run, and its (step, key), as `wandb leet inspect` prints them."""
    command = [sys.executable, "-m", "wandb", "leet", "inspect", "--json", str(log)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    records = [json.loads(line) for line in done.stdout.splitlines()]
    (name,) = {r["run"]["display_name"] for r in records if r["type"] == "run"}
    rows = [r["history"]["item"] for r in records if r["type"] == "history"]
    return name, [(row["step"], key) for row in rows for key in row
                  if key.startswith(("train/", "valid/", "test/"))]  # fmt: skip


def test_trainings_of_a_sweeps_run_are_not_in_the_sweep(tmp_path):
    agent = {"WANDB_RUN_ID": "agents", "WANDB_SWEEP_ID": "sweep", "WANDB_PROJECT": "p"}
    with FakeWandb() as server:
        run(server, tmp_path / "run", "online", "0", **agent)
        assert arrived(server) == ALL
        report = server.runs.pop("agents")
        assert report["sweep"] == "sweep"
        assert {20, 40, 60} == {row["step"] for row in report["history"] if "valid/loss" in row}
        assert not any(actual.get("sweep") for actual in server.runs.values())
