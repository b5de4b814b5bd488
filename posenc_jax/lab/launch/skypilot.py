"""Runs a sweep on cloud TPUs: each point is a managed job of SkyPilot.

SkyPilot finds machines, mounts the bucket, and starts a job again, if need be in another zone, when
its machine is lost; this module writes the tasks that it reads. Its dependencies would hold back
W&B, so it is installed in an environment of its own, and its loader runs in that interpreter.
"""

import json
import platform
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from posenc_jax.lab.config.sweeps import Sweep
from posenc_jax.lab.hosts.exit_status import Interrupted
from posenc_jax.options import choices_for

INSTALL = 'uv tool install "skypilot[gcp]"'

# Cores or chips that a slice of each generation is sold with, as Google names them.
_POWERS = tuple(2**k for k in range(3, 12))
SLICES = {
    "v2": (8, 32, 128, 256, 512),
    "v3": (8, 32, 64, 128, 256, 512, 1024, 2048),
    "v4": _POWERS,
    "v5litepod": (1, 4, 8, 16, 32, 64, 128, 256),
    "v5p": _POWERS,
    "v6e": (1, 4, 8, 16, 32, 64, 128, 256),
}
BY_CHIP = ("v5litepod", "v6e")  # whose names count chips; those of others count two cores a chip
TPUS = [f"{kind}-{size}" for kind, sizes in SLICES.items() for size in sizes]

# MOUNT_CACHED is the mode in which files can be appended to.
TASK = """\
name: {name}
resources:
  infra: gcp
  accelerators: {accelerators}
  use_spot: {spot}
  job_recovery:
    strategy: {recovery}
    max_restarts_on_errors: 0
    recover_on_exit_codes: [{again}]
workdir: .
file_mounts:
  /posenc_runs: {{source: {bucket}, mode: MOUNT_CACHED}}
setup: |
  set -e
  python3 -m pip install --quiet --user uv
  python3 -m uv venv --quiet --allow-existing --python {python} ~/posenc
  python3 -m uv pip install -q --python ~/posenc -r requirements.txt -c requirements.txt 'jax[tpu]'
run: {run}
"""

# SkyPilot's own rules, which it applies only when it launches.
BUCKET = r"^gs://[a-z0-9][a-z0-9._-]{1,61}[a-z0-9](/.*)?$"
STRATEGIES = ("EAGER_NEXT_REGION", "FAILOVER")


def accelerator(tpu: str) -> str:
    """Returns SkyPilot's name of a TPU: "v6e-8" is "tpu-v6e-8", "v5e-4" is "tpu-v5litepod-4".

    Raises:
      ValueError: no such TPU; one line with the choices.
    """
    name = tpu.removeprefix("tpu-").replace("v5e", "v5litepod")
    if name not in TPUS:
        kind = name.split("-")[0]
        known = [tpu for tpu in TPUS if tpu.startswith(f"{kind}-")] or list(SLICES)
        raise ValueError(f"--tpu: no TPU {tpu!r}{choices_for(name, known)}")
    return f"tpu-{name}"


def files(
    sweep: Sweep, folder: Path, *, tpu: str, bucket: str, spot: bool, recovery: str
) -> dict[Path, str]:
    """Returns FOLDER/NAME.yaml, a task, for each point, with their texts. The folder of a run is in
    the bucket, so that the run can be resumed on another machine.

    Raises:
      ValueError: one line names the flag, the value and the choices.
    """
    if recovery not in STRATEGIES:
        choices = choices_for(recovery, STRATEGIES)
        raise ValueError(f"--recovery: no strategy {recovery!r}{choices}")
    if not re.match(BUCKET, bucket):
        raise ValueError(f"--bucket: {bucket!r} is no address of a bucket, as gs://NAME/FOLDER is")
    shared = {
        "accelerators": accelerator(tpu),
        "spot": spot,
        "recovery": recovery,
        "again": Interrupted.status,
        "bucket": bucket,
    }
    found = {}
    for name, point in zip(_names(sweep), sweep.points, strict=True):
        command = sweep.command(point, f"/posenc_runs/{sweep.name}/{point.name}")
        fields = {**shared, "name": name, "run": f"~/posenc/bin/python {shlex.join(command)}"}
        quoted = {key: json.dumps(value, ensure_ascii=False) for key, value in fields.items()}
        task = TASK.format(**quoted, python=platform.python_version())
        found[folder / f"{name}.yaml"] = task
    return found


def slice_note(tpu: str, rows: int) -> str:
    """Returns what a slice is, and a warning if it has more chips than there are rows to spread.

    Args:
      tpu: as of `accelerator`.
      rows: the most rows that a run of the sweep computes at once: seeds times batch.
    """
    kind, size = accelerator(tpu).removeprefix("tpu-").rsplit("-", 1)
    chips = int(size) // (1 if kind in BY_CHIP else 2)
    told = f"{tpu}: {chips} chip{'s' * (chips > 1)} for each point"
    if chips > rows:
        return f"{told}; warning: a step has {rows} rows, so that {chips - rows} chips stay idle"
    return told


def refuse_data(tasks: Iterable[str], root: Path) -> None:
    """Refuses tasks whose data does not travel with the repository.

    Raises:
      ValueError: one line names the task.
    """
    for task in tasks:
        kind, _, name = task.partition(":")
        if kind == "file" and not Path(root, name).resolve().is_relative_to(root.resolve()):
            raise ValueError(f"config.task.name: {task} lies outside {root}, which is all that "
                             "travels; copy the file into it")  # fmt: skip
        if kind == "tfds":
            raise ValueError(
                f"config.task.name: {task} is prepared on this machine and does not travel to a "
                "cloud machine; take a task with data of its own"
            )


LOADER = """
import sys, sky
for path in sys.argv[1:]:
    try:
        sky.Task.from_yaml(path).validate()
    except Exception as error:
        sys.exit(f"{path}: " + str(error).strip().replace(chr(10), " "))
"""


def validate(paths: list[Path], root: Path) -> None:
    """Has SkyPilot's own loader read every task; needs no network and no account.

    Raises:
      ValueError: SkyPilot is not installed, or its error about the first task that it refuses.
    """
    python = Path(_sky()).resolve().parent / "python"
    command = [str(python), "-c", LOADER, *(str(path.resolve()) for path in paths)]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["no reason given"]
        raise ValueError(f"SkyPilot refuses a task: {said[-1]}")


def submit(paths: list[Path], root: Path, secrets: tuple[str, ...] = ()) -> None:
    """Submits every task as a managed job.

    Args:
      secrets: names of environment variables that the jobs get; their values are in no file.

    Raises:
      ValueError: names the first task that SkyPilot does not take.
    """
    shared = ["--yes", "--async", *(part for name in secrets for part in ("--secret", name))]
    for path in paths:
        command = [_sky(), "jobs", "launch", *shared, "--name", path.stem, str(path.resolve())]
        if subprocess.run(command, cwd=root, check=False).returncode:
            raise ValueError(f"SkyPilot did not take {path}; those before it are submitted")


def _sky() -> str:
    if found := shutil.which("sky"):
        return found
    raise ValueError(f"SkyPilot is not installed; install it apart from the project: {INSTALL}")


def _names(sweep: Sweep) -> list[str]:
    """Returns a name for each job, of letters and digits joined by single hyphens and dots, as
    SkyPilot requires; no two are the same.
    """
    given = [f"{sweep.name}-{point.name}" for point in sweep.points]
    plain = [re.sub(r"[^a-zA-Z0-9]{2,}|[^a-zA-Z0-9.]", "-", name).strip("-.") for name in given]
    return [name if plain.count(name) == 1 else f"{name}-{i}" for i, name in enumerate(plain)]
