"""A run's folder with damaged files, or JSON of another type: one line, and never other numbers."""

import copy
import io
import json
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from posenc_jax.lab import runs
from posenc_jax.lab.hosts.exit_status import Stop
from posenc_jax.lab.runs.journal import read_progress
from posenc_jax.lab.runs.resume import StageCheckpoints
from scripts import board, experiment_page, report
from tests.support import ROOT

CONFIG = {"experiment": "e", "train": {"length": 8}, "eval": {"lengths": (8, 16)}}
LABELS = {"encoding": "rope", "split": "test", "length": 8}
RECORD = {"step": 10, "seed": 0, "labels": LABELS, "metric": "bits_per_byte", "value": 2.5}
STAGES = ("training", "evaluation", "rows")
OTHER_TYPES = (None, True, 7, 1.5, "text", [], [1], {}, {"a": 1})


def measure(folder) -> None:
    """Starts or resumes a run with a record for each stage, and finishes it."""
    with runs.Run(folder, CONFIG) as run:
        for number, stage in enumerate(STAGES):
            if not run.ended(stage):
                run.log([{**RECORD, "step": number}])
                run.end(stage)
        run.finish({"metric": "bits_per_byte", "results": {"rope": {"8": {"mean": 2.5}}}})


@pytest.fixture
def finished(tmp_path):
    measure(tmp_path / "run")
    return tmp_path / "run"


def flipped(content: bytes) -> Iterator[bytes]:
    """The content with one bit flipped, at 120 places."""
    rng = np.random.default_rng(0)
    for bit in rng.choice(8 * len(content), 120, replace=False):
        at = int(bit) // 8
        yield content[:at] + bytes([content[at] ^ (1 << int(bit) % 8)]) + content[at + 1 :]


def replaced(content: Any) -> Iterator[Any]:
    """The content with one part replaced by a value of another type, for every part and type."""
    for path in list(paths(content)):
        for other in OTHER_TYPES:
            changed = copy.deepcopy([content])
            *parents, last = (0, *path)
            part: Any = changed
            for key in parents:
                part = part[key]
            if type(part[last]) is not type(other):
                part[last] = other
                yield changed[0]


def paths(content: Any) -> Iterator[tuple]:
    yield ()
    keys: Any = content if isinstance(content, dict) else ()
    keys = range(len(content)) if isinstance(content, list) else keys
    for key in keys:
        yield from ((key, *rest) for rest in paths(content[key]))


def one_line(error: BaseException, word: str = "") -> None:
    assert "\n" not in str(error)
    assert word in str(error)


def test_a_flipped_bit_of_the_progress_is_seen(finished, capsys):
    """No stage counts as ended that did not, and no stage is repeated after its records."""
    path, whole = finished / "progress.json", (finished / "progress.json").read_bytes()
    (finished / "summary.json").unlink()
    records = (finished / "metrics.jsonl").read_bytes()
    for content in flipped(whole):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"progress\.json: "):
            read_progress(path)
    for content in list(flipped(whole))[:8]:
        path.write_bytes(content)
        measure(finished)
        assert (finished / "metrics.jsonl").read_bytes() == records
        line = capsys.readouterr().err
        assert line.startswith(f"{path}: ")
        assert line.endswith("all stages are repeated\n")
        assert line.count("\n") == 1
        (finished / "summary.json").unlink()
    path.write_bytes(whole)
    assert list(read_progress(path)["stages"]) == [*STAGES]


def unsealed(content: dict) -> dict:
    """What an earlier version would have written."""
    return {key: value for key, value in content.items()
            if key not in ("sha256", "files", "records")}  # fmt: skip


def test_the_progress_of_an_earlier_version_is_read(finished, capsys):
    """The control: without its hash, one flipped bit of a stage's name repeats that stage."""
    path = finished / "progress.json"
    content = unsealed(json.loads(path.read_text()))
    (finished / "summary.json").unlink()
    path.write_text(json.dumps(content))
    measure(finished)
    assert capsys.readouterr().err == ""
    assert len((finished / "metrics.jsonl").read_text().splitlines()) == 3
    (finished / "summary.json").unlink()
    path.write_text(json.dumps(content).replace("evaluation", "evaluatiom"))
    measure(finished)
    assert len((finished / "metrics.jsonl").read_text().splitlines()) == 4


def test_progress_of_another_type_costs_time_and_nothing_else(finished, capsys):
    path = finished / "progress.json"
    whole = unsealed(json.loads(path.read_text()))
    whole["facts"] = {"corpus": {"sha256": "ab"}}
    (finished / "summary.json").unlink()
    for content in [*replaced(whole)][::6]:  # starting a run takes a moment
        path.write_text(json.dumps(content))
        try:
            with runs.Run(finished, CONFIG) as run:
                run.fact(corpus={"sha256": "ab"})
        except Stop as error:  # another hash of the data is refused
            one_line(error, "corpus.sha256")
        assert capsys.readouterr().err.count("\n") <= 1


@pytest.mark.parametrize("name", ["config.json", "summary.json", "metrics.jsonl"])
def test_a_finished_run_is_read_as_it_was_written_or_refused(finished, name):
    whole, before = (finished / name).read_bytes(), runs.read(finished)
    for content in flipped(whole):
        (finished / name).write_bytes(content)
        with pytest.raises(ValueError, match=r"\.json") as caught:
            runs.read(finished)
        one_line(caught.value)
    (finished / name).write_bytes(whole)
    assert runs.read(finished) == before


def refused(capsys, call: Callable[[], int]) -> str:
    assert call() == 2
    said = capsys.readouterr()
    assert said.err.count("\n") == 1
    assert said.out == ""
    return said.err


@pytest.mark.parametrize("name", ["config.json", "summary.json"])
def test_reports_refuse_json_of_another_type(finished, name, capsys):
    content = json.loads((finished / name).read_text())
    for number, changed in enumerate(replaced(content)):
        (finished / name).write_text(json.dumps(changed))
        if number % 7 == 0:
            for command in (report.main, experiment_page.main):
                assert name in refused(capsys, lambda c=command: c([str(finished)]))
        with pytest.raises(ValueError, match=name):
            runs.read(finished)


@pytest.mark.parametrize(
    "content", [b"[]", b"7", b"null", b'"text"', b"\xff", b"{", b"[" * 200_000, b'{"a": ' * 9000]
)
def test_files_that_hold_no_object_are_refused_without_hashes_too(finished, content, capsys):
    (finished / "progress.json").unlink()
    for name in ("config.json", "summary.json", "metrics.jsonl"):
        whole = (finished / name).read_bytes()
        (finished / name).write_bytes(content + b"\n")
        assert name in refused(capsys, lambda: report.main([str(finished)]))
        (finished / name).write_bytes(whole)
    (finished / "config.json").write_bytes(content)
    with pytest.raises(ValueError, match="holds something that is no run of ours"):
        runs.run_status(finished, CONFIG)


FLAT = {"step": 1, "seed": 0, "encoding": "rope", "split": "test", "length": 8,
        "metric": "copy/loss", "value": 1.0}  # fmt: skip


@pytest.mark.parametrize("record", [RECORD, FLAT])
def test_lines_of_another_type_are_named(tmp_path, record):
    for content in replaced(record):
        (tmp_path / "metrics.jsonl").write_text(json.dumps(content) + "\n")
        try:
            (read,) = runs.stored_records(tmp_path)
        except ValueError as error:
            one_line(error, "metrics.jsonl: line 1: ")
        else:
            assert set(read) == set(RECORD)


@pytest.mark.parametrize("line", ["1" * 5000, "[" * 100_000, '{"a": ' * 9000, '"\\ud800"', "1e999"])
def test_odd_json_in_a_line_is_named(tmp_path, line):
    for text in (line, json.dumps(RECORD).replace("2.5", line)):
        (tmp_path / "metrics.jsonl").write_text(text + "\n")
        try:
            runs.stored_records(tmp_path)
        except ValueError as error:
            one_line(error, "metrics.jsonl: line 1: ")
        else:
            assert line == "1e999"


@pytest.mark.parametrize("note", [{}, {"mark": 7}, {"mark": {"bytes": "7"}}, {"mark": [1]},
                                  {"mark": {"bytes": -1, "sha256": "ab"}}])  # fmt: skip
def test_a_checkpoint_with_another_note_is_not_used(tmp_path, note, capsys):
    from posenc_jax.lab.config.schema import CheckpointConfig

    state = {"w": np.ones(3, np.float32)}
    with runs.Run(tmp_path, CONFIG) as run:
        with StageCheckpoints(run, "training", 4, CheckpointConfig()) as checkpoints:
            checkpoints._checkpoints.save(2, state, note)
        with StageCheckpoints(run, "training", 4, CheckpointConfig()) as checkpoints:
            assert checkpoints.restore(state) is state
    assert "training, step 2: not used: " in capsys.readouterr().err


def archive(path, names=("one", "two")) -> dict[str, bytes]:
    """An archive of runs as `document.pack` writes it; returns its files."""
    files = {
        f"{name}/{file}": f"{name} {file} ".encode() * 50
        for name in names
        for file in ("config.json", "metrics.jsonl", "summary.json")
    }
    with tarfile.open(path, "w:xz") as packed:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            packed.addfile(entry, io.BytesIO(content))
    return files


def test_an_archive_unpacked_halfway_is_repaired(tmp_path):
    files, folder = archive(tmp_path / "runs.tar.xz"), tmp_path / "runs"
    unpack = lambda: board.unpack(tmp_path / "runs.tar.xz", folder)
    whole = lambda: {name: (folder / name).read_bytes() for name in files} == files
    assert unpack() == 2
    assert whole()
    assert unpack() == 0
    for name, content in files.items():
        for left in (None, b"", content[:100]):
            (folder / name).unlink()
            if left is not None:
                (folder / name).write_bytes(left)
            assert unpack() == 1
            assert whole()
    assert sorted(path.name for path in folder.iterdir()) == ["one", "two"]


def test_a_run_of_ones_own_is_not_overwritten(tmp_path):
    archive(tmp_path / "runs.tar.xz")
    own_run = tmp_path / "runs" / "one"
    own_run.mkdir(parents=True)
    (own_run / "config.json").write_text("mine")  # other content
    assert board.unpack(tmp_path / "runs.tar.xz", tmp_path / "runs") == 1
    assert (own_run / "config.json").read_text() == "mine"
    (own_run / "config.json").write_bytes(b"")  # begun here: no summary yet, but progress
    (own_run / "progress.json").write_text("{}")
    assert board.unpack(tmp_path / "runs.tar.xz", tmp_path / "runs") == 0
    (own_run / "progress.json").unlink()  # the control
    assert board.unpack(tmp_path / "runs.tar.xz", tmp_path / "runs") == 1


def test_an_archive_that_is_cut_off_is_refused(tmp_path):
    archive(tmp_path / "runs.tar.xz")
    whole = (tmp_path / "runs.tar.xz").read_bytes()
    for size in (0, 10, len(whole) // 3, len(whole) // 2):
        (tmp_path / "runs.tar.xz").write_bytes(whole[:size])
        with pytest.raises(ValueError, match="is damaged") as caught:
            board.unpack(tmp_path / "runs.tar.xz", tmp_path / "runs")
        one_line(caught.value)


def test_processes_that_pack_at_once_write_one_whole_archive(tmp_path):
    """Each writes a file of its own, which takes the archive's place when it is whole."""
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "numbers").write_bytes(np.random.default_rng(0).bytes(2**19))
    code = (
        "import sys; from pathlib import Path; from posenc_jax.lab.runs.archive import pack\n"
        "path, folder = map(Path, sys.argv[1:])\n"
        "for _ in range(4): pack(path, [folder], ['run'], ['numbers'])"
    )
    path = tmp_path / "results" / "all.tar.xz"
    command = [sys.executable, "-c", code, str(path), str(folder)]
    children = [subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE) for _ in range(3)]
    errors = [child.communicate()[1] for child in children]
    assert [child.returncode for child in children] == [0] * 3, errors
    assert [entry.name for entry in path.parent.iterdir()] == ["all.tar.xz"]
    with tarfile.open(path) as archive:
        assert archive.extractfile("run/numbers").read() == (folder / "numbers").read_bytes()
