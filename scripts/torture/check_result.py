"""The result of a check: its figures, and a control that had to fail."""

from typing import NamedTuple


class CheckResult(NamedTuple):
    """`good` of `tried` attempts succeeded. With the protection off, as `control` says, failures
    were found in `control_found` of `control_tried` attempts.

    what: the property that is checked.
    settings: how it was checked.
    figures: other measurements.
    bad: a line for each failure.
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
