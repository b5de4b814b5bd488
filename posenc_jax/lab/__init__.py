"""The lab: everything that measures encodings, from a config to a report.

`load` gives a model that a run has trained; `evaluate` evaluates its weights again, at other
lengths or under other encodings. Both need the folder experiments/ of this repository.
"""

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from experiments.compare.loading import evaluate, load

__all__ = ["evaluate", "load"]


def __getattr__(name: str) -> Any:
    """The functions above, imported when they are first used: they load JAX, Flax and Orbax."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if importlib.util.find_spec("experiments") is None:
        sys.path.append(str(Path(__file__).parents[2]))
    return getattr(importlib.import_module("experiments.compare.loading"), name)
