"""The machine and the program that a run's numbers come from."""

import datetime
import importlib.metadata
import platform
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import jax

from posenc_jax.lab.hosts.devices import cores


def environment() -> dict:
    """What the numbers depend on besides the config; no variable of the environment is read."""
    device = jax.devices()[0]
    return {
        "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": _command(),
        "commit": _commit(),
        "python": platform.python_version(),
        **{name: _version(name) for name in ("jax", "jaxlib", "flax", "optax", "numpy")},
        "platform": platform.platform(),
        "backend": device.platform,
        "device": device.device_kind,
        "devices": jax.device_count(),
        "cpus": len(cores()),
        "random": str(jax.random.key_impl(jax.random.key(0))),
    }


def changes(before: Mapping, now: Mapping) -> str:
    """What bits depend on and is not as it was: "jax 0.10.2 -> 0.11.0, devices 2 -> 1"."""
    aside = ("started", "command")
    changed = [name for name in now if name not in aside and now[name] != before.get(name)]
    return ", ".join(f"{name} {before.get(name)} -> {now[name]}" for name in changed)


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _command() -> str:
    """The command line with the script as seen from the working directory."""
    script, *arguments = sys.argv or [""]
    absolute = Path(script).resolve()
    near = absolute.is_relative_to(Path.cwd())
    shown = absolute.relative_to(Path.cwd()) if near else Path(absolute.name)
    return shlex.join(["python", str(shown), *arguments])


def _commit() -> str | None:
    """The commit of this very file, with "-dirty" after it where tracked files have changed."""

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", str(Path(__file__).parent), *arguments],
            capture_output=True, text=True, check=True, timeout=10,
        ).stdout.strip()  # fmt: skip

    try:
        # An installed copy may lie inside a repository that is not ours.
        git("ls-files", "--error-unmatch", Path(__file__).name)
        return git("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
    except (OSError, subprocess.SubprocessError):
        return None
