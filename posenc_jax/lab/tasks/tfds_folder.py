"""Finds the TFDS sets that are prepared on this machine, and opens them without TensorFlow.

A name is one of TFDS, such as "lm1b", "wiki40b/en" or "scan/length_split". With ":1.2.0" after it
it is that version, else the newest one prepared. Sets are in the folder that the environment
variable TFDS_DATA_DIR names, or in ~/tensorflow_datasets. The functions that use TFDS import it:
that takes half a second.
"""

import difflib
import os
import re
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from posenc_jax.lab.tasks.user_files import user_path
from posenc_jax.options import FieldError

PREFIX = "tfds:"  # at the start of a task's name
READABLE = "array_record"
CATALOG = "https://www.tensorflow.org/datasets/catalog"


class Prepared(NamedTuple):
    """A prepared set on disk; `builder` is TFDS's, which reads it."""

    name: str
    builder: Any

    def features_of_type(self, kind: str) -> list[str]:
        """The names of the features of one class of TFDS, such as "Text"."""
        features = sorted(self.builder.info.features.items())
        return [name for name, feature in features if type(feature).__name__ == kind]


def data_dir() -> Path:
    """The folder of prepared sets. FieldError: it is in the home folder of an unknown user."""
    return user_path("TFDS_DATA_DIR", os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets")


def find(name: str) -> Prepared:
    """A prepared set by name.

    Raises:
      FieldError: TFDS has no such set; it is not prepared, only half prepared, stored in another
        format, or lacks files; or several of its configs are prepared. The reason has the command
        that prepares it.
    """
    check_name(name)
    base, _, version = name.partition(":")
    folder = data_dir() / base
    if "/" not in base and not _versions(folder):
        configs = sorted(child.name for child in folder.glob("*") if _versions(child))
        if len(configs) > 1:
            _refuse(name, f"has several configs prepared; choices: {', '.join(configs)}")
        folder = folder / configs[0] if configs else folder
    versions = _versions(folder)
    if half := None if versions else _left_over(folder):
        _refuse(name, f"was left half prepared; remove {half} and prepare again: {_command(name)}")
    if not versions:
        check_known(name)
        _refuse(name, f"is not prepared in {data_dir()}; once, type: {_command(name)}")
    if version and version not in versions:
        _refuse(name, f"is not prepared in that version; choices: {', '.join(versions)}")
    return _open(name, folder / (version or versions[-1]))


def check_name(name: str) -> None:
    """Raises a FieldError if a name is not written NAME, NAME/CONFIG or NAME:VERSION."""
    if not re.fullmatch(r"\w+(/[\w.+-]+)?(:\d+\.\d+\.\d+)?", name):
        _refuse(name, "is no name of a set; it is written NAME, NAME/CONFIG or NAME:VERSION")


def is_there(name: str) -> bool:
    """Whether a set is prepared. FieldError: only a part of it is, or it is in another format."""
    folder = data_dir() / name.partition(":")[0]
    if not _versions(folder) and _left_over(folder) is None:
        return False
    find(name)
    return True


def check_known(name: str) -> None:
    """Raises a FieldError with the nearest names, or TFDS's catalog, if TFDS has no such set."""
    import tensorflow_datasets as tfds

    base = re.split("[:/]", name)[0]
    names = {"posenc_jax", *tfds.list_builders(with_community_datasets=False)}
    # Some sets are listed only where TensorFlow is installed; their files are always there.
    names |= {path.stem for path in Path(tfds.__path__[0]).glob("*/*")}
    if base not in names:
        near = ", ".join(difflib.get_close_matches(base, names, n=3))
        hint = f"did you mean {near}?" if near else f"see {CATALOG}"
        raise FieldError("task.name", f"TFDS has no set {base!r}; {hint}")


def _open(name: str, folder: Path) -> Prepared:
    """The set in a folder. FieldError: it is damaged, in another format, or lacks files."""
    import tensorflow_datasets as tfds

    again = f"remove {folder} and prepare it again: {_command(name)}"
    open_folder: Any = tfds.builder_from_directory
    try:
        builder = open_folder(folder)
    except Exception:  # TFDS raises errors of any type for files that it cannot read
        _refuse(name, f"is damaged; {again}")
    stored = builder.info.file_format.value
    if stored != READABLE:
        _refuse(
            name,
            f"is prepared as {stored}, which needs TensorFlow to read; remove {folder} and prepare "
            f"it as {READABLE}: {_command(name)}",
        )
    for split, info in builder.info.splits.items():
        lacking = [path for path in info.filepaths if not path.exists()]
        if lacking:
            count = f"{len(lacking)} of {len(info.filepaths)}"
            _refuse(name, f"lacks {count} files of its split {split}; {again}")
    return Prepared(f"{PREFIX}{name}", builder)


def _versions(folder: Path) -> list[str]:
    """The versions prepared in a folder, newest last."""
    from tensorflow_datasets.core.utils import version

    return [str(entry) for entry in version.list_all_versions(folder)]


def _left_over(folder: Path) -> Path | None:
    """The folder of an interrupted preparation, or None."""
    return next(iter(sorted(folder.glob("**/incomplete.*"))), None)


def _command(name: str) -> str:
    """The command that prepares a set."""
    return f"python scripts/prepare_data.py {name}"


def _refuse(name: str, why: str) -> NoReturn:
    """Raises a FieldError about the task of a set."""
    raise FieldError("task.name", f"{PREFIX}{name} {why}")
