"""The check of all kernels on the device at hand; here they are interpreted."""

import numpy as np
import pytest

from scripts import check_kernels
from scripts.gpu import methods


@pytest.mark.thorough
def test_a_kernel_that_is_right_and_one_that_is_not(monkeypatch, capsys):
    assert check_kernels.main(["--only=rope"]) == 0
    head, row, said = capsys.readouterr().out.splitlines()
    assert head.split()[0] == "method"
    assert row.split()[0] == "rope"
    assert all(float(cell) > 0 for cell in row.split()[1:])
    assert "1 of 1 kernels are right" in said
    output = methods._output
    wrong = lambda *arguments: output(*arguments) * (1.02 if arguments[3] == "kernel" else 1)
    monkeypatch.setattr(methods, "_output", wrong)
    assert check_kernels.main(["--only=rope"]) == 1, "control"
    _, row, _, said = capsys.readouterr().out.splitlines()
    assert row.endswith("WRONG")
    assert said == "wrong or not checked: rope"


@pytest.mark.parametrize("leaf", [0, 1, 2, 3])
def test_a_gradient_that_is_nan_is_wrong(leaf):
    """Also of a leaf after others that are right, and of one that has no gradient."""
    gradients = [np.ones(2), np.ones(3), np.zeros(2), np.full(2, 0.5)]
    exact, dense = (np.ones(4), gradients), (np.full(4, 1.1), [x * 1.1 for x in gradients])
    kernel = (dense[0], [x * np.nan if n == leaf else x for n, x in enumerate(dense[1])])
    wrong = lambda arrays: check_kernels.Row("rope", "kernel", {
        "kernel": methods.distances(arrays, exact), "dense": methods.distances(dense, exact),
    }).wrong  # fmt: skip
    assert wrong(kernel)
    assert not wrong(dense), "control"


def test_what_fails_or_is_late_is_named(monkeypatch, capsys):
    def fails(*_):
        raise RuntimeError("the compiler\nsays no")

    monkeypatch.setattr(methods, "both_ways", fails)
    assert check_kernels.main(["--only=nope,alibi"]) == 1
    said = capsys.readouterr().out
    assert said.count("RuntimeError: the compiler") == 2
    assert "wrong or not checked: nope, alibi" in said
    assert check_kernels.main(["--only=nope", "--seconds=-1"]) == 1
    assert "not begun in time" in capsys.readouterr().out


def test_a_new_start_checks_what_is_left(tmp_path, monkeypatch, capsys):
    """What was right is kept, also of a start that was stopped; what was wrong is checked again."""
    calls, file = [], tmp_path / "errors.json"
    errors = {"output": 1e-3, "gradient": 1e-3}
    right = {"kernel": errors, "dense": errors}
    wrong = right | {"kernel": {"output": 1e-2, "gradient": 1e-2}}

    def checked(case, backend, until, kernel):
        calls.append((case[0], backend, kernel))
        return check_kernels.Row(*case, wrong if case[0] == "alibi" and len(calls) < 3 else right)

    monkeypatch.setattr(check_kernels, "checked", checked)
    run = ["--only=nope,alibi", "--kernel=mosaic", f"--keep={file}"]
    assert check_kernels.main(run) == 1
    assert sorted(calls) == [("alibi", "gpu", "mosaic"), ("nope", "gpu", "mosaic")]
    assert check_kernels.main(run) == 0
    assert calls[2:] == [("alibi", "gpu", "mosaic")]
    assert capsys.readouterr().out.count("2 of 2 kernels are right") == 1
    assert check_kernels.main(run) == 0
    assert len(calls) == 3, "control: nothing is left"


def test_a_tpu_has_rows_of_splash_attention_and_patterns_must_match():
    actual = check_kernels.cases("rope,alibi,cope", "tpu")
    assert actual == [("rope", "kernel"), ("alibi", "kernel"), ("rope", "auto")]
    assert check_kernels.cases("rope,alibi,cope", "gpu") == actual[:2]
    with pytest.raises(SystemExit, match="no_such"):
        check_kernels.cases("rope,no_such*", "cpu")
