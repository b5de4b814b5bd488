"""Ends a program that is interrupted before it handles signals itself: one line, and status 75.

JAX takes a second to load, in which Ctrl-C would end in Python's traceback. So this module imports
nothing of ours, and is called before what does.
"""

import os
import signal


def end_if_interrupted() -> None:
    """Installs handlers of SIGTERM and SIGINT, which later ones replace."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _end)


def _end(number: int, frame: object) -> None:
    os.write(2, f"{signal.Signals(number).name}: interrupted; start it again\n".encode())
    os._exit(75)
