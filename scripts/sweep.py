"""Runs a sweep: every point that a config file's `get_sweep` describes.

    python scripts/sweep.py --config=configs/extrap.py --dry-run    # lists and counts the points
    python scripts/sweep.py --config=configs/extrap.py              # runs them on this machine
    python scripts/sweep.py --config=configs/extrap.py --launch=wandb     # a file for `wandb sweep`
    python scripts/sweep.py --config=configs/extrap.py --launch=slurm     # a job array for sbatch
    python scripts/sweep.py --config=configs/extrap.py --launch=skypilot --tpu=v6e-8 --spot \
        --bucket=gs://NAME/FOLDER --dry-run                         # without it: submits the jobs

Any field is set for all points as train.py takes it: --config.train.steps=200. The folder of the
sweep has a folder for each point. Started again, the sweep runs the missing points and then writes
one report about all points. Exit status: 1 if a point failed, 2 if the input is wrong, 75 if the
sweep was stopped: start it again.
"""

import argparse
import ast
import runpy
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

sys.path.insert(0, str(Path(__file__).parents[1]))  # the package need not be installed

import experiments
from posenc_jax.lab.config import sweeps
from posenc_jax.lab.config.sweeps import Point, Sweep
from posenc_jax.lab.hosts.exit_status import Interrupted
from posenc_jax.lab.launch import agents, local, skypilot, slurm
from posenc_jax.lab.report import comparison
from posenc_jax.options import choices_for

ROOT = Path(__file__).parents[1]


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit status; see the module's docstring."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--config", required=True, metavar="PATH[:ARGUMENT]")
    parser.add_argument("--folder", type=Path, help="of the sweep; default runs/sweeps/CONFIG")
    parser.add_argument("--point", action="append", metavar="NAME", help="only this point")
    parser.add_argument("--dry-run", action="store_true", help="shows what would be run")
    parser.add_argument(
        "--launch", choices=("local", "wandb", "slurm", "skypilot"), default="local"
    )
    parser.add_argument("--tpu", default="", help="such as v6e-8")
    parser.add_argument("--spot", action="store_true", help="machines that may be taken away")
    parser.add_argument("--bucket", default="", help="where runs are kept: gs://NAME/FOLDER")
    parser.add_argument("--at-once", type=int, default=0, help="of a Slurm array, at most so many")
    parser.add_argument("--recovery", default="EAGER_NEXT_REGION", help="SkyPilot's strategy")
    flags, rest = parser.parse_known_args(arguments)
    try:
        sweep, configs = read(flags.config, overrides(rest))
        if flags.point:
            sweep = sweep._replace(points=[_point(sweep, name) for name in flags.point])
        folder = flags.folder or Path("runs", "sweeps", sweep.name)
        return LAUNCHERS[flags.launch](sweep, configs, folder, flags)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def read(config: str, common: dict[str, Any]) -> tuple[Sweep, dict[str, Any]]:
    """Returns the sweep of a config file, and the checked config of every point by name.

    Args:
      config: PATH or PATH:ARGUMENT.
      common: dotted fields set for all points.

    Raises:
      ValueError: one line names the file, the point or the field, the value and the choices.
    """
    path, _, argument = config.partition(":")
    if not Path(path).is_file():
        raise ValueError(f"--config: no such file: {path}")
    module = runpy.run_path(path)
    if "get_sweep" not in module:
        raise ValueError(f"--config: {path} has no get_sweep(argument), which describes a sweep")
    name = "-".join([Path(path).stem, *argument.replace("+", "-").split(",")]).strip("-")
    base, points, configs = module["get_config"](argument).to_dict(), [], {}
    for point in sweeps.expand(module["get_sweep"](argument)):
        fields = {"wandb.group": name, **common, **point.overrides}
        configs[point.name] = experiments.check(sweeps.resolve(base, fields)).model_dump()
        points.append(Point(point.name, fields))
    return Sweep(name, config, points), configs


def overrides(arguments: list[str]) -> dict[str, Any]:
    """Returns --config.FIELD=VALUE arguments as {field: value}. ValueError: another argument."""
    found = {}
    for argument in arguments:
        field, equals, value = argument.partition("=")
        if not field.startswith("--config.") or not equals:
            raise ValueError(f"{argument}: not a flag; a field is set as --config.FIELD=VALUE")
        try:
            found[field.removeprefix("--config.")] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            found[field.removeprefix("--config.")] = value
    return found


def _point(sweep: Sweep, name: str) -> Point:
    for point in sweep.points:
        if point.name == name:
            return point
    names = (point.name for point in sweep.points)
    raise ValueError(f"--point: no point {name!r}{choices_for(name, names)}")


def _local(sweep: Sweep, configs: dict, folder: Path, flags: argparse.Namespace) -> int:
    console = Console()
    board = local.statuses(sweep, folder, configs)
    if flags.dry_run:
        console.print(_listing(sweep))
        left = sum(board[point.name].state != "finished" for point in sweep.points)
        print(f"{len(sweep.points)} points, {left} to run, in {folder}")
        return 0
    if not _run(sweep, folder, board, console):
        print(f"stopped; start it again and it goes on: {folder}", file=sys.stderr)
        return Interrupted.status
    failed = [point.name for point in sweep.points if board[point.name].state == "failed"]
    for name in failed:
        print(f"failed: {name}: {board[name].note}; see {folder / name}.log", file=sys.stderr)
    done = [folder / p.name for p in sweep.points if board[p.name].state == "finished"]
    if done and not flags.point:
        comparison.compare(done, folder / "report.html", sweep.name)
        console.print(f"report: {folder / 'report.html'}", highlight=False, soft_wrap=True)
    return 1 if failed else 0


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
                console.print(line, highlight=False, markup=False, soft_wrap=True)
            elif status.state == "running":
                progress.update(Text(line))

    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with console.status("") as progress:
            local.run(sweep, folder, ROOT / "train.py", board, show)
        return True
    except KeyboardInterrupt:
        return False
    finally:
        signal.signal(signal.SIGTERM, before)


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
    print(f"{len(sweep.points)} points; " + ("nothing is written" if flags.dry_run else
                                             f"next: {then.format([*files][-1])}"))  # fmt: skip
    return 0


def _skypilot(sweep: Sweep, configs: dict, folder: Path, flags: argparse.Namespace) -> int:
    sweep = _from_root(sweep)
    if Path(sweep.config.partition(":")[0]).is_absolute():
        raise ValueError(f"--config: {sweep.config} lies outside {ROOT}, which is all that travels")
    options = {name: getattr(flags, name) for name in ("tpu", "bucket", "spot", "recovery")}
    skypilot.refuse_data((c["task"]["name"] for c in configs.values() if "task" in c), ROOT)
    with tempfile.TemporaryDirectory() as unkept:
        kept = Path(unkept) if flags.dry_run else folder / "skypilot"
        files = skypilot.files(sweep, kept, **options)
        print(skypilot.slice_note(flags.tpu, max(map(_rows, configs.values()))))
        if flags.dry_run:
            print("---\n".join(files.values()), end="", flush=True)
        kept.mkdir(parents=True, exist_ok=True)
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


if __name__ == "__main__":
    sys.exit(main())
