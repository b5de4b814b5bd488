"""A folder that cannot be written is one line and status 2, in every script that writes there."""

import errno
import importlib
import shutil
import tempfile

import pytest

from posenc_jax.lab.hosts.exit_status import Diverged, NotWritten, one_line
from scripts import catalogue, claims, experiment_page, report, sweep
from tests.lab.report.test_comparison import of, write
from tests.support import ROOT

NOWHERE = "/proc/nowhere"  # where not even root can make a folder
WRITERS = (
    "architectures_page", "bench_configs", "board", "catalogue", "choosing", "claims",
    "experiment_page", "report", "speed_page", "sweep",
)  # fmt: skip


@pytest.mark.parametrize(
    ("main", "arguments"),
    [
        (report.main, ["{run}", "{other}", f"--out={NOWHERE}/page.html"]),
        (catalogue.main, ["rope", f"--out={NOWHERE}/catalogue.tar.xz"]),
        (sweep.main, [f"--config={ROOT}/configs/extrap.py:quick", f"--folder={NOWHERE}"]),
        (experiment_page.main, [f"{ROOT}/results/permutation.tar.xz", f"--to={NOWHERE}"]),
        pytest.param(
            claims.main, [f"{ROOT}/results/claims.tar.xz", f"--to={NOWHERE}"],
            marks=pytest.mark.thorough,
        ),
    ],
)  # fmt: skip
def test_a_folder_that_cannot_be_made_is_one_line(main, arguments, tmp_path, capsys):
    run, other = write(tmp_path / "a", of(0)), write(tmp_path / "b", of(1))
    assert main([text.format(run=run, other=other) for text in arguments]) == 2
    printed = capsys.readouterr()
    assert printed.err.count("\n") == 1
    assert f"{NOWHERE}: " in printed.err or f"{NOWHERE}/" in printed.err
    assert printed.out == ""


def test_a_run_whose_folder_cannot_be_written_shows_no_report(tmp_path, monkeypatch, capsys):
    run = write(tmp_path / "run", of(0))

    def refuse(dir):
        raise OSError(errno.EROFS, "Read-only file system")

    with monkeypatch.context() as patch:
        patch.setattr(tempfile, "TemporaryFile", refuse)
        assert report.main([str(run)]) == 2
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", f"workdir: {run}: Read-only file system\n")
    assert not (run / "report.html").exists()
    assert report.main([str(run)]) == 0  # control
    shutil.rmtree(run / "tables")
    (run / "tables").touch()  # a file where a folder is to be
    assert report.main([str(run)]) == 2
    assert capsys.readouterr().err == f"error: {run / 'tables'}: File exists\n"


@pytest.mark.parametrize("name", WRITERS)
def test_every_script_that_writes_a_page_has_one_line_for_it(name):
    assert hasattr(importlib.import_module(f"scripts.{name}").main, "__wrapped__")


@pytest.mark.parametrize(
    ("number", "status"), [(errno.EACCES, 2), (errno.EROFS, 2), (errno.ENOSPC, 1)]
)
def test_a_full_disk_has_another_status_than_one_that_is_read_only(number, status, capsys):
    def directly():
        raise OSError(number, "why", "page.md")

    def wrapped():
        raise NotWritten("page.md: why") from OSError(number, "why")

    for main in (directly, wrapped):
        assert one_line(main)() == status
        assert capsys.readouterr().err == "error: page.md: why\n"
        with pytest.raises((OSError, NotWritten)):  # control
            main()


def test_a_bug_keeps_its_traceback():
    def diverges():
        raise Diverged("step 3")

    def fails():
        raise KeyError("x")

    assert one_line(diverges)() == 1
    with pytest.raises(KeyError):
        one_line(fails)()
    assert one_line(lambda: None)() == 0
