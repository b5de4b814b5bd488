"""Logs a run to W&B: one W&B run for each training, and one of the job type "report".

A training is an encoding with a seed. Its W&B run, in the group of our run, has `config.encoding`
and `config.seed`, and keys that are equal in all of them, see `rows`. The report has the tables,
figures and artifacts, see `results`; it takes the id that an agent of a sweep sets, and has the
sweep's objective. A run of more than MOST trainings has the report alone.

One thread does what may wait for W&B, so training never does. Only the end of a run waits, for a
time that does not depend on the number of trainings. An error of W&B is printed, and makes the
logging offline, or ends it; our run goes on.

A run that was killed and resumed has each row once. The number of a row among those of its training
is W&B's step of it. W&B says at the start how many rows it has of a run, and these are left out;
the others are made of the records again. W&B drops rows with smaller steps than it has, so `wandb
sync` brings none twice where several starts kept rows offline.
"""

import json
import os
import queue
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from posenc_jax.lab.hosts.console import say
from posenc_jax.lab.hosts.exit_status import first_line
from posenc_jax.lab.hosts.files import write_text
from posenc_jax.lab.summary import Summary
from posenc_jax.lab.wandb import client, results, rows
from posenc_jax.lab.wandb.rows import Training

MOST = 64  # trainings of a run that have W&B runs of their own
UPLOAD_SECONDS = 60.0  # for a server that has answered
LONGEST = 64  # characters of a tag in W&B
OURS = ("mode", "checkpoint")  # options that wandb.init does not take
TRAINING, REPORT = "training", "report"  # job types of the W&B runs
# A file in the folder of a run: what W&B has not received for certain, see `Unsent`.
UNSENT = "unsent"
Records = Sequence[Mapping]
Read = Callable[[], Records]  # reads the records of a run
Task = tuple[str, Callable[[], Any], Future]  # what it is, what it does, its end


class Unsent:
    """What W&B has not received for certain of a run: trainings whose W&B run was not ended, and
    the report of a finished run. The file UNSENT holds it, as long as there is something.
    """

    def __init__(self, folder: Path | None, id: str = ""):
        self._path, self._lock = folder and folder / UNSENT, threading.Lock()
        self.id, self.report, self.trainings = id, False, set[Training]()
        if self._path is not None and self._path.is_file():
            text = self._path.read_text("utf-8")
            # Until version 0.2 the file held the id alone, and meant the report.
            old = {"id": text, "report": True, "trainings": []}
            content = json.loads(text) if text.startswith("{") else old
            self.id, self.report = content["id"], content["report"]
            self.trainings = {(encoding, seed) for encoding, seed in content["trainings"]}

    def add(self, *trainings: Training, report: bool = False) -> None:
        """Adds trainings, or the report."""
        with self._lock:
            self.trainings, self.report = self.trainings.union(trainings), self.report or report
            self._write()

    def remove(self, *trainings: Training, report: bool = False) -> None:
        """Removes trainings, or the report."""
        with self._lock:
            self.trainings = self.trainings.difference(trainings)
            self.report = self.report and not report
            self._write()

    def _write(self) -> None:
        content = {"id": self.id, "report": self.report, "trainings": sorted(self.trainings)}
        if self._path is not None and (self.report or self.trainings):
            write_text(self._path, json.dumps(content))
        elif self._path is not None:
            self._path.unlink(missing_ok=True)


class _Stream:
    """Rows in order to one W&B run, each with its number as W&B's step."""

    def __init__(self, run: Any, make_rows: Callable[[Records], Iterable[Mapping]]):
        self.run, self._make_rows = run, make_rows
        self._count, self._has = 0, run.starting_step

    def send(self, records: Records) -> None:
        for row in self._make_rows(records):
            if self._count >= self._has:
                self.run.log(row, step=self._count, commit=True)
            self._count += 1


class WandbLogger:
    """Logs to the W&B runs of a folder; does nothing without W&B, or after an error that ends it.

    Args:
      folder: of our run; `unsent` is what W&B lacks of it.
      report: the open W&B run of the report; None: nothing is logged.
      mode: of that run, "offline" or "online".
      open_training: (encoding, seed, mode) -> the open W&B run of a training.
      earlier: returns a function that reads the records so far; None: our run is new.
      in_sweep: the report has the means of `rows.shared_rows`, for the sweep's objective.
      checkpoint: checkpoints are uploaded too.
    """

    def __init__(
        self,
        folder: Path | None = None,
        report: Any = None,
        mode: str = "offline",
        open_training: Callable[[str, int, str], Any] | None = None,
        earlier: Callable[[], Read] | None = None,
        in_sweep: bool = False,
        checkpoint: bool = False,
        id: str = "",
    ):
        self.unsent, self._folder, self._checkpoint = Unsent(folder, id), folder, checkpoint
        self._report, self._is_online = report, mode == "online"
        self._mode = mode  # of the trainings that are opened from now on
        self._open_training, self._earlier = open_training, earlier
        self._streams: dict[Training | None, _Stream] = {}  # None: the report
        if report is not None and in_sweep:
            self._streams[None] = _Stream(report, rows.shared_rows)
        self._begun: set[Training | None] = set()  # streams that have got records
        self._has_trainings = False
        self._tasks: queue.SimpleQueue[Task | None] = queue.SimpleQueue()  # None: the last
        if report is not None:
            client.in_thread(self._work)

    def trainings(self, count: int) -> None:
        """Says that so many trainings follow, whose records have their encoding and seed."""
        self._has_trainings = count <= MOST

    def log(self, records: Records) -> None:
        """Sends records to the runs of their trainings."""
        if self._report is None:
            return
        parts: dict[Training | None, Records] = {}
        if self._has_trainings:
            parts |= rows.by_training(records)
        if None in self._streams:
            parts[None] = records
        new = parts.keys() - self._begun
        read = self._earlier() if self._earlier is not None and new else None
        if read is not None and not self._begun:
            self._catch_up(read, without=parts)
        for name, part in parts.items():
            # The records so far of a resumed run hold these, and may hold some that W&B has not.
            self._do("logging", partial(self._send, name, part, read if name in new else None))
        self._begun |= new

    def end_trainings(self) -> None:
        """Ends the W&B runs of the trainings so far."""
        if self._report is not None:
            self._do("the end", self._end)

    def summarise(self, summary: Summary) -> None:
        """Writes the means into the report's summary, which W&B's table of runs shows."""
        if (report := self._report) is not None:
            self._do("the summary", lambda: report.summary.update(rows.means(summary)))

    def close(self, failed: bool, read: Read | None = None) -> None:
        """Ends all W&B runs; of a finished run, whose records `read` reads, it first sends what is
        unsent.

        Of a run that is not finished it takes about FINISH_SECONDS at most. Of a finished one, a
        server that does not answer gets nothing more after ANSWER_SECONDS, and one that does has
        UPLOAD_SECONDS for the rows of all trainings, and twice that for the report.
        """
        report = self._report
        if report is None:
            return
        if read is not None:
            if self._is_online:
                asked = client.in_thread(client.ask, report)
                self._wait("sending the report", client.ANSWER_SECONDS, asked)
            self._do("the end", self._end)
            self._catch_up(read, without=self._begun)
            self._wait("the end", UPLOAD_SECONDS, self._do("the end", lambda: None))
            if self.unsent.report:
                publishing = self._do("sending the report", partial(self._publish, read))
                self._wait("sending the report", 2 * UPLOAD_SECONDS, publishing)
        ending = self._do("the end", partial(self._end, int(failed), report))
        self._wait("the end", client.FINISH_SECONDS, ending)
        self._report = None
        self._tasks.put(None)

    def _do(self, what: str, task: Callable[[], Any]) -> Future:
        """Has the thread do a task after those before it; returns its end."""
        done: Future = Future()
        self._tasks.put((what, task, done))
        return done

    def _wait(self, what: str, seconds: float, done: Future) -> None:
        """Waits for the end of a task. One that is not done in time, or fails, ends the logging."""
        if self._report is not None:
            try:
                client.within(seconds, done)
            except Exception as error:
                self._stop(what, error)

    def _stop(self, what: str, error: Exception) -> None:
        if self._report is not None:
            reason = first_line(error)
            client.warn(f"{what} failed ({reason}); no more is sent, metrics.jsonl goes on")
        self._report = None

    def _catch_up(self, read: Read, without: Iterable[Training | None]) -> None:
        """Sends and ends what W&B may lack of trainings that an earlier start opened."""
        behind = sorted(self.unsent.trainings.difference(without))
        for name in behind:
            self._do("logging", partial(self._send, name, [], read))
        if behind:
            self._do("the end", self._end)

    # The thread alone calls what follows.

    def _work(self) -> None:
        while (entry := self._tasks.get()) is not None:
            what, task, done = entry
            try:
                if self._report is not None:
                    task()
            except Exception as error:
                self._stop(what, error)
            done.set_result(None)

    def _send(self, name: Training | None, records: Records, read: Read | None) -> None:
        """Sends records to the report, or to the run of a training, which the first ones open.

        read: reads the records so far, these among them; None: there are no others.
        """
        if read is not None:
            records = read() if name is None else rows.by_training(read()).get(name, [])
        if name is not None and name not in self._streams:
            self.unsent.add(name)
            self._streams[name] = _Stream(self._opened(name), rows.rows)
        self._streams[name].send(records)

    def _opened(self, name: Training) -> Any:
        assert self._open_training is not None
        try:
            return self._open_training(*name, self._mode)
        except Exception as error:
            if self._mode == "offline" or self._report is None:
                raise
            client.warn(f"online failed ({first_line(error)}); logging offline")
            self._mode = "offline"  # for all that follow: the time to wait for them would add up
            return self._open_training(*name, "offline")

    def _end(self, status: int = 0, report: Any = None) -> None:
        """Ends the runs of all trainings at once, and the report's if it is given."""
        names = [name for name in self._streams if name is not None]
        ending = {name: client.in_thread(self._streams.pop(name).run.finish, status)
                  for name in names}  # fmt: skip
        last = None if report is None else client.in_thread(report.finish, status)
        for name, done in ending.items():
            try:
                done.result()
                self.unsent.remove(name)
            except Exception as error:
                client.warn(f"the end of {', seed '.join(map(str, name))} failed "
                            f"({first_line(error)}); started again, the run sends it")  # fmt: skip
                self._mode = "offline"  # see `_opened`
        if last is not None:
            last.result()

    def _publish(self, read: Read) -> None:
        """Uploads the report's tables, figures and artifacts."""
        assert self._folder is not None
        try:
            sent = results.publish(self._report, self._folder, read(), self._checkpoint)
            if self._is_online:
                for artifact in sent:
                    artifact.wait()
            self.unsent.remove(report=True)
        except Exception as error:
            client.warn(f"sending the report failed ({first_line(error)}); it is in {self._folder}")


def start(
    folder: Path,
    config: Mapping,
    options: Mapping,
    id: str,
    earlier: Callable[[], Read] | None = None,
) -> WandbLogger:
    """Returns a logger of the run in `folder`: offline if W&B refuses or does not answer, or one
    that does nothing.

    Args:
      config: of the run, as W&B shows it.
      options: {"mode": "disabled" | "offline" | "online", "checkpoint": ...} and arguments of
        `wandb.init`. With "disabled" wandb is not imported. An empty value counts as not given.
      id: of our run, with which a resumed run goes on in W&B. The report has that of WANDB_RUN_ID,
        which an agent of a sweep sets.
      earlier: as of `WandbLogger`.
    """
    mode, agents_id = options["mode"], os.environ.get("WANDB_RUN_ID")
    if mode == "disabled":
        return WandbLogger()
    if earlier is not None:
        client.delete_empty(folder, id)
    described, names = _described(config)
    group = "/".join(filter(None, (options.get("group"), f"{folder.name}-{id}")))
    tags = [*options.get("tags", ()), _task_tag(config)]
    given = {key: value for key, value in options.items() if key not in OURS and value}

    def open_run(mode: str, id: str, config: Mapping, names: Sequence[str], **shown: Any) -> Any:
        # The id of an attempt that failed may still be in use.
        shown["id"] = id if mode == options["mode"] else f"{id}-{mode}"
        shown |= {"group": group, "tags": _tags([*tags, *names])}
        # The thread ends a training while the next one runs, so it may take its time.
        seconds = client.FINISH_SECONDS if shown["job_type"] == REPORT else UPLOAD_SECONDS
        return client.open_run(folder, mode, config, given | shown, seconds)

    def open_training(encoding: str, seed: int, mode: str) -> Any:
        digest = sha256(f"{encoding}/{seed}".encode()).hexdigest()[:8]
        config = {**described, "encoding": encoding, "seed": seed}
        shown = {
            "name": f"{encoding}, seed {seed}",
            "job_type": options.get("job_type") or TRAINING,
        }
        return open_run(mode, f"{id}-{digest}", config, [encoding], **shown)

    for attempt in {"offline": ("offline",), "online": ("online", "offline")}[mode]:
        try:
            shown = {"name": folder.name, "job_type": REPORT}
            report = open_run(attempt, agents_id or id, described, names, **shown)
            if agents_id:
                client.leave_sweep()
        except Exception as error:
            last = attempt == "offline"
            then = "not logging; metrics.jsonl goes on" if last else "logging offline"
            client.warn(f"{attempt} failed ({first_line(error)}); {then}")
            continue
        offline = f"offline; upload with: wandb sync {Path(report.dir).parents[1]}"
        say(f"W&B: {report.url if attempt == 'online' else offline}")
        checkpoint = bool(options.get("checkpoint"))
        return WandbLogger(folder, report, attempt, open_training, earlier, bool(agents_id),
                           checkpoint, id)  # fmt: skip
    return WandbLogger(folder, id=id)


def _described(config: Mapping) -> tuple[Mapping, list[str]]:
    """Returns the config as W&B shows it, and its encodings. There `encoding` is a name, as in the
    runs of the trainings, and `encodings` has the options.
    """
    encoding = config.get("encoding")
    if not isinstance(encoding, Mapping):
        return config, []
    name = str(encoding.get("name", ""))
    return {**config, "encoding": name, "encodings": encoding}, name.split(",")


def _task_tag(config: Mapping) -> str:
    """Returns the name of the task; of one that reads a file or a folder, only its last part."""
    name = str(config.get("task", {}).get("name", ""))
    kind, _, path = name.partition(":")
    is_path = path and kind != "tfds" and not path.startswith("tfds:")
    return Path(path).name if is_path else name


def _tags(tags: Iterable[str]) -> list[str]:
    """Returns the tags that W&B takes, each once."""
    return list(dict.fromkeys(tag for tag in tags if 0 < len(tag) <= LONGEST))
