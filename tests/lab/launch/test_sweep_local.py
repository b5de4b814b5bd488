"""A sweep on this machine: finished points are skipped, failed and killed ones are run again."""

import io
import json
import re
import signal
import subprocess
import sys
import time

import pytest
from rich.console import Console

from posenc_jax.lab.config.sweeps import Sweep, expand, grid
from posenc_jax.lab.hosts.exit_status import Interrupted
from posenc_jax.lab.launch import local
from scripts import sweep as script

# A run that only counts its starts, and fails if a file NAME.trouble stands beside its folder.
TRAIN = """
import json, pathlib, signal, sys, time
(workdir,) = (pathlib.Path(a.split("=", 1)[1]) for a in sys.argv if a.startswith("--workdir="))
workdir.mkdir(exist_ok=True)
with (workdir / "starts").open("a") as file:
    file.write(" ".join(sys.argv[1:]) + chr(10))
(workdir / "config.json").write_text(json.dumps(
    {"train": {"lr": 0.1}, "wandb": {"mode": "x"}, "environment": {}}))
(workdir / "metrics.jsonl").write_text(json.dumps(
    {"step": 1, "labels": {"encoding": "rope", "split": "test", "length": 8}}) + chr(10))
trouble = workdir.parent / f"{workdir.name}.trouble"
def save(*_):
    time.sleep(2)
    (workdir / "saved").touch()
    sys.exit(75)
signal.signal(signal.SIGTERM, save)
if trouble.exists():
    if trouble.read_text() == "sleep":
        time.sleep(60)
    print(trouble.read_text())
    sys.exit(3)
(workdir / "summary.json").write_text("{}")
(workdir / "report.html").write_text("")
"""
SWEEP = Sweep("s", "c.py", expand(grid({"encoding.name": ("a", "b", "c")})))
CONFIGS = {name: {"train": {"lr": 0.1}, "wandb": {"mode": "y"}} for name in "abc"}


@pytest.fixture
def go(tmp_path):
    train = tmp_path / "train.py"
    train.write_text(TRAIN)

    def run():
        board = local.statuses(SWEEP, tmp_path, CONFIGS)
        seen = []
        local.run(SWEEP, tmp_path, train, board, lambda: seen.append(dict(board)))
        return board, seen

    return run


def starts(folder):
    paths = {name: folder / name / "starts" for name in "abc"}
    return {n: path.read_text().count("\n") if path.exists() else 0 for n, path in paths.items()}


def states(board):
    return [status.state for status in board.values()]


def test_a_point_that_fails_stops_no_other_and_is_run_again(tmp_path, go):
    (tmp_path / "b.trouble").write_text("no room")
    board, seen = go()
    assert states(board) == ["finished", "failed", "finished"]
    assert board["b"].note == "status 3: no room"
    assert states(seen[0]) == ["running", "waiting", "waiting"]
    (tmp_path / "b.trouble").unlink()
    board, _ = go()
    assert states(board) == ["finished", "finished", "finished"]
    assert starts(tmp_path) == {"a": 1, "b": 2, "c": 1}
    # The controls: a point whose end, or whose report, is not on disk is run again.
    (tmp_path / "c" / "summary.json").unlink()
    (tmp_path / "a" / "report.html").unlink()
    go()
    assert starts(tmp_path) == {"a": 2, "b": 2, "c": 2}


def test_only_the_folder_and_the_points_fields_are_passed(tmp_path, go):
    go()
    command = (tmp_path / "b" / "starts").read_text().split()
    assert command == ["--config=c.py", f"--workdir={tmp_path / 'b'}", "--config.encoding.name=b"]


def test_a_run_with_another_config_is_refused_in_one_line(tmp_path, go):
    go()  # the mirror's part differs, which is no other config
    (tmp_path / "b" / "config.json").write_text('{"train": {"lr": 0.2}, "environment": {}}')
    said = r"^[^\n]*b already [^\n]*train\.lr 0\.2, not 0\.1; choose another --folder$"
    with pytest.raises(ValueError, match=said):
        go()


@pytest.mark.thorough
@pytest.mark.parametrize("times", [1, 2])
def test_sigterm_ends_the_point_that_runs_and_asks_for_another_go(times, tmp_path):
    """The whole script with a train.py of this test: it passes the signal on, waits until the point
    has saved its work, also if the signal comes twice, and exits with 75.
    """
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "a.trouble").write_text("sleep")
    code = (
        "import pathlib, sys; from scripts import sweep as s\n"
        "from tests.lab.launch import test_sweep_local as t\n"
        f"s.ROOT = pathlib.Path({str(tmp_path)!r}); s.read = lambda *given: (t.SWEEP, t.CONFIGS)\n"
        f"sys.exit(s.main(['--config=c', '--folder={tmp_path}']))"
    )
    running = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
    while not (tmp_path / "a" / "metrics.jsonl").exists():
        assert running.poll() is None
        time.sleep(0.05)
    for _ in range(times):
        running.send_signal(signal.SIGTERM)
        time.sleep(0.4)
    _, error = running.communicate(timeout=60)
    assert running.returncode == Interrupted.status
    assert "start it again" in error
    assert starts(tmp_path) == {"a": 1, "b": 0, "c": 0}
    assert (tmp_path / "a" / "saved").exists()
    assert not (tmp_path / "a" / "summary.json").exists()


@pytest.mark.parametrize("terminal", [True, False])
def test_each_change_of_a_state_is_a_line(terminal, tmp_path, monkeypatch):
    board = {name: local.Status("waiting") for name in "abc"}
    seen = [local.Status("running", "starting"), local.Status("running", "rope: step 40", 3.0),
            local.Status("failed", "status 3: [no room]", 61.0)]  # fmt: skip

    def run(sweep, folder, train, board, show):
        for board["b"] in seen:
            show()

    monkeypatch.setattr(local, "run", run)
    out = io.StringIO()
    console = Console(file=out, width=80, force_terminal=terminal)
    assert script._run(SWEEP, tmp_path, board, console)
    lines = ["2/3 b: running  starting", "2/3 b: failed  61 s  status 3: [no room]"]
    assert [line for line in lines if line in out.getvalue()] == lines
    assert terminal or out.getvalue().splitlines() == lines


def test_at_60_columns_a_line_that_changes_is_cropped_and_one_that_stays_is_folded(
    tmp_path, monkeypatch
):
    name = "randomized+rope-lr0.003-width128-layers2"
    board = {name: local.Status("waiting")}
    seen = [local.Status("running", note, 3.0) for note in ("starting", "rope: tested at 2048")]
    seen.append(local.Status("failed", "status 3: config.task.length is beyond the text", 61.0))

    def run(sweep, folder, train, board, show):
        for board[name] in seen:
            show()

    def printed(width):
        out = io.StringIO()
        console = Console(file=out, width=width, force_terminal=True, _environ={})
        assert script._run(SWEEP, tmp_path, dict(board), console)
        plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", out.getvalue())
        return [line for line in re.split(r"[\r\n]+", plain) if line]

    monkeypatch.setattr(local, "run", run)
    narrow = printed(60)
    assert max(map(len, narrow)) <= 60
    assert "beyond the text" in " ".join(narrow), "what stays is whole"
    assert max(map(len, printed(120))) > 60, "control"


def test_progress_is_read_from_the_last_record(tmp_path):
    assert local._progress(tmp_path) == "starting"
    record = {"step": 40, "labels": {"encoding": "rope", "split": "train", "length": 8}}
    (tmp_path / "metrics.jsonl").write_text("x" * 9000 + "\n" + json.dumps(record) + "\n")
    assert local._progress(tmp_path) == "rope: step 40"
