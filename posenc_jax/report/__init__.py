"""Reads a finished run from its folder and shows it: a table, figures, one HTML page."""

from pathlib import Path

from rich.console import Console

from posenc_jax import runs
from posenc_jax.report.comparison import compare
from posenc_jax.report.plots import figures
from posenc_jax.report.sections import Grid, Picture, Section, present
from posenc_jax.report.summaries import summarise
from posenc_jax.report.terminal import table
from posenc_jax.report.webpage import page

__all__ = [
    "Grid",
    "Picture",
    "Section",
    "compare",
    "figures",
    "page",
    "present",
    "show",
    "summarise",
    "table",
]


def show(workdir: str | Path, console: Console | None = None) -> None:
    """Draws the figures, writes report.html, prints the table and where the page is.

    Raises:
      ValueError: the folder holds no finished run.
    """
    console = console or Console()
    run, path = runs.read(workdir), page(workdir)
    console.print(table(run.summary, console.width))
    console.print(f"report: {path}", highlight=False, soft_wrap=True)
