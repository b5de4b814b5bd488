"""Measures how many trainings of the leaderboard this machine does in an hour, and did before.

    python scripts/bench_board.py              # against the board at commit BEFORE; 8 minutes
    python scripts/bench_board.py --quick      # a few steps; shows that both sides run

Both sides train the same methods on copying, with the same windows, batch, steps, seeds and tests,
and one learning rate. Now a training ends early at an exact match of 1; before it did not. They
take turns. A round is a process of its own, with an empty folder for compiled programs, from the
command to the written report. Writes results/board_speed.json, and its table into docs/scaling.md.
The machine must do nothing else.
"""

import argparse
import datetime
import importlib.metadata
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # the package need not be installed

from posenc_jax.lab.hosts.devices import cores
from posenc_jax.lab.hosts.files import write_json
from scripts.collectives import write

ROOT = Path(__file__).parents[1]
BEGIN, END = "<!-- table: python scripts/bench_board.py -->", "<!-- end of table -->"
BEFORE = "047714f"  # the last commit before the board was made again
METHODS = ("rope", "nope", "alibi", "t5")
ROUNDS = 3
# The board at BEFORE has three tasks in one run; a config file is how to choose one.
ONE_TASK = """\
from configs import leaderboard

def get_config(argument=""):
    config = leaderboard.get_config(argument)
    config.tasks = config.tasks[:1]
    return config
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a few steps, and nothing is written")
    quick = parser.parse_args().quick
    steps, seeds = (100, 2) if quick else (2000, 2)
    names = METHODS[:2] if quick else METHODS
    shared = [f"--config.seeds={seeds}", "--config.multiples=1,2,4,8", "--config.examples=64",
              f"--config.train.steps={steps}", "--config.train.batch=16"]  # fmt: skip
    after = ["--config.task.name=copy", "--config.train.rates=0.004,", "--config.train.learned=1.0"]
    found: dict[str, list[float]] = {"before": [], "after": []}
    with tempfile.TemporaryDirectory() as folder:
        old, config = Path(folder) / "before", Path(folder) / "one_task.py"
        config.write_text(ONE_TASK, "utf-8")
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(old), BEFORE], check=True)
        try:
            for _ in range(1 if quick else ROUNDS):
                for side, root, file, more in (
                    ("before", old, str(config), []),
                    ("after", ROOT, "configs/leaderboard.py", after),
                ):
                    seconds = _seconds(root, [f"--config={file}:{','.join(names)}", *shared, *more])
                    found[side].append(round(3600 * len(names) * seeds / seconds, 1))
                    print(f"{side}: {found[side][-1]:.0f} trainings an hour", flush=True)
        finally:
            subprocess.run([*git, "remove", "--force", str(old)], check=True)
    if not quick:
        facts = {
            "commit before": BEFORE, "date": datetime.date.today().isoformat(),
            "cores": len(cores()), "python": platform.python_version(),
            "jax": importlib.metadata.version("jax"), "methods": METHODS, "steps": steps,
            "seeds": seeds, "trainings an hour": found,
        }  # fmt: skip
        write_json(ROOT / "results" / "board_speed.json", facts)
        write(ROOT / "docs" / "scaling.md", table(facts), BEGIN, END)


def _seconds(root: Path, flags: list[str]) -> float:
    """How long `train.py` of this checkout takes."""
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"JAX_COMPILATION_CACHE_DIR": f"{folder}/compiled"}
        began = time.monotonic()
        ended = subprocess.run(
            [sys.executable, "train.py", *flags, f"--workdir={folder}/run"], cwd=root,
            env=environment, capture_output=True, text=True,
        )  # fmt: skip
        if ended.returncode:
            raise SystemExit(f"error: {root}: {ended.stderr.strip().splitlines()[-1]}")
        return time.monotonic() - began


def table(facts: dict) -> str:
    """The medians as a table in Markdown, with the ratio of each round."""
    found = facts["trainings an hour"]
    before, now = (statistics.median(found[side]) for side in ("before", "after"))
    ratios = [b / a for a, b in zip(found["before"], found["after"], strict=True)]
    return "\n".join([
        "| board | trainings an hour |", "|---|---:|",
        f"| before, at commit {facts['commit before']} | {before:.0f} |",
        f"| now | {now:.0f} |", "",
        f"The ratio is {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}), "
        f"in {len(ratios)} rounds in which both take turns. A training is at most "
        f"{facts['steps']} steps of 16 examples of copying in windows of 32 tokens; "
        f"{', '.join(facts['methods'])} with "
        f"{facts['seeds']} seeds, compiling, tests and report included. On {facts['cores']} free "
        f"cores, Python {facts['python']}, JAX {facts['jax']}, {facts['date']}; "
        "[raw numbers](../results/board_speed.json).",
    ])  # fmt: skip


if __name__ == "__main__":
    main()
