"""Tests run strictly: no silent dtype or rank promotion, and every warning is an error."""

import functools
import gc
import os
import threading

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("MPLBACKEND", "Agg")
# The programs are small and run once, here and in what tests start: compiling takes the time.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")

import jax
import pytest
from hypothesis import settings
from jax._src.interpreters import mlir

from posenc_jax.compiling import flags
from tests.browser import browser

os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flags(0)}"  # no backend runs yet
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_enable_compilation_cache", False)

# A quarter of compiling a small program is making its MLIR context, and a kept program keeps it.
_context = functools.cache(lambda thread, make=mlir.make_ir_context: make())
mlir.make_ir_context = lambda: _context(threading.get_ident())
gc.set_threshold(50_000, 20, 50)

settings.register_profile("default", max_examples=2, deadline=None, derandomize=True)
settings.register_profile("thorough", max_examples=100, deadline=None)
settings.load_profile("default")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """All tests of one method go to one worker, which compiles its model once.

    What needs a browser is left out where there is none, and the last lines say so.
    """
    if not browser():
        config.hook.pytest_deselected(items=[i for i in items if i.get_closest_marker("browser")])
        items[:] = [item for item in items if not item.get_closest_marker("browser")]
    for item in items:
        callspec = getattr(item, "callspec", None)
        if callspec is not None and item.path.stem.startswith("test_catalogue"):
            item.add_marker(pytest.mark.xdist_group(str(callspec.params.get("name"))))


def pytest_terminal_summary(terminalreporter):
    if not browser():
        terminalreporter.write_line("NOT RUN: the page in a browser; apt-get install chromium")
