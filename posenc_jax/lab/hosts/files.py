"""Writes a small file so that no reader sees half of it, and checks names for a path."""

import json
import os
import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from posenc_jax.lab.hosts.exit_status import FULL, NotWritten, Refused


def write_json(path: Path, content: Mapping | Sequence) -> None:
    """Writes the content as JSON; see `write_text`."""
    write_text(path, json_text(content))


def json_text(content: Mapping | Sequence) -> str:
    """Returns the text of a JSON file."""
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def read_object(path: Path) -> dict[str, Any]:
    """Reads a JSON object.

    Raises:
      OSError: there is no such file, or it cannot be read.
      ValueError: it holds something else; one line that names the file.
    """
    try:
        content = json.loads(path.read_bytes().decode("utf-8"))
    except (ValueError, RecursionError):
        raise ValueError(f"{path}: it is not JSON") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path}: it holds a {type(content).__name__}, not an object")
    return content


def write_text(path: Path, text: str) -> None:
    """Writes a text in UTF-8; see `write_bytes`."""
    write_bytes(path, [text.encode("utf-8")])


def write_bytes(path: Path, blocks: Iterable[bytes]) -> None:
    """Replaces a file at once: a reader sees the old content or the new one. The new content, the
    blocks one after another, is on disk before this returns.

    Raises:
      NotWritten: the file system refuses; the old file stays.
    """
    part = path.with_name(path.name + ".part")
    try:
        with part.open("wb") as file:
            for block in blocks:
                file.write(block)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        raise NotWritten(f"{path}: {error.strerror}") from error


def check_writable(folder: Path) -> None:
    """Raises Refused if no file can be made in a folder, or in its nearest existing parent; a full
    disk is not refused, since it may have room later.
    """
    there = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
    try:
        tempfile.TemporaryFile(dir=there).close()
    except OSError as error:
        if error.errno not in FULL:
            raise Refused(f"workdir: {folder}: {error.strerror}") from None


def expanded(path: str) -> Path:
    """Returns the path with `~` and `~user` replaced by a home folder.

    Raises:
      Refused: there is no such user, or no file system has such a path.
    """
    try:
        full_path = Path(path).expanduser()
        os.fsencode(full_path)
    except RuntimeError:
        raise Refused(f"there is no home folder of {path.partition('/')[0]}") from None
    except ValueError:
        raise Refused(f"{path!r} is no path") from None
    if "\0" in path:
        raise Refused(f"{path!r} is no path")
    return full_path


def looked_in(path: str | Path) -> str:
    """ " in FOLDER" for a relative path, whose folder is where Python runs; "" for an absolute one.

    It ends a line that says that there is nothing at the path.
    """
    is_relative = bool(str(path)) and not Path(path).expanduser().is_absolute()
    return f" in {Path.cwd()}" if is_relative else ""


def as_folder_name(text: str) -> str:
    """Returns the text with "-" in place of what `folder_name` refuses; "" if nothing is left."""
    return re.sub(r"[^A-Za-z0-9.+_-]+", "-", text).strip("-.+")


def folder_name(name: str) -> str:
    """Returns the name if it is a portable name of one folder.

    Raises:
      Refused: the name has other characters than letters, digits and _ + . -
    """
    if not re.fullmatch(r"[A-Za-z0-9_+][A-Za-z0-9_+.-]{0,199}", name):
        raise Refused(f"name: {name!r} cannot be a folder; letters, digits and _ + . - only")
    return name
