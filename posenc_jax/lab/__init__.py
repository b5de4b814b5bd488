"""The lab: everything that measures encodings, from a config to a report.

`load` gives a model that a run has trained; `evaluate` evaluates its weights again, at other
lengths or under other encodings. Both need the folder experiments/ of the repository, which is not
installed: run Python in the repository, or with the repository in PYTHONPATH.
"""

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from experiments.compare.loading import evaluate, load

__all__ = ["evaluate", "load"]


def __getattr__(name: str) -> Any:
    """The functions above, imported when they are first used: they load JAX, Flax and Orbax.

    ModuleNotFoundError: the folder experiments/ of the repository is not on Python's path.
    """
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if importlib.util.find_spec("experiments") is None:
        sys.path.append(str(Path(__file__).parents[2]))
    spec = importlib.util.find_spec("experiments")
    folders = spec.submodule_search_locations if spec is not None else None
    if not any((Path(folder) / "compare" / "loading.py").is_file() for folder in folders or ()):
        raise ModuleNotFoundError(
            f"posenc_jax.lab.{name} needs the folder experiments/ of the posenc_jax repository, "
            "which is not installed; run Python in the repository, or with it in PYTHONPATH"
        )
    return getattr(importlib.import_module("experiments.compare.loading"), name)
