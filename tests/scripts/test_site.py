"""The site: formulas as mathematics, pages from records, links, and the strict build."""

import json
import posixpath
import re
import subprocess
import sys
from html.parser import HTMLParser
from inspect import signature
from pathlib import Path
from urllib.parse import unquote

import pytest

import posenc_jax
from posenc_jax import encoding
from posenc_jax.encodings import CATALOG, card
from posenc_jax.lab.gallery.costs import Cost
from posenc_jax.lab.report import Grid, Section
from scripts import bench
from scripts.site import methods, notebooks, reference
from scripts.site.mathematics import mathematics
from tests.support import ROOT
from tests.support.devtools import opened


@pytest.mark.parametrize(
    ("plain", "wanted"),
    [
        ("theta_k = base^(-2k/C)", "θ<sub>k</sub> = base<sup>−2k/C</sup>"),
        ("c_2k+1(t) <= 1", "c<sub>2k+1</sub>(t) ≤ 1"),
        ("q.k / sqrt(C) - m[h] |i - j|", "q·k / √(C) − m[h] |i − j|"),
        ("e^(i (D + 1) theta_k) x", "e<sup>i (D + 1) θ<sub>k</sub></sup> x"),
        ("sum_k x_k^2, else -inf", "∑<sub>k</sub> x<sub>k</sub><sup>2</sup>, else −∞"),
        ("local_base and ntk_by_parts stay, 0.4 / 1.4", "local_base and ntk_by_parts stay, "
         "0.4 / 1.4"),
    ],
)  # fmt: skip
def test_a_formula_becomes_mathematics(plain, wanted):
    assert mathematics(plain) == wanted


def test_every_formula_of_the_catalogue_is_set():
    for name in CATALOG:
        formula = mathematics(card(name).formula)
        assert not re.search(r"\^|theta|sqrt\(|sum_|`", formula), (name, formula)
        assert formula.count("<sup>") == formula.count("</sup>") == card(name).formula.count("^")
    with pytest.raises(ValueError, match="not closed"):
        mathematics("base^(-2k/C")


HEAD = ("method", "rank")
BOARD = [
    Section("All tasks", [
        "a note", Grid(HEAD, [("pi = interpolated+rope†", "1.0"), ("alibi", "2.0")], ""),
        Section("Every seed", [Grid(("method", "seed"), [("alibi", "7")], "")], folded=True),
    ]),
    Section("The tasks", [Grid(("task", "rank"), [("alibi", "3.0")], "")]),
]  # fmt: skip


def test_a_page_of_a_method_has_its_rows_of_the_board():
    assert methods.rows(BOARD, "rope") == methods.rows(BOARD, "pi")
    rows = methods.rows(BOARD, "alibi")
    assert rows == {"All tasks": Grid(HEAD, [("alibi", "2.0")], "")}
    assert methods.rows(BOARD, "rop") == {}, "control: a part of a name is another method"
    assert "| alibi | 2.0 |" in methods.page(card("alibi"), rows)
    assert "(https://arxiv.org/abs/2108.12409)" in methods.page(card("alibi"), {})


def test_the_tasks_of_a_method_are_one_table():
    rank = Grid(HEAD, [("a", "1")], "")
    one, two = (Grid(("method", "cost"), [("a", n)], "") for n in "78")
    assert methods.joined({"All": rank, "copy": one, "sort": two}) == {
        "All": rank,
        "Each task": Grid(("task", "method", "cost"), [("copy", "a", "7"), ("sort", "a", "8")], ""),
    }


def test_a_page_of_a_method_has_its_costs_benchmarks_and_public_differences():
    counted = dict.fromkeys(("nope", "rope"), Cost(3e6, 4e6, False))
    assert re.match(r"parameters: .*; .* operations, ", methods.cost("rope", counted))
    benchmarks = json.loads((ROOT / "results" / "benchmarks.json").read_text("utf-8"))
    differing = (ROOT / "docs" / "differences.md").read_text("utf-8")
    speeds = methods.speeds(benchmarks, "alibi")
    assert [title for title, _ in speeds] == ["step, d 64", "step, d 256", "trace"]
    assert speeds[0][1] in bench.page(benchmarks, "raw.json")
    assert methods.speeds(benchmarks, "fox") == [], "control: not in the benchmarks"
    rows = methods.differences(differing, "sinusoidal")
    assert any("M2M100SinusoidalPositionalEmbedding" in line for line in rows)
    assert not any("OPTLearned" in line for line in rows)
    assert not any("the same:" in line for line in rows), "each line names its implementation"
    page = methods.page(card("sinusoidal"), {}, "3 M", [("step", "| table |")], rows)
    assert all(part in page for part in ("3 M", "## Speed: step", "| table |", rows[0]))


def test_the_docstrings_of_the_interface_name_every_hook():
    told = lambda kind: tuple(re.findall(r"^    (\w+): ", kind.__doc__ or "", re.M))
    for kind in (encoding.Dims, encoding.Encoding, encoding.Walk):
        assert told(kind) == tuple(signature(kind).parameters)
    assert told(encoding.Extent) != encoding.Extent._fields, "control: fields without a list"


def test_sentences_have_mathematics_and_names_stay():
    assert methods.sentence("rope up to `length`, then t * b^(-k)") == (
        "rope up to `length`, then t · b<sup>−k</sup>"
    )
    told = methods.page(card("rope"), {})
    assert "- `base = 10000.0 (positive)`: frequencies fall by nearly this factor" in told


def test_a_notebook_is_a_page_with_its_outputs():
    page = notebooks.page({"cells": [
        {"cell_type": "markdown", "source": ["# A\n", "b"]},
        {"cell_type": "code", "source": ["1 + 1"], "outputs": [
            {"text": ["2\n"]}, {"data": {"image/png": "QUJD\n"}}, {"data": {"text/plain": "2"}}]},
    ]})  # fmt: skip
    assert page == ("# A\nb\n\n```python\n1 + 1\n```\n\n```text\n2\n```\n\n"
                    "![figure](data:image/png;base64,QUJD)\n")  # fmt: skip


class Links(HTMLParser):
    """The links and the ids of a page."""

    def __init__(self, text):
        super().__init__()
        self.links, self.ids = [], set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        actual = dict(attributes)
        self.ids |= {actual[key] for key in ("id", "name") if actual.get(key)}
        self.links += [actual[key] for key in ("href", "src") if actual.get(key)]


def broken(folder: Path) -> list[str]:
    """The links of the pages of a folder that lead to no file, or to no id on a page."""
    pages = {path: Links(path.read_text("utf-8")) for path in folder.rglob("*.html")}
    actual = []
    for path, page in pages.items():
        for link in page.links:
            target, _, part = unquote(link).partition("#")
            if re.match(r"[a-z]+:|//|/", target):
                continue
            file = Path(posixpath.normpath(path.parent / target)) if target else path
            file = file / "index.html" if file.is_dir() else file
            # The explorer reads what follows its # as the methods to show.
            checked = part and file in pages and file.name != "explorer.html"
            if not file.exists() or (checked and part not in pages[file].ids):
                actual.append(f"{path.relative_to(folder)}: {link}")
    return actual


def build(config: Path, to: Path) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-m", "mkdocs", "build", "-f", config, "-d", to],
                          cwd=ROOT, capture_output=True, text=True)  # fmt: skip


def test_broken_links_are_found(tmp_path):
    (tmp_path / "a.html").write_text('<a id="x" href="b.html#y"></a><a href="#x"></a>')
    (tmp_path / "b.html").write_text('<a href="c.html"></a><a href="https://x.org/">')
    assert sorted(broken(tmp_path)) == ["a.html: b.html#y", "b.html: c.html"]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    done = build(ROOT / "mkdocs.yml", folder)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


def raw(page: str) -> bool:
    """Whether a page shows the source of a table."""
    return "|---|" in re.sub(r"<(pre|code|script)\b.*?</\1>", "", page, flags=re.DOTALL)


@pytest.mark.thorough
def test_a_folded_table_is_a_table(site):
    board = (site / "results/leaderboard.html").read_text("utf-8")
    folded = re.findall(r"<details>.*?</details>", board, re.DOTALL)
    assert sum("<table>" in part for part in folded) >= 10
    plain = "<details>\n| method |\n|---|---|\n</details>"
    assert raw(plain), "control: what the site had without the attribute that opens Markdown"


@pytest.mark.thorough
def test_the_site_builds_without_warnings_and_its_links_lead_somewhere(site):
    assert broken(site) == []
    for page in ("index.html", "choosing.html", "catalogue.html", "methods/rope.html",
                 "reference.html", "explorer.html", "examples/extend_context.html"):  # fmt: skip
        assert (site / page).exists()
    assert [page.name for page in site.rglob("*.html") if raw(page.read_text("utf-8"))] == []
    ids = Links((site / "reference.html").read_text("utf-8")).ids
    assert {reference.path(name) for name in posenc_jax.__all__ if name != "CATALOG"} <= ids
    for kind in (posenc_jax.Encoding, posenc_jax.Walk):
        hooks = signature(kind).parameters
        assert {f"posenc_jax.encoding.{kind.__name__}.{hook}" for hook in hooks} <= ids


def hits(page: Path, profile: Path) -> int:
    """How many pages the search of a page finds, as its reader opens it from the disk."""
    with opened(page.as_uri(), profile) as shown:
        shown.screen(1400, 1000)
        if shown.run("document.querySelector('.md-search').hidden"):
            return 0
        shown.run(
            "(() => { const box = document.querySelector('.md-search__input'); box.focus();"
            " box.value = 'temperature'; box.dispatchEvent(new KeyboardEvent('keyup')); })()"
        )
        shown.until("document.querySelectorAll('.md-search-result__item').length > 0")
        assert shown.trouble == []
        return shown.run("document.querySelectorAll('.md-search-result__item').length")


@pytest.mark.thorough
@pytest.mark.browser
def test_the_search_of_a_page_on_the_disk_finds_others(site, tmp_path):
    page = site / "methods" / "rope.html"
    assert hits(page, tmp_path / "profile") > 1
    worker = "../iframe-worker.js"
    without = page.with_name("without.html")
    without.write_text(page.read_text("utf-8").replace(worker, ""), "utf-8")
    assert hits(without, tmp_path / "other") == 0, "control: a page without the worker"


def test_the_fields_of_a_docstring_are_a_list():
    from scripts.site.fields import listed

    said = "Where.\n\npos_BT:     of a token,\n            from 0.\ncounted:    whether by one."
    wanted = "Where.\n\n- `pos_BT`: of a token,\n  from 0.\n- `counted`: whether by one."
    assert listed(said) == wanted
    assert listed("It fixes:\n\n  dense      All pairs\n             at once.") == (
        "It fixes:\n\n- `dense`: All pairs\n  at once."
    )
    plain = "A sentence.\n\nTwo more: here\nthey are.\n\nArgs:\n  q: queries."
    assert listed(plain) == plain, "control: no fields"


def test_a_link_that_leads_nowhere_fails_the_build(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("[x](nothing.md)")
    (tmp_path / "mkdocs.yml").write_text("site_name: x\nstrict: true\n")
    done = build(tmp_path / "mkdocs.yml", tmp_path / "site")
    assert done.returncode == 1
    assert "nothing.md" in done.stderr
