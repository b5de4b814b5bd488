"""Reads a run's folder: how far the run is, and what a finished run has written."""

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

from posenc_jax.lab.config.sweeps import dotted
from posenc_jax.lab.hosts.exit_status import Refused
from posenc_jax.lab.hosts.files import check_writable, read_object
from posenc_jax.lab.runs.journal import content_mark, read_progress
from posenc_jax.lab.runs.records import Record, parse, plain
from posenc_jax.lab.summary import LengthSummary, Summary
from posenc_jax.lab.summary import parse as parse_summary
from posenc_jax.options import choices_for


class StoredRun(NamedTuple):
    """The content of a finished run's folder; `config` without its `environment`."""

    path: Path
    config: dict
    environment: dict
    records: list[Record]
    summary: Summary

    @property
    def by_length(self) -> LengthSummary:
        """The summary of a run that evaluates encodings at several lengths. ValueError: it is of
        another kind.
        """
        if not isinstance(self.summary, LengthSummary):
            raise ValueError(f"workdir: {self.path}: its summary.json has no results by length")
        return self.summary

    def compared_with(self, reference: str) -> "StoredRun":
        """The run with this encoding as its first one, from which reports show differences.

        Raises:
          ValueError: the run has no results by length, or none of this encoding.
        """
        summary = self.by_length
        if reference not in summary.results:
            raise ValueError(f"reference: {reference!r}{choices_for(reference, summary.results)}")
        later = lambda record: record["labels"].get("encoding") != reference
        results = {reference: summary.results[reference], **summary.results}
        return self._replace(
            records=sorted(self.records, key=later), summary=replace(summary, results=results)
        )


def read(workdir: str | Path) -> StoredRun:
    """Reads a finished run; an incomplete last line of metrics.jsonl is left out.

    Raises:
      ValueError: there is no finished run, a line is damaged, or a file is not what the run wrote;
        names the file or the line.
    """
    path = Path(workdir)
    for name in ("config.json", "metrics.jsonl", "summary.json"):
        if not (path / name).is_file():
            raise ValueError(f"workdir: {path} has no {name}; give the folder of a finished run")
    try:
        _check_unchanged(path)
        config, summary = read_object(path / "config.json"), read_summary(path)
        environment = config.pop("environment", {})
        if not isinstance(environment, dict):
            raise ValueError(f"{path / 'config.json'}: environment is not an object")
        return StoredRun(path, config, environment, stored_records(path), summary)
    except OSError as error:
        raise ValueError(f"workdir: {error.filename or path}: {error.strerror}") from None


def _check_unchanged(path: Path) -> None:
    """Raises ValueError if a file of a finished run is not what the run wrote, as far as
    progress.json tells: runs of earlier versions, and runs from an archive, have no hashes.
    """
    progress = read_progress(path / "progress.json")
    for name, sha256 in progress.get("files", {}).items():
        if file_sha256(path / name) != sha256:
            raise ValueError(f"{path / name}: it is not what the run wrote")
    mark = progress.get("records")
    if mark and content_mark((path / "metrics.jsonl").read_bytes(), mark["bytes"]) != mark:
        raise ValueError(f"{path / 'metrics.jsonl'}: it is not what the run wrote")


def read_summary(workdir: str | Path) -> Summary:
    """Reads the summary of a finished run.

    Raises:
      ValueError: an entry is missing or of a wrong type; names the file and the entry.
    """
    path = Path(workdir) / "summary.json"
    content = read_object(path)
    try:
        return parse_summary(content)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def stored_records(workdir: str | Path) -> list[Record]:
    """Reads the records so far of a run that may still be running; [] if it has none.

    Raises:
      ValueError: a line is damaged; names it.
    """
    path = Path(workdir) / "metrics.jsonl"
    return parse(path.read_bytes(), path) if path.is_file() else []


def file_sha256(path: Path) -> str:
    """Returns the SHA-256 of a file of a run."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def finished(folders: Iterable[Path]) -> list[Path]:
    """Returns the folders of runs; a folder that is not a run is replaced by the finished runs
    below it, without those inside of a run, which are evaluations of its weights.
    """
    runs = []
    for folder in folders:
        below = sorted(
            path.parent
            for path in folder.glob("**/summary.json")
            if not any(
                (above / "config.json").is_file()
                for above in path.parent.parents
                if above.is_relative_to(folder)
            )
        )
        runs += [folder] if (folder / "config.json").is_file() or not below else below
    return runs


def run_status(
    path: str | Path,
    config: Mapping,
    defaults: Collection[str] = (),
    flag: str = "--workdir",
) -> Literal["new", "begun", "finished"]:
    """Returns how far the run of this config is in a folder.

    flag: by which another folder is chosen, for messages.
    defaults: dotted fields of the config that have their defaults. A stored run may lack them,
      because it is older than they are: the default of a new field is what runs did before it.

    A run without records and checkpoints counts as "new", whatever its config was.

    Raises:
      Refused: the path is a file; the folder holds something else, or a run with another config,
        whose first different field is named; or the run is not finished and the folder cannot be
        written to.
    """
    path = Path(path)
    try:
        where = _run_status(path, config, defaults, flag)
        if where != "finished":
            check_writable(path)
        return where
    except OSError as error:
        raise Refused(f"workdir: {path}: {error.strerror}") from None


def _run_status(
    path: Path, config: Mapping, defaults: Collection[str], flag: str
) -> Literal["new", "begun", "finished"]:
    if path.exists() and not path.is_dir():
        raise Refused(f"workdir: {path} is a file; choose a folder")
    metrics, written = path / "metrics.jsonl", path / "config.json"
    has_records = metrics.exists() and metrics.stat().st_size > 0
    if not has_records and not written.exists():
        return "new"
    try:
        stored = read_object(written)
        if not isinstance(stored.pop("environment"), dict):
            raise ValueError
        stored.pop("wandb", None)  # a run may be resumed with other W&B settings
    except (OSError, ValueError, KeyError):
        reason = f"{path} holds something that is no run of ours"
        raise Refused(f"workdir: {reason}; choose another {flag}") from None
    if not metrics.exists():
        reason = f"{path} holds a config.json but no metrics.jsonl"
        raise Refused(f"workdir: {reason}; choose another {flag}")
    wanted = {k: v for k, v in plain("config", config).items() if k != "wandb"}
    difference = next(_differences("config", stored, wanted, defaults), "")
    if difference and (has_records or (path / "checkpoints").exists()):
        reason = f"{path} already holds a run, with {difference}"
        raise Refused(f"workdir: {reason}; choose another {flag}")
    if difference:
        return "new"
    return "finished" if (path / "summary.json").exists() else "begun"


def _differences(field: str, stored: Any, wanted: Any, defaults: Collection[str]) -> Iterator[str]:
    if isinstance(stored, Mapping) and isinstance(wanted, Mapping):
        for name in {**wanted, **stored}:
            if name not in wanted:
                yield f"{field}.{name}, which this config lacks{choices_for(name, wanted)}"
            elif name in stored:
                yield from _differences(f"{field}.{name}", stored[name], wanted[name], defaults)
            elif not _newer(f"{field}.{name}", wanted[name], defaults):
                yield f"no {field}.{name}"
    elif stored != wanted:
        yield f"{field} {stored!r}, not {wanted!r}"


def _newer(field: str, value: Any, defaults: Collection[str]) -> bool:
    """Returns whether all of a field, or of the fields in it, has its default."""
    below = dotted({field.removeprefix("config."): value})
    return all(name in defaults for name in below)
