"""Summaries of records, and the table by length that is made of them."""

import io
import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from posenc_jax.lab import report, runs
from posenc_jax.lab.hosts.exit_status import Unmeasured
from posenc_jax.lab.report import formats, length_table, plots, summaries, terminal
from posenc_jax.lab.report.statistics import interval
from posenc_jax.lab.summary import Estimate, LengthSummary, parse
from posenc_jax.lab.tasks import baselines
from tests.support import ROOT
from tests.support.report_runs import make_records, record, shown, summarise, write_run

TEXT = dict.fromkeys(("train", "valid", "test"), np.arange(2048, dtype=np.uint8))


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("run"), make_records())


def printed(summary, width):
    out = io.StringIO()
    grid = length_table.results(summary)
    Console(file=out, width=width).print(terminal.table(grid, width))
    return out.getvalue()


def test_a_summary_is_the_last_step_of_the_test_split_and_no_curve():
    summary = summarise(make_records())
    cell = summary.results["rope"][16]
    assert cell.seeds == pytest.approx([2.25, 2.26, 2.27])
    assert (cell.mean, cell.low, cell.high) == interval(cell.seeds)[:3]
    assert list(summary.results) == ["rope", "randomized+rope"]
    # The controls: were the early step the last, or a curve no curve, the cell would show it.
    late = [{**r, "step": 90} if r["step"] == 30 else r for r in make_records()]
    assert summarise(late).results["rope"][16].seeds == [9.0, 9.0, 9.0]
    scalar = make_records()
    for scalar_record in scalar:
        scalar_record["labels"].pop("position", None)
    assert summarise(scalar).results["rope"][16].seeds == [7.0, 7.0, 7.0]


def test_a_summary_is_the_same_in_memory_and_from_disk(workdir):
    stored = runs.read(workdir)
    facts = {"corpus": {"sha256": "ab"}}
    assert stored.summary == replace(summarise(stored.records), facts=facts, starts=1)


@pytest.mark.parametrize("page", ["dna", "permutation", "pretrained_results", "translation"])
def test_a_stored_summary_is_read_and_written_as_it_was(page):
    with runs.unpacked(ROOT / "results" / f"{page}.tar.xz") as archive:
        for path in archive.glob("**/summary.json"):
            content = json.loads(path.read_text("utf-8"))
            assert {"floors": {}} | runs.plain("", parse(content).content()) == (
                {"floors": {}} | content
            )


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"train_length": "long"}, r"^summary\.train_length: input should be a valid integer"),
        ({"results": {"rope": {"x": {}}}}, r"^summary\.results\.rope\."),
        ({"results": {"rope": {"8": {"mean": 1.0}}}}, r"^summary\.results\.rope\.8\.low: "),
        ({"not_measured": [{"encoding": "rope"}]}, r"^summary\.not_measured\.0\.length: "),
        ({"starts": None}, r"^summary\.starts: "),
    ],
)
def test_a_summary_of_a_wrong_form_is_refused_in_one_line(entries, message):
    content = runs.plain("", summarise(make_records()).content())
    with pytest.raises(ValueError, match=message) as refusal:
        parse({**content, **entries})
    assert "\n" not in str(refusal.value)
    assert isinstance(parse(content), LengthSummary), "control"


def test_a_run_without_results_by_length_says_so(tmp_path):
    with runs.Run(tmp_path / "run", {"experiment": "claims"}) as run:
        run.finish({"claims": {}})
    with pytest.raises(ValueError, match=r"its summary\.json has no results by length$"):
        length_table.page(runs.read(tmp_path / "run"))


def test_a_summary_of_nothing_is_refused():
    with pytest.raises(ValueError, match=r"^metric: no record of 'exact_match'"):
        report.summarise(make_records(), metric="exact_match", train_length=8)
    lost = [{"encoding": "rope", "length": n, "reason": "out of memory"} for n in (64, 32)]
    with pytest.raises(Unmeasured, match=r"^nothing was measured: rope at 32: out of memory$"):
        report.summarise([], metric="loss", train_length=8, not_measured=lost)


def test_differences_are_paired_by_seed():
    actual = summaries.differences(make_records(), "bits_per_byte")
    assert (actual.first, list(actual.intervals)) == ("rope", ["randomized+rope"])
    for difference in actual.intervals["randomized+rope"].values():
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
    actual = make_records()
    for old, new in (("randomized+rope", "twin"), ("rope", "same")):
        for one in [r for r in actual if r["labels"]["encoding"] == old]:
            moved = shift if new == "twin" and one["labels"].get("length") == 16 else 0.0
            labels = {**one["labels"], "encoding": new}
            actual.append({**one, "labels": labels, "value": one["value"] + moved})
    return actual


@pytest.mark.parametrize(("shift", "twin", "comparisons"), [(1e-6, True, 3), (1e-3, False, 4)])
def test_equal_methods_are_one_line_and_one_comparison(tmp_path, shift, twin, comparisons):
    records = with_twin(shift)
    names, other = ["rope", "same"], ["randomized+rope", "twin"]
    wanted = [names, other] if twin else [names, other[:1], other[1:]]
    assert summaries.equal(summarise(records)) == wanted
    actual = summaries.differences(records, "bits_per_byte")
    assert actual.comparisons == comparisons
    assert all(interval.half == 0 for interval in actual.intervals["same"].values())
    run = runs.read(write_run(tmp_path, records))
    for draw in (lambda: plots.difference(run), lambda: plots.by_length(run.by_length)):
        texts = [text.get_text() for text in draw().axes[0].texts]
        assert ("randomized+rope = twin" in texts) == twin
    titles = [text.get_text() for text in plots.difference(run).axes[0].texts]
    assert any(f"for {comparisons} comparisons together" in text for text in titles)


@pytest.mark.parametrize(
    ("shift", "said"),
    [(0.25, "worse"), (-0.25, "better"), (0.0, "not clearly different")],
)
def test_the_only_comparison_is_named_and_not_counted(tmp_path, shift, said):
    """The control has two lengths, so two comparisons."""
    for lengths in ((8,), (8, 16)):
        records = [record(s, name, n, 2 + s / 99 + (name != "rope") * (shift + s % 2 / 50))
                   for s in range(4) for name in ("rope", "yarn") for n in lengths]  # fmt: skip
        run = runs.read(write_run(tmp_path / str(len(lengths)), records))
        axes = plots.difference(run).axes[0]
        texts = " ".join([axes.get_title(), *(text.get_text() for text in axes.texts)])
        texts = " ".join(texts.split())
        at = "at 2×" if len(lengths) > 1 else "at the trained length"
        clearly = said if said.startswith("not") else f"clearly {said}"
        assert f"Difference from rope {at}: yarn {clearly}" in texts
        counted = len(lengths) > 1
        assert (f"for {len(lengths)} comparisons together" in texts) == counted
        page = shown(run.path).replace("for all comparisons together", "")  # of any figure
        assert ("comparisons together" in page) == counted


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
    alike = summarise([record(0, name, 8, 2.1352) for name in ("rope", "yarn")])
    assert not any(row[1].bold for row in length_table.results(alike).rows), "nothing is the best"
    apart = {
        name: row[0] for name, *row in length_table.results(summary, apart=["rope", "yarn"]).rows
    }
    assert [name for name, cell in apart.items() if cell.bold] == ["alibi"], "of those compared"


def test_the_floor_is_a_row_of_its_own_at_each_length():
    records = [record(0, "rope", length, 0.5, metric="exact_match") for length in (8, 16)]
    labels = {"metric": "exact_match", "train_length": 8}
    text = printed(report.summarise(records, **labels, floors={8: 0.25, 16: 0.125}), 80)
    assert "floor     0.250  0.125" in text
    assert "needs no positions" in text.replace("\n", " ")
    assert "floor" not in printed(report.summarise(records, **labels), 80)


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
    assert formats.number(value) == text


def test_an_interval_without_a_width_is_not_written():
    assert formats.half_width(0.0123) == "±0.012"
    assert formats.half_width(0.0) == formats.half_width(None) == ""
    assert formats.span(0.333, 0.667, 2) == "0.33 to 0.67"
    assert formats.span(0.333, 0.334, 2) == "0.33", "ends that print alike"
    alike, apart = ([2.0] * 3, [2.0, 2.1, 2.2])
    assert formats.mean_and_interval(alike, "bits_per_byte") == ("2.000", "")
    assert formats.mean_and_interval(apart, "bits_per_byte")[1].startswith("±0."), "control"
    assert formats.plus_minus(Estimate(2.0, 2.0, 2.0, alike)) == "2.000"
    assert formats.plus_minus(Estimate(2.0, 1.9, 2.1, apart)) == "2.000 ±0.100", "control"
