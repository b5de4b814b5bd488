"""The page of a run: it needs nothing but itself, and tells how to repeat the run."""

import re
from html.parser import HTMLParser

import pytest

from posenc_jax.lab import report, runs
from posenc_jax.lab.report import drawing, summaries, webpage
from scripts.report import main
from tests.support.devtools import opened
from tests.support.report_runs import NASTY, make_records, shown, write_run


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
    config = {"note": NASTY, "task": {"name": NASTY}}
    return write_run(tmp_path_factory.mktemp("run"), make_records(), config)


@pytest.fixture(scope="module")
def page_text(workdir):
    return shown(workdir)


def test_every_color_of_a_figure_has_its_name_on_the_page():
    light, dark = webpage.CSS.split("prefers-color-scheme: dark")
    for name in drawing.PALETTE:
        assert f"--{name}: #" in light
        assert f"--{name}: #" in dark
    assert "--c9: #" not in light


class Page(HTMLParser):
    """Everything in a page that could reach outside it, its ids, and its text."""

    def __init__(self, text):
        super().__init__()
        self.outside, self.ids, self.used, self.text, self._open = [], [], set(), [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self._open.append(tag)
        if tag in ("script", "iframe", "link", "object", "embed", "img", "base", "form"):
            self.outside.append(tag)
        for name, value in attributes:
            value = value or ""
            if name == "id":
                self.ids.append(value)
            if name.startswith("on"):
                self.outside.append(name)
            if name.split(":")[-1] in ("href", "src", "srcset", "data", "action", "poster"):
                (self.used.add(value[1:]) if value.startswith("#") else self.outside.append(value))
            self._style(value)

    def handle_data(self, data):
        if self._open and self._open[-1] == "style":
            self._style(data)
        self.text.append(data)

    def _style(self, value):
        for target in re.findall(r"url\(\s*['\"]?([^)'\"]*)", value):
            (self.used.add(target[1:]) if target.startswith("#") else self.outside.append(target))
        if "@import" in value:
            self.outside.append("@import")


@pytest.mark.thorough
def test_the_page_needs_nothing_but_itself(page_text):
    page = Page(page_text)
    assert page.outside == []
    assert len(page.ids) == len(set(page.ids))
    assert page.used <= set(page.ids)
    assert page.used
    assert len(page_text.encode()) < 500_000


@pytest.mark.thorough
@pytest.mark.browser
def test_the_page_fits_a_phone(page_text, tmp_path):
    path, commit = tmp_path / "page.html", "0123456789" * 4
    path.write_text(page_text.replace("</main>", f"<p><code>{commit}</code></p></main>"), "utf-8")
    with opened(path.as_uri(), tmp_path / "profile") as page:
        page.screen(390, 844)
        assert page.run("document.documentElement.scrollWidth <= 390")
        figure = "document.querySelector('figure')"
        cut = f"{figure}.scrollWidth > {figure}.clientWidth"
        assert not page.run(cut), "the figure by length is whole"
        page.run("document.querySelector('figure svg').style.minWidth = '600px'")
        assert page.run(cut), "control"
        page.run("document.body.style.overflowWrap = 'normal'")
        assert page.run("document.documentElement.scrollWidth > 390"), "control"


@pytest.mark.parametrize(
    "added",
    [
        '<script src="x.js"></script>',
        '<img src="https://example.org/x.png">',
        '<link rel="stylesheet" href="x.css">',
        "<style>@import 'x.css';</style>",
        "<p style=\"background: url('https://example.org/x')\">",
        '<use xlink:href="https://example.org/x#y">',
        '<p onclick="x()">',
    ],
)
def test_the_control_page_that_reaches_outside_is_caught(page_text, added):
    assert Page(page_text.replace("</main>", f"{added}</main>")).outside


@pytest.mark.thorough
def test_whatever_comes_from_the_run_is_escaped(workdir, page_text, monkeypatch):
    page = Page(page_text)
    assert page.outside == []
    assert any(NASTY in part for part in page.text)
    # The control: without escaping, the same run's page is caught.
    monkeypatch.setattr(webpage, "escape", lambda text: text)
    assert Page(shown(workdir)).outside
    monkeypatch.undo()
    assert shown(workdir) == page_text


def test_the_page_tells_how_to_read_and_repeat_the_run(workdir, page_text):
    text = " ".join(Page(page_text).text)
    environment = runs.read(workdir).environment
    for part in ("trained at length 8", "Every seed", "Difference from rope", "bigram",
                 "it reaches 16 positions", "corpus.sha256", environment["command"],
                 environment["jax"], environment["started"][:10]):  # fmt: skip
        assert part in text
    assert "2.145" in text  # a seed, which no mean is equal to


def test_a_folder_without_a_finished_run_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"^workdir: [^\n]* has no config\.json"):
        report.show(tmp_path)


OTHER = "randomized+rope"  # of the run, beside rope


def test_differences_are_from_the_encoding_that_is_named(workdir, capsys):
    run = runs.read(workdir)
    from_rope = summaries.differences(run.records, run.by_length.metric)
    assert (from_rope.first, *from_rope.intervals) == ("rope", OTHER)
    swapped = summaries.differences(run.compared_with(OTHER).records, run.by_length.metric)
    assert (swapped.first, *swapped.intervals) == (OTHER, "rope")
    for length, gap in from_rope.intervals[OTHER].items():
        other = swapped.intervals["rope"][length]
        assert (other.mean, other.half) == pytest.approx((-gap.mean, gap.half))
    assert main([str(workdir), f"--reference={OTHER}"]) == 0
    assert f"Difference from {OTHER}" in capsys.readouterr().out
    assert f"Difference from {OTHER}" in (workdir / "report.html").read_text()
    assert main([str(workdir), "--reference=ropes"]) == 2
    assert capsys.readouterr().err.startswith("reference: 'ropes'; did you mean rope?")
    assert main([str(workdir)]) == 0
    assert "Difference from rope" in (workdir / "report.html").read_text(), "control"


@pytest.mark.thorough
def test_the_script_makes_the_report_again(workdir, tmp_path, capsys):
    (workdir / "report.html").unlink(missing_ok=True)
    assert main([str(workdir)]) == 0
    assert (workdir / "report.html").exists()
    assert "report.html" in capsys.readouterr().out
    assert main([str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
