"""Tables as CSV and LaTeX: every cell, with text that means something to either format."""

import csv
import io
import re
from pathlib import Path

import pytest

import experiments
from posenc_jax.lab import runs
from posenc_jax.lab.report import Grid, Section, tables
from posenc_jax.lab.report.sections import Cell

RESULTS = Path("results")
NASTY = 'a_b & 100% of "x", $y$ {z} \\n #1'
GRID = Grid(
    ("length\n ", "8\ntrained", "16\n2×"),
    [("rope", Cell("2.1", "±0.1", "one seed", bold=True), "not measured"), (NASTY, "3", "4\n5")],
    "lower is better",
    below=[("bigram", "4", "4")],
)


def read_csv(grid):
    return list(csv.reader(io.StringIO(tables.as_csv(grid))))


def test_csv_holds_every_cell_and_columns_for_intervals_seeds_and_notes():
    assert read_csv(GRID) == [
        ["length", "8 trained", "8 trained half", "16 2× value 1", "16 2× value 2", "16 2× note"],
        ["rope", "2.1", "0.1", "", "", "not measured"],
        [NASTY, "3", "", "4", "5", ""],
        ["bigram", "4", "", "4", "", ""],
    ]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("−1.5", {"": "-1.5"}),
        ("12,345", {"": "12345"}),
        ("1e−05", {"": "1e-05"}),
        ("+.25 ±.031*", {"": "+.25", "half": ".031", "note": "*"}),
        ("0.953 (.941–1.000)", {"": "0.953", "low": ".941", "high": "1.000"}),
        ("2.5 (−1 to 3)", {"": "2.5", "low": "-1", "high": "3"}),
        ("7/10", {"": "7", "of": "10"}),
        ("0.1 0.2 not finite", {"value 1": "0.1", "value 2": "0.2", "value 3": "nan"}),
        ("x − y", {}),
        ("1,2", {}),
        ("not measured", {}),
        ("", {}),
    ],
)
def test_a_cell_is_split_into_plain_numbers(text, parts):
    assert tables.numbers(text) == parts
    assert all(part.isascii() for part in parts.values())
    assert all(is_number(part) for suffix, part in parts.items() if suffix != "note")


def trouble(grid):
    """Returns the cells that keep another program from reading a column as numbers."""
    heads, *rows = read_csv(grid)
    actual = []
    for head, *column in list(zip(heads, *rows, strict=True))[1:]:
        are_numbers = [is_number(cell) for cell in column if cell]
        if any(are_numbers) and not all(are_numbers):
            actual.append((head, column))
        actual += [(head, cell) for cell in column if set("±−") & set(cell)]
    return actual


def is_number(cell):
    try:
        float(cell)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize(
    "name",
    ["classification", "completion", "dna", "images", "long_memory", "multimodal", "permutation",
     "pretrained_results", "published", "translation", "vision",
     *(pytest.param(slow, marks=pytest.mark.thorough)
       for slow in ("leaderboard", "length_extrapolation", "padding_leakage"))],
)  # fmt: skip
def test_every_column_of_the_site_s_tables_is_all_numbers_or_all_text(name):
    _, _, sections = experiments.document(runs.read_archive(RESULTS / f"{name}.tar.xz"))
    grids = tables.named(sections)
    assert sum(is_number(cell) for grid in grids.values() for row in read_csv(grid)
               for cell in row) > 10  # fmt: skip
    assert {stem: trouble(grid) for stem, grid in grids.items()
            if not grid.words and trouble(grid)} == {}  # fmt: skip


def test_the_control_a_column_of_text_and_numbers_is_trouble(monkeypatch):
    grid = Grid(("a", "b"), [("x", "1 ±2"), ("y", "none")], "")
    assert trouble(grid) == []
    monkeypatch.setattr(tables, "numbers", lambda text: {"": text})
    assert trouble(grid) == [("b", "1 ±2")]
    grid = Grid(("a", "b"), [("x", "1"), ("y", "none")], "")
    assert trouble(grid) == [("b", ["1", "none"])]


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
