"""A run on disk: config.json, metrics.jsonl, summary.json.

A line of metrics.jsonl is one record, see `records`. JSON has no NaN and no infinity: a value that
is not finite is written as null and read back as NaN, so a run that diverged keeps its records.

A run that was interrupted at any instant can be resumed: stages that ended are not repeated, see
`journal`, and a stage that trains resumes from a checkpoint, see `resume`.
"""

from posenc_jax.lab.runs.archive import pack, read_archive, unpacked
from posenc_jax.lab.runs.environment import environment
from posenc_jax.lab.runs.records import TIMES, Record, plain, seed_records
from posenc_jax.lab.runs.resume import StageCheckpoints
from posenc_jax.lab.runs.run import Run, send_report
from posenc_jax.lab.runs.stored import (
    StoredRun,
    finished,
    read,
    read_summary,
    run_status,
    stored_records,
)

__all__ = [
    "TIMES", "Record", "Run", "StageCheckpoints", "StoredRun", "environment", "finished", "pack",
    "plain", "read", "read_archive", "read_summary", "run_status", "seed_records", "send_report",
    "stored_records", "unpacked",
]  # fmt: skip
