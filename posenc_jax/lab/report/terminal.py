"""Prints sections and tables in the terminal."""

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

    Args:
      width: columns of the terminal. If "mean ±half" does not fit, the half is on a line below.
    """
    notes = grid.notes()
    rows = [[cell if isinstance(cell, Cell) else Cell(cell) for cell in row] for row in grid.rows]
    one_line = _width(grid, rows, notes) <= width

    shown = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), pad_edge=False)
    for i, column in enumerate(grid.columns):
        number = i > 0 and not grid.words
        shown.add_column(Text(column), justify="right" if number else "left", no_wrap=i == 0)
    for row in rows:
        texts = (Text(_text(cell, notes, one_line), "bold" if cell.bold else "") for cell in row)
        shown.add_row(*texts)
    shown.add_section()
    for texts in grid.below:
        shown.add_row(*map(Text, texts), style="dim")

    lines = [grid.caption]
    if grid.below:
        names = ", ".join(row[0] for row in grid.below)
        lines.append(f"{names}: baselines, the same at every length")
    absent = {cell.text for row in rows for cell in row if cell.muted}
    if absent and not one_line:
        lines.append(f"—: {', '.join(absent)}")
    lines += [f"[{mark}] {note}" for note, mark in notes.items()]
    return Group(shown, *(Text(line, "dim") for line in lines))


def _width(grid: Grid, rows: list[list[Cell]], notes: dict[str, int]) -> int:
    """Returns the table's width in columns with a mean and its half on one line."""
    names = [grid.columns[0], *(row[0].text for row in rows), *(row[0] for row in grid.below)]
    columns = zip(*(row[1:] for row in rows), strict=False)
    widest = [max(len(_text(cell, notes, True)) for cell in column) for column in columns]
    return max(map(len, names)) + sum(2 + width for width in widest)


def _text(cell: Cell, notes: dict[str, int], one_line: bool) -> str:
    text = "—" if cell.muted and not one_line else cell.text
    # With "±.044" in place of "±0.044" a table of five lengths fits into 80 columns.
    half = cell.half.replace("±0.", "±.")
    mark = f" [{notes[cell.note]}]" if cell.note else ""
    return (f"{text}{' ' if one_line else chr(10)}{half}" if half else text) + mark
