"""Handles SIGTERM and SIGINT: the run saves its work and exits with status 75 within seconds.

The first signal sets a flag, which the run checks between chunks of steps, between evaluations and
after saves. While a program compiles the run cannot check it; a thread then ends the process after
GRACE seconds or at a second signal, and the newest checkpoint on disk counts. A signal that comes
again within REPEATED seconds is the first one: GNU `timeout` sends it to its child, and to the
group of processes that the child is in. With several processes a signal to one is enough: all check
at the same moments and stop together.
"""

import multiprocessing
import os
import select
import signal
import threading
import time

from posenc_jax.lab.hosts import processes
from posenc_jax.lab.hosts.exit_status import Interrupted

GRACE, REPEATED = 8.0, 1.0  # seconds
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
    began, again = time.monotonic(), False
    while not again and (left := began + GRACE - time.monotonic()) > 0:
        if select.select([reading], [], [], left)[0]:
            is_stop = os.read(reading, 1)[0] in STOP_SIGNALS
            again = is_stop and time.monotonic() - began > REPEATED
    _say("leaving without waiting; start it again to go on from the newest checkpoint")
    os._exit(Interrupted.status)


def _say(line: str) -> None:
    os.write(2, f"{line}\n".encode())
