"""Logs a run to W&B. An error of W&B is printed and ends the logging; the run itself continues.

Names in W&B: "test/bits_per_byte/rope/L256/seed0" over the axis "step", curves by position
"by_position/test/bits_per_byte/rope/L256/seed0" over the axis "position"; `results` adds more at
the end. Every run has these too, so that runs with other encodings and seeds overlay: "train/loss"
and "test/bits_per_byte/256", means over the seeds of the encoding at hand. At the end "test/..." is
the mean over the run's encodings too, and so is "extrapolation/mean", the mean over the lengths
beyond the trained one. The config has encoding.name, seeds, first_seed and train.length.

W&B's own step is not used: it restarts at 0 in a resumed run, and W&B then drops rows.
"""

import itertools
import math
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from posenc_jax.lab.hosts.exit_status import first_line
from posenc_jax.lab.summary import LengthSummary, Summary
from posenc_jax.lab.wandb import results

INIT_SECONDS, LOG_SECONDS, ANSWER_SECONDS, FINISH_SECONDS = 10.0, 5.0, 3.0, 5.0
UPLOAD_SECONDS = 60.0  # for a server that has answered
AXES = {"step": ("train", "valid", "test"), "position": ("by_position",), "length": ("by_length",)}
OURS = ("mode", "checkpoint")  # options that wandb.init does not take
OBJECTIVE = "extrapolation/mean"
LONGEST = 64  # characters of a tag in W&B
# A file in the folder of a finished run whose report W&B has not received; holds its W&B id.
UNSENT = "unsent"


class WandbLogger:
    """Logs to the W&B run of a folder; does nothing without a W&B run or after the first error."""

    def __init__(self, run: Any = None, folder: Path = Path(), checkpoint: bool = False):
        self._run, self._folder, self._checkpoint = run, folder, checkpoint

    def log(self, records: Sequence[Mapping]) -> None:
        """Logs one row for each stretch of records with the same step and position."""
        self._call("logging", LOG_SECONDS, lambda run: [run.log(row) for row in rows(records)])

    def summarise(self, summary: Summary) -> None:
        """Writes the means over seeds into the run's summary, which W&B's table of runs shows."""
        self._call("the summary", LOG_SECONDS, lambda run: run.summary.update(means(summary)))

    def finish(self, failed: bool) -> None:
        """Ends the run in W&B; waits about FINISH_SECONDS at most."""
        self._call("the end", FINISH_SECONDS + 1.0, lambda run: run.finish(int(failed)))

    def publish(self, records: Sequence[Mapping]) -> None:
        """Uploads a finished run's chart, table, figures and artifacts, and deletes UNSENT.

        A server that does not answer within ANSWER_SECONDS gets nothing.
        """
        if self._run is None:
            return
        try:
            online = not self._run.offline
            if online:
                _with_timeout(ANSWER_SECONDS, _ask, self._run)
            args = self._run, self._folder, records, self._checkpoint
            sent = _with_timeout(UPLOAD_SECONDS, results.publish, *args)
            if online:
                _with_timeout(UPLOAD_SECONDS, lambda: [artifact.wait() for artifact in sent])
            (self._folder / UNSENT).unlink(missing_ok=True)
        except TimeoutError as error:
            self._stop("sending the report", error)
        except Exception as error:
            _warn(f"sending the report failed ({first_line(error)}); it is in {self._folder}")

    def _call(self, what: str, seconds: float, call: Callable[[Any], Any]) -> None:
        if self._run is not None:
            try:
                _with_timeout(seconds, call, self._run)
            except Exception as error:
                self._stop(what, error)

    def _stop(self, what: str, error: Exception) -> None:
        _warn(f"{what} failed ({first_line(error)}); no more is sent, metrics.jsonl goes on")
        self._run = None


def rows(records: Sequence[Mapping]) -> Iterator[dict[str, Any]]:
    """Yields a row of W&B for each stretch of records with the same step and position."""
    axes = lambda record: (record["step"], record["labels"].get("position"))
    for (step, position), alike in itertools.groupby(records, axes):
        axis = {"step": step} if position is None else {"position": position}
        group = list(alike)
        row = axis | {curve_name(record): record["value"] for record in group}
        yield row if position is not None else row | _shared(group)


def _shared(records: Sequence[Mapping]) -> dict[str, float]:
    """Returns means over seeds, under names that do not depend on the encoding and the seed."""
    by_name: dict[str, list[float]] = {}
    for record in records:
        labels = record["labels"]
        if labels.keys() <= {"encoding", "split", "length"} and "length" in labels:
            end = f"/{labels['length']}" if labels["split"] == "test" else ""
            key = f"{labels['split']}/{record['metric']}{end}"
            by_name.setdefault(key, []).append(record["value"])
    return {key: sum(values) / len(values) for key, values in by_name.items()}


def means(summary: Summary) -> dict[str, float | None]:
    """Returns the means over seeds of a finished run, by their names in W&B; {} of a run without
    results by length.
    """
    if not isinstance(summary, LengthSummary):
        return {}
    metric, results = summary.metric, summary.results
    by_name = {
        f"test/{metric}/{encoding}/L{length}/mean": cell.mean if math.isfinite(cell.mean) else None
        for encoding, by_length in results.items()
        for length, cell in by_length.items()
    }
    by_length: dict[int, list[float]] = {}
    for cells in results.values():
        for length, cell in cells.items():
            by_length.setdefault(length, []).append(cell.mean)
    mean_by_length = {
        length: sum(cell_means) / len(cell_means)
        for length, cell_means in by_length.items()
        if all(map(math.isfinite, cell_means))
    }
    beyond = [mean for n, mean in mean_by_length.items() if n > summary.train_length]
    by_name |= {f"test/{metric}/{length}": mean for length, mean in mean_by_length.items()}
    return by_name | ({OBJECTIVE: sum(beyond) / len(beyond)} if beyond else {})


def curve_name(record: Mapping) -> str:
    """Returns a record's curve in W&B: split, metric, other labels, encoding, length, seed."""
    labels = dict(record["labels"])
    split, position = labels.pop("split"), labels.pop("position", None)
    last = [str(labels.pop("encoding"))] if "encoding" in labels else []
    last += [f"L{labels.pop('length')}"] if "length" in labels else []
    parts = [split, record["metric"], *map(str, labels.values()), *last, f"seed{record['seed']}"]
    return "/".join(parts if position is None else ["by_position", *parts])


def start(folder: Path, config: Mapping, options: Mapping, id: str) -> WandbLogger:
    """Returns a logger of the run in `folder`: offline if W&B refuses or does not answer, or one
    that does nothing.

    Args:
      config: of the run, as W&B shows it.
      options: {"mode": "disabled" | "offline" | "online"} and arguments of `wandb.init`. With
        "disabled" wandb is not imported. An empty value counts as not given.
      id: the run's id in W&B, with which a resumed run continues. WANDB_RUN_ID, which an agent of a
        sweep sets, comes first.
    """
    mode = options["mode"]
    init_options = {key: value for key, value in options.items() if key not in OURS and value}
    id = os.environ.get("WANDB_RUN_ID") or id
    for attempt in {"disabled": (), "offline": ("offline",), "online": ("online", "offline")}[mode]:
        try:
            # The id of an attempt that failed may still be in use.
            name = id if attempt == mode else f"{id}-{attempt}"
            run = _init(folder, config, attempt, {**init_options, "id": name})
        except Exception as error:
            last = attempt == "offline"
            then = "not logging; metrics.jsonl goes on" if last else "logging offline"
            _warn(f"{attempt} failed ({first_line(error)}); {then}")
            continue
        offline = f"offline; upload with: wandb sync {Path(run.dir).parent}"
        print(f"W&B: {run.url if attempt == 'online' else offline}", flush=True)
        return WandbLogger(run, folder, bool(options.get("checkpoint")))
    return WandbLogger()


def _init(folder: Path, config: Mapping, mode: str, options: Mapping) -> Any:
    # W&B's own error reports are sent at exit, and wait for a server that hangs.
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    import wandb  # takes a second; not needed with mode "disabled"

    shown = {"name": folder.name, "job_type": config.get("experiment")}
    run = wandb.init(
        config=dict(config),
        dir=os.environ.get("WANDB_DIR", folder),
        mode=mode,  # type: ignore[arg-type]
        resume="allow",
        # A captured console would break the progress bar. What W&B collects by itself (command
        # line, git, machine, packages) may be private; the config has what a reader needs.
        settings=wandb.Settings(
            console="off",
            silent=True,
            disable_git=True,
            disable_code=True,
            save_code=False,
            x_disable_meta=True,
            x_disable_machine_info=True,
            x_save_requirements=False,
            login_timeout=INIT_SECONDS,
            init_timeout=INIT_SECONDS,
            finish_timeout=FINISH_SECONDS,
            finish_timeout_raises=True,
        ),
        **{**shown, **options, "tags": _tags(config, options.get("tags", ()))},
    )
    for axis, prefixes in AXES.items():
        run.define_metric(axis, hidden=True)
        for prefix in prefixes:
            run.define_metric(f"{prefix}/*", step_metric=axis)
    return run


def _tags(config: Mapping, tags: Sequence[str]) -> list[str]:
    """Returns the tags given, the task and the encodings."""
    names = [config.get(part, {}).get("name", "") for part in ("task", "encoding")]
    candidates = [*tags, names[0], *names[1].split(",")]
    return list(dict.fromkeys(tag for tag in candidates if 0 < len(tag) <= LONGEST))


def _ask(run: Any) -> None:
    """Returns when the run's server has answered a request."""
    import wandb

    wandb.Api(overrides={"base_url": run.settings.base_url})


def _with_timeout(seconds: float, call: Callable[..., Any], *arguments: Any) -> Any:
    """Runs `call` in a thread and returns its result; a result later than `seconds` is ignored.

    Raises:
      TimeoutError: the call has not returned in time.
    """
    done: Future = Future()

    def work():
        try:
            done.set_result(call(*arguments))
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=work, daemon=True, name="wandb").start()
    try:
        return done.result(seconds)
    except TimeoutError:
        raise TimeoutError(f"no answer in {seconds:.0f} s") from None


def _warn(message: str) -> None:
    print(f"W&B: {message}", file=sys.stderr, flush=True)
