"""Readers of files that a user names: text, two columns, FASTA, arrays of an .npz file.

Every task that reads a path reads it here. A file is data from anywhere: nothing in it is executed
or unpickled, memory is bounded by LARGEST before anything is unpacked, and what cannot be read is a
FieldError of one line. Pipes, sockets and devices are refused, since reading them may never end.
"""

import gzip
import io
import math
import os
import stat
import struct
import warnings
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import IO, Literal, NoReturn

import numpy as np

from posenc_jax.lab.hosts.exit_status import Refused
from posenc_jax.lab.hosts.files import expanded
from posenc_jax.options import FieldError

LARGEST = 2**30  # bytes that are held at once, of a file or of what it unpacks to
MOST_EXAMPLES = 10_000_000  # of a file, since each takes time and memory of its own
_HEADER = 10_000  # bytes of the header of an array; NumPy reads no longer one either
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"

# What zipfile and zlib raise for damaged, encrypted or unknown content.
_DAMAGED = (
    OSError,
    ValueError,
    EOFError,
    RuntimeError,
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
)


def user_path(name: str, path: str) -> Path:
    """The path with `~` and `~user` replaced by a home folder.

    FieldError: there is no such user, or no file system has such a path.
    """
    try:
        return expanded(path)
    except Refused as error:
        _refuse(name, str(error))


def path_kind(name: str, path: Path) -> Literal["file", "folder", "none"]:
    """The kind of the entry at a path. FieldError: a pipe, a socket or a device, or the path cannot
    be read.
    """
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return "none"
    except OSError as error:
        _refuse(name, f"cannot be read: {error.strerror}")
    if stat.S_ISDIR(mode):
        return "folder"
    if not stat.S_ISREG(mode):
        _refuse(name, "is no file; it is a pipe, a socket or a device")
    return "file"


def files_in(root: Path, without: Sequence[str] = ("__pycache__",)) -> Iterator[Path]:
    """The files under a folder, as paths inside it, except hidden files and links.

    without: patterns of names of folders to leave out.

    OSError: a folder below cannot be read.
    """

    def stop(error: OSError) -> NoReturn:
        raise error

    for folder, folders, names in os.walk(root, onerror=stop):
        folders[:] = [f for f in folders if not any(fnmatch(f, skip) for skip in (".*", *without))]
        for name in names:
            path = Path(folder, name)
            if not name.startswith(".") and path.is_file() and not path.is_symlink():
                yield path.relative_to(root)


def is_text(path: Path) -> bool:
    """Whether the first 8,192 bytes of a file hold no 0 byte."""
    with path.open("rb") as opened:
        return b"\0" not in opened.read(8192)


def content(name: str, path: str) -> bytes:
    """The bytes of a file without a byte order mark; those of a file named .gz are unpacked.

    FieldError: it cannot be read, or is or unpacks to more than LARGEST bytes.
    """
    with _opened(name, path) as opened:
        packed = path.lower().endswith(".gz")
        try:
            # Reads of one byte more than may be held: a small file can unpack to any size.
            held = (gzip.GzipFile(fileobj=opened) if packed else opened).read(LARGEST + 1)
        except (OSError, EOFError, zlib.error) as error:
            _refuse(name, f"cannot be read: {_line(error)}")
    if len(held) > LARGEST:
        _refuse(name, f"{'unpacks to' if packed else 'has'} more than {_size(LARGEST)}")
    return held.removeprefix(_BYTE_ORDER_MARK)


def tab_separated(name: str, path: str, wanted: str) -> list[tuple[bytes, bytes]]:
    r"""The two columns of a UTF-8 file, without empty lines and without spaces around a text.

    Lines end in \n or \r\n. Other characters that Unicode counts as ends of lines, such as a form
    feed, belong to the text.

    Args:
      name: of the task.
      path: of the file.
      wanted: what a line must hold, in words.

    FieldError: the file cannot be read, or a line is not two texts with one tab between.
    """
    rows: list[tuple[bytes, bytes]] = []
    for number, line in enumerate(io.BytesIO(content(name, path)), 1):
        try:
            text = line.decode("utf-8").removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError:
            _refuse(name, f"cannot be read: it is not UTF-8 text, in line {number}")
        if text.strip():
            parts = text.split("\t")
            if len(parts) != 2 or not all(part.strip() for part in parts):
                _refuse(name, f"line {number} is not {wanted}", ": ")
            rows.append((parts[0].strip(" ").encode(), parts[1].strip(" ").encode()))
            if len(rows) > MOST_EXAMPLES:
                _refuse(name, f"has more than {MOST_EXAMPLES:,} lines")
    return rows


def fasta_records(name: str, path: str) -> Iterator[bytes]:
    """The sequences of a FASTA file, in upper case.

    FieldError: it cannot be read, or is not FASTA.
    """
    stored = content(name, path)
    if not stored.startswith(b">"):
        _refuse(name, "is not FASTA; its first line must begin with >")
    record: bytearray | None = None
    for line in io.BytesIO(stored.replace(b"\r", b"\n")):
        if not line.startswith(b">") and record is not None:
            record += line.strip()
            continue
        if record is not None:
            yield bytes(record).upper()
        record = bytearray()
    yield bytes(record or b"").upper()


def named_arrays(name: str, path: str, wanted: Mapping[str, str]) -> dict[str, np.ndarray]:
    """The arrays of whole numbers of an .npz file, as `numpy.savez` writes it.

    Args:
      name: of the task.
      path: of the file.
      wanted: the names of the arrays -> their axes, "N side side or N side side channels". Axes of
        one name have one size.

    FieldError: the file cannot be read, an array is missing, has other axes, or holds no whole
    numbers, or the arrays are larger than LARGEST bytes together.
    """
    arrays: dict[str, np.ndarray] = {}
    sizes: dict[str, int] = {}
    room = LARGEST
    with _opened(name, path) as opened:
        try:
            packed = zipfile.ZipFile(opened)
            for key, axes in wanted.items():
                members = [m for m in packed.infolist() if m.filename == f"{key}.npy"]
                if not members:
                    _refuse(name, f"has no array {_described(key, axes)}")
                if len(members) > 1:
                    _refuse(name, f"has {len(members)} arrays named {key}")
                with _unpacked(packed, members[0]) as stream:
                    shape, by_column, dtype = _header(stream)
                    _check_axes(name, key, axes, shape, dtype, sizes)
                    room -= math.prod(shape) * dtype.itemsize  # as declared, before it is unpacked
                    if room < 0:
                        _refuse(name, f"has arrays of more than {_size(LARGEST)} together")
                    array = _numbers(stream, shape, dtype)
                arrays[key] = array.reshape(shape, order="F" if by_column else "C")
        except FieldError:
            raise
        except _DAMAGED:
            _refuse(name, "cannot be read: it is not an .npz file of numbers, or is damaged")
    if max(array.shape[0] for array in arrays.values()) > MOST_EXAMPLES:
        _refuse(name, f"has more than {MOST_EXAMPLES:,} examples")
    return arrays


def check_range(name: str, key: str, array: np.ndarray, most: int, least: int = 0) -> None:
    """Raises a FieldError if a number of an array is not in least .. most."""
    for number in (int(array.min()), int(array.max())):
        if not least <= number <= most:
            _refuse(name, f"{key} holds {number}; give {least} to {most}", ": ")


def _opened(name: str, path: str) -> IO[bytes]:
    """The file, open for reading. FieldError: there is none, or it cannot be read."""
    full_path = user_path(name, path)
    kind = path_kind(name, full_path)
    if kind == "folder":
        _refuse(name, "cannot be read: Is a directory")
    try:
        opened = full_path.open("rb")
    except OSError as error:
        _refuse(name, f"cannot be read: {error.strerror}")
    if (size := os.fstat(opened.fileno()).st_size) > LARGEST:
        opened.close()
        _refuse(name, f"has {_size(size)}; {_size(LARGEST)} at most")
    return opened


def _unpacked(packed: zipfile.ZipFile, member: zipfile.ZipInfo) -> IO[bytes]:
    """A file in an archive, open for reading. ValueError: a compression that NumPy does not use."""
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(member.compress_type)  # LZMA, for one, takes as much memory as it says
    return packed.open(member)


def _header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype]:
    """The shape of an array, whether it is stored by columns, and its dtype."""
    version = np.lib.format.read_magic(stream)
    size_format = "<H" if version == (1, 0) else "<I"
    size_bytes = _exactly(stream, struct.calcsize(size_format))
    (size,) = struct.unpack(size_format, size_bytes)
    if size > _HEADER:  # NumPy would read all of it first
        raise ValueError(size)
    held = io.BytesIO(size_bytes + _exactly(stream, size))
    readers = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,  # (3, 0) is of structured arrays alone
    }
    try:
        with warnings.catch_warnings(action="ignore"):  # of odd literals, and of Python 2
            shape, by_column, dtype = readers[version](held, _HEADER)
    except Exception as error:  # it is parsed as a Python literal, which can fail in many ways
        raise ValueError(error) from None
    if any(isinstance(size, bool) for size in shape):  # NumPy takes them here, not for a reshape
        raise ValueError(shape)
    return shape, by_column, dtype


def _check_axes(
    name: str, key: str, axes: str, shape: tuple[int, ...], dtype: np.dtype, sizes: dict[str, int]
) -> None:
    """Raises a FieldError if an array's axes or dtype are not the wanted ones; adds to `sizes`."""
    names = next((a.split() for a in axes.split(" or ") if len(a.split()) == len(shape)), [])
    fits = all(sizes.setdefault(a, n) == n for a, n in zip(names, shape, strict=False))
    if not names or not fits or dtype.kind not in "iu" or min(shape) < 1:
        reason = f"{key} is {dtype} of shape {list(shape)}; give {_described(key, axes)}"
        _refuse(name, reason if len(reason) < 400 else reason[:397] + "...", ": ")


def _numbers(stream: IO[bytes], shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """The numbers of an array, flat. ValueError: there are too few or too many, or the checksum is
    wrong.
    """
    count = math.prod(shape)
    array = np.frombuffer(_exactly(stream, count * dtype.itemsize), dtype)
    if stream.read(1):  # at the end of a file zipfile also compares its checksum
        raise ValueError("longer than its shape")
    return array.astype(dtype.newbyteorder("="), copy=False)


def _exactly(stream: IO[bytes], size: int) -> bytes:
    """Reads `size` bytes. EOFError: there are fewer."""
    held = stream.read(size)
    if len(held) != size:
        raise EOFError
    return held


def _described(key: str, axes: str) -> str:
    return f"{key}, whole numbers with the axes {axes}"


def _size(size: int) -> str:
    return f"{size / 2**30:.3g} GiB"


def _line(error: Exception) -> str:
    return (getattr(error, "strerror", None) or str(error) or "it is cut off").splitlines()[0]


def _refuse(name: str, why: str, mark: str = " ") -> NoReturn:
    """Raises a FieldError of one line about the task's file."""
    raise FieldError("task.name", f"{name}{mark}{why}") from None
