"""Records of metrics.jsonl, and the lines that an earlier version wrote."""

import hashlib
import json

import pytest

from posenc_jax.lab import runs
from posenc_jax.lab.runs.records import check, from_flat
from tests.test_runs import CONFIG, LABELS, RECORD

FLAT = {"step": 10, "seed": 0, **LABELS, "metric": "bits_per_byte", "value": 2.5}


def test_one_record_for_each_metric_and_seed():
    values = {"loss": [1.0, 2.0], "grad_norm": [3.0, 4.0]}
    found = list(runs.seed_records(10, [4, 5], LABELS, values))
    assert [(r["metric"], r["seed"], r["value"]) for r in found] == [
        ("loss", 4, 1.0), ("loss", 5, 2.0), ("grad_norm", 4, 3.0), ("grad_norm", 5, 4.0)
    ]  # fmt: skip
    assert all(check(r) == r and r["labels"] == LABELS for r in found)
    with pytest.raises(ValueError, match="zip"):
        list(runs.seed_records(10, [4, 5, 6], LABELS, values))


@pytest.mark.parametrize(
    ("metric", "now", "labels"),
    [
        ("bits_per_byte", "bits_per_byte", {}),
        ("time/evaluation_seconds", "evaluation_seconds", {}),
        ("copy/token_accuracy", "token_accuracy", {"task": "copy"}),
        ("file:/a/b.txt/loss", "loss", {"task": "file:/a/b.txt"}),
        ("order/right", "order_accuracy", {}),
        ("order/twins", "twins", {}),
        ("error/float32", "error", {"dtype": "float32"}),
        ("carried/float64", "carried", {"dtype": "float64"}),
        (
            "content/outputs/attention+loss/left", "leak",
            {"change": "content", "quantity": "outputs", "masks": "attention+loss", "side": "left"},
        ),
        (
            "token/padded/none/right", "accuracy",
            {"answer": "token", "condition": "padded", "masks": "none", "side": "right"},
        ),
        ("mass/none/left", "attention_on_padding", {"masks": "none", "side": "left"}),
    ],
)  # fmt: skip
def test_a_flat_line_becomes_a_record_and_its_slashes_labels(metric, now, labels):
    record = from_flat({**FLAT, "metric": metric})
    assert record == {**RECORD, "labels": {**LABELS, **labels}, "metric": now}
    assert check(record) == record


def test_a_flat_line_keeps_its_position_and_a_claims_number_its_words():
    assert from_flat({**FLAT, "position": 4})["labels"] == {**LABELS, "position": 4}
    words = "longest wavelength / (10000 * 2 pi), d = 64"
    claim = from_flat({**FLAT, "encoding": "sin-2", "metric": words})
    assert claim["labels"] == {"claim": "sin-2", "number": words, "split": "test"}
    assert check(claim)["metric"] == "measured"


def test_a_run_begun_with_flat_records_goes_on(tmp_path):
    """Its stage that ended is not repeated; what follows it is cut off, as ever."""
    with runs.Run(tmp_path, CONFIG):
        pass
    ended = json.dumps(FLAT) + "\n" + json.dumps({**FLAT, "metric": "time/seconds"}) + "\n"
    (tmp_path / "metrics.jsonl").write_text(ended + json.dumps(FLAT | {"step": 11}) + "\n")
    mark = {"bytes": len(ended), "sha256": hashlib.sha256(ended.encode()).hexdigest()}
    progress = json.loads((tmp_path / "progress.json").read_text("utf-8"))
    progress["stages"] = {"rope": mark}
    del progress["sha256"]  # that version wrote none
    (tmp_path / "progress.json").write_text(json.dumps(progress))
    seconds = {**RECORD, "metric": "seconds"}
    with runs.Run(tmp_path, CONFIG) as run:
        assert run.ended("rope")
        assert run.records() == [RECORD, seconds]
        run.log([{**RECORD, "step": 12}])
        run.end("alibi")
        run.finish({})
    assert runs.read(tmp_path).records == [RECORD, seconds, {**RECORD, "step": 12}]
