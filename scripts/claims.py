"""Writes docs/claims.md, with its figures in docs/claims/, and packs the runs into results/.

    python scripts/claims.py runs/claims/20261120-120000
    python scripts/claims.py RUN ANOTHER               # the second completes the first
    python scripts/claims.py results/claims.tar.xz     # the page of stored runs again

If two folders have the same claim at the same budget with the same seeds, the later folder counts.
A folder without claims, one of an earlier version, and folders whose seeds overlap are refused in
one line, with exit status 2.
"""

import sys
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # the package need not be installed

from experiments.claims.decisions import findings
from experiments.claims.entries import load
from experiments.claims.page import banner, publish
from experiments.claims.register import LEDGER
from posenc_jax.lab import runs
from posenc_jax.lab.hosts.exit_status import one_line
from posenc_jax.lab.hosts.flags import Flags

ROOT = Path(__file__).parents[1]


@one_line
def main(arguments: list[str] | None = None) -> int:
    """Returns the exit status: 0, or 2 if a folder is refused."""
    parser = Flags(__doc__)
    parser.add_argument("runs", nargs="+", type=Flags.path, metavar="RUN",
                        help="the folder of a claims run, or an archive of several")  # fmt: skip
    parser.add_argument("--to", type=Flags.path, default=ROOT, metavar="DIR",
                        help="what holds docs/ and results/; default: the repository")  # fmt: skip
    flags = parser.parse_args(arguments)
    page = flags.to / "docs" / "claims.md"
    with ExitStack() as stack:
        try:
            if flags.runs[0].suffix == ".xz":
                archive = flags.runs[0]
                folders = sorted(stack.enter_context(runs.unpacked(archive)).iterdir())
                verdicts = findings(load(*folders))
            else:
                verdicts = findings(load(*flags.runs))
                archive = flags.to / "results" / "claims.tar.xz"
                names = [f"run{n}" for n in range(1, len(flags.runs) + 1)]
                runs.pack(archive, flags.runs, names, ["claims.json"])
        except ValueError as error:
            print(error, file=sys.stderr)
            return 2
    publish(verdicts, page, archive)
    print(banner(verdicts))
    print(f"{len(verdicts)} of {len(LEDGER)} claims: {page}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
