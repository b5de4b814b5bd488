"""Pages in docs/: Markdown of a report's parts, and pages made from stored runs."""

import hashlib
import json
import re
import shutil
import subprocess
import tarfile
from html.parser import HTMLParser

import pytest
from markdown_it import MarkdownIt
from matplotlib.figure import Figure

import experiments
from experiments import limits
from experiments.board.leaderboard import page as board
from experiments.compare.length_extrapolation import page as by_length
from experiments.invariance.permutation import page as permutation
from posenc_jax.lab import report, runs
from posenc_jax.lab.report import document, markdown
from posenc_jax.lab.report.sections import Cell, Picture
from posenc_jax.lab.summary import Estimate, Summary
from scripts.experiment_page import MARKS, main, write
from tests.experiments.invariance.test_permutation import numbers
from tests.support import ROOT

DOCS, RESULTS = ROOT / "docs", ROOT / "results"
NASTY = '<b>|a| *x* _y_ `z` [w](u) &amp; "v"'
ENVIRONMENT = {"started": "2026-11-23T01:02:03", "command": "python train.py --config=c.py",
               "commit": "ab", "python": "3", "jax": "0", "device": "cpu", "cpus": 2}  # fmt: skip


class Read(HTMLParser):
    """The texts of a page by element, and the elements that it has."""

    def __init__(self, lines):
        super().__init__()
        self.texts, self.tags, self._open = [], [], []
        self.feed(MarkdownIt("gfm-like", {"linkify": False}).render("\n".join(lines)))

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes).get("src", "")))

    def handle_data(self, data):
        self.texts.append(data)


def draw():
    return Figure()


def rendered():
    rows = [(NASTY, Cell("1.0", "±0.1", "a note", bold=True)), ("rope\nb", "2.0")]
    grid = report.Grid(("method", "length\n "), rows, NASTY, below=[("unigram", "4.0")])
    parts = ["a sentence: " + NASTY, grid, report.Picture("line", draw, "how to read it")]
    inner = report.Section("Inside", ["deep"])
    hidden = report.Section("Hidden", ["under it", inner], folded=True)
    return markdown.render([report.Section("Shown", parts), hidden], "figures/{}.png".format)


def test_every_part_of_a_section_is_in_its_markdown():
    lines = rendered()
    page = Read(lines)
    text = "".join(page.texts)
    for part in ("Shown", "±0.1", "a note", "unigram", "how to read it", "under it", "deep"):
        assert part in text
    assert ("img", "figures/line.png") in page.tags
    assert [tag for tag, _ in page.tags].count("tr") == 4
    assert [tag for tag, _ in page.tags].count("table") == 1
    assert lines.index("## Shown") < lines.index("<details><summary>Hidden</summary>", 1)
    assert lines.index("### Inside") < lines.index("</details>")
    assert "| rope<br>b | 2.0 |" in lines


def test_a_page_may_be_a_part_of_one_that_is_written_by_hand(tmp_path, monkeypatch):
    monkeypatch.setattr(document, "pictures", lambda parts: ())
    summary = Summary(own={"order": {"nope": numbers(0.5, 1e-7)}, "text": {}})
    tested = {"order": {"symbols": 8, "steps": 50},
              "equivariance": {"permutations": 4, "lengths": [16]}}  # fmt: skip
    config = {"experiment": "permutation", "seeds": 1, **tested}
    run = runs.read(stored(tmp_path / "a", config, summary.content()))
    docs = tmp_path / "docs"
    alone = write([run], tmp_path, packed(tmp_path))
    assert alone == docs / "permutation.md", "control: without marks it is a page"
    text = alone.read_text()
    begin, end = (mark.format("permutation") for mark in MARKS)
    (docs / "larger.md").write_text(f"# By hand\n\nbefore\n\n{begin}\nold\n{end}\n\nafter\n")
    for _ in range(2):  # again, it is the same
        assert write([run], tmp_path, packed(tmp_path)) == docs / "larger.md"
        assert not alone.exists()
        larger = (docs / "larger.md").read_text()
        assert larger.startswith(f"# By hand\n\nbefore\n\n{begin}\n\n- ")
        assert larger.endswith(f"{end}\n\nafter\n")
        assert "old" not in larger.split()
        heads = [f"#{line}" for line in text.splitlines() if line.startswith("##")]
        assert [line for line in larger.splitlines() if line.startswith("##")] == heads


def test_texts_are_no_markup(monkeypatch):
    assert "".join(Read(rendered()).texts).count(NASTY) == 3
    monkeypatch.setattr(markdown, "escape", lambda text: text)
    assert NASTY not in "".join(Read(rendered()).texts), "control: without escaping it is"


def stored(folder, config, summary, records=()):
    folder.mkdir(parents=True)
    config = {"wandb": {}, **config, "environment": ENVIRONMENT}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    (folder / "summary.json").write_text(json.dumps(summary))
    return folder


def packed(folder):
    """An archive, which need not hold the runs for the text of a page."""
    (folder / "x.tar.xz").write_bytes(b"")
    return folder / "x.tar.xz"


def text_of(path):
    return " ".join(Read(path.read_text("utf-8").splitlines()).texts)


@pytest.mark.thorough
def test_the_page_of_a_run_has_its_sentences_figures_and_records(tmp_path, capsys):
    order = {"nope": numbers(0.5, 1e-7), "rope": numbers(1.0, 0.3), "lstm": numbers(1.0, 0.4)}
    text = {"rope": Estimate(2.5, None, None, [2.5])}
    summary = Summary(own={"order": order, "text": text, "text_baselines": {"unigram": 4.5}})
    config = {
        "experiment": "permutation", "seeds": 1, "order": {"symbols": 3, "steps": 9},
        "equivariance": {"permutations": 2, "lengths": [2, 32]},
    }  # fmt: skip
    run = stored(tmp_path / "a", config, summary.content())
    assert main([str(run), f"--to={tmp_path}"]) == 0
    page, archive = tmp_path / "docs" / "permutation.md", tmp_path / "results/permutation.tar.xz"
    text = text_of(page)
    for part in permutation.conclusions(summary.own):
        assert part in text
    assert "Every permutation: 2 random ones were drawn at each of 2, 32 tokens." in text
    assert "1 of 2 methods" in text
    assert "exactly one half, in every seed: nope;" in text
    assert "2.50 with rope" in text
    assert ENVIRONMENT["command"] in text
    figures = re.findall(r"\]\((permutation/\w+\.svg)\)", page.read_text())
    assert len(figures) == 3
    assert all((page.parent / figure).stat().st_size > 1000 for figure in figures)
    before, written = archive.read_bytes(), page.read_text()
    assert hashlib.sha256(before).hexdigest() in written
    [stored_run] = runs.read_archive(archive)
    assert stored_run.summary == summary
    assert main([str(run), f"--to={tmp_path}"]) == 0
    assert archive.read_bytes() == before
    assert main([str(archive), f"--to={tmp_path / 'again'}"]) == 0
    assert (tmp_path / "again" / "docs" / "permutation.md").read_text() == written
    broken = tmp_path / "broken.tar.xz"
    broken.write_bytes(before[:99])
    assert main([str(broken), f"--to={tmp_path}"]) == 2
    assert capsys.readouterr().err.startswith(f"archive: {broken}: ")
    # The control: with other numbers the sentences say the opposite.
    other = permutation.conclusions({**summary.own, "order": {"nope": numbers(1.0, 0.3)}})
    assert other[0].startswith("1 of 1 methods")
    assert "every seed: none;" in other[0]


def by_length_run(folder, name, value, steps=100, task="copy", seeds=2, beyond=0.1, **train):
    """A run on a task whose scores are `value`, and a share of it beyond the trained length."""
    metrics = ("bits_per_byte" if task == "stdlib" else "exact_match", "token_accuracy")
    records = [
        {"step": steps, "seed": seed, "metric": metric,
         "labels": {"encoding": label, "split": "test", "length": length},
         "value": (value + 0.001 * seed) * share}
        for seed in range(seeds) for metric in metrics for label in name.split(",")
        for length, share in ((8, 1.0), (128, beyond))
    ]  # fmt: skip
    config = {
        "experiment": "length_extrapolation", "seeds": seeds, "first_seed": 0,
        "encoding": {"name": name.split(",")[0]}, "task": {"name": task},
        "eval": {"variants": [], "lengths": [8, 128], "examples": 32},
        "model": {"kind": "decoder", "layers": 1, "width": 8, "heads": 2},
        "train": {"steps": steps, "batch": 4, "length": 8, "min_length": 1, "lr": 0.1, **train},
    }  # fmt: skip
    summary = report.summarise(records, metric=metrics[0], train_length=8)
    return stored(folder, config, summary.content(), records)


@pytest.mark.thorough
def test_the_page_of_length_extrapolation_is_about_all_its_runs(tmp_path, capsys):
    folder = tmp_path / "runs"
    by_length_run(folder / "1", "nope", 0.5)
    by_length_run(folder / "2", "rope,pi", 0.97)
    by_length_run(folder / "3", "alibi", 0.96)
    by_length_run(folder / "4", "alibi", 0.99, steps=200)
    by_length_run(folder / "5", "fox", 2.0, task="stdlib")
    assert main([str(folder), f"--to={tmp_path}"]) == 0
    text = text_of(tmp_path / "docs" / "length_extrapolation.md")
    assert "copy: 3 of 4 methods reach 0.95 in exact match, not nope" in text
    best = "copy at 16×, the best that learned it: rope, pi (not told apart from alibi)"
    assert f"{best}, 0.097 token accuracy, rope 0.097, the floor 0.0" in text
    archived = runs.read_archive(tmp_path / "results" / "length_extrapolation.tar.xz")
    name, said, sections = experiments.document(archived)
    lines = document.whole(name, archived, said, sections, str).splitlines()
    whole = " ".join(Read(lines).texts)
    assert len(re.findall(r"\bfloor \n 0\.", whole)) == 2, "of both metrics, not of text"
    for k in (3, 8):
        shares = re.findall(rf"content, {k} tokens \n ([01]\.\d+) ", whole)
        assert len(shares) == 2, "of both metrics, not of text"
        assert float(shares[1]) > 0.95, "three symbols before tell the next one of 100"
    assert "stdlib at 16×, the best that learned it: fox, 0.200 bits per byte" in text
    assert "more steps: alibi on copy (2× the steps). No mean moves by more than 0.05." in text
    assert whole.count("alibi, 200 steps") == 2, "of both metrics"
    assert "alibi, 200 steps" not in text, "the page in docs/ has one table a task"
    assert "Not learned at the trained length: nope." in text
    assert "5 runs" in capsys.readouterr().out
    assert len(archived) == 5
    # The controls: none is above the floor; none learned it, so none is named beyond.
    said, _ = by_length.document(
        [runs.read(by_length_run(tmp_path / "floor", "rope", 0.95, beyond=0.05))]
    )
    assert re.search(r"copy at 16×: no method is above the floor, 0\.0\d\d token accuracy", said[0])
    actual = [runs.read(by_length_run(tmp_path / "low", "nope,rope", 0.5))]
    said, sections = by_length.document(actual)
    assert "copy: no method learned it" in said[0]
    assert sections[-1].parts[1] == "More steps of training were not measured."
    actual.append(runs.read(by_length_run(tmp_path / "more", "rope", 0.97, steps=200)))
    actual.append(runs.read(by_length_run(tmp_path / "far", "nope", 0.5, steps=200, beyond=0.3)))
    _, sections = by_length.document(actual)
    within, more_steps = sections[-1].parts
    reach = "copy: 0 of 2 methods reach 0.95 in exact match, not nope, rope"
    assert within.endswith(f"{reach}, but with more steps rope too.")
    assert more_steps.endswith(
        "more than 0.05, so this is not decided: copy at the trained length (rope); "
        "copy beyond the trained length (nope)."
    )


def test_settings_that_runs_share_are_said_once(tmp_path):
    """A field that a run does not have yet is shared, but not an option of another task."""
    tasks = {"a": {"name": "copy"}, "b": {"name": "copy"}, "c": {"name": "stdlib", "stretch": 9}}
    stored_runs = [
        runs.read(stored(tmp_path / name, {"train": {"steps": 5} | new, "task": task}, {}))
        for (name, task), new in zip(tasks.items(), ({}, {"remat": False}, {}), strict=True)
    ]
    stored_runs[1].environment["command"] += " --config.task.name=copy"
    shared, _, each = document.whole("x", stored_runs, ["said"], [], str).split("```")[1:4]
    assert shared.split("\n")[1:-1] == ["train.steps: 5", "train.remat: False"]
    command = ENVIRONMENT["command"]
    assert each.split("\n")[1:-1] == [
        *("", "task.name: copy", "# a", command),
        *("", "# b", f"{command} --config.task.name=copy"),
        *("", "task.name: stdlib", "task.stretch: 9", "# c", command),
    ]


def test_a_page_names_commits_and_the_processor_if_every_run_does(tmp_path):
    stored_runs = [runs.read(stored(tmp_path / name, {}, {})) for name in "ab"]
    stored_runs[1].environment["commit"] = f"{'0123456789' * 4}-dirty"
    for processors, said in ((1, "2 cores"), (2, "2 cores of abacus")):
        stored_runs[processors - 1].environment["processor"] = "abacus"
        document.write(tmp_path / "x.md", stored_runs, ["said"], [], packed(tmp_path))
        line = f"at commit ab, 0123456789-dirty, Python 3, JAX 0 on cpu, {said}. "
        assert line in (tmp_path / "x.md").read_text()


@pytest.mark.thorough
@pytest.mark.parametrize(("task", "unit"), [("copy", "symbols"), ("stdlib", "bytes")])
def test_a_figure_by_length_says_what_its_lengths_count(task, unit, tmp_path):
    run = runs.read(by_length_run(tmp_path / "run", "nope", 0.97, task=task))
    run.summary.facts["task"] = {"task": task}
    _, [section, _] = by_length.document([run])
    picture = next(part for part in section.parts if isinstance(part, Picture))
    assert picture.draw().axes[0].get_xlabel() == f"test length ({unit}, log scale)"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "alibi"}, "workdir: alibi on copy with seed 0 is in "),
        ({"name": "rope", "lr": 0.2}, "workdir: runs on copy differ in config.train.lr"),
    ],
)
def test_runs_that_make_no_page_are_refused_in_one_line(changes, message, tmp_path, capsys):
    by_length_run(tmp_path / "runs" / "1", "alibi", 0.9)
    by_length_run(tmp_path / "runs" / "2", **{"value": 0.9, **changes})
    assert main([str(tmp_path / "runs"), f"--to={tmp_path}"]) == 2
    said = capsys.readouterr().err
    assert said.startswith(message)
    assert said.count("\n") == 1
    assert not list(tmp_path.glob("**/*.md"))


def test_runs_of_other_experiments_are_refused(tmp_path):
    other_run = runs.read(stored(tmp_path / "a", {"experiment": "permutation"}, {}))
    other = runs.read(stored(tmp_path / "b", {"experiment": "images"}, {}))
    with pytest.raises(ValueError, match=r"^workdir: runs of several experiments: images, perm"):
        experiments.document([other_run, other])
    ledger = runs.read(stored(tmp_path / "c", {"experiment": "claims"}, {}))
    with pytest.raises(ValueError, match=r"^workdir: claims has no page in docs/; choices: "):
        experiments.document([ledger])
    with pytest.raises(ValueError, match=r"^workdir: 2 runs are given; the page is about one run"):
        experiments.document([other_run, other_run])


def test_a_page_in_docs_is_short_and_that_of_the_site_is_whole(tmp_path):
    """What is folded, tables longer than a screen and settings are on the site alone."""
    run = runs.read(stored(tmp_path / "a", {"experiment": "dna", "seeds": 77}, {}))
    table = lambda count: report.Grid(("method", "x"), [(f"m{n}", "1") for n in range(count)], "c")
    hidden = report.Section("Hidden", ["under", table(3), Picture("inner", draw, "")], folded=True)
    shown = report.Section("Shown", [table(document.ROWS), table(99), Picture("line", draw, "")])
    sections = [shown, hidden, report.Section("Only hidden", [hidden])]
    document.write(tmp_path / "x.md", [run], ["said"], sections, packed(tmp_path))
    short = (tmp_path / "x.md").read_text()
    whole = document.whole("x", [run], ["said"], sections, "figures/{}.png".format)
    assert "The table of 99 rows is on the site." in short
    assert [path.name for path in (tmp_path / "x").iterdir()] == ["line.svg"]
    for part in ("m98", "Hidden", "Only hidden", "under", "seeds: 77", "(x/shown_2.csv)"):
        assert part not in short
        assert part in whole
    for page in (short, whole):
        assert "said" in page
        assert f"m{document.ROWS - 1} |" in page
        assert "Measured 2026-11-23" in page
    assert "all 4 tables" in short
    assert short.index("## Shown") < short.index("## How it was measured")


def test_docs_hold_what_people_read_and_it_is_small():
    """Nothing that a method or a run adds to is in docs/, and a page is not endless."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    files = [
        path for name in listed.stdout.decode().split("\0")[:-1] if (path := ROOT / name).exists()
    ]
    sizes = {path.relative_to(ROOT).as_posix(): path.stat().st_size for path in files}
    assert sum(size for name, size in sizes.items() if name.startswith("docs/")) < 5e6
    large = [n for n, size in sizes.items() if size > 5e5 and not n.startswith("results/")]
    assert large == ["experiments/pretrained/model/model.safetensors"]
    goldens = sum(size for n, size in sizes.items() if n.startswith("tests/goldens/huggingface"))
    assert goldens < 5e6
    figures = [n for n in sizes if n.startswith("docs/") and n.endswith((".png", ".svg"))]
    assert [name for name in figures if sizes[name] > 2e5] == []
    drawn = [(ROOT / name).read_text("utf-8") for name in figures if name.endswith(".svg")]
    assert len(drawn) > 60
    assert all("prefers-color-scheme: dark" in text for text in drawn)
    lines = {path.name: path.read_text("utf-8").count("\n") for path in DOCS.glob("*.md")}
    assert {name: count for name, count in lines.items() if count > 400} == {}
    assert lines["leaderboard.md"] <= 250


class OnceForEachTask(dict):
    """A function of a run that the control does not change: it is called once for each task."""

    def __init__(self, of):
        self._of = of

    def __call__(self, run, *test):
        task = run.config["task"]["name"], *test
        if task not in self:
            self[task] = self._of(run, *test)
        return self[task]


PAGES = {path.name.partition(".")[0] for path in RESULTS.glob("*.tar.xz")} - {
    "claims",
    "catalogue",
    "linux_tokens",  # tests/test_tokens_page.py
}  # of other scripts


@pytest.mark.thorough(after=4)
@pytest.mark.parametrize("page", sorted(PAGES))
def test_the_committed_page_follows_from_the_committed_records(page, tmp_path, monkeypatch):
    monkeypatch.setattr(document, "pictures", lambda parts: ())
    monkeypatch.setattr(board, "floor_of", OnceForEachTask(board.floor_of))
    monkeypatch.setattr(by_length, "floors_of", OnceForEachTask(by_length.floors_of))
    by_content = OnceForEachTask(by_length.content_floors_of)
    monkeypatch.setattr(by_length, "content_floors_of", by_content)
    archive = RESULTS / f"{page}.tar.xz"
    stored_runs = runs.read_archive(archive)
    name, said, sections = experiments.document(stored_runs)
    (tmp_path / "docs").mkdir()
    for larger in DOCS.glob("*.md"):
        if MARKS[0].format(name) in larger.read_text("utf-8"):
            shutil.copy(larger, tmp_path / "docs")
    written = write(stored_runs, tmp_path, archive)
    wanted = (DOCS / written.name).read_text("utf-8")
    assert written.read_text("utf-8") == wanted
    assert len([*written.parent.glob("*.md")]) == 1
    for path in re.findall(r"\]\(([^)#]+)", wanted):
        assert (DOCS / path).exists(), path
    whole = document.whole(name, stored_runs, said, sections, str)
    # The control: another number in a record or a summary gives another page of the site.
    with tarfile.open(archive) as packed_runs:
        packed_runs.extractall(tmp_path / "runs", filter="data")
    for name in ("summary.json", "metrics.jsonl"):
        path = next((tmp_path / "runs").glob(f"**/{name}"))
        text = path.read_text("utf-8")
        # On some pages no share is 1, and some have bits, of 1 or of 2.
        text = re.sub(r"\b1\.0\b", "0.25", text)
        less = lambda actual: f"{float(actual[0]) - 0.1:.1f}"
        text = re.sub(r"\b(0\.9|1\.3|2\.6)(?=\d)", less, text)
        path.write_text(text)
    changed = [runs.read(path) for path in sorted(runs.finished([tmp_path / "runs"]))]
    name, said, sections = experiments.document(changed)
    assert document.whole(name, changed, said, sections, str) != whole


def test_a_page_says_what_its_runs_cannot_show(tmp_path):
    """From the configs of its runs; the section stands before what is folded."""
    model = {"kind": "encoder", "layers": 1, "width": 8, "heads": 2}
    config = {
        "seeds": 3, "model": model, "task": {"name": "copy"}, "encoding": {"name": "rope"},
        "train": {"steps": 1500, "batch": 4, "lr": 0.1, "length": 8},
        "eval": {"lengths": [8, 32]},
    }  # fmt: skip
    other = {**config, "train": {**config["train"], "steps": 500}, "task": {"name": "reverse"},
             "encoding": {"name": "rope", "base": 100}}  # fmt: skip
    first = runs.read(stored(tmp_path / "a", config, {}))
    second = runs.read(stored(tmp_path / "b", other, {}))
    shown, hidden = report.Section("Shown", []), report.Section("Hidden", [], folded=True)

    def said(runs_, others=()):
        sections = limits.with_section([shown, hidden], runs_, others)
        assert [section.title for section in sections] == ["Shown", limits.TITLE, "Hidden"]
        return sections[1].parts

    assert said([first], ["Own."]) == [
        "- Other models than an encoder of 1 layer, width 8, 2 heads.",
        "- Other budgets than 1,500 steps of 4 examples at learning rate 0.1.",
        "- Differences that are too small for 3 seeds.",
        "- Other tasks than copy.",
        "- Inputs beyond 4 times the size in training.",
        "- Other options of the methods: each has its defaults.",
        "- Own.",
    ]
    both = said([first, second])
    assert both[0] == said([first])[0], "a model is named once"
    assert both[1] == "- Other budgets than 500 to 1,500 steps of 4 examples at learning rate 0.1."
    assert both[3] == "- Other tasks than copy and reverse."
    assert both[5] == "- Other options of the methods: each has its defaults, but for base 100."
    # The control: a run whose config says nothing of these.
    silent = runs.read(stored(tmp_path / "c", {"seeds": 1}, {}))
    assert limits.with_section([shown, hidden], [silent], ()) == [shown, hidden]


def test_several_sentences_are_a_list_and_abbreviations_are_capitals(tmp_path):
    run = runs.read(stored(tmp_path / "a", {"experiment": "dna"}, {}))
    for name, said, count in (("dna", ["a <b> _c_", "d"], 2), ("long_memory", ["a <b> _c_"], 0)):
        document.write(tmp_path / f"{name}.md", [run], said, [], packed(tmp_path))
        page = Read((tmp_path / f"{name}.md").read_text("utf-8").splitlines())
        assert [tag for tag, _ in page.tags].count("li") == count
        assert {"DNA" if count else "Long memory", *said} <= set(page.texts)
