"""Shows a finished run from its folder: a table, figures, one HTML page.

Matplotlib takes a fifth of a run's start, so only functions that draw import it.
"""

from pathlib import Path

from rich.console import Console

from posenc_jax.lab import runs
from posenc_jax.lab.report.comparison import compare
from posenc_jax.lab.report.plots import figures
from posenc_jax.lab.report.sections import Grid, Picture, Section, present
from posenc_jax.lab.report.summaries import summarise
from posenc_jax.lab.report.terminal import table
from posenc_jax.lab.report.webpage import page

__all__ = [
    "Grid", "Picture", "Section", "compare", "figures", "page", "present", "show", "summarise",
    "table",
]  # fmt: skip


def show(workdir: str | Path, console: Console | None = None) -> None:
    """Draws a run's figures, writes its report.html, prints its table and the page's path.

    Raises:
      ValueError: the folder holds no finished run.
    """
    console = console or Console()
    run, path = runs.read(workdir), page(workdir)
    console.print(table(run.summary, console.width))
    console.print(f"report: {path}", highlight=False, soft_wrap=True)
