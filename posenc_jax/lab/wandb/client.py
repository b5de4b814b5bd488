"""Opens runs in W&B, and bounds the time of calls that may wait for its server."""

import os
import shutil
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from posenc_jax.lab.hosts.console import say
from posenc_jax.lab.wandb.rows import AXES

INIT_SECONDS, FINISH_SECONDS, ANSWER_SECONDS = 10.0, 5.0, 3.0
HEADER = 7  # bytes at the beginning of W&B's file of an offline run


def open_run(
    folder: Path, mode: str, config: Mapping, options: Mapping, finish_seconds: float
) -> Any:
    """Returns a new W&B run beside those that are open; with a known id it goes on from that run.

    Args:
      folder: that of our run, which gets the files of W&B, unless WANDB_DIR names another.
      mode: "offline" or "online".
      options: arguments of `wandb.init`.
      finish_seconds: the most that the end of the run waits for the server.

    Raises:
      Exception: of many kinds: W&B refuses, or does not answer within INIT_SECONDS.
    """
    # W&B's own error reports are sent at exit, and wait for a server that hangs.
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    import wandb  # takes a second; not needed with mode "disabled"

    run = wandb.init(
        config=dict(config),
        dir=os.environ.get("WANDB_DIR", folder),
        mode=mode,  # type: ignore[arg-type]
        resume="allow",
        reinit="create_new",
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
            finish_timeout=finish_seconds,
            finish_timeout_raises=True,
        ),
        **options,
    )
    for axis, prefixes in AXES.items():
        run.define_metric(axis, hidden=True)
        for prefix in prefixes:
            run.define_metric(f"{prefix}/*", step_metric=axis)
    return run


def delete_empty(folder: Path, id: str) -> None:
    """Deletes what a start that was killed at once left of the runs whose id begins with `id`.

    W&B writes to disk every 15 s. A file without a row makes `wandb sync` give up all others.
    """
    root = Path(os.environ.get("WANDB_DIR", folder), "wandb")
    for path in root.glob(f"offline-run-*/run-{id}*.wandb"):
        if path.stat().st_size <= HEADER:
            shutil.rmtree(path.parent)


def leave_sweep() -> None:
    """Keeps the runs that are opened from now on out of the sweep whose agent started this process.

    Without it W&B gives each of them the id of the sweep's run.
    """
    import wandb

    wandb.setup().settings.sweep_id = None


def ask(run: Any) -> None:
    """Returns when the run's server has answered a request."""
    import wandb

    wandb.Api(overrides={"base_url": run.settings.base_url})


def in_thread(call: Callable[..., Any], *arguments: Any) -> Future:
    """Runs `call` in a thread of its own, which does not hold the process up, and returns its
    result to come.
    """
    result: Future = Future()

    def work():
        try:
            result.set_result(call(*arguments))
        except BaseException as error:
            result.set_exception(error)

    threading.Thread(target=work, daemon=True, name="wandb").start()
    return result


def within(seconds: float, result: Future) -> Any:
    """Returns a result; one that is later than `seconds` is ignored.

    Raises:
      TimeoutError: the call has not returned in time.
    """
    try:
        return result.result(max(seconds, 0.0))
    except TimeoutError:
        raise TimeoutError(f"no answer in {seconds:.0f} s") from None


def warn(message: str) -> None:
    """Prints a line to standard error."""
    say(f"W&B: {message}", sys.stderr)
