"""The errors that stop a run, and their exit statuses.

0   the run is finished
1   it cannot continue (a loss that is not finite, a full disk), or it ended incomplete
2   the input is wrong: a config, a folder, a checkpoint of another model
75  it was interrupted, and its work is on disk: start it again
"""


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
