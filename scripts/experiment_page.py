"""Writes the page of an experiment in docs/, with its figures and raw records, from finished runs.

    python scripts/experiment_page.py runs/permutation/20261123-120000
    python scripts/experiment_page.py runs/sweeps/plateau*   # a page about many runs

The page is docs/EXPERIMENT.md, or has the name that the experiment gives it. Folders that cannot
make one are refused in one line, with exit status 2.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # the package need not be installed

import experiments
from posenc_jax.lab import runs
from posenc_jax.lab.report import document

DOCS = Path(__file__).parents[1] / "docs"


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit status: 0, or 2 if a folder is refused."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "folders", nargs="+", type=Path, metavar="RUN", help="a finished run, or a folder of runs"
    )
    parser.add_argument("--to", type=Path, default=DOCS, metavar="DIR", help="default: docs")
    given = parser.parse_args(arguments)
    try:
        found = [runs.read(folder) for folder in sorted(runs.finished(given.folders))]
        name, said, sections = experiments.document(found)
        document.write(given.to / f"{name}.md", found, said, sections)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{len(found)} runs: {given.to / name}.md")
    return 0


if __name__ == "__main__":
    sys.exit(main())
