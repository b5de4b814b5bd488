"""Sections of a report: on the page, in the terminal, and what is folded."""

import io
import math
import re

import pytest
from matplotlib.figure import Figure
from rich.console import Console

from posenc_jax.lab import report, runs
from posenc_jax.lab.report import Grid, Section, speed, terminal
from posenc_jax.lab.report.sections import Cell
from posenc_jax.lab.training.throughput import Throughput
from tests.lab.report.test_report import Page
from tests.support.report_runs import NASTY


def draw():
    figure = Figure()
    figure.subplots().plot([0, 1], [0, 1])
    return figure


GRID = report.Grid(("method", "a"), [("rope", "1.0"), (NASTY, "2.0")], "how to read it")
SECTIONS = [
    report.Section("Shown", ["a sentence", GRID, report.Picture("line", draw, "a line")]),
    report.Section("Hidden", [report.Grid(("x", "y"), [("only", "here")], "folded")], folded=True),
]


@pytest.fixture
def presented(tmp_path):
    with runs.Run(tmp_path, {"experiment": "test_of_sections"}) as run:
        run.finish({})
    out = io.StringIO()
    report.show(tmp_path, lambda run: ("what it is", SECTIONS), Console(file=out, width=60))
    return tmp_path, out.getvalue()


def test_a_run_whose_records_have_its_speed_has_a_table_of_it(tmp_path):
    labels = {"encoding": "rope", "split": "train", "length": 8}
    seconds = (math.nan, 0.004, 0.005, 0.004)
    numbers = [Throughput(1 / s, s, 96 / s, 0.25, 1.5) for s in seconds]
    with runs.Run(tmp_path, {"experiment": "test_of_sections"}) as run:
        for step, chunk in enumerate(numbers, 1):
            values = {name: [value] * 2 for name, value in chunk.values().items()}
            run.log(runs.seed_records(step, [0, 1], labels, values))
        run.finish({})
    (section,) = speed.sections(runs.read(tmp_path))
    (grid,) = section.parts
    assert list(grid.columns) == ["training\n ", *list(speed.COLUMNS)[:-1]], "no MFU on a CPU"
    assert grid.rows == [["rope", "24,000", "4", "25", "1.5"]]
    assert "each of the 2 seeds" in grid.caption
    with runs.Run(tmp_path / "old", {"experiment": "test_of_sections"}) as run:
        run.log(runs.seed_records(1, [0], labels, {"steps_per_second": [2.0]}))
        run.finish({})
    assert speed.sections(runs.read(tmp_path / "old")) == [], "control: an older run"


def test_the_terminal_shows_what_is_not_folded(presented):
    _, printed = presented
    for text in ("Shown", "a sentence", "rope", "1.0", "how to read it", "report.html", NASTY):
        assert text in printed
    assert "Hidden" not in printed
    assert "only" not in printed


def test_the_page_shows_everything_and_reaches_nowhere(presented):
    path, _ = presented
    page = Page((path / "report.html").read_text("utf-8"))
    text = " ".join(page.text)
    for part in ("what it is", "a sentence", "rope", "how to read it", "a line", "Hidden", "only"):
        assert part in text
    assert NASTY in page.text
    assert page.outside == []
    assert page.used <= set(page.ids)


def test_figures_are_files_too(presented):
    names = {path.name for path in (presented[0] / "figures").iterdir()}
    assert names == {"line.png", "line.svg"}


def numbers(width, columns=12):
    """A table of many numbers as a terminal of this width prints it."""
    heads = ["length", *(f"{2**n}\ntrained" for n in range(columns))]
    rows = [("randomized+rope · lr 0.003 · width 128", *(Cell(f"{n}.125", "±0.025")
                                                         for n in range(columns))),
            ("rope", *(f"{n}.5" for n in range(columns)))]  # fmt: skip
    grid = Grid(heads, rows, "a caption", below=[("unigram", *["4.5"] * columns)])
    out = io.StringIO()
    terminal.show(Section("Results", [grid]), Console(file=out, width=width))
    return out.getvalue()


def test_a_table_wider_than_the_terminal_is_several_with_whole_numbers():
    text = numbers(60)
    assert max(map(len, text.splitlines())) <= 60
    assert "…" not in text
    for n in range(12):
        assert f"{n}.125" in text, "no number is divided"
    tables = lambda text: [re.match("(rope|unigram) ", line) for line in text.splitlines()]
    assert sum(map(bool, tables(text))) == 2 * 3, "each has the names of all rows"
    assert sum(map(bool, tables(numbers(200)))) == 2, "control: a wide terminal has one table"
