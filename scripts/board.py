"""Measures what the leaderboard does not have yet, then writes docs/leaderboard.md.

    python scripts/board.py                  # every run that is missing, about 20 hours on 2 cores
    python scripts/board.py --point=NAME     # one run; the names: scripts/sweep.py --dry-run

The runs are the sweep of configs/leaderboard.py. Once all are finished, the methods at both ends of
the board are trained with twice the steps where that may change them, and the top in a second
setting. Runs that docs/leaderboard/runs.tar.xz holds are unpacked, not measured again. Stop it at
any time and start it again: it goes on.
"""

import sys
import tarfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # the package need not be installed

from experiments.leaderboard.confirming import ENDS, by_setting, ends, unfinished
from experiments.leaderboard.document import by_task
from posenc_jax.lab import runs
from posenc_jax.lab.report.document import ARCHIVE
from scripts import experiment_page, sweep

ROOT = Path(__file__).parents[1]
CONFIG = "configs/leaderboard.py"
FOLDER = Path("runs/leaderboard")


def unpack(archive: Path, folder: Path) -> int:
    """Unpacks the runs of an archive that the folder does not hold; returns how many."""
    new = 0
    with tarfile.open(archive) as packed:
        for name in sorted({member.name.split("/")[0] for member in packed}):
            if not (folder / name / "config.json").exists():
                members = [m for m in packed if m.name.startswith(f"{name}/")]
                packed.extractall(folder, members, filter="data")
                new += 1
    return new


def confirm() -> int:
    """Runs the checks of a board that is finished; returns the exit status of the last sweep."""
    found, *_ = by_setting([runs.read(path) for path in sorted(runs.finished([FOLDER]))])
    tasks, reference = by_task(found), found[0].config["reference"]
    both = ends(tasks, reference)
    asked = {task: unfinished(rows, [reference, *both]) for task, rows in tasks.items()}
    status = 0
    for task, names in asked.items():
        if names:
            status = status or _run(f"doubled,{','.join(names)}", task)
    return status or _run(f"second,{','.join([reference, *both[:ENDS]])}")


def _run(argument: str, task: str = "") -> int:
    """Runs the points of a sweep, or that of one task; returns its exit status."""
    config = f"{CONFIG}:{argument}"
    points = [p.name for p in sweep.read(config, {})[0].points
              if task in ("", p.overrides["task.name"])]  # fmt: skip
    return sweep.main(
        [f"--config={config}", f"--folder={FOLDER}", *(f"--point={p}" for p in points)]
    )


def main(arguments: list[str]) -> int:
    """Returns the exit status of the sweep."""
    archive = ROOT / "docs" / "leaderboard" / ARCHIVE
    if archive.exists():
        unpack(archive, FOLDER)
    status = sweep.main([f"--config={CONFIG}", f"--folder={FOLDER}", *arguments])
    points = sweep.read(CONFIG, {})[0].points
    done = {path.name for path in runs.finished([FOLDER])} & {point.name for point in points}
    print(f"{len(done)} of {len(points)} runs are finished", flush=True)
    if len(done) == len(points):
        status = confirm()
    if done:
        experiment_page.main([str(FOLDER)])
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
