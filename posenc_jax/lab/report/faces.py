"""A package's names, loaded when they are first used."""

import importlib
from collections.abc import Callable, Sequence
from typing import Any


def face(package: str, homes: Sequence[str], names: Sequence[str]) -> tuple[Callable, Callable]:
    """The package's `__getattr__` and `__dir__`: its modules `homes`, and the names in them.

    A name is looked for in one home after another: those that load fast come first.
    """

    def get(name: str) -> Any:
        if name in homes:
            return importlib.import_module(f"{package}.{name}")
        if name in names:
            for home in homes:
                module = importlib.import_module(f"{package}.{home}")
                if hasattr(module, name):
                    return getattr(module, name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return get, lambda: sorted([*homes, *names])
