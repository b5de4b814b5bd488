"""The prepared run on a Hopper GPU: what it runs, and where it begins again."""

import json
import subprocess
from types import SimpleNamespace

import pytest

from scripts import bench_gpu, measure_hopper


@pytest.fixture
def ran(monkeypatch, tmp_path):
    """The commands that are run; the second writes a table."""
    commands = []

    def run(command, cwd, timeout):
        commands.append(command)
        if command[1].endswith("bench_gpu.py"):
            (tmp_path / "results").mkdir(exist_ok=True)
            found = {"posenc_jax, t5, in Mosaic": {"failed": failed, "forward/4096": [1.0]}}
            record = {"hopper": {"H200": {"machine": {}, "found": found}}}
            (tmp_path / "results/gpu.json").write_text(json.dumps(record))
        return SimpleNamespace(returncode=0)

    failed = {"forward/16384": "not ready in time"}
    monkeypatch.setattr(subprocess, "run", run)
    return commands, failed


def test_it_begins_again_where_it_was_stopped(ran, tmp_path):
    commands, failed = ran
    assert measure_hopper.main([f"--to={tmp_path}"]) == 1, "a number is missing"
    failed.clear()
    assert measure_hopper.main([f"--to={tmp_path}"]) == 0
    assert measure_hopper.main([f"--to={tmp_path}"]) == 0
    scripts = [command[1].rpartition("/")[2] for command in commands]
    assert scripts == ["check_kernels.py", "bench_gpu.py"] * 2 + ["check_kernels.py"]
    assert all(f"--keep={tmp_path / 'errors.json'}" in command for command in commands[::2])


def test_what_takes_too_long_is_stopped(monkeypatch, tmp_path, capsys):
    def late(command, cwd, timeout):
        assert timeout <= 540
        raise subprocess.TimeoutExpired(command, timeout)

    monkeypatch.setattr(subprocess, "run", late)
    assert measure_hopper.main([f"--to={tmp_path}"]) == 1
    assert "check_kernels.py: stopped after 5" in capsys.readouterr().out


def test_the_short_list_has_each_kernel_by_its_name():
    jobs = bench_gpu.hopper(quick=False)
    mosaic = {name for name, job in jobs.items() if job.get("kernel") == "mosaic"}
    assert mosaic == {name for name in jobs if name.endswith(", in Mosaic")}
    assert len(mosaic) == 7
    assert {"jax.nn, cuDNN, no bias", "PyTorch flex_attention, ALiBi"} < set(jobs) - mosaic
