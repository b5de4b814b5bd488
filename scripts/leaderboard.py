"""Writes docs/leaderboard.md, its figure and its raw records from the folder of a finished run.

python scripts/leaderboard.py RUN
"""

import shutil
import sys
from pathlib import Path

# The package need not be installed: it is found beside this folder.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from experiments.leaderboard import pages
from posenc_jax.lab import runs

DOCS = Path(__file__).parents[1] / "docs"


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print("usage: python scripts/leaderboard.py RUN", file=sys.stderr)
        return 2
    try:
        run = runs.read(arguments[0])
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    (DOCS / "leaderboard.md").write_text(pages.markdown(run, "leaderboard.png"), "utf-8")
    shutil.copy(run.path / "figures" / "board.png", DOCS / "leaderboard.png")
    shutil.copy(run.path / "metrics.jsonl", DOCS / "leaderboard.jsonl")
    print(f"wrote {DOCS / 'leaderboard.md'}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
