"""The leaderboard: who is measured, on what examples, and how the board is made from records."""

import importlib
import json
import os

import jax
import numpy as np
import pytest

import experiments
from experiments import workers
from experiments.leaderboard import config as leaderboard
from experiments.leaderboard import measuring, pages
from posenc_jax import CATALOG, encodings
from posenc_jax.encoding import Dims, at_layer, place
from posenc_jax.lab import runs, tasks
from posenc_jax.lab.hosts import exit_status
from posenc_jax.lab.report.statistics import Interval
from posenc_jax.layout import full
from tests.test_rotary import counted, logits, vectors

DIMS = Dims(64, 4, 16, 2)


def config_of(argument="quick", **changes):
    config = importlib.import_module("configs.leaderboard").get_config(argument)
    with config.unlocked():
        config.model.update(width=16, heads=2, layers=1)
        config.train.update(steps=4, chunk=4)
        config.update(changes)
    return config


def checked(argument="quick", **changes):
    return leaderboard.Config.model_validate(config_of(argument, **changes).to_dict())


def test_all_is_what_the_tasks_can_be_read_by():
    """What is left out is named with its reason: nothing of the catalogue is passed over."""
    found, why = leaderboard.names(checked("")), leaderboard.left_out(checked(""))
    assert {"nope", "rope", "randomized+rope", "fox", "irope"} <= set(found)
    assert (
        why["axial"] == why["mrope"] == why["swin_2d"] == "since their positions have several axes"
    )
    assert "groups" in why["abacus"]
    assert {"drope", "coupled"} <= set(why)
    assert len(found) + len(why) == len(CATALOG)
    sums = ({"name": "addition", "groups": "place"},)
    assert "abacus+rope" in leaderboard.names(checked("", tasks=sums))


def test_a_method_is_posed_so_that_it_differs():
    """The last layer is the one unlike others, which the defaults would leave out of a small model;
    what a method may read ends where it does; one that finds its stretch itself is given none."""
    config = checked("", model={**checked("").model.model_dump(), "layers": 2})
    built = lambda name, *multiple: measuring.encoding_of(config, name, *multiple)
    assert encodings.CATALOG["irope"].card.defaults["every"] > config.model.layers == 2
    for name in ("irope", "local_global"):
        encoding, pos = built(name), full(1, 64)
        params, placed = encoding.init(jax.random.key(0), DIMS), place(encoding, None, pos)
        made = [at_layer(encoding, layer, params, placed)[0] for layer in (0, 1)]
        assert made[0] is not made[1], name
    most = lambda name: encodings.reach(name, **leaderboard.options_of(config, name))
    assert most("learned") == config.window
    assert most("clamped+learned") is None
    turned = lambda encoding: logits(encoding, {}, *vectors(0, 64), counted(0, 64))
    wanted = turned(encodings.make("ntk", factor=2.0))
    for name, same in (("ntk", True), ("dynamic_ntk", True), ("pi", False)):
        assert np.allclose(turned(built(name, 2)), wanted, atol=1e-4) == same, name


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"reference": "t5"}, "config.reference: 't5' is not measured; choose one of: nope, rope"),
        ({"multiples": (2, 4)}, r"config.multiples: \(2, 4\) must rise from 1"),
        ({"multiples": (1, 4, 2)}, "config.multiples"),
        ({"window": 2}, "config.window: 2 tokens hold no copy; 4 or more"),
        ({"encoding": {"name": "rope,axial"}}, "config.encoding.name: axial reads positions"),
        ({"encoding": {"name": "rope", "slope": 1}}, "encoding.slope: rope takes no such option"),
    ],
)
def test_refused_in_one_line(changes, message, tmp_path):
    with pytest.raises(ValueError, match=message) as caught:
        experiments.prepare(config_of(**changes).to_dict(), str(tmp_path / "run"))
    assert "\n" not in str(caught.value)


def test_pools_hold_the_tasks_own_examples():
    config = checked(multiples=(1, 3))
    (pool,) = measuring.draw_pools(config)
    assert pool.train.tokens_BT.shape == (config.pool, config.window)
    assert [batch.tokens_BT.shape[1] for batch in pool.test] == [32, 96]
    sizes = [measuring.largest(pool.task.width, 1, None, width) for width in (32, 96)]
    assert [pool.task.width(size) for size in sizes] == [32, 96]
    wanted = pool.task.test(pool.task.data, np.arange(config.examples), sizes[1], 96)
    np.testing.assert_array_equal(pool.test[1].tokens_BT, wanted.tokens_BT)
    batch = measuring.sample_pool(pool.train, jax.random.key(0), np.zeros(8), 32)
    held = {row.tobytes() for row in np.asarray(pool.train.tokens_BT)}
    assert all(row.tobytes() in held for row in np.asarray(batch.tokens_BT))
    assert len({row.tobytes() for row in np.asarray(batch.tokens_BT)}) > 1


def records(values, window=32):
    """Records of two tasks, three seeds and two windows from method -> (within, beyond)."""
    for method, ends in values.items():
        labels = {"encoding": method, "split": "train", "length": window}
        facts = {"parameters": [7.0] * 3, "seconds": [1.0] * 3}
        yield from runs.seed_records(1, range(3), labels, facts)
        for task, noise in (("copy", 0.004), ("sort", -0.003)):
            for length, value in zip((window, 2 * window), ends, strict=True):
                scores = {"token_accuracy": [value + noise * (seed - 1) for seed in range(3)]}
                tested = {"encoding": method, "split": "test", "length": length, "task": task}
                yield from runs.seed_records(1, range(3), tested, scores)


def test_board_compares_in_pairs_with_the_reference():
    """A clear difference is marked, one within the noise of the seeds is not."""
    values = {"rope": (0.9, 0.3), "far": (0.9, 0.5), "near": (0.7, 0.3), "same": (0.9, 0.3)}
    noisy = list(records(values))
    for record in noisy:
        if record["labels"]["encoding"] == "same" and record["labels"]["split"] == "test":
            record["value"] += 0.05 * (-1) ** record["seed"]
    summary = pages.summarise(noisy, "rope", {"lost": "out of memory"}, {})
    rows = summary["rows"]
    assert next(iter(rows)) == "far"
    assert rows["far"]["gain"]["mean"] == pytest.approx(0.2)
    assert rows["near"]["cost"]["mean"] == pytest.approx(0.2)
    sign = lambda name, what: Interval(**rows[name][what]).sign
    assert (sign("far", "gain"), sign("far", "cost")) == (1, 0)
    assert (sign("near", "gain"), sign("near", "cost")) == (0, 1)
    assert (sign("same", "gain"), sign("same", "cost")) == (0, 0)
    assert "gain" not in rows["rope"]
    assert summary["tasks"]["sort"]["far"]["64"] == pytest.approx([0.503, 0.5, 0.497])


def test_a_method_that_ends_at_the_trained_window_is_not_compared_beyond_it():
    """It has no score there, not a score of 0, and is not counted among the comparisons."""
    values = {"rope": (0.9, 0.3), "ends": (0.7, 0.0), "near": (0.7, 0.2)}
    every = list(records(values))
    for record in every:
        if record["labels"]["encoding"] == "near" and record["labels"]["split"] == "test":
            record["value"] += 0.001 * (-1) ** record["seed"]
    told = [r for r in every if r["labels"]["encoding"] != "ends" or r["labels"]["length"] == 32]
    summary = pages.summarise(told, "rope", {}, {"axial": "since it cannot"})
    assert list(summary["rows"]) == ["rope", "near", "ends"]
    row = summary["rows"]["ends"]
    assert (row["beyond"], row["scores"]["64"], "gain" in row) == (None, None, False)
    assert Interval(**row["cost"]).sign == 1
    found = " ".join(pages._findings(summary))
    assert "0 of 1 methods are better than rope, 1 worse" in found
    assert "Not defined beyond the trained window: ends." in found
    assert "Left out, since it cannot: axial." in found
    cells = {row[0]: row for row in pages._board(summary).rows}
    assert (cells["ends"][3], cells["ends"][5], cells["rope"][5]) == ("–", "–", "reference")
    assert pages._task(summary, "copy").rows[2] == ("ends", ".696 .700 .704", "–")
    as_zero = pages.summarise(every, "rope", {}, {})
    assert "0 of 2 methods are better than rope, 2 worse" in pages._findings(as_zero)[0]
    width = lambda summary: np.ptp(
        [summary["rows"]["near"]["gain"][end] for end in ("low", "high")]
    )
    assert width(as_zero) > width(summary), "control: one comparison more, wider intervals"


def test_run_in_processes_of_their_own(tmp_path, capsys, monkeypatch):
    """Two workers give what one gives, and the folder holds every seed, the page and the board."""
    found = []
    for cores in ([0], [0, 1]):
        monkeypatch.setattr(workers, "cores", lambda cores=cores: cores)
        monkeypatch.setattr(workers, "ROWS", 1)
        workdir = tmp_path / str(len(cores))
        config = config_of("rope,learned,quick", examples=8, pool=64)
        experiments.prepare(config.to_dict(), str(workdir))()
        stored = runs.read(workdir)
        kept = [r for r in stored.records if r["metric"] not in runs.TIMES]
        found.append({(*r["labels"].items(), r["metric"], r["seed"]): r["value"] for r in kept})
        measured = [(r["labels"]["encoding"], r["labels"]["length"]) for r in kept]
    assert found[0].keys() == found[1].keys()
    assert set(measured) == {("rope", 32), ("rope", 64), ("learned", 32)}
    assert all(found[1][key] == pytest.approx(found[0][key], abs=0.02) for key in found[0])
    assert "gain beyond" in capsys.readouterr().out
    assert (workdir / "report.html").stat().st_size > 10_000
    text = pages.markdown(stored, "leaderboard.png")
    assert "| rope |" in text
    rows = json.loads((workdir / "summary.json").read_text())["rows"]
    assert (rows["rope"]["parameters"], rows["learned"]["parameters"]) == (0, 32 * 16)


def posed(**changes):
    return config_of("rope,quick", **changes)


@pytest.mark.parametrize(
    ("changes", "train", "message"),
    [
        (
            {"tasks": ({"name": "periodic"},), "window": 8},
            {},
            "config.window: 8 tokens hold no .*9",
        ),
        ({"tasks": ({"name": "copyy"},)}, {}, r"config.tasks\[0\].name: no task 'copyy'"),
        (
            {"encoding": {"name": "rope,coupled+rope"}},
            {},
            r"config.tasks\[0\].groups: coupled reads",
        ),
        (
            {"encoding": {"name": "rope,learned", "length": 31}},
            {},
            "config.window: 32 is past what",
        ),
        ({}, {"length": 16, "min_length": 16}, "config.train.length: 16 is not config.window, 32"),
        ({}, {"min_length": 16}, "config.train.min_length: 16 is not config.window, 32"),
    ],
)
def test_a_window_or_method_that_the_tasks_do_not_suit_is_refused(changes, train, message):
    config = posed(**changes)
    config.train.update(train)
    with pytest.raises(ValueError, match=f"^{message}") as caught:
        experiments.check(config.to_dict())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"tasks": ({"name": "periodic"},), "window": 9},
        {
            "tasks": ({"name": "addition", "groups": "significance"},),
            "encoding": {"name": "rope,coupled+rope"},
        },
        {"encoding": {"name": "rope,learned", "length": 32}},
    ],
)
def test_the_shortest_window_that_holds_an_example_is_accepted(changes):
    """Lengths in training follow the window, where the config does not set them apart."""
    experiments.check(posed(**changes).to_dict())


def test_a_kind_of_model_that_makes_no_sense_is_refused():
    masked = ({"name": "stdlib", "masked": 0.15},)
    config = posed()
    config.model.kind = "encoder"
    with pytest.raises(
        ValueError, match=r"^config.model.kind: 'encoder' sees .* copy .*'decoder'$"
    ):
        experiments.check(config.to_dict())
    config.tasks = masked
    experiments.check(config.to_dict())  # control: hidden bytes are not seen
    config.model.kind = "lstm"
    with pytest.raises(ValueError, match=r"^config.model.kind: 'lstm' reads no positions"):
        experiments.check(config.to_dict())


def test_a_text_read_step_by_step_is_refused(monkeypatch):
    """Its examples cannot be drawn beforehand; which it is, is known from the set's size."""
    check = tasks.check
    streamed = lambda name, **options: check(name, **options)._replace(streamed=True)
    monkeypatch.setattr(tasks, "check", lambda name, *sizes, **options: (
        streamed(name, **options) if name == "stdlib" else check(name, *sizes, **options)
    ))  # fmt: skip
    with pytest.raises(ValueError, match=r"^config.tasks\[0\].name: stdlib is read step by step"):
        experiments.check(posed(tasks=({"name": "stdlib"},)).to_dict())
    experiments.check(posed().to_dict())


def test_a_board_without_its_reference_has_scores_and_no_comparisons():
    """If the reference diverged, the scores of the other methods are still shown."""
    values = {"rope": (0.9, 0.3), "near": (0.7, 0.2)}
    told = [record for record in records(values) if record["labels"]["encoding"] != "rope"]
    summary = pages.summarise(told, "rope", {"rope": "a loss that is not finite"}, {})
    (row,) = pages._board(summary).rows
    assert row[2].startswith(".700 ")
    assert row[-2:] == ("–", "–")
    said = pages._findings(summary)
    assert "nothing can be compared" in said[0]
    assert "rope: not measured, a loss that is not finite." in said
    whole = pages.summarise(records(values), "rope", {}, {})  # control
    assert "cost" in whole["rows"]["near"]
    assert "nothing can be compared" not in " ".join(pages._findings(whole))


def test_a_board_of_nothing_says_why(tmp_path, capsys):
    with runs.Run(tmp_path, checked().model_dump()) as run:
        run.finish(pages.summarise([], "rope", {"rope": "out of memory", "nope": "diverged"}, {}))
    experiments.show(tmp_path)
    shown = capsys.readouterr().out
    assert "rope: not measured, out of memory." in shown
    assert "nope: not measured, diverged." in shown
    assert "gain beyond" not in shown
    assert (tmp_path / "report.html").exists()


@pytest.mark.parametrize(
    ("prepare", "given", "error"), [(int, "x", ValueError), (os._exit, 1, exit_status.Interrupted)]
)
def test_what_goes_wrong_in_a_worker_is_raised_and_only_a_lost_one_interrupts(
    prepare, given, error, monkeypatch
):
    """An error would occur again at each restart, so only a lost worker asks for a restart."""
    monkeypatch.setattr(workers, "cores", lambda: [0, 1])
    monkeypatch.setattr(workers, "ROWS", 1)
    with pytest.raises(error) as caught:
        list(workers.measured(prepare, given, ["a", "b"]))
    assert type(caught.value) is error
