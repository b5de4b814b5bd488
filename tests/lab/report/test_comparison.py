"""One page over many runs: what is merged, and the page in a real browser."""

import json
import math
import struct

import numpy as np
import pytest

from posenc_jax.lab import report, runs
from posenc_jax.lab.report import Grid, comparison, length_table
from posenc_jax.lab.report.statistics import interval
from scripts.report import main
from tests.support import ROOT
from tests.support.browser import ask
from tests.support.report_runs import NASTY, make_records, record, summarise


def write(path, records, **config):
    base = {
        "experiment": "length_extrapolation",
        "encoding": {"name": "rope"},
        "wandb": {"mode": "x"},
    }
    with runs.Run(path, base | config) as run:
        run.log(records)
        run.finish(summarise(records))
    return path


def of(*seeds, shift=0.0):
    return [{**r, "value": r["value"] + shift} for r in make_records() if r["seed"] in seeds]


# Layer 0 sees the token before alone, layer 1 all up to the query alike.
MAPS = np.stack(
    [
        np.stack([m] * 2)
        for m in (
            np.eye(8, k=-1) + np.eye(8) * (np.arange(8) == 0),
            np.tril(np.ones((8, 8))) / np.arange(1, 9)[:, None],
        )
    ]
)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Two seeds and a third of one config, and a run with another rate and a nasty task."""
    root = tmp_path_factory.mktemp("runs")
    (root / "a" / "attention").mkdir(parents=True)
    np.save(root / "a" / "attention" / "rope.npy", MAPS.astype(np.float16))
    return [
        write(root / "a", of(0, 1), train={"lr": 0.1}, seeds=2, task={"name": "copy"}),
        write(root / "b", of(2), train={"lr": 0.1}, seeds=1, task={"name": "copy"}),
        write(root / "c", of(0, 1, 2, shift=1.0), train={"lr": 0.2}, task={"name": NASTY}),
    ]


@pytest.fixture(scope="module")
def merged(folders):
    return comparison.merge([runs.read(folder) for folder in folders], ["a", "b", "c"])


def cell(line, metric, length):
    return next(row for row in line["cells"][metric] if row[0] == length)


def test_runs_that_differ_in_their_seeds_alone_are_one_line(merged):
    labels = [line["label"] for line in merged["lines"]]
    assert labels == [
        "rope · lr 0.1 · task copy", "randomized+rope · lr 0.1 · task copy",
        f"rope · lr 0.2 · task {NASTY}", f"randomized+rope · lr 0.2 · task {NASTY}",
    ]  # fmt: skip
    _, mean, low, high, seeds, *texts = cell(merged["lines"][0], "bits_per_byte", 16)
    assert texts == ["2.260", "±0.025", "2.250, 2.260, 2.270"]
    assert seeds == [2.25, 2.26, 2.27]
    assert [mean, low, high] == pytest.approx(interval(seeds)[:3], rel=1e-5)
    assert cell(merged["lines"][2], "bits_per_byte", 16)[4] == [3.25, 3.26, 3.27]
    assert [metric["name"] for metric in merged["metrics"]] == ["bits_per_byte"]


@pytest.mark.parametrize("metric", ["bits_per_byte", "exact_match"])
@pytest.mark.parametrize("values", [(0.0625,), (0.13449999951,), (0.0625, 0.1875, 0.4)])
def test_a_number_is_rounded_as_in_the_report(tmp_path, metric, values):
    """Ties such as .0625 are where JavaScript and Python round apart, and .1345 where a number is
    rounded twice.
    """
    records = [record(seed, "rope", 8, value, metric=metric) for seed, value in enumerate(values)]
    with runs.Run(tmp_path / "run", {"experiment": "length_extrapolation"}) as run:
        run.log(records)
        run.finish(
            report.summarise(records, metric=metric, train_length=8, baselines={}, not_measured=[])
        )
    stored = runs.read(tmp_path / "run")
    (grid,) = (part for part in length_table.page(stored)[1][0].parts if isinstance(part, Grid))
    shown = grid.rows[0][1]
    (row,) = comparison.merge([stored], ["a"])["lines"][0]["cells"][metric]
    assert row[5:7] == [shown.text, shown.half]
    assert shown.text == f"{sum(values) / len(values):.3f}"
    script = (comparison.HERE / "comparison.js").read_text("utf-8")
    assert "number(" not in script, "the page rounds nothing itself"


def test_two_runs_of_one_seed_are_told_apart_and_never_pooled(folders, tmp_path):
    again = write(tmp_path / "again", of(1), train={"lr": 0.1}, task={"name": "copy"})
    actual = comparison.merge([runs.read(f) for f in (folders[0], again)], ["a", "again"])
    assert [line["label"] for line in actual["lines"]] == [
        "rope (a)", "randomized+rope (a)", "rope (again)", "randomized+rope (again)",
    ]  # fmt: skip
    assert len(cell(actual["lines"][0], "bits_per_byte", 8)[4]) == 2


def test_what_the_configs_differ_in_is_shown(merged):
    assert merged["fields"] == ["lr", "task"]
    assert [run["values"] for run in merged["runs"]] == [["0.1", "copy"], ["0.1", "copy"],
                                                         ["0.2", NASTY]]  # fmt: skip


def test_labels_say_where_a_training_started_only_if_nothing_else_tells_runs_apart(tmp_path):
    def merged(*configs):
        stored = []
        for steps, run, step in configs:
            number, start = len([*tmp_path.iterdir()]), {"run": run, "step": step}
            folder = write(tmp_path / str(number), of(0), train={"steps": steps}, start=start)
            stored.append(runs.read(folder))
        return comparison.merge(stored, [run.path.name for run in stored])

    labels = lambda data: [line["label"] for line in data["lines"] if line["encoding"] == "rope"]
    extended = merged((800, "", None), (1000, "/x/runs/mine", 640))
    assert labels(extended) == ["rope · steps 800", "rope · steps 1000"]
    assert extended["fields"] == ["steps", "start.run", "start.step"]
    assert [run["values"] for run in extended["runs"]] == [
        ["800", "", ""], ["1000", "mine", "640"],
    ]  # fmt: skip
    tuned = merged((9, "", None), (9, "/x/a/run", 4), (9, "/x/b/run", 8))
    assert labels(tuned) == ["rope", "rope · start.run a/run", "rope · start.run b/run"]
    kept = merged((9, "/x/a", 4), (9, "/x/a", 8))
    assert labels(kept) == ["rope · start.step 4", "rope · start.step 8"], "control"


def test_curves_are_thinned_to_their_ends_and_nan_is_null(tmp_path):
    steps = [{**r, "step": step, "value": math.nan if step == 999 else step * math.log(2)}
             for r in of(0)[:1] for step in range(1000)]  # fmt: skip
    actual = comparison.merge([runs.read(write(tmp_path, [*steps, *of(0)]))], ["a"])
    training = actual["lines"][0]["training"]["bits_per_byte"]
    assert len(training) <= comparison.POINTS + 1
    assert (training[0][0], training[-1][0]) == (0, 999)
    assert training[-1][1:] == [None, None, None, [None], "not finite", ""]
    assert training[1][0] == training[1][1], "nats are bits, as the results"
    assert actual["training"] == {"bits_per_byte": "bits per byte"}, "no other curve was recorded"


def test_a_run_that_is_no_table_by_length_is_listed_with_its_report(tmp_path):
    with runs.Run(tmp_path / "claims", {"experiment": "claims"}) as run:
        run.finish({"claims": {}})
    (tmp_path / "claims" / "report.html").write_text("")
    actual = comparison.compare([tmp_path / "claims"], tmp_path / "page.html", "page")
    assert actual["lines"] == []
    (run,) = actual["runs"]
    assert ["report.html", "claims/report.html"] in run["links"]


def test_a_run_of_another_kind_is_listed_beside_runs_by_length(folders, tmp_path):
    """`pretrained` has a trained length, and other tables than those by length."""
    with runs.unpacked(ROOT / "results" / "pretrained_results.tar.xz") as archive:
        (released,) = runs.finished([archive])
        assert main([*map(str, folders), str(released), f"--out={tmp_path / 'all.html'}"]) == 0
        actual = comparison.compare([*folders, released], tmp_path / "all.html")
    alone = comparison.compare(folders, tmp_path / "alone.html")
    assert len(actual["runs"]) == len(folders) + 1
    assert actual["lines"] == [
        {**line, "label": other["label"]}
        for line, other in zip(alone["lines"], actual["lines"], strict=True)
    ]
    assert actual["baselines"] == alone["baselines"]


def test_the_tables_are_files_and_the_title_says_what_is_compared(folders, tmp_path):
    comparison.compare(folders, tmp_path / "all.html")
    title = (tmp_path / "all.html").read_text("utf-8").split("<title>")[1].split("</title>")[0]
    assert title.startswith("Length extrapolation on copy, ")
    assert title.endswith(": rope, randomized+rope")
    written = (tmp_path / "all-tables" / "bits_per_byte.csv").read_text("utf-8").splitlines()
    assert written[0] == "length,8,8 half,16,16 half,32,32 half"
    assert written[1].startswith("rope · lr 0.1 · task copy,2.135,0.025,2.260,0.025,")
    assert (tmp_path / "all-tables" / "bits_per_byte.tex").is_file()


def test_the_script_writes_one_page_over_many_runs(folders, tmp_path, capsys):
    root, out = folders[0].parent, tmp_path / "deep" / "all.html"
    assert main([str(root), f"--out={out}"]) == 0
    assert "3 runs, 4 lines" in capsys.readouterr().out
    text = out.read_text("utf-8")
    assert main([*map(str, folders)]) == 0
    # The control: another page stands elsewhere, so its links to the records differ.
    assert text != (root / "comparison.html").read_text("utf-8")
    (root / "comparison.html").unlink()
    assert main([str(folders[0]), str(folders[0])]) == 2
    assert "twice" in capsys.readouterr().err
    assert main([str(folders[0]), str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


CLICKS = """
const texts = (query) => [...document.querySelectorAll(query)].map((e) => e.textContent);
const lines = (id) => document.querySelectorAll(`#${id} .line`).length;
const told = { lead: texts("#lead")[0], chips: texts("#chips button"), cells: texts("#table td"),
  before: ["length", "training", "position"].map(lines),
  bands: document.querySelectorAll("#length .band").length,
  seeds: document.querySelectorAll("#length circle").length,
  baselines: texts("#length .baseline"), ends: texts("#length .end title"),
  merged: texts("#training .end title"),
  positions: texts("#position text"), title: texts("h1")[0] };
document.querySelector("#chips button").click();
told.after = ["length", "training", "position"].map(lines);
told.rows = texts("#table tbody th");
const box = [...document.querySelectorAll("label")].find((l) => l.textContent.includes("seeds"));
box.querySelector("input").click();
told.noSeeds = document.querySelectorAll("#length circle").length;
box.querySelector("input").click();
const search = document.querySelector("input[type=search]");
search.value = "RANDOM"; search.oninput();
told.found = texts("#chips button");
[...document.querySelectorAll("button")].find((b) => b.textContent === "none").click();
told.left = lines("length");
[...document.querySelectorAll("button")].find((b) => b.textContent === "all").click();
search.value = ""; search.oninput();
data.lines[1].cells[view.metric][0][2] -= 5;
document.querySelectorAll("#chips button")[1].ondblclick();
told.only = lines("length");
told.band = document.querySelector("#length .band").getAttribute("d").match(/,[\\d.]+/g)
  .map((y) => +y.slice(1));
told.axis = [16, document.querySelector("#length svg").viewBox.baseVal.height - 52];
const select = document.querySelectorAll("select")[2];
told.lengths = [...select.options].map((o) => o.value);
select.value = "8"; select.onchange();
told.short = lines("position");
const svg = document.querySelector("#length svg"), size = svg.getBoundingClientRect();
svg.onpointermove({ clientX: size.left + size.width * 0.5 });
told.tip = texts("#length .tip")[0];
told.links = [...document.querySelectorAll("#runs a")].map((a) => a.getAttribute("href"));
const pixel = () => [...document.querySelectorAll("#attention canvas")].map((canvas) =>
  [...canvas.getContext("2d").getImageData(2, 3, 1, 1).data].at(-1));
told.looked = texts("#attention option");
told.maps = [pixel()];
const layer = [...document.querySelectorAll("#attention select")].at(-1);
layer.value = "1"; layer.onchange();
told.maps.push(pixel());
told.wide = document.documentElement.scrollWidth <= innerWidth;
return told;
"""


@pytest.fixture(scope="module")
def page(folders):
    path = folders[0].parent / "page.html"
    comparison.compare(folders, path, "Three & more <runs>")
    text = path.read_text("utf-8")
    path.unlink()
    return text


@pytest.mark.browser
def test_the_page_works_in_a_browser_and_asks_for_nothing(page, tmp_path):
    picture = tmp_path / "page.png"
    told, trouble = ask(page, CLICKS, tmp_path, picture)
    assert trouble == []
    assert told["lead"] == "3 runs · 4 lines · up to 3 seeds"
    assert told["chips"][2] == f"rope · lr 0.2 · task {NASTY}"
    assert told["cells"][0] == "2.135±0.025"
    # Both encodings of a run have the same training loss, and the same values by position.
    assert told["before"] == [4, 2, 2]
    assert told["ends"][-1] == "rope · lr 0.1 · task copy"
    assert " = randomized+rope · lr 0.1" in told["merged"][-1]
    assert "1" in told["positions"]
    assert "0" not in told["positions"]
    assert told["title"] == "Three & more <runs>"
    assert (told["bands"], told["seeds"]) == (4, 36)
    low, high = told["axis"]
    assert low < min(told["band"]) < max(told["band"]) < high, "the band is drawn whole"
    assert told["baselines"] == ["bigram"]  # the other one, 40, is far outside
    assert told["after"] == [3, 2, 2]
    assert len(told["rows"]) == 3
    assert told["noSeeds"] == 0
    assert len(told["found"]) == 2
    assert told["left"] == 1
    assert told["only"] == told["short"] == 1
    assert told["lengths"] == ["8", "16", "32"]
    assert told["tip"].startswith("length 16randomized+rope · lr 0.1")
    assert "a/metrics.jsonl" in told["links"]
    assert told["looked"] == ["rope · lr 0.1 · task copy", "0", "1"]
    assert told["maps"] == [[255, 255], [pytest.approx(255 * math.sqrt(1 / 4), abs=1)] * 2]
    assert told["wide"]
    assert struct.unpack(">I", picture.read_bytes()[16:20])[0] == 1200


@pytest.mark.browser
def test_the_control_page_that_fails_or_reaches_outside_is_caught(page, tmp_path):
    image = '<img src="https://example.org/x.png">'
    broken = page.replace("</main>", f"</main>{image}").replace("build();", "built();")
    _, trouble = ask(broken, "return 1;", tmp_path)
    assert any("built" in line for line in trouble)
    assert any("example.org" in line for line in trouble)


def test_text_from_a_run_cannot_close_the_script_element(folders):
    merged = comparison.merge([runs.read(folders[2])], ["</script><script>alert(1)</script>"])
    text = comparison.html(merged, "t")
    assert text.count("<script") == 2
    data = text.split('id="data">')[1].split("</script>")[0]
    assert json.loads(data) == merged


def test_the_best_point_of_each_length_is_told_with_those_not_told_apart(tmp_path):
    rates = {"far": (1e-3, 1.0), "near": (3e-3, 0.001), "best": (2e-3, 0.0)}
    stored = [runs.read(write(tmp_path / name, of(0, 1, 2, shift=shift), train={"lr": lr}))
              for name, (lr, shift) in rates.items()]  # fmt: skip
    merged = comparison.merge(stored, [*rates])
    first, second = comparison.best(merged)[:2]
    assert first.startswith("best at 8: rope · lr 0.002, 2.")
    assert "±0.025 bits per byte" in first
    assert "not told apart: rope · lr 0.003" in first
    assert "lr 0.001" not in first
    assert second.startswith("best at 16: ")
    section = comparison.tables(merged)[0]
    assert section.title == "bits_per_byte"
    (grid,) = section.parts
    assert len(grid.rows) == len(merged["lines"])
    # The control: with the first far below, it is the best, and told apart from the others.
    stored[0] = runs.read(write(tmp_path / "low", of(0, 1, 2, shift=-1.0), train={"lr": 1e-3}))
    low, *_ = comparison.best(comparison.merge(stored, [*rates]))
    assert low.startswith("best at 8: rope · lr 0.001")
    assert "lr 0.003" not in low
    assert comparison.best({"metrics": [], "lines": []}) == [], "runs without a table by length"
