"""What the board says of records: who learned, what carries, what is better than the reference."""

import json
import tarfile
from pathlib import Path

import numpy as np
import pytest

from experiments.board.leaderboard import other_settings, page, task_table
from experiments.board.leaderboard.config import Config
from experiments.board.leaderboard.measure_method import SHUFFLED
from experiments.board.leaderboard.other_settings import by_setting, ends, unfinished
from experiments.board.leaderboard.standings import compared, ranks, read
from posenc_jax.lab import runs
from posenc_jax.lab.runs.stored import StoredRun
from posenc_jax.lab.summary import Summary
from posenc_jax.lab.tasks.content_rules import ContentFloor
from scripts import board
from tests.support import ROOT

ARCHIVE = ROOT / "results" / "leaderboard.tar.xz"
SEEDS = range(5)


def records(values, noise=0.003, window=32):
    """Records from method -> (exact match within, token accuracy beyond or None)."""
    for method, (within, beyond) in values.items():
        labels = {"encoding": method, "length": window}
        facts = {"rate": [0.002] * 5, "parameters": [8] * 5}
        facts["steps_to_learn"] = [500, np.nan, 700, 600, 900]
        yield from runs.seed_records(0, SEEDS, {**labels, "split": "train"}, facts)
        spread = lambda value: [value + noise * (seed - 2) for seed in SEEDS]
        for n, value in ((1, within), (2, beyond), (4, beyond)):
            if value is not None:
                tested = {**labels, "split": "test", "length": n * window}
                scores = {"exact_match": spread(value if n == 1 else value / 2),
                          "token_accuracy": spread(value)}  # fmt: skip
                yield from runs.seed_records(0, SEEDS, tested, scores)


VALUES = {
    "rope": (0.99, 0.30),
    "alibi": (0.99, 0.60),
    "t5": (0.99, 0.30),
    "nope": (0.90, 0.90),  # not learned, though it reads far
    "learned": (0.99, None),
}


def test_a_method_that_did_not_learn_the_task_has_no_figure_beyond():
    rows = read(records(VALUES))
    assert [name for name, row in rows.items() if not row.learned] == ["nope"]
    table = {row[0]: row for row in task_table.table(rows, "rope").rows}
    assert table["nope"][3:6] == (".900", "not learned", "")
    assert table["alibi"][3:6] == (".990", ".300", ".300")
    assert table["learned"][3:6] == (".990", "–", "–")
    assert next(iter(table)) == "alibi", "the best beyond first"
    assert table["alibi"][2] == "700", "the seed that never learned counts as the slowest"


def test_methods_that_read_no_longer_window_have_a_table():
    rows = read(records({"learned": (0.99, None), "rbf": (0.98, None)}))
    assert [row[0] for row in task_table.table(rows, "learned").rows] == ["learned", "rbf"]
    assert compared(rows, "learned")["rbf"].gain is None
    assert [*ranks({"copy": rows})] == ["learned", "rbf"]


def test_methods_are_compared_with_the_reference():
    rows = read(records(VALUES))
    actual = compared(rows, "rope")
    assert actual["alibi"].gain.mean == pytest.approx(0.3)
    assert actual["alibi"].stars == {"gain"}
    assert actual["t5"].stars == frozenset()
    assert (actual["nope"].gain, actual["nope"].cost.mean) == (None, pytest.approx(0.09))
    assert actual["nope"].stars == {"cost"}
    assert actual["learned"].gain is None
    assert compared({"alibi": rows["alibi"]}, "rope") == {}


def test_a_difference_within_the_noise_of_seeds_has_no_star():
    noisy = list(records({"rope": (0.99, 0.3), "xpos": (0.99, 0.32)}, noise=0.0))
    for record in noisy:
        if record["labels"]["encoding"] == "xpos" and record["metric"] == "token_accuracy":
            record["value"] += 0.05 * (-1) ** record["seed"]
    assert compared(read(noisy), "rope")["xpos"].stars == frozenset()
    alike = records({"rope": (0.99, 0.3), "xpos": (0.99, 0.32)})
    assert compared(read(alike), "rope")["xpos"].stars == {"gain"}, "control"


def test_with_more_methods_a_star_needs_more():
    values = {"rope": (0.99, 0.3), "xpos": (0.99, 0.31)}
    noisy = list(records(values, noise=0.0))
    for record in noisy:
        if record["labels"]["encoding"] == "xpos" and record["metric"] == "token_accuracy":
            record["value"] += 0.003 * (-1) ** record["seed"] * (record["seed"] % 3)
    assert compared(read(noisy), "rope")["xpos"].stars == {"gain"}
    many = [*noisy, *records({f"other{n}": (0.99, 0.3) for n in range(60)})]
    assert compared(read(many), "rope")["xpos"].stars == frozenset()


def test_rows_that_read_the_weights_of_rope_are_paired_with_it():
    """Noise that a seed gives to both sides hides what is trained on its own, and only that."""
    noisy = {"rope": (0.99, 0.300), "pi": (0.99, 0.310), "xpos": (0.99, 0.310)}
    rows = read(records(noisy, noise=0.01))
    for seeds in rows["pi"].scores["token_accuracy"].values():
        seeds[0] += 1e-4
    actual = compared(rows, "rope")
    assert (actual["pi"].stars, actual["xpos"].stars) == ({"gain"}, frozenset())


def test_a_method_with_fewer_seeds_is_compared_on_those_it_has():
    for method in ("alibi", "pi"):
        told = [r for r in records({"rope": (0.99, 0.3), method: (0.99, 0.6)})
                if r["labels"]["encoding"] == "rope" or r["seed"] < 3]  # fmt: skip
        assert compared(read(told), "rope")[method].gain.size == 3


def test_ranks_are_means_over_tasks_and_not_learned_is_last():
    board = read(records({"rope": (0.99, 0.3), "alibi": (0.99, 0.6), "nope": (0.5, 0.9)}))
    other = read(records({"rope": (0.99, 0.7), "alibi": (0.99, 0.6), "nope": (0.5, 0.9)}))
    actual = ranks({"one": board, "other": other})
    assert {name: rank.mean for name, rank in actual.items()} == {
        "rope": 1.5,
        "alibi": 1.5,
        "nope": 3,
    }
    assert (actual["nope"].low, actual["nope"].high) == (3, 3)
    close = read(records({"rope": (0.99, 0.600), "alibi": (0.99, 0.601), "nope": (0.5, 0.9)}))
    for name, row in close.items():
        for by_window in row.scores["token_accuracy"].values():
            for seed in by_window:
                by_window[seed] += 0.02 * (name == "alibi") * (-1) ** seed
    unsure = ranks({"close": close})["alibi"]
    assert (unsure.low, unsure.high) == (1, 2)


def stored(path, values, task="copy", **changes):
    config = {"experiment": "leaderboard", "task": {"name": task}, "reference": "rope",
              "encoding": {"name": "known"}, "window": 32, "multiples": [1, 2, 4], "examples": 8,
              "model": {}, "train": {}, **changes}  # fmt: skip
    summary = Summary(own={"not_measured": {}, "left_out": {"axial": "since it has axes"}})
    return StoredRun(Path(path), config, {}, list(records(values)), summary)


def test_rules_of_content_are_a_table():
    floor = lambda few, many: ContentFloor(("suffix 2 newest", few), ("suffix 8 newest", many))
    floors = {
        32: {"exact_match": floor(0.2, 0.5), "token_accuracy": floor(0.9, 0.99)},
        64: {"exact_match": floor(0.1, 0.4), "token_accuracy": floor(0.8, 0.98)},
    }
    columns = task_table.content_columns(list(floors))
    few, many = (
        dict(zip(columns, row, strict=True)) for row in task_table.content_rows("copy", floors)
    )
    assert few == {
        "task": "copy, 3 tokens", "best rule": "suffix 2 newest", "exact\n1×": ".200",
        "exact\n2×": ".100", "tokens\n1×": ".900", "tokens\n2×": ".800",
    }  # fmt: skip
    assert (many["best rule"], many["exact\n2×"]) == ("suffix 8 newest", ".400")


@pytest.mark.thorough
def test_the_board_joins_tasks_and_the_runs_of_one_task():
    control = {f"rope{SHUFFLED}": (0.1, 0.1)}
    first = stored("a", {"rope": (0.99, 0.3), **control})
    rest = stored("b", {"alibi": (0.98, 0.6), "nope": (0.5, 0.9)})
    again = stored("c", {"rope": (0.99, 0.3), "alibi": (0.99, 0.6), "nope": (0.97, 0.2)}, "reverse")
    said, sections = page.document([first, rest, again])
    assert said[0].startswith("3 methods on 2 tasks; ")
    assert "on 2 of 2 (copy, reverse). So no method is named the best" in said[1]
    assert "has an exact match of at most 0.100 (copy) within" in said[2]
    rows = {row[0]: row for row in sections[0].parts[1].rows}
    assert list(rows) == ["alibi", "rope = shifted+rope", "nope"]
    assert rows["alibi"][2] == "2/2"
    assert rows["nope"][2:] == ("1/2", ".735", ".050", ".050"), "0 beyond where it was not learned"
    assert "Left out, since it has axes: axial." in sections[0].parts
    assert sections[0].parts[0].draw() is not None
    floors = {row[0]: row[1:] for row in sections[1].parts[0].rows}
    assert floors["copy"][3:] == (".990", "2/3"), "nope did not learn it"
    assert floors["reverse"][4] == "3/3"
    by_content = {row[0]: row[1] for row in sections[1].parts[1].rows}
    assert by_content["reverse, 3 tokens"].startswith("mirror")
    assert by_content["copy, 3 tokens"].startswith("suffix")
    assert 1 / 26 < float(floors["copy"][1]) < 0.5
    assert float(floors["copy"][0]) < 0.01
    titles = [section.title for section in sections[2:]]
    assert titles == ["Every method, all tasks", "copy", "reverse"]
    assert all(section.folded for section in sections[2:])
    assert sections[2].parts[0].rows == sections[0].parts[1].rows, "30 methods or fewer"
    more = stored("d", {"t5": (0.99, 0.5)})
    said, sections = page.document([first, rest, again, more])
    assert said[0].startswith("3 methods on 2 tasks, 1 more on some of them; ")
    assert "Measured on some of these tasks only: t5." in sections[0].parts


@pytest.mark.thorough
def test_the_page_names_the_tiers():
    runs_of_tasks = [stored(task, VALUES, task, seeds=5) for task in ("copy", "needle")]
    others = [
        stored(f"{task} of others", {"cope": (0.99, 0.2)}, task, encoding={"name": "others"},
               seeds=3, train={"rates": [rate]})
        for task, rate in (("copy", 4e-3), ("needle", 1e-3))
    ]  # fmt: skip
    for runs_of, told in ((runs_of_tasks, False), (runs_of_tasks + others, True)):
        notes = page.document(runs_of)[1][0].parts
        first = "The best-known methods: 5 seeds; learning rate the best of 0.004, 0.002, 0.001."
        assert first in notes
        second = "All other methods: 3 seeds; learning rate 0.004 on copy; 0.001 on needle."
        assert (second in notes) == told


def test_two_runs_of_one_method_and_task_are_refused():
    with pytest.raises(
        ValueError, match=r"^workdir: b has rope, as another run of its task: seed 0 "
    ):
        page.document([stored("a", VALUES), stored("b", VALUES)])


# Other settings.


OTHERS = (
    "cope",
    "t5",
    "shaw",
    "fox",
    "xpos",
    "hope",
    "fire",
    "mlp",
    "path",
    "pope",
    "dape",
    "tupe",
)


def learners(count):
    """`rope`, and so many others, each better than the one before."""
    better = {name: (0.99, 0.4 + n / 50) for n, name in enumerate(OTHERS[:count])}
    return {"rope": (0.99, 0.3), **better}


def test_the_ends_of_the_board_are_its_first_and_its_last_methods():
    actual = ends({"copy": read(records(learners(12)))}, "rope")
    assert actual == [*OTHERS[:-6:-1], *OTHERS[4::-1]]
    assert ends({"copy": read(records(learners(3)))}, "rope") == [*OTHERS[2::-1]]


def test_a_longer_training_is_asked_for_where_a_seed_did_not_learn():
    rows = read(records({"rope": (0.99, 0.3), "alibi": (0.99, 0.6)}))
    rows = {**rows, "alibi": rows["alibi"]._replace(steps=dict.fromkeys(SEEDS, 500.0))}
    assert unfinished(rows, ["rope", "alibi"]) == ["rope"]


@pytest.mark.parametrize(("cap", "groups"), [(None, 1), (5.0, 2)])
def test_a_field_that_is_newer_than_a_run_has_its_default_there(cap, groups):
    older, newer = stored("a", VALUES), stored("b", VALUES, "reverse", model={"cap": cap})
    assert len(by_setting([older, newer])) == groups


def test_the_board_may_be_fewer_runs_than_a_check():
    board, few = stored("a", VALUES), {"rope": VALUES["rope"]}
    checks = [stored(name, few, train={"steps": 18}) for name in "bcd"]
    (first, *_), _ = by_setting([*checks, board])
    assert first is board


@pytest.mark.thorough
def test_twice_the_steps_name_the_stars_that_change(monkeypatch):
    actual = [stored("a", VALUES), stored("b", VALUES, "reverse")]
    longer = {"t5": (0.99, 0.50), "alibi": (0.99, 0.60)}
    train = {"steps": 9, "rates": [0.1]}
    twice = stored("c", longer, train={"steps": 18, "rates": [0.2]})
    for run in actual:
        run.config["train"] = train
    said, sections = page.document([*actual, twice])
    assert said[0].startswith("5 methods on 2 tasks"), "the other setting is not on the board"
    (checked,) = [s for s in sections if s.title == "With train.steps 18"]
    text, changes = checked.parts
    assert "Measured are 2 of 8 such pairs of method and task. Of their 4" in text
    assert "Of their 4 differences from rope, 1 have another star" in text
    assert changes.rows == [("copy", "t5", "gain", "none", "+")]
    assert marks(sections, "copy") == {"t5": "?", "alibi": "*"}
    # A method that is not at an end any more still counts among the differences.
    monkeypatch.setattr(other_settings, "ends", lambda tasks, reference: ["t5", "nope"])
    _, sections = page.document([*actual, twice])
    (checked,) = [s for s in sections if s.title == "With train.steps 18"]
    assert "Measured are 1 of 4 such pairs of method and task, and 1 of methods" in checked.parts[0]
    assert "Of their 4 differences from rope, 1 have another star" in checked.parts[0]
    # The control: the same numbers with twice the steps, and all are decided.
    same = stored("c", {name: VALUES[name] for name in longer}, train=twice.config["train"])
    _, sections = page.document([*actual, same])
    assert marks(sections, "copy") == {"t5": "", "alibi": "*"}


def marks(sections, task):
    """What stands behind the gains of two methods."""
    grid = next(s for s in sections if s.title == task).parts[0]
    cells = {row[0]: row[-1] for row in grid.rows}
    return {name: cells[name].strip("+-−.0123456789") for name in ("t5", "alibi")}


def test_a_finished_board_asks_for_its_checks(monkeypatch):
    actual = {task: stored(task, learners(12), task) for task in ("copy", "reverse")}
    actual["reverse"].records[:] = [
        r for r in actual["reverse"].records if r["metric"] != "steps_to_learn"
    ] + [
        {**r, "value": 500.0} for r in actual["reverse"].records if r["metric"] == "steps_to_learn"
    ]  # fmt: skip
    asked = []
    monkeypatch.setattr(board.runs, "finished", lambda folders: actual)
    monkeypatch.setattr(board.runs, "read", actual.get)
    monkeypatch.setattr(board, "missing", lambda argument, task: task)
    monkeypatch.setattr(board, "measure", lambda task, argument: asked.append((task, argument)))
    board.confirm()
    both = [*OTHERS[:-6:-1], *OTHERS[4::-1]]
    second = f"second,rope,{','.join(both[:5])}"
    assert asked == [
        ("copy", f"doubled,rope,{','.join(both)}"),  # reverse: every seed had learned it
        ("copy", second),
        ("reverse", second),
    ]
    # Runs of a check have some of its methods: the others are asked for.
    learned_methods = {name: learners(12)[name] for name in ("rope", both[0])}
    steps = Config.model_validate_json(json.dumps(actual["copy"].config)).train.steps
    actual["twice"] = stored("twice", learned_methods, "copy", train={"steps": 2 * steps})
    actual["window"] = stored("window", learned_methods, "reverse", window=64)
    asked.clear()
    board.confirm()
    assert asked == [
        ("copy", f"doubled,{','.join(both[1:])}"),
        ("copy", second),
        ("reverse", f"second,{','.join(both[1:5])}"),
    ]


@pytest.mark.thorough
def test_a_second_setting_is_compared_by_rank():
    first = [stored(name, learners(4), name) for name in ("copy", "reverse")]
    turned = {name: (within, 1 - beyond) for name, (within, beyond) in learners(4).items()}
    for values, told in ((learners(4), "1.00"), (turned, "-1.00")):
        other = stored("c", values, window=64)
        sections = page.document([*first, other])[1]
        (check,) = [s for s in sections if s.title == "A second setting: window 64"]
        assert "in 1 of the board's 2 tasks; rank" in check.parts[0]
        assert f"(Spearman) {told}" in check.parts[0]
        assert {row[0]: row[1] for row in check.parts[1].rows}["fox"] == "1.0"
    assert {row[0]: row[3:] for row in check.parts[1].rows}["fox"] == ("1, 0", "0, 1")
    (numbers,) = check.parts[2:]
    assert numbers.title == "copy in this setting"
    (fox,) = [row for row in numbers.parts[0].rows if row[0] == "fox"]
    assert fox[-1].startswith("-"), "worse here than rope"


@pytest.mark.thorough
def test_every_number_of_the_published_board_is_that_of_its_records():
    """Computed again from the archive's lines, with NumPy alone."""
    of_board, *others = by_setting(runs.read_archive(ARCHIVE))
    reference = of_board[0].config["reference"]
    board_tasks = page.decided(of_board, others)
    exact: dict[tuple, list] = {}
    with tarfile.open(ARCHIVE) as archive:
        for member in archive:
            if not member.name.endswith("metrics.jsonl"):
                continue
            config = json.load(
                archive.extractfile(member.name.replace("metrics.jsonl", "config.json"))
            )
            if (config["window"], config["train"]["steps"]) != (32, 4000):  # a check of the board
                continue
            for line in archive.extractfile(member).read().decode().splitlines():
                record = json.loads(line)
                labels = record["labels"]
                if labels["split"] == "test" and record["metric"] in task_table.METRICS:
                    key = (config["task"]["name"], labels["encoding"], record["metric"])
                    exact.setdefault((*key, labels["length"]), []).append(record["value"])
    assert sorted(board_tasks) == sorted({key[0] for key in exact})
    for task, rows in board_tasks.items():
        lines = task_table.table(rows, reference).rows
        assert len(lines) >= 10
        for method, _, _, *cells in lines:
            name = str(method).split(" = ")[0].removesuffix("†")
            within = np.mean(exact[task, name, "exact_match", 32])
            wanted = []
            for metric in task_table.METRICS:
                for n in (1, 2, 4, 8, 16):
                    seeds = exact.get((task, name, metric, 32 * n))
                    beyond = n > 1 and within < 0.95
                    text = "–" if seeds is None else f"{np.mean(seeds):.3f}".removeprefix("0")
                    wanted.append(("not learned" if n == 2 else "") if beyond else text)
            assert [cell.strip() for cell in cells[:10]] == wanted, (task, name)
