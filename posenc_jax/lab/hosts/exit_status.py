"""The ways a run stops before its end, each with an exit status of its own.

0   it ended, or had ended before
1   it cannot go on: a loss that is not finite, a disk that is full; or it ended incomplete
2   the input is wrong: a config, a folder, a checkpoint of another model
75  it was asked to leave, and what it did is on disk: start it again
"""


class Stop(Exception):
    """One line says why; `status` is the exit status."""

    status = 1


class Diverged(Stop):
    """A loss or gradient that is not finite."""


class Unmeasured(Stop):
    """A run that has ended without all that it was to measure."""


class NotWritten(Stop):
    """A record or checkpoint that could not be written."""


class Refused(Stop, ValueError):
    """Input that does not fit what is on disk."""

    status = 2


class Interrupted(Stop):
    """SIGTERM or SIGINT."""

    status = 75


def first_line(error: BaseException) -> str:
    """What an error says, in one line."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
