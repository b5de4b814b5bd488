"""Builds the project's W&B workspace from code: extrapolation, order, padding, claims, speed.

    python scripts/dashboard.py runs/rope_extrap runs/permutation --entity=ME     # saves it
    python scripts/dashboard.py runs/* --entity=ME --dry-run                      # prints its JSON

The folders are finished runs, or folders of runs; they give the encodings, metrics and figures of
the panels. The panels show all runs of the project, with every seed.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # the package need not be installed

from posenc_jax.lab import runs
from posenc_jax.lab.hosts.flags import Flags
from posenc_jax.lab.report import dashboard


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit status: 0, 1 if W&B refuses, 2 if a folder is refused."""
    parser = Flags(__doc__)
    parser.add_argument("folders", nargs="+", type=Flags.path, metavar="DIR")
    parser.add_argument("--entity", required=True, help="of W&B: a user or a team")
    parser.add_argument("--project", default="posenc_jax")
    parser.add_argument("--name", default="Positional encodings", help="of the workspace")
    parser.add_argument("--dry-run", action="store_true", help="prints it, and sends nothing")
    flags = parser.parse_args(arguments)
    try:
        stored = [runs.read(path) for path in runs.finished(flags.folders)]
        workspace = dashboard.workspace(flags.entity, flags.project, flags.name, stored)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    if flags.dry_run:
        print(dashboard.serialise(workspace))
        return 0
    try:
        workspace.save()
    except Exception as error:
        print(f"W&B: {str(error).strip().splitlines()[0]}", file=sys.stderr)
        return 1
    print(workspace.url)
    return 0


if __name__ == "__main__":
    sys.exit(main())
