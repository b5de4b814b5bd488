"""Tests run strictly: no silent dtype or rank promotion, and every warning is an error."""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("MPLBACKEND", "Agg")

import jax
import pytest
from hypothesis import settings

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_enable_compilation_cache", False)
# The programs are small and run once: what takes time is compiling them.
jax.config.update("jax_disable_most_optimizations", True)

settings.register_profile("default", max_examples=3, deadline=None, derandomize=True)
settings.register_profile("thorough", max_examples=100, deadline=None)
settings.load_profile("default")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """All tests of one method go to one worker, which compiles its model once."""
    for item in items:
        callspec = getattr(item, "callspec", None)
        if callspec is not None and item.path.stem.startswith("test_catalogue"):
            item.add_marker(pytest.mark.xdist_group(str(callspec.params.get("name"))))
