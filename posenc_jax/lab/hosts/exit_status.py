"""The errors that stop a run, and their exit statuses.

0   the run is finished
1   it cannot continue (a loss that is not finite, a full disk), or it ended incomplete
2   the input is wrong: a config, a folder, a checkpoint of another model
75  it was interrupted, and its work is on disk: start it again
"""

import errno
import functools
import sys
from collections.abc import Callable
from typing import Any

FULL = errno.ENOSPC, errno.EDQUOT  # a disk that may have room later


class Stop(Exception):
    """An error that ends a run with one line and the exit status `status`."""

    status = 1


class Diverged(Stop):
    """A loss or gradient that is not finite."""


class Unmeasured(Stop):
    """A run ended without some of its results."""


class NotWritten(Stop):
    """A record or checkpoint that could not be written."""


class Refused(Stop, ValueError):
    """Input that does not fit the files on disk."""

    status = 2


class Interrupted(Stop):
    """SIGTERM or SIGINT."""

    status = 75


def first_line(error: BaseException) -> str:
    """Returns the first line of an error's message, or its type if it has none."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def one_line(main: Callable[..., int | None]) -> Callable[..., int]:
    """Makes the `main` of a script print one line for a file that cannot be written or read, and
    for each `Stop`, in place of a traceback. It returns the exit status: 1 if the disk is full, 2
    for another problem of a file, else that of the `Stop`.
    """

    @functools.wraps(main)
    def run(*arguments: Any, **named: Any) -> int:
        try:
            return main(*arguments, **named) or 0
        except (OSError, Stop) as error:
            line = str(error)
            if isinstance(error, OSError):
                line = ": ".join(filter(None, [error.filename, error.strerror or line]))
            print(f"error: {line}", file=sys.stderr)
            return _status(error)

    return run


def _status(error: OSError | Stop) -> int:
    problem = error.__cause__ if isinstance(error, NotWritten) else error
    if isinstance(problem, OSError):
        return NotWritten.status if problem.errno in FULL else Refused.status
    return error.status if isinstance(error, Stop) else Stop.status
