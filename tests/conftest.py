"""Tests run strictly: no silent dtype or rank promotion, and every warning is an error.

The mark `thorough` says what `make test` leaves out and `make test-all` runs: tests that repeat
what others prove, for more methods or sizes, and runs of whole experiments. With
`thorough(after=2)` these are all cases of a test but its first two.
"""

import collections
import gc
import itertools
import os
import re
import tempfile
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("MPLBACKEND", "Agg")
# NumPy's products are small, and its second thread would wait in a busy loop.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Programs are small and run once, also in the processes that tests start: compiling dominates.
# `make test-optimized` runs the tests of attention and training with 0 too, as users compile.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")

import jax
import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

from posenc_jax.attention import shared_trace
from posenc_jax.lab.hosts.compiling import ONE_PART, flags
from tests.support.browser import browser

# No backend runs yet. A worker of xdist has these flags already: twice would be other programs.
level = "" if os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] == "0" else flags(0)
ours, already = f"{level} {ONE_PART}", os.environ.get("XLA_FLAGS", "")
os.environ["XLA_FLAGS"] = already if ours in already else f"{already} {ours}"
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)

gc.set_threshold(500_000, 50, 1000)

settings.register_profile("default", max_examples=1, deadline=None, derandomize=True)
settings.register_profile("thorough", max_examples=25, deadline=None)
settings.load_profile("default")


# Not for processes that tests start and kill: they could leave half an entry.
KEPT = os.environ.pop("JAX_COMPILATION_CACHE_DIR", None)
_temporary_folder = tempfile.TemporaryDirectory(
    prefix="posenc_jax-"
)  # lives as long as the process
BATTERY = "/test_(catalogue|adapters)"
_worker_of: dict[str, str] = {}  # by group


def pytest_configure(config):
    """Each worker has a cache of compiled programs, since JAX's is not made for several writers."""
    worker = getattr(config, "workerinput", {})
    folder = Path(worker.get("compiled", KEPT or _temporary_folder.name)) / worker.get(
        "workerid", "alone"
    )
    jax.config.update("jax_compilation_cache_dir", str(folder))


def pytest_configure_node(node):
    node.workerinput["compiled"] = KEPT or _temporary_folder.name


@pytest.fixture(scope="module")
def kept_programs(request):
    """Processes that the module's tests start find what they compiled the last time, in a folder of
    their own. For tests that kill none: see `KEPT`.
    """
    with pytest.MonkeyPatch.context() as patch:
        folder = f"{jax.config.jax_compilation_cache_dir}/{request.module.__name__}"
        patch.setenv("JAX_COMPILATION_CACHE_DIR", folder)
        patch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
        yield


@pytest.fixture
def monkeypatch(monkeypatch):
    """As pytest's; after each patch attention is traced again, which may read what was patched."""

    def patched(*args, **options):
        set_attribute(*args, **options)
        shared_trace.forget()

    set_attribute = monkeypatch.setattr
    monkeypatch.setattr = patched
    yield monkeypatch
    monkeypatch.undo()
    shared_trace.forget()


@pytest.fixture
def registering():
    """Methods and tasks that the test registers are gone after it."""
    from posenc_jax import CATALOG
    from posenc_jax.lab import tasks

    tables = CATALOG, tasks.CATALOG
    before = [dict(table) for table in tables]
    yield
    for table, entries in zip(tables, before, strict=True):
        table.clear()
        table.update(entries)


_tests_run = itertools.count(1)


@pytest.fixture(autouse=True)
def few_programs():
    """Each compiled program takes a few maps of memory, of which Linux allows a process 65,530.

    Looked at after every 20 tests, since reading the maps takes longer than many a test.
    """
    yield
    maps = Path("/proc/self/maps")
    if next(_tests_run) % 20 == 0 and maps.exists() and maps.read_bytes().count(b"\n") > 40_000:
        jax.clear_caches()
        gc.collect()


class Grouped(LoadScopeScheduling):
    """Tests of one group go to one worker, which makes what they share once."""

    def _split_scope(self, nodeid):
        return group(nodeid)


def group(nodeid: str) -> str:
    """The group of a test: its file; in files of the battery's sizes its method.

    The tests of one method run the same small programs.
    """
    file, _, test = nodeid.partition("::")
    method = re.search(r"\[(\w+)", test)
    return method[1] if method and re.search(BATTERY, file) else file


def pytest_xdist_make_scheduler(config, log):
    return Grouped(config, log)


def pytest_runtest_logreport(report):
    """Checks that each group is on one worker: with pytest 9.2 xdist's own mark has no effect."""
    if hasattr(report, "worker_id"):
        worker = _worker_of.setdefault(group(report.nodeid), report.worker_id)
        assert worker == report.worker_id, f"{group(report.nodeid)} is on two workers"


@pytest.hookimpl(tryfirst=True)  # before -m looks at the marks
def pytest_collection_modifyitems(config, items):
    """The catalogue comes last: methods are small groups, which fill both workers to the end.

    What needs a browser is left out where there is none, and the last lines say so.
    """
    cases = collections.Counter()
    for item in items:
        mark, function = item.get_closest_marker("thorough"), item.nodeid.partition("[")[0]
        if mark and cases[function] < mark.kwargs.get("after", 0):
            item.own_markers.remove(mark)
        cases[function] += 1
    if not browser():
        config.hook.pytest_deselected(items=[i for i in items if i.get_closest_marker("browser")])
        items[:] = [item for item in items if not item.get_closest_marker("browser")]
    items.sort(key=lambda item: group(item.nodeid) not in item.nodeid.partition("::")[0])


def pytest_terminal_summary(terminalreporter):
    if not browser():
        terminalreporter.write_line("NOT RUN: the page in a browser; apt-get install chromium")
