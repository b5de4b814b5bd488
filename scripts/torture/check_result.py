"""What a check shows: a line of figures, and a control that had to fail."""

from typing import NamedTuple


class CheckResult(NamedTuple):
    """`good` of `tried`; `control` of `control_tried` failures found with the protection off.

    `settings` says how it was tried, `figures` what else was measured, `bad` what went wrong.
    """

    what: str
    good: int
    tried: int
    control: str
    control_found: int
    control_tried: int
    settings: str
    figures: str = ""
    bad: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        return self.good == self.tried and self.control_found == self.control_tried
