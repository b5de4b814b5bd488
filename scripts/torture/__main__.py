"""Kills, interrupts and damages runs, and writes docs/reliability.md; `make torture`.

python -m scripts.torture [--only=NAME,...] [--out=docs/reliability.md]

Each check replaces its own figures on the page when it ends, so a few checks can be run at a time.
"""

import argparse
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

from scripts.torture import (
    configs,
    damaged_files,
    distributed,
    experiments,
    interruptions,
    results,
    simultaneous_starts,
    threads,
    wandb_failures,
    workers,
)

CHECKS = {
    "kills": interruptions.check_kills,
    "files": damaged_files.check,
    "signals": interruptions.check_signals,
    "starts": simultaneous_starts.check,
    "wandb": wandb_failures.check,
    "distributed": distributed.check_kills,
    "distributed-signals": distributed.check_signals,
    "configs": configs.check,
    "threads": threads.check,
    "experiments": experiments.check,
    "workers": workers.check,
}


def main() -> int:
    """Runs the checks. Returns the exit status: 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(CHECKS), help="names with commas")
    parser.add_argument("--out", type=Path, default=Path("docs/reliability.md"))
    arguments = parser.parse_args()
    names = arguments.only.split(",")
    if unknown := [name for name in names if name not in CHECKS]:
        parser.error(f"--only: no check {unknown[0]!r}; choices: {', '.join(CHECKS)}")
    passed = [run(name, arguments.out) for name in names]
    return 0 if all(passed) else 1


def run(name: str, out: Path) -> bool:
    """Runs one check, prints and writes its result; returns whether it passed."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        try:
            result = CHECKS[name](Path(folder))
        except (subprocess.TimeoutExpired, OSError, RuntimeError):
            traceback.print_exc()  # a failure of this check; the others still run
            return False
    seconds = time.monotonic() - started
    print(f"{name}: {result.good}; control, {result.control}: {result.found}; {seconds:.0f} s")
    for line in filter(None, [result.figures, *result.failures]):
        print(f"  {line}", flush=True)
    results.write(out, name, result, seconds)
    return result.passed


if __name__ == "__main__":
    sys.exit(main())
