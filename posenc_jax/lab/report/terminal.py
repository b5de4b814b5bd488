"""The table of results that a run prints at its end."""

from collections.abc import Mapping

from rich import box
from rich.console import Group
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from posenc_jax.lab.report import summaries


def table(summary: Mapping, width: int = 80) -> Group:
    """Returns a table of encodings by lengths with notes below, for rich to print.

    Args:
      summary: as `summarise` makes it.
      width: columns of the terminal. If "mean ±half" does not fit, the half is on a line below.
    """
    lengths, cells = summaries.lengths(summary), summaries.cells(summary)
    notes = summaries.notes(summary)
    one_line = _width(summary, cells, notes) <= width

    shown = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), pad_edge=False)
    shown.add_column("length\n ", no_wrap=True)
    for length in lengths:
        below = summaries.length_ratio(length, summary["train_length"])
        shown.add_column(f"{length}\n{below}", justify="right", no_wrap=True)
    for encoding, row in cells.items():
        texts = [_text(cell, notes, one_line) for cell in row.values()]
        styled = [
            Text(t, "bold" if c.best else "") for t, c in zip(texts, row.values(), strict=True)
        ]
        shown.add_row(escape(encoding), *styled)
    shown.add_section()
    for name, value in summary["baselines"].items():
        shown.add_row(escape(name), *[summaries.number(value)] * len(lengths), style="dim")
    return Group("", shown, "", *(Text(line, "dim") for line in _notes(summary, notes, one_line)))


def _width(summary: Mapping, cells: Mapping, notes: Mapping[str, int]) -> int:
    """Returns the table's width in columns with a mean and its half on one line."""
    columns = zip(*(row.values() for row in cells.values()), strict=True)
    widest = [max(len(_text(cell, notes, True)) for cell in column) for column in columns]
    return max(map(len, [*cells, *summary["baselines"], "length"])) + sum(2 + w for w in widest)


def _text(cell: summaries.Cell, notes: Mapping[str, int], one_line: bool) -> str:
    value = cell.value if cell.value != summaries.NOT_MEASURED or one_line else "—"
    # With "±.044" in place of "±0.044" a table of five lengths fits into 80 columns.
    half = cell.half.replace("±0.", "±.")
    mark = f" [{notes[cell.note]}]" if cell.note else ""
    return (f"{value}{' ' if one_line else chr(10)}{half}" if half else value) + mark


def _notes(summary: Mapping, notes: Mapping[str, int], one_line: bool) -> list[str]:
    lines = [summaries.reading_note(summary)]
    if summary["baselines"]:
        lines.append(f"{', '.join(summary['baselines'])}: baselines, the same at every length")
    if not one_line and summaries.missing(summary):
        lines.append(f"—: {summaries.NOT_MEASURED}")
    return lines + [f"[{mark}] {note}" for note, mark in notes.items()]
