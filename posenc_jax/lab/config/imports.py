"""Modules of a user's own that a config names in its field `imports`: methods, tasks.

They are imported before names are checked, so that what they register is found. The folder of the
config file can be imported from. A run records the folders and the files' SHA-256 in config.json,
so that a report finds the modules in another working directory, and a changed file is reported.
"""

import hashlib
import importlib
import site
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from posenc_jax.options import FieldError, shown

_FOLDERS: list[Path] = []  # of configs, the newest last


def add_folder(folder: str | Path) -> None:
    """Makes the modules of a config's folder importable, after all others."""
    path = Path(folder).resolve()
    _FOLDERS[:] = [*(entry for entry in _FOLDERS if entry != path), path]
    if path not in (Path(entry).resolve() for entry in sys.path):
        sys.path.append(str(path))


def load(names: Iterable[str]) -> None:
    """Imports the modules.

    FieldError: a module that is missing, that fails, or another one of the same name than that
    beside the config; one line, of the field `imports`.
    """
    for name in names:
        try:
            module = importlib.import_module(name)
        except Exception as error:
            raise FieldError("imports", _reason(name, error)) from error
        beside = next(filter(None, (_in(folder, name) for folder in reversed(_FOLDERS))), None)
        if beside is not None and beside != _file(module):
            other = _file(module) or "a module of Python"
            raise FieldError("imports", f"{name!r} is {other} already, not {beside}; rename it")


def _in(folder: Path, name: str) -> Path | None:
    """The file of a module in a folder; None if the folder has none."""
    path = folder.joinpath(*name.split("."))
    files = path.with_name(f"{path.name}.py"), path / "__init__.py"
    return next((file.resolve() for file in files if file.is_file()), None)


def _reason(name: str, error: Exception) -> str:
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    if missing is not None and f"{name}.".startswith(f"{missing}."):
        return (
            f"no module {name!r} beside the config, nor on the path of Python; PYTHONPATH=FOLDER "
            f"names the folder of {name.replace('.', '/')}.py"
        )
    line = (str(error).strip().splitlines() or [""])[0]
    return f"{name}: {line} ({type(error).__name__})"


def record(names: Iterable[str]) -> dict[str, Any]:
    """What config.json records of the imported modules: {} if there are none.

    folders: the folders that the modules are imported from.
    sha256:  path in its folder -> the hash of a file: of each module, and of the modules beside it
      that it imports.
    """
    modules = [sys.modules[name] for name in names if _file(sys.modules[name])]
    if not modules:
        return {}
    sha256 = {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for folder, path in sorted(files(names))
    }
    return {"folders": sorted({str(_folder(module)) for module in modules}), "sha256": sha256}


def files(names: Iterable[str]) -> set[tuple[Path, Path]]:
    """Returns (folder, file) of each module, and of the modules beside it that are imported too.

    Files beside an installed package are left out.
    """
    located: set[tuple[Path, Path]] = set()
    for module in (sys.modules[name] for name in names):
        path = _file(module)
        if path is None:
            continue
        folder, top = _folder(module), module.__name__.partition(".")[0]
        installed = any(folder.is_relative_to(place) for place in _installed())
        for imported, other in list(sys.modules.items()):
            there = _file(other)
            if there is None or _in(folder, imported) != there:
                continue  # also a config file, which is read under a name of its own
            if imported.partition(".")[0] == top or (
                not installed and there.is_relative_to(path.parent)
            ):
                located.add((folder, there))
    return located


def load_recorded(environment: Mapping[str, Any], names: Any) -> str:
    """Imports the modules of a stored run, and returns the names of files that changed since; "" if
    none did.

    Args:
      environment, names: as config.json has them, maybe damaged.

    FieldError: see `load`; a part of the file that is not what `record` returns.
    """
    before = environment.get("imports", {})
    whole = isinstance(before, dict) and isinstance(before.get("sha256", {}), dict)
    if not whole or not _texts(before.get("folders", [])):
        raise FieldError("environment.imports", f"{shown(before)} is not what a run keeps of its "
                         "modules")  # fmt: skip
    if not _texts(names):
        raise FieldError("imports", f"{shown(names)} is not a list of the names of modules")
    for folder in before.get("folders", []):
        add_folder(folder)
    load(names)
    return changed(before, record(names))


def _texts(values: Any) -> bool:
    return isinstance(values, list | tuple) and all(isinstance(value, str) for value in values)


def changed(before: Any, now: Mapping[str, Any]) -> str:
    """The names of imported files that differ, such as "my_methods.py"; "" if none does."""
    hashes = lambda record: record.get("sha256") if isinstance(record, dict) else None
    old, new = (sha256 if isinstance(sha256 := hashes(r), dict) else {} for r in (before, now))
    return ", ".join(name for name in {**old, **new} if old.get(name) != new.get(name))


def _file(module: ModuleType) -> Path | None:
    path = getattr(module, "__file__", None)
    return None if path is None else Path(path).resolve()


def _folder(module: ModuleType) -> Path:
    """The folder that the module's first package, or the module, is imported from."""
    path = _file(module)
    assert path is not None
    depth = module.__name__.count(".") + hasattr(module, "__path__")
    return path.parents[depth]


def _installed() -> list[Path]:
    return [Path(place).resolve() for place in
            (*site.getsitepackages(), sysconfig.get_path("stdlib"))]  # fmt: skip
