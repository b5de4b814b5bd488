"""Shows sections of text, tables and figures, both in the terminal and on the HTML page.

An experiment whose results are not a table of encodings by length makes its sections from the run's
folder and gives them to `present`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from posenc_jax.lab import runs
from posenc_jax.lab.hosts.files import write_text
from posenc_jax.lab.report import plots, webpage

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Grid(NamedTuple):
    """A table of texts; the first cell of a row is its name.

    caption: how to read the table.
    words: whether the cells are sentences, which are wrapped and left-aligned.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str
    words: bool = False


class Picture(NamedTuple):
    """A figure and the name of its files; `draw` is called with the style of all figures."""

    name: str
    draw: Callable[[], Figure]
    caption: str


class Section(NamedTuple):
    """Paragraphs, tables and figures under a title; a folded section is not in the terminal."""

    title: str
    parts: Sequence[str | Grid | Picture]
    folded: bool = False


def present(
    workdir: str | Path, lead: str, sections: Sequence[Section], console: Console | None = None
) -> None:
    """Draws the figures, writes report.html, prints texts, tables and the page's path.

    Args:
      workdir: the folder of a finished run.
      lead: one line under the page's title.
      sections: in order.
      console: where to print; standard output by default.

    Raises:
      ValueError: the folder holds no finished run.
    """
    run, console = runs.read(workdir), console or Console()
    folder, path = run.path / "figures", run.path / "report.html"
    for section in sections:
        for part in section.parts:
            if isinstance(part, Picture):
                plots.save(folder, part.name, part.draw)
        if not section.folded and not all(isinstance(part, Picture) for part in section.parts):
            _print(section, console)
    shown = [_html(section, folder) for section in sections]
    write_text(path, webpage.document(run, lead, shown))
    console.print(f"report: {path}", highlight=False, soft_wrap=True)


def _print(section: Section, console: Console) -> None:
    console.print(Text(f"\n{section.title}", "bold"))
    for part in section.parts:
        if isinstance(part, str):
            console.print(Text(part))
        elif isinstance(part, Grid):
            console.print(_terminal(part))
            console.print(Text(part.caption, "dim"))


def _terminal(grid: Grid) -> Table:
    shown = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), pad_edge=False)
    for i, column in enumerate(grid.columns):
        number = i > 0 and not grid.words
        shown.add_column(Text(column), justify="right" if number else "left", no_wrap=i == 0)
    for row in grid.rows:
        shown.add_row(*map(Text, row))
    return shown


def _html(section: Section, folder: Path) -> str:
    parts = [
        f"<p>{escape(part)}</p>" if isinstance(part, str)
        else webpage.grid(*part) if isinstance(part, Grid)
        else webpage.figure(folder / f"{part.name}.svg", part.caption)
        for part in section.parts
    ]  # fmt: skip
    show = webpage.folded if section.folded else webpage.section
    return show(section.title, "".join(parts))
