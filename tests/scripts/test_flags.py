"""The flags of scripts, as a user types them."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from posenc_jax.lab.hosts.flags import Flags

ROOT = Path(__file__).parents[2]
# Programs for the environment of the goldens, and those that another script calls.
WITH_TORCH = {"architectures", "bench_torch", "make_goldens"}
CALLED = {"bench_ours", "__init__"}
SCRIPTS = sorted({path.stem for path in (ROOT / "scripts").glob("*.py")} - WITH_TORCH - CALLED)


@pytest.mark.thorough
@pytest.mark.parametrize("name", SCRIPTS)
def test_help_tells_the_flags_and_does_nothing_else(name, tmp_path):
    """Five scripts took `--help` for nothing, and began to measure or to write a page."""
    command = [sys.executable, ROOT / "scripts" / f"{name}.py", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"usage: {name}.py"), done.stdout
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("evaluate", [], "the following arguments are required: RUN"),
        ("evaluate", ["run", "--step=abc"], "--step: invalid int value: 'abc'"),
        ("report", ["run", "--attentoin"], "unrecognized arguments: --attentoin"),
        ("report", ["run", "--out=~nobody_of_this_name/x"], "--out: there is no home folder of ~n"),
        ("dashboard", ["run"], "the following arguments are required: --entity"),
        ("sweep", [], "the following arguments are required: --config"),
        ("sweep", ["--config=x", "--launch=y"], "--launch: invalid choice: 'y' (choose from"),
        ("experiment_page", [], "the following arguments are required: RUN"),
        (
            "prepare_tokens",
            ["x", "--tokenizer=bpe:300"],
            "the following arguments are required: --o",
        ),
        ("prepare_data", [], "the following arguments are required: name"),
        ("board", ["--part=3"], "--part: '3' is no part such as 1/2 or 2/2"),
    ],
)
def test_wrong_flags_are_one_line(name, arguments, said, capsys):
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(f"scripts.{name}").main(arguments)
    told = capsys.readouterr().err
    assert ended.value.code == 2
    assert told.startswith(f"error: {said}")
    assert told.count("\n") == 1


def test_a_path_is_found_in_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Flags.path("~/page.html") == tmp_path / "page.html"
    assert Flags.path("page.html") == Path("page.html"), "control"
