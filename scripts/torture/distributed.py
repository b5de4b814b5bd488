"""Kills or interrupts one of two processes under jax.distributed on the CPU, and resumes both.

They share the rows of every batch and, with FSDP, the parameters and the optimizer's state, so
neither can do a step alone.
"""

import socket
import time
from collections.abc import Callable
from pathlib import Path

from scripts.torture import unprotected
from scripts.torture.processes import TINY, TrainProcess, complete, errors, whole
from scripts.torture.results import Attempt, CheckResult, slowest

LIMIT, SIGNAL_LIMIT = 60.0, 10.0  # seconds: after a loss, after a signal
PROCESSES = 2
SHARED = (
    *TINY, "--config.encoding.name=rope", "--config.seeds=1", "--config.train.fsdp=True",
    "--config.eval.lengths=(8,)",
)  # fmt: skip
RARE_SAVES = ("--config.checkpoint.seconds=3600.0",)  # only when interrupted, and at the end


def check_kills(folder: Path) -> CheckResult:
    """Kills each of the two processes once."""
    wanted = whole(*start(folder / "whole"))
    attempts = [kill(folder / f"lost{lost}", lost, wanted) for lost in range(PROCESSES)]
    # Killed where the records of a chunk are on disk and its state is not.
    control = kill(folder / "control", 0, wanted, "writing:3", unprotected.rollback)
    return CheckResult(
        what=f"one of two processes killed: the other leaves within {LIMIT:.0f} s, the restart "
        "ends in the same bits",
        attempts=attempts,
        control="restart without rollback",
        control_found=["records" in control.wrong],
        settings="gloo on one machine, a core each, one model shared by FSDP, killed at the third "
        "chunk, the control at the third save",
        figures=f"left after {slowest(attempts):.0f} s at most",
    )


def check_signals(folder: Path) -> CheckResult:
    """Sends SIGTERM to the first, the second, or both; nothing else causes a save."""
    wanted = whole(*start(folder / "whole", RARE_SAVES))
    cases = ((0,), (1,), (0, 1))
    attempts = [interrupt(folder / f"signal{which}", which, wanted) for which in cases]
    control = interrupt(folder / "control", (1,), wanted, unprotected.default_signals)
    return CheckResult(
        what=f"SIGTERM to one of two processes, or both: a checkpoint and status 75 from both "
        f"within {SIGNAL_LIMIT:.0f} s, the restart ends in the same bits",
        attempts=attempts,
        control="no handler: no checkpoint",
        control_found=["no checkpoint" in control.wrong],
        settings="as above; the signal comes at the second chunk",
        figures=f"left after {slowest(attempts):.1f} s at most",
    )


def kill(
    workdir: Path,
    lost: int,
    wanted: dict[str, str],
    at: str = "training:3",
    without: Callable[[], None] | None = None,
) -> Attempt:
    """Kills one process, then resumes both, `without` a protection. The seconds are from the end of
    one process to that of the other.
    """
    processes = start(workdir, which=(lost,), at=at)
    since = processes[lost].wait().at
    left = processes[1 - lost].wait()
    wrong = [] if left.status else ["status 0 of the process that lost the other"]
    wrong += complete(wanted, *start(workdir, without=without))
    return Attempt(f"process {lost} lost", wrong, left.at - since, LIMIT)


def interrupt(
    workdir: Path,
    which: tuple[int, ...],
    wanted: dict[str, str],
    without: Callable[[], None] | None = None,
) -> Attempt:
    """Sends SIGTERM to some processes, which run `without` a protection, then resumes both. The
    seconds are from the signal to the end of both.
    """
    processes = start(workdir, RARE_SAVES, which, "training:2@TERM", without)
    signalled = [processes[n] for n in which]
    ended = lambda process: process.process.poll() is not None
    signalled[0].wait_until(lambda: any("SIGTERM" in p.output() or ended(p) for p in signalled))
    since = time.monotonic()
    ends = [process.wait() for process in processes]
    wrong = errors(*ends, status=75)
    wrong += [] if list(workdir.glob("checkpoints/*/*/sha256.json")) else ["no checkpoint"]
    wrong += complete(wanted, *start(workdir, RARE_SAVES))
    seconds = max(end.at for end in ends) - since
    return Attempt(f"SIGTERM to {which}", wrong, seconds, SIGNAL_LIMIT)


def start(
    workdir: Path,
    flags: tuple[str, ...] = (),
    which: tuple[int, ...] = (),
    at: str = "",
    without: Callable[[], None] | None = None,
) -> list[TrainProcess]:
    """Starts the processes of one run; those of `which` have the failpoint `at`."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    return [
        TrainProcess(
            workdir,
            *flags,
            config=SHARED,
            cores=(process,),
            log=f"{workdir}.{process}",
            without=without,
            failpoint=at if process in which else "",
            environment={
                "JAX_NUM_PROCESSES": str(PROCESSES),
                "JAX_PROCESS_ID": str(process),
                "JAX_COORDINATOR_ADDRESS": address,
            },
        )
        for process in range(PROCESSES)
    ]
