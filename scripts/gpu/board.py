"""A run of the leaderboard, from the command to the written report."""

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from posenc_jax.lab import runs
from scripts.gpu.worker import Prepared, prepare

ROOT = Path(__file__).parents[2]


def prepared(job: dict[str, Any]) -> Prepared:
    """The trainings in an hour, and how many there were."""
    return prepare(job, {"an hour": lambda: lambda: _measured(job)})


def _measured(job: dict[str, Any]) -> list[float]:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "train.py", f"--config=configs/leaderboard.py:{job['methods']}"]
        command += [f"--workdir={folder}/run", *job["fields"]]
        began = time.monotonic()
        subprocess.run(command, cwd=ROOT, check=True, stdout=sys.stderr)
        seconds = time.monotonic() - began
        records = runs.read(f"{folder}/run").records
    trainings = sum(_is_a_training(record) for record in records)
    return [3600 * trainings / seconds, trainings]


def _is_a_training(record: runs.Record) -> bool:
    """Each training has one exact match on validation examples, for the rate and the seed."""
    return record["metric"] == "exact_match" and record["labels"]["split"] == "valid"
