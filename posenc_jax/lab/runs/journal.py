"""Writes metrics.jsonl and progress.json so that they agree after an interruption.

A stage is a part of a run that is not repeated when the run is resumed: the training of one
encoding, an evaluation, a row, a claim. progress.json lists the stages that ended, each with a
mark: the length of metrics.jsonl at that time and the hash of its content. Lines after the last
mark belong to a stage that did not end; they are cut off when the next record is written.

progress.json also has a hash of its own content; one that is damaged is not used, so all stages are
repeated. That of a finished run has a mark of all records and the hashes of config.json and
summary.json, so that no report is made of other numbers than the run wrote. Runs of earlier
versions have no such hashes.
"""

import hashlib
import io
import itertools
import json
import os
import secrets
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from posenc_jax.lab.hosts.console import say
from posenc_jax.lab.hosts.exit_status import NotWritten
from posenc_jax.lab.hosts.files import read_object, write_json
from posenc_jax.lab.runs.records import Record, parse

Mark = dict[str, Any]  # {"bytes": int, "sha256": str}


class Journal:
    """The records and the progress of a run; opening it returns to the last mark that is valid."""

    def __init__(self, folder: Path):
        self._path, self._progress = folder / "metrics.jsonl", folder / "progress.json"
        progress = _usable_progress(self._progress)
        self.facts: dict[str, Any] = progress.get("facts", {})
        self.starts: int = progress.get("starts", 0) + 1
        self.id: str = progress.get("id") or secrets.token_hex(4)
        self._stages: dict[str, Mark] = {}
        self._content = bytearray(self._path.read_bytes())
        self._size = 0  # of the valid lines
        # Unbuffered: after a failed write no bytes may remain to be written later.
        self._file: io.FileIO = self._path.open("r+b", buffering=0)
        for stage, mark in progress.get("stages", {}).items():
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
            unwritten = memoryview(line)
            while unwritten:
                unwritten = unwritten[self._file.write(unwritten) :]
        except OSError as error:
            raise NotWritten(f"{self._path}: {error.strerror}") from error
        self._content += line
        self._size += len(line)

    def records(self) -> list[Record]:
        """Returns all valid records."""
        return self.reader()()

    def reader(self) -> Callable[[], list[Record]]:
        """Returns a function that parses what is valid now, for another thread."""
        return partial(parse, bytes(self._content[: self._size]), self._path)

    def mark(self) -> Mark:
        """Returns the mark of the current end; all records are on disk before this returns."""
        os.fsync(self._file.fileno())
        return self._mark(self._size)

    def holds(self, mark: Any) -> bool:
        """Returns whether the file still begins with the content that the mark describes."""
        return is_mark(mark) and self._mark(mark["bytes"]) == mark

    def _mark(self, size: int) -> Mark:
        return content_mark(self._content, size)

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
            self._size = max((end["bytes"] for end in self._stages.values()), default=0)
            self.write()
        if mark is not None:
            self._size = mark["bytes"]

    def cut(self) -> None:
        """Truncates the file to its valid lines."""
        del self._content[self._size :]
        self._file.truncate(self._size)

    def close(self) -> None:
        self._file.close()

    def write(self, **sealed: Any) -> None:
        """Writes progress.json."""
        state = {"id": self.id, "starts": self.starts, "facts": self.facts, "stages": self._stages}
        state |= sealed
        write_json(self._progress, {**state, "sha256": _sha256(state)})

    def seal(self, files: Mapping[str, str]) -> None:
        """Notes the records and the hashes of the files of a finished run."""
        self.write(records=self.mark(), files=files)


def content_mark(content: bytes | bytearray, size: int) -> Mark:
    """Returns the mark of the first `size` bytes of metrics.jsonl."""
    return {"bytes": size, "sha256": hashlib.sha256(content[:size]).hexdigest()}


def is_mark(value: Any) -> bool:
    """Returns whether a value from a file has the fields of a mark."""
    return (
        isinstance(value, dict)
        and value.keys() == {"bytes", "sha256"}
        and type(value["bytes"]) is int
        and value["bytes"] >= 0
        and isinstance(value["sha256"], str)
    )


def read_progress(path: Path) -> dict[str, Any]:
    """Reads progress.json; {} if there is none.

    Raises:
      ValueError: it is damaged; one line that names the file.
    """
    try:
        progress = read_object(path)
    except FileNotFoundError:
        return {}
    if progress.pop("sha256", None) not in (None, _sha256(progress)):  # None: of an earlier version
        raise ValueError(f"{path}: it is not what was written")
    types = {
        "facts": dict,
        "starts": int,
        "id": str,
        "stages": dict,
        "files": dict,
        "records": dict,
    }
    for name, wanted in types.items():
        if name in progress and type(progress[name]) is not wanted:
            raise ValueError(f"{path}: {name} is a {type(progress[name]).__name__}")
    records = {"": progress["records"]} if "records" in progress else {}
    marks = progress.get("stages", {}) | records
    for stage, mark in marks.items():
        if not is_mark(mark):
            raise ValueError(f"{path}: stage {stage!r} has no mark")
    return progress


def _usable_progress(path: Path) -> dict[str, Any]:
    """Returns what progress.json holds, or {} and one line if it is damaged."""
    try:
        return read_progress(path)
    except ValueError as error:
        say(f"{error}; all stages are repeated", sys.stderr)
        return {}


def _sha256(state: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()
