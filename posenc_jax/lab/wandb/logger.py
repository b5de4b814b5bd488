"""The mirror of a run in W&B. It may fail in any way; training and metrics.jsonl go on.

Names in W&B: "test/bits_per_byte/rope/L256/seed0" over the axis "step", by-position curves
"by_position/test/bits_per_byte/rope/L256/seed0" over the axis "position"; at the end what
`exhibits` adds. W&B's own step counts calls, restarts at 0 and drops rows that go back, so it is
never given.
"""

import itertools
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from posenc_jax.lab.hosts.exit_status import first_line
from posenc_jax.lab.wandb import results

MODES = ("disabled", "offline", "online")
INIT_SECONDS, LOG_SECONDS, ANSWER_SECONDS, FINISH_SECONDS = 10.0, 5.0, 3.0, 5.0
UPLOAD_SECONDS = 60.0  # once a server has shown that it answers
AXES = {"step": ("train", "valid", "test"), "position": ("by_position",), "length": ("by_length",)}
OURS = ("mode", "checkpoint")  # options that are not wandb.init's
TAG = 64  # characters that W&B allows a tag


class Mirror:
    """Forwards to a W&B run; after the first error, or with no run, does nothing."""

    def __init__(self, run: Any = None):
        self._run = run

    def log(self, records: Sequence[Mapping]) -> None:
        """Logs one row for each stretch of records with the same step and position."""
        if self._run is None:
            return
        try:
            for (step, position), rows in itertools.groupby(records, _axis):
                axis = {"step": step} if position is None else {"position": position}
                row = axis | {name(record): record["value"] for record in rows}
                _bounded(LOG_SECONDS, self._run.log, row)
        except Exception as error:
            self._stop("logging", error)

    def summarise(self, summary: Mapping) -> None:
        """Puts the means over seeds where W&B's table of runs shows them."""
        if self._run is None:
            return
        metric = f"test/{summary.get('metric')}"
        try:
            for encoding, by_length in summary.get("results", {}).items():
                for length, cell in by_length.items():
                    self._run.summary[f"{metric}/{encoding}/L{length}/mean"] = cell["mean"]
        except Exception as error:
            self._stop("the summary", error)

    def publish(self, folder: Path, records: Sequence[Mapping], checkpoint: bool) -> bool:
        """Sends a finished run's chart, table, figures and artifacts; whether that was done.

        A server is asked for a sign first, which it has ANSWER_SECONDS for: artifacts wait for it.
        """
        if self._run is None:
            return False
        try:
            online = not self._run.offline
            if online:
                _bounded(ANSWER_SECONDS, _ask, self._run)
            given = self._run, folder, records, checkpoint
            sent = _bounded(UPLOAD_SECONDS, results.publish, *given)
            if online:
                _bounded(UPLOAD_SECONDS, lambda: [artifact.wait() for artifact in sent])
            return True
        except TimeoutError as error:
            self._stop("sending the report", error)
        except Exception as error:
            _warn(f"sending the report failed ({first_line(error)}); it is in {folder}")
        return False

    def finish(self, failed: bool) -> None:
        """Ends the run in W&B, waiting about FINISH_SECONDS at most."""
        if self._run is None:
            return
        try:
            _bounded(FINISH_SECONDS + 1.0, self._run.finish, int(failed))
        except Exception as error:
            self._stop("the end", error)

    def _stop(self, where: str, error: Exception) -> None:
        _warn(f"{where} failed ({first_line(error)}); mirroring stops, metrics.jsonl goes on")
        self._run = None


def name(record: Mapping) -> str:
    """What a record is called in W&B."""
    base = "{split}/{metric}/{encoding}/L{length}/seed{seed}".format_map(record)
    return f"by_position/{base}" if "position" in record else base


def start(folder: Path, config: Mapping, options: Mapping, id: str | None = None) -> Mirror:
    """A mirror of the run in `folder`; offline, or none, where W&B refuses or does not answer.

    Args:
      id: the run's name in W&B, so that a run that goes on does so there too. An agent of a sweep
        has one of its own for it, which stands in WANDB_RUN_ID.
      options: {"mode": "disabled" | "offline" | "online"} and arguments of `wandb.init`. Disabled
        does not import wandb. An empty value counts as not given.

    Raises:
      ValueError: a mode that is none of these.
    """
    mode = options.get("mode", "disabled")
    if mode not in MODES:
        raise ValueError(f"wandb.mode: {mode!r}; choices: {', '.join(MODES)}")
    given = {key: value for key, value in options.items() if key not in OURS and value}
    id = os.environ.get("WANDB_RUN_ID") or id
    for attempt in {"disabled": (), "offline": ("offline",), "online": ("online", "offline")}[mode]:
        try:
            # What failed to start may still hold the name.
            name = id if attempt == mode else f"{id}-{attempt}"
            run = _init(folder, config, attempt, {**given, "id": name})
        except Exception as error:
            last = attempt == "offline"
            then = "no mirror; metrics.jsonl goes on" if last else "mirroring offline"
            _warn(f"{attempt} failed ({first_line(error)}); {then}")
            continue
        if attempt == "online":
            print(f"W&B: {run.url}", flush=True)
        else:
            print(f"W&B: offline; upload with: wandb sync {Path(run.dir).parent}", flush=True)
        return Mirror(run)
    return Mirror()


def _init(folder: Path, config: Mapping, mode: str, options: Mapping) -> Any:
    # Its reports about itself are sent at exit, and wait for a server that hangs.
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    import wandb  # imported here: it takes a second, and a disabled mirror must not need it

    shown = {"name": folder.name, "job_type": config.get("experiment")}
    run = wandb.init(
        config=dict(config),
        dir=os.environ.get("WANDB_DIR", folder),
        mode=mode,  # type: ignore[arg-type]
        resume="allow",
        # A captured console would break the progress bar, and what W&B says is said here. What it
        # gathers by itself (command line, git, machine, packages) may hold what is nobody's
        # business; the config has all that a reader needs.
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


def _tags(config: Mapping, given: Sequence[str]) -> list[str]:
    """The tags given, the task and the encodings: what runs are looked for by."""
    names = [config.get(part, {}).get("name", "") for part in ("task", "encoding")]
    found = [*given, names[0], *names[1].split(",")]
    return list(dict.fromkeys(tag for tag in found if 0 < len(tag) <= TAG))


def _ask(run: Any) -> None:
    """Returns once the run's server has said who is logged in."""
    import wandb

    wandb.Api(overrides={"base_url": run.settings.base_url})


def _axis(record: Mapping) -> tuple[int, int | None]:
    return record["step"], record.get("position")


def _bounded(seconds: float, call: Callable[..., Any], *arguments: Any) -> Any:
    """What the call returns; what comes of it after so many seconds is nobody's business any more.

    Raises:
      TimeoutError: it has not returned by then.
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
