"""The checkpoints of one stage that trains, in step with the run's records."""

import sys
import time
from typing import Any

from posenc_jax.lab.config.schema import CheckpointConfig
from posenc_jax.lab.hosts import processes, signals
from posenc_jax.lab.hosts.exit_status import NotWritten
from posenc_jax.lab.hosts.files import folder_name
from posenc_jax.lab.runs.checkpoints import Checkpoint, Checkpoints, fill
from posenc_jax.lab.runs.run import Run


class StageCheckpoints:
    """Keeps the state of a stage of `steps` steps; a restart goes on from the newest that holds.

    A checkpoint notes where the records were, so that both come back together. Use it as a context
    manager: what is being written when it ends is waited for.
    """

    def __init__(self, run: Run, stage: str, steps: int, config: CheckpointConfig):
        self._run, self._stage, self._steps = run, stage, steps
        self._every, self._time = config.seconds, time.monotonic()
        folder = run.path / "checkpoints" / folder_name(stage)
        self._checkpoints = Checkpoints(folder, config.keep)
        self.step = 0

    def __enter__(self) -> "StageCheckpoints":
        return self

    def __exit__(self, kind, error, trace) -> None:
        try:
            self._checkpoints.wait()
        except NotWritten as late:
            if kind is None:
                raise
            print(late, file=sys.stderr, flush=True)

    def restore(self, fresh: Any) -> Any:
        """The state to go on from: the newest that holds, or `fresh`; `step` says of which step.

        Raises:
          Refused: names a leaf that does not fit `fresh`.
        """
        found = self._find()
        self.step = processes.from_first(found.step if found else 0)
        whole = self.step == self._steps and self._run.ended(self._stage)
        if not whole:
            self._run.go_back(self._stage, found.note["mark"] if found else None)
            self._checkpoints.delete_after(self.step)
        if self.step < self._steps:
            self._run.begin(f"{self._stage}, step {self.step} of {self._steps}")
        if not self.step:
            return fresh
        return fill(fresh, (found or self._checkpoints.read(self.step)).leaves)

    def due(self) -> bool:
        """Whether to save now: the time has come, or the process was asked to leave."""
        late = time.monotonic() - self._time >= self._every
        return signals.stop_requested() or processes.from_first(late)

    def save(self, step: int, state: Any) -> None:
        """Starts to write the state after so many steps, all of whose records are logged.

        Raises:
          NotWritten, Diverged: as `Checkpoints.save`.
          Interrupted: the process was asked to leave; the state is on disk.
        """
        if step > self.step:
            self._checkpoints.save(step, state, {"mark": self._run.mark()})
            self.step, self._time = step, time.monotonic()
        if step == self._steps or signals.stop_requested():
            self._checkpoints.wait()
        signals.stop_if_requested()

    def _find(self) -> Checkpoint | None:
        if not self._run.is_writer:
            return None
        for kept in self._checkpoints.newest():
            if self._run.holds(kept.note["mark"]):
                return kept
            print(f"{self._stage}, step {kept.step}: not used: metrics.jsonl is not as it was then",
                  file=sys.stderr, flush=True)  # fmt: skip
        return None
