"""Tells whether a folder holds no run, a part of a given run, or all of it."""

import errno
import json
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from posenc_jax.lab.hosts.exit_status import Refused
from posenc_jax.lab.runs.records import plain
from posenc_jax.options import choices_for

RunStatus = Literal["new", "begun", "finished"]


def run_status(path: str | Path, config: Mapping) -> RunStatus:
    """Returns how far the run of this config is in a folder.

    A run without records and checkpoints counts as "new", whatever its config was.

    Raises:
      Refused: the path is a file; the folder holds something else, or a run with another config,
        whose first different field is named; or the run is not finished and the folder cannot be
        written to.
    """
    path = Path(path)
    try:
        where = _run_status(path, config)
        if where != "finished":
            _try_to_write(path)
        return where
    except OSError as error:
        raise Refused(f"workdir: {path}: {error.strerror}") from None


def _run_status(path: Path, config: Mapping) -> RunStatus:
    if path.exists() and not path.is_dir():
        raise Refused(f"workdir: {path} is a file; choose a folder")
    metrics, written = path / "metrics.jsonl", path / "config.json"
    if not metrics.exists() and not written.exists():
        return "new"
    try:
        stored = json.loads(written.read_text("utf-8"))
        stored.pop("environment")
        stored.pop("wandb", None)  # a run may be resumed with other W&B settings
    except (OSError, ValueError, KeyError):
        if metrics.exists() and not written.exists() and not metrics.stat().st_size:
            return "new"
        raise Refused(f"workdir: {path} holds something that is no run of ours") from None
    if not metrics.exists():
        raise Refused(f"workdir: {path} holds a config.json but no metrics.jsonl; choose another")
    asked = {k: v for k, v in plain("config", config).items() if k != "wandb"}
    difference = next(_differences("config", stored, asked), "")
    if difference and (metrics.stat().st_size or (path / "checkpoints").exists()):
        raise Refused(f"workdir: {path} already holds a run, with {difference}; choose another")
    if difference:
        return "new"
    return "finished" if (path / "summary.json").exists() else "begun"


def _try_to_write(path: Path) -> None:
    """Raises OSError if no file can be made in the folder, or in its nearest existing parent."""
    there = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
    try:
        tempfile.TemporaryFile(dir=there).close()
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):  # a full disk may have room later
            raise


def _differences(field: str, stored: Any, asked: Any) -> Iterator[str]:
    if isinstance(stored, Mapping) and isinstance(asked, Mapping):
        for name in {**asked, **stored}:
            if name not in asked:
                yield f"{field}.{name}, which this config lacks{choices_for(name, asked)}"
            elif name not in stored:
                yield f"no {field}.{name}"
            else:
                yield from _differences(f"{field}.{name}", stored[name], asked[name])
    elif stored != asked:
        yield f"{field} {stored!r}, not {asked!r}"
