"""Describes the machine and the program versions of a run."""

import datetime
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

import jax

from posenc_jax.lab.config import imports
from posenc_jax.lab.hosts.devices import cores


def environment() -> dict:
    """Returns the facts besides the config on which a run's numbers depend. Reads no environment
    variable.
    """
    device = jax.devices()[0]
    return {
        "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": _command(),
        "commit": _commit(),
        "python": platform.python_version(),
        **{name: version(name) for name in ("jax", "jaxlib", "flax", "optax", "numpy")},
        "platform": platform.platform(),
        "processor": processor(),
        "backend": device.platform,
        "device": device.device_kind,
        "devices": jax.device_count(),
        "cpus": len(cores()),
        "matmul_precision": jax.config.jax_default_matmul_precision,  # pyright: ignore
        "random": str(jax.random.key_impl(jax.random.key(0))),
    }


def processor() -> str:
    """Returns the name of the processor, such as "AMD EPYC 7B13"."""
    info = Path("/proc/cpuinfo")
    match = re.search(r"model name\s*: (.+)", info.read_text()) if info.exists() else None
    return match[1] if match else platform.processor() or platform.machine()


def changes(before: Mapping, now: Mapping) -> str:
    """Returns the differences that may change results: "jax 0.10.2 -> 0.11.0, devices 2 -> 1"."""
    ignored = "started", "command", "imports"
    shared = [name for name in now if name in before and name not in ignored]
    changed = [name for name in shared if now[name] != before[name]]
    lines = [f"{name} {before[name]} -> {now[name]}" for name in changed]
    if modules := imports.changed(before.get("imports", {}), now.get("imports", {})):
        lines.append(f"another {modules}")
    return ", ".join(lines)


def _command() -> str:
    """Returns the command line, with the script's path relative to the working directory."""
    script, *arguments = sys.argv or [""]
    absolute, here = Path(script).resolve(), Path.cwd()
    shown = absolute.relative_to(here) if absolute.is_relative_to(here) else absolute.name
    return shlex.join(["python", str(shown), *arguments])


def _commit() -> str | None:
    """Returns the git commit of this file, with "-dirty" if tracked files have changed; or None."""

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", str(Path(__file__).parent), *arguments],
            capture_output=True, text=True, check=True, timeout=10,
        ).stdout.strip()  # fmt: skip

    try:
        # Fails for an installed copy inside another project's repository.
        git("ls-files", "--error-unmatch", Path(__file__).name)
        return git("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
    except (OSError, subprocess.SubprocessError):
        return None
