"""A run whose newest checkpoint is damaged ends in the bits of a whole run.

Restoring after every damage to every file: tests/lab/runs/test_checkpoints.py.
"""

import shutil

import pytest

from tests.support.damaged_files import DAMAGE, damage_file
from tests.support.train_process import TrainProcess, complete, whole


@pytest.mark.thorough
def test_a_run_with_a_damaged_checkpoint_ends_in_the_same_bits(tmp_path):
    wanted = whole(TrainProcess(tmp_path / "whole"))
    TrainProcess(tmp_path / "killed", failpoint="training:4").wait()
    steps = tmp_path / "killed" / "checkpoints" / "alibi"
    # A step that was being written when the process was killed has another name.
    newest = steps / str(max(int(step.name) for step in steps.iterdir() if step.name.isdigit()))
    files = sorted(path for path in newest.rglob("*") if path.is_file())
    assert len(files) > len(DAMAGE)
    for number, file in enumerate(files):
        workdir = tmp_path / str(number)
        shutil.copytree(tmp_path / "killed", workdir)
        damage = list(DAMAGE)[number % len(DAMAGE)]
        damage_file(workdir / file.relative_to(tmp_path / "killed"), damage)
        assert not complete(wanted, TrainProcess(workdir)), f"{file.name} {damage}"
