"""Kills or interrupts one of two processes under jax.distributed on the CPU, and resumes both.

They share the rows of every batch and, with FSDP, the parameters and the optimizer's state, so
neither can do a step alone.
"""

import socket
import time
from collections.abc import Mapping
from pathlib import Path

from scripts.torture.check_result import CheckResult
from scripts.torture.child import TINY, Child, Ended, outcome

LIMIT, ASKED_LIMIT = 60.0, 10.0  # seconds: after a loss, after a signal
PROCESSES = 2
SHARED = (
    *TINY, "--config.encoding.name=rope", "--config.seeds=1", "--config.train.fsdp=True",
    "--config.eval.lengths=(8,)",
)  # fmt: skip
NEVER = ("--config.checkpoint.seconds=3600.0",)  # but when asked to leave, and at the end


def show(folder: Path) -> CheckResult:
    """Kills each of the two processes once."""
    wanted, took, bad = uninterrupted(folder / "whole"), [], []
    for lost in range(PROCESSES):
        seconds, wrong = attempt(folder / f"lost{lost}", lost, wanted)
        took.append(seconds)
        bad += [f"process {lost} lost: {wrong}"] if wrong else []
    # Killed where the records of a chunk are on disk and its state is not.
    _, doubled = attempt(folder / "control", 0, wanted, "writing:3", without="rollback")
    return CheckResult(
        what=f"one of two processes killed: the other leaves within {LIMIT:.0f} s, the restart "
        "ends in the same bits",
        good=PROCESSES - len(bad),
        tried=PROCESSES,
        control="restart without rollback",
        control_found=int("records" in doubled),
        control_tried=1,
        settings="gloo on one machine, a core each, one model shared by FSDP, killed at the third "
        "chunk, the control at the third save",
        figures=f"left after {max(took):.0f} s at most",
        bad=tuple(bad),
    )


def show_asked(folder: Path) -> CheckResult:
    """Sends SIGTERM to the first, the second, or both; nothing else causes a save."""
    wanted, took, bad = uninterrupted(folder / "whole", NEVER), [], []
    cases = ((0,), (1,), (0, 1))
    for which in cases:
        seconds, wrong = asked(folder / f"asked{which}", which, wanted)
        took.append(seconds)
        bad += [f"SIGTERM to {which}: {wrong}"] if wrong else []
    _, lost = asked(folder / "control", (1,), wanted, without="signals")
    return CheckResult(
        what=f"SIGTERM to one of two processes, or both: a checkpoint and status 75 from both "
        f"within {ASKED_LIMIT:.0f} s, the restart ends in the same bits",
        good=len(cases) - len(bad),
        tried=len(cases),
        control="no handler: no checkpoint",
        control_found=int("no checkpoint" in lost),
        control_tried=1,
        settings="as above; the signal comes at the second chunk",
        figures=f"left after {max(took):.1f} s at most",
        bad=tuple(bad),
    )


def attempt(
    workdir: Path, lost: int, wanted: dict[str, str], at: str = "training:3", without: str = ""
) -> tuple[float, str]:
    """Returns the seconds from the end of one process to that of the other, and what was wrong."""
    children = start(workdir, {lost: at})
    since = children[lost].wait().at
    left = children[1 - lost].wait()
    seconds = left.at - since
    wrong = [f"status {left.status}, as if all were well"] if not left.status else []
    wrong += [f"{seconds:.0f} s"] if seconds > LIMIT else []
    return seconds, ", ".join(wrong + restart(workdir, wanted, without))


def asked(
    workdir: Path, which: tuple[int, ...], wanted: dict[str, str], without: str = ""
) -> tuple[float, str]:
    """Returns the seconds from SIGTERM to the end of both processes, and what was wrong."""
    at = dict.fromkeys(which, "training:2@TERM")
    children = start(workdir, at, without, NEVER)
    signalled = [children[process] for process in which]
    while all("SIGTERM" not in c.said() and c.process.poll() is None for c in signalled):
        time.sleep(0.02)
    since, ended = time.monotonic(), ends(children)
    seconds = max(one.at for one in ended) - since
    wrong = [f"status {one.status}: {one.err}" for one in ended if one.status != 75]
    wrong += [f"{seconds:.0f} s"] if seconds > ASKED_LIMIT else []
    wrong += [] if list(workdir.glob("checkpoints/*/*/sha256.json")) else ["no checkpoint"]
    return seconds, ", ".join(wrong + restart(workdir, wanted, "", NEVER))


def restart(
    workdir: Path, wanted: dict[str, str], without: str, flags: tuple[str, ...] = ()
) -> list[str]:
    """Resumes both processes; returns what was wrong with them or their outcome."""
    again = ends(start(workdir, without=without, flags=flags))
    wrong = [f"status {one.status} at the restart: {one.err}" for one in again if one.status]
    found = {} if wrong else outcome(workdir)
    return wrong or [name for name in wanted if wanted[name] != found.get(name)]


def uninterrupted(workdir: Path, flags: tuple[str, ...] = ()) -> dict[str, str]:
    """Returns the outcome of a run of both that is not interrupted.

    Raises:
      RuntimeError: it failed.
    """
    wrong = [f"status {one.status}: {one.err}" for one in ends(start(workdir, flags=flags))
             if one.status]  # fmt: skip
    if wrong:
        raise RuntimeError(", ".join(wrong))
    return outcome(workdir)


def start(
    workdir: Path,
    failpoints: Mapping[int, str] | None = None,
    without: str = "",
    flags: tuple[str, ...] = (),
) -> list[Child]:
    """Starts the processes of one run, each with its failpoint if it has one."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    return [
        Child(
            workdir,
            *flags,
            config=SHARED,
            cores=(process,),
            log=f"{workdir}.{process}",
            without=without,
            failpoint=(failpoints or {}).get(process, ""),
            environment={
                "JAX_NUM_PROCESSES": str(PROCESSES),
                "JAX_PROCESS_ID": str(process),
                "JAX_COORDINATOR_ADDRESS": address,
            },
        )
        for process in range(PROCESSES)
    ]


def ends(children: list[Child]) -> list[Ended]:
    return [child.wait() for child in children]
