"""Runs a sweep: every point that a config file's `get_sweep` describes, or a search for the best.

    python scripts/sweep.py --config=configs/extrap.py --dry-run    # lists and counts the points
    python scripts/sweep.py --config=configs/extrap.py              # runs them on this machine
    python scripts/sweep.py --config=configs/extrap.py --launch=wandb     # a file for `wandb sweep`
    python scripts/sweep.py --config=configs/extrap.py --launch=slurm     # a job array for sbatch
    python scripts/sweep.py --config=configs/extrap.py --launch=skypilot --tpu=v6e-8 --spot \
        --bucket=gs://my-bucket/sweeps --dry-run                    # without it: submits the jobs

Any field is set for all points as train.py takes it: --config.train.steps=200. The folder of the
sweep has a folder for each point. Started again, the sweep runs the missing points and then writes
one report about all points. Exit status: 1 if a point failed, 2 if the input is wrong, 75 if the
sweep was stopped: start it again.
"""

import argparse
import contextlib
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # the package need not be installed

from rich.console import Console
from rich.table import Table
from rich.text import Text

from experiments.sweep_file import checked, overrides, read
from posenc_jax.lab.config import searches, sweeps
from posenc_jax.lab.config.searches import Search
from posenc_jax.lab.config.sweeps import Point, Sweep
from posenc_jax.lab.hosts.console import say
from posenc_jax.lab.hosts.exit_status import Interrupted, one_line
from posenc_jax.lab.hosts.flags import Flags
from posenc_jax.lab.hosts.signals import STOP_SIGNALS
from posenc_jax.lab.launch import agents, local, search, skypilot, slices, slurm
from posenc_jax.lab.report import comparison, terminal
from posenc_jax.lab.tasks import corpus
from posenc_jax.options import choices_for

ROOT = Path(__file__).parents[1]


@one_line
def main(arguments: list[str] | None = None) -> int:
    """Returns the exit status; see the module's docstring."""
    parser = Flags(__doc__)
    parser.add_argument("--config", required=True, metavar="PATH[:ARGUMENT]")
    parser.add_argument(
        "--folder", type=Flags.path, help="of the sweep; default runs/sweeps/CONFIG"
    )
    parser.add_argument("--point", action="append", metavar="NAME", help="only this point")
    parser.add_argument("--dry-run", action="store_true", help="shows what would be run")
    parser.add_argument(
        "--launch", choices=("local", "wandb", "slurm", "skypilot"), default="local"
    )
    parser.add_argument("--tpu", default="", help="such as v6e-8")
    parser.add_argument("--spot", action="store_true", help="machines that may be taken away")
    parser.add_argument(
        "--bucket", default="", help=f"where runs are kept, such as {skypilot.EXAMPLE}"
    )
    parser.add_argument("--at-once", type=int, default=0, help="of a Slurm array, at most so many")
    parser.add_argument("--recovery", default="EAGER_NEXT_REGION", help="SkyPilot's strategy")
    flags, rest = parser.parse_known_args(arguments)
    try:
        sweep, configs = read(flags.config, overrides(rest))
        if flags.point:
            sweep = sweep._replace(points=[_point(sweep, name) for name in flags.point])
        folder = flags.folder or Path("runs", "sweeps", sweep.name)
        launchers = SEARCHERS if sweep.search else LAUNCHERS
        if flags.launch not in launchers:
            raise ValueError(f"--launch: {flags.launch} runs points that are known before, and a "
                             f"search draws its own; choices: {', '.join(launchers)}")  # fmt: skip
        return launchers[flags.launch](sweep, configs, folder, flags)
    except ValueError as error:
        say(f"error: {error}", sys.stderr)
        return 2


def _point(sweep: Sweep, name: str) -> Point:
    if sweep.search:
        raise ValueError("--point: a search draws its trials itself, and has no points")
    for point in sweep.points:
        if point.name == name:
            return point
    names = (point.name for point in sweep.points)
    reason = choices_for(name, names, "those that --dry-run prints")
    raise ValueError(f"--point: no point {name!r}{reason}")


def _console() -> Console:
    """Returns the console. Lines are not folded if the output goes to a pipe or a file."""
    return Console(width=None if sys.stdout.isatty() else 10_000)


def _local(sweep: Sweep, configs: dict, folder: Path, flags: argparse.Namespace) -> int:
    console = _console()
    board = local.statuses(sweep, folder, configs)
    if flags.dry_run:
        console.print(_listing(sweep))
        left = sum(board[point.name].state != "finished" for point in sweep.points)
        print(f"{len(sweep.points)} points, {left} to run, in {folder}")
        return 0
    if not _run(sweep, folder, board, console):
        say(f"stopped; start it again and it goes on: {folder}", sys.stderr)
        return Interrupted.status
    failed = [point.name for point in sweep.points if board[point.name].state == "failed"]
    for name in failed:
        say(f"failed: {name}: {board[name].note}; see {folder / name}.log", sys.stderr)
    done = [folder / p.name for p in sweep.points if board[p.name].state == "finished"]
    if done and not flags.point:
        _report(done, folder, sweep, console)
    return 1 if failed else 0


def _report(done: list[Path], folder: Path, sweep: Sweep, console: Console, best: str = "") -> None:
    """Writes the report of finished points; prints the table of their main metric, and the best.

    best: what a search says of its best trial; without it, which points are best at each length.
    """
    merged = comparison.compare(done, folder / "report.html", sweep.name)
    for section in comparison.tables(merged)[:1]:
        terminal.show(section, console)
    for line in [best] if best else comparison.best(merged):
        say(line)
    say(f"report: {folder / 'report.html'}")


def _run(sweep: Sweep, folder: Path, board: dict[str, local.Status], console: Console) -> bool:
    """Runs the missing points. Prints a line for each point whose state changes; on a terminal, the
    progress of the running one below.

    Returns whether it ran to the end; False if it was stopped.
    """
    told = {name: status.state for name, status in board.items()}

    def show() -> None:
        for i, (name, status) in enumerate(board.items(), 1):
            clock = f"{status.seconds:.0f} s  " if status.seconds >= 1 else ""
            line = f"{i}/{len(board)} {name}: {status.state}  {clock}{status.note}".rstrip()
            if told[name] != status.state:
                told[name] = status.state
                console.print(Text(line))  # above the line that changes
            elif status.state == "running":
                progress.update(_cropped(line, console))

    with _stoppable() as stopped, console.status("") as progress:
        local.run(sweep, folder, ROOT / "train.py", board, show)
    return not stopped


@contextlib.contextmanager
def _stoppable() -> Iterator[list[str]]:
    """Ends the block at SIGTERM or Ctrl-C; the list that it yields then has an entry.

    Further signals change nothing: the running point is ended in any case.
    """
    stopped: list[str] = []
    ignore = lambda number, frame: None

    def stop(number, frame) -> None:
        for name in STOP_SIGNALS:
            signal.signal(name, ignore)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in STOP_SIGNALS}
    try:
        yield stopped
    except KeyboardInterrupt:
        stopped.append("stopped")
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _cropped(line: str, console: Console) -> Text:
    """Returns a line that changes: one that was folded would leave its rest on the screen."""
    text = Text(line)
    text.truncate(max(console.width - len("⠋ "), 1), overflow="ellipsis")
    return text


def _search(sweep: Sweep, configs: dict, folder: Path, flags: argparse.Namespace) -> int:
    drawn, console = sweep.search, _console()
    assert drawn is not None
    if flags.dry_run:
        console.print(_ranges(drawn))
        print(f"{drawn.trials} trials by {drawn.method}, to {drawn.goal} {drawn.objective}, in "
              f"{folder}")  # fmt: skip
        return 0

    def show(trial: search.Trial) -> None:
        status, value = trial.status, "" if trial.value is None else f"{trial.value:.5g}"
        clock = f"{status.seconds:.0f} s" if status.seconds >= 1 else ""
        drawn_values = " ".join(f"{field}={_short(v)}" for field, v in trial.drawn.items())
        parts = (f"{trial.name}: {status.state}", value, drawn_values, clock, status.note)
        line = "  ".join(part for part in parts if part)
        if status.state == "running":
            progress.update(_cropped(line, console))
        else:
            console.print(Text(line))

    check, trials = lambda fields: checked(configs["shared"], fields), []
    with _stoppable() as stopped, console.status("") as progress:
        trials = search.run(sweep, drawn, folder, ROOT / "train.py", check, show)
    if stopped:
        say(f"stopped; start it again and it goes on: {folder}", sys.stderr)
        return Interrupted.status
    if (best_trial := search.best(trials, drawn)) is None:
        print(f"failed: no trial has {drawn.objective}; see the logs in {folder}", file=sys.stderr)
        return 1
    done = [folder / trial.name for trial in trials if trial.status.state == "finished"]
    fields = " ".join(f"--config.{field}={sweeps.text(v)}" for field, v in best_trial.drawn.items())
    best = f"best: {best_trial.name}: {drawn.objective} {best_trial.value:.5g}: {fields}"
    _report(done, folder, sweep, console, best)
    return 0


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else sweeps.text(value)


def _ranges(drawn: Search) -> Table:
    """Returns a table of the searched fields and what their values are drawn from."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in ("field", "values"):
        table.add_column(column, overflow="fold")
    for field, values in drawn.fields.items():
        if isinstance(values, searches.Range):
            even = "whole numbers" if values.whole else "evenly"
            how = "evenly in the logarithm" if values.log else even
            shown = f"{values.low} to {values.high}, {how}"
        else:
            shown = ", ".join(map(sweeps.text, values))
        table.add_row(Text(field), Text(shown))
    return table


def _listing(sweep: Sweep) -> Table:
    """Returns a table of all points with the fields that they set."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    fields = dict.fromkeys(field for point in sweep.points for field in point.overrides)
    table.add_column("point", overflow="fold")
    for field in fields:
        table.add_column(field, overflow="fold")
    for point in sweep.points:
        values = (point.overrides.get(field) for field in fields)
        table.add_row(
            Text(point.name), *(Text("" if v is None else sweeps.text(v)) for v in values)
        )
    return table


def _wandb(sweep: Sweep, configs: dict, folder: Path, flags: argparse.Namespace) -> int:
    project = next(iter(configs.values()))["wandb"]["project"]
    files = agents.files(sweep, project, folder)
    then = "wandb sweep {}, then wandb agent with its answer"
    return _write(sweep, files, then, flags)


def _slurm(sweep: Sweep, configs: dict, folder: Path, flags: argparse.Namespace) -> int:
    files = slurm.files(_from_root(sweep), folder, ROOT, flags.at_once)
    return _write(sweep, files, "sbatch {}", flags)


def _write(sweep: Sweep, files: dict[Path, str], then: str, flags: argparse.Namespace) -> int:
    """Writes the files and prints the next command, which takes the last one; a dry run prints the
    files instead.
    """
    for path, text in files.items():
        if flags.dry_run:
            print(f"# {path}\n{text}", end="")
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
    count = f"{sweep.search.trials} trials" if sweep.search else f"{len(sweep.points)} points"
    print(f"{count}; " + ("nothing is written" if flags.dry_run else
                          f"next: {then.format([*files][-1])}"))  # fmt: skip
    return 0


def _skypilot(sweep: Sweep, configs: dict, folder: Path, flags: argparse.Namespace) -> int:
    sweep = _from_root(sweep)
    if Path(sweep.config.partition(":")[0]).is_absolute():
        raise ValueError(f"--config: {sweep.config} lies outside {ROOT}, which is all that travels")
    options = {name: getattr(flags, name) for name in ("tpu", "bucket", "spot", "recovery")}
    skypilot.refuse_data(configs.values(), ROOT)
    if any("stdlib" in sweeps.dotted(config).values() for config in configs.values()):
        options["text_sha256"] = corpus.standard_library_sha256()
    with tempfile.TemporaryDirectory() as unkept:
        task_folder = Path(unkept) if flags.dry_run else folder / "skypilot"
        files = skypilot.files(sweep, task_folder, **options)
        rows = max(map(_rows, configs.values()))
        print(slices.summary(flags.tpu, rows, len(sweep.points)), flush=True)
        if flags.dry_run:
            print("---\n".join(files.values()), end="", flush=True)
        task_folder.mkdir(parents=True, exist_ok=True)
        for path, text in files.items():
            path.write_text(text, "utf-8")
        paths = [*files]
        skypilot.validate(paths, ROOT)
    if flags.dry_run:
        print(f"{len(paths)} tasks, each taken by SkyPilot's loader; nothing is submitted")
        return 0
    online = any(config["wandb"]["mode"] == "online" for config in configs.values())
    skypilot.submit(paths, ROOT, ("WANDB_API_KEY",) if online else ())
    return 0


def _rows(config: dict[str, Any]) -> int:
    """Returns the rows of a step that devices share: seeds times batch."""
    return config["seeds"] * config.get("train", {}).get("batch", 1)


def _from_root(sweep: Sweep) -> Sweep:
    """Returns the sweep with its config's path relative to the repository, where jobs start."""
    path, colon, argument = sweep.config.partition(":")
    absolute = Path(path).resolve()
    inside = absolute.is_relative_to(ROOT)
    seen = absolute.relative_to(ROOT) if inside else absolute
    return sweep._replace(config=f"{seen.as_posix()}{colon}{argument}")


LAUNCHERS = {"local": _local, "wandb": _wandb, "slurm": _slurm, "skypilot": _skypilot}
SEARCHERS = {"local": _search, "wandb": _wandb}


if __name__ == "__main__":
    if "--dry-run" in sys.argv:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # piped into `head`, it ends without a word
    sys.exit(main())
