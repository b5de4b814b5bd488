"""The benchmark of a GPU: its processes, and its page."""

import json
import time

import pytest

from scripts import bench_gpu
from scripts.gpu.page import page
from scripts.gpu.worker import LATE, milliseconds, prepare


@pytest.mark.thorough
def test_a_contestant_measures_and_one_that_fails_says_why():
    """On any machine: ours runs, and cuDNN is not there."""
    jobs = {
        name: {**job, "seconds": 60.0}
        for name, job in bench_gpu.attention(quick=True).items()
        if name in ("posenc_jax, alibi", "jax.nn, cuDNN, no bias")
    }
    jobs["jax.nn, cuDNN, no bias"]["implementation"] = "cudnn"  # which a CPU has not
    heard = []
    keep = lambda actual: heard.append(json.dumps(actual))
    bench_gpu.contest(jobs, 2, keep, seconds=90)
    actual = json.loads(heard[-1])
    ours, theirs = actual["posenc_jax, alibi"], actual["jax.nn, cuDNN, no bias"]
    assert ours["failed"] == {}
    assert all(len(ours[f"{way}/64"]) == 2 for way in ("forward", "backward"))
    assert min(ours["backward/64"]) > 0
    assert set(theirs["failed"]) == {"forward/64", "backward/64"}
    assert len(heard) == 5, "kept as it comes"


def test_a_contestant_that_is_not_ready_does_not_hold_up_the_others():
    jobs = {"slow": {"part": "attention", "seconds": 60.0}}
    heard = []
    bench_gpu.contest(jobs, 1, heard.append, seconds=0)
    assert heard == [{"slow": {"failed": {"all": "not ready in time"}}}]


WORKER = """
import json, sys, time
print(json.dumps({"failed": {}}), flush=True)
for _ in sys.stdin:
    time.sleep(json.loads(sys.argv[1])["sleep"])
    print(json.dumps({"case": 1.0}), flush=True)
"""


def test_a_contestant_that_measures_too_long_does_not_hold_up_the_others(tmp_path, monkeypatch):
    (tmp_path / "scripts/gpu").mkdir(parents=True)
    (tmp_path / "scripts/gpu/worker.py").write_text(WORKER)
    monkeypatch.setattr(bench_gpu, "ROOT", tmp_path)
    heard = []
    jobs = {"slow": {"sleep": 60}, "quick": {"sleep": 0}}
    bench_gpu.contest(jobs, 2, lambda actual: heard.append(json.dumps(actual)), seconds=5)
    late, quick = {"all": "not measured in time"}, {"failed": {}, "case": [1.0, 1.0]}
    assert json.loads(heard[-1]) == {"slow": {"failed": late}, "quick": quick}


def test_what_is_not_begun_in_time_is_left_out():
    slow = lambda: time.sleep(0.05) or (lambda: 1.0)
    prepared = prepare({"seconds": 0.01}, {"first": slow, "second": slow})
    assert [*prepared.cases] == ["first"]
    assert prepared.failed == {"second": LATE}


def test_time_is_of_one_call():
    waited = []
    ms = milliseconds(lambda: time.sleep(0.004), waited.append)
    assert ms >= 4
    assert len(waited) == 3, "calls are queued, and the last is waited for"


def test_a_median_and_its_rate():
    full = "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 96.00MiB"
    failed = {"backward/4096": full, "forward/1024": LATE, "backward/1024": LATE}
    record = {"failed": failed, "forward/4096": [1.0, 9.0, 2.0]}
    raw = {"attention": {"a GPU": {"machine": {"device": "a GPU"}, "found": {"us": record}}}}
    # 4 sequences of 12 heads of 64 channels, two products of 4,096^2 / 2 pairs: .103 TFLOP in 2 ms
    assert "| us | 2.00 (52) | failed |" in page(raw, "raw.json")
    assert "- no memory was left beside the other contestants: us backward/4096\n" in page(
        raw, "raw.json"
    )
    assert f"- {LATE}: us forward/1024, backward/1024\n" in page(raw, "raw.json")
    assert "Not measured yet: long, forms, errors, times, steps, seeds, board, hopper." in page(
        raw, "raw.json"
    )
