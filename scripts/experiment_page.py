"""Writes the page of an experiment in docs/, with its figures, and packs its runs into results/.

    python scripts/experiment_page.py runs/permutation/20261123-120000
    python scripts/experiment_page.py runs/sweeps/plateau*          # a page about many runs
    python scripts/experiment_page.py results/permutation.tar.xz    # the page of stored runs again

The page is docs/EXPERIMENT.md, or has the name that the experiment gives it. If a page in docs/ is
written by hand and has a part that is marked for this one (`MARKS`), it goes there. What cannot
make one is refused in one line, with exit status 2.
"""

import re
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # the package need not be installed

import experiments
from posenc_jax.lab import runs
from posenc_jax.lab.hosts.exit_status import one_line
from posenc_jax.lab.hosts.flags import Flags
from posenc_jax.lab.report import comparison, document
from posenc_jax.lab.report.formats import counted
from posenc_jax.lab.report.markdown import replace_between

MARKS = "<!-- runs of {}: python scripts/experiment_page.py -->", "<!-- end of runs of {} -->"
ROOT = Path(__file__).parents[1]


@one_line
def main(arguments: list[str] | None = None) -> int:
    """Returns the exit status: 0, or 2 if a folder or an archive is refused."""
    parser = Flags(__doc__)
    parser.add_argument("runs", nargs="+", type=Flags.path, metavar="RUN",
                        help="a finished run, a folder of runs, or an archive of them")  # fmt: skip
    parser.add_argument("--to", type=Flags.path, default=ROOT, metavar="DIR",
                        help="what holds docs/ and results/; default: the repository")  # fmt: skip
    flags = parser.parse_args(arguments)
    try:
        if flags.runs[0].suffix == ".xz":
            stored = [run for archive in flags.runs for run in runs.read_archive(archive)]
            page = write(stored, flags.to, flags.runs[0])
        else:
            stored = [runs.read(folder) for folder in sorted(runs.finished(flags.runs))]
            page = write(stored, flags.to)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{counted(len(stored), 'run')}: {page}")
    return 0


def write(stored: Sequence[runs.StoredRun], to: Path, archive: Path | None = None) -> Path:
    """Writes the page of runs; returns its path. ValueError: they make no page.

    archive: the file that holds them; None: they are packed into results/.
    """
    name, said, sections = experiments.document(stored)
    if archive is None:
        archive, folders = to / "results" / f"{name}.tar.xz", [run.path for run in stored]
        runs.pack(archive, folders, comparison.names([folder.resolve() for folder in folders]))
    page = to / "docs" / f"{name}.md"
    document.write(page, stored, said, sections, archive)
    begin, end = (mark.format(name) for mark in MARKS)
    for larger in page.parent.glob("*.md"):
        if begin in larger.read_text("utf-8"):
            _, _, content = page.read_text("utf-8").partition("\n\n")  # without its title
            deeper = re.sub(r"(?m)^#", "##", content.rstrip())
            replace_between(larger, deeper, begin, end)
            page.unlink()
            return larger
    return page


if __name__ == "__main__":
    sys.exit(main())
