"""The parts of a report: texts, tables and figures under titles.

`terminal` prints them, `webpage` writes them as HTML.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Cell(NamedTuple):
    """A cell of a table.

    half: half the width of an interval, "±0.025", in small type.
    note: a remark that the table numbers and has below it.
    """

    text: str
    half: str = ""
    note: str = ""
    bold: bool = False
    muted: bool = False


class Grid(NamedTuple):
    """A table; the first cell of a row is its name.

    columns: their heads; a line break divides a head into two lines.
    caption: how to read the table.
    words: whether the cells are sentences, which are wrapped and left-aligned.
    below: rows in grey under the others.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str | Cell]]
    caption: str
    words: bool = False
    below: Sequence[Sequence[str]] = ()

    def notes(self) -> dict[str, int]:
        """Returns the notes of the cells, numbered in order of appearance."""
        notes = (cell.note for row in self.rows for cell in row if isinstance(cell, Cell))
        return {note: i for i, note in enumerate(dict.fromkeys(filter(None, notes)), 1)}


class Picture(NamedTuple):
    """A figure and the name of its files; `draw` is called with the style of all figures."""

    name: str
    draw: Callable[[], Figure]
    caption: str


class Section(NamedTuple):
    """Parts under a title; a folded section opens on a click, and the terminal omits it."""

    title: str
    parts: Sequence[str | Grid | Picture | Section]
    folded: bool = False
