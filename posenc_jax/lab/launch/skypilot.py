"""Runs a sweep on cloud TPUs: one managed job of SkyPilot for each point.

SkyPilot finds machines, moves jobs to other zones, mounts the bucket and restarts lost jobs; this
module writes the tasks that it reads. SkyPilot is installed in its own environment, since it needs
an older W&B, and its loader is called with that environment's interpreter.
"""

import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import yaml
from pydantic import Field, NonNegativeInt, StringConstraints

from posenc_jax.lab.config.errors import inside
from posenc_jax.lab.config.schema import Part, check
from posenc_jax.lab.config.sweeps import Point, Sweep
from posenc_jax.lab.launch import RESTART_STATUS
from posenc_jax.options import choices_for

INSTALL = 'uv tool install "skypilot[gcp]"'
MOUNT, HOME = "/posenc_runs", "~/posenc"  # on the TPU's machine

# Cores or chips that a slice of each generation is sold with, as Google names them.
_POWERS = tuple(2**k for k in range(3, 12))
SLICES = {
    "v2": (8, 32, 128, 256, 512),
    "v3": (8, 32, 64, 128, 256, 512, 1024, 2048),
    "v4": _POWERS,
    "v5e": (1, 4, 8, 16, 32, 64, 128, 256),
    "v5p": _POWERS,
    "v6e": (1, 4, 8, 16, 32, 64, 128, 256),
}
TPUS = {
    f"{kind}-{size}": f"tpu-{'v5litepod' if kind == 'v5e' else kind}-{size}"
    for kind, sizes in SLICES.items()
    for size in sizes
}

SETUP = f"""set -e
python3 -m pip install --quiet --user uv
python3 -m uv venv --quiet --allow-existing --python 3.11 {HOME}
python3 -m uv pip install --quiet --python {HOME} -r requirements.txt -c requirements.txt 'jax[tpu]'
"""

# The patterns and choices are SkyPilot's own rules, some of which it applies only when it launches.
Name = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9]+(?:[._-]{1,2}[a-zA-Z0-9]+)*$")]
BUCKET = r"^gs://[a-z0-9][a-z0-9._-]{1,61}[a-z0-9](/.*)?$"
Bucket = Annotated[str, StringConstraints(pattern=BUCKET)]
Strategy = Literal["EAGER_NEXT_REGION", "FAILOVER"]
Code = Annotated[int, Field(ge=0, le=255)]


class Recovery(Part):
    """What SkyPilot does when a machine is lost, or a run exits with one of the codes."""

    strategy: Strategy
    max_restarts_on_errors: NonNegativeInt
    recover_on_exit_codes: Annotated[list[Code], Field(min_length=1)]


class Resources(Part):
    """One slice of TPUs."""

    infra: Literal["gcp"]
    accelerators: Literal[tuple(TPUS.values())]  # type: ignore[valid-type]
    use_spot: bool
    job_recovery: Recovery


class Mount(Part):
    """A bucket mounted as a folder; in mode MOUNT_CACHED files can be appended to."""

    source: Bucket
    mode: Literal["MOUNT_CACHED"]


class Task(Part):
    """One task as SkyPilot's YAML has it."""

    name: Name
    resources: Resources
    workdir: str
    file_mounts: dict[Literal["/posenc_runs"], Mount]
    setup: str
    run: str


def accelerator(tpu: str) -> str:
    """SkyPilot's name of a TPU: "v6e-8" is "tpu-v6e-8". ValueError: one line with the choices."""
    name = tpu.removeprefix("tpu-").replace("v5litepod", "v5e")
    if name not in TPUS:
        kind = name.split("-")[0]
        known = [tpu for tpu in TPUS if tpu.startswith(f"{kind}-")] or list(SLICES)
        raise ValueError(f"--tpu: no TPU {tpu!r}{choices_for(name, known)}")
    return TPUS[name]


def tasks(sweep: Sweep, *, tpu: str, bucket: str, spot: bool, recovery: str) -> list[Task]:
    """Returns a task for each point. Runs are in the bucket, so any machine can resume them.

    Raises:
      ValueError: one line names the flag, the value and the choices.
    """
    if recovery not in (known := get_args(Strategy)):
        raise ValueError(f"--recovery: no strategy {recovery!r}{choices_for(recovery, known)}")
    if not re.match(BUCKET, bucket):
        raise ValueError(f"--bucket: {bucket!r} is no address of a bucket, as gs://NAME/FOLDER is")
    shared = {
        "resources": {
            "infra": "gcp",
            "accelerators": accelerator(tpu),
            "use_spot": spot,
            "job_recovery": {
                "strategy": recovery,
                "max_restarts_on_errors": 0,
                "recover_on_exit_codes": [RESTART_STATUS],
            },
        },
        "workdir": ".",
        "file_mounts": {MOUNT: {"source": bucket, "mode": "MOUNT_CACHED"}},
        "setup": SETUP,
    }
    with inside("skypilot"):
        return [
            check(Task, {"name": name, "run": _command(sweep, point), **shared})
            for name, point in zip(_names(sweep), sweep.points, strict=True)
        ]


def write(found: list[Task], folder: Path) -> list[Path]:
    """Writes FOLDER/skypilot/NAME.yaml for each task and returns the paths."""
    folder = folder / "skypilot"
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{task.name}.yaml" for task in found]
    for path, task in zip(paths, found, strict=True):
        path.write_text(as_yaml(task), "utf-8")
    return paths


def as_yaml(task: Task) -> str:
    """The task as SkyPilot reads it."""
    return yaml.dump(task.model_dump(), Dumper=_Dumper, sort_keys=False)


LOADER = """
import sys, sky
for path in sys.argv[1:]:
    try:
        sky.Task.from_yaml(path).validate()
    except Exception as error:
        sys.exit(f"{path}: " + str(error).strip().replace(chr(10), " "))
"""


def validate(paths: list[Path], root: Path) -> None:
    """Checks every task with SkyPilot's own loader; needs no network and no account.

    Raises:
      ValueError: SkyPilot is not installed, or refuses a task; gives its message.
    """
    python = Path(_sky()).resolve().parent / "python"
    command = [str(python), "-c", LOADER, *(str(path.resolve()) for path in paths)]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["no word"]
        raise ValueError(f"SkyPilot refuses a task: {said[-1]}")


def submit(paths: list[Path], root: Path, secrets: tuple[str, ...] = ()) -> None:
    """Submits every task as a managed job.

    Args:
      paths: the tasks' files.
      root: the repository, which each job gets.
      secrets: names of environment variables that the jobs get; their values are in no file.

    Raises:
      ValueError: SkyPilot refuses a task; those before it are submitted.
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
    """Returns a different name for each job, of letters and digits joined by single hyphens."""
    plain = [re.sub(r"[^a-zA-Z0-9.]+", "-", f"{sweep.name}-{p.name}") for p in sweep.points]
    return [name if plain.count(name) == 1 else f"{name}-{i}" for i, name in enumerate(plain)]


def _command(sweep: Sweep, point: Point) -> str:
    command = sweep.command(point, f"{MOUNT}/{sweep.name}/{point.name}")
    return f"{HOME}/bin/python {shlex.join(command)}\n"


class _Dumper(yaml.SafeDumper):
    """Writes a text of several lines as a YAML block."""


def _block(dumper: yaml.SafeDumper, value: str) -> Any:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, "|" if "\n" in value else None)


_Dumper.add_representer(str, _block)
_Dumper.ignore_aliases = lambda self, data: True  # type: ignore[method-assign]
