"""Files that a user names: damaged, huge, of other kinds. Each is read, or refused in one line."""

import codecs
import gzip
import io
import os
import socket
import struct
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest

from experiments.pretrained import prompts
from experiments.pretrained.config import Config
from posenc_jax.lab import tasks
from posenc_jax.lab.hosts.exit_status import Refused, Stop
from posenc_jax.lab.launch import skypilot
from posenc_jax.lab.tasks import brackets, corpus, user_files
from posenc_jax.lab.tasks.functions import bodies
from posenc_jax.options import FieldError

NOBODY = "~nobody_is_named_so"
AXES = {"pixels": "N side side", "labels": "N"}
ARRAYS = {
    "pixels": np.arange(40 * 4 * 4).reshape(40, 4, 4) % 251,
    "labels": np.arange(40, dtype=np.uint8) % 5,
}


def refusal(read) -> str:
    """The line of the FieldError that `read` must raise."""
    with pytest.raises(FieldError) as caught:
        read()
    return one_line(caught.value)


def one_line(error: FieldError) -> str:
    line = str(error)
    assert line.startswith("task.name: ")
    assert "\n" not in line
    assert len(line) < 600
    return line


def npz(path: Path, compressed: bool = True, **changes) -> str:
    save = np.savez_compressed if compressed else np.savez
    save(path, **{**ARRAYS, **changes})
    return str(path)


def packed(path: Path, members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> str:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return str(path)


def npy(shape, descr="<i8", header: bytes | None = None, content: bytes = b"") -> bytes:
    """An array as NumPy stores it, with a header that may promise anything."""
    header = header or repr({"descr": descr, "fortran_order": False, "shape": shape}).encode()
    return b"\x93NUMPY\x02\x00" + struct.pack("<I", len(header)) + header + content


def changed(content: bytes, rng: np.random.Generator) -> bytes:
    """The content with one random accident: a bit, a cut, a hole, a repetition or other bytes."""
    at, stop = sorted(rng.integers(0, len(content) + 1, 2))
    match rng.integers(0, 6):
        case 0 | 1:
            at = min(at, len(content) - 1)
            bit = bytes([content[at] ^ (1 << int(rng.integers(8)))])
            return content[:at] + bit + content[at + 1 :]
        case 2:
            return content[:at]
        case 3:
            return content[:at] + content[stop:]
        case 4:
            return content[:stop] + content[at:]
    return content[:at] + rng.bytes(int(min(stop - at, 40))) + content[at + 40 :]


@pytest.mark.parametrize("compressed", [True, False])
def test_damaged_arrays_are_refused_or_the_same(tmp_path, compressed):
    whole = Path(npz(tmp_path / "whole.npz", compressed)).read_bytes()
    path, rng, refused = tmp_path / "own.npz", np.random.default_rng(0), 0
    for _ in range(400):
        path.write_bytes(changed(whole, rng))
        try:
            actual = user_files.named_arrays("images:own", str(path), AXES)
        except FieldError as error:
            refused += 1
            one_line(error)
            continue
        for key, array in ARRAYS.items():
            np.testing.assert_array_equal(actual[key], array)
    assert 200 < refused < 400  # a date in the archive may change


def test_arrays_are_read_in_either_order_of_bytes_and_of_storage(tmp_path):
    pixels = np.asfortranarray(ARRAYS["pixels"].astype(">i4"))
    actual = user_files.named_arrays("images:own", npz(tmp_path / "a.npz", pixels=pixels), AXES)
    np.testing.assert_array_equal(actual["pixels"], ARRAYS["pixels"])
    assert actual["pixels"].dtype == np.dtype("int32")


DEEP = b"{'descr': '<i8', 'fortran_order': False, 'shape': (" + b"-" * 9000 + b"1,)}"


@pytest.mark.parametrize(
    ("pixels", "words"),
    [
        (npy((10**12, 4, 4)), "more than 1 GiB"),
        (npy((40, 2**40, 2**40)), "more than 1 GiB"),
        (npy((-40, 4, 4)), "shape [-40, 4, 4]"),
        (npy((40, 4, 4), content=bytes(7)), "damaged"),
        (npy((40, 4, 4), content=bytes(40 * 4 * 4 * 8 + 1)), "damaged"),
        (npy((40, 4, 4), "|O", content=b"cos\nsystem\n(S'false'\ntR."), "pixels is object"),
        (npy((40, 4, 4), [("a", "<i4")], content=bytes(4000)), "give pixels, whole numbers"),
        (npy((40, 4, True), content=bytes(40 * 4 * 8)), "damaged"),
        (npy((40, 4, 4), "<i99"), "damaged"),
        (npy((), header=b"__import__('os').abort()"), "damaged"),
        (npy((), header=DEEP), "damaged"),
        (npy((), header=b"(" * 9000), "damaged"),
        (npy((), header=b"{'descr': '<i8', 'fortran_order': False, 'shape': (3L, 4, 4)}"), "damag"),
        (b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + bytes(10**6), "damaged"),
        (b"\x93NUMPY\x09\x00\x00\x00", "damaged"),
        (b"", "damaged"),
        (b"pixels", "damaged"),
    ],
)
def test_a_header_is_data_and_bounds_what_is_unpacked(tmp_path, pixels, words):
    labels = io.BytesIO()
    np.save(labels, ARRAYS["labels"])
    path = packed(tmp_path / "own.npz", {"pixels.npy": pixels, "labels.npy": labels.getvalue()})
    assert words in refusal(lambda: user_files.named_arrays("images:own", path, AXES))


def test_a_small_file_that_unpacks_to_gigabytes_is_refused_unread(tmp_path):
    path = tmp_path / "bomb.npz"
    block = bytes(2**20)
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("pixels.npy", "w", force_zip64=True) as member,
    ):
        member.write(npy((3 * 2**27, 2, 2), "|u1"))
        for _ in range(20):  # what the header says is enough
            member.write(block)
    assert path.stat().st_size < 10**5
    tracemalloc.start()
    line = refusal(lambda: tasks.make(f"images:{path}"))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert "more than 1 GiB together" in line
    assert peak < 2**23


def test_two_arrays_share_the_bound(tmp_path, monkeypatch):
    path = npz(tmp_path / "own.npz")
    size = sum(array.nbytes for array in ARRAYS.values())
    monkeypatch.setattr(user_files, "LARGEST", size)
    user_files.named_arrays("images:own", path, AXES)
    monkeypatch.setattr(user_files, "LARGEST", size - 1)
    refusal(lambda: user_files.named_arrays("images:own", path, AXES))
    monkeypatch.undo()
    monkeypatch.setattr(user_files, "MOST_EXAMPLES", 39)
    line = refusal(lambda: user_files.named_arrays("images:own", path, AXES))
    assert "more than 39 examples" in line


def encrypted(content: bytes) -> bytes:
    """An archive whose files say that they are encrypted."""
    actual = bytearray(content)
    for sign, flag in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = actual.find(sign)
        while at >= 0:
            actual[at + flag] |= 1
            at = actual.find(sign, at + 1)
    return bytes(actual)


def test_other_archives_are_refused(tmp_path):
    path = tmp_path / "own.npz"
    read = lambda: user_files.named_arrays("images:own", str(path), AXES)
    path.write_bytes(encrypted(Path(npz(tmp_path / "whole.npz")).read_bytes()))
    assert "damaged" in refusal(read)
    arrays = {}
    for key, array in ARRAYS.items():
        held = io.BytesIO()
        np.save(held, array)
        arrays[f"{key}.npy"] = held.getvalue()
    for method in (zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2):
        packed(path, arrays, method)
        assert "damaged" in refusal(read)
    packed(path, {f"folder/{name}": content for name, content in arrays.items()})
    assert "has no array pixels" in refusal(read)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("pixels.npy", arrays["pixels.npy"])
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("pixels.npy", arrays["pixels.npy"])
    assert "has 2 arrays named pixels" in refusal(read)
    packed(path, arrays)
    read()


NAMES = ("file:{}", "file:{}.fa", "pairs:{}", "labels:{}", "images:{}", "canvas:{}", "clips:{}",
         "functions:{}")  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_paths_that_are_no_files_are_refused_at_once(tmp_path, name):
    def line(path) -> str:
        return refusal(lambda: tasks.make(name.format(path)))

    os.mkfifo(tmp_path / "pipe")
    os.mkfifo(tmp_path / "pipe.fa")
    assert "a pipe, a socket or a device" in line(tmp_path / "pipe")
    if ".fa" not in name:
        assert "a pipe, a socket or a device" in line("/dev/zero")
    assert f"no home folder of {NOBODY}" in line(f"{NOBODY}/x")
    assert "is no path" in line("a\0b")
    line("x" * 300)
    line(tmp_path / "missing")
    line("")
    if ".fa" in name:
        (tmp_path / "folder.fa").mkdir()
    (tmp_path / "folder").mkdir()
    line(tmp_path / "folder")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket.fa"))
        (tmp_path / "socket").symlink_to("socket.fa")
        assert "a pipe, a socket or a device" in line(tmp_path / "socket")


def test_unknown_home_folders_are_refused_wherever_a_config_names_a_path():
    line = f"there is no home folder of {NOBODY}"
    config = Config.model_validate({"experiment": "pretrained", "model": {"checkpoint": NOBODY}})
    with pytest.raises(FieldError, match=rf"^model\.checkpoint: {line}$"):
        _ = config.folder
    with pytest.raises(Refused, match=f"^{line}$"):
        prompts.read(f"{NOBODY}/own.json")
    with pytest.raises(Refused, match=f"^{line}$"):
        skypilot.refuse_data([{"task": {"name": f"file:{NOBODY}/text"}}], Path.cwd())


def test_folders_are_read_without_pipes_and_not_in_part(tmp_path, monkeypatch):
    for n in range(60):
        (tmp_path / f"{n}.txt").write_text(f"{n} " * 300)
    os.mkfifo(tmp_path / "pipe")
    assert sum(tasks.make(f"file:{tmp_path}").facts["files"].values()) == 60
    (tmp_path / "below").mkdir()
    scandir = os.scandir

    def closed(path):
        if str(path).endswith("below"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", closed)
    assert "cannot be read: Permission denied" in refusal(lambda: tasks.make(f"file:{tmp_path}"))


def test_a_file_that_changes_while_it_is_read_ends_the_run_with_a_line(tmp_path):
    path = tmp_path / "text"
    path.write_text("some text " * 5000)
    plan = tasks.check(f"file:{path}")
    path.write_text("some text " * 4999)
    with pytest.raises(Stop, match="has become shorter"):
        plan.read()
    path.unlink()
    with pytest.raises(Stop, match="cannot be read: No such file"):
        plan.read()


def columns(path: Path, content: bytes) -> list[tuple[bytes, bytes]]:
    path.write_bytes(content)
    return user_files.tab_separated("pairs:x", str(path), "two texts")


def test_columns_of_text(tmp_path):
    path = tmp_path / "own.tsv"
    read = lambda text: columns(path, text.encode())
    # Only \n and \r\n end a line; all other characters are text.
    odd = "\u2028\u2029\x0b\x0c\x1c\x1d\x1e\x85\r"
    assert read(f"a{odd}b\tc{odd}d\r\n e \t f\n\n\t \nlast\tone") == [
        (f"a{odd}b".encode(), f"c{odd}d".encode()), (b"e", b"f"), (b"last", b"one"),
    ]  # fmt: skip
    assert read("\ufeffspam\tx\nspam\ty") == [(b"spam", b"x"), (b"spam", b"y")]
    assert "line 2 is not two texts" in refusal(lambda: read("a\tb\nc"))
    assert "line 1 is not two texts" in refusal(lambda: read("a\tb\tc"))
    assert "not UTF-8 text, in line 2" in refusal(lambda: columns(path, b"a\tb\nc\t\xff"))
    refusal(lambda: columns(path, "a\tb\n".encode("utf-16")))
    path = tmp_path / "own.tsv.gz"
    assert columns(path, gzip.compress(b"a\tb")) == [(b"a", b"b")]


def test_a_byte_order_mark_makes_no_third_class(tmp_path):
    path = tmp_path / "own.tsv"
    rows = [f"{('bad', 'good')[n % 2]}\ttext {n}" for n in range(200)]
    path.write_bytes(codecs.BOM_UTF8 + "\n".join(rows).encode())
    assert tasks.make(f"labels:{path}").facts["labels"] == ["bad", "good"]


def test_too_many_lines_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(user_files, "MOST_EXAMPLES", 3)
    columns(tmp_path / "own.tsv", b"a\tb\n" * 3)
    line = refusal(lambda: columns(tmp_path / "own.tsv", b"a\tb\n" * 4))
    assert "more than 3 lines" in line


def test_damaged_text_is_refused_or_read(tmp_path):
    whole = "".join(f"question é {n}\tanswer {n * n}\n" for n in range(30)).encode()
    rng, refused = np.random.default_rng(0), 0
    for _ in range(300):
        try:
            rows = columns(tmp_path / "own.tsv", changed(whole, rng))
        except FieldError as error:
            refused += 1
            one_line(error)
        else:
            assert all(b"\t" not in a + b and b"\n" not in a + b for a, b in rows)
    assert 0 < refused < 300


def records(path: Path, content: bytes) -> list[bytes]:
    path.write_bytes(content)
    return [*user_files.fasta_records("file:x", str(path))]


def test_sequences_of_fasta(tmp_path):
    path = tmp_path / "own.fa"
    whole = b">one\nACGT\nacgt\n>two\n\n>three\nNN"
    expected = [b"ACGTACGT", b"", b"NN"]
    for end in (b"\n", b"\r\n", b"\r"):
        assert records(path, whole.replace(b"\n", end)) == expected
    assert records(path, codecs.BOM_UTF8 + whole) == expected
    twice = gzip.compress(whole) + gzip.compress(b"\n>four\nA")  # as bgzip writes it
    assert records(tmp_path / "own.fa.gz", twice) == [*expected, b"A"]


def test_damaged_gzip_is_refused_or_the_same(tmp_path):
    text = b">one\n" + b"ACGTTGCA" * 200
    whole, expected = gzip.compress(text), [b"ACGTTGCA" * 200]
    rng, refused = np.random.default_rng(0), 0
    for _ in range(300):
        try:
            assert records(tmp_path / "own.fa.gz", changed(whole, rng)) == expected
        except FieldError as error:
            refused += 1
            one_line(error)
    assert 100 < refused < 300


def test_gzip_that_unpacks_to_more_than_the_bound_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(user_files, "LARGEST", 2**22)
    path = tmp_path / "bomb.fa.gz"
    path.write_bytes(gzip.compress(b">" + bytes(2**25)))
    tracemalloc.start()
    line = refusal(lambda: tasks.make(f"file:{path}"))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert "unpacks to more than" in line
    assert peak < 2**24
    path.with_name("own.fa").write_bytes(b">" + bytes(2**22))
    assert "GiB at most" in refusal(lambda: tasks.make(f"file:{path.with_name('own.fa')}"))


PYTHON = (
    'def first(a):{0}    "It says é."{0}    return a + 1{0}{0}{0}def second(): return "é", 2{0}'
)


@pytest.mark.parametrize("mark", [b"", codecs.BOM_UTF8])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_bodies_are_found_whatever_ends_a_line(mark, end):
    text = mark + PYTHON.format(end).encode()
    actual = [text[start:stop].decode() for start, stop in bodies(text)]
    assert actual == ["return a + 1", 'return "é", 2']
    form_feed = text.replace(b"def", b"\x0cdef")  # ends no line
    assert [form_feed[start:stop].decode() for start, stop in bodies(form_feed)] == actual


@pytest.mark.parametrize(
    "expression",
    [
        "+1" * 200_000, "-" * 200_000 + "1", "(" * 100_000, "[" * 150 + "]" * 150,
        "a." * 100_000 + "a", "lambda: " * 50_000 + "1", "not " * 100_000 + "1",
        "f" + "(1)" * 100_000, "'\\d'",
    ],
    ids=range(9),
)  # fmt: skip
def test_deep_expressions_are_left_out(expression):
    text = f"def first():\n    return 1\n\nx = {expression}\n".encode()
    assert [text[start:stop] for start, stop in bodies(text)] in ([], [b"return 1"])


def test_what_the_parser_reads_in_another_way_is_left_out():
    latin = "# coding: latin-1\ndef first(): 'é'; return 'é', 'é'\n".encode("latin-1")
    assert bodies(latin) == []
    assert bodies(b"def first(): return 1\n" + b"#" * 2**22) == []
    assert bodies(b"def first(): return 1\n" + b"#" * 2**12) == [(13, 21)]


def test_a_comment_ends_with_its_line():
    for end in (b"\n", b"\r\n", b"\r"):
        assert brackets.pairs(b"# (" + end + b"[1]").tolist() == [[3 + len(end), 5 + len(end)]]


def test_damaged_code_is_read_or_left_out():
    whole, rng, actual = (PYTHON.format("\n") * 4).encode(), np.random.default_rng(0), 0
    for _ in range(300):
        text = changed(whole, rng)
        text = text.replace(b"\n", b"\r") if rng.integers(2) else text
        spans = bodies(text)
        assert all(0 <= start < stop <= len(text) for start, stop in spans)
        actual += bool(spans)
        brackets.pairs(text)
    assert 50 < actual < 300


def test_texts_of_the_standard_library_are_python():
    files = corpus.texts(corpus.standard_library())["test"]
    assert sum(bool(bodies(text)) for _, text in files) > len(files) / 2
