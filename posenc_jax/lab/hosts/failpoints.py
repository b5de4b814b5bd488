"""Named points in the program at which tests kill or interrupt the process.

POSENC_JAX_FAILPOINT=NAME[:COUNT][+SECONDS][@SIGNAL] sends this process SIGNAL (default KILL) when
NAME is reached for the COUNTth time (default first), or SECONDS after that.
"""

import os
import re
import signal
import threading

_SPEC = re.compile(r"(?P<name>[a-z ]+)(:(?P<count>\d+))?(\+(?P<after>[\d.]+))?(@(?P<signal>\w+))?")
_reached = 0


def reach(name: str) -> None:
    """Marks a point; does nothing unless POSENC_JAX_FAILPOINT names it."""
    global _reached
    text = os.environ.get("POSENC_JAX_FAILPOINT")
    if not text:
        return
    spec = _SPEC.fullmatch(text)
    if spec is None:
        raise ValueError(f"POSENC_JAX_FAILPOINT: {text!r} is not NAME[:COUNT][+SECONDS][@SIGNAL]")
    if spec["name"] != name:
        return
    _reached += 1
    if _reached == int(spec["count"] or 1):
        send = (os.getpid(), signal.Signals[f"SIG{spec['signal'] or 'KILL'}"])
        if spec["after"]:
            threading.Timer(float(spec["after"]), os.kill, send).start()
        else:
            os.kill(*send)
