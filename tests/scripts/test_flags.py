"""The flags of scripts, as a user types them."""

import subprocess
import sys
from pathlib import Path

import pytest

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
