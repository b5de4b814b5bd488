"""A run on disk: config.json, metrics.jsonl, summary.json.

A line of metrics.jsonl is one record: step, seed, labels, metric, value; see `records`. JSON has no
NaN and no infinity: a value that is not finite is written as null and read back as NaN, so a run
that diverged keeps its records.

A run is a sequence of stages. A run that was interrupted at any instant can be resumed: stages that
ended are not repeated (progress.json), and a stage that trains resumes from a checkpoint
(checkpoints/).
"""

from posenc_jax.lab.runs.environment import environment
from posenc_jax.lab.runs.records import FIELDS, SPLITS, TIMES, Record, check, plain, seed_records
from posenc_jax.lab.runs.resume import StageCheckpoints
from posenc_jax.lab.runs.run import Run, send_report
from posenc_jax.lab.runs.status import run_status
from posenc_jax.lab.runs.stored import StoredRun, finished, read

__all__ = [
    "FIELDS",
    "SPLITS",
    "TIMES",
    "Record",
    "Run",
    "StageCheckpoints",
    "StoredRun",
    "check",
    "environment",
    "finished",
    "plain",
    "read",
    "run_status",
    "seed_records",
    "send_report",
]  # fmt: skip
