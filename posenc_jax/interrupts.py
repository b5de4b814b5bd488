"""SIGTERM and SIGINT: leave in seconds, with all that was done on disk, and say "try again".

The first signal raises a flag that is looked at between chunks of steps, between evaluations and
after saves. A program that is compiling cannot look: a thread waits GRACE seconds, or for a second
signal, and then ends the process, for which the newest checkpoint on disk is what counts. SIGTERM
under `jax.distributed` is JAX's: it makes all processes agree on a moment, and waits for it.
"""

import multiprocessing
import os
import select
import signal
import threading

import jax
from jax.experimental import multihost_utils

from posenc_jax.stops import Interrupted

GRACE = 8.0  # seconds
ASKS = (signal.SIGTERM, signal.SIGINT)

_asked = threading.Event()
_looks = 0  # under jax.distributed: how often all processes have looked


def install() -> None:
    """Takes SIGTERM and SIGINT over, from the main thread; after `jax.distributed` has started."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    # Handlers in Python wait for the main thread; what writes here is the one in C.
    signal.set_wakeup_fd(writing)
    for number in ASKS[jax.process_count() > 1 :]:
        signal.signal(number, lambda number, frame: None)
    threading.Thread(target=_watch, args=(reading,), daemon=True, name="interrupts").start()


def follow_parent() -> None:
    """In a process of `multiprocessing`: leaves signals to its parent, and ends when that does.

    However the parent ends, SIGKILL too, its end of a pipe between them is closed.
    """
    for number in ASKS:
        signal.signal(number, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None, "only for a process that another started"

    def follow():
        parent.join()
        os._exit(Interrupted.status)

    threading.Thread(target=follow, daemon=True, name="parent").start()


def asked() -> bool:
    """Whether the process was asked to leave; the same answer in all processes."""
    global _looks
    if jax.process_count() == 1:
        return _asked.is_set()
    _looks += 1
    return multihost_utils.reached_preemption_sync_point(_looks)


def leave_if_asked() -> None:
    """Raises Interrupted where the process was asked to leave; for moments with all on disk."""
    if asked():
        raise Interrupted("interrupted; start it again to go on from here")


def leave_within(seconds: float, status: int) -> None:
    """Ends the process with this status, should it still be there after so many seconds."""
    timer = threading.Timer(seconds, os._exit, (status,))
    timer.daemon = True
    timer.start()


def _watch(reading: int) -> None:
    while (number := os.read(reading, 1)[0]) not in ASKS:
        pass
    _say(f"{signal.Signals(number).name}: leaving within {GRACE:.0f} s, at once if it comes again")
    _asked.set()
    select.select([reading], [], [], GRACE)
    _say("leaving without waiting; start it again to go on from the newest checkpoint")
    os._exit(Interrupted.status)


def _say(line: str) -> None:
    os.write(2, f"{line}\n".encode())
