"""metrics.jsonl and the stages that have ended, kept in step with each other.

A stage is a part of a run that a restart does not repeat: the training of one encoding, an
evaluation, a row, a claim. progress.json names those that ended, each with a mark: how long
metrics.jsonl was then, and the hash of all of it. What lies past the last mark belongs to a stage
that did not end, and is cut off when the first new record comes.
"""

import hashlib
import io
import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from posenc_jax.lab.hosts.exit_status import NotWritten
from posenc_jax.lab.hosts.files import write_json

Mark = dict[str, Any]  # {"bytes": int, "sha256": str}


class Journal:
    """The records and the progress of a run, brought back to the last mark that holds."""

    def __init__(self, folder: Path):
        self._path, self._progress = folder / "metrics.jsonl", folder / "progress.json"
        kept = _read(self._progress)
        self.facts: dict[str, Any] = kept.get("facts", {})
        self.starts: int = kept.get("starts", 0) + 1
        self.id: str = kept.get("id") or secrets.token_hex(4)
        self._stages: dict[str, Mark] = {}
        self._hash, self._size = hashlib.sha256(), 0
        # Not buffered: after a failed write nothing may be left to be written later.
        self._file: io.FileIO = self._path.open("r+b", buffering=0)
        for stage, mark in kept.get("stages", {}).items():
            if not self.go_to(mark):
                break
            self._stages[stage] = mark
        self.write()

    def append(self, text: str) -> None:
        """Adds lines after the last one, cutting off what a stage that did not end had left."""
        line = text.encode()
        try:
            self._file.truncate(self._size)
            self._file.seek(self._size)
            rest = memoryview(line)
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            raise NotWritten(f"{self._path}: {error.strerror}") from error
        self._hash.update(line)
        self._size += len(line)

    def text(self) -> str:
        """All lines up to here."""
        return self._path.read_bytes()[: self._size].decode()

    def mark(self) -> Mark:
        """Where the records are now; on disk before this returns."""
        os.fsync(self._file.fileno())
        return {"bytes": self._size, "sha256": self._hash.hexdigest()}

    def go_to(self, mark: Mapping) -> bool:
        """Makes a mark the end of the records; False, and no change, where they are not as then."""
        if self.holds(mark):
            self._hash, self._size = self._start_of(mark), mark["bytes"]
            return True
        return False

    def holds(self, mark: Mapping) -> bool:
        """Whether the records begin with what was there at the mark."""
        return self._start_of(mark).hexdigest() == mark["sha256"]

    def _start_of(self, mark: Mapping) -> Any:
        self._file.seek(0)
        return hashlib.sha256(self._file.read(mark["bytes"]))

    def ended(self, stage: str) -> bool:
        return stage in self._stages

    def end(self, stage: str) -> None:
        """Says that a stage has ended, with all that it recorded."""
        self._stages[stage] = self.mark()
        self.write()

    def reopen(self, stage: str) -> None:
        """Takes back that a stage ended, and all that came after it."""
        if stage not in self._stages:
            return
        names = list(self._stages)
        before = names[: names.index(stage)]
        self._stages = {name: self._stages[name] for name in before}
        self.go_to(self._stages[before[-1]] if before else {"bytes": 0, "sha256": _NOTHING})
        self.write()

    def cut(self) -> None:
        """Ends the file where the records end."""
        self._file.truncate(self._size)

    def close(self) -> None:
        self._file.close()

    def write(self) -> None:
        """Puts the progress and the facts on disk."""
        content = {
            "id": self.id,
            "starts": self.starts,
            "facts": self.facts,
            "stages": self._stages,
        }
        write_json(self._progress, content)


_NOTHING = hashlib.sha256().hexdigest()


def _read(path: Path) -> dict[str, Any]:
    try:
        kept = json.loads(path.read_text("utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return kept if isinstance(kept, dict) else {}
