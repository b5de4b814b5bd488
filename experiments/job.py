"""A run as a process: its devices, its signals, its compiled programs, its exit status."""

import errno
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

import experiments
from posenc_jax.lab.hosts import exit_status, processes, signals
from posenc_jax.lab.hosts.compiling import compile_lightly
from posenc_jax.lab.hosts.devices import use_cores

DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)  # no fault of ours
FEW_STEPS = 100  # such as a quick variant's
LEAVE_SECONDS = 3.0  # for what others do at exit, such as W&B


def run(config: dict[str, Any], workdir: str, named: bool) -> int:
    """Makes the run that a config asks for, or goes on with it; the exit status.

    Args:
      config: as a config file gives it.
      workdir: the run's folder.
      named: whether somebody chose that folder, so that each of several processes has the same.
    """
    try:
        if _mostly_compiles(config):
            compile_lightly()
        else:
            use_cores(_rows(config))
        processes.join()
        signals.install()
        if processes.is_multiprocess():
            _be_one_of_several(named)
        prepared = experiments.prepare(config, workdir)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return _leave(exit_status.Refused.status)
    _cache_compilations()
    return _leave(_status_of(prepared, workdir))


def _rows(config: dict[str, Any]) -> int:
    return max(_of_training(config, "batch"), 1)


def _mostly_compiles(config: dict[str, Any]) -> bool:
    """Whether the run takes about as long to compile as to compute, or longer."""
    few = 0 < _of_training(config, "steps") <= FEW_STEPS
    return few or config.get("experiment") in experiments.MANY_PROGRAMS


def _of_training(config: dict[str, Any], field: str) -> int:
    """A number of the config, which nobody has checked; 0 where there is none."""
    train = config.get("train")
    value = train.get(field) if isinstance(train, dict) else None
    return value if type(value) is int else 0


def _leave(status: int) -> int:
    sys.stdout.flush()
    signals.exit_within(LEAVE_SECONDS, status)
    return status


def _be_one_of_several(named: bool) -> None:
    """Only the first process prints. ValueError: each would choose a folder of its own."""
    if not named:
        raise ValueError("--workdir: must be given where several processes make one run")
    if not processes.is_first():
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115


def _status_of(run: Callable[[], None], workdir: str) -> int:
    """Runs to an end of any kind; the exit status. What is no fault of ours is one line."""
    try:
        run()
        processes.leave()
    except exit_status.Stop as stop:
        print(f"error: {stop}", file=sys.stderr)
        return stop.status
    except Exception as error:
        line = exit_status.first_line(error)
        if "RESOURCE_EXHAUSTED" in line:
            print(f"error: out of memory: {line}", file=sys.stderr)
            return exit_status.Stop.status
        if isinstance(error, OSError) and error.errno in DISK:
            print(f"error: {error.filename or workdir}: {error.strerror}", file=sys.stderr)
            return exit_status.NotWritten.status
        if not processes.is_multiprocess():
            raise
        if isinstance(error, jax.errors.JaxRuntimeError):
            # Leaving in order would wait for the process that is gone.
            print(f"error: a process was lost: {line}", file=sys.stderr, flush=True)
            os._exit(exit_status.Interrupted.status)
        signals.exit_within(LEAVE_SECONDS, 1)
        raise
    return 0


def _cache_compilations() -> None:
    """Keeps compiled programs between runs, and between workers, which read the environment as they
    start, unless it says otherwise already.
    """
    wanted: dict[str, str | float] = {
        "jax_compilation_cache_dir": str(Path.home() / ".cache" / "posenc_jax"),
        "jax_persistent_cache_min_compile_time_secs": 0.2,
    }
    for name, value in wanted.items():
        if name.upper() not in os.environ:
            os.environ[name.upper()] = str(value)
            jax.config.update(name, value)
