"""Reads a finished run from its folder and shows it: a table, figures, one HTML page.

What draws is loaded when it is first used: Matplotlib takes a fifth of a run's start.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from posenc_jax.lab import runs
from posenc_jax.lab.report.faces import face

if TYPE_CHECKING:
    from posenc_jax.lab.report.comparison import compare
    from posenc_jax.lab.report.plots import figures
    from posenc_jax.lab.report.sections import Grid, Picture, Section, present
    from posenc_jax.lab.report.summaries import summarise
    from posenc_jax.lab.report.terminal import table
    from posenc_jax.lab.report.webpage import page

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

_HOMES = ("summaries", "terminal", "plots", "webpage", "sections", "comparison")
__getattr__, __dir__ = face(__name__, _HOMES, __all__)


def show(workdir: str | Path, console: Console | None = None) -> None:
    """Draws the figures, writes report.html, prints the table and where the page is.

    Raises:
      ValueError: the folder holds no finished run.
    """
    from posenc_jax.lab.report.terminal import table
    from posenc_jax.lab.report.webpage import page

    console = console or Console()
    run, path = runs.read(workdir), page(workdir)
    console.print(table(run.summary, console.width))
    console.print(f"report: {path}", highlight=False, soft_wrap=True)
