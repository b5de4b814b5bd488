"""Tables as files for other programs: CSV for spreadsheets, LaTeX for papers."""

import csv
import io
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from posenc_jax.lab.hosts.files import write_text
from posenc_jax.lab.report.sections import Cell, Grid, Picture, Section

SPECIAL = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "&": r"\&", "%": r"\%", "$": r"\$",
    "#": r"\#", "_": r"\_", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "±": r"$\pm$", "×": r"$\times$", "−": "$-$", "–": "--", "—": "---", "†": r"\dag{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", '"': r"\textquotedbl{}",
}  # fmt: skip
NUMBER = r"[+−-]?(\d{1,3}(,\d{3})+|\d*)(\.\d+)?(e[+−-]?\d+)?"
Part = str | Grid | Picture | Section


def save(folder: Path, sections: Sequence[Section]) -> list[Path]:
    """Writes each table of the sections as NAME.csv and NAME.tex, and returns the paths.

    NAME is the title of the section that holds the table, with a number if it holds several. Files
    of earlier tables in the folder are deleted; without tables there is no folder.
    """
    for old in [*folder.glob("*.csv"), *folder.glob("*.tex")]:
        old.unlink()
    paths = []
    for name, grid in named(sections).items():
        folder.mkdir(parents=True, exist_ok=True)
        for end, written in ((".csv", as_csv(grid)), (".tex", as_latex(grid))):
            paths.append(folder / f"{name}{end}")
            write_text(paths[-1], written)
    return paths


def named(parts: Sequence[Part], title: str = "table") -> dict[str, Grid]:
    """Returns the tables of parts by the names of their files, in order."""
    found: dict[str, Grid] = {}
    for around, grid in _grids(parts, title):
        stem = re.sub(r"[^a-z0-9]+", "_", around.lower()).strip("_") or "table"
        taken = sum(re.fullmatch(rf"{stem}(_\d+)?", name) is not None for name in found)
        found[f"{stem}_{taken + 1}" if taken else stem] = grid
    return found


def _grids(parts: Sequence[Part], title: str) -> Iterator[tuple[str, Grid]]:
    for part in parts:
        if isinstance(part, Section):
            own = part.title if title == "table" else f"{title} {part.title}"
            yield from _grids(part.parts, own)
        elif isinstance(part, Grid):
            yield title, part


def as_csv(grid: Grid) -> str:
    """Returns a table as CSV (RFC 4180), of which other programs can read the numbers.

    Half an interval has a column of its own, without "±"; a minus is "-", and thousands have no
    commas between them.
    """
    rows = [[_cell(cell) for cell in row] for row in (*grid.rows, *grid.below)]
    spread = [any(row[i].half for row in rows if i < len(row)) for i in range(len(grid.columns))]
    head = [" ".join(column.split()) for column in grid.columns]
    lines = [[name for n, own in zip(head, spread, strict=True)
              for name in ([n, f"{n} interval"] if own else [n])]]  # fmt: skip
    for row in rows:
        pairs = zip(row, spread, strict=False)
        lines.append([text for cell, own in pairs for text in _texts(cell, own)])
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(lines)
    return out.getvalue()


def _texts(cell: Cell, spread: bool) -> list[str]:
    text = " ".join(cell.text.split())
    if re.fullmatch(NUMBER, text):
        text = text.replace("−", "-").replace(",", "")
    return [text, cell.half.removeprefix("±")] if spread else [text]


def as_latex(grid: Grid) -> str:
    """Returns a table as LaTeX, for the package booktabs; notes are part of the caption."""
    notes = grid.notes()
    sides = "l" * len(grid.columns) if grid.words else "l" + "r" * (len(grid.columns) - 1)
    said = [grid.caption, *(f"({number}) {note}" for note, number in notes.items())]
    lines = [
        r"\begin{table}", r"\centering", rf"\caption{{{escape(' '.join(said))}}}",
        rf"\begin{{tabular}}{{{sides}}}", r"\toprule",
        _row([" ".join(escape(column).split()) for column in grid.columns]), r"\midrule",
        *(_row([_latex(_cell(cell), notes) for cell in row]) for row in grid.rows),
    ]  # fmt: skip
    if grid.below:
        lines += [r"\midrule", *(_row([escape(cell) for cell in row]) for row in grid.below)]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table}"]) + "\n"


def _latex(cell: Cell, notes: dict[str, int]) -> str:
    text = " ".join(escape(cell.text).split())
    text = rf"\textbf{{{text}}}" if cell.bold else text
    half = rf" {{\small {escape(cell.half)}}}" if cell.half else ""
    return text + half + (rf"\textsuperscript{{{notes[cell.note]}}}" if cell.note else "")


def _row(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"


def _cell(cell: str | Cell) -> Cell:
    return cell if isinstance(cell, Cell) else Cell(cell)


def escape(text: str) -> str:
    """Returns text in which LaTeX sees no command."""
    return "".join(SPECIAL.get(character, character) for character in text)
