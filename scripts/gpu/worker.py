"""A process of scripts/bench_gpu.py: prepares what its job names, and measures it on demand.

It prints a line of JSON when it is ready, {"failed": {case: why}}, and for each line on standard
input another, {case: number}. All processes are ready before one measures: compiling takes the
processor, and XLA times kernels on the GPU to choose among them. What is not begun after the job's
`seconds` is not prepared.
"""

import importlib
import json
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[2]))  # the package need not be installed

LEAST = 0.03  # seconds of calls behind each number
LATE = "not begun in time"


class Prepared(NamedTuple):
    """Cases that run, each a function that returns its number; and why the others do not."""

    cases: dict[str, Callable[[], Any]]
    failed: dict[str, str]


def prepare(job: dict[str, Any], makers: dict[str, Callable[[], Callable[[], Any]]]) -> Prepared:
    """Makes each case, which compiles it and runs it once."""
    cases, failed, until = {}, {}, time.monotonic() + job["seconds"]
    for name, make in makers.items():
        if time.monotonic() > until:
            failed[name] = LATE
            continue
        try:
            cases[name] = make()
        except Exception as error:  # of a compiler or a library: whatever it is, it is a result
            traceback.print_exc()
            failed[name] = f"{type(error).__name__}: {str(error).strip().splitlines()[0][:160]}"
    return Prepared(cases, failed)


def milliseconds(start: Callable[[], Any], wait: Callable[[Any], Any]) -> float:
    """The time of a call. Calls are queued one behind another, so the GPU does not wait for them.

    start: begins a call, and returns what `wait` waits for.
    """
    wait(start())
    began = time.perf_counter()
    wait(start())
    calls = max(1, int(LEAST / max(time.perf_counter() - began, 1e-6)))
    began = time.perf_counter()
    for _ in range(calls - 1):
        start()
    wait(start())
    return (time.perf_counter() - began) / calls * 1e3


def main() -> None:
    job = json.loads(sys.argv[1])
    out, sys.stdout = sys.stdout, sys.stderr  # libraries may print
    prepared = importlib.import_module(f"scripts.gpu.{job['part']}").prepared(job)
    print(json.dumps({"failed": prepared.failed}), file=out, flush=True)
    for _ in sys.stdin:
        measured = {name: run() for name, run in prepared.cases.items()}
        print(json.dumps(measured), file=out, flush=True)


if __name__ == "__main__":
    main()
