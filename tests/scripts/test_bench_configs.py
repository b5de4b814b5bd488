"""The times of configs: which quick variants there are, and where the table goes."""

import json

from posenc_jax.lab.report.markdown import replace_between
from scripts import bench_configs
from scripts.bench_configs import BEGIN, END, ROOT, Time

PAGE = ROOT / "docs" / "running.md"


def test_every_config_with_a_quick_variant_is_measured():
    names = bench_configs.quick_variants(ROOT / "configs")
    assert {"rope_extrap:quick", "claims:quick", "images:quick"} <= set(names)
    assert "common:quick" not in names


def test_the_page_has_the_place_of_the_table(tmp_path):
    times = {
        name: Time(12.4, 20.0, date, 2, "3.11.7", "0.10.2")._asdict()
        for name, date in (("vision:draw", "2026-01-02"), ("claims:quick", "2026-01-03"))
    }
    page, committed = tmp_path / "running.md", PAGE.read_text("utf-8")
    page.write_text(committed)
    replace_between(page, bench_configs.table(times), BEGIN, END)
    text = page.read_text()
    assert "| `configs/claims.py:quick` | 12 |\n| `configs/vision.py:draw` | 12 |" in text
    assert "On 2 free cores, JAX 0.10.2, nothing compiled before; 2026-01-02 to 2026-01-03" in text
    assert text.partition(BEGIN)[0] == committed.partition(BEGIN)[0]
    assert text.partition(END)[2] == committed.partition(END)[2] != ""


def test_the_page_has_the_committed_times():
    times = json.loads((ROOT / "results" / "times.json").read_text("utf-8"))
    assert bench_configs.table(times) in PAGE.read_text("utf-8")


def test_a_busy_machine_and_a_failed_run_are_told_in_one_line(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr("os.getloadavg", lambda: (3.0, 0.0, 0.0))
    assert bench_configs.main() == 2
    assert capsys.readouterr().err.count("\n") == 1
    monkeypatch.setattr("os.getloadavg", lambda: (0.1, 0.0, 0.0))
    monkeypatch.setattr(bench_configs, "ROOT", tmp_path)
    (tmp_path / "train.py").write_text("import sys; sys.exit('wrong')")
    assert bench_configs.main(["no_such_config"]) == 1
    assert "no_such_config: status 1: wrong" in capsys.readouterr().err
    assert not (tmp_path / "results").exists()
