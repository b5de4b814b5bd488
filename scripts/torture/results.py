"""The result of a check: its attempts, and a control in which the failure must occur; and its row
and note in docs/reliability.md.
"""

import datetime
import math
import platform
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import jax

from posenc_jax.lab.hosts.devices import cores
from posenc_jax.lab.hosts.files import write_text

MOST_FAILURES = 20


class Attempt(NamedTuple):
    """One attempt of a check: what went wrong, and the seconds it took if there is a limit."""

    name: str
    wrong: Sequence[str]
    seconds: float = 0.0
    limit: float = math.inf

    @property
    def failure(self) -> str:
        """A line that says what went wrong, "" if nothing did."""
        late = [f"{self.seconds:.1f} s"] if self.seconds > self.limit else []
        found = [*self.wrong, *late]
        return f"{self.name}: {', '.join(found)}" if found else ""


def slowest(attempts: Sequence[Attempt]) -> float:
    """Returns the seconds of the slowest attempt."""
    return max(attempt.seconds for attempt in attempts)


class CheckResult(NamedTuple):
    """The attempts of a check, and what its controls found.

    what: the property that is checked.
    control: the protection that is switched off in the controls.
    control_found: for each control, whether the failure was found.
    settings: how it was checked.
    figures: other measurements.
    """

    what: str
    attempts: Sequence[Attempt]
    control: str
    control_found: Sequence[bool]
    settings: str
    figures: str = ""

    @property
    def failures(self) -> list[str]:
        return [attempt.failure for attempt in self.attempts if attempt.failure]

    @property
    def good(self) -> str:
        count = len(self.attempts)
        return f"{count - len(self.failures)} of {count}"

    @property
    def found(self) -> str:
        return f"{sum(self.control_found)} of {len(self.control_found)}"

    @property
    def passed(self) -> bool:
        return not self.failures and all(self.control_found)


def write(path: Path, name: str, result: CheckResult, seconds: float) -> None:
    """Replaces a check's row in the table of a page, and its note: how, when and where it was run.

    Raises:
      RuntimeError: the page has no row or no note of this name.
    """
    said = ". ".join(part for part in (result.settings, result.figures) if part)
    failures = [" ".join(line.split()) for line in result.failures[:MOST_FAILURES]]
    wrong = "".join(f"  - went wrong: {line}\n" for line in failures)
    where = (
        f"{datetime.date.today()}, Python {platform.python_version()}, JAX {jax.__version__}, "
        f"{len(cores())} cores of {jax.devices()[0].device_kind} ({platform.machine()})"
    )
    row = f"| {name} | {result.what} | {result.good} | {result.control} | {result.found} |\n"
    note = f"- **{name}**: {said}. `python -m scripts.torture --only={name}`, {where}, "
    note += f"{seconds:.0f} s.\n{wrong}"
    text = path.read_text("utf-8")
    for old, new in {rf"\| {name} \|.*\n": row, rf"- \*\*{name}\*\*.*\n(?:  .*\n)*": note}.items():
        text, count = re.subn(f"^{old}", lambda _, new=new: new, text, flags=re.MULTILINE)
        if count != 1:
            raise RuntimeError(f"{path}: add a row '| {name} |' and a note '- **{name}**'")
    write_text(path, text)
