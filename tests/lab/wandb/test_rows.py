"""What W&B gets of records: rows under keys that every encoding and seed has."""

import pytest

from posenc_jax.lab.summary import parse
from posenc_jax.lab.wandb import rows
from tests.lab.runs.test_runs import LABELS, RECORD, labelled


def record(split="train", metric="loss", value=1.0, step=20, seed=0, **labels):
    labels = {**LABELS, "split": split, **labels}
    return {"step": step, "seed": seed, "labels": labels, "metric": metric, "value": value}


def test_a_row_has_the_keys_of_its_split_over_its_axis():
    records = [
        record(), record(metric="grad_norm", value=0.5),
        record("valid", value=2.0),
        record("test", "bits_per_byte", 2.5, length=2048),
        record("test", "bits_per_byte", 3.0, length=2048, position=4),
        record("test", "bits_per_byte", 3.5, length=2048, position=16),
    ]  # fmt: skip
    key = "by_position/bits_per_byte/2048"
    assert list(rows.rows(records)) == [
        {"step": 20, "train/loss": 1.0, "train/grad_norm": 0.5},
        {"step": 20, "valid/loss": 2.0},
        {"step": 20, "test/bits_per_byte/2048": 2.5,
         "length": 2048, "by_length/bits_per_byte": 2.5},
        {"position": 4, key: 3.0},
        {"position": 16, key: 3.5},
    ]  # fmt: skip


def test_a_value_that_is_not_finite_is_left_out():
    (row,) = rows.rows([record(), record(metric="step_seconds", value=float("nan"))])
    assert row == {"step": 20, "train/loss": 1.0}


def test_rows_do_not_depend_on_how_many_records_come_at_a_time():
    records = [r for step in (20, 40) for r in (record(step=step), record("valid", step=step))]
    records += [record("test", length=n, step=40) for n in (8, 16)]
    row_by_row = [row for r in records for row in rows.rows([r])]
    assert list(rows.rows(records)) == row_by_row


def test_keys_are_those_of_every_encoding_and_seed():
    several = [record(seed=seed, encoding=name) for name in ("rope", "alibi") for seed in (0, 1)]
    parts = rows.by_training([*several, {**RECORD, "labels": {"split": "test"}}])
    assert list(parts) == [("rope", 0), ("rope", 1), ("alibi", 0), ("alibi", 1)]
    (keys,) = {tuple(row) for part in parts.values() for row in rows.rows(part)}
    assert keys == ("step", "train/loss")


def test_other_labels_are_at_the_end_of_a_key_and_keep_values_apart():
    keys = [rows.key(labelled(task=task)) for task in ("copy", "sort")]
    assert keys == ["test/bits_per_byte/8/copy", "test/bits_per_byte/8/sort"]
    claim = {**RECORD, "labels": {"claim": "sin-5", "number": "gap", "split": "test"}}
    assert rows.key(claim) == "test/bits_per_byte/sin-5/gap"


def test_shared_rows_are_means_over_the_seeds_of_each_encoding():
    records = [record(seed=seed, value=seed + 1.0) for seed in (0, 1)]
    records += [record("valid", seed=seed, value=4.0) for seed in (0, 1)]
    records += [record(position=3), record(task="copy")]
    assert list(rows.shared_rows(records)) == [
        {"step": 20, "train/loss": 1.5}, {"step": 20, "valid/loss": 4.0},
    ]  # fmt: skip


def test_means_of_a_summary_are_over_encodings_and_beyond_the_trained_length():
    cell = lambda mean: {"mean": mean, "low": None, "high": None, "seeds": [mean]}
    results = {
        "rope": {"8": cell(2.0), "16": cell(3.0), "32": cell(4.0)},
        "nope": {"8": cell(4.0), "16": cell(5.0), "32": cell(None)},
    }
    summary = parse({"metric": "loss", "train_length": 8, "results": results})
    means = rows.means(summary)
    assert means == {"test/loss/8": 3.0, "test/loss/16": 4.0, rows.OBJECTIVE: 4.0}
    assert rows.means(parse({"own": 1})) == {}, "control: no results by length"
    with pytest.raises(KeyError):
        means["test/loss/32"]  # one encoding has none
