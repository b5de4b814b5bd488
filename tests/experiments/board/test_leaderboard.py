"""The leaderboard: what it measures, how it trains, and what it refuses."""

import importlib
import os
import tarfile

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import experiments
from experiments import parallel_rows
from experiments.board import training
from experiments.board.leaderboard import config as board
from experiments.board.leaderboard import examples as windows
from experiments.board.leaderboard import measure_method
from experiments.board.training import Run
from posenc_jax import CATALOG, Dims, attend, encodings, frame, full
from posenc_jax.backends.target import compile_for
from posenc_jax.encoding import at_layer, place
from posenc_jax.lab import runs, tasks
from posenc_jax.lab.hosts import exit_status
from posenc_jax.lab.model import transformer
from posenc_jax.lab.training import evaluation
from scripts.board import unpack
from tests.support.catalogue import gap

DIMS = Dims(64, 4, 16, 2)


def config_of(argument="quick", **changes):
    config = importlib.import_module("configs.leaderboard").get_config(argument)
    with config.unlocked():
        config.model.update(width=16, heads=2, layers=1)
        for field, value in changes.items():
            config.update_from_flattened_dict({field: value})
    return config


def checked(argument="quick", **changes):
    return board.Config.model_validate(config_of(argument, **changes).to_dict())


# Who is on the board.


def test_every_method_is_a_row_or_is_named_with_a_reason():
    known, others = board.names(checked("")), board.names(checked("others"))
    why = board.left_out(checked("others"))
    assert not set(known) & set(others)
    assert set(known + others) == {*board.names(checked("all"))}
    assert {"rope", "yarn", "randomized+rope"} <= set(known)
    assert {"drope", "irope", "cape+rope"} <= set(others)
    assert why["axial"] == "since their positions have several axes"
    assert why["dynamic_ntk"] == "since it is ntk by construction"
    assert "groups" in why["abacus"]
    rows = [name.removesuffix("+rope") for name in known + others]
    assert sorted([*rows, *why]) == sorted(CATALOG)
    sums = checked("others", **{"task.name": "addition", "task.groups": "place"})
    assert "abacus+rope" in board.names(sums)


def test_methods_that_are_rope_in_training_are_trained_once():
    assert board.trained(checked("yarn,alibi,rope,drope")) == {
        "rope": ["yarn", "rope", "drope"],
        "alibi": ["alibi"],
    }


def outputs(name, multiple, length):
    """Attention with fixed queries, keys and values, as the board reads the method."""
    config = checked("", **{"model.layers": 2})
    encoding = board.encoding_of(config, name, multiple)
    view = frame(encoding, encoding.init(jax.random.key(0), DIMS), full(1, length), DIMS)
    q, k, v = 3 * jax.random.normal(jax.random.key(1), (3, 1, length, 4, 16))
    return np.asarray(attend(q, k, v, view.layer(1)))


@pytest.mark.thorough
@pytest.mark.parametrize("name", board.READ_ROPE)
def test_a_method_that_reads_ropes_weights_is_rope_in_training(name):
    assert np.abs(outputs(name, 1, 32) - outputs("rope", 1, 32)).max() < 1e-4
    assert np.abs(outputs(name, 4, 128) - outputs("rope", 1, 128)).max() > 0.1, "control"


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "kept"), board.SAME.items())
def test_methods_of_one_row_are_the_same_in_every_window(name, kept):
    for multiple, length in ((1, 32), (4, 128)):
        ours, theirs = (outputs(which, multiple, length) for which in (name, kept))
        assert np.abs(ours - theirs).max() < 1e-3
    assert np.abs(outputs("yarn", 4, 128) - outputs(kept, 4, 128)).max() > 0.1, "control"


def test_a_method_is_posed_so_that_it_differs():
    """The last layer is the one unlike others, which the defaults would leave out of a small model;
    what a method may read ends where it does."""
    config = checked("", **{"model.layers": 2})
    assert encodings.CATALOG["irope"].card.defaults["every"] > config.model.layers == 2
    for name in ("irope", "local_global"):
        encoding, pos = board.encoding_of(config, name), full(1, 64)
        params, placed = encoding.init(jax.random.key(0), DIMS), place(encoding, None, pos)
        made = [at_layer(encoding, layer, params, placed)[0] for layer in (0, 1)]
        assert made[0] is not made[1], name
    most = lambda name: encodings.reach(name, **board.options_of(config, name))
    for name in board.POSITION_TABLES:
        assert most(name) == config.window * max(config.multiples), "rows for the longest test"
    assert most("clamped+learned") is None
    assert board.told_length("yarn")
    assert not board.told_length("rope")


# What it refuses.


@pytest.mark.parametrize(
    ("argument", "changes", "message"),
    [
        ("", {"multiples": (2, 4)}, r"multiples: \(2, 4\) must rise from 1"),
        ("", {"multiples": (1, 4, 2)}, "multiples"),
        ("", {"window": 2}, "window: 2 tokens hold no copy; 4 or more"),
        ("", {"task.name": "periodic", "window": 8}, "window: 8 tokens hold no periodic; 9"),
        ("", {"task.name": "copyy"}, "task.name: no task 'copyy'"),
        ("", {"task.name": "stdlib"}, "task.name: stdlib has no answers that are right or wrong"),
        ("", {"train.rates": (0.1, 0.1)}, "train.rates: 0.1 is given twice"),
        ("", {"model.kind": "lstm"}, "model.kind: 'lstm' has no attention"),
        ("", {"model.kind": "encoder"}, "model.kind: 'encoder' sees"),
        ("rope,axial", {}, "encoding.name: axial reads positions of 2 axes"),
        ("", {"reference": "ropee"}, "reference: no method 'ropee'"),
        ("", {"reference": "axial"}, "reference: axial reads positions of 2 axes"),
        ("", {"train.average": 2**40}, "train.average: 1099511627776 is wrong"),
        ("rope", {"encoding.slope": 1}, "encoding.slope: rope takes no such option"),
        ("rope,learned", {"encoding.length": 31}, "window: 32 is past what"),
        ("rope,coupled+rope", {}, "task.groups: coupled reads"),
        # The trained window takes this one, longer windows do not.
        ("dual_chunk", {"encoding.most": 50}, "encoding.most: 50 must be from chunk, 24, to"),
    ],
)
def test_refused_in_one_line(argument, changes, message):
    with pytest.raises(ValueError, match=f"^config.{message}") as caught:
        experiments.check(config_of(argument, **changes).to_dict())
    assert "\n" not in str(caught.value)


def test_what_just_fits_is_accepted():
    groups = {"task.name": "addition", "task.groups": "significance"}
    for argument, changes in (
        ("rope", {"task.name": "periodic", "window": 9}),
        ("rope,coupled+rope", groups),
        ("rope,learned", {"encoding.length": 32}),
    ):
        experiments.check(config_of(argument, **changes).to_dict())


# Examples.


@pytest.mark.thorough
def test_every_seed_has_examples_of_its_own_and_every_method_the_same():
    config, task = checked(multiples=(1, 3)), tasks.make("copy", alphabet=26)
    examples = windows.examples_of(task, config)
    rows = examples.train([0, 1], range(config.train.chunk)).tokens_BT
    train = config.train
    assert rows.shape == (2, train.chunk, train.batch, config.window)
    drawn = {row.tobytes() for row in np.asarray(rows).reshape(-1, config.window)}
    assert len(drawn) > 0.99 * rows[..., 0].size, "seeds, steps and rows differ"
    again = windows.examples_of(task, config).train([1, 2], range(2)).tokens_BT
    np.testing.assert_array_equal(again[0], rows[1, :2])
    later = examples.train([0, 2], range(5, 7)).tokens_BT
    np.testing.assert_array_equal(later[0, 0], rows[0, 5])
    held = {row.tobytes() for row in np.asarray(examples.valid.tokens_BT)}
    assert not held & {row.tobytes() for row in np.asarray(examples.test[0].tokens_BT)}


@pytest.mark.thorough
def test_tests_have_the_trained_sizes_and_then_the_largest_of_each_window():
    task = tasks.make("copy", alphabet=26)
    examples = windows.examples_of(task, checked(multiples=(1, 3)))
    sizes = lambda batch: np.unique(batch.layout.segment_BT.sum(axis=1)) // 2 - 1
    assert sizes(examples.test[0]).tolist() == list(range(3, 16)) == sizes(examples.valid).tolist()
    assert sizes(examples.test[1]).tolist() == [47]
    assert windows.largest(lambda n: 2 * n, 1, 5, 32) == 5
    assert windows.largest(lambda n: 2 * n, 20, None, 32) == 19, "none fits"


@pytest.mark.thorough
def test_the_control_shuffles_the_positions_of_tokens_and_nothing_else():
    task = tasks.make("copy", alphabet=26)
    batch = windows.examples_of(task, checked()).test[0]
    moved = measure_method.shuffled(batch)
    for row in range(8):
        n = int(batch.layout.segment_BT[row].sum())
        actual = np.asarray(moved.layout.pos_BT[row, :n])
        assert sorted(actual) == list(range(n))
        assert actual.tolist() != list(range(n))
    np.testing.assert_array_equal(moved.tokens_BT, batch.tokens_BT)


# Training.


@pytest.fixture(scope="module")
def trainer():
    """A small model on a task that it learns in a few steps: say the same symbol again."""
    config = checked(
        "rope",
        **{"task.name": "periodic", "task.period": 1, "task.alphabet": 2, "window": 8},
        **{"train.steps": 120, "train.chunk": 20, "train.average": 10, "examples": 16},
    )
    experiments.check(config.model_dump())
    task = tasks.make("periodic", period=1, alphabet=2)
    model = transformer.build(config.model, encodings.make("rope"), task.vocab)
    return (
        config,
        windows.examples_of(task, config),
        training.Trainings(model, config.train),
        model,
    )


@pytest.mark.thorough
def test_a_training_ends_when_the_task_is_learned(trainer):
    config, examples, trained, model = trainer
    fast, slow = trained.runs(examples, [(0.01, 0), (1e-6, 0)])
    assert (fast.learned, fast.valid) == (True, 1.0)
    assert 20 <= fast.steps < 120
    assert (slow.learned, slow.steps) == (False, 120)
    shorter = config.model_copy(update={"train": config.train.model_copy(
        update={"steps": fast.steps, "learned": 2.0})})  # fmt: skip
    (whole,) = training.Trainings(model, shorter.train).runs(examples, [(0.01, 0)])
    assert gap(fast.params, whole.params) == 0.0, "as a budget of so many steps"


@pytest.mark.thorough
def test_a_rate_is_tried_for_as_long_as_it_can_be_chosen(trainer):
    _, examples, trained, _ = trainer
    slow, fast, cut = trained.tried(examples, (1e-6, 0.01, 2e-6), 0)
    assert (slow.steps, fast.learned, cut.learned) == (120, True, False)
    assert cut.steps == fast.steps < 120
    assert measure_method.best_rate([slow, fast, cut]) == 0.01
    with compile_for("gpu"):
        *_, whole = trained.tried(examples, (1e-6, 0.01, 2e-6), 0)
    assert whole.steps == 120, "control: all at once"


@pytest.mark.thorough
def test_runs_together_are_the_runs_one_by_one(trainer):
    """As on an accelerator, where all rates and seeds are one program."""
    _, examples, trained, _ = trainer
    trials = [(0.01, 0), (1e-6, 1)]
    alone = list(trained.runs(examples, trials))
    with compile_for("gpu"):
        together = list(trained.runs(examples, trials))
    for one, other in zip(alone, together, strict=True):
        assert one[:5] == other[:5]
        assert gap(one.params, other.params) < 1e-4
    assert alone[0].steps != alone[1].steps, "control: the one that learns first waits"


@pytest.mark.thorough
def test_a_second_training_starts_from_given_weights(trainer):
    _, examples, trained, _ = trainer
    (first,) = trained.runs(examples, [(0.01, 0)])
    (still,) = trained.runs(examples, [(0.0, 3)], [first.params])
    (fresh,) = trained.runs(examples, [(0.0, 3)])
    gap = lambda run: float(np.abs(run.params["read_out"]["kernel"] - kernel).max())
    kernel = first.params["read_out"]["kernel"]
    assert (gap(still), still.valid) == (pytest.approx(0, abs=1e-6), 1.0)
    assert gap(fresh) > 0.01


@pytest.mark.thorough
def test_a_loss_that_is_not_finite_ends_a_training(trainer):
    _, examples, trained, _ = trainer
    broken = examples._replace(train=lambda seed_S, steps: jax.tree.map(
        lambda leaf: leaf * jnp.nan if leaf.dtype == jnp.float32 else leaf,
        examples.train(seed_S, steps)))  # fmt: skip
    (run,) = trained.runs(broken, [(0.01, 0)])
    assert not run.learned


def test_the_rate_is_that_of_the_best_validation_and_then_of_the_fewest_steps():
    run = lambda rate, valid, steps: Run(rate, 0, steps, True, valid, None)
    actual = [run(1e-3, 0.995, 900), run(2e-3, 1.0, 1200), run(4e-3, 0.9, 100)]
    assert measure_method.best_rate(actual) == 1e-3
    assert measure_method.best_rate(actual[1:]) == 2e-3


@pytest.mark.thorough
def test_scores_are_those_of_each_row(trainer, monkeypatch):
    """Rows in parts, each computed again with NumPy."""
    config, examples, trained, model = trainer
    (run,) = trained.runs(examples, [(0.01, 0)])
    batch = examples.test[1]
    wrong_BT = batch.targets_BT.at[::4, 9:].set(0)
    batch = batch._replace(targets_BT=wrong_BT)
    monkeypatch.setattr(evaluation, "TOKENS", 64)
    params = training.stacked([run.params, run.params])
    actual = evaluation.batch_scorer(model, training.METRICS)(params, batch)
    logits = np.asarray(model.apply(run.params, batch.tokens_BT, batch.layout), np.float64)
    right = counted = exact = loss = 0.0
    for row in range(config.examples):
        places = np.flatnonzero(batch.weights_BT[row])
        target = np.asarray(batch.targets_BT[row])[places]
        hit = logits[row, places].argmax(axis=1) == target
        odds = np.exp(logits[row, places]).sum(axis=1)
        loss -= (logits[row, places, target] - np.log(odds)).sum()
        right, counted, exact = right + hit.sum(), counted + len(hit), exact + hit.all()
    wanted = {"exact_match": exact / config.examples, "token_accuracy": right / counted}
    wanted["loss"] = loss / counted
    for seed in (0, 1):
        assert {n: float(value[seed]) for n, value in actual.items()} == pytest.approx(wanted, 1e-4)
    assert 0.5 < wanted["exact_match"] < wanted["token_accuracy"] < 1


# The run as a whole.


@pytest.mark.thorough
def test_run_in_processes_of_their_own(tmp_path, capsys, monkeypatch):
    """Two workers give what one process gives, and the folder holds every seed and the page."""
    monkeypatch.setattr(parallel_rows, "ROWS", 1)
    # The workers read the programs that the one process compiled.
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(jax.config.jax_compilation_cache_dir))

    def measured(names, cores):
        monkeypatch.setattr(parallel_rows, "cores", lambda: cores)
        workdir = tmp_path / names
        config = config_of(f"{names},quick", examples=8, **{"train.steps": 20})
        experiments.prepare(config.to_dict(), str(workdir))()
        stored = runs.read(workdir)
        scores = [r for r in stored.records if r["metric"] not in runs.TIMES]
        actual = {(*r["labels"].items(), r["metric"], r["seed"]): r["value"] for r in scores}
        return workdir, actual, [r["labels"] for r in scores if r["labels"]["split"] == "test"]

    workdir, methods, tests = measured("rope,yarn,drope,learned", [0])
    printed = capsys.readouterr().out
    _, two, _ = measured("rope,learned", [0, 1])
    assert two.keys() == {key for key in methods if key[0][1] not in ("yarn", "drope")}
    same = lambda a, b: a == pytest.approx(b, abs=0.02, nan_ok=True)
    assert all(same(methods[key], two[key]) for key in two)
    rows = {(labels["encoding"], labels["length"]) for labels in tests}
    control = f"rope{measure_method.SHUFFLED}"
    names = "rope", "yarn", "drope", "learned", control
    assert rows == {(name, window) for name in names for window in (32, 64)}
    assert "yarn†" in printed
    assert "rope = shifted+rope" in printed
    assert (workdir / "report.html").stat().st_size > 8_000


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("prepare", "given", "error"), [(int, "x", ValueError), (os._exit, 1, exit_status.Interrupted)]
)
def test_what_goes_wrong_in_a_worker_is_raised_and_only_a_lost_one_interrupts(
    prepare, given, error, monkeypatch
):
    """An error would occur again at each restart, so only a lost worker asks for a restart."""
    monkeypatch.setattr(parallel_rows, "cores", lambda: [0, 1])
    monkeypatch.setattr(parallel_rows, "ROWS", 1)
    with pytest.raises(error) as caught:
        list(parallel_rows.measured(prepare, given, ["a", "b"]))
    assert type(caught.value) is error


def test_memory_that_runs_out_is_a_reason_and_a_bug_is_raised(monkeypatch):
    config, raised = checked(), MemoryError()

    def measure(*args):
        raise raised

    monkeypatch.setattr(measure_method, "measure", measure)
    assert measure_method._attempt(config, 32, None, "rope") == ([], "out of memory")
    raised = KeyError("a bug")
    with pytest.raises(KeyError):
        measure_method._attempt(config, 32, None, "rope")


def test_the_board_goes_on_from_the_runs_that_are_published(tmp_path):
    """Runs of the archive are unpacked where they are missing, and one at hand is kept."""
    with tarfile.open(tmp_path / "runs.tar.xz", "w:xz") as archive:
        for name in ("one", "two"):
            file = tmp_path / f"{name}.json"
            file.write_text(name)
            archive.add(file, f"{name}/config.json")
    folder = tmp_path / "runs"
    (folder / "two").mkdir(parents=True)
    (folder / "two" / "config.json").write_text("mine")
    assert unpack(tmp_path / "runs.tar.xz", folder) == 1
    assert (folder / "one" / "config.json").read_text() == "one"
    assert (folder / "two" / "config.json").read_text() == "mine"
