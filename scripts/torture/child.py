"""Runs train.py in child processes, each on one core, and compares what they leave on disk."""

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from posenc_jax.lab.hosts import devices
from posenc_jax.lab.runs.checkpoints import Checkpoints
from posenc_jax.lab.runs.records import TIMES, parse

ROOT = Path(__file__).parents[2]
Case = TypeVar("Case")
Result = TypeVar("Result")

# Two encodings, so that stages follow one another; a save after every chunk.
TINY = (
    "--config=configs/tasks_extrap.py:copy,quick", "--config.encoding.name=alibi,rope",
    "--config.model.width=16", "--config.model.heads=2", "--config.model.layers=1",
    "--config.train.steps=24", "--config.train.chunk=6", "--config.train.batch=4",
    "--config.eval.examples=8", "--config.seeds=2", "--config.checkpoint.seconds=0.0",
)  # fmt: skip


class Ended(NamedTuple):
    """How a child ended: its exit status (-9: killed), its output, and the time."""

    status: int
    out: str
    err: str
    at: float

    @property
    def traceback(self) -> bool:
        return "Traceback" in self.err


class Child:
    """`train.py` on a folder, with one protection switched off if `without` names it.

    Compiled programs are kept in `compiled`, a folder of all runs beside this one if not given.
    """

    def __init__(
        self,
        workdir: Path,
        *flags: str,
        config: tuple[str, ...] = TINY,
        cores: tuple[int, ...] = (0,),
        without: str = "",
        log: str = "",
        failpoint: str = "",
        compiled: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ):
        program = ["-m", "scripts.torture.unprotected", without] if without else ["train.py"]
        usable = devices.cores()
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
        os.sched_setaffinity(self.process.pid, {usable[core % len(usable)] for core in cores})

    def wait(self, seconds: float = 900.0) -> Ended:
        """Waits for the end. After `seconds` it kills the child and raises TimeoutExpired."""
        try:
            status = self.process.wait(seconds)
        finally:
            self.process.kill()
        return Ended(status, self._out.read_text(), self._err.read_text(), time.monotonic())

    def said(self) -> str:
        """Returns its output so far, of both streams."""
        return self._out.read_text() + self._err.read_text()


def pinned(workdir: Path, core: int, at: str | float) -> dict[str, Any]:
    """Returns arguments of `Child` for a run that is ended at a failpoint or a moment: one core,
    and an empty compilation cache if the end may come during compilation.
    """
    compiles = not isinstance(at, str) or at.startswith("compiling")
    own = workdir.with_name(f"{workdir.name}.compiled")
    return {"cores": (core,), "compiled": own if compiles else None}


def side_by_side(attempt: Callable[[Case, int], Result], cases: Iterable[Case]) -> list[Result]:
    """Returns attempt(case, core) for each case, in order; two run at a time, each on its core."""
    free = list(range(min(2, len(devices.cores()))))

    def one(case: Case) -> Result:
        core = free.pop()
        try:
            return attempt(case, core)
        finally:
            free.append(core)

    with ThreadPoolExecutor(len(free)) as pool:
        return list(pool.map(one, cases))


def uninterrupted(workdir: Path, *flags: str) -> dict[str, str]:
    """Returns the outcome of a run that is not interrupted.

    Raises:
      RuntimeError: it failed.
    """
    ended = Child(workdir, *flags).wait()
    if ended.status:
        raise RuntimeError(ended.err)
    return outcome(workdir)


def outcome(workdir: Path) -> dict[str, str]:
    """Returns what must not depend on interruptions: hashes of the parameters and optimizer states
    of all stages, and of the records without wall-clock times.
    """
    found = {}
    for folder in sorted((workdir / "checkpoints").iterdir()):
        kept = next(Checkpoints(folder).newest())
        for name, leaf in sorted(kept.leaves.items()):
            part = f"{folder.name} {name.split('[')[0]}"  # "rope .params"
            found.setdefault(part, hashlib.sha256()).update(name.encode() + leaf.tobytes())
    path = workdir / "metrics.jsonl"
    records = parse(path.read_text("utf-8"), path)
    timeless = [record for record in records if record["metric"] not in TIMES]
    found["records"] = hashlib.sha256(repr(timeless).encode())
    hashes = {name: found[name].hexdigest()[:16] for name in found}
    return hashes | {"lines": str(len(records)), "results": _results(workdir)}


def _results(workdir: Path) -> str:
    summary = json.loads((workdir / "summary.json").read_text("utf-8"))
    return hashlib.sha256(json.dumps(summary["results"]).encode()).hexdigest()[:16]
