"""A sweep for real, two tiny points: mirrored in W&B, killed and started again, synced later."""

import json
import math
import os
import subprocess
import sys

import numpy as np
import pytest

from experiments.compare.length_extrapolation.attention import save_weights
from posenc_jax.lab import runs
from posenc_jax.lab.report import comparison
from posenc_jax.lab.wandb import rows
from scripts.report import main
from tests import sweep_kills
from tests.support.wandb_server import FakeWandb

pytestmark = pytest.mark.thorough

# The points differ in what leaves their programs the same, which are compiled once.
CONFIG = sweep_kills.CONFIG.format(
    task={"name": "copy"}, model={"width": 8, "heads": 1, "layers": 1, "mlp": 1},
    train={"steps": 4, "chunk": 2, "batch": 2, "length": 8, "min_length": 8},
    eval={"lengths": (8,), "examples": 2}, fields={"first_seed": (0, 5), "seeds": (2,)},
)  # fmt: skip


@pytest.fixture(scope="module")
def server():
    with FakeWandb() as fake:
        yield fake


@pytest.fixture(scope="module")
def home(tmp_path_factory, server):
    """A folder with the config; what is started from here finds the server, and no other."""
    home = tmp_path_factory.mktemp("home")
    (home / "mine.py").write_text(CONFIG)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAX_COMPILATION_CACHE_DIR", str(home / "cache"))
        patch.setenv("WANDB_BASE_URL", server.url)
        patch.setenv("WANDB_API_KEY", "sesame" * 7)
        patch.setenv("HOME", str(home))
        yield home


@pytest.fixture(scope="module")
def whole(home):
    """A sweep that nothing interrupts, mirrored online; its points in order."""
    mirrored = ("--config.wandb.mode=online", "--config.wandb.tags=('mine',)")
    sweep = sweep_kills.start(home / "mine.py", home / "whole", *mirrored)
    return [home / "whole" / name for name in sweep_kills.finish(sweep)]


def mirrored(server, folder):
    """The W&B runs of a run of ours: the report, and those of its trainings."""
    of_ours = [
        run for run in server.runs.values() if run["group"].startswith(f"mine/{folder.name}-")
    ]
    (report,) = (run for run in of_ours if run["job_type"] == "report")
    return report, [run for run in of_ours if run["job_type"] == "training"]


def check_arrived(server, folder):
    """Checks that the server holds the rows, summary, table, figures and artifacts of a run."""
    stored, config = runs.read(folder), json.loads((folder / "config.json").read_text())
    actual, trainings = mirrored(server, folder)
    assert actual["name"] == folder.name
    for run in (actual, *trainings):
        assert run["exit"] == 0
        assert {"copy", "rope"} <= set(run["tags"])
        assert run["config"].items() >= {k: config[k] for k in ("train", "task", "eval")}.items()
    arrived = [
        (run["config"]["seed"], row["step"], key, row[key])
        for run in trainings for row in run["history"] for key in row
        if key.startswith(("train/", "valid/", "test/"))
    ]  # fmt: skip
    wanted = [(r["seed"], r["step"], rows.key(r), pytest.approx(r["value"]))
              for r in stored.records if math.isfinite(r["value"])]  # fmt: skip
    assert sorted(arrived) == sorted(wanted, key=lambda row: row[:3])
    assert {run["config"]["encoding"] for run in trainings} == {"rope"}
    mean = stored.by_length.results["rope"][8].mean
    assert actual["summary"]["test/exact_match/8"] == mean
    figures = {path.stem for path in folder.glob("figures/*.png")}
    assert figures
    shown = {name for row in actual["history"] for name in row}
    assert shown >= {"results", "report"} | {f"figures/{name}" for name in figures}
    media = [name for name in actual["files"] if name.startswith("media/")]
    for kind, count in {"table": 1, "html": 1, "images": len(figures)}.items():
        assert sum(f"media/{kind}/" in name for name in media) == count
    (table,) = (json.loads(actual["files"][name]) for name in media if "/table/" in name)
    tested = [r for r in stored.records if r["labels"]["split"] == "test"]
    assert [row[2:] for row in table["data"]] == [
        [r["seed"], r["metric"], pytest.approx(r["value"])] for r in tested
    ]
    artifact = server.artifacts[f"{actual['group'].replace('/', '-')}-report", "report"]
    names = ["report.html", "config.json", "metrics.jsonl", "summary.json"]
    names += [f"{path.parent.name}/{path.name}" for kind in ("figures", "tables")
              for path in folder.glob(f"{kind}/*")]  # fmt: skip
    assert sorted(artifact) == sorted(names)
    for name, content in artifact.items():
        assert content == (folder / name).read_bytes()


def test_a_sweeps_runs_arrive_with_group_tags_every_metric_and_every_artifact(whole, server):
    assert len(whole) == 2
    for folder in whole:
        check_arrived(server, folder)
        report, trainings = mirrored(server, folder)
        assert all("mine" in run["tags"] for run in (report, *trainings))
        assert len(trainings) == 2
    # The control: with one row lost on the way the check fails.
    lost = trainings[0]["history"].pop(1)
    with pytest.raises(AssertionError):
        check_arrived(server, whole[1])
    trainings[0]["history"].append(lost)


def test_attention_is_read_from_the_checkpoints(whole, tmp_path):
    first, second = (np.load(*save_weights(folder)).astype(np.float32) for folder in whole)
    tokens = first.shape[-1]
    assert first.shape == (1, 1, tokens, tokens)
    assert tokens > 8
    np.testing.assert_allclose(first.sum(-1), 1, atol=2e-3)
    assert np.triu(first[0, 0], 1).max() == 0
    # The control: the other point's weights, of another seed, look elsewhere.
    assert np.abs(first - second).max() > 1e-3
    assert main([*map(str, whole), "--attention", f"--out={tmp_path / 'page.html'}"]) == 0
    assert '"attention":{"shape":[1,1,' in (tmp_path / "page.html").read_text()


def test_no_key_is_in_a_runs_record_or_in_what_arrives(whole, server):
    for folder in whole:
        files = [path for path in folder.rglob("*") if path.is_file()]
        assert files
        assert not [path for path in files if b"sesamesesame" in path.read_bytes()]
    assert "sesamesesame" not in str(server.runs) + str(server.artifacts)


def test_a_killed_sweep_runs_the_missing_points_and_writes_the_same_report(whole, home, server):
    """`make sweep-kills` does it with 12 points x 3 seeds. Mirrored offline, it is synced after."""
    first, second = (folder.name for folder in whole)
    killed, config = home / "killed", home / "mine.py"
    sweep = sweep_kills.start(config, killed, "--config.wandb.mode=offline")
    sweep_kills.kill_when(sweep, lambda: (killed / f"{second}.log").exists())
    assert sweep_kills.finished(killed) == {first}
    modified = os.stat(killed / first / "summary.json").st_mtime_ns
    again = sweep_kills.start(config, killed, "--config.wandb.mode=offline")
    assert sweep_kills.finish(again) == [second]
    assert os.stat(killed / first / "summary.json").st_mtime_ns == modified
    actual = (home / "whole" / "report.html").read_bytes()
    assert (killed / "report.html").read_bytes() == actual
    check_synced(killed / second, server)
    # The control: with one number of one seed changed the report is another one.
    metrics = killed / first / "metrics.jsonl"
    tested = (line for line in metrics.read_text().splitlines() if '"split": "test"' in line)
    record = next(line for line in tested if '"token_accuracy"' in line)
    changed = json.dumps(json.loads(record) | {"value": 0.123})
    metrics.write_text(metrics.read_text().replace(record, changed))
    (killed / first / "progress.json").unlink()  # by whose hashes the change would be refused
    comparison.compare([killed / first, killed / second], killed / "report.html", "mine")
    assert (killed / "report.html").read_bytes() != actual


def check_synced(folder, server):
    """`wandb sync` brings all of a run that was mirrored offline, by all of its starts."""
    server.runs.clear()
    server.artifacts.clear()
    command = [sys.executable, "-m", "wandb", "sync", str(folder / "wandb")]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    check_arrived(server, folder)
