"""What a sweep is written as, read by the programs that it is written for: `make validate-launch`.

    python -m tests.validate_launch SKYPILOTS_BIN WANDBS_PYTHON

SkyPilot's loader reads 100 tasks; W&B's own checker reads the sweep file and enumerates its grid.
Both live in environments of their own: their pins would hold back what this project needs.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from posenc_jax.lab.config.searches import Range, Search
from posenc_jax.lab.config.sweeps import Point, Sweep
from posenc_jax.lab.launch import agents, skypilot
from tests.lab.launch.test_launch import GRID, ROOT, ZIP, combinations, make, written
from tests.lab.launch.test_skypilot import OPTIONS, hundred

CHECKER = """
import json, sys, warnings
warnings.simplefilter("ignore")
import sweeps, yaml
config, runs = sweeps.SweepConfig(yaml.safe_load(open(sys.argv[1]))), []
while (run := sweeps.next_run(config, runs)) is not None:
    runs.append(run)
print(json.dumps([{name: given["value"] for name, given in run.config.items()} for run in runs]))
"""

DRAWER = """
import json, sys, warnings
warnings.simplefilter("ignore")
import sweeps, yaml
config = sweeps.SweepConfig(yaml.safe_load(open(sys.argv[1])))
drawn = sweeps.next_run(config, [])
run = lambda name, loss: sweeps.SweepRun(
    name=name, state=sweeps.RunState.running, config=drawn.config,
    history=[{"valid/loss": loss}] * 4)
stopped = sweeps.stop_runs(config, [run("ahead", 1.0), run("level", 1.0), run("behind", 2.0)])
print(json.dumps([{k: v["value"] for k, v in drawn.config.items()}, [r.name for r in stopped]]))
"""


def refused(check):
    """Whether the check raises ValueError."""
    try:
        check()
    except ValueError as error:
        print(f"  the control is refused: {str(error)[:90]}")
        return True
    return False


def tasks(folder: Path) -> None:
    """Has SkyPilot read a hundred tasks, and one that is none."""
    paths = stored_files(skypilot.files(hundred(), folder, **OPTIONS))
    skypilot.validate(paths, ROOT)
    print(f"SkyPilot's loader takes {len(paths)} of {len(paths)} tasks")
    wrong = folder / "wrong.yaml"
    wrong.write_text(paths[0].read_text("utf-8").replace("use_spot: true", "use_spot: maybe"))
    assert refused(lambda: skypilot.validate([wrong], ROOT))


def sweep_files(folder: Path, python: str) -> None:
    """Has W&B's checker read the two forms of a sweep file and enumerate their grids."""
    for description in (GRID, ZIP):
        sweep = make(description)
        content = written(sweep, folder)
        (path,) = stored_files(agents.files(sweep, "p", folder))
        actual = enumerated(python, path)
        assert sorted(actual, key=str) == sorted(map(by_name, combinations(content)), key=str)
        print(f"W&B's checker takes the file of {len(sweep.points)} points and enumerates them all")
    path.write_text(path.read_text("utf-8").replace("method: grid", "method: gird"))
    assert refused(lambda: enumerated(python, path))


def search_file(folder: Path, python: str) -> None:
    """Has W&B's checker read the file of a search, draw a trial, and stop one that falls behind."""
    search = Search({"train.lr": Range(1e-4, 1e-2, log=True), "model.layers": Range(1, 4),
                     "encoding.name": ("rope", "alibi")},
                    "valid/loss", "minimize", 9, compare_at=2)  # fmt: skip
    sweep = Sweep("s", "c.py", [Point("shared", {"seeds": 1})], search)
    (path,) = stored_files(agents.files(sweep, "p", folder))
    drawn, stopped = checked(DRAWER, python, path)
    assert 1e-4 <= drawn["config.train.lr"] <= 1e-2
    assert stopped == ["behind"]
    print("W&B's checker takes the file of a search, draws a trial and stops the one behind")
    path.write_text(path.read_text("utf-8").replace("goal: minimize", "goal: least"))
    assert refused(lambda: checked(DRAWER, python, path))


def checked(program: str, python: str, path: Path) -> Any:
    """What a program with W&B's own code prints of a file. ValueError: it refuses the file."""
    command = [python, "-c", program, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ValueError(next(l for l in done.stderr.splitlines() if "ValidationError:" in l))
    return json.loads(done.stdout)


def stored_files(files: dict[Path, str]) -> list[Path]:
    """Writes the files; returns their paths."""
    for path, text in files.items():
        path.write_text(text, "utf-8")
    return [*files]


def by_name(row: dict) -> dict:
    return dict(sorted(row.items()))


def enumerated(python: str, path: Path) -> list[dict]:
    """The combinations of a sweep file by W&B's own code. ValueError: it refuses the file."""
    return [by_name(row) for row in checked(CHECKER, python, path)]


if __name__ == "__main__":
    sky, wandb = sys.argv[1:]
    os.environ["PATH"] = f"{Path(sky).resolve()}{os.pathsep}{os.environ['PATH']}"
    with tempfile.TemporaryDirectory() as temporary:
        tasks(Path(temporary))
        sweep_files(Path(temporary), wandb)
        search_file(Path(temporary), wandb)
