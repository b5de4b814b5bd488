"""Measures what the leaderboard does not have yet, then writes docs/leaderboard.md.

    python scripts/board.py                  # every run that is missing, about 20 hours on 2 cores
    python scripts/board.py --point=NAME     # one run; the names: scripts/sweep.py --dry-run
    python scripts/board.py --stage=position-rates    # a stage of the board's next design
    python scripts/board.py --stage=position-rates --part=1/2    # every second of its runs

The runs are the sweep of configs/leaderboard.py. Once all are finished, the methods at both ends of
the board are trained with twice the steps where that may change them, and the top in a second
setting. Runs that results/leaderboard.tar.xz holds are unpacked, not measured again. Stop it at
any time and start it again: it goes on.

The runs of a stage are packed into results/unfinished/position.tar.xz whenever it ends or is
stopped, with the methods that an unfinished run has measured. They have no page before all stages
are measured. A run of one method takes one core: on two cores start such a stage as part 1/2 and
as part 2/2, in two terminals.
"""

import argparse
import lzma
import sys
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # the package need not be installed

from configs.leaderboard import STAGES
from experiments.board.leaderboard.other_settings import (
    ENDS,
    by_setting,
    changes,
    ends,
    is_longer,
    unfinished,
)
from experiments.board.leaderboard.rates_tried import program, tried
from experiments.board.leaderboard.task_table import by_task
from posenc_jax.lab import runs
from posenc_jax.lab.hosts.exit_status import first_line, one_line
from posenc_jax.lab.hosts.flags import Flags
from posenc_jax.lab.runs import StoredRun
from posenc_jax.lab.runs.archive import pack
from scripts import experiment_page, sweep

ROOT = Path(__file__).parents[1]
CONFIG = "configs/leaderboard.py"
FOLDER = Path("runs/leaderboard")
POSITION = ROOT / "results" / "unfinished" / "position.tar.xz", Path("runs/position")


def unpack(archive: Path, folder: Path) -> int:
    """Unpacks the runs of an archive that the folder does not hold; returns how many.

    A run gets its place in the folder when it is whole. One that an earlier call left half unpacked
    is unpacked again; one that was measured here is kept.

    Raises:
      ValueError: the archive is damaged.
    """
    new = 0
    try:
        with tarfile.open(archive) as packed:
            for name in sorted({member.name.split("/")[0] for member in packed}):
                files = {m.name: m for m in packed if m.name.startswith(f"{name}/") and m.isfile()}
                if (folder / name).exists() and not _half_unpacked(packed, files, folder):
                    continue
                with tempfile.TemporaryDirectory(dir=_new_folder(folder), prefix=".") as part:
                    packed.extractall(part, [*files.values()], filter="data")
                    if not (folder / name).exists():
                        Path(part, name).rename(folder / name)
                    else:
                        for file in files:
                            Path(part, file).replace(folder / file)
                new += 1
    except (tarfile.TarError, lzma.LZMAError, EOFError) as error:
        raise ValueError(f"{archive}: it is damaged: {first_line(error)}") from None
    return new


def _half_unpacked(
    packed: tarfile.TarFile, files: Mapping[str, tarfile.TarInfo], folder: Path
) -> bool:
    """Whether a run's folder holds a part of the archive's files and nothing of its own: some are
    missing or cut off, and there is no progress.json, which a run that was begun here has.
    """
    name = next(iter(files)).split("/")[0]
    if (folder / name / "progress.json").exists():
        return False
    whole = True
    for file, member in files.items():
        begun = (folder / file).read_bytes() if (folder / file).is_file() else b""
        content = packed.extractfile(member)
        if content is None or not content.read().startswith(begun):
            return False
        whole &= len(begun) == member.size and (folder / file).is_file()
    return not whole


def _new_folder(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def missing(argument: str = "", task: str = "", folder: Path = FOLDER) -> list[str]:
    """The points of a sweep, or those of one task, whose runs are not finished."""
    done = {path.name for path in runs.finished([folder])}
    return [
        point.name
        for point in sweep.read(_config(argument), {})[0].points
        if point.name not in done and task in ("", point.overrides["task.name"])
    ]


def measure(names: Sequence[str], argument: str = "", *options: str, folder: Path = FOLDER) -> int:
    """Runs points of a sweep; returns its exit status, 0 if there are none."""
    arguments = [f"--config={_config(argument)}", f"--folder={folder}", *options]
    return sweep.main([*arguments, *(f"--point={name}" for name in names)]) if names else 0


def confirm(*options: str) -> int:
    """Runs what the checks of a finished board lack; returns the exit status of the last sweep."""
    stored = [runs.read(path) for path in sorted(runs.finished([FOLDER]))]
    board, reference = by_task(by_setting(stored)[0]), stored[0].config["reference"]
    both, status = ends(board, reference), 0
    top = [reference, *both[:ENDS]]
    doubled = {task: unfinished(rows, [reference, *both]) for task, rows in board.items()}
    for kind, by_task_name in ("doubled", doubled), ("second", dict.fromkeys(board, top)):
        done = checked(stored, kind == "doubled")
        for task, names in by_task_name.items():
            argument = ",".join([kind, *(name for name in names if (task, name) not in done)])
            if argument != kind:
                status = status or measure(missing(argument, task), argument, *options)
    return status


def checked(stored: Sequence[StoredRun], doubled: bool) -> set[tuple[str, str]]:
    """The (task, method) pairs that runs with twice the steps have, or those in other settings."""
    board, *others = by_setting(stored)
    groups = (g for g in others if is_longer(changes(board, g)) == doubled)
    return {
        (task, name) for group in groups for task, rows in by_task(group).items() for name in rows
    }


def _config(argument: str) -> str:
    return f"{CONFIG}:{argument}" if argument else CONFIG


def part(text: str) -> slice:
    """Every how many of the runs, and from which on: "2/3" is slice(1, None, 3).

    argparse.ArgumentTypeError: it is no such part.
    """
    number, _, parts = text.partition("/")
    if not (number.isdecimal() and parts.isdecimal() and 1 <= int(number) <= int(parts)):
        raise argparse.ArgumentTypeError(f"{text!r} is no part such as 1/2 or 2/2")
    return slice(int(number) - 1, None, int(parts))


def stage(name: str, named: Sequence[str], runs_of_part: slice, *options: str) -> int:
    """Runs points of a stage, by default those that are missing, and packs all runs that have a
    measured method; returns the exit status of the sweep.

    runs_of_part: which points of the stage are this call's; see `part`.
    """
    archive, folder = POSITION
    mine = [point.name for point in sweep.read(_config(name), {})[0].points[runs_of_part]]
    unmeasured = [point for point in missing(name, folder=folder) if point in mine]
    status = measure(named or unmeasured, name, *options, folder=folder)
    # A folder without finished runs stands for itself.
    finished = [path for path in sorted(runs.finished([folder])) if path != folder]
    progress = [path.parent for path in sorted(folder.glob("*/progress.json"))]
    measured = [path for path in progress if (path / "metrics.jsonl").stat().st_size]
    begun = [path for path in measured if path not in finished]
    if finished or begun:
        pack(archive, finished, [path.name for path in finished], begun=begun)
    count, left = len(sweep.read(_config(name), {})[0].points), len(missing(name, folder=folder))
    print(f"{count - left} of {count} runs of {name} are finished", flush=True)
    if name == "position-rates" and finished:
        print(program(tried(map(runs.read, finished))))
    return status


def parsed_flags() -> Flags:
    flags = Flags(__doc__, epilog="Other flags are those of scripts/sweep.py.", allow_abbrev=False)
    flags.add_argument("--point", action="append", default=[], help="a run; again for more")
    flags.add_argument("--stage", choices=STAGES[1:], help="a stage of the next design")
    flags.add_argument("--part", type=part, metavar="K/N", help="of a stage: run K of every N runs")
    return flags


@one_line
def main(arguments: list[str]) -> int:
    """Returns the exit status of the sweep."""
    parser = parsed_flags()
    flags, others = parser.parse_known_args(arguments)
    named = flags.point
    if flags.part and (named or not flags.stage):
        parser.error("--part: of all runs of a stage; give --stage, and no --point")
    archive, folder = POSITION if flags.stage else (ROOT / "results" / "leaderboard.tar.xz", FOLDER)
    if archive.exists():
        try:
            unpack(archive, folder)
        except ValueError as error:
            print(error, file=sys.stderr)
            return 2
    if flags.stage:
        return stage(flags.stage, named, flags.part or slice(None), *others)
    status = measure(named or missing(), "", *others)
    count, left = len(sweep.read(CONFIG, {})[0].points), len(missing())
    print(f"{count - left} of {count} runs are finished", flush=True)
    if not left:
        status = confirm(*others)
    if left < count:
        experiment_page.main([str(FOLDER)])
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
