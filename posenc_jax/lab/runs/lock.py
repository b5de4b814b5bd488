"""Lets one process at a time write to a run's folder."""

import fcntl
import os
import platform
import time
from pathlib import Path

from posenc_jax.lab.hosts.exit_status import Refused


class Lock:
    """A lock on a folder, held until `release` or the end of the process: the operating system
    frees it even after SIGKILL.

    Raises:
      Refused: another run holds it; names its host and process.
    """

    def __init__(self, folder: Path):
        self._file = (folder / "lock").open("a+", encoding="utf-8")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = self._holder()
            self._file.close()
            raise Refused(f"workdir: {folder} is in use by {holder}") from None
        self._file.truncate(0)
        self._file.write(f"process {os.getpid()} on {platform.node()}")
        self._file.flush()

    def release(self) -> None:
        """Frees the lock; may be called twice."""
        if not self._file.closed:
            self._file.truncate(0)
            self._file.close()

    def _holder(self) -> str:
        for _ in range(100):  # the other process writes its name right after it has the lock
            self._file.seek(0)
            if name := self._file.read():
                return name
            time.sleep(0.01)
        return "another process"
