"""`make torture`: everything a run must survive, done to it; writes docs/reliability.md.

python -m scripts.torture [--only=NAME,...] [--out=docs/reliability.md]
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from scripts.torture import (
    configs,
    distributed,
    kills,
    mirrors,
    signals,
    starts,
    states,
    threads,
)
from scripts.torture.page import write
from scripts.torture.shown import Shown

CHECKS: dict[str, Callable[[Path], Shown]] = {
    "kills": lambda folder: kills.show(folder, kills=50, cores=min(2, os.cpu_count() or 1)),
    "files": states.show,
    "signals": lambda folder: signals.show(folder, signals=20),
    "starts": lambda folder: starts.show(folder, starts=100),
    "mirrors": mirrors.show,
    "distributed": distributed.show,
    "distributed signals": distributed.show_asked,
    "configs": lambda folder: configs.show(folder, bad=2000, good=500),
    "threads": threads.show,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(CHECKS), help="names with commas")
    parser.add_argument("--out", type=Path, default=Path("docs/reliability.md"))
    arguments = parser.parse_args()
    names = arguments.only.split(",")
    if unknown := [name for name in names if name not in CHECKS]:
        parser.error(f"--only: no check {unknown[0]!r}; choices: {', '.join(CHECKS)}")
    shown, began = {}, time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            started, place = time.monotonic(), Path(folder) / name
            place.mkdir()
            shown[name] = CHECKS[name](place)
            took = time.monotonic() - started
            print(f"{name}: {shown[name].good} of {shown[name].tried} in {took:.0f} s", flush=True)
            print("\n".join(f"  {line}" for line in shown[name].bad), flush=True)
    if names == list(CHECKS):
        write(arguments.out, shown, time.monotonic() - began)
        print(f"written: {arguments.out}")
    return 0 if all(one.passed for one in shown.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
