"""Makes the figures and report.html of run folders again, from what is on disk.

    python scripts/report.py runs/rope_extrap runs/alibi_extrap

Prints each run's table and the path of its page. A folder that holds no finished run is refused in
one line, with exit status 2.
"""

import argparse
import sys
from pathlib import Path

# The package need not be installed: it is found beside this folder.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import experiments


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0, or 2 where a folder was refused."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("workdirs", nargs="+", metavar="WORKDIR", help="folder of a finished run")
    for workdir in parser.parse_args(arguments).workdirs:
        try:
            experiments.show(workdir)
        except ValueError as error:
            print(error, file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
