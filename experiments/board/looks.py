"""Which steps' weights a training of the board keeps; apart from `training`, which loads optax."""

from typing import Protocol


class Looks(Protocol):
    """`looks` weights, evenly apart in the share `late` of `steps`, at their end."""

    @property
    def steps(self) -> int: ...
    @property
    def looks(self) -> int: ...
    @property
    def late(self) -> float: ...


def look_steps(train: Looks) -> list[int]:
    """The steps whose weights are kept, the last one at the end of the budget."""
    apart = train.late * train.steps / train.looks
    return [round(train.steps - apart * n) for n in reversed(range(train.looks))]
