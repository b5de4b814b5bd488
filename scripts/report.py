"""Makes the report of one finished run again, or one page that compares many.

    python scripts/report.py runs/rope_extrap                       # its figures, table and page
    python scripts/report.py runs/rope_extrap runs/alibi_extrap     # runs/comparison.html
    python scripts/report.py runs/sweeps/extrap --out=extrap.html   # all runs of a folder
    python scripts/report.py runs/rope_extrap --attention           # with maps of attention
    python scripts/report.py runs/extrap --reference=alibi          # differences from alibi

The page about many runs pools runs that differ only in their seeds, and shows the other differences
of their configs. `--attention` reads the runs' checkpoints, a few seconds for each. A folder
without a finished run is refused in one line, with exit status 2.
"""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # the package need not be installed

import experiments
from experiments.compare.length_extrapolation import attention
from posenc_jax.lab import runs
from posenc_jax.lab.hosts.exit_status import one_line
from posenc_jax.lab.hosts.flags import Flags
from posenc_jax.lab.report import comparison
from posenc_jax.lab.report.formats import counted


@one_line
def main(arguments: list[str] | None = None) -> int:
    """Returns the exit status: 0, or 2 if a folder is refused."""
    parser = Flags(__doc__)
    parser.add_argument(
        "folders",
        nargs="+",
        type=Flags.path,
        metavar="DIR",
        help="a finished run, or a folder of runs",
    )
    parser.add_argument("--out", type=Flags.path, help="the page over many runs")
    parser.add_argument("--attention", action="store_true", help="maps of attention on the page")
    parser.add_argument("--reference", default="", metavar="NAME",
                        help="of one run: the encoding that others are compared with")  # fmt: skip
    flags = parser.parse_args(arguments)
    try:
        finished = runs.finished(flags.folders)
        for run in finished if flags.attention else ():
            attention.save_weights(run)
        if len(finished) == 1 and flags.out is None and not flags.attention:
            experiments.show(str(finished[0]), flags.reference)
            return 0
        if flags.reference:
            raise ValueError("--reference: is of the report of one run")
        out = flags.out or Path(
            os.path.commonpath([run.parent for run in finished]), "comparison.html"
        )
        merged = comparison.compare(finished, out)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    counts = (counted(len(merged[f"{noun}s"]), noun) for noun in ("run", "line"))
    print(f"{', '.join(counts)}\nreport: {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
