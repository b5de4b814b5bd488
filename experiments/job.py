"""Runs an experiment as a process: devices, signals, compiled programs, exit status."""

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
from posenc_jax.lab.hosts.console import say
from posenc_jax.lab.hosts.devices import use_cores
from posenc_jax.options import FieldError

DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)  # not a bug
FEW_STEPS = 100  # more than the steps of a quick variant
LEAVE_SECONDS = 3.0  # time for the exit handlers of libraries, such as that of W&B


def run(config: dict[str, Any], workdir: str, named: bool, expected: str = "") -> int:
    """Starts or resumes the run of a config, and returns the exit status.

    Args:
      config: nested dictionaries, not checked yet.
      workdir: the folder of the run.
      named: the folder was given by --workdir, so that several processes have the same one.
      expected: how long the config says that it takes, printed first.
    """
    try:
        if _mostly_compiles(config):
            compile_lightly()
        else:
            use_cores(_rows(config))
        processes.join()
        signals.install()
        sys.excepthook = _without_late_writes(sys.excepthook)
        if processes.is_multiprocess():
            _join_several(named)
        prepared = experiments.prepare(config, workdir)
    except ValueError as error:
        say(f"error: {error}", sys.stderr)
        return _leave(exit_status.Refused.status)
    if expected:
        say(expected)
    _cache_compilations()
    return _leave(_status_of(prepared, workdir))


def _without_late_writes(hook: Callable[..., Any]) -> Callable[..., Any]:
    """The hook, but for what TensorStore prints of writes that end after another one has failed.

    Orbax has closed its event loop by then, so each of them is a traceback above the one line that
    says what failed.
    """

    def without(kind, error, traceback) -> None:
        if not (kind is RuntimeError and str(error) == "Event loop is closed"):
            hook(kind, error, traceback)

    return without


def _rows(config: dict[str, Any]) -> int:
    return max(_of_training(config, "batch"), 1)


def _mostly_compiles(config: dict[str, Any]) -> bool:
    """Whether compiling takes about as long as computing, or longer."""
    few, name = 0 < _of_training(config, "steps") <= FEW_STEPS, config.get("experiment")
    return few or (name in experiments.names() and experiments.config_class(name).mostly_compiles)


def _of_training(config: dict[str, Any], field: str) -> int:
    """A field of `train`; 0 if it is missing or not a whole number, which `prepare` refuses."""
    train = config.get("train")
    value = train.get(field) if isinstance(train, dict) else None
    return value if type(value) is int else 0


def _leave(status: int) -> int:
    sys.stdout.flush()
    signals.exit_within(LEAVE_SECONDS, status)
    return status


def _join_several(named: bool) -> None:
    """Silences every process but the first. FieldError: no --workdir; each would choose its own."""
    if not named:
        raise FieldError("--workdir", "must be given where several processes make one run")
    if not processes.is_first():
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115


def _status_of(run: Callable[[], None], workdir: str) -> int:
    """Runs, and returns the exit status; an error that is not a bug is printed as one line."""
    try:
        run()
        processes.leave()
    except exit_status.Stop as stop:
        say(f"error: {stop}", sys.stderr)
        return stop.status
    except Exception as error:
        line = exit_status.first_line(error)
        if "RESOURCE_EXHAUSTED" in line:
            say(f"error: out of memory: {line}", sys.stderr)
            return exit_status.Stop.status
        if isinstance(error, OSError) and error.errno in DISK_ERRORS:
            say(f"error: {error.filename or workdir}: {error.strerror}", sys.stderr)
            return exit_status.NotWritten.status
        if not processes.is_multiprocess():
            raise
        if isinstance(error, jax.errors.JaxRuntimeError):
            # An orderly exit would wait for the lost process.
            say(f"error: a process was lost: {line}", sys.stderr)
            os._exit(exit_status.Interrupted.status)
        signals.exit_within(LEAVE_SECONDS, 1)
        raise
    return 0


def _cache_compilations() -> None:
    """Caches compiled programs on disk, unless the environment sets other values.

    The values are set in the environment too, for worker processes.
    """
    wanted: dict[str, str | float] = {
        "jax_compilation_cache_dir": str(Path.home() / ".cache" / "posenc_jax"),
        "jax_persistent_cache_min_compile_time_secs": 0.2,
    }
    for name, value in wanted.items():
        if name.upper() not in os.environ:
            os.environ[name.upper()] = str(value)
            jax.config.update(name, value)
