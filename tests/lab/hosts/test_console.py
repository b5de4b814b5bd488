"""Lines for people: folded on a terminal, whole in a file."""

import io

import pytest

from posenc_jax.lab.hosts.console import say

PATH = "/home/somebody/a-folder-with-a-long-name/another-one/and-more/runs/rope_extrap/report.html"
LINE = "length_extrapolation: 2 seeds on 1 x cpu, 2 cores; the step-by-step folder of the run"


class Terminal(io.StringIO):
    def isatty(self):
        return True


def printed(line, file):
    say(line, file)
    return file.getvalue().splitlines()


def test_on_a_terminal_no_line_is_wider(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    lines = printed(LINE, Terminal())
    assert max(map(len, lines)) <= 60
    assert " ".join(map(str.strip, lines)) == LINE, "divided at spaces"
    monkeypatch.setenv("COLUMNS", "200")
    assert printed(LINE, Terminal()) == [LINE], "control"


def test_in_a_file_a_line_is_whole(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    assert printed(LINE, io.StringIO()) == [LINE]


def test_a_path_is_not_divided(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    assert printed(f"report: {PATH}", Terminal())[-1].strip() == PATH


@pytest.mark.parametrize("line", ["", "short"])
def test_a_short_line_stays(line, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    assert printed(line, Terminal()) == [line]
