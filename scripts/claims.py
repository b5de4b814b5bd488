"""Writes docs/claims.md, with its figures in docs/claims/, from the folders of claims runs.

    python scripts/claims.py runs/claims/20261120-120000
    python scripts/claims.py RUN ANOTHER      # the second completes the first

If two folders have the same claim at the same budget with the same seeds, the later folder counts.
A folder without claims, one of an earlier version, folders whose seeds overlap, and a page that is
a folder are refused in one line, with exit status 2.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # the package need not be installed

from experiments.claims.decisions import findings
from experiments.claims.entries import load
from experiments.claims.pages import banner, publish
from experiments.claims.register import LEDGER

DOCS = Path(__file__).parents[1] / "docs"


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit status: 0, or 2 if a folder is refused."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("workdirs", nargs="+", metavar="WORKDIR", help="folder of a claims run")
    parser.add_argument("--to", type=Path, default=DOCS / "claims.md", metavar="FILE",
                        help="the page; its figures are in a folder beside it")  # fmt: skip
    given = parser.parse_args(arguments)
    try:
        if given.to.is_dir():
            raise ValueError(f"--to: {given.to} is a folder; name a file in it")
        found = findings(load(*given.workdirs))
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    publish(found, given.to, [Path(workdir) for workdir in given.workdirs])
    print(banner(found))
    print(f"{len(found)} of {len(LEDGER)} claims: {given.to}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
