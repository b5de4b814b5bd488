"""Writes metrics.jsonl and progress.json so that they agree after an interruption.

A stage is a part of a run that is not repeated when the run is resumed: the training of one
encoding, an evaluation, a row, a claim. progress.json lists the stages that ended, each with a
mark: the length of metrics.jsonl at that time and the hash of its content. Lines after the last
mark belong to a stage that did not end; they are cut off when the next record is written.
"""

import hashlib
import io
import itertools
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
        self._content = bytearray(self._path.read_bytes())
        self._size = 0  # of the valid lines
        # Unbuffered: after a failed write no bytes may remain to be written later.
        self._file: io.FileIO = self._path.open("r+b", buffering=0)
        for stage, mark in kept.get("stages", {}).items():
            if not self.holds(mark):
                break
            self._size, self._stages[stage] = mark["bytes"], mark
        self.write()

    def append(self, text: str) -> None:
        """Writes lines after the last valid one, in place of those of a stage that did not end."""
        line = text.encode()
        try:
            self.cut()
            self._file.seek(self._size)
            rest = memoryview(line)
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            raise NotWritten(f"{self._path}: {error.strerror}") from error
        self._content += line
        self._size += len(line)

    def records(self) -> list[Record]:
        """Returns all valid records."""
        return parse(self._content[: self._size].decode(), self._path)

    def mark(self) -> Mark:
        """Returns the mark of the current end; all records are on disk before this returns."""
        os.fsync(self._file.fileno())
        return self._mark(self._size)

    def holds(self, mark: Mapping) -> bool:
        """Returns whether the file still begins with the content that the mark describes."""
        return self._mark(mark["bytes"]) == mark

    def _mark(self, size: int) -> Mark:
        return {"bytes": size, "sha256": hashlib.sha256(self._content[:size]).hexdigest()}

    def ended(self, stage: str) -> bool:
        return stage in self._stages

    def end(self, stage: str) -> None:
        """Records that a stage has ended."""
        self._stages[stage] = self.mark()
        self.write()

    def go_back(self, stage: str, mark: Mapping | None) -> None:
        """Removes the end of a stage and all records after its start, or after the mark."""
        if stage in self._stages:
            earlier = itertools.takewhile(lambda name: name != stage, self._stages)
            self._stages = {name: self._stages[name] for name in earlier}
            self._size = max((kept["bytes"] for kept in self._stages.values()), default=0)
            self.write()
        if mark is not None:
            self._size = mark["bytes"]

    def cut(self) -> None:
        """Truncates the file to its valid lines."""
        del self._content[self._size :]
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
