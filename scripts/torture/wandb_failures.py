"""Runs against W&B servers that refuse, hang, fail or die: same results, and an end in time.

This includes a run that is interrupted while its server does not answer. Secrets in the environment
must appear neither in the run's folder nor on the server.
"""

import signal
import subprocess
import time
from pathlib import Path

from scripts.torture import unprotected
from scripts.torture.interruptions import interrupt
from scripts.torture.processes import TrainProcess, complete, side_by_side, whole
from scripts.torture.results import Attempt, CheckResult, slowest
from scripts.torture.wandb_server import FAULTS, FakeWandb

LIMIT = 10.0  # seconds from the finished page to the end of the process
INTERRUPTED = "silent at a SIGTERM"
ONLINE = "--config.wandb.mode=online"
SECRETS = {
    "WANDB_API_KEY": "5e5a3e" * 6 + "abcd",
    "HF_TOKEN": "hf_poppyseedpoppyseed",
    "AWS_SECRET_ACCESS_KEY": "wJalrPoppySeedBagel",
    "PASSWORD": "correct-horse-battery",
}


def check(folder: Path) -> CheckResult:
    """Does one run against each kind of server, and interrupts one."""
    wanted = whole(TrainProcess(folder / "whole"))

    def attempt(case: str) -> Attempt:
        workdir = folder / case.replace(" ", "_")
        with FakeWandb("going silent" if case == INTERRUPTED else case) as server:
            one = interrupted if case == INTERRUPTED else finished
            seconds, wrong = one(workdir, environment(workdir, server), wanted)
            return Attempt(case, wrong + leaks(workdir, server.requests), seconds, LIMIT)

    attempts = side_by_side(attempt, (*FAULTS, INTERRUPTED))
    with FakeWandb("going silent") as server:
        late = _overstays(folder / "control", server)
    return CheckResult(
        what=f"W&B {', '.join(FAULTS)}, or {INTERRUPTED}: the same bits, out within {LIMIT:.0f} s, "
        "no secret kept",
        attempts=attempts,
        control="no bound on W&B: overstays",
        control_found=[late],
        settings=f"servers on this machine; {len(SECRETS)} secrets planted in the environment",
        figures=f"{slowest(attempts):.1f} s at most from the finished page, or the signal, to the "
        "end",
    )


def finished(
    workdir: Path, environment: dict[str, str], wanted: dict[str, str]
) -> tuple[float, list[str]]:
    """Does a run that nothing interrupts. Returns the seconds from the finished page to the end of
    the process, and what was wrong.
    """
    wrong = complete(wanted, TrainProcess(workdir, ONLINE, environment=environment))
    return time.time() - (workdir / "report.html").stat().st_mtime, wrong


def interrupted(
    workdir: Path, environment: dict[str, str], wanted: dict[str, str]
) -> tuple[float, list[str]]:
    """Interrupts a run in training and resumes it. Returns the seconds from the signal to the end,
    and what was wrong.
    """
    seconds, wrong = interrupt(
        workdir, "training:2", signal.SIGTERM, ONLINE, environment=environment
    )
    return seconds, wrong + complete(wanted, TrainProcess(workdir))


def leaks(folder: Path, requests: list[str]) -> list[str]:
    """Returns where secrets were found: in a folder's files, or in what a server got."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    contents = ((path, path.read_bytes().decode(errors="replace")) for path in files)
    found = [name for name, text in contents if any(s in text for s in SECRETS.values())]
    sent = any(secret in request for request in requests for secret in SECRETS.values())
    return [f"a secret in {name}" for name in found] + (["a secret was sent"] if sent else [])


def environment(workdir: Path, server: FakeWandb) -> dict[str, str]:
    """Returns variables for a run: the secrets, the server, and an empty home."""
    home = Path(f"{workdir}.home")
    home.mkdir(parents=True, exist_ok=True)
    return {**SECRETS, "WANDB_BASE_URL": server.url, "HOME": str(home)}


def _overstays(workdir: Path, server: FakeWandb) -> bool:
    process = TrainProcess(
        workdir, ONLINE, without=unprotected.bounds, environment=environment(workdir, server)
    )
    process.wait_until((workdir / "report.html").exists)
    try:
        process.wait(1.5 * LIMIT)
    except subprocess.TimeoutExpired:
        return True
    return False
