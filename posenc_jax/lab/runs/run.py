"""A run that is open for writing: its folder, lock, journal and W&B logger."""

import contextlib
import dataclasses
import hashlib
import shutil
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from posenc_jax.lab.config import imports
from posenc_jax.lab.hosts import failpoints, processes
from posenc_jax.lab.hosts.console import say
from posenc_jax.lab.hosts.exit_status import NotWritten, Refused
from posenc_jax.lab.hosts.files import json_text, read_object, write_json, write_text
from posenc_jax.lab.runs.environment import changes, environment
from posenc_jax.lab.runs.journal import Journal
from posenc_jax.lab.runs.lock import locked
from posenc_jax.lab.runs.records import Record, check, plain, to_line
from posenc_jax.lab.runs.stored import file_sha256, read, run_status
from posenc_jax.lab.summary import Summary
from posenc_jax.lab.summary import parse as parse_summary
from posenc_jax.lab.wandb import logger
from posenc_jax.options import FieldError


class Run:
    """Writes one run to its folder, and resumes it if the folder holds a part of it.

    With several processes only the first one reads and writes; the others get its answers. If the
    run is refused before its first record, a folder that was empty or missing is so again.

    Args:
      workdir: the run's folder; made where it does not exist.
      config: the resolved configuration, plain values in nested dictionaries.
      wandb: {"mode": "disabled" | "offline" | "online", "checkpoint": whether to upload
        checkpoints, ...}; the other entries (project, group, ...) are arguments of `wandb.init`.
      defaults: as for `run_status`.

    Raises:
      ValueError: the folder holds another run or a finished one, another process uses it, or the
        config holds a value that JSON cannot hold.
      NotWritten: the folder cannot be written to.
    """

    def __init__(
        self,
        workdir: str | Path,
        config: Mapping,
        wandb: Mapping | None = None,
        defaults: Collection[str] = (),
    ):
        self.path = Path(workdir)
        if "environment" in config:
            raise ValueError("config.environment: the name is taken by the record of the machine")
        content = plain("config", config)
        self._options = wandb or {"mode": "disabled"}
        self._wandb, self._closing = logger.WandbLogger(), contextlib.ExitStack()
        self.journal: Journal | None = None
        self._announced, self._defaults, refusal = False, defaults, None
        if processes.is_first():
            try:
                self._open(config, content)
            except (ValueError, NotWritten) as error:
                refusal = error
        if processes.from_first(refusal is not None):
            raise refusal or Refused(f"workdir: {self.path}: the first process refuses it")

    def _open(self, config: Mapping, content: dict) -> None:
        run_status(self.path, config, self._defaults)  # refuses before a lock file is made
        folders = self.path.absolute(), *self.path.absolute().parents
        self._new_folders = [folder for folder in folders if not folder.exists()]
        self._was_empty = bool(self._new_folders) or not any(self.path.iterdir())
        with contextlib.ExitStack() as closing:
            try:
                self.path.mkdir(parents=True, exist_ok=True)
                closing.enter_context(locked(self.path))
                self.journal = self._begun(config, content)
            except OSError as error:
                raise NotWritten(f"workdir: {self.path}: {error.strerror}") from error
            closing.callback(self.journal.close)
            earlier = None if self._announced else self.journal.reader
            self._wandb = logger.start(self.path, content, self._options, self.journal.id, earlier)
            self._closing = closing.pop_all()

    def _begun(self, config: Mapping, content: dict) -> Journal:
        where = run_status(self.path, config, self._defaults)
        if where == "finished":
            raise Refused(
                f"workdir: {self.path} holds this run, finished; choose another --workdir"
            )
        content["environment"] = environment()
        if imported := imports.record(config.get("imports", ())):
            content["environment"]["imports"] = imported
        (self.path / "metrics.jsonl").touch()
        if where == "new":
            (self.path / "progress.json").unlink(missing_ok=True)
            write_json(self.path / "config.json", content)
        else:
            stored = read_object(self.path / "config.json")["environment"]
            if changed := changes(stored, content["environment"]):
                say(f"{self.path}: goes on with {changed}: bits may differ")
        self._announced = where == "new"
        return Journal(self.path)

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, kind, error, trace) -> None:
        finished = kind is None and (self.path / "summary.json").is_file()
        self._wandb.close(kind is not None, self.records if finished else None)
        if kind is not None and issubclass(kind, (Refused, FieldError)):
            self._undo()
        self._closing.close()

    def _undo(self) -> None:
        """Removes what this start has written, unless there are records or checkpoints."""
        if self.journal is None or not self._was_empty:
            return
        if self.records() or (self.path / "checkpoints").exists():
            return
        for path in self.path.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        with contextlib.suppress(OSError):  # another run may be in a folder above
            for folder in self._new_folders:
                folder.rmdir()

    @property
    def is_writer(self) -> bool:
        """Whether this process writes the run."""
        return self.journal is not None

    def log(self, records: Iterable[Mapping]) -> None:
        """Appends records to metrics.jsonl, all or none, and sends them to W&B.

        Raises:
          ValueError: a field is missing, unknown or of the wrong type; names it.
          NotWritten: the file system refuses.
        """
        checked = [check(record) for record in records]
        lines = map(to_line, checked)
        if self.journal is not None:
            self.journal.append("".join(line + "\n" for line in lines))
            self._wandb.log(checked)

    def trainings(self, count: int) -> None:
        """Says that so many trainings follow, an encoding with a seed each, which W&B shows as runs
        of their own.
        """
        self._wandb.trainings(count)

    def end_trainings(self) -> None:
        """Says that the trainings so far have got all their records."""
        self._wandb.end_trainings()

    def records(self) -> list[Record]:
        """Returns all records so far from disk; [] in all processes but the first."""
        return [] if self.journal is None else self.journal.records()

    def fact(self, **facts: Any) -> None:
        """Adds facts about the run (a corpus's hash, a count of programs) to its summary.

        A fact with a `sha256` describes data that the run reads. It is on disk before this returns,
        and must be the same when the run is resumed; all processes must add it.

        Raises:
          Refused: the hash differs from an earlier start's; names both.
        """
        content = {name: plain(f"fact.{name}", fact) for name, fact in facts.items()}
        dicts = {name: fact for name, fact in content.items() if isinstance(fact, dict)}
        hashes = {name: fact["sha256"] for name, fact in dicts.items() if "sha256" in fact}
        refusal = ""
        for name, now in hashes.items():
            stored = self.facts.get(name, {})
            before = stored.get("sha256", now) if isinstance(stored, dict) else stored
            if before != now:
                refusal = (
                    f"workdir: {self.path} holds a run, with {name}.sha256 {before}, not {now}; "
                    "bring that data back, or choose another folder"
                )
        if hashes and processes.from_first(bool(refusal)):
            raise Refused(refusal or f"workdir: {self.path}: the first process refuses its data")
        if self.journal is not None:
            self.journal.facts.update(content)
            if hashes:
                self.journal.write()

    @property
    def facts(self) -> dict[str, Any]:
        """The facts so far, including those of earlier starts."""
        return {} if self.journal is None else dict(self.journal.facts)

    def ended(self, stage: str) -> bool:
        """Returns whether a stage has ended, in this start or an earlier one."""
        return processes.from_first(self.journal is not None and self.journal.ended(stage))

    def begin(self, stage: str) -> None:
        """Prints, once in a resumed run, the stage it resumes from."""
        if not self._announced and self.journal is not None:
            say(f"{self.path}: goes on from {stage}")
        self._announced = True

    def end(self, stage: str) -> None:
        """Records that a stage has ended."""
        if self.journal is not None:
            self.journal.end(stage)

    def finish(self, summary: Summary | Mapping) -> Summary:
        """Writes summary.json with the facts and the number of starts; returns the summary.

        A dictionary is what an experiment alone writes, or has the fields of a `LengthSummary`.
        """
        summary = summary if isinstance(summary, Summary) else parse_summary(summary)
        if self.journal is None:
            return summary
        self.journal.cut()
        facts = {**self.journal.facts, **summary.facts}
        summary = dataclasses.replace(summary, facts=facts, starts=self.journal.starts)
        content = plain("summary", summary.content())
        self._wandb.unsent.add(report=True)
        text = json_text(content)
        self.journal.seal({"config.json": file_sha256(self.path / "config.json"),
                           "summary.json": hashlib.sha256(text.encode()).hexdigest()})  # fmt: skip
        write_text(self.path / "summary.json", text)
        failpoints.reach("finished")
        self._wandb.summarise(summary)
        return summary


def send_report(workdir: str | Path, config: Mapping, wandb: Mapping) -> None:
    """Sends W&B the report of a finished run whose own process ended before it could.

    Raises:
      Refused: another process uses the folder.
    """
    path = Path(workdir)
    if not (path / logger.UNSENT).is_file() or wandb["mode"] == "disabled":
        return
    with locked(path):
        run, id = read(path), logger.Unsent(path).id
        copy = logger.start(path, plain("config", config), wandb, id)
        copy.summarise(run.summary)
        copy.close(False, lambda: run.records)
