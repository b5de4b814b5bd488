"""A run on disk: what is written, read back and refused."""

import json
import math

import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax.lab import runs
from posenc_jax.lab.hosts import exit_status
from posenc_jax.lab.runs.records import check
from posenc_jax.options import FieldError

CONFIG = {"experiment": "e", "train": {"length": 8}, "eval": {"lengths": (8, 16)}}
LABELS = {"encoding": "rope", "split": "test", "length": 8}
RECORD = {"step": 10, "seed": 0, "labels": LABELS, "metric": "bits_per_byte", "value": 2.5}


def labelled(**labels):
    """The record with some labels added or changed."""
    return {**RECORD, "labels": {**LABELS, **labels}}


def lines(path):
    return [json.loads(line) for line in (path / "metrics.jsonl").read_text("utf-8").splitlines()]


def test_a_run_leaves_what_it_was_given(tmp_path):
    workdir = tmp_path / "deep" / "run"
    with runs.Run(workdir, CONFIG) as run:
        run.log([RECORD, labelled(position=4)])
        assert len(lines(workdir)) == 2  # on disk at once, not at the end
        run.fact(corpus={"bytes": np.int64(7)}, hash="é")
        run.finish({"metric": "bits_per_byte", "low": math.nan})
    stored = runs.read(workdir)
    assert stored.config == {**CONFIG, "eval": {"lengths": [8, 16]}}
    assert stored.records == [RECORD, labelled(position=4)]
    assert stored.summary.facts == {"corpus": {"bytes": 7}, "hash": "é"}
    assert stored.summary.own["low"] is None
    assert {"jax", "jaxlib", "flax", "python", "device", "started", "command"} <= set(
        stored.environment
    )
    assert sorted(path.name for path in workdir.iterdir()) == [
        "config.json", "lock", "metrics.jsonl", "progress.json", "summary.json",
    ]  # fmt: skip


@pytest.mark.parametrize("error", [exit_status.Refused("text"), FieldError("task.name", "text")])
def test_a_refusal_before_the_first_record_leaves_nothing(tmp_path, error):
    def refused(workdir, *records):
        def measure():
            with runs.Run(workdir, CONFIG) as run:
                run.fact(corpus={"sha256": "a"})
                run.log(records)
                raise error

        with pytest.raises(type(error)):
            measure()

    (tmp_path / "empty").mkdir()
    refused(tmp_path / "deep" / "run")
    refused(tmp_path / "empty")
    assert [*tmp_path.rglob("*")] == [tmp_path / "empty"]
    refused(tmp_path / "run", RECORD)  # controls: a record, an earlier start, a file of the user
    assert lines(tmp_path / "run") == [RECORD]
    refused(tmp_path / "run")
    assert (tmp_path / "run" / "progress.json").exists()
    (tmp_path / "note.txt").touch()
    refused(tmp_path)
    assert (tmp_path / "note.txt").exists()


def test_no_variable_of_the_environment_is_written(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", "sesame")
    with runs.Run(tmp_path, CONFIG | {"open": "poppy"}):
        pass
    written = (tmp_path / "config.json").read_text("utf-8")
    assert "sesame" not in written
    assert "poppy" in written


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_not_finite_stays_json_and_stays_recorded(tmp_path, value):
    with runs.Run(tmp_path, CONFIG) as run:
        run.log([{**RECORD, "value": value}])
        run.finish({})

    def refuse(name):
        raise AssertionError(f"{name} is no JSON")

    text = (tmp_path / "metrics.jsonl").read_text("utf-8")
    assert json.loads(text, parse_constant=refuse)["value"] is None
    assert math.isnan(runs.read(tmp_path).records[0]["value"])
    with pytest.raises(AssertionError, match="is no JSON"):
        json.loads(json.dumps({"value": value}), parse_constant=refuse)


@pytest.mark.parametrize("value", [np.float32(2.5), jnp.float32(2.5), np.array(2.5), 2.5])
def test_numbers_of_numpy_and_jax_become_plain(value):
    checked = check({**RECORD, "step": np.int32(10), "value": value})
    assert checked == RECORD
    assert type(checked["value"]) is float
    assert type(checked["step"]) is int


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("value", {"value": "2.5"}),
        ("value", {"value": True}),
        ("value", {"value": np.zeros(2)}),
        ("step", {"step": 1.5}),
        ("step", {"step": -1}),
        ("seed", {"seed": None}),
        ("labels", {"labels": "rope"}),
        (r"labels\.length", labelled(length=0)),
        (r"labels\.encoding", labelled(encoding="")),
        (r"labels\.split", labelled(split="dev")),
        (r"labels\.split", {"labels": {"encoding": "rope"}}),
        (r"labels\.position", labelled(position=-1)),
        (r"labels\.side", labelled(side=0.5)),
        ("metric", {"metric": 3}),
        ("metric", {"metric": "copy/loss"}),
        ("loss", {"loss": 1.0}),
    ],
)
def test_a_bad_record_is_refused_by_its_field_and_nothing_is_written(tmp_path, field, change):
    with runs.Run(tmp_path, CONFIG) as run:
        with pytest.raises(ValueError, match=rf"^record\.{field}: [^\n]+$"):
            run.log([RECORD, {**RECORD, **change}])
        assert lines(tmp_path) == []
        run.log([RECORD])
        assert lines(tmp_path) == [RECORD]


def test_a_missing_field_is_named():
    with pytest.raises(ValueError, match=r"^record\.seed: missing"):
        check({field: value for field, value in RECORD.items() if field != "seed"})


def test_what_json_cannot_hold_is_refused_by_its_field(tmp_path):
    with pytest.raises(ValueError, match=r"^config\.train\.rng: object"):
        runs.Run(tmp_path, {"train": {"rng": object()}})
    with pytest.raises(ValueError, match=r"^config\.environment: "):
        runs.Run(tmp_path, {"environment": {}})
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_is_older_than_a_field_had_its_default(tmp_path):
    old = {**CONFIG, "train": {"lr": 0.1}}
    with runs.Run(tmp_path, old) as run:
        run.log([RECORD])
    new = {**old, "train": {"lr": 0.1, "optimizer": {"name": "adamw"}}}
    defaults = {"train.optimizer.name"}
    assert runs.run_status(tmp_path, new, defaults) == "begun"
    with runs.Run(tmp_path, new, defaults=defaults):
        pass
    assert json.loads((tmp_path / "config.json").read_text())["train"] == {"lr": 0.1}
    # The controls: another value than the default, also of one of its options.
    with pytest.raises(
        ValueError, match=r"with no config\.train\.optimizer; choose another --workdir$"
    ):
        runs.run_status(tmp_path, new)
    new["train"]["optimizer"]["b2"] = 0.9
    with pytest.raises(
        ValueError, match=r"with no config\.train\.optimizer; choose another --workdir$"
    ):
        runs.run_status(tmp_path, new, defaults)


def test_a_folder_with_another_run_is_refused_and_left_alone(tmp_path):
    with runs.Run(tmp_path, CONFIG) as run:
        run.log([RECORD])
    other = {**CONFIG, "train": {"length": 9}}
    said = r"^workdir: [^\n]* a run, with config\.train\.length 8, not 9; choose another --workdir$"
    with pytest.raises(ValueError, match=said):
        runs.Run(tmp_path, other)
    assert runs.run_status(tmp_path, CONFIG) == "begun"
    assert lines(tmp_path) == [RECORD]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"seeds": 3}, r"with no config\.seeds"),
        ({"experiment": None}, r"with config\.experiment 'e', not None"),
        ({"eval": {}}, r"with config\.eval\.lengths, which this config lacks"),
    ],
)
def test_the_first_field_that_differs_is_named(tmp_path, change, said):
    with runs.Run(tmp_path, CONFIG) as run:
        run.log([RECORD])
    with pytest.raises(ValueError, match=said):
        runs.run_status(tmp_path, CONFIG | change)


def test_a_finished_run_is_said_to_be_and_not_opened(tmp_path):
    with runs.Run(tmp_path, CONFIG) as run:
        run.finish({})
    assert runs.run_status(tmp_path, CONFIG) == "finished"
    with pytest.raises(ValueError, match="finished"):
        runs.Run(tmp_path, CONFIG)


def test_a_run_that_died_before_its_first_record_may_be_replaced(tmp_path):
    with runs.Run(tmp_path, CONFIG):
        pass
    with runs.Run(tmp_path, {"experiment": "other"}):
        pass
    assert json.loads((tmp_path / "config.json").read_text("utf-8"))["experiment"] == "other"


def test_a_config_json_of_somebody_else_is_not_overwritten(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ValueError, match=r"^workdir: "):
        runs.Run(tmp_path, CONFIG)
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="is a file"):
        runs.Run(tmp_path / "file", CONFIG)


def test_a_run_that_did_not_finish_is_not_read_as_one_that_did(tmp_path):
    with runs.Run(tmp_path, CONFIG) as run:
        run.log([RECORD])
    with pytest.raises(ValueError, match=r"no summary\.json"):
        runs.read(tmp_path)


def test_a_torn_last_line_is_left_out_and_a_damaged_one_named(tmp_path):
    with runs.Run(tmp_path, CONFIG) as run:
        run.log([RECORD])
        run.finish({})
    path = tmp_path / "metrics.jsonl"
    whole = path.read_text("utf-8")
    path.write_text(whole + whole[:20], "utf-8")
    assert runs.read(tmp_path).records == [RECORD]
    path.write_text(whole + whole[:20] + "\n", "utf-8")
    with pytest.raises(ValueError, match=r"metrics\.jsonl: line 2: "):
        runs.read(tmp_path)


def test_a_run_does_not_go_on_with_other_data(tmp_path):
    """Known from the first start on, though that ended before any stage did."""
    with runs.Run(tmp_path, CONFIG) as run:
        run.fact(task={"sha256": "ab", "bytes": 7}, programs=1)
    with runs.Run(tmp_path, CONFIG) as run:
        said = r"^workdir: [^\n]* holds a run, with task\.sha256 ab, not cd; bring[^\n]*$"
        with pytest.raises(exit_status.Refused, match=said):
            run.fact(task={"sha256": "cd", "bytes": 7})
        assert run.facts["task"]["sha256"] == "ab"
    with runs.Run(tmp_path, CONFIG) as run:
        # The control: all else may change.
        run.fact(task={"sha256": "ab", "python": "3.12"}, programs=2)
        assert run.facts == {"task": {"sha256": "ab", "python": "3.12"}, "programs": 2}
