"""Records of metrics.jsonl."""

import hashlib
import json

import pytest

from posenc_jax.lab import runs
from posenc_jax.lab.runs.records import check, parse
from tests.lab.runs.test_runs import CONFIG, LABELS, RECORD


def test_one_record_for_each_metric_and_seed():
    values = {"loss": [1.0, 2.0], "grad_norm": [3.0, 4.0]}
    actual = list(runs.seed_records(10, [4, 5], LABELS, values))
    assert [(r["metric"], r["seed"], r["value"]) for r in actual] == [
        ("loss", 4, 1.0), ("loss", 5, 2.0), ("grad_norm", 4, 3.0), ("grad_norm", 5, 4.0)
    ]  # fmt: skip
    assert all(check(r) == r and r["labels"] == LABELS for r in actual)
    with pytest.raises(ValueError, match="zip"):
        list(runs.seed_records(10, [4, 5, 6], LABELS, values))


def test_a_run_begun_before_progress_had_a_hash_goes_on(tmp_path):
    """Its stage that ended is not repeated; what follows it is cut off, as ever."""
    with runs.Run(tmp_path, CONFIG):
        pass
    ended = json.dumps(RECORD) + "\n"
    (tmp_path / "metrics.jsonl").write_text(ended + json.dumps(RECORD | {"step": 11}) + "\n")
    mark = {"bytes": len(ended), "sha256": hashlib.sha256(ended.encode()).hexdigest()}
    progress = json.loads((tmp_path / "progress.json").read_text("utf-8"))
    progress["stages"] = {"rope": mark}
    del progress["sha256"]
    (tmp_path / "progress.json").write_text(json.dumps(progress))
    with runs.Run(tmp_path, CONFIG) as run:
        assert run.ended("rope")
        assert run.records() == [RECORD]
        run.log([{**RECORD, "step": 12}])
        run.end("alibi")
        run.finish({})
    assert runs.read(tmp_path).records == [RECORD, {**RECORD, "step": 12}]


def test_a_line_of_an_unknown_form_is_refused_by_its_number(tmp_path):
    flat = {"step": 10, "seed": 0, **LABELS, "metric": "bits_per_byte", "value": 2.5}
    lines = json.dumps(RECORD) + "\n" + json.dumps(flat) + "\n"
    with pytest.raises(ValueError, match=r"m.jsonl: line 2: "):
        parse(lines.encode(), tmp_path / "m.jsonl")
    assert parse((json.dumps(RECORD) + "\n").encode(), tmp_path / "m.jsonl") == [RECORD], "control"
