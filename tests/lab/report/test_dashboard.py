"""The workspace in W&B, built and serialised with no network."""

import io
import json

import pytest
from rich.console import Console

from posenc_jax.lab import report, runs
from posenc_jax.lab.report import dashboard
from scripts.dashboard import main
from tests.support.report_runs import LENGTHS, make_records, write_run


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
    folder = write_run(tmp_path_factory.mktemp("run"), make_records())
    report.show(folder, console=Console(file=io.StringIO()))
    return folder


def sections(text):
    bank = json.loads(text)["spec"]["section"]["panel_bank_config"]
    return {section["name"]: section["panels"] for section in bank["sections"]}


@pytest.mark.thorough
def test_the_sections_and_what_is_in_them(workdir, capsys):
    assert main([str(workdir), "--entity=me", "--dry-run"]) == 0
    text = capsys.readouterr().out
    actual = sections(text)
    assert list(actual) == ["Extrapolation", "Order", "Padding", "Claims", "Speed"]
    by_length, *by_position, training = (
        panel["config"] for panel in actual["Extrapolation"] if "x_axis" in panel["config"]
    )
    media = [panel["config"] for panel in actual["Extrapolation"]]
    assert training["metrics"] == ["train/loss"]
    assert by_length["x_axis"] == "length"
    title = "bits per byte by test length: lowest at 4× with rope, lower is better"
    assert by_length["chart_title"] == title
    assert by_length["metrics"] == ["by_length/bits_per_byte"]
    assert {panel["x_axis"] for panel in by_position} == {"position"}
    keys = [f"by_position/bits_per_byte/{length}" for length in LENGTHS]
    assert [panel["metrics"] for panel in by_position] == [[key] for key in keys]
    assert ["figures/by_length"] in [config.get("media_keys") for config in media]
    speed = [panel["config"]["metrics"] for panel in actual["Speed"]]
    assert sorted(speed) == sorted([f"test/evaluation_seconds/{length}"] for length in LENGTHS)
    (order,) = actual["Order"]
    assert "configs/permutation.py" in json.dumps(order)


@pytest.mark.thorough
def test_a_line_is_an_encoding_of_a_run_and_holds_all_its_seeds(workdir):
    text = dashboard.serialise(dashboard.workspace("me", "p", "n", [runs.read(workdir)]))
    (runset,) = json.loads(text)["spec"]["section"]["run_sets"]
    assert [(key["section"], key["name"]) for key in runset["grouping"]] == [
        ("run", "group"), ("config", "encoding.value"),
    ]  # fmt: skip
    lines = [panel["config"] for panels in sections(text).values() for panel in panels
             if "metrics" in panel["config"]]  # fmt: skip
    assert {(line["group_agg"], line["group_area"]) for line in lines} == {("mean", "minmax")}


@pytest.mark.thorough
def test_no_run_and_no_seed_is_hidden(workdir):
    workspace = dashboard.workspace("me", "p", "n", [runs.read(workdir)])
    text = dashboard.serialise(workspace)
    assert json.loads(text)["spec"]["section"]["settings"]["max_runs"] == dashboard.MOST
    limits = [panel["config"]["limit"] for panels in sections(text).values() for panel in panels
              if "limit" in panel["config"]]  # fmt: skip
    assert len(limits) == 8
    assert set(limits) == {dashboard.MOST}
    # The control: what W&B's package does where it is told nothing.
    workspace.settings.max_runs = type(workspace.settings)().max_runs
    assert (
        json.loads(dashboard.serialise(workspace))["spec"]["section"]["settings"]["max_runs"] == 10
    )


def test_a_folder_without_a_finished_run_is_refused(tmp_path, capsys):
    assert main([str(tmp_path), "--entity=me", "--dry-run"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    with pytest.raises(ValueError, match="one finished run or more"):
        dashboard.workspace("me", "p", "n", [])
