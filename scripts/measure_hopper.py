"""Checks and measures the kernels for a Hopper GPU, within 9 minutes of an H100 or H200.

    python scripts/measure_hopper.py --to=DIR

First every method's error (`check_kernels.py --kernel=mosaic`), then a short list beside cuDNN,
Triton and PyTorch's flex_attention (`bench_gpu.py --only=hopper`). Both write to DIR as they go:
the same command begins again where it was stopped. Status 1 if a kernel is wrong or a number is
missing.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
SECONDS = 540.0  # of all
CHECKING = 0.5  # of the time: the share in which a method's check may begin
RESERVE = 20.0  # seconds that each part needs after its last beginning


def measured(path: Path) -> bool:
    """Whether the table is there, and all its contestants have numbers."""
    if not path.exists():
        return False
    machines = json.loads(path.read_text("utf-8")).get("hopper", {})
    return bool(machines) and not any(
        contestant["failed"] for one in machines.values() for contestant in one["found"].values()
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--to", type=Path, required=True, metavar="DIR")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of all; default: 540")
    parser.add_argument("--only", default="*", metavar="PATTERN,...", help="methods to check")
    parser.add_argument("--quick", action="store_true", help="small sizes, on any machine")
    flags = parser.parse_args(arguments)
    flags.to.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + flags.seconds

    def run(script: str, *options: str) -> int:
        left = max(1.0, until - time.monotonic())
        command = [sys.executable, str(ROOT / "scripts" / script), *options]
        try:
            return subprocess.run(command, cwd=ROOT, timeout=left).returncode
        except subprocess.TimeoutExpired:
            print(f"{script}: stopped after {left:.0f} s; begin again", flush=True)
            return 1

    seconds = CHECKING * flags.seconds - RESERVE
    status = run("check_kernels.py", "--kernel=mosaic", "--no-times", f"--only={flags.only}",
                 f"--seconds={seconds}", f"--keep={flags.to / 'errors.json'}")  # fmt: skip
    if not measured(flags.to / "results" / "gpu.json"):
        left = (until - time.monotonic()) / 3  # contestants that compile longer are left out
        quick = ["--quick"] if flags.quick else []
        run("bench_gpu.py", "--only=hopper", f"--seconds={left}", f"--to={flags.to}", *quick)
    return int(status or not measured(flags.to / "results" / "gpu.json"))


if __name__ == "__main__":
    sys.exit(main())
