"""Shows a finished run from its folder: a table, figures, one HTML page.

Matplotlib takes a fifth of a run's start, so only functions that draw import it.
"""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from posenc_jax.lab import runs
from posenc_jax.lab.report import length_table, terminal, webpage
from posenc_jax.lab.report.comparison import compare
from posenc_jax.lab.report.sections import Grid, Picture, Section
from posenc_jax.lab.report.summaries import summarise

__all__ = ["Grid", "Picture", "Section", "compare", "present", "show", "summarise"]


def show(workdir: str | Path, console: Console | None = None) -> None:
    """Draws a run's figures, writes report.html, prints the table by length and the page's path.

    Raises:
      ValueError: the folder holds no finished run.
    """
    run, console = runs.read(workdir), console or Console()
    console.print("", terminal.table(length_table.results(run.summary), console.width))
    _write(run, *length_table.page(run), console)


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
    for section in sections:
        terminal.show(section, console)
    _write(run, lead, sections, console)


def _write(run: runs.StoredRun, lead: str, sections: Sequence[Section], console: Console) -> None:
    path = webpage.write(run, lead, sections)
    console.print(f"report: {path}", highlight=False, soft_wrap=True)
