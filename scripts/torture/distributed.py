"""Two processes under jax.distributed on the CPU: one is killed, the other leaves, both restart."""

import socket
import time
from pathlib import Path

from scripts.torture.child import Child, Ended, outcome
from scripts.torture.shown import Shown

LIMIT = 60.0  # seconds
PROCESSES = 2


def show(folder: Path) -> Shown:
    """Each of the two is the one killed, once."""
    ends(start(folder / "whole"))
    wanted, took, bad = outcome(folder / "whole"), [], []
    for lost in range(PROCESSES):
        seconds, wrong = attempt(folder / f"lost{lost}", lost, wanted)
        took.append(seconds)
        bad += [f"process {lost} lost: {wrong}"] if wrong else []
    _, doubled = attempt(folder / "control", 1, wanted, without="rollback")
    return Shown(
        what=f"one of two processes killed: the other leaves within {LIMIT:.0f} s, the restart "
        "ends in the same bits",
        good=PROCESSES - len(bad),
        tried=PROCESSES,
        control="restart without rollback",
        control_found=int("records" in doubled),
        control_tried=1,
        settings="gloo on one machine, a core each, killed at the third chunk",
        figures=f"left after {max(took):.0f} s at most",
        bad=tuple(bad),
    )


def attempt(
    workdir: Path, lost: int, wanted: dict[str, str], without: str = ""
) -> tuple[float, str]:
    """Seconds from the loss of one process to the end of the other; what was wrong."""
    children = start(workdir, lost)
    children[lost].wait()
    since = time.monotonic()
    left = children[1 - lost].wait()
    seconds = left.at - since
    again = ends(start(workdir, without=without))
    wrong = [f"status {one.status} at the restart: {one.err}" for one in again if one.status]
    wrong += [f"status {left.status}, as if all were well"] if not left.status else []
    wrong += [f"{seconds:.0f} s"] if seconds > LIMIT else []
    if not wrong:
        found = outcome(workdir)
        wrong += [name for name in wanted if wanted[name] != found.get(name)]
    return seconds, ", ".join(wrong)


def start(workdir: Path, lost: int | None = None, without: str = "") -> list[Child]:
    """The processes of one run; process `lost` is killed at the third chunk."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    children = []
    for process in range(PROCESSES):
        children.append(
            Child(
                workdir,
                cores=(process,),
                log=f"{workdir}.{process}",
                without=without,
                failpoint="training:3" if process == lost else "",
                environment={
                    "JAX_NUM_PROCESSES": str(PROCESSES),
                    "JAX_PROCESS_ID": str(process),
                    "JAX_COORDINATOR_ADDRESS": address,
                },
            )
        )
    return children


def ends(children: list[Child]) -> list[Ended]:
    return [child.wait() for child in children]
