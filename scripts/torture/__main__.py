"""`make torture`: kills, interrupts and damages runs, and writes docs/reliability.md.

python -m scripts.torture [--only=NAME,...] [--out=docs/reliability.md]

Each check replaces its own figures on the page when it ends, so a few checks can be run at a time.
"""

import argparse
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from scripts.torture import (
    configs,
    damaged_files,
    distributed,
    experiments,
    kills,
    mirrors,
    signals,
    starts,
    threads,
    workers,
)
from scripts.torture.check_result import CheckResult
from scripts.torture.page import write

CHECKS: dict[str, Callable[[Path], CheckResult]] = {
    "kills": lambda folder: kills.show(folder, kills=50),
    "files": damaged_files.show,
    "signals": lambda folder: signals.show(folder, signals=20),
    "starts": lambda folder: starts.show(folder, starts=100),
    "mirrors": mirrors.show,
    "distributed": distributed.show,
    "distributed-signals": distributed.show_asked,
    "configs": lambda folder: configs.show(folder, bad=2000, good=500),
    "threads": threads.show,
    "experiments": experiments.show,
    "workers": workers.show,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(CHECKS), help="names with commas")
    parser.add_argument("--out", type=Path, default=Path("docs/reliability.md"))
    arguments = parser.parse_args()
    names = arguments.only.split(",")
    if unknown := [name for name in names if name not in CHECKS]:
        parser.error(f"--only: no check {unknown[0]!r}; choices: {', '.join(CHECKS)}")
    passed = []
    for name in names:
        started = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            try:
                shown = CHECKS[name](Path(folder))
            except (subprocess.TimeoutExpired, OSError, RuntimeError):
                traceback.print_exc()  # a failure of this check; the others still run
                passed.append(False)
                continue
        took = time.monotonic() - started
        print(
            f"{name}: {shown.good} of {shown.tried}; control, {shown.control}: "
            f"{shown.control_found} of {shown.control_tried}; {took:.0f} s",
            *filter(None, [shown.figures, *shown.bad]), sep="\n  ", flush=True,
        )  # fmt: skip
        write(arguments.out, name, shown, took, CHECKS)
        passed.append(shown.passed)
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
