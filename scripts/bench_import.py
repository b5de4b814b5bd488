"""Measures what importing posenc_jax adds to importing jax.

    python scripts/bench_import.py --rounds=10

Each import runs in a new process, jax and posenc_jax in turn; the first round fills the disk cache
and does not count. Prints the median seconds of both, their difference and their ratio.
"""

import argparse
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
TIMED = "import time; start = time.perf_counter(); import {}; print(time.perf_counter() - start)"


def seconds(module: str) -> float:
    """The time that one import takes in a new process, in seconds."""
    command = [sys.executable, "-c", TIMED.format(module)]
    return float(subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10)
    count = parser.parse_args().rounds
    rounds = [(seconds("jax"), seconds("posenc_jax")) for _ in range(1 + count)]
    jax, ours = (statistics.median(column) for column in zip(*rounds[1:], strict=True))
    print(f"jax {jax:.3f} s, posenc_jax {ours:.3f} s: {ours - jax:+.3f} s, ratio {ours / jax:.2f}")


if __name__ == "__main__":
    main()
