"""Checks the kernel of every method against dense attention, on the TPU, GPU or CPU at hand.

    python scripts/check_kernels.py                       # all methods; starts none after 4 minutes
    python scripts/check_kernels.py --only='rope,*bias'   # some of them
    python scripts/check_kernels.py --kernel=mosaic       # one kernel for all of them

Each row of the table is a method: |found - exact| / |exact| of the output and of the worst
gradient, by the kernel and by dense attention in bfloat16, where exact is dense attention in
float32; then milliseconds of a forward and backward pass of both. A kernel's error may be twice
that of dense attention (on an H100 it is 1.5 times at most); a larger one is marked, and the status
is 1. So it is if a method fails or is not begun within --seconds: go on with --only, or begin again
with the same --keep=FILE, which holds the errors of methods that were right: they are not checked
again.

On a TPU the rows "NAME, auto" are JAX's splash attention, which `form="auto"` takes where nothing
is added to the logits. On a CPU the kernels are interpreted, for few tokens: times say nothing.
"""

import fnmatch
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))  # the package need not be installed

import jax

from posenc_jax import Dims, encodings
from posenc_jax.backends.target import KERNELS, compile_for
from posenc_jax.lab.hosts.files import write_json
from posenc_jax.lab.hosts.flags import Flags
from scripts.accelerators.programs import encoding_of, takes_form
from scripts.gpu import methods
from scripts.gpu.worker import milliseconds

TIMES_DENSE = 2.0  # how large a kernel's error may be
TOKENS = {"cpu": 40, "gpu": 1024}
TOKENS_ELSEWHERE = 2048  # more logits than `form="auto"` leaves to dense attention
SHAPE = {"cpu": Dims(16, 2, 8, 1)}
SHAPE_ELSEWHERE = Dims(768, 12, 64, 1)
KERNEL_NAMES = {name for names in KERNELS.values() for name in names}
THREADS = 16  # that compile
COMPUTING = threading.Lock()  # one program at a time has its memory


class Row(NamedTuple):
    """The errors of a case, {"output": ..., "gradient": ...} by form, or why it has none.

    start: draws inputs for a form, and returns a call; see `methods.both_ways`.
    """

    name: str
    form: str
    errors: dict[str, dict[str, float]]
    failed: str = ""
    start: Callable[[str], Callable[[], Any]] | None = None

    @property
    def wrong(self) -> bool:
        """Whether an error is above its bound, or is missing."""
        if self.failed:
            return True
        kernel, dense = self.errors[self.form], self.errors["dense"]
        return not all(kernel[part] <= TIMES_DENSE * dense[part] for part in kernel)


def cases(only: str, backend: str, kernel: str = "") -> list[tuple[str, str]]:
    """The (method, form) pairs to check. SystemExit: a pattern matches no method."""
    names: dict[str, None] = {}
    for pattern in only.split(","):
        if not (matching := fnmatch.filter(sorted(encodings.CATALOG), pattern)):
            raise SystemExit(f"--only: {pattern!r} matches no method of the catalogue")
        names |= dict.fromkeys(matching)
    with compile_for(backend, jax.devices()[:1], kernel=kernel):
        cases = [(name, "kernel") for name in names if takes_form(name, "kernel")]
    if backend == "tpu":
        plain = lambda encoding: encoding.bias is None and encoding.walk is None
        cases += [(name, "auto") for name, _ in cases if plain(encoding_of(name))]
    return cases


def checked(case: tuple[str, str], backend: str, until: float, kernel: str = "") -> Row:
    """The errors of one case; compiles its programs."""
    name, form = case
    shown = name if form == "kernel" else f"{name}, {form}"
    if time.monotonic() > until:
        return Row(shown, form, {}, "not begun in time")
    here = jax.default_backend()
    tokens, dims = TOKENS.get(here, TOKENS_ELSEWHERE), SHAPE.get(here, SHAPE_ELSEWHERE)
    try:
        start = methods.both_ways(name, dims, tokens, backend, kernel)
        calls = {which: start(which) for which in ("reference", form, "dense")}
        with COMPUTING:
            results = {which: jax.device_get(call()) for which, call in calls.items()}
        exact = results.pop("reference")
        errors = {which: methods.distances(arrays, exact) for which, arrays in results.items()}
    except Exception as error:  # of a compiler: whatever it is, it is a result
        line = str(error).strip().partition("\n")[0]
        return Row(shown, form, {}, f"{type(error).__name__}: {line[:160]}")
    return Row(shown, form, errors, start=start)


def timed(row: Row) -> list[str]:
    """Milliseconds of the kernel and of dense attention."""
    if row.start is None:
        return []
    calls = (row.start(form) for form in (row.form, "dense"))
    return [f"{milliseconds(call, jax.block_until_ready):.3g}" for call in calls]


def cells(row: Row, times: Sequence[str]) -> list[str]:
    """A row of the table."""
    mark = "WRONG" if row.wrong else ""
    if row.failed:
        return [row.name, row.failed, "", "", "", *times, mark]
    both = [
        row.errors[form][part] for part in ("output", "gradient") for form in (row.form, "dense")
    ]
    return [row.name, *(f"{error:.2e}" for error in both), *times, mark]


HEAD = ["method", "output: kernel", "dense", "gradient: kernel", "dense", "ms: kernel", "dense", ""]


def key(case: tuple[str, str]) -> str:
    """The case's name in a file."""
    return ", ".join(case)


def kept(path: Path | None) -> dict[str, Any]:
    """The rows of methods that were right when they were checked before, by `key`."""
    if path is None or not path.exists():
        return {}
    return json.loads(path.read_text("utf-8"))


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0 if every kernel is right."""
    parser = Flags(__doc__)
    parser.add_argument("--only", default="*", metavar="PATTERN,...", help="methods; default: all")
    parser.add_argument("--seconds", type=float, default=240, help="no method begins later")
    parser.add_argument("--kernel", default="", choices=["", *sorted(KERNEL_NAMES)],
                        help="asked alone; default: those that a user has")  # fmt: skip
    parser.add_argument(
        "--keep", type=Flags.path, metavar="FILE", help="right methods, for a new start"
    )
    parser.add_argument("--no-times", action="store_true", help="errors alone")
    flags = parser.parse_args(arguments)
    began, backend = time.monotonic(), jax.default_backend()
    if flags.kernel and flags.kernel not in KERNELS[backend]:  # it is interpreted
        backend = next(name for name in KERNELS if flags.kernel in KERNELS[name])
    known = kept(flags.keep)
    pairs = [case for case in cases(flags.only, backend, flags.kernel) if key(case) not in known]
    until = began + flags.seconds
    with ThreadPoolExecutor(min(THREADS, os.cpu_count() or 1)) as threads:
        check = partial(checked, backend=backend, until=until, kernel=flags.kernel)
        fresh = []
        for case, row in zip(pairs, threads.map(check, pairs), strict=True):
            fresh.append(row)
            if flags.keep and not row.wrong:  # each at once: a machine may be taken away
                kept_now = kept(flags.keep) | {key(case): [row.name, row.form, row.errors]}
                write_json(flags.keep, kept_now)
    rows = [*(Row(*row) for row in known.values()), *fresh]
    table = [HEAD, *(cells(row, [] if flags.no_times else timed(row)) for row in rows)]
    widths = [max(len(row[n]) for row in table if len(row) > n) for n in range(1, len(HEAD))]
    widths = [max(len(row[0]) for row in table), *(min(width, 16) for width in widths)]
    for row in table:
        print(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip()
        )
    wrong = [row.name for row in rows if row.wrong]
    device = jax.devices()[0].device_kind
    print(f"{len(rows) - len(wrong)} of {len(rows)} kernels are right on {device}, JAX "
          f"{jax.__version__}, {time.monotonic() - began:.0f} s")  # fmt: skip
    if wrong:
        print(f"wrong or not checked: {', '.join(wrong)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
