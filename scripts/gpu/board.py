"""A run of the leaderboard, from the command to the written report."""

import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from posenc_jax.lab import runs
from scripts.gpu.worker import Prepared, prepare

ROOT = Path(__file__).parents[2]
FOLDER = Path("runs/gpu_board")  # where the run is kept, until the next one
QUICK = {"encoding.name": "rope,nope", "train.steps": 100, "seeds": 1}


def prepared(job: dict[str, Any]) -> Prepared:
    """The trainings in an hour, and the trainings."""
    return prepare(job, {job["task"]: lambda: lambda: _measured(job)})


def _measured(job: dict[str, Any]) -> list[float]:
    folder = FOLDER / f"others-seeds3-{job['task']}-rates{job['rate']}"  # as the board's sweep
    fields = {"wandb.group": "leaderboard", "encoding.name": "others", "seeds": 3,
              "task.name": job["task"], "train.rates": f"({job['rate']},)",
              **(QUICK if job["quick"] else {})}  # fmt: skip
    command = [sys.executable, "train.py", "--config=configs/leaderboard.py"]
    command += [f"--workdir={folder}", *(f"--config.{k}={v}" for k, v in fields.items())]
    shutil.rmtree(ROOT / FOLDER, ignore_errors=True)
    began = time.monotonic()
    subprocess.run(command, cwd=ROOT, check=True, stdout=sys.stderr)
    seconds = time.monotonic() - began
    records = runs.read(ROOT / folder).records
    trainings = sum(record["metric"] == "seconds" for record in records)
    return [3600 * trainings / seconds, trainings]
