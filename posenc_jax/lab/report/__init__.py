"""Shows a finished run from its folder: tables, figures, one HTML page."""

from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

from posenc_jax.lab import runs
from posenc_jax.lab.hosts.console import say
from posenc_jax.lab.hosts.files import check_writable
from posenc_jax.lab.report.sections import Grid, Picture, Section
from posenc_jax.lab.report.summaries import summarise

__all__ = ["Grid", "Picture", "Section", "show", "summarise"]

Sections = Callable[[runs.StoredRun], tuple[str, Sequence[Section]]]


def show(
    workdir: str | Path,
    sections: Sections | None = None,
    console: Console | None = None,
    reference: str = "",
) -> None:
    """Draws the figures, writes report.html and the tables' files, prints texts and tables.

    Args:
      workdir: the folder of a finished run.
      sections: gives the line under the page's title, and the sections in order; by default those
        of `length_table`.
      console: where to print; standard output by default.
      reference: the encoding that others are compared with; "": the first.

    Raises:
      ValueError: the folder holds no finished run, or none of the reference, or it cannot be
        written to.
    """
    # They import Matplotlib, which takes a fifth of a run's start.
    from posenc_jax.lab.report import length_table, profile, speed, tables, terminal, webpage

    run, console = runs.read(workdir), console or Console()
    run = run.compared_with(reference) if reference else run
    check_writable(run.path)
    lead, shown = (sections or length_table.page)(run)
    shown = [*shown, *speed.sections(run), *profile.sections(run.path)]
    for section in shown:
        terminal.show(section, console)
    tables.save(run.path / "tables", shown)
    path = webpage.write(run, lead, shown)
    say(f"report: {path}", console.file)
