"""The result of a check: its attempts, and a control in which the failure must occur."""

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Attempt:
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


@dataclass(frozen=True)
class CheckResult:
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
