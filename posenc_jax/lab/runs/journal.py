"""Writes metrics.jsonl and progress.json so that they agree after an interruption.

A stage is a part of a run that is not repeated when the run is resumed: the training of one
encoding, an evaluation, a row, a claim. progress.json lists the stages that ended, each with a
mark: the length of metrics.jsonl at that time and the hash of its content. Lines after the last
mark belong to a stage that did not end; they are cut off when the next record is written.
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
from posenc_jax.lab.runs.records import Record, parse

Mark = dict[str, Any]  # {"bytes": int, "sha256": str}


class Journal:
    """The records and the progress of a run; opening it returns to the last mark that is valid."""

    def __init__(self, folder: Path):
        self._path, self._progress = folder / "metrics.jsonl", folder / "progress.json"
        kept = _read(self._progress)
        self.facts: dict[str, Any] = kept.get("facts", {})
        self.starts: int = kept.get("starts", 0) + 1
        self.id: str = kept.get("id") or secrets.token_hex(4)
        self._stages: dict[str, Mark] = {}
        self._hash, self._size = hashlib.sha256(), 0
        # Unbuffered: after a failed write no bytes may remain to be written later.
        self._file: io.FileIO = self._path.open("r+b", buffering=0)
        for stage, mark in kept.get("stages", {}).items():
            if not self.holds(mark):
                break
            self.go_to(mark)
            self._stages[stage] = mark
        self.write()

    def append(self, text: str) -> None:
        """Writes lines after the last valid one, in place of those of a stage that did not end."""
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

    def records(self) -> list[Record]:
        """Returns all valid records."""
        return parse(self._path.read_bytes()[: self._size].decode(), self._path)

    def mark(self) -> Mark:
        """Returns the mark of the current end; all records are on disk before this returns."""
        os.fsync(self._file.fileno())
        return {"bytes": self._size, "sha256": self._hash.hexdigest()}

    def holds(self, mark: Mapping) -> bool:
        """Returns whether the file still begins with the content that the mark describes."""
        return self._start_of(mark).hexdigest() == mark["sha256"]

    def go_to(self, mark: Mapping) -> None:
        """Makes a valid mark the end of the records."""
        self._hash, self._size = self._start_of(mark), mark["bytes"]

    def _start_of(self, mark: Mapping) -> Any:
        self._file.seek(0)
        return hashlib.sha256(self._file.read(mark["bytes"]))

    def ended(self, stage: str) -> bool:
        return stage in self._stages

    def end(self, stage: str) -> None:
        """Records that a stage has ended."""
        self._stages[stage] = self.mark()
        self.write()

    def go_back(self, stage: str, mark: Mapping | None) -> None:
        """Removes the end of a stage and all records after its start, or after the mark."""
        if stage in self._stages:
            names = list(self._stages)
            before = names[: names.index(stage)]
            self._stages = {name: self._stages[name] for name in before}
            self.go_to(self._stages[before[-1]] if before else {"bytes": 0})
            self.write()
        if mark is not None:
            self.go_to(mark)

    def cut(self) -> None:
        """Truncates the file to its valid lines."""
        self._file.truncate(self._size)

    def close(self) -> None:
        self._file.close()

    def write(self) -> None:
        """Writes progress.json."""
        state = {"id": self.id, "starts": self.starts, "facts": self.facts}
        write_json(self._progress, {**state, "stages": self._stages})


def _read(path: Path) -> dict[str, Any]:
    try:
        kept = json.loads(path.read_text("utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return kept if isinstance(kept, dict) else {}
