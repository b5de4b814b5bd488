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
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from posenc_jax.lab.config import imports
from posenc_jax.lab.config.sweeps import Sweep, dotted
from posenc_jax.lab.hosts.exit_status import Interrupted
from posenc_jax.lab.hosts.files import expanded
from posenc_jax.lab.launch import slices
from posenc_jax.options import choices_for

INSTALL = 'uv tool install "skypilot[gcp]"'

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
{same_text}run: {run}
"""

# Another distribution of the same Python may have other files; numbers of two texts do not compare.
SAME_TEXT = """\
  found=$(~/posenc/bin/python -c '{program}')
  test "$found" = {digest} || {{ echo 'error: this Python has another text of the standard library
  than the machine that started the sweep; take the task file:PATH' >&2; exit 1; }}
"""
DIGEST = "from posenc_jax.lab.tasks import corpus; print(corpus.standard_library_sha256())"

# SkyPilot's own rules, which it applies only when it launches.
EXAMPLE = "gs://my-bucket/sweeps"
BUCKET = r"^gs://[a-z0-9][a-z0-9._-]{1,61}[a-z0-9](/.*)?$"
STRATEGIES = ("EAGER_NEXT_REGION", "FAILOVER")


def files(
    sweep: Sweep,
    folder: Path,
    *,
    tpu: str,
    bucket: str,
    spot: bool,
    recovery: str,
    text_sha256: str = "",
) -> dict[Path, str]:
    """Returns FOLDER/NAME.yaml, a task, for each point, with their texts. The folder of a run is in
    the bucket, so that the run can be resumed on another machine.

    Args:
      text_sha256: of the standard library's text, if a point reads it: a job whose Python has
        another text ends before it trains.

    Raises:
      ValueError: one line names the flag, the value and the choices.
    """
    if recovery not in STRATEGIES:
        choices = choices_for(recovery, STRATEGIES)
        raise ValueError(f"--recovery: no strategy {recovery!r}{choices}")
    if not re.match(BUCKET, bucket):
        raise ValueError(f"--bucket: {bucket!r} is not a bucket of Google Cloud, as {EXAMPLE} is: "
                         "3 to 63 lower-case letters, digits, '-', '_' or '.'")  # fmt: skip
    shared = {
        "accelerators": slices.on_one_host(tpu).accelerator,
        "spot": spot,
        "recovery": recovery,
        "again": Interrupted.status,
        "bucket": bucket,
    }
    same_text = SAME_TEXT.format(program=DIGEST, digest=text_sha256) if text_sha256 else ""
    tasks = {}
    for name, point in zip(_names(sweep), sweep.points, strict=True):
        command = sweep.command(point, f"/posenc_runs/{sweep.name}/{point.name}")
        fields = {**shared, "name": name, "run": f"~/posenc/bin/python {shlex.join(command)}"}
        quoted = {key: json.dumps(value, ensure_ascii=False) for key, value in fields.items()}
        python = platform.python_version()
        task = TASK.format(**quoted, python=python, same_text=same_text)
        tasks[folder / f"{name}.yaml"] = task
    return tasks


def refuse_data(configs: Iterable[Mapping[str, Any]], root: Path) -> None:
    """Refuses configs whose data does not travel with the repository: a file outside of it or one
    that git ignores, which SkyPilot leaves out, and a set that was prepared on this machine.

    Raises:
      ValueError: one line names the field and its value.
    """
    configs = list(configs)
    for config in configs:
        _refuse_modules(config.get("imports", ()), root)
    for field, value in ((f, v) for config in configs for f, v in dotted(config).items()):
        if not isinstance(value, str):
            continue
        kind, colon, name = value.partition(":")
        if colon and "tfds" in (kind, name.partition(":")[0]):
            raise ValueError(
                f"config.{field}: {value} is prepared on this machine and does not travel to a "
                "cloud machine; take a task with data of its own"
            )
        if field.partition(".")[0] == "wandb" or not (colon or "/" in value):
            continue
        path = Path(root, expanded(name or value))
        if not path.exists():
            continue
        if not path.resolve().is_relative_to(root.resolve()):
            raise ValueError(f"config.{field}: {value} lies outside {root}, which is all that "
                             "travels; copy it into it")  # fmt: skip
        if _ignored(path, root):
            raise ValueError(f"config.{field}: {value} is ignored by git, and SkyPilot copies "
                             "nothing that is; add it to the repository")  # fmt: skip


def _refuse_modules(names: Iterable[str], root: Path) -> None:
    """Refuses modules whose files do not travel.

    Raises:
      ValueError: a file is outside the repository, or git ignores it.
    """
    for _, path in sorted(imports.files(names)):
        if not path.is_relative_to(root.resolve()):
            raise ValueError(f"config.imports: {path} lies outside {root}, which is all that "
                             "travels; copy it into it")  # fmt: skip
        if _ignored(path, root):
            raise ValueError(f"config.imports: {path} is ignored by git, and SkyPilot copies "
                             "nothing that is; add it to the repository")  # fmt: skip


def _ignored(path: Path, root: Path) -> bool:
    """Returns whether git leaves the path out of the repository; False without git."""
    git = shutil.which("git")
    if not git:
        return False
    command = [git, "-C", str(root), "check-ignore", "--quiet", str(path)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


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
    if path := shutil.which("sky"):
        return path
    raise ValueError(f"SkyPilot is not installed; install it apart from the project: {INSTALL}")


def _names(sweep: Sweep) -> list[str]:
    """Returns a name for each job, of letters and digits joined by single hyphens and dots, as
    SkyPilot requires; no two are the same.
    """
    names = [f"{sweep.name}-{point.name}" for point in sweep.points]
    plain = [re.sub(r"[^a-zA-Z0-9]{2,}|[^a-zA-Z0-9.]", "-", name).strip("-.") for name in names]
    return [name if plain.count(name) == 1 else f"{name}-{i}" for i, name in enumerate(plain)]
