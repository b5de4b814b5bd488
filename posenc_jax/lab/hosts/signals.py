"""Handles SIGTERM and SIGINT: the run saves its work and exits with status 75 within seconds.

The first signal sets a flag, which the run checks between chunks of steps, between evaluations and
after saves. While a program compiles the run cannot check it; a thread then ends the process after
GRACE seconds or at a second signal, and the newest checkpoint on disk counts. With several
processes a signal to one is enough: all check at the same moments and stop together.
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

_stop_event = threading.Event()


def install() -> None:
    """Installs the handlers; call it from the main thread."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    # A handler in Python waits for the main thread; the one in C writes to this pipe at once.
    signal.set_wakeup_fd(writing)
    for number in STOP_SIGNALS:
        signal.signal(number, lambda number, frame: None)
    threading.Thread(target=_watch, args=(reading,), daemon=True, name="interrupts").start()


def end_with_parent() -> None:
    """Makes a process of `multiprocessing` ignore signals and end when its parent ends.

    This works even if the parent is killed: its end of a pipe is then closed.
    """
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None, "only for a process that multiprocessing started"

    def follow():
        parent.join()
        os._exit(Interrupted.status)

    threading.Thread(target=follow, daemon=True, name="parent").start()


def stop_requested() -> bool:
    """Returns whether any process got a signal; all processes must call it in step."""
    return processes.any_process(_stop_event.is_set())


def stop_if_requested() -> None:
    """Raises Interrupted if a stop was requested; call it when all work is on disk."""
    if stop_requested():
        raise Interrupted("interrupted; start it again to go on from here")


def exit_within(seconds: float, status: int) -> None:
    """Ends the process with this status after so many seconds, if it still runs then."""
    timer = threading.Timer(seconds, os._exit, (status,))
    timer.daemon = True
    timer.start()


def _watch(reading: int) -> None:
    while (number := os.read(reading, 1)[0]) not in STOP_SIGNALS:
        pass
    _say(f"{signal.Signals(number).name}: leaving within {GRACE:.0f} s, at once if it comes again")
    _stop_event.set()
    select.select([reading], [], [], GRACE)
    _say("leaving without waiting; start it again to go on from the newest checkpoint")
    os._exit(Interrupted.status)


def _say(line: str) -> None:
    os.write(2, f"{line}\n".encode())
