"""SIGTERM and SIGINT: leave in seconds, with all that was done on disk, and say "try again".

The first signal raises a flag that is looked at between chunks of steps, between evaluations and
after saves. A program that is compiling cannot look: a thread waits GRACE seconds, or for a second
signal, and then ends the process, for which the newest checkpoint on disk is what counts. Of
several processes one that is asked is enough: all look at the same moments, and leave together.
"""

import multiprocessing
import os
import select
import signal
import threading

from posenc_jax.lab.hosts import processes
from posenc_jax.lab.hosts.exit_status import Interrupted

GRACE = 8.0  # seconds
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)

_asked = threading.Event()


def install() -> None:
    """Takes SIGTERM and SIGINT over, from the main thread."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    # Handlers in Python wait for the main thread; what writes here is the one in C.
    signal.set_wakeup_fd(writing)
    for number in STOP_SIGNALS:
        signal.signal(number, lambda number, frame: None)
    threading.Thread(target=_watch, args=(reading,), daemon=True, name="interrupts").start()


def end_with_parent() -> None:
    """In a process of `multiprocessing`: leaves signals to its parent, and ends when that does.

    However the parent ends, SIGKILL too, its end of a pipe between them is closed.
    """
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None, "only for a process that another started"

    def follow():
        parent.join()
        os._exit(Interrupted.status)

    threading.Thread(target=follow, daemon=True, name="parent").start()


def stop_requested() -> bool:
    """Whether any process was asked to leave; of several, all must call it in step."""
    return processes.any_process(_asked.is_set())


def stop_if_requested() -> None:
    """Raises Interrupted where the process was asked to leave; for moments with all on disk."""
    if stop_requested():
        raise Interrupted("interrupted; start it again to go on from here")


def exit_within(seconds: float, status: int) -> None:
    """Ends the process with this status, should it still be there after so many seconds."""
    timer = threading.Timer(seconds, os._exit, (status,))
    timer.daemon = True
    timer.start()


def _watch(reading: int) -> None:
    while (number := os.read(reading, 1)[0]) not in STOP_SIGNALS:
        pass
    _say(f"{signal.Signals(number).name}: leaving within {GRACE:.0f} s, at once if it comes again")
    _asked.set()
    select.select([reading], [], [], GRACE)
    _say("leaving without waiting; start it again to go on from the newest checkpoint")
    os._exit(Interrupted.status)


def _say(line: str) -> None:
    os.write(2, f"{line}\n".encode())
