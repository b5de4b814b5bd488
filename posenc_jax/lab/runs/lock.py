"""Lets one process at a time write to a run's folder."""

import contextlib
import fcntl
import os
import platform
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from posenc_jax.lab.hosts.exit_status import Refused


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Holds a lock on the folder. The operating system frees it when the process ends, even by
    SIGKILL.

    Raises:
      Refused: another run holds it; names its host and process.
    """
    with (folder / "lock").open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Refused(f"workdir: {folder} is in use by {_holder(file)}") from None
        file.truncate(0)
        file.write(f"process {os.getpid()} on {platform.node()}")
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)


def _holder(file: TextIO) -> str:
    for _ in range(100):  # the other process writes its name right after it has the lock
        file.seek(0)
        if name := file.read():
            return name
        time.sleep(0.01)
    return "another process"
