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

from tests.support import ROOT

CONFIG = """
from configs import common
from posenc_jax.lab.config import sweeps

def get_config(argument=""):
    config = common.quick(common.config("length_extrapolation"))
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
    command = ["scripts/sweep.py", f"--config={config}", f"--folder={folder}", *flags]
    return subprocess.Popen(
        [sys.executable, "-c", PINNED, *command],
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


def finished(folder: Path, file: str = "report.html") -> set[str]:
    """The points that have ended, with the last file that they write."""
    return {path.parent.name for path in folder.glob(f"*/{file}")}


def unfinished_records(folder: Path) -> int:
    """How many records the points that have not ended hold."""
    metrics = (path for path in folder.glob("*/metrics.jsonl")
               if not (path.parent / "summary.json").exists())  # fmt: skip
    return sum(path.read_text("utf-8").count("\n") for path in metrics)


def main() -> None:
    """12 points x 3 seeds, killed at four kinds of moments."""
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
        ended = lambda: len(finished(killed))
        summed = lambda: len(finished(killed, "summary.json"))
        moments = {
            "in the first point": lambda: unfinished_records(killed) >= 1,
            "in training": lambda: ended() >= 3 and 0 < unfinished_records(killed) < 27,
            "in evaluation": lambda: ended() >= 5 and unfinished_records(killed) > 27,
            "between a point's last record and its report": lambda: summed() >= 8 > ended(),
        }
        for name, moment in moments.items():
            before = finished(killed)
            kill_when(start(config, killed), moment)
            assert before <= finished(killed)
            print(f"killed {name}: {ended()} points have ended", flush=True)
        left = 12 - len(finished(killed))
        ran = finish(start(config, killed))
        assert len(ran) == left, ran
        print(f"started again: ran the {left} points that were missing, no other")
        same = (whole / "report.html").read_bytes() == (killed / "report.html").read_bytes()
        print("its report is the uninterrupted one's to the byte" if same else "REPORTS DIFFER")
        assert same


if __name__ == "__main__":
    main()
