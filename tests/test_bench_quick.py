"""The times of the quick variants: which configs have one, and where the table goes."""

import json

from scripts import bench_quick
from scripts.bench_quick import BEGIN, END, ROOT, Time
from scripts.collectives import write


def test_every_config_with_a_quick_variant_is_measured():
    names = bench_quick.names(ROOT / "configs")
    assert {"rope_extrap", "claims", "images"} <= set(names)
    assert "common" not in names


def test_the_readme_has_the_measured_times():
    kept = json.loads((ROOT / "docs" / "quick.json").read_text("utf-8"))
    readme = (ROOT / "README.md").read_text("utf-8")
    assert bench_quick.table(kept) in readme
    kept["configs"]["claims"]["seconds"] += 1
    assert bench_quick.table(kept) not in readme, "control"


def test_the_readme_has_the_place_of_the_table(tmp_path):
    kept = {
        "machine": {"cores": 2, "jax": "0.10.2", "date": "2026-01-02"},
        "configs": {"claims": Time(12.4, 20.0)._asdict()},
    }
    page, readme = tmp_path / "README.md", (ROOT / "README.md").read_text("utf-8")
    page.write_text(readme)
    write(page, bench_quick.table(kept), BEGIN, END)
    made = page.read_text()
    assert "| `configs/claims.py:quick` | 12 |" in made
    assert "On 2 free cores, JAX 0.10.2" in made
    assert made.partition(BEGIN)[0] == readme.partition(BEGIN)[0]
    assert made.partition(END)[2] == readme.partition(END)[2] != ""


def test_a_busy_machine_and_a_failed_run_are_told_in_one_line(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr("os.getloadavg", lambda: (3.0, 0.0, 0.0))
    assert bench_quick.main() == 2
    assert capsys.readouterr().err.count("\n") == 1
    monkeypatch.setattr("os.getloadavg", lambda: (0.1, 0.0, 0.0))
    monkeypatch.setattr(bench_quick, "names", lambda configs: ["no_such_config"])
    monkeypatch.setattr(bench_quick, "ROOT", tmp_path)
    (tmp_path / "train.py").write_text("import sys; sys.exit('wrong')")
    assert bench_quick.main() == 1
    assert "no_such_config: status 1: wrong" in capsys.readouterr().err
    assert not (tmp_path / "docs").exists()
