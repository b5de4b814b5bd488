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
            console.print(table(part))


def table(grid: Grid) -> Group:
    """Returns a table with its caption and notes, for rich to print."""
    notes = grid.notes()
    rows = [[cell if isinstance(cell, Cell) else Cell(cell) for cell in row] for row in grid.rows]
    shown = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), pad_edge=False)
    for i, column in enumerate(grid.columns):
        number = i > 0 and not grid.words
        shown.add_column(Text(column), justify="right" if number else "left", no_wrap=i == 0)
    for row in rows:
        shown.add_row(*(Text(_text(cell, notes), "bold" if cell.bold else "") for cell in row))
    shown.add_section()
    for texts in grid.below:
        shown.add_row(*map(Text, texts), style="dim")

    lines = [grid.caption]
    if grid.below:
        names = ", ".join(row[0] for row in grid.below)
        lines.append(f"{names}: {'baselines' if len(grid.below) > 1 else 'a baseline'}")
    absent = {cell.text for row in rows for cell in row if cell.muted}
    if absent:
        lines.append(f"—: {', '.join(absent)}")
    lines += [f"[{mark}] {note}" for note, mark in notes.items()]
    return Group(shown, *(Text(line, "dim") for line in lines))


def _text(cell: Cell, notes: dict[str, int]) -> str:
    """Returns a cell's text, with the half of its interval on a line below to save width."""
    text = "—" if cell.muted else cell.text
    half = "\n" + cell.half.replace("±0.", "±.") if cell.half else ""
    return text + half + (f" [{notes[cell.note]}]" if cell.note else "")
