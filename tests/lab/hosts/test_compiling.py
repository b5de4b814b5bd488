"""How much effort goes into compiling: XLA's options for it exist, and who asks for less."""

import os
import subprocess
import sys

import jax
import pytest

from configs import rope_extrap
from experiments import job
from posenc_jax.backends.target import compile_for
from posenc_jax.lab.hosts import compiling
from posenc_jax.lab.hosts.compiling import flags


def started(words: str) -> subprocess.CompletedProcess:
    code = "import jax; print(jax.numpy.ones(2) + 1)"
    env = {**os.environ, "XLA_FLAGS": words}
    return subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, check=False)


@pytest.mark.thorough(after=1)
@pytest.mark.parametrize("level", [0, 1])
def test_xla_knows_its_flags(level):
    ended = started(flags(level))
    assert ended.returncode == 0, ended.stderr


def test_a_flag_that_xla_does_not_know_ends_the_process():
    assert started(f"{flags(0)} --xla_cpu_use_fusion_emittery=false").returncode != 0


@pytest.mark.parametrize("backend", ["cpu", "gpu", "tpu"])
def test_xla_knows_the_options_of_quick_programs(backend):
    with compile_for(backend):
        assert compiling.jit_quick(lambda x: x + 1)(1) == 2


def test_an_option_that_xla_does_not_know_is_refused(monkeypatch):
    monkeypatch.setattr(compiling, "SMALL_KERNELS", {"xla_disable_hlo_pases": "fusion"})
    with compile_for("gpu"), pytest.raises(jax.errors.JaxRuntimeError, match="hlo_pases"):
        compiling.jit_quick(lambda x: x + 1)(1)


@pytest.mark.parametrize(
    ("argument", "changes", "wanted"),
    [
        ("", {}, 8),
        ("quick", {}, "lightly"),
        ("quick", {"train.steps": job.FEW_STEPS + 1, "train.batch": 6}, 6),
        ("", {"experiment": "images"}, "lightly"),
    ],
)
def test_a_run_that_mostly_compiles_does_so_lightly(argument, changes, wanted, monkeypatch):
    """And has one device; another has cores for devices, as its rows allow."""

    def stop(*_):
        raise ValueError("far enough")

    asked_levels = []
    monkeypatch.setattr(job, "compile_lightly", lambda: asked_levels.append("lightly"))
    monkeypatch.setattr(job, "use_cores", asked_levels.append)
    monkeypatch.setattr(job.processes, "join", stop)
    monkeypatch.setattr(job, "_leave", lambda status: status)
    config = rope_extrap.get_config(argument)
    config.update_from_flattened_dict(changes)
    assert job.run(config.to_dict(), "", named=False) == 2
    assert asked_levels == [wanted]


@pytest.mark.parametrize(
    ("told", "plugins", "lightly"),
    [
        ("cpu", ["cuda"], True),
        ("", [], True),
        ("", ["cuda"], False),
        ("cuda", [], False),
        ("cuda,cpu", [], False),
    ],
)
def test_little_effort_only_where_the_backend_is_surely_a_cpu(told, plugins, lightly, monkeypatch):
    """XLA for a GPU has no such level, and the flag is read by whichever backend starts."""
    monkeypatch.setattr(compiling, "entry_points", lambda group: plugins)
    monkeypatch.setattr(compiling.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("JAX_PLATFORMS", told)
    monkeypatch.setenv("XLA_FLAGS", "--other")
    compiling.compile_lightly()
    assert os.environ["XLA_FLAGS"] == (f"--other {flags(1)}" if lightly else "--other")
