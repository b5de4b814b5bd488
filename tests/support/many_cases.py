"""Commands that run many cases: which of them, the result of each, and counts of the results."""

import argparse
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from posenc_jax import CATALOG


def arguments(
    description: str | None, kinds: dict[str, tuple[str, ...]], **flags: str
) -> argparse.Namespace:
    """The command line: names of methods, a choice of values of each kind, and how many cases.

    `flags` are options without a value, each with its help.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="methods; without any, all")
    for kind, values in kinds.items():
        parser.add_argument(f"--{kind}", nargs="+", choices=values, default=values)
    flags = {"some": "only the few cases that the tests run", **flags}
    for flag, text in flags.items():
        parser.add_argument(f"--{flag}", action="store_true", help=text)
    parser.add_argument("--sample", type=int, metavar="N", help="N cases, drawn with a fixed seed")
    parsed = parser.parse_args()
    unknown = set(parsed.names) - set(CATALOG)
    if unknown:
        parser.error(f"no method {sorted(unknown)[0]!r}; methods: {', '.join(CATALOG)}")
    parsed.names = parsed.names or list(CATALOG)
    return parsed


def run_cases(
    cases: Sequence[Any], difference: Callable[..., float], relative: float, sample: int | None
) -> None:
    """Prints a line for each case that is refused, fails, or is off by more than `relative`.

    Then how many passed, were refused by an error of the library, and failed. Counts go to stderr
    every minute, and a sample is in random order, so that a part of it is a sample as well.
    """
    if sample is not None:
        cases = random.Random(0).sample(list(cases), min(sample, len(cases)))
    counts: Counter[str] = Counter(passed=0, refused=0, failed=0)
    printed = time.monotonic()

    for case in cases:
        try:
            off = difference(*case)
            result, reason = ("passed", "") if off < relative else ("failed", f"off by {off:.2g}")
        except Exception as error:
            *_, (frame, _) = traceback.walk_tb(error.__traceback__)
            ours = frame.f_globals["__name__"].startswith("posenc_jax.")
            result = "refused" if ours and isinstance(error, ValueError) else "failed"
            reason = f"{type(error).__name__}: {error!s}"
        counts[result] += 1
        if reason:
            print(result, *case, (reason.splitlines() or [""])[0][:200], flush=True)
        if time.monotonic() - printed > 60:
            print(summary_line(len(cases), **counts), file=sys.stderr, flush=True)
            printed = time.monotonic()
    print(summary_line(len(cases), **counts), flush=True)


def summary_line(cases: int, passed: int, refused: int = 0, failed: int = 0) -> str:
    run = passed + refused + failed
    return f"{run} of {cases} cases: {passed} passed, {refused} refused, {failed} failed"
