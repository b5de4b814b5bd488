"""The benchmark's page: what it says follows from its raw numbers."""

from scripts import bench

RAW = {
    "machines": {"step": {"date": "2026-11-20", "cpu": "a CPU", "rounds": 2}},
    "steps": {"step": 10},
    "contests": {
        "step": {
            "ours": {"mb": 1.0, "seconds": [1.0, 2.0]},
            "theirs": {"mb": 2.0, "seconds": [2.0, 4.0]},
            "absent": {"failed": "No module named 'torch'"},
        }
    },
}


def test_a_peer_half_as_fast_has_ratio_two():
    page = bench.page(RAW, "raw.json")
    assert "| ours | 150.0 | 1 |" in page
    assert "| theirs | 300.0 | 2.00 (2.00–2.00) |" in page


def test_the_first_call_which_compiles_has_a_column_where_it_was_measured():
    results = {"ours": {"mb": 1.0, "seconds": [1.0], "first": 9.0}, "absent": {"failed": "no"}}
    assert bench.table(results, 1) == [
        "| | ms | ratio | MB | first call, s |",
        "|---|---:|---:|---:|---:|",
        "| ours | 1000.0 | 1 | 1 | 9.0 |",
        "| absent | – | – | – | – |",
        "",
        "absent was not measured: no.",
    ]


def test_what_did_not_run_is_not_measured():
    lines = bench.page(RAW, "raw.json").splitlines()
    below = lines[lines.index("| absent | – | – | – |") :]
    assert "absent was not measured: No module named 'torch'." in below


def test_every_contest_has_ours_first():
    for rivals in (bench.step_contests() | bench.attention_contests()).values():
        first, *others = rivals
        assert first.startswith("posenc_jax")
        assert others
