"""Writes docs/leaderboard.md, its figure and its raw records from the folder of a finished run.

python scripts/leaderboard.py RUN
"""

import argparse
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # the package need not be installed

from experiments.leaderboard import pages
from posenc_jax.lab import runs

DOCS = Path(__file__).parents[1] / "docs"


def main() -> int:
    """Returns the exit status: 0, or 2 if the folder is refused."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("run", metavar="RUN", help="folder of a finished leaderboard run")
    try:
        run = runs.read(parser.parse_args().run)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    (DOCS / "leaderboard.md").write_text(pages.markdown(run, "leaderboard.png"), "utf-8")
    shutil.copy(run.path / "figures" / "board.png", DOCS / "leaderboard.png")
    shutil.copy(run.path / "metrics.jsonl", DOCS / "leaderboard.jsonl")
    print(f"wrote {DOCS / 'leaderboard.md'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
