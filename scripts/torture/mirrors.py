"""Runs against W&B servers that refuse, hang, fail or die: same results, and an end in time.

This includes a run that is interrupted while its server does not answer. Secrets in the environment
must appear neither in the run's folder nor on the server.
"""

import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from scripts.torture import signals
from scripts.torture.check_result import CheckResult
from scripts.torture.child import Child, outcome, side_by_side, uninterrupted
from scripts.torture.servers import KINDS, Server, serving

LIMIT = 10.0  # seconds from the finished page to the end of the process
SIGNALLED = "silent at a SIGTERM"
ONLINE = "--config.wandb.mode=online"
SECRETS = {
    "WANDB_API_KEY": "5e5a3e" * 6 + "abcd",
    "HF_TOKEN": "hf_poppyseedpoppyseed",
    "AWS_SECRET_ACCESS_KEY": "wJalrPoppySeedBagel",
    "PASSWORD": "correct-horse-battery",
}


def show(folder: Path) -> CheckResult:
    """Does one run against each kind of server."""
    wanted = uninterrupted(folder / "whole")

    def one(kind: str, core: int) -> tuple[float, str]:
        tried = interrupted if kind == SIGNALLED else attempt
        with serving("going silent" if kind == SIGNALLED else kind) as server:
            return tried(folder / kind.replace(" ", "_"), server, wanted, core)

    cases = (*KINDS, SIGNALLED)
    tried = side_by_side(one, cases)
    took = [seconds for seconds, _ in tried]
    bad = [f"{kind}: {wrong}" for kind, (_, wrong) in zip(cases, tried, strict=True) if wrong]
    with serving("going silent") as server:
        late = _overstays(folder / "control", server)
    return CheckResult(
        what="W&B "
        + ", ".join(KINDS)
        + f", or {SIGNALLED}: the same bits, out within {LIMIT:.0f} s, no secret kept",
        good=len(cases) - len(bad),
        tried=len(cases),
        control="no bound on W&B: overstays",
        control_found=int(late),
        control_tried=1,
        settings=f"servers on this machine; {len(SECRETS)} secrets planted in the environment",
        figures=f"{max(took):.1f} s at most from the finished page, or the signal, to the end",
        bad=tuple(bad),
    )


def attempt(workdir: Path, server: Server, wanted: dict[str, str], core: int) -> tuple[float, str]:
    """Returns the seconds from the finished page to the end of the process, and what was wrong."""
    where = environment(workdir, server)
    ended = Child(workdir, ONLINE, cores=(core,), environment=where).wait()
    seconds = time.time() - (workdir / "report.html").stat().st_mtime
    found = outcome(workdir)
    wrong = [name for name in wanted if wanted[name] != found.get(name)]
    wrong += [f"status {ended.status}"] if ended.status else []
    wrong += [f"{seconds:.1f} s"] if seconds > LIMIT else []
    wrong += leaks(workdir, server.bodies)
    return seconds, ", ".join(wrong)


def interrupted(
    workdir: Path, server: Server, wanted: dict[str, str], core: int
) -> tuple[float, str]:
    """Returns the seconds from a SIGTERM in training to the end, and what was wrong, then or after
    the run was resumed.
    """
    where = environment(workdir, server)
    seconds, wrong = signals.at_point(
        workdir, "training:2", signal.SIGTERM, ONLINE, cores=(core,), environment=where
    )
    again = Child(workdir, cores=(core,)).wait()
    found = outcome(workdir) if not again.status else {}
    parts = [wrong, *(name for name in wanted if wanted[name] != found.get(name))]
    parts += [f"{seconds:.1f} s"] if seconds > LIMIT else []
    return seconds, ", ".join(filter(None, [*parts, *leaks(workdir, server.bodies)]))


def leaks(folder: Path, bodies: list[str]) -> list[str]:
    """Returns where secrets were found: in a folder's files, or in what a server got."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    contents: Iterator[tuple[str, str]] = (
        (str(path), path.read_bytes().decode(errors="replace")) for path in files
    )
    found = [name for name, text in contents if any(s in text for s in SECRETS.values())]
    sent = any(secret in body for body in bodies for secret in SECRETS.values())
    return [f"a secret in {name}" for name in found] + (["a secret was sent"] if sent else [])


def environment(workdir: Path, server: Server) -> dict[str, str]:
    home = Path(f"{workdir}.home")
    home.mkdir(parents=True, exist_ok=True)
    return {**SECRETS, "WANDB_BASE_URL": server.address, "HOME": str(home)}


def _overstays(workdir: Path, server: Server) -> bool:
    child = Child(workdir, ONLINE, without="bounds", environment=environment(workdir, server))
    while not (workdir / "report.html").exists() and child.process.poll() is None:
        time.sleep(0.1)
    try:
        child.wait(1.5 * LIMIT)
    except subprocess.TimeoutExpired:
        return True
    return False
