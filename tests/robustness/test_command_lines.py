"""Wrong command lines are refused in one line that names the field, good ones accepted."""

import pytest

from tests.support import command_lines


def wrong_and_good():
    return list(command_lines.wrong_lines()), list(command_lines.good_lines())


@pytest.mark.thorough
@pytest.mark.parametrize(("of_wrong", "of_good"), [(150, 100), (1, 1)])
def test_wrong_lines_are_refused_and_good_ones_accepted(of_wrong, of_good):
    wrong, good = wrong_and_good()
    for lines in (wrong[::of_wrong], good[::of_good]):
        assert len(lines) > 5
        assert not [said for said in map(command_lines.trouble, lines) if said]
    assert command_lines.accepted_without_schema(wrong[::300]) > 0, "control"


@pytest.mark.parametrize(
    ("argument", "said"),
    [
        ("--config=configs/common.py", "--config: configs/common.py: module"),
        ("--config=configs/rope_extrap.py:zz", "--config: argument 'zz' is not known"),
        ("--config=", "--config: must be given"),
        ("--config.encoding=rope", "config.encoding: has fields of its own"),
        ("--config.train.steps.x=3", "config.train.steps.x: no such field"),
        ("--config.train.steps=3000000000", "config.train.steps: 3000000000 is wrong"),
        ("--config.first_seed=2147483647", "config: first_seed 2147483647 and 2 seeds go past"),
        ("--config.encoding.name=rope,nope,rope", "config.encoding.name: 'rope' is given twice"),
        (f"--workdir={'x' * 300}", f"workdir: {'x' * 300}: File name too long"),
    ],
)
def test_lines_once_refused_badly_are_refused_in_one_line(argument, said):
    line = command_lines.refusal(command_lines.BASES[0], argument)
    assert line.startswith(said)
    assert "\n" not in line
    assert "Traceback" not in line


def test_a_sweep_s_agent_cannot_name_a_run_out_of_its_folder(monkeypatch):
    for name, said in (("../../etc", "name: '../../etc' cannot be a folder"), ("ab12", "")):
        monkeypatch.setenv("WANDB_RUN_ID", name)
        assert command_lines.refusal(command_lines.BASES[0]).startswith(said)
