"""Measures how long the quick variant of every config takes, as a user meets it.

    python scripts/bench_quick.py        # all configs: docs/quick.json and the README's table

Each `train.py --config=configs/NAME.py:quick` is a process of its own, with an empty folder for
compiled programs: the time is that of the first run, from the command to its end. The machine must
do nothing else; a load of LOAD or more is refused in one line with status 2, a run that fails with
status 1. Nothing is written before all have ended.
"""

import datetime
import importlib.metadata
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))  # the package need not be installed

from posenc_jax.lab.hosts.devices import cores
from scripts.collectives import write

ROOT = Path(__file__).parents[1]
BEGIN, END = "<!-- table: python scripts/bench_quick.py -->", "<!-- end of table -->"
LOAD = 0.5  # of the last minute


class Time(NamedTuple):
    """Seconds on the clock, and of all cores together."""

    seconds: float
    cpu_seconds: float


def main() -> int:
    """Returns the exit status; see the module's docstring."""
    if (load := os.getloadavg()[0]) >= LOAD:
        print(f"error: the machine is busy, with a load of {load:.1f}; wait until it is below "
              f"{LOAD}", file=sys.stderr)  # fmt: skip
        return 2
    found = {}
    for name in names(ROOT / "configs"):
        try:
            found[name] = measured(name)
        except subprocess.CalledProcessError as error:
            print(f"error: {name}: status {error.returncode}: {error.stderr}", file=sys.stderr)
            return 1
        print(f"{name}: {found[name].seconds:.0f} s", flush=True)
    machine = {
        "date": datetime.date.today().isoformat(),
        "cores": len(cores()),
        "python": platform.python_version(),
        "jax": importlib.metadata.version("jax"),
    }
    kept = {"machine": machine, "configs": {name: t._asdict() for name, t in found.items()}}
    (ROOT / "docs" / "quick.json").write_text(json.dumps(kept, indent=1) + "\n", "utf-8")
    write(ROOT / "README.md", table(kept), BEGIN, END)
    return 0


def names(configs: Path) -> list[str]:
    """Returns the configs that have a quick variant."""
    return [path.stem for path in sorted(configs.glob("*.py"))
            if path.stem != "common" and "quick" in path.read_text("utf-8")]  # fmt: skip


def measured(name: str) -> Time:
    """Returns how long a quick variant takes. CalledProcessError: its status was not 0."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "train.py", f"--config=configs/{name}.py:quick",
                   f"--workdir={folder}/run"]  # fmt: skip
        environment = os.environ | {"JAX_COMPILATION_CACHE_DIR": f"{folder}/compiled"}
        began, used = time.monotonic(), _cpu_seconds()
        subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True,
                       text=True)  # fmt: skip
        return Time(round(time.monotonic() - began, 1), round(_cpu_seconds() - used, 1))


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def table(kept: dict) -> str:
    """Returns the times as a table in Markdown, with a line on the machine."""
    machine, lines = kept["machine"], ["| quick variant | seconds |", "|---|---|"]
    lines += [f"| `configs/{name}.py:quick` | {one['seconds']:.0f} |"
              for name, one in kept["configs"].items()]  # fmt: skip
    lines += ["", f"On {machine['cores']} free cores, JAX {machine['jax']}, nothing compiled "
              f"before; {machine['date']}, [raw numbers](docs/quick.json)."]  # fmt: skip
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
