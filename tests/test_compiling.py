"""XLA's options for how much effort to compile with exist in the XLA that is installed."""

import os
import subprocess
import sys

import pytest

from posenc_jax.compiling import flags


def started(words: str) -> subprocess.CompletedProcess:
    code = "import jax; print(jax.numpy.ones(2) + 1)"
    env = {**os.environ, "XLA_FLAGS": words}
    return subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, check=False)


@pytest.mark.parametrize("level", [0, 1])
def test_xla_knows_its_flags(level):
    ended = started(flags(level))
    assert ended.returncode == 0, ended.stderr


def test_a_flag_that_xla_does_not_know_ends_the_process():
    assert started(f"{flags(0)} --xla_cpu_use_fusion_emittery=false").returncode != 0
