"""Runs train.py in child processes, each on one core, and compares what they leave on disk."""

import hashlib
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from posenc_jax.lab.hosts import devices, processes
from posenc_jax.lab.runs.checkpoints import Checkpoints
from posenc_jax.lab.runs.records import TIMES, parse
from tests.support import ROOT

# Two encodings, so that stages follow one another; a save after every chunk.
TINY = (
    "--config=configs/tasks_extrap.py:copy,quick", "--config.encoding.name=alibi,rope",
    "--config.model.width=16", "--config.model.heads=2", "--config.model.layers=1",
    "--config.train.steps=24", "--config.train.chunk=6", "--config.train.batch=4",
    "--config.eval.examples=8", "--config.seeds=2", "--config.checkpoint.seconds=0.0",
)  # fmt: skip


class Ended(NamedTuple):
    """How a process ended: its exit status (-9: killed), its output, and the time."""

    status: int
    out: str
    err: str
    at: float

    @property
    def traceback(self) -> bool:
        return "Traceback" in self.err


class TrainProcess:
    """`train.py` in a child process.

    workdir: the folder of the run.
    flags: given after `config`.
    program: in place of train.py, with the same arguments.
    cores: the process is pinned to these, counted from the core of this worker of pytest: XLA gives
      the same bits on one core.
    without: the name of a function of unprotected.py, whose protection is switched off.
    file_bytes: the most that a file of the process may have, as on a full disk; 0: no limit.
    log: its output goes to LOG.out and LOG.err; by default beside `workdir`.
    compiled: the folder of compiled programs; by default one for all runs beside this one.
    """

    def __init__(
        self,
        workdir: Path,
        *flags: str,
        config: tuple[str, ...] = TINY,
        program: tuple[str, ...] = ("train.py",),
        cores: tuple[int, ...] = (0,),
        without: str = "",
        file_bytes: int = 0,
        log: str = "",
        failpoint: str = "",
        compiled: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ):
        if without:
            program = "-m", "tests.support.unprotected", without
        usable, first = devices.cores(), int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:])
        self.workdir = workdir
        self._out, self._err = Path(f"{log or workdir}.out"), Path(f"{log or workdir}.err")
        with self._out.open("w") as out, self._err.open("w") as err:
            self.process = subprocess.Popen(
                [sys.executable, *program, *config, f"--workdir={workdir}", *flags],
                cwd=ROOT, stdout=out, stderr=err,
                env={**os.environ, "JAX_PLATFORMS": "cpu", "MPLBACKEND": "Agg",
                     "JAX_COMPILATION_CACHE_DIR": str(compiled or workdir.parent / "compiled"),
                     "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
                     "POSENC_JAX_FAILPOINT": failpoint, **(environment or {})},
            )  # fmt: skip
        pinned = {usable[(first + core) % len(usable)] for core in cores}
        os.sched_setaffinity(self.process.pid, pinned)
        if file_bytes:
            resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, (file_bytes, file_bytes))

    def wait(self, seconds: float = 900.0) -> Ended:
        """Waits for the end. After `seconds` it kills the process and raises TimeoutExpired."""
        try:
            status = self.process.wait(seconds)
        finally:
            self.process.kill()
            self.process.wait()
        return Ended(status, self._out.read_text(), self._err.read_text(), time.monotonic())

    def wait_until(self, reached: Callable[[], bool]) -> None:
        """Waits until `reached()`, or until the process has ended."""
        while not reached() and self.process.poll() is None:
            time.sleep(0.02)

    def output(self) -> str:
        """Returns its output so far, of both streams."""
        return self._out.read_text() + self._err.read_text()


def shared(
    workdir: Path,
    *flags: str,
    count: int = 2,
    at: Mapping[int, str] | None = None,
    **how: Any,
) -> list[TrainProcess]:
    """The processes of one run, each on a core of its own.

    at: the failpoints of some of them.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    return [
        TrainProcess(
            workdir,
            *flags,
            cores=(process,),
            log=f"{workdir}.{process}",
            failpoint=(at or {}).get(process, ""),
            environment=dict(zip(processes.OURS, (str(count), str(process), address), strict=True)),
            **how,
        )
        for process in range(count)
    ]


def own_compiled(workdir: Path, at: str | float) -> Path | None:
    """Returns an empty folder of compiled programs for a run that may be ended while it compiles:
    at a failpoint of compiling, or after some seconds. None for a run that is ended later.
    """
    compiles = not isinstance(at, str) or at.startswith("compiling")
    return workdir.with_name(f"{workdir.name}.compiled") if compiles else None


def interrupt(
    workdir: Path, at: str | float, name: signal.Signals, *flags: str, **how: Any
) -> tuple[float, list[str]]:
    """Starts a run and sends it a signal at a failpoint, or after `at` seconds: of its life for
    SIGKILL, else from the moment when compiling began. If it has ended by then, it tries again
    with half of them.

    Returns the seconds from the signal to its end, and what went wrong.
    """
    is_kill = name == signal.SIGKILL
    if isinstance(at, str):
        failpoint = f"{at}@{name.name.removeprefix('SIG')}"
        process = TrainProcess(workdir, *flags, failpoint=failpoint, **how)
        process.wait_until(lambda: "leaving within" in process.output())
        sent = time.monotonic()
    else:
        process = TrainProcess(workdir, *flags, **how)
        process.wait_until(lambda: is_kill or (workdir / "progress.json").exists())
        time.sleep(at)
        sent = time.monotonic()
        process.process.send_signal(name)
    ended = process.wait()
    if ended.status == 0 and not isinstance(at, str):
        shutil.rmtree(workdir)
        return interrupt(workdir, at / 2, name, *flags, **how)
    return ended.at - sent, errors(ended, status=-name if is_kill else 75)


def outcome(workdir: Path) -> dict[str, str]:
    """Returns what must not depend on interruptions: hashes of the parameters and optimizer states
    of all stages, and of the records without wall-clock times.
    """
    parts = {}
    for folder in sorted((workdir / "checkpoints").iterdir()):
        checkpoint = next(Checkpoints(folder).newest())
        for name, leaf in sorted(checkpoint.leaves.items()):
            part = f"{folder.name} {name.split('[')[0]}"  # "rope .params"
            parts.setdefault(part, hashlib.sha256()).update(name.encode() + leaf.tobytes())
    path = workdir / "metrics.jsonl"
    records = parse(path.read_bytes(), path)
    timeless = [record for record in records if record["metric"] not in TIMES]
    parts["records"] = hashlib.sha256(repr(timeless).encode())
    summary = json.loads((workdir / "summary.json").read_text("utf-8"))
    parts["results"] = hashlib.sha256(json.dumps(summary["results"]).encode())
    return {name: parts[name].hexdigest()[:16] for name in parts} | {"lines": str(len(records))}


def whole(*processes: TrainProcess) -> dict[str, str]:
    """Waits for the processes of a run that is not interrupted, and returns its outcome.

    Raises:
      RuntimeError: it failed.
    """
    if wrong := complete({}, *processes):
        raise RuntimeError(*wrong)
    return outcome(processes[0].workdir)


def complete(
    wanted: Mapping[str, Any],
    *processes: TrainProcess,
    read: Callable[[Path], Mapping[str, Any]] = outcome,
) -> list[str]:
    """Waits for the processes of one run. Returns what went wrong: their errors, or the parts of
    the outcome, read(workdir), that differ from `wanted`.
    """
    wrong = errors(*(process.wait() for process in processes))
    parts = {} if wrong else read(processes[0].workdir)
    return wrong or [name for name in wanted if wanted[name] != parts.get(name)]


def errors(*ends: Ended, status: int = 0) -> list[str]:
    """Returns the status and the output of processes that ended otherwise, or with a traceback."""
    unexpected = (end for end in ends if end.status != status or end.traceback)
    return [f"status {end.status}: {end.err}" for end in unexpected]


def lives(pid: int) -> bool:
    """Returns whether a process exists and has not ended."""
    try:
        return stat(pid)[0] != "Z"
    except OSError:
        return False


def stat(pid: int) -> list[str]:
    """Returns the fields of /proc/PID/stat, from the state on. OSError: the process is gone."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
