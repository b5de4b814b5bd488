"""Saves and restores the training state of one stage together with the run's records."""

import sys
import time
from typing import Any

from posenc_jax.lab.config.schema import CheckpointConfig
from posenc_jax.lab.hosts import processes, signals
from posenc_jax.lab.hosts.console import say
from posenc_jax.lab.hosts.exit_status import NotWritten
from posenc_jax.lab.runs.checkpoints import Checkpoints
from posenc_jax.lab.runs.run import Run
from posenc_jax.lab.runs.source import stage_folder


class StageCheckpoints:
    """The checkpoints of a stage of `steps` training steps.

    Each checkpoint notes the mark of the records, so that state and records are restored together.
    Use it as a context manager: it waits for the last write.
    """

    def __init__(self, run: Run, stage: str, steps: int, config: CheckpointConfig):
        self._run, self._stage, self._steps = run, stage, steps
        self._every, self._at, self._time = config.seconds, config.at, time.monotonic()
        self._checkpoints = Checkpoints(stage_folder(run.path, stage), config.keep, config.at)
        self.step = 0

    def __enter__(self) -> "StageCheckpoints":
        return self

    def __exit__(self, kind, error, trace) -> None:
        try:
            self._checkpoints.wait()
        except NotWritten as late:
            if kind is None:
                raise
            say(str(late), sys.stderr)

    def restore(self, fresh: Any) -> Any:
        """Returns the state of the newest valid checkpoint, or `fresh` if there is none; sets
        `step` to its step.

        Raises:
          Refused: names a leaf that does not fit `fresh`.
        """
        step, note = self._find()
        self.step = processes.from_first(step)
        whole = self.step == self._steps and self._run.ended(self._stage)
        if not whole:
            if self._run.journal is not None:
                self._run.journal.go_back(self._stage, note.get("mark"))
            self._checkpoints.delete_after(self.step)
        if self.step < self._steps:
            self._run.begin(f"{self._stage}, step {self.step} of {self._steps}")
        if not self.step:
            return fresh
        return self._checkpoints.restore(self.step, fresh)

    def due(self, step: int) -> bool:
        """Returns whether to save after `step` steps: `seconds` have passed, the step is one to
        keep, or a stop was requested.
        """
        late = step in self._at or time.monotonic() - self._time >= self._every
        return signals.stop_requested() or processes.from_first(late)

    def save(self, step: int, state: Any) -> None:
        """Starts to write the state after `step` steps; their records must be logged already.

        Raises:
          NotWritten, Diverged: as `Checkpoints.save`.
          Interrupted: a stop was requested; the state is on disk.
        """
        if step > self.step:
            journal = self._run.journal
            self._checkpoints.save(step, state, {"mark": journal.mark()} if journal else {})
            self.step, self._time = step, time.monotonic()
        if step == self._steps or signals.stop_requested():
            self._checkpoints.wait()
        signals.stop_if_requested()

    def _find(self) -> tuple[int, dict[str, Any]]:
        """Returns the step of the newest checkpoint that fits the records, and its note; 0 and {}
        if there is none, and in a process without records.
        """
        journal = self._run.journal
        for step in self._checkpoints.verified() if journal else ():
            note = self._checkpoints.note(step)
            if journal and journal.holds(note.get("mark")):
                return step, note
            where = f"{self._stage}, step {step}"
            say(f"{where}: not used: metrics.jsonl is not as it was then", sys.stderr)
        return 0, {}
