"""Small files, written whole, and names that are safe in a path."""

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from posenc_jax.lab.hosts.exit_status import NotWritten, Refused


def write_json(path: Path, content: Mapping | Sequence) -> None:
    """The content as JSON; see `write_text`."""
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """A reader sees the old file or the new one, never half of one. NotWritten: says why."""
    part = path.with_name(path.name + ".part")
    try:
        with part.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        raise NotWritten(f"{path}: {error.strerror}") from error


def folder_name(name: str) -> str:
    """The name, if it can only be a folder inside another.

    Raises:
      Refused: it could lead elsewhere, or is no portable name.
    """
    if not re.fullmatch(r"[A-Za-z0-9_+][A-Za-z0-9_+.-]{0,199}", name):
        raise Refused(f"name: {name!r} cannot be a folder; letters, digits and _ + . - only")
    return name
