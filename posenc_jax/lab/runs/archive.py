"""Archives of runs, NAME.tar.xz in results/: a folder a run."""

import io
import lzma
import os
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from posenc_jax.lab.runs.stored import StoredRun, finished, read

FILES = ("config.json", "metrics.jsonl", "summary.json")  # of a finished run
# Of one that goes on where it is unpacked. Its progress is read first: one that is measured while
# it is packed has records beyond it then, which are measured again, and none is missing.
BEGUN = ("config.json", "progress.json", "metrics.jsonl")


def pack(
    path: Path,
    folders: Sequence[Path],
    names: Sequence[str],
    files: Sequence[str] = FILES,
    begun: Sequence[Path] = (),
) -> None:
    """Packs files of each folder under its name; the same content gives the same bytes.

    The file takes its place when it is whole; several processes may pack it at once.

    begun: folders of runs that are not finished, with what they need to go on.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    packed = [(folder, name, files) for folder, name in zip(folders, names, strict=True)]
    packed += [(folder, folder.name, BEGUN) for folder in begun]
    with tarfile.open(part, "w:xz") as archive:
        for folder, name, files_of_folder in packed:
            for file in files_of_folder:
                content = (folder / file).read_bytes()
                entry = tarfile.TarInfo(f"{name}/{file}")
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
    part.replace(path)


@contextmanager
def unpacked(path: Path) -> Iterator[Path]:
    """Yields a temporary folder with the content of an archive.

    Raises:
      ValueError: the file is no archive.
    """
    with tempfile.TemporaryDirectory() as folder:
        try:
            with tarfile.open(path) as archive:
                archive.extractall(folder, filter="data")
        except (OSError, EOFError, lzma.LZMAError, tarfile.TarError) as error:
            raise ValueError(f"archive: {path}: {error}") from None
        yield Path(folder)


def read_archive(path: Path) -> list[StoredRun]:
    """Returns the finished runs of an archive, in the order of their names."""
    with unpacked(path) as folder:
        return [read(run) for run in sorted(finished([folder]))]
