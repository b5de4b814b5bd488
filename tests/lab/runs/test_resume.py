"""A run that is opened again resumes from what its files hold."""

import functools
import json
import resource

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax.lab import runs, tasks
from posenc_jax.lab.config.schema import CheckpointConfig, TrainConfig
from posenc_jax.lab.hosts import failpoints
from posenc_jax.lab.hosts.exit_status import Diverged, NotWritten, Refused
from posenc_jax.lab.hosts.files import folder_name
from posenc_jax.lab.model.transformer import Model
from posenc_jax.lab.runs.lock import locked
from posenc_jax.lab.training import loop
from posenc_jax.lab.training.batches import training_batches
from posenc_jax.lab.training.loop import chunk_runner, init_runner, train
from posenc_jax.lab.training.optimizers import optimizer, rates
from posenc_jax.lab.training.step import PLACE, random_key
from tests.lab.runs.test_runs import CONFIG, RECORD, lines

TASK = tasks.make("copy", alphabet=4)
TRAIN = TrainConfig(length=4, min_length=1, batch=2, steps=8, lr=1e-2, warmup=2, chunk=2)
MODEL = Model(  # a table of logits for each token: it compiles fast
    lambda key: {"after": jax.random.normal(key, (TASK.vocab, TASK.vocab))},
    lambda params, tokens_BT, layout, placed=None, **form: params["after"][tokens_BT],
)
RUNNER = functools.cache(lambda model: chunk_runner(model, TRAIN, True))  # compiled once
BATCHES = training_batches(TASK, TRAIN)
OFTEN = CheckpointConfig(seconds=0.0)


class Killed(BaseException):
    """Stands in for SIGKILL: no code of the package catches it."""


def step(run, number, **changes):
    run.log([{**RECORD, "step": number, **changes}])


def test_records_of_a_stage_that_did_not_end_are_cut_off(tmp_path):
    with runs.Run(tmp_path, CONFIG) as run:
        step(run, 1)
        run.end("a")
        step(run, 2)
        step(run, 3)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"torn')
    with runs.Run(tmp_path, CONFIG) as run:
        assert run.ended("a")
        assert not run.ended("b")
        assert [record["step"] for record in run.records()] == [1]
        assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 4, "not cut yet"
        step(run, 2, value=7.0)
        run.end("b")
        run.finish({})
    assert [(line["step"], line["value"]) for line in lines(tmp_path)] == [(1, 2.5), (2, 7.0)]
    assert runs.read(tmp_path).summary.starts == 2


def test_a_full_disk_stops_with_one_line_and_leaves_no_half_record(tmp_path):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with runs.Run(tmp_path, CONFIG) as run:
        step(run, 1)
        room = (tmp_path / "metrics.jsonl").stat().st_size + 20
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, limits[1]))
        try:
            with pytest.raises(NotWritten, match=r"^[^\n]*metrics\.jsonl: File too large$"):
                step(run, 2)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert [record["step"] for record in run.records()] == [1]
        step(run, 3)
    assert [line["step"] for line in lines(tmp_path)] == [1, 3]


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(Refused, match=r"^workdir: [^\n]*: Not a directory$"):
        runs.Run(tmp_path / "file" / "run", CONFIG)


def test_facts_of_stages_that_ended_stay(tmp_path):
    with runs.Run(tmp_path, CONFIG) as run:
        run.fact(corpus=7)
        run.end("a")
    with runs.Run(tmp_path, CONFIG) as run:
        assert run.finish({}).facts == {"corpus": 7}


@pytest.mark.parametrize("damage", ["a line changed", "shorter"])
def test_stages_whose_records_are_not_as_they_were_are_repeated(tmp_path, damage):
    with runs.Run(tmp_path, CONFIG) as run:
        for number, stage in enumerate("abc"):
            step(run, number)
            run.end(stage)
    path = tmp_path / "metrics.jsonl"
    first, second, third = path.read_text().splitlines(True)
    path.write_text(first + (second.replace("2.5", "9.5") + third if "line" in damage else ""))
    with runs.Run(tmp_path, CONFIG) as run:
        assert [run.ended(stage) for stage in "abc"] == [True, False, False]
        run.finish({})
    assert len(lines(tmp_path)) == 1


@pytest.mark.parametrize("damage", ["{", "[]", "null"])
def test_progress_that_cannot_be_read_costs_time_and_nothing_else(tmp_path, damage):
    with runs.Run(tmp_path, CONFIG) as run:
        step(run, 1)
        run.end("a")
    (tmp_path / "progress.json").write_text(damage)
    with runs.Run(tmp_path, CONFIG) as run:
        assert not run.ended("a")
        assert run.records() == []


def test_it_says_in_one_line_where_it_goes_on(tmp_path, capsys):
    with runs.Run(tmp_path, CONFIG) as run:
        run.begin("a")
        run.end("a")
    assert capsys.readouterr().out == ""
    with runs.Run(tmp_path, CONFIG) as run:
        run.begin("b")
        run.begin("c")
    assert capsys.readouterr().out == f"{tmp_path}: goes on from b\n"


def test_a_changed_machine_is_said(tmp_path, capsys):
    with runs.Run(tmp_path, CONFIG):
        pass
    path = tmp_path / "config.json"
    stored = json.loads(path.read_text())
    now = stored["environment"]
    before = now | {"jax": "0.1", "processor": "abacus"}
    del before["numpy"]  # a run that is older than a fact does not tell it
    path.write_text(json.dumps(stored | {"environment": before}))
    with runs.Run(tmp_path, CONFIG):
        pass
    changed = f"jax 0.1 -> {jax.__version__}, processor abacus -> {now['processor']}"
    assert f"goes on with {changed}: bits may differ" in capsys.readouterr().out


def test_a_folder_in_use_is_refused_by_host_and_process(tmp_path, monkeypatch):
    with runs.Run(tmp_path, CONFIG):
        with pytest.raises(ValueError, match=r"^workdir: [^\n]* is in use by process \d+ on \S+$"):
            runs.Run(tmp_path, CONFIG)
        monkeypatch.setattr("fcntl.flock", lambda file, how: None)
        with locked(tmp_path):  # control
            pass
    monkeypatch.undo()
    with runs.Run(tmp_path, CONFIG):
        pass


def test_a_lock_of_a_dead_process_is_no_lock(tmp_path):
    (tmp_path / "lock").write_text("process 1 on another")
    with locked(tmp_path):
        pass


@pytest.mark.parametrize(
    "name", ["..", "../up", "a/b", "/etc", "", ".hidden", "a\0b", "-rf", "a\n"]
)
def test_a_name_that_leads_elsewhere_is_no_folder(name):
    with pytest.raises(ValueError, match="cannot be a folder"):
        folder_name(name)
    assert folder_name("randomized+rope_2.d") == "randomized+rope_2.d"


def attempt(workdir, kill="", count=0, model=MODEL):
    """The state after training in a run, killed at the so-manyth time a failpoint is reached."""
    reached = []

    def reach(name):
        reached.append(name)
        if name == kill and reached.count(kill) == count:
            raise Killed

    def read(metrics, seconds):
        for at, loss in zip(metrics["step"][0], metrics["loss"][0], strict=True):
            step(run, at, value=loss)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(failpoints, "reach", reach)
        patch.setattr(loop, "chunk_runner", lambda model, *rest: RUNNER(model))
        with (
            runs.Run(workdir, CONFIG) as run,
            runs.StageCheckpoints(run, "nope", 8, OFTEN) as checkpoints,
        ):
            state = train(model, TASK, TRAIN, 1, 0, True, read, checkpoints)
            run.end("nope")
    return state, run


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    return attempt(folder)[0], lines(folder)


@pytest.mark.thorough(after=1)
@pytest.mark.parametrize(
    ("kill", "count"),
    [("training", 2), ("writing", 2), ("committed", 1), ("sealed", 3), ("deleting", 1)],
)
def test_training_goes_on_from_the_newest_good_checkpoint(tmp_path, whole, kill, count, capsys):
    with pytest.raises((Killed, NotWritten)):
        attempt(tmp_path, kill, count)
    state, _ = attempt(tmp_path)
    for a, b in zip(jax.tree.leaves(state), jax.tree.leaves(whole[0]), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
    assert [line["step"] for line in lines(tmp_path)] == [*range(1, 9)]
    np.testing.assert_allclose([x["value"] for x in lines(tmp_path)],
                               [x["value"] for x in whole[1]], rtol=1e-6)  # fmt: skip
    expected = {"writing": 2, "committed": 0, "training": 2, "sealed": 6, "deleting": 6}[kill]
    assert f"goes on from nope, step {expected} of 8" in capsys.readouterr().out


def test_a_damaged_final_checkpoint_takes_the_end_of_the_stage_back(tmp_path, capsys):
    attempt(tmp_path)
    with runs.Run(tmp_path, CONFIG) as run:
        step(run, 8)
        run.end("later")
    (tmp_path / "checkpoints/nope/8/note/metadata").write_text("{}")
    _, run = attempt(tmp_path)
    assert [line["step"] for line in lines(tmp_path)] == [*range(1, 9)]
    assert "8: not used: note/metadata is not what was written" in capsys.readouterr().err
    with runs.Run(tmp_path, CONFIG) as run:
        assert not run.ended("later")


@pytest.mark.thorough
def test_a_loss_that_is_not_finite_stops_before_its_update(tmp_path):
    """Not finite from the sixth step on, for one seed; what is kept is of finite steps."""
    broken = _breaking(after=5)
    with pytest.raises(Diverged, match=r"^step 6, seed 0: loss nan [^\n]* the update was not made"):
        attempt(tmp_path, model=broken)
    assert [line["step"] for line in lines(tmp_path)] == [1, 2, 3, 4, 5, 6]
    assert [line["value"] is None for line in lines(tmp_path)] == [False] * 5 + [True]
    assert sorted(path.name for path in (tmp_path / "checkpoints/nope").iterdir()) == ["2", "4"]


@pytest.mark.thorough
def test_the_state_before_the_bad_step_is_kept():
    states = []
    for after, steps in ((5, 8), (99, 5)):
        model = _breaking(after)
        state = init_runner(model, optimizer(TRAIN), 1)()
        arguments = BATCHES([0], range(steps)), rates(TRAIN, range(steps))
        states.append(RUNNER(model)(state, *arguments)[0])
    assert int(states[0].step[0]) == 5
    for a, b in zip(*map(jax.tree.leaves, states), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def _breaking(after):
    """The model, with outputs that are not finite after so many steps of training."""

    def place(key, layout):
        later = jax.vmap(lambda n: jax.random.key_data(random_key(0, PLACE, n)))
        bad = (later(jnp.arange(after, 20)) == jax.random.key_data(key)[None]).all(axis=1).any()
        return jnp.broadcast_to(bad, layout.pos_BT.shape)

    def apply(params, tokens_BT, layout, bad_BT, **form):
        return jnp.where(bad_BT[..., None], jnp.nan, MODEL.apply(params, tokens_BT, layout))

    return MODEL._replace(apply=apply, place=place)
