"""Finds the TFDS sets that are prepared on this machine, and reads them without TensorFlow.

A name is one of TFDS, such as "lm1b", "wiki40b/en" or "scan/length_split". With ":1.2.0" after it
it is that version, else the newest one prepared. Sets are in the folder that the environment
variable TFDS_DATA_DIR names, or in ~/tensorflow_datasets. `find` reads two small files and does not
import TFDS.
"""

import difflib
import importlib.util
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from posenc_jax.options import FieldError, choices_for

PREFIX = "tfds:"  # at the start of a task's name
READABLE = "array_record"
CATALOG = "https://www.tensorflow.org/datasets/catalog"


class Split(NamedTuple):
    """The size of one split of a set."""

    examples: int
    bytes: int


class Prepared(NamedTuple):
    """A set on disk; `features` is TFDS's description of each feature, by name."""

    name: str
    folder: Path
    splits: dict[str, Split]
    features: dict[str, dict]

    def of_type(self, kind: str) -> list[str]:
        """The names of the features of one class of TFDS, such as "Text"."""
        return [
            name
            for name, feature in self.features.items()
            if feature.get("pythonClassName", "").endswith(f".{kind}")
        ]


def data_dir() -> Path:
    """The folder of prepared sets."""
    return Path(os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets").expanduser()


def command(name: str) -> str:
    """The command that prepares a set."""
    return f"python scripts/prepare_data.py {name}"


def find(name: str) -> Prepared:
    """A prepared set by name.

    Raises:
      FieldError: TFDS has no such set; it is not prepared, only half prepared, stored in another
        format, or lacks files; or several of its configs are prepared. The reason has the command
        that prepares it.
    """
    base, _, version = name.partition(":")
    folder = data_dir() / base
    check_name(name)
    if "/" not in base and not _versions(folder) and folder.is_dir():
        configs = sorted(child.name for child in folder.iterdir() if _versions(child))
        if len(configs) > 1:
            _refuse(name, f"has several configs prepared; choices: {', '.join(configs)}")
        folder = folder / configs[0] if configs else folder
    versions = _versions(folder)
    if version and version not in versions and versions:
        _refuse(name, f"is not prepared in that version; choices: {', '.join(versions)}")
    if not versions:
        _refuse_missing(name, folder)
    return _read(name, folder / (version or versions[-1]))


def check_name(name: str) -> None:
    """Raises a FieldError if a name is not written NAME, NAME/CONFIG or NAME:VERSION."""
    if not re.fullmatch(r"\w+(/[\w.+-]+)?(:\d+\.\d+\.\d+)?", name):
        _refuse(name, "is no name of a set; it is written NAME, NAME/CONFIG or NAME:VERSION")


def is_there(name: str) -> bool:
    """Whether a set is prepared. FieldError: only a part is, or it is in another format."""
    folder = data_dir() / name.partition(":")[0]
    if not _versions(folder) and left_over(folder) is None:
        return False
    find(name)
    return True


def _read(name: str, folder: Path) -> Prepared:
    try:
        info = json.loads((folder / "dataset_info.json").read_text("utf-8"))
        stored = json.loads((folder / "features.json").read_text("utf-8"))
    except (OSError, ValueError):
        _refuse(name, f"is damaged; remove {folder} and prepare it again: {command(name)}")
    if info.get("fileFormat") != READABLE:
        _refuse(
            name,
            f"is prepared as {info.get('fileFormat')}, which needs TensorFlow to read; remove "
            f"{folder} and prepare it as {READABLE}: {command(name)}",
        )
    splits = {}
    for split in info.get("splits", []):
        lengths = [int(n) for n in split.get("shardLengths", [])]
        stored_bytes = int(split.get("numBytes", 0))
        splits[split["name"]] = Split(sum(lengths), stored_bytes)
        shards = list(folder.glob(f"*-{split['name']}.{READABLE}-*"))
        if len(shards) < len(lengths):
            _refuse(
                name,
                f"lacks {len(lengths) - len(shards)} of {len(lengths)} files of its split "
                f"{split['name']}; remove {folder} and prepare it again: {command(name)}",
            )
    features = stored.get("featuresDict", {}).get("features", {})
    return Prepared(f"{PREFIX}{name}", folder, splits, features)


def source(found: Prepared, split: str) -> Sequence[dict[str, Any]]:
    """The examples of a split, or of part of one ("train[:10%]"), with random access."""
    return _builder(found).as_data_source(split)


def examples(found: Prepared, split: str, field: str) -> int:
    """The number of examples in a split as TFDS writes it, 1 or more.

    FieldError: the set has no such split, TFDS cannot read it, or it holds no examples.
    """
    base = re.split(r"[\[+]", split)[0]
    if base not in found.splits:
        reason = f"{found.name} has no split {base!r}{choices_for(base, found.splits)}"
        raise FieldError(("task", field), reason)
    count = found.splits[base].examples if base == split else _counted(found, split, field)
    if count < 1:
        raise FieldError(("task", field), f"{split!r} of {found.name} holds no examples")
    return count


def _counted(found: Prepared, split: str, field: str) -> int:
    try:
        return _builder(found).info.splits[split].num_examples
    except Exception as error:  # TFDS raises errors of any type for a split that it cannot read
        said = " ".join(str(error.args[0] if error.args else error).split())
        raise FieldError(("task", field), f"{split!r} of {found.name}: {said}") from None


def _builder(found: Prepared) -> Any:
    import tensorflow_datasets as tfds  # takes a second

    open_folder: Any = tfds.builder_from_directory
    return open_folder(found.folder)


def _versions(folder: Path) -> list[str]:
    """The versions prepared in a folder, newest last."""
    if not folder.is_dir():
        return []
    found = [c.name for c in folder.iterdir() if re.fullmatch(r"\d+\.\d+\.\d+", c.name)]
    return sorted(found, key=lambda v: tuple(map(int, v.split("."))))


def check_known(name: str) -> None:
    """Raises a FieldError with the nearest names if TFDS has no such set."""
    base = re.split("[:/]", name)[0]
    if base not in (known := _known()) and base not in (known := known | registered()):
        raise FieldError("task.name", f"TFDS has no set {base!r}{_near(base, known)}")


def left_over(folder: Path) -> Path | None:
    """The incomplete folder of an interrupted preparation, or None."""
    return next(iter(sorted(folder.glob("**/incomplete.*"))), None)


def _refuse_missing(name: str, folder: Path) -> NoReturn:
    if half := left_over(folder):
        _refuse(name, f"was left half prepared; remove {half} and prepare again: {command(name)}")
    check_known(name)
    _refuse(name, f"is not prepared in {data_dir()}; once, type: {command(name)}")


def _known() -> set[str]:
    """Names of sets, from the files of the installed TFDS: to import it takes a second."""
    spec = importlib.util.find_spec("tensorflow_datasets")
    root = Path(spec.origin).parent if spec and spec.origin else Path()
    folders = {path.name for path in root.glob("datasets/*") if path.is_dir()}
    modules = {path.stem for path in root.glob("*/*.py")} | {p.stem for p in root.glob("*/*/*.py")}
    return {"posenc_jax"} | folders | modules


def registered() -> set[str]:
    """The names that TFDS has registered; some of its older modules define several sets."""
    import tensorflow_datasets as tfds

    return set(tfds.list_builders(with_community_datasets=False))


def _near(name: str, known: set[str]) -> str:
    """A hint for the error: the nearest names, or the address of the catalog."""
    near = difflib.get_close_matches(name, known, n=3)
    return f"; did you mean {', '.join(near)}?" if near else f"; see {CATALOG}"


def _refuse(name: str, why: str) -> NoReturn:
    raise FieldError("task.name", f"{PREFIX}{name} {why}")
