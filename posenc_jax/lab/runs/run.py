"""A run that is open for writing: its folder, lock, journal and W&B logger."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from posenc_jax.lab.hosts import failpoints, processes
from posenc_jax.lab.hosts.exit_status import NotWritten, Refused
from posenc_jax.lab.hosts.files import write_json, write_text
from posenc_jax.lab.runs.environment import changes, environment
from posenc_jax.lab.runs.journal import Journal, Mark
from posenc_jax.lab.runs.lock import Lock
from posenc_jax.lab.runs.records import Record, check, parse, plain
from posenc_jax.lab.runs.status import run_status
from posenc_jax.lab.runs.stored import read
from posenc_jax.lab.wandb import logger

# A file in the folder of a finished run whose report W&B has not received; holds its W&B id.
UNSENT = "unsent"


class Run:
    """Writes one run to its folder, and resumes it if the folder holds a part of it.

    With several processes only the first one reads and writes; the others get its answers.

    Args:
      workdir: the run's folder; made where it does not exist.
      config: the resolved configuration, plain values in nested dictionaries.
      wandb: {"mode": "disabled" | "offline" | "online", "checkpoint": whether to upload
        checkpoints, ...}; the other entries (project, group, ...) are arguments of `wandb.init`.

    Raises:
      ValueError: the folder holds another run or a finished one, another process uses it, or the
        config holds a value that JSON cannot hold.
      NotWritten: the folder cannot be written to.
    """

    def __init__(self, workdir: str | Path, config: Mapping, wandb: Mapping | None = None):
        self.path = Path(workdir)
        if "environment" in config:
            raise ValueError("config.environment: the name is taken by the record of the machine")
        content = plain("config", config)
        self._said = False
        self._mirror, self._journal = logger.WandbLogger(), None
        refusal = None
        if processes.is_first():
            try:
                self._start(config, content, wandb or {"mode": "disabled"})
            except (ValueError, NotWritten) as error:
                refusal = error
        if processes.from_first(refusal is not None):
            raise refusal or Refused(f"workdir: {self.path}: the first process refuses it")

    def _start(self, config: Mapping, content: dict, wandb: Mapping) -> None:
        run_status(self.path, config)  # refuses before a lock file is made
        try:
            self._journal = self._locked(config, content)
        except OSError as error:
            raise NotWritten(f"workdir: {self.path}: {error.strerror}") from error
        self._mirrored = wandb.get("mode", "disabled") != "disabled"
        self._checkpoint = bool(wandb.get("checkpoint"))
        self._mirror = logger.start(self.path, content, wandb, self._journal.id)

    def _locked(self, config: Mapping, content: dict) -> Journal:
        self.path.mkdir(parents=True, exist_ok=True)
        self._lock = Lock(self.path)
        try:
            content["environment"] = environment()
            return self._open(config, content)
        except BaseException:
            self._lock.release()
            raise

    def _open(self, config: Mapping, content: dict) -> Journal:
        where = run_status(self.path, config)
        if where == "finished":
            raise Refused(f"workdir: {self.path} holds this run, finished; choose another")
        (self.path / "metrics.jsonl").touch()
        if where == "new":
            (self.path / "progress.json").unlink(missing_ok=True)
            write_json(self.path / "config.json", content)
        else:
            stored = json.loads((self.path / "config.json").read_text("utf-8"))["environment"]
            if changed := changes(stored, content["environment"]):
                print(f"{self.path}: goes on with {changed}: bits may differ", flush=True)
        self._said = where == "new"
        return Journal(self.path)

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, kind, error, trace) -> None:
        if self._journal is not None:
            if kind is None and (self.path / "summary.json").is_file():
                _publish(self._mirror, self.path, self.records(), self._checkpoint)
            self._journal.close()
        self._mirror.finish(failed=kind is not None)
        if self._journal is not None:
            self._lock.release()

    def log(self, records: Iterable[Mapping]) -> None:
        """Appends records to metrics.jsonl, all or none, and sends them to W&B.

        Raises:
          ValueError: a field is missing, unknown or of the wrong type; names it.
          NotWritten: the file system refuses.
        """
        checked = [check(record) for record in records]
        lines = (json.dumps(plain("record", record), ensure_ascii=False) for record in checked)
        if self._journal is not None:
            self._journal.append("".join(line + "\n" for line in lines))
            self._mirror.log(checked)

    def records(self) -> list[Record]:
        """Returns all records so far from disk; [] in all processes but the first."""
        text = "" if self._journal is None else self._journal.text()
        return parse(text, self.path / "metrics.jsonl")

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
        if hashes:
            self._check_data(hashes)
        if self._journal is not None:
            self._journal.facts.update(content)
            if hashes:
                self._journal.write()

    def _check_data(self, hashes: Mapping[str, str]) -> None:
        refusal = ""
        for name, now in hashes.items():
            before = self.facts.get(name, {}).get("sha256", now)
            if before != now:
                refusal = (
                    f"workdir: {self.path} holds a run, with {name}.sha256 {before}, not {now}; "
                    "bring that data back, or choose another"
                )
        if processes.from_first(bool(refusal)):
            raise Refused(refusal or f"workdir: {self.path}: the first process refuses its data")

    @property
    def facts(self) -> dict[str, Any]:
        """The facts so far, including those of earlier starts."""
        return {} if self._journal is None else dict(self._journal.facts)

    def ended(self, stage: str) -> bool:
        """Returns whether a stage has ended, in this start or an earlier one."""
        return processes.from_first(self._journal is not None and self._journal.ended(stage))

    def begin(self, stage: str) -> None:
        """Prints, once in a resumed run, the stage it resumes from."""
        if not self._said and self._journal is not None:
            print(f"{self.path}: goes on from {stage}", flush=True)
        self._said = True

    @property
    def is_writer(self) -> bool:
        """Whether this process writes the run."""
        return self._journal is not None

    def mark(self) -> Mark:
        """Returns the mark of the records, for a checkpoint's note."""
        return self._journal.mark() if self._journal is not None else {}

    def holds(self, mark: Mark) -> bool:
        """Returns whether the records up to a mark are unchanged."""
        return self._journal is not None and self._journal.holds(mark)

    def go_back(self, stage: str, mark: Mark | None) -> None:
        """Removes the end of a stage and all records after its start, or after the mark."""
        if self._journal is not None:
            self._journal.reopen(stage)
            if mark is not None:
                self._journal.go_to(mark)

    def end(self, stage: str) -> None:
        """Records that a stage has ended."""
        if self._journal is not None:
            self._journal.end(stage)

    def finish(self, summary: Mapping) -> dict:
        """Writes summary.json with the facts and the number of starts; returns its content."""
        content = plain("summary", summary)
        if self._journal is None:
            return content
        self._journal.cut()
        content["facts"] = {**self._journal.facts, **content.get("facts", {})}
        content["starts"] = self._journal.starts
        if self._mirrored:
            write_text(self.path / UNSENT, self._journal.id)
        write_json(self.path / "summary.json", content)
        failpoints.reach("finished")
        self._mirror.summarise(content)
        return content


def send_report(workdir: str | Path, config: Mapping, wandb: Mapping) -> None:
    """Sends W&B the report of a finished run whose own process ended before it could.

    Raises:
      Refused: another process uses the folder.
    """
    path = Path(workdir)
    if not (path / UNSENT).is_file() or wandb["mode"] == "disabled":
        return
    lock = Lock(path)
    try:
        run, id = read(path), (path / UNSENT).read_text("utf-8")
        sent = logger.start(path, plain("config", config), wandb, id)
        sent.summarise(run.summary)
        _publish(sent, path, run.records, bool(wandb.get("checkpoint")))
        sent.finish(failed=False)
    finally:
        lock.release()


def _publish(
    to: logger.WandbLogger, path: Path, records: Iterable[Record], checkpoint: bool
) -> None:
    if to.publish(path, list(records), checkpoint):
        (path / UNSENT).unlink(missing_ok=True)
