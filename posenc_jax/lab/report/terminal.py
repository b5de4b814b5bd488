"""Prints sections and tables in the terminal."""

from collections.abc import Sequence

from rich import box
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from posenc_jax.lab.report.sections import Cell, Grid, Picture, Section


def show(section: Section, console: Console) -> None:
    """Prints the texts and tables of a section that is not folded."""
    if section.folded or all(isinstance(part, Picture) for part in section.parts):
        return
    console.print(Text(f"\n{section.title}", "bold"))
    for part in section.parts:
        if isinstance(part, str):
            console.print(Text(part))
        elif isinstance(part, Grid):
            console.print(table(part, console.width))


def table(grid: Grid, width: int) -> Group:
    """Returns a table with its caption and notes, for rich to print.

    If its numbers do not fit in a line, it is several tables, one below the other, each with the
    names of the rows.

    width: of a line.
    """
    notes = grid.notes()
    rows = [[cell if isinstance(cell, Cell) else Cell(cell) for cell in row] for row in grid.rows]
    cells = [
        [Text(_text(cell, notes), "bold" if cell.bold else "") for cell in row] for row in rows
    ]
    below = [[Text(text, "dim") for text in texts] for texts in grid.below]
    heads = [Text(column) for column in grid.columns]
    shown = []
    for columns in _fitting([heads, *cells, *below], width, grid.words):
        part = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), pad_edge=False)
        for i in columns:
            justify = "left" if i == 0 or grid.words else "right"
            # Names of numbers are folded, and sentences; numbers and names of sentences are not.
            part.add_column(heads[i], justify=justify, no_wrap=(i == 0) == grid.words)
        for texts in cells:
            part.add_row(*(texts[i] for i in columns))
        part.add_section()
        for texts in below:
            part.add_row(*(texts[i] for i in columns))
        shown.append(part)

    lines = [grid.caption]
    if grid.below:
        names = ", ".join(row[0] for row in grid.below)
        lines.append(f"{names}: {'baselines' if len(grid.below) > 1 else 'a baseline'}")
    absent = {cell.text for row in rows for cell in row if cell.muted}
    if absent:
        lines.append(f"—: {', '.join(absent)}")
    lines += [f"[{mark}] {note}" for note, mark in notes.items()]
    return Group(*shown, *(Text(line, "dim") for line in lines))


def _fitting(rows: Sequence[Sequence[Text]], width: int, words: bool) -> list[list[int]]:
    """Returns the columns of each table that fits in a line: always the first one, which may take
    a third of the line and is folded there.

    words: whether the columns can be folded, so that they are one table.
    """
    columns = range(len(rows[0]))
    widths = [max(len(line) for row in rows for line in row[i].plain.split("\n")) for i in columns]
    if words or len(columns) < 2:
        return [[*columns]]
    name = min(widths[0], width // 3)
    parts, taken = [[0]], name
    for i in columns[1:]:
        if taken + 1 + widths[i] > width and len(parts[-1]) > 1:
            parts.append([0])
            taken = name
        parts[-1].append(i)
        taken += 1 + widths[i]
    return parts


def _text(cell: Cell, notes: dict[str, int]) -> str:
    """Returns a cell's text, with the half of its interval on a line below to save width."""
    text = "—" if cell.muted else cell.text
    half = "\n" + cell.half.replace("±0.", "±.") if cell.half else ""
    return text + half + (f" [{notes[cell.note]}]" if cell.note else "")
