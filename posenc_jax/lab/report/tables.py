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
# How pages write a number, and one with its interval: "−1,234.5", ".953 (.941–.962)", "+.12 ±.03*".
NUMBER = r"[+−-]?(?=\.?\d)(?:\d{1,3}(?:,\d{3})+|\d*)(?:\.\d+)?(?:e[+−-]?\d+)?"
INTERVAL = rf"(?P<low>{NUMBER})(?:–| to )(?P<high>{NUMBER})"
VALUE = (
    rf"(?P<mean>{NUMBER})(?:/(?P<of>\d+)| ?± ?(?P<half>{NUMBER})| \(?{INTERVAL}\)?)?"
    r"(?P<mark>[*?]*)"
)
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
    grids: dict[str, Grid] = {}
    for around, grid in _grids(parts, title):
        stem = re.sub(r"[^a-z0-9]+", "_", around.lower()).strip("_") or "table"
        taken = sum(re.fullmatch(rf"{stem}(_\d+)?", name) is not None for name in grids)
        grids[f"{stem}_{taken + 1}" if taken else stem] = grid
    return grids


def _grids(parts: Sequence[Part], title: str) -> Iterator[tuple[str, Grid]]:
    for part in parts:
        if isinstance(part, Section):
            inner = part.title if title == "table" else f"{title} {part.title}"
            yield from _grids(part.parts, inner)
        elif isinstance(part, Grid):
            yield title, part


def as_csv(grid: Grid) -> str:
    """Returns a table as CSV (RFC 4180) in which every number is one that other programs read.

    A column with numbers becomes several, by what its cells hold, each of plain numbers:

      NAME            the number (a mean, where there is an interval)
      NAME half       half the width of an interval
      NAME low, high  the ends of an interval
      NAME of         the denominator of a fraction such as 7/10
      NAME value 1    the first of several values, such as those of the seeds
      NAME note       a mark ("*"), or why there is no number ("not measured")

    The first column, and tables of sentences (`grid.words`), are copied as text.
    """
    rows = [[_cell(cell) for cell in row] for row in (*grid.rows, *grid.below)]
    heads = [_line(column) for column in grid.columns]
    lines = [[heads[0]], *([_line(row[0].text)] for row in rows)]
    for n, head in enumerate(heads[1:], 1):
        cells = [row[n] if n < len(row) else Cell("") for row in rows]
        for line, texts in zip(lines, _split(head, cells, grid.words), strict=True):
            line.extend(texts)
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(lines)
    return out.getvalue()


def _split(head: str, cells: Sequence[Cell], words: bool) -> list[list[str]]:
    """Returns the CSV columns that one column of a table becomes: their heads, then each row."""
    texts = [_line(f"{cell.text} {cell.half}") for cell in cells]
    parts = [{} if words else numbers(text) for text in texts]
    if not any(parts):
        return [[head], *([text] for text in texts)]
    if any("value 1" in part for part in parts):  # a single seed beside rows of several
        parts = [{"value 1": part.pop(""), **part} if "" in part else part for part in parts]
    parts = [part or {"note": text} for part, text in zip(parts, texts, strict=True)]
    suffixes = sorted({suffix for part in parts for suffix in part}, key=_order)
    lines = [[f"{head} {suffix}".rstrip() for suffix in suffixes]]
    return lines + [[part.get(suffix, "") for suffix in suffixes] for part in parts]


def _order(suffix: str) -> tuple[int, int]:
    kind, _, count = suffix.partition(" ")
    return ("", "half", "low", "high", "of", "value", "note").index(kind), int(count or 0)


def numbers(text: str) -> dict[str, str]:
    """Returns the numbers of a cell by the suffix of their CSV column; {} if it is no number.

    A minus is "-" and thousands have no commas: "−1,234.5 ±.2*" gives
    {"": "-1234.5", "half": ".2", "note": "*"}.
    """
    match = re.fullmatch(VALUE, text)
    if not match:
        several = re.split(r" · | ", text.replace("not finite", "nan"))
        if len(several) < 2 or not all(re.fullmatch(rf"{NUMBER}|nan", part) for part in several):
            return {}
        return {f"value {n}": _ascii(part) for n, part in enumerate(several, 1)}
    parts = {"": match["mean"], "half": match["half"], "low": match["low"], "high": match["high"],
             "of": match["of"], "note": match["mark"]}  # fmt: skip
    return {suffix: _ascii(part) for suffix, part in parts.items() if part}


def _ascii(number: str) -> str:
    return number.replace("−", "-").replace(",", "")


def _line(text: str) -> str:
    return " ".join(text.replace("−", "-").split())


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
