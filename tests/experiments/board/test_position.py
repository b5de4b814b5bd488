"""The board's design "position": problems, fixed budgets, late checkpoints, predictions."""

import importlib
import itertools
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest

import experiments
from experiments import method_options
from experiments.board import looks, training
from experiments.board.leaderboard import config as board
from experiments.board.leaderboard import examples as windows
from experiments.board.leaderboard import (
    measure_method,
    outcomes,
    page,
    predictions,
    problem_tables,
    problems,
    rates_tried,
    skills_page,
    standings,
    task_table,
)
from experiments.board.leaderboard.overwritten import LABEL
from experiments.board.leaderboard.problems import PROBLEMS
from experiments.board.training import Run
from posenc_jax import encodings
from posenc_jax.lab import runs, tasks
from posenc_jax.lab.model import transformer
from posenc_jax.lab.runs.stored import StoredRun
from posenc_jax.lab.summary import Summary
from posenc_jax.lab.tasks.task import EOS, SEP
from scripts import board as scripts_board

configs = importlib.import_module("configs.leaderboard")


def checked(argument="position,quick", **changes):
    config = configs.get_config(argument)
    with config.unlocked():
        config.model.update(width=16, heads=2, layers=1)
        for field, value in changes.items():
            config.update_from_flattened_dict({field: value})
    return board.Config.model_validate(config.to_dict())


# Problems.


def test_every_problem_fits_its_windows_and_fills_them():
    for name, problem in PROBLEMS.items():
        config = checked("position", **{"task.name": name})
        experiments.check(config.model_dump())
        task = windows.task_of(config)
        assert task.name == problem.task
        for multiple in config.multiples:
            size = windows.largest(task.width, task.least, task.most, 64 * multiple)
            assert 0 <= 64 * multiple - task.width(size) <= 2, (name, multiple)
        for test in problem.tests:
            assert windows.task_of(config, test).vocab == task.vocab
    least, most = windows.trained_sizes(tasks.make("copy", alphabet=26), 64, 8)
    assert (least, most) == (3, 31)


def test_tests_have_many_lines_also_where_a_size_has_few():
    """There are 26 lines of so many equal letters; other problems have lines of the largest size
    alone.
    """
    distinct, lengths = {}, {}
    for name in ("count", "copy_bits"):
        config = checked("position", **{"task.name": name, "examples": 512, "multiples": (1, 2)})
        _, longer = windows.tests_of(windows.task_of(config), config)
        distinct[name] = len(np.unique(longer.tokens_BT, axis=0))
        lengths[name] = np.unique((np.asarray(longer.tokens_BT) != 0).sum(axis=1))
    assert distinct["count"] > 200
    assert len(lengths["count"]) == 15
    assert lengths["count"].max() == 128, "the largest that fits is among them"
    assert len(lengths["copy_bits"]) == 1, "control"


def test_an_option_of_the_user_wins_over_that_of_a_problem():
    config = checked("position", **{"task.name": "delay8"})
    task = board.posed(config.task.model_copy(update={"lag": 3}))
    assert (task.name, task.options) == ("delay", {"lag": 3, "alphabet": 2})


@pytest.mark.thorough
def test_floors_on_examples_of_the_board_are_what_the_problems_say():
    """The best rules at four times the window; other problems: `test_content_rules`."""
    floors = {}
    for name, examples in (("count", 64), ("parity", 512), ("reverse_bits", 64)):
        changes = {"task.name": name, "examples": examples, "multiples": (1, 4)}
        floors[name] = windows.content_floors(checked("position", **changes))[256]
    count = floors["count"]
    assert count["exact_match"].long[1] == count["end_accuracy"].long[1] == 0.0
    assert count["symbol_accuracy"].long[1] == 1.0, "the ends of answers are scored apart"
    assert 0.45 < floors["parity"]["exact_match"].long[1] < 0.58
    few, many = floors["reverse_bits"]["token_accuracy"]
    assert few[1] < 0.75 < 0.85 < many[1] < 0.97


# The groups and the stages.


def test_every_method_takes_the_rate_of_one_and_the_stages_name_it():
    everyone = set(board.names(checked("all")))
    others = [board.names(checked(f"position,as_{rated}")) for rated in board.RATED]
    groups = [*others, *board.SIXTEEN.values()]
    offsets = "shifted+learned"  # in no group of the catalogue's methods
    assert sorted(name for group in groups for name in group) == sorted(
        everyone - {*board.SLOW} | {offsets}
    )
    assert {*board.SLOW} < everyone
    assert sum(map(len, board.SIXTEEN.values())) == 16
    assert configs.SIXTEEN == board.SIXTEEN, "a config holds data and imports no experiment"
    for named in (configs.SIXTEEN, configs.TWELVE):
        for rated, names in named.items():
            assert [board.rated_as(n) for n in names if n in everyone] == [
                rated for n in names if n in everyone
            ]
    here = board.setting(checked("position", **{"model.width": 64, "model.heads": 4}))
    assert method_options.bases(here) == list(configs.BASES)
    for name in (name for names in configs.SIXTEEN.values() for name in names):
        first, *others = method_options.alternatives(name, here)
        assert (first, others) == ({}, list(configs.ALTERNATIVES.get(name, ())))
    assert {*configs.FIRST, *configs.REST} == set(PROBLEMS) - {"reverse_letters"}
    assert {*configs.LIKE} == {*configs.REST}
    assert {*configs.CHOSEN} == set(itertools.product(board.RATED, configs.FIRST))
    assert {*configs.LIKE.values()} <= {*configs.FIRST}
    assert sum(map(len, configs.TWELVE.values())) == 12 - 1, "and rope with a tuned base"
    assert {board.rated_as(name) for name in (*board.READ_ROPE, board.TRAINED_TWICE)} == {"rope"}
    for point in configs.get_sweep("position-large"):
        rated = {",".join(names): rated for rated, names in configs.TWELVE.items()}
        names, problem = point["encoding.name"], point["task.name"]
        small = configs.CHOSEN[rated.get(names, "rope"), configs.LIKE.get(problem, problem)]
        assert point["train.rates"] == (small / 2,)
        fields = {k: v for k, v in point.items() if k.startswith("model.")}
        large = board.setting(checked("position", **fields))
        assert (large.head, method_options.bases(large)) == (here.head, list(configs.BASES))


def test_a_problem_has_the_rate_that_was_chosen_for_it_or_for_one_like_it(monkeypatch):
    chosen = {("rope", "copy_distinct"): 9e-3, ("rope", "reverse_distinct"): 9.0}
    monkeypatch.setattr(configs, "CHOSEN", configs.CHOSEN | chosen)
    rates = {
        point["task.name"]: point["train.rates"]
        for stage in ("position-first", "position-rest")
        for point in configs.get_sweep(stage)
        if point["encoding.name"] == "rope,p_rope,partial"
    }
    assert rates["copy_distinct"] == rates["reverse_distinct"] == (9e-3,)
    assert rates["flip_flop"] == rates["parity"] == (configs.CHOSEN["rope", "flip_flop"],)


@pytest.mark.parametrize("stage", configs.STAGES[1:])
def test_every_point_of_a_stage_can_run(stage):
    points = configs.get_sweep(stage)
    assert len({repr(sorted(point.items())) for point in points}) == len(points)
    for point in points[:: max(1, len(points) // 6)]:
        config = configs.get_config(stage)
        with config.unlocked():
            config.encoding.update(
                {k.split(".")[1]: v for k, v in point.items() if "encoding" in k}
            )
            rest = {k: v for k, v in point.items() if "encoding" not in k}
            config.update_from_flattened_dict(rest)
        experiments.check(config.to_dict())


def test_a_stage_goes_on_from_its_archive(tmp_path, monkeypatch, capsys):
    """A machine that is lost costs the methods that were being measured, and no other."""
    archive, points = tmp_path / "results" / "position.tar.xz", 54
    ran, begun = [], []

    def write(run, **content_by_file):
        run.mkdir(parents=True, exist_ok=True)
        for file, content in content_by_file.items():
            name = {"metrics": "metrics.jsonl", "lock": "lock"}.get(file, f"{file}.json")
            (run / name).write_text(content)

    def sweep_main(arguments):
        folder = Path(next(a for a in arguments if a.startswith("--folder="))[9:])
        names = [a.removeprefix("--point=") for a in arguments if a.startswith("--point=")]
        ran.append(names)
        runs_here = sorted(folder.iterdir()) if folder.exists() else []
        files = {run.name: sorted(path.name for path in run.iterdir()) for run in runs_here}
        begun.append({name: files[name] for name in names if name in files})
        if len(ran) == 1:
            return 75
        for name in names[:2] if len(ran) < 4 else ():
            write(folder / name, config="{}", metrics="all", summary="{}")
        if len(ran) == 2:  # then it is stopped
            write(folder / names[2], config="{}", metrics="a method", progress="{}", lock="")
            write(folder / names[3], config="{}", metrics="", progress="{}", lock="")
        return 75

    monkeypatch.setattr(scripts_board.sweep, "main", sweep_main)
    monkeypatch.setattr(scripts_board.runs, "read", lambda path: path)
    monkeypatch.setattr(scripts_board, "tried", lambda paths: [*paths] and [])
    for machine in ("none", "first", "second"):
        monkeypatch.setattr(scripts_board, "POSITION", (archive, tmp_path / machine))
        assert scripts_board.main(["--stage=position-rates"]) == 75
        assert archive.exists() == (machine != "none")
    none, first, second = ran
    assert none == first
    assert len(first) == points
    assert second == first[2:]
    assert "4 of 54 runs of position-rates are finished" in capsys.readouterr().out
    assert begun[-1] == {first[2]: ["config.json", "metrics.jsonl", "progress.json"]}
    monkeypatch.setattr(scripts_board, "POSITION", (tmp_path / "none.tar.xz", tmp_path / "parts"))
    for number in "12":
        scripts_board.main(["--stage=position-rates", f"--part={number}/2"])
    halves = ran[3:]
    assert [len(half) for half in halves] == [27, 27]
    assert {*halves[0], *halves[1]} == set(first)
    for wrong in ("3/2", "0/2", "half", "1"):
        with pytest.raises(SystemExit, match="2"):
            scripts_board.main(["--stage=position-rates", f"--part={wrong}"])
        assert f"{wrong!r} is no part such as 1/2 or 2/2" in capsys.readouterr().err
    for others in ([], ["--stage=position-rates", f"--point={first[0]}"]):
        with pytest.raises(SystemExit, match="2"):
            scripts_board.main([*others, "--part=1/2"])
        assert "--part: of all runs of a stage; give --stage, and no --point" in (
            capsys.readouterr().err
        )
    with pytest.raises(SystemExit, match="2"):
        scripts_board.main(["--stage=position"])
    assert "--stage: invalid choice: 'position' (choose from" in capsys.readouterr().err


ROPE_LOSSES = {
    # problem -> rate -> loss
    "delay8": {4e-3: np.nan, 2e-3: 0.2, 1e-3: 0.3},
    "count": {4e-3: 0.5, 2e-3: 0.6, 1e-3: 0.7},
}


def run_of_rates(method, problem, losses):
    """A run of "position-rates", as far as its choice reads it."""
    start = {"step": 4000, "seed": 0}
    valid = lambda rate: {"encoding": method, "split": "valid", "rate": f"{rate:g}"}
    best = min(losses, key=lambda rate: np.nan_to_num(losses[rate], nan=np.inf))
    rows = [{**start, "labels": valid(rate), "metric": "loss", "value": loss}
            for rate, loss in losses.items()]  # fmt: skip
    rows.append({**start, "labels": {"split": "train"}, "metric": "rate", "value": best})
    config = {"encoding": {"name": method}, "task": {"name": problem}}
    return SimpleNamespace(config=config, records=rows)


def test_what_the_rates_chose_is_the_program_of_the_next_stages():
    rope = [run_of_rates("rope", *case) for case in ROPE_LOSSES.items()]
    others = [run_of_rates("alibi", "count", {2e-3: 1.0, 1e-3: 2.0, 5e-4: 3.0})]
    results = rates_tried.tried(rope + others)
    assert results[0].losses[4e-3] == np.inf
    scope: dict = {}
    exec(rates_tried.program(results), scope)
    assert scope["CHOSEN"] == {("rope", "delay8"): 2e-3, ("rope", "count"): 4e-3,
                               ("alibi", "count"): 2e-3}  # fmt: skip
    assert "2 of 3 rates" in rates_tried.program(results)


# Training.


def test_looks_are_late_and_evenly_apart():
    train = checked("position").train
    assert looks.look_steps(train) == [2950, 3100, 3250, 3400, 3550, 3700, 3850, 4000]
    assert looks.look_steps(train.model_copy(update={"looks": 1})) == [4000]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train.looks": 7}, "train.looks: at steps 2971, .* not all multiples of chunk, 50"),
        ({"train.learned": 0.9}, "train.looks: 8, but a training may end before"),
        ({"examples": 1020}, "examples: 1020 is no multiple of train.looks, 8"),
    ],
)
def test_looks_that_cannot_be_are_refused(changes, message):
    with pytest.raises(ValueError, match=f"^config.{message}"):
        experiments.check(checked("position", **changes).model_dump())


@pytest.fixture(scope="module")
def trained():
    """One training of a fixed budget, on a task that is learned long before its end."""
    config = checked(
        "position,rope,quick",
        **{"task.name": "periodic", "task.period": 1, "task.alphabet": 2, "window": 8},
        **{"train.steps": 120, "train.chunk": 20, "train.looks": 3, "train.late": 0.5},
        **{"train.rates": (0.01,), "examples": 18},
    )
    experiments.check(config.model_dump())
    examples = windows.examples_of(windows.task_of(config), config)
    model = transformer.build(config.model, encodings.make("rope"), 32)
    programs = training.Trainings(model, config.train)
    (run,) = programs.runs(examples, [(0.01, 0)])
    return config, examples, model, programs, run


def test_a_fixed_budget_ends_at_its_end_with_late_weights(trained):
    *_, programs, run = trained
    assert (run.steps, run.learned, len(run.late)) == (120, True, 3)
    kernels = [np.asarray(params["read_out"]["kernel"]) for params in run.late]
    assert (kernels[-1] == run.params["read_out"]["kernel"]).all()
    assert np.abs(kernels[0] - kernels[1]).max() > np.abs(kernels[1] - kernels[2]).max() > 0, (
        "the rate falls"
    )
    rates = programs._programs._trainer.rates(range(120))
    assert rates[:96].max() == rates[20] == 1.0
    assert rates[-1] == pytest.approx(1 / 24, rel=1e-4)
    assert (np.diff(rates[96:]) < 0).all()


def test_each_look_is_tested_on_a_part_of_the_examples(trained):
    _, examples, model, _, run = trained
    looks = [training.stacked([params]) for params in run.late]
    score = training.batch_scorer(model, ("token_accuracy", "loss"))
    actual = measure_method._scores(score, looks, examples.test[1])
    assert actual["loss"].shape == (3, 1)
    for n, params in enumerate(looks):
        part = jax.tree.map(lambda leaf, n=n: leaf[n::3], examples.test[1])
        assert actual["loss"][n] == score(params, part)["loss"]
    rows = list(measure_method._tested([0], {"split": "test"}, actual))
    values = {(r["metric"], "statistic" in r["labels"]): r["value"] for r in rows}
    assert values["loss", False] == pytest.approx(actual["loss"].mean())
    assert values["loss", True] == pytest.approx(actual["loss"].std(ddof=1))


def test_the_grid_of_rates_is_widened_at_an_edge():
    """The loss is lowest at a rate outside of the grid; inside of it no rate is added."""

    def chosen(best, rates, widen, steep=1.0):
        loss = lambda rate: steep * abs(np.log(rate / best))
        run = lambda rate, seed: Run(rate, seed, 1, True, 1.0, None, loss(rate))
        trainer = SimpleNamespace(
            tried=lambda examples, rates, seed: [run(rate, seed) for rate in rates],
            runs=lambda examples, pairs: [run(*pair) for pair in pairs],
        )
        train = checked("position", **{"train.rates": rates, "train.widen": widen}).train
        rate, tried = measure_method.chosen_rate(trainer, None, train, 0)  # type: ignore[arg-type]
        return rate, sorted(run.rate for run in tried)

    grid = (1e-3, 2e-3)
    assert chosen(8e-3, grid, 3) == (8e-3, [1e-3, 2e-3, 4e-3, 8e-3, 16e-3])
    assert chosen(8e-3, grid, 1) == (4e-3, [1e-3, 2e-3, 4e-3])
    assert chosen(5e-4, grid, 4)[0] == 5e-4
    assert chosen(2e-3, (1e-3, 2e-3, 4e-3), 4) == (2e-3, [1e-3, 2e-3, 4e-3])
    assert chosen(8e-3, (1e-3,), 4) == (1e-3, [1e-3]), "one rate is no grid"
    assert chosen(8e-3, grid, 3, steep=0.01) == (2e-3, [*grid]), "the neighbour is as good"
    nan = [Run(rate, 0, 1, False, 0.0, None, loss) for rate, loss in ((1.0, np.nan), (2.0, 9.0))]
    assert measure_method.lowest_loss(nan) == 2.0


# Records and predictions.


def board_records(values, first=0, rate=0.002):
    """Records of tests at 64, 128 and 256 tokens from (method, test) -> token accuracy at 256, and
    a little more at 128, of three seeds.
    """
    seeds = range(first, first + 3)
    for (method, test), value in values.items():
        labels = {"encoding": method, "length": 64}
        facts = {"rate": [rate] * 3, "parameters": [8] * 3, "steps_to_learn": [4000.0] * 3,
                 "seconds": [100.0] * 3}  # fmt: skip
        if measure_method.SHUFFLED not in method:  # its method's weights, tested otherwise
            yield from runs.seed_records(0, seeds, {**labels, "split": "train"}, facts)
            tried = {**labels, "split": "valid", "rate": f"{rate:g}"}
            yield from runs.seed_records(4000, seeds, tried, {"loss": [0.1] * 3})
        for window, share in ((64, 1.0), (128, value + 0.01), (256, value)):
            tested = {**labels, "split": "test", "length": window}
            tested |= {"test": test} if test else {}
            spread = [share - 0.01, share, share + 0.01] if window > 64 else [share] * 3
            scores = {"token_accuracy": spread, "exact_match": [0.99] * 3}
            yield from runs.seed_records(0, seeds, tested, scores)
            other = {**tested, "statistic": measure_method.SPREAD}
            yield from runs.seed_records(0, seeds, other, {"token_accuracy": [0.5] * 3})


def test_tests_of_a_problem_are_read_apart_and_spreads_are_not_scores():
    records = list(board_records({("rope", ""): 0.9, ("rope", "first"): 0.4}))
    assert standings.tests(records) == ["first"]
    both, first = (standings.read(records, test)["rope"] for test in ("", "first"))
    assert standings.mean(both.scores["token_accuracy"][256]) == pytest.approx(0.9)
    assert standings.mean(first.scores["token_accuracy"][256]) == pytest.approx(0.4)


def test_options_that_a_run_states_are_in_the_names_of_its_rows():
    config = checked("position,rope", **{"task.name": "delay8"})
    dumped = config.model_dump(mode="json")
    summary = Summary(own={"not_measured": {}, "left_out": {}})
    records = list(board_records({("rope", ""): 0.9, (f"rope{measure_method.SHUFFLED}", ""): 0.5}))
    stored = [
        StoredRun(Path(f"{n}"), {**dumped, "encoding": encoding}, {}, records, summary)
        for n, encoding in enumerate(({"name": "rope"}, {"name": "rope", "base": 14.2}))
    ]
    rows = page.by_task(stored)["delay8"]
    control = measure_method.SHUFFLED
    assert [*rows] == ["rope", f"rope{control}", "rope, base 14.2", f"rope, base 14.2{control}"]
    assert task_table.label("rope, base 14.2") == "rope, base 14.2"
    with pytest.raises(ValueError, match="as another run of its task"):
        page.by_task([stored[0], stored[0]])


def test_runs_of_one_method_join_their_seeds():
    run = lambda first, rate=0.01: position_run(
        "delay8", {("rope", ""): 0.9 - 0.1 * first}, {}, first=first, rate=rate, first_seed=first
    )
    row = page.by_task([run(0), run(3)])["delay8"]["rope"]
    assert sorted(row.steps) == [0, 1, 2, 3, 4, 5]
    seeds = row.scores["token_accuracy"][256]
    first, second = ([seeds[n] for n in part] for part in (range(3), range(3, 6)))
    assert (np.mean(first), np.mean(second)) == (pytest.approx(0.9), pytest.approx(0.6))
    with pytest.raises(ValueError, match="as another run of its task: seed 2 twice"):
        page.by_task([run(0), run(2)])
    with pytest.raises(ValueError, match=r"as another run of its task: rates 0.01 and 0.02"):
        page.by_task([run(0), run(3, rate=0.02)])


# What copies follow.


def reader_by_place(source, answer, place):
    return source[place]


def reader_by_symbols(source, answer, place, symbols):
    """What follows the last symbols of the answer in the source, where they occur once."""
    looked_up = answer[place - symbols : place]
    ends = [n for n in range(symbols, len(source)) if source[n - symbols : n] == looked_up]
    return source[ends[0]] if len(ends) == 1 else None


@pytest.mark.thorough(after=1)
@pytest.mark.parametrize("problem", ["copy_distinct", "reverse_distinct", "copy_bits"])
def test_a_reader_by_place_and_one_by_symbols_are_told_apart(problem):
    config = checked("position", **{"task.name": problem, "examples": 64})
    symbols = PROBLEMS[problem].overwrites
    examples = windows.examples_of(windows.task_of(config), config)
    assert set(examples.followed) == {"position", "n-gram"}
    wanted = zip(*(examples.followed[what] for what in ("position", "n-gram")), strict=True)
    for window, (by_place, by_symbols) in zip((64, 128), wanted, strict=True):
        assert by_place.tokens_BT.shape == (16, window)
        right = {"position": 0, "n-gram": 0}
        for row in range(16):
            (column,) = np.flatnonzero(by_place.weights_BT[row])
            targets = [np.asarray(batch.targets_BT[row]) for batch in (by_place, by_symbols)]
            assert targets[0][column] != targets[1][column]
            assert np.array_equal(*(np.delete(target, column) for target in targets))
            begin = int(np.flatnonzero(targets[0] == SEP)[0]) + 1
            end = int(np.flatnonzero(targets[0] == EOS)[0])
            # The answer as it was, and as the model reads it.
            source = targets[0][begin:end].tolist()
            answer = by_place.tokens_BT[row, begin + 1 : end + 1].tolist()
            place = int(column) - begin
            assert answer[: place - symbols] == source[: place - symbols], "nothing before"
            assert answer[place:] == source[place:], "and nothing after"
            right["position"] += reader_by_place(source, answer, place) == targets[0][column]
            read = reader_by_symbols(source, answer, place, symbols)
            right["n-gram"] += read == targets[1][column]
        assert right["position"] == 16
        assert right["n-gram"] == 16 if "distinct" in problem else right["n-gram"] > 4


def test_other_problems_have_no_overwritten_copies():
    config = checked("position", **{"task.name": "delay8", "examples": 64})
    assert windows.examples_of(windows.task_of(config), config).followed == {}


def followed_records(followed):
    """Records of what the answers of methods follow, in two windows of three seeds."""
    for method, (position, gram) in followed.items():
        for window in (64, 128):
            for what, value in (("position", position), ("n-gram", gram)):
                labels = {"encoding": method, "split": "test", "length": window, LABEL: what}
                spread = [value - 0.05, value, value + 0.05]
                yield from runs.seed_records(0, range(3), labels, {"token_accuracy": spread})


def test_the_page_says_what_copies_follow(monkeypatch):
    monkeypatch.setattr(outcomes, "floor_at", lambda config, test, multiple: ("a rule", 0.5))
    values = {(method, ""): 0.95 for method in ("rope", "alibi", "nope")}
    run = position_run("copy_distinct", values, {})
    for record in run.records:  # nope does not copy
        if record["labels"]["encoding"] == "nope" and record["metric"] == "token_accuracy":
            record["value"] = 0.6
    before = standings.read(run.records)
    run.records.extend(followed_records(
        {"rope": (0.9, 0.1), "alibi": (0.2, 0.7), "nope": (0.4, 0.4)}
    ))  # fmt: skip
    assert standings.read(run.records) == before, "no score of the problem"
    _, sections = page.document([run])
    (followed,) = (section for section in sections if section.title == "What a copy follows")
    line, grid = followed.parts
    assert line == (
        "copy_distinct: copied by 2 methods. After 3 overwritten symbols, 75% of the answers or "
        "more follow the n-gram in 0 of them, the position in 1, and in 1 so many follow neither."
    )
    assert {len(row) for row in grid.rows} == {len(grid.columns)} == {2 + 2 * 3}
    cells = {row[1]: row[2:5] for row in grid.rows}
    assert cells == {"rope": (".900", ".100", ".000"), "alibi": (".200", ".700", ".100")}
    # Methods that reach no further than the trained window alone: its three columns.
    run.records[:] = [r for r in run.records if LABEL not in r["labels"]
                      or r["labels"]["length"] == 64]  # fmt: skip
    _, sections = page.document([run])
    (followed,) = (section for section in sections if section.title == "What a copy follows")
    assert {len(row) for row in followed.parts[1].rows} == {len(followed.parts[1].columns)} == {5}


def test_outcomes_are_those_of_a_few_lines_of_numpy(monkeypatch):
    monkeypatch.setattr(outcomes, "floor_at", lambda config, test, multiple: ("a rule", 0.5))
    records = list(board_records({("t5", ""): 0.98, ("shaw", ""): 0.96, ("alibi", ""): 0.75}))
    config = checked("position", **{"task.name": "delay8"})
    measured = {("delay8", ""): (config, standings.read(records))}
    found = {o.prediction.kind: o for o in outcomes.outcomes(measured)}
    assert set(found) == {"tables", "decaying bias"}, "of what was measured"
    g = lambda accuracy: (accuracy - 0.5) / 0.5
    assert found["tables"].g == pytest.approx(np.mean([g(0.98), g(0.96)]))
    assert found["tables"].word == "as predicted"
    assert found["decaying bias"].by_method == {"alibi": pytest.approx(g(0.75))}
    assert found["decaying bias"].word == "refuted", "g is .5, not below .3"
    table = outcomes.table([*found.values()])
    assert [row[4] for row in table.rows] == ["as predicted", "refuted"]
    assert "1 of 2 predictions are refuted" in table.caption
    assert not any("of 3)" in row[-1] for row in table.rows), "every training learned the problem"
    for record in records:
        if record["metric"] == "steps_to_learn" and record["labels"]["encoding"] == "shaw":
            record["value"] = np.nan if record["seed"] else record["value"]
    measured = {("delay8", ""): (config, standings.read(records))}
    tables, bias = outcomes.outcomes(measured)
    assert (tables.unlearned, bias.unlearned) == ({"shaw": (1, 3)}, {})
    (line,) = outcomes.table([tables]).rows
    assert "shaw 0.92 (1 of 3)" in line[-1]


def position_run(problem, values, facts, first=0, rate=0.002, **fields):
    """A stored run of the design with these records."""
    config = checked("position,quick", **{"task.name": problem, "seeds": 3, **fields})
    summary = Summary(own={"not_measured": {}, "left_out": {}}, facts=facts)
    records = [*board_records(values, first, rate)]
    return StoredRun(Path(problem), config.model_dump(mode="json"), {}, records, summary)


def test_the_kind_that_is_predicted_to_be_the_best_is_compared_with_all(monkeypatch):
    monkeypatch.setattr(outcomes, "floor_at", lambda config, test, multiple: ("a rule", 0.0))
    config, words = checked("position", **{"task.name": "count"}), []
    for nope in (0.9, 0.2, 0.3):  # the last one is no better than rope
        records = [*board_records({("rope", ""): 0.3, ("nope", ""): nope})]
        for record in records:
            if record["metric"] == "token_accuracy":
                record["metric"] = "exact_match"
            elif record["metric"] == "exact_match":
                record["metric"] = "token_accuracy"
        *_, best = outcomes.outcomes({("count", ""): (config, standings.read(records))})
        assert (best.prediction.problem, best.prediction.kind) == ("count", "none")
        assert best.by_kind == pytest.approx({"none": nope, "rope": 0.3})
        words.append(best.word)
        assert outcomes.table([best]).rows[0][2] == f"best of none {nope:.2f}, rope 0.30"
    assert words == ["as predicted", "refuted", "refuted"]
    alone = {("count", ""): (config, standings.read(board_records({("nope", ""): 0.9})))}
    assert not any(outcome.by_kind for outcome in outcomes.outcomes(alone)), "nothing to compare"


def test_a_problem_has_a_table_of_each_of_its_tests_and_the_ends_of_answers(monkeypatch):
    monkeypatch.setattr(outcomes, "floor_at", lambda config, test, multiple: ("a rule", 0.5))
    values = {("rope", ""): 0.9, ("rope", "dense"): 0.6, ("rope", "sparse"): 0.55}
    records = [*board_records(values)]
    config = checked("position", **{"task.name": "flip_flop", "multiples": (1, 2, 4)})
    run = StoredRun(Path("flip_flop"), config.model_dump(mode="json"), {}, records,
                    Summary(own={"not_measured": {}, "left_out": {}}))  # fmt: skip
    (section,) = problem_tables.sections(page.by_task([run]), {"flip_flop": config})
    plain, dense, sparse = section.parts
    assert [grid.rows[0][5:] for grid in (plain, dense, sparse)] == [
        (".820", ".800"), (".220", ".200"), (".120", ".100")
    ]  # fmt: skip
    assert dense.caption.startswith("In the test dense. ")
    assert "ends" not in plain.columns[-1], "its answers have no end"
    ends = [{**record, "metric": "end_accuracy"} for record in records
            if record["metric"] == "exact_match"]  # fmt: skip
    again = run._replace(records=records + ends)
    (section,) = problem_tables.sections(page.by_task([again]), {"flip_flop": config})
    assert section.parts[0].columns[-3:] == ["ends\n1×", "ends\n2×", "ends\n4×"]
    assert section.parts[0].rows[0][-1] == ".990"


def test_what_it_took_counts_every_training_of_a_search(monkeypatch):
    """The seconds of a method are those of a training, the mean over all that it took."""
    records = [*board_records({("rope", ""): 0.9})]
    first = [r for r in records if r["seed"] == 0]
    more = [{**r, "labels": {**r["labels"], "rate": "0.004"}} for r in first
            if "rate" in r["labels"]]  # fmt: skip
    run = position_run("delay8", {}, {})
    lines = lambda records: skills_page._cost([run._replace(records=records)]).parts
    assert lines(first)[0].startswith("1 training, with tests, took 0.0 hours")
    assert lines([*first, *more])[0].startswith("2 trainings, with tests, took 0.1 hours")


def test_outcomes_are_of_runs_that_recorded_the_predictions(monkeypatch):
    """And not of a run that was measured before they were fixed."""
    monkeypatch.setattr(outcomes, "floor_at", lambda config, test, multiple: ("a rule", 0.5))
    values = {("rope", ""): 0.9, ("alibi", ""): 0.99, ("alibi", "dense"): 0.95,
              ("rope", "dense"): 0.9}  # fmt: skip
    titles = []
    for facts in ({"predictions": predictions.fingerprint()}, {"predictions": "another"}, {}):
        _, sections = page.document([position_run("flip_flop", values, facts)])
        titles.append([section.title for section in sections])
    assert ["Predictions and outcomes" in row for row in titles] == [True, False, False]


@pytest.fixture
def skills_document(monkeypatch):
    """The page of two problems of a skill and one of another, whose floors are .5."""
    monkeypatch.setattr(outcomes, "floor_at", lambda config, test, multiple: ("a rule", 0.5))
    facts = {"predictions": predictions.fingerprint()}
    control = f"rope{measure_method.SHUFFLED}"
    order = {("rope", ""): 0.6, ("alibi", ""): 0.98, ("nope", ""): 0.5, (control, ""): 0.5}
    offset = {("rope", ""): 0.9, ("alibi", ""): 0.52, ("nope", ""): 0.5, (control, ""): 0.49}
    runs_ = [position_run(*of, facts) for of in (
        ("flip_flop", order), ("recall_order", order), ("delay8", offset))]  # fmt: skip
    for record in runs_[0].records:
        is_nope = record["labels"]["encoding"] == "nope" and record["metric"] == "steps_to_learn"
        if is_nope and record["seed"] == 1:
            record["value"] = np.nan  # this training did not learn flip_flop
    return page.document(runs_)


def test_the_page_of_skills_says_what_its_records_hold(skills_document):
    sentences, sections = skills_document
    assert "offset: 0 of 3 solved, 2 at the floor" in sentences[0]
    assert "order: 1 of 3 solved, 1 at the floor" in sentences[0]
    assert "shuffled positions, reaches at most 0.01" in sentences[-2]
    assert sentences[-1] == (
        "1 of 27 trainings did not learn their problem in its trained sizes (flip_flop 1)."
    )
    by_title = {section.title: section for section in sections}
    assert list(by_title) == [
        "Skills and methods", "Predictions and outcomes", "Skills and methods: within the window",
        "Skills and methods: effects", "Skills and methods: each problem",
        "flip_flop at every length", "recall_order at every length", "delay8 at every length",
        "The problems and their floors", "What this does not decide", "What it took",
    ]  # fmt: skip
    assert by_title["What it took"].parts == [  # the control is no training of its own
        "27 trainings, with tests, took 0.8 hours of one core of an unknown processor."
    ]
    (at_length,) = by_title["delay8 at every length"].parts
    alibi = dict(zip(at_length.columns, at_length.rows[0], strict=True))
    assert (alibi["learned"], alibi["tokens\n2×"], alibi["g\n2×"]) == ("3/3", ".530", ".060")
    assert "Floors of g: .500 (a rule) at 2×." in at_length.caption
    (each,) = by_title["Skills and methods: each problem"].parts
    assert [row[0] for row in each.rows] == [
        "alibi", "nope", "rope = shifted+rope", f"rope{measure_method.SHUFFLED}"
    ]  # fmt: skip
    assert dict(zip(each.columns, each.rows[0], strict=True))["flip_flop"] == "0.97"
    (grid,) = by_title["Skills and methods: effects"].parts
    alibi = dict(zip(grid.columns, next(r for r in grid.rows if r[0] == "alibi"), strict=True))
    assert alibi["order"].startswith("+.760*")
    assert alibi["offset"].startswith("−.760*") or alibi["offset"].startswith("-.760*")
    assert alibi["all skills"].startswith("+.000 ")
    (picture,), (within,) = (list(by_title.values())[n].parts for n in (0, 2))
    drawn = [text.get_text() for axes in picture.draw().axes for text in axes.texts]
    assert sum(skills_page.DAGGER in text for text in drawn) == 1, "nope on the skill order alone"
    rows = {row[0]: dict(zip(within.columns, row, strict=True)) for row in within.rows}
    assert rows["nope"]["flip_flop"] == "1.000 (2 of 3)"
    assert rows["nope"]["delay8"] == rows["alibi"]["flip_flop"] == "1.000"
    floors, unknown = (by_title[t].parts for t in list(by_title)[-3:-1])
    assert floors[0].rows[0][3:] == ("a rule", ".500")
    assert {row[0] for row in floors[0].rows} == {"flip_flop", "recall_order", "delay8"}
    assert any("of which one was measured: offset" in line for line in unknown)


def test_a_second_setting_stands_apart(monkeypatch):
    monkeypatch.setattr(outcomes, "floor_at", lambda config, test, multiple: ("a rule", 0.5))
    values = {("rope", ""): 0.6, ("alibi", ""): 0.98}
    small = position_run("delay8", {**values, ("nope", ""): 0.5}, {})
    large = position_run("delay8", values, {}, **{"model.width": 128})
    _, sections = page.document([small, large])
    titles = [section.title for section in sections]
    assert "Another setting: model.width 128" in titles


def test_runs_of_a_search_or_of_one_question_are_not_on_the_page_of_skills(monkeypatch):
    """They would be the same methods again, with one seed or on another task of the same name."""
    monkeypatch.setattr(outcomes, "floor_at", lambda config, test, multiple: ("a rule", 0.5))
    run = position_run("delay8", {("rope", ""): 0.6, ("alibi", ""): 0.98}, {})
    others = [
        run._replace(config={**run.config, "seeds": 1}),
        run._replace(config={**run.config, "task": {"name": "delay8", "lag": 9}}),
        run._replace(config={**run.config, "task": {"name": "reverse_letters"}}),
    ]
    assert skills_page.of_skills([run, *others]) == [run]
    assert page.document([run, *others])[0] == page.document([run])[0]
    assert not any(skills_page.is_of([other]) for other in others)
    with pytest.raises(ValueError, match="as another run of its task"):
        page.document([run, run])  # control


def test_a_result_that_changes_with_more_steps_is_not_decided(monkeypatch):
    monkeypatch.setattr(outcomes, "floor_at", lambda config, test, multiple: ("a rule", 0.5))
    values = {("rope", ""): 0.6, ("alibi", ""): 0.98, ("nope", ""): 0.5}
    first = [position_run(name, values, {}) for name in ("flip_flop", "recall_order", "delay8")]
    steps = {"train.steps": 8000, "seeds": 2}
    again = [
        position_run("flip_flop", {**values, ("nope", ""): 0.9}, {}, **steps),
        position_run("recall_order", values, {}, **steps),
    ]
    sentences, sections = page.document(first + again)
    assert sentences[-1] == (
        "With 8,000 steps 1 of 3 results that were measured again change by more than 0.1: they "
        "are not decided (‡)."
    ), "delay8 was not measured again"
    by_title = {section.title: section for section in sections}
    assert by_title["With 8,000 steps"].parts[0].rows == [("order", "nope", "0.01", "0.41")]
    (picture,) = by_title["Skills and methods"].parts
    drawn = [text.get_text() for axes in picture.draw().axes for text in axes.texts]
    assert sum(skills_page.MOVING in text for text in drawn) == 1
    assert not any("Another setting" in title for title in by_title)


def test_the_floor_of_g_is_that_of_rules_where_the_problem_names_them():
    config = checked("position", **{"task.name": "delay8", "examples": 64, "multiples": (1, 4)})
    rules = outcomes.floor_at(config, "", 4)
    assert rules == windows.content_floors(config)[256]["token_accuracy"].short


@pytest.mark.thorough
def test_the_floor_of_g_is_that_of_tables_where_a_rule_solves_the_problem():
    here = {"examples": 64, "multiples": (1, 4)}
    flip_flop = checked("position", **{"task.name": "flip_flop", **here})
    name, tables = outcomes.floor_at(flip_flop, "sparse", 1)
    assert name.endswith("table")
    assert 0.4 < tables < 0.75, "a table of the last tokens does not hold the last write"
    order = checked("position", **{"task.name": "recall_order", **here})
    name, half = outcomes.floor_at(order, "", 4)
    assert name == "suffix 1 earliest"
    assert 0.5 < half < 0.56, "it solves one mode of two, so it is a floor and no solution"
    assert outcomes.floor_at(order, "first", 4)[1] < 0.1, "where it solves, tables are the floor"


def test_every_prediction_is_of_a_problem_and_of_methods_of_the_board():
    tuned = f"rope, base {configs.BASES[0]}"
    everyone = set(board.names(checked("all"))) | {"shifted+learned", "randomized+learned", tuned}
    assert {name for names in predictions.KINDS.values() for name in names} <= everyone
    for prediction in predictions.PREDICTIONS:
        assert prediction.low < prediction.high
        assert prediction.kind in predictions.KINDS
        assert prediction.test in ("", *PROBLEMS[prediction.problem].tests)
    keys = [(p.problem, p.kind, p.test) for p in predictions.PREDICTIONS]
    assert len(set(keys)) == len(keys)
    assert {p.problem for p in predictions.PREDICTIONS} == set(PROBLEMS) - {
        "indirect_indexing",
        "reverse_letters",
    }


def test_the_fingerprint_covers_problems_predictions_and_the_rule(monkeypatch):
    before = predictions.fingerprint()
    assert before == predictions.fingerprint()
    changed = predictions.PREDICTIONS[0]._replace(high=0.3)
    monkeypatch.setattr(predictions, "PREDICTIONS", (changed, *predictions.PREDICTIONS[1:]))
    assert predictions.fingerprint() != before
    monkeypatch.undo()
    monkeypatch.setattr(predictions, "outcome", lambda prediction, g: "as predicted")
    assert predictions.fingerprint() != before
    monkeypatch.undo()
    lag = {"delay8": PROBLEMS["delay8"]._replace(options={"lag": 9, "alphabet": 2})}
    monkeypatch.setattr(predictions, "PROBLEMS", problems.PROBLEMS | lag)
    assert predictions.fingerprint() != before
