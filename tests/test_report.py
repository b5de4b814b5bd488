"""What a run shows: the table, the figures, and a page that needs nothing but itself."""

import io
import itertools
import math
import re
import struct
import subprocess
import sys
from html.parser import HTMLParser

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure
from rich.console import Console

from posenc_jax.lab import report, runs
from posenc_jax.lab.hosts.exit_status import Unmeasured
from posenc_jax.lab.report import drawing, length_table, plots, summaries, terminal, webpage
from posenc_jax.lab.report.statistics import interval
from posenc_jax.lab.tasks import baselines
from scripts.report import main

LENGTHS = (8, 16, 32)
TEXT = dict.fromkeys(("train", "valid", "test"), np.arange(2048, dtype=np.uint8))
NASTY = '<script src="https://example.org/x.js"></script>&"\''


def record(seed, encoding, length, value, step=60, metric="bits_per_byte", **labels):
    labels = {"encoding": encoding, "split": "test", "length": length, **labels}
    return {"step": step, "seed": seed, "labels": labels, "metric": metric, "value": value}


def make_records(seeds=3):
    found = []
    for seed in range(seeds):
        for i, encoding in enumerate(("rope", "randomized+rope")):
            found += [
                record(seed, encoding, 8, 5.0 - step / 60, step=step, split="train", metric="loss")
                for step in (20, 40, 60)
            ]
            for length in LENGTHS:
                value = 2 + i / 4 + 0.01 * seed + (length / 64)
                found.append(record(seed, encoding, length, 9.0, step=30))  # not the last step
                found.append(record(seed, encoding, length, value))
                found.append(record(seed, encoding, length, 0.5, metric="evaluation_seconds"))
                found += [record(seed, encoding, length, 7.0, position=p) for p in (0, 1, 4)]
    return found


def summarise(records):
    return report.summarise(
        records,
        metric="bits_per_byte",
        train_length=8,
        baselines={"bigram": 3.5, "unigram": 40.0},
        not_measured=[{"encoding": "learned", "length": 32, "reason": "it reaches 16 positions"}],
    )


def write_run(path, records, config=None):
    with runs.Run(path, {"experiment": "length_extrapolation", **(config or {})}) as run:
        run.log(records)
        run.fact(corpus={"sha256": "ab"})
        run.finish(summarise(records))
    return path


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
    config = {"note": NASTY, "task": {"name": NASTY}}
    return write_run(tmp_path_factory.mktemp("run"), make_records(), config)


def shown(workdir):
    """Makes the report of a run; returns the text of its page."""
    report.show(workdir, console=Console(file=io.StringIO()))
    return (workdir / "report.html").read_text("utf-8")


@pytest.fixture(scope="module")
def page_text(workdir):
    return shown(workdir)


def printed(summary, width):
    out = io.StringIO()
    Console(file=out, width=width).print(terminal.table(length_table.results(summary)))
    return out.getvalue()


def test_a_summary_is_the_last_step_of_the_test_split_and_no_curve():
    summary = summarise(make_records())
    cell = summary["results"]["rope"]["16"]
    assert cell["seeds"] == pytest.approx([2.25, 2.26, 2.27])
    assert (cell["mean"], cell["low"], cell["high"]) == interval(cell["seeds"])[:3]
    assert list(summary["results"]) == ["rope", "randomized+rope"]
    # The controls: were the early step the last, or a curve no curve, the cell would show it.
    late = [{**r, "step": 90} if r["step"] == 30 else r for r in make_records()]
    assert summarise(late)["results"]["rope"]["16"]["seeds"] == [9.0, 9.0, 9.0]
    scalar = make_records()
    for scalar_record in scalar:
        scalar_record["labels"].pop("position", None)
    assert summarise(scalar)["results"]["rope"]["16"]["seeds"] == [7.0, 7.0, 7.0]


def test_a_summary_is_the_same_in_memory_and_from_disk(workdir):
    stored = runs.read(workdir)
    assert stored.summary == {
        **summarise(stored.records),
        "facts": {"corpus": {"sha256": "ab"}},
        "starts": 1,
    }


def test_a_summary_of_nothing_is_refused():
    with pytest.raises(ValueError, match=r"^metric: no record of 'exact_match'"):
        report.summarise(make_records(), metric="exact_match", train_length=8)
    lost = [{"encoding": "rope", "length": n, "reason": "out of memory"} for n in (64, 32)]
    with pytest.raises(Unmeasured, match=r"^nothing was measured: rope at 32: out of memory$"):
        report.summarise([], metric="loss", train_length=8, not_measured=lost)


def test_differences_are_paired_by_seed():
    found = summaries.differences(make_records(), "bits_per_byte")
    assert (found.first, list(found.intervals)) == ("rope", ["randomized+rope"])
    for difference in found.intervals["randomized+rope"].values():
        assert difference.mean == pytest.approx(0.25)
        assert difference.half == pytest.approx(0.0, abs=1e-9)
    # The control: seeds paired wrongly leave an interval of some width.
    swapped = [{**r, "seed": 2 - r["seed"]} if r["labels"]["encoding"] == "rope" else r
               for r in make_records()]  # fmt: skip
    wrong = summaries.differences(swapped, "bits_per_byte").intervals["randomized+rope"][8]
    assert wrong.half > 0.01


def with_twin(shift=0.0):
    """The records, those of a method that equals "randomized+rope" up to `shift` at length 16, and
    "rope" under another name.
    """
    found = make_records()
    for old, new in (("randomized+rope", "twin"), ("rope", "same")):
        for one in [r for r in found if r["labels"]["encoding"] == old]:
            moved = shift if new == "twin" and one["labels"].get("length") == 16 else 0.0
            labels = {**one["labels"], "encoding": new}
            found.append({**one, "labels": labels, "value": one["value"] + moved})
    return found


@pytest.mark.parametrize(("shift", "twin", "comparisons"), [(1e-6, True, 3), (1e-3, False, 4)])
def test_equal_methods_are_one_line_and_one_comparison(tmp_path, shift, twin, comparisons):
    records = with_twin(shift)
    one, other = ["rope", "same"], ["randomized+rope", "twin"]
    wanted = [one, other] if twin else [one, other[:1], other[1:]]
    assert summaries.equal(summarise(records)) == wanted
    found = summaries.differences(records, "bits_per_byte")
    assert found.comparisons == comparisons
    assert all(interval.half == 0 for interval in found.intervals["same"].values())
    run = runs.read(write_run(tmp_path, records))
    for draw in (lambda: plots.difference(run), lambda: plots.by_length(run.summary)):
        texts = [text.get_text() for text in draw().axes[0].texts]
        assert ("randomized+rope = twin" in texts) == twin
    titles = [text.get_text() for text in plots.difference(run).axes[0].texts]
    assert any(f"for {comparisons} comparisons together" in text for text in titles)


def test_the_report_says_what_each_baseline_of_a_text_reads(tmp_path):
    """The control is a baseline of another task."""
    _, shown = length_table.page(runs.read(write_run(tmp_path, make_records())))
    (said,) = (p for p in shown[0].parts if isinstance(p, str) and "baseline" in p)
    assert "bigram: 1 byte; unigram: no byte." in said
    assert set(baselines.CONTEXT) == set(baselines.baselines(TEXT, 1024))


def test_the_table_says_what_was_and_was_not_measured():
    text = printed(summarise(make_records()), 100)
    assert re.search(r"length +8 +16 +32\n +trained +2× +4×\n", text)
    assert re.search(r"rope +2\.135 +2\.260 +2\.510\n +±\.025 +±\.025 +±\.025\n", text)
    assert re.search(r"learned +— +— +— \[1\]", text)
    assert "—: not measured" in text
    assert "[1] it reaches 16 positions" in text
    assert re.search(r"bigram +3\.500 +3\.500 +3\.500", text)
    assert "over 3 seeds" in text


@pytest.mark.parametrize("width", [50, 80, 120])
def test_the_table_is_plain_when_piped_and_fits(width):
    text = printed(summarise(make_records()), width)
    assert "\x1b" not in text
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    assert "2.135" in text
    assert "±.025" in text


def test_one_seed_has_no_interval_and_says_so():
    text = printed(summarise(make_records(seeds=1)), 80)
    assert "±" not in text
    assert "one seed, so there is no interval" in text.replace("\n", " ").replace("  ", " ")
    assert "±" in printed(summarise(make_records(seeds=2)), 80)


def test_the_best_is_bold_with_all_that_are_written_alike():
    means = {"rope": 2.1351, "yarn": 2.1354, "alibi": 2.136, "nope": math.nan}
    summary = summarise([record(0, name, 8, mean) for name, mean in means.items()])
    cells = {name: row[0] for name, *row in length_table.results(summary).rows}
    assert [cells[name].bold for name in means] == [True, True, False, False]


def test_a_missing_seed_and_a_diverged_one_are_shown():
    records = [r for r in make_records() if (r["seed"], r["labels"]["length"]) != (2, 16)]
    records = [{**r, "value": math.nan} if (r["seed"], r["labels"]["length"]) == (1, 32) else r
               for r in records]  # fmt: skip
    text = printed(summarise(records), 120)
    assert "2 of 3 seeds" in text
    assert "not finite" in text
    assert "not finite" not in printed(summarise(make_records()), 120)


@pytest.mark.parametrize(
    ("value", "text"),
    [(2.12345, "2.123"), (0.0, "0.000"), (-0.5, "-0.500"), (12.345, "12.35"), (1234.5, "1234"),
     (math.nan, "not finite"), (None, "not finite")],
)  # fmt: skip
def test_numbers_are_short(value, text):
    assert summaries.number(value) == text


def test_figures_come_as_png_and_as_svg_that_is_the_same_every_time(workdir, tmp_path):
    def drawn():
        shown(workdir)
        return {path.name: path.read_bytes() for path in (workdir / "figures").iterdir()}

    first, names = drawn(), ("by_length", "by_position", "difference", "training")
    assert sorted(first) == sorted(f"{name}.{kind}" for name in names for kind in ("png", "svg"))
    assert first == drawn()
    for name in names:
        assert struct.unpack(">I", first[f"{name}.png"][16:20])[0] >= 1600
        assert b"<svg" in first[f"{name}.svg"]
    # The control: another salt gives other ids, so the comparison does see them.
    picture = plots.pictures(runs.read(workdir))[0]
    files = [plots.save(tmp_path, name, picture.draw)[1].read_bytes() for name in ("a", "b")]
    assert files[0] != files[1]


def test_matplotlib_is_imported_when_a_figure_is_drawn_and_not_before():
    code = (
        "import sys, experiments.length_extrapolation.run\n"
        "print('matplotlib' in sys.modules)\n"
        "from posenc_jax.lab.report import plots\n"
        "print('matplotlib' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]


def test_figures_leave_matplotlib_as_they_found_it(workdir):
    before = dict(matplotlib.rcParams)
    shown(workdir)
    assert dict(matplotlib.rcParams) == before


def test_only_figures_with_something_to_draw_are_drawn(tmp_path):
    plain = [r for r in make_records() if "position" not in r["labels"]]
    plain = [r for r in plain if r["labels"]["split"] == "test"]
    one = [r for r in plain if r["labels"]["encoding"] == "rope"]
    for name, records, wanted in (
        ("two", plain, ["by_length", "difference"]),
        ("one", one, ["by_length"]),
        ("seed", [r for r in plain if r["seed"] == 0], ["by_length"]),
    ):
        pictures = plots.pictures(runs.read(write_run(tmp_path / name, records)))
        assert [picture.name for picture in pictures] == wanted


@pytest.mark.parametrize(("seeds", "bands"), [(2, 0), (3, 2)])
def test_a_band_is_drawn_from_three_seeds_on(tmp_path, seeds, bands):
    run = runs.read(write_run(tmp_path, make_records(seeds)))
    by_length = plots.by_length(run.summary).axes[0]
    for axes in (by_length, *plots.by_position(run).axes):
        assert len(axes.collections) == bands
    below = "band: 95% t interval" if bands else "no band: fewer than 3 seeds"
    assert any(f"each a dot · {below}" in text.get_text() for text in by_length.texts)


@pytest.mark.parametrize("value", [math.nan, 0.0])
def test_figures_are_drawn_from_nan_and_missing_values(tmp_path, value):
    records = [{**r, "value": value} for r in make_records(seeds=1)]
    write_run(tmp_path, records)
    assert shown(tmp_path).count("<svg") == 3


def test_labels_in_the_margin_do_not_touch():
    def heights(gap):
        axes = Figure().subplots()
        axes.set_ylim(0, 1)
        labels = [drawing.Label(str(y), 0.5, y, drawing.COLORS[0]) for y in (0, 0, 0.5, 0.51, 1, 1)]
        original, drawing.LABEL_GAP = drawing.LABEL_GAP, gap
        try:
            drawing.margin_labels(axes, labels)
        finally:
            drawing.LABEL_GAP = original
        at = sorted(text.xyann[1] for text in axes.texts)
        return at, min(b - a for a, b in itertools.pairwise(at))

    at, nearest = heights(drawing.LABEL_GAP)
    assert nearest >= drawing.LABEL_GAP - 1e-9
    assert min(at) >= 0
    assert max(at) <= 1
    assert heights(0.0)[1] == 0


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


def test_the_page_needs_nothing_but_itself(page_text):
    page = Page(page_text)
    assert page.outside == []
    assert len(page.ids) == len(set(page.ids))
    assert page.used <= set(page.ids)
    assert page.used
    assert len(page_text.encode()) < 500_000


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


def test_the_script_makes_the_report_again(workdir, tmp_path, capsys):
    (workdir / "report.html").unlink(missing_ok=True)
    assert main([str(workdir)]) == 0
    assert (workdir / "report.html").exists()
    assert "report.html" in capsys.readouterr().out
    assert main([str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
