"""The parts of a report as Markdown, for the pages in docs/."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from posenc_jax.lab.hosts.files import write_text
from posenc_jax.lab.report.sections import Cell, Grid, Picture, Section

Part = str | Grid | Picture | Section


def render(parts: Sequence[Part], figure: Callable[[str], str], level: int = 2) -> list[str]:
    """Returns the lines of parts in order, each part followed by an empty line.

    Args:
      parts: as in a `Section`.
      figure: returns the path of a figure, relative to the page, from its name.
      level: the level of the titles of sections; folded sections have no level.
    """
    return [line for part in parts for line in _part(part, figure, level)]


def _part(part: Part, figure: Callable[[str], str], level: int) -> Iterator[str]:
    if isinstance(part, Grid):
        yield from (*table(part), "", escape(part.caption), "")
        for note, number in part.notes().items():
            yield from (f"{number}. {escape(note)}", "")
    elif isinstance(part, Picture):
        yield from (f"![{part.name}]({figure(part.name)})", "", escape(part.caption), "")
    elif isinstance(part, Section) and part.folded:
        yield from folded(part.title, render(part.parts, figure, level + 1))
    elif isinstance(part, Section):
        yield from (f"{'#' * level} {escape(part.title)}", "")
        yield from render(part.parts, figure, level + 1)
    else:
        yield from (escape(part), "")


def folded(title: str, content: Sequence[str]) -> list[str]:
    """Returns lines that open on a click; `content` ends with an empty line."""
    head = f"<details><summary>{escape(title)}</summary>"
    return [head, "", *content, "</details>", ""]


def table(grid: Grid) -> Iterator[str]:
    """Yields the lines of a table, without its caption and notes."""
    notes = grid.notes()
    yield _row(_text(column) for column in grid.columns)
    yield "|---" * len(grid.columns) + "|"
    for row in grid.rows:
        yield _row(_cell(cell, notes) for cell in row)
    for row in grid.below:
        yield _row(f"*{_text(cell)}*" for cell in row)


def _row(cells: Iterator[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(cell: str | Cell, notes: Mapping[str, int]) -> str:
    cell = cell if isinstance(cell, Cell) else Cell(cell)
    text = f"**{_text(cell.text)}**" if cell.bold else _text(cell.text)
    half = f" {_text(cell.half)}" if cell.half else ""
    return text + half + (f" <sup>{notes[cell.note]}</sup>" if cell.note else "")


def _text(text: str) -> str:
    return escape(text.strip()).replace("|", "\\|").replace("\n", "<br>")


def replace_between(path: Path, content: str, begin: str, end: str) -> None:
    """Replaces the text of a page between two marks; the text around them is written by hand."""
    before, _, rest = path.read_text("utf-8").partition(begin)
    _, _, after = rest.partition(end)
    write_text(path, f"{before}{begin}\n\n{content}\n\n{end}{after}")


def escape(text: str) -> str:
    """Returns text in which Markdown and HTML see no mark-up."""
    text = text.replace("&", "&amp;").replace("<", "&lt;")
    return re.sub(r"([\\`*\[\]]|(?<!\w)_|_(?!\w))", r"\\\1", text)
