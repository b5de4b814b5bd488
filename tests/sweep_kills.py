"""A sweep that is killed in the middle and started again: `make sweep-kills`, about 10 minutes.

    python -m tests.sweep_kills

12 points x 3 seeds run once without a break, and once killed at several moments; the second must
run only what was missing, and its report must be the first one's to the byte. Both are pinned to
one core, where XLA gives the same bits every time. The tests run the same with two tiny points.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]

CONFIG = """
from configs import common
from posenc_jax import sweeps

def get_config(argument=""):
    config = common.quick(common.length_extrapolation())
    config.task = {task!r}
    config.model.update({model!r})
    config.train.update({train!r})
    config.eval.update({eval!r})
    return config

def get_sweep(argument=""):
    return sweeps.grid({fields!r})
"""


# Pinned from inside: to fork this process, which may have threads of JAX, is no way to do it.
PINNED = """
import os, runpy, sys
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
sys.argv.pop(0)
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def start(config: Path, folder: Path, *flags: str) -> subprocess.Popen:
    """The sweep in a process group of its own, pinned to one core."""
    own = ["scripts/sweep.py", f"--config={config}", f"--folder={folder}", *flags]
    return subprocess.Popen(
        [sys.executable, "-c", PINNED, *own],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def finish(sweep: subprocess.Popen) -> list[str]:
    """The names of the points that it ran, in order; it must end well."""
    out, _ = sweep.communicate()
    assert sweep.returncode == 0, out
    return [line.split()[1].rstrip(":") for line in out.splitlines() if ": running" in line]


def kill_when(sweep: subprocess.Popen, reached: Callable[[], bool], seconds: float = 600) -> None:
    """Ends the sweep and all it started, as a machine that goes down does."""
    until = time.monotonic() + seconds
    while not reached():
        assert sweep.poll() is None, sweep.communicate()[0]
        assert time.monotonic() < until, "the moment did not come"
        time.sleep(0.05)
    os.killpg(sweep.pid, signal.SIGKILL)
    sweep.communicate()


def finished(folder: Path) -> set[str]:
    """The points that have ended."""
    return {path.parent.name for path in folder.glob("*/summary.json")}


def unfinished_records(folder: Path) -> int:
    """How many records the points that have not ended hold."""
    metrics = (path for path in folder.glob("*/metrics.jsonl")
               if not (path.parent / "summary.json").exists())  # fmt: skip
    return sum(path.read_text("utf-8").count("\n") for path in metrics)


def main() -> None:
    """12 points x 3 seeds, four kills: early, in training, in evaluation, between two points."""
    fields = {
        "encoding.name": ("nope", "sinusoidal", "rope", "alibi", "t5", "randomized+rope"),
        "train.lr": (1e-3, 3e-3),
        "seed": (0, 1, 2),
    }
    with tempfile.TemporaryDirectory() as temporary:
        config = Path(temporary, "mine.py")
        config.write_text(
            CONFIG.format(task={"name": "stdlib"}, model={}, train={}, eval={}, fields=fields)
        )
        whole, killed = Path(temporary, "whole"), Path(temporary, "killed")
        began = time.monotonic()
        assert len(finish(start(config, whole))) == 12
        print(f"12 points x 3 seeds without a break: {time.monotonic() - began:.0f} s", flush=True)
        for points, records in ((0, 1), (3, 10), (5, 40), (8, 0)):
            before = finished(killed)
            sweep = start(config, killed)
            kill_when(sweep, lambda n=points, r=records: len(finished(killed)) >= n
                      and unfinished_records(killed) >= r)  # fmt: skip
            assert before <= finished(killed)
            print(f"killed with {len(finished(killed))} points finished and "
                  f"{unfinished_records(killed)} records of the next", flush=True)  # fmt: skip
        left = 12 - len(finished(killed))
        ran = finish(start(config, killed))
        assert len(ran) == left, ran
        print(f"started again: ran the {left} points that were missing, no other")
        same = (whole / "report.html").read_bytes() == (killed / "report.html").read_bytes()
        print("its report is the uninterrupted one's to the byte" if same else "REPORTS DIFFER")
        assert same


if __name__ == "__main__":
    main()
