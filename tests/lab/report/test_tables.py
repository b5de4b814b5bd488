"""Tables as CSV and LaTeX: every cell, with text that means something to either format."""

import csv
import io
import re

from posenc_jax.lab.report import Grid, Section, tables
from posenc_jax.lab.report.sections import Cell

NASTY = 'a_b & 100% of "x", $y$ {z} \\n #1'
GRID = Grid(
    ("length\n ", "8\ntrained", "16\n2×"),
    [("rope", Cell("2.1", "±0.1", "one seed", bold=True), "not measured"), (NASTY, "3", "4\n5")],
    "lower is better",
    below=[("bigram", "4", "4")],
)


def test_csv_holds_every_cell_and_a_column_for_intervals():
    rows = list(csv.reader(io.StringIO(tables.as_csv(GRID))))
    assert rows == [
        ["length", "8 trained", "8 trained interval", "16 2×"],
        ["rope", "2.1", "0.1", "not measured"],
        [NASTY, "3", "", "4 5"],
        ["bigram", "4", "", "4"],
    ]


def test_numbers_in_csv_are_numbers_to_other_programs():
    cells = ("−1.5", "+.25", "12,345", "1e−05", "x − y", "1,2", "(1–2)")
    [_, row] = csv.reader(io.StringIO(tables.as_csv(Grid(cells, [cells], ""))))
    assert list(map(float, row[:4])) == [-1.5, 0.25, 12345, 1e-5]
    assert row[4:] == list(cells[4:]), "control: what is no number stays"


def test_latex_has_balanced_braces_and_a_cell_for_each_column():
    text = tables.as_latex(GRID)
    bare = text.replace(r"\{", "").replace(r"\}", "")
    assert bare.count("{") == bare.count("}")
    rows = [line for line in text.splitlines() if line.endswith(r" \\")]
    assert len(rows) == 4
    assert all(len(re.findall(r"(?<!\\)&", row)) == 2 for row in rows)
    assert r"\textbf{2.1} {\small $\pm$0.1}\textsuperscript{1}" in text
    assert r"a\_b \& 100\% of" in text
    assert "(1) one seed" in text
    # The control: without escaping, the name of a row is two cells.
    assert len(re.findall(r"(?<!\\)&", f"{NASTY} & 3 & 4")) == 3


def test_each_table_has_a_file_named_after_its_section_and_old_files_go(tmp_path):
    (tmp_path / "gone.csv").write_text("")
    inner = Section("Every seed", [GRID], folded=True)
    saved = tables.save(tmp_path, [Section("The results!", ["text", GRID, GRID, inner])])
    names = ("the_results", "the_results_2", "the_results_every_seed")
    assert [p.name for p in saved] == [f"{n}.{end}" for n in names for end in ("csv", "tex")]
    assert sorted(tmp_path.iterdir()) == sorted(saved)
    assert tables.save(tmp_path / "none", [Section("text", ["only"])]) == []
    assert not (tmp_path / "none").exists()
