"""An encoding of one's own: a file, checks of what an encoding must prove, and a training.

`own_project/my_methods.py` registers `root`, an encoding, and `threes`, a task. Here `root` is
checked and trained; a wrong one is found. It takes half a minute on a CPU.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import posenc_jax
from posenc_jax import testing

PROJECT = Path(__file__).parent / "own_project"
sys.path.append(str(PROJECT))

import my_methods  # noqa: E402, F401  (registers `root`)

print(posenc_jax.describe("root"))


def root_scores(params, q_THC, k_THC, pos_T):
    """The logits of `root` in NumPy, written a second time."""
    s_HTT = np.einsum("qhc,khc->hqk", q_THC, k_THC) / np.sqrt(q_THC.shape[-1])
    return s_HTT - params["slope"][:, None, None] * np.sqrt(np.abs(pos_T[:, None] - pos_T))


# `testing.check("root", root_scores)` runs all checks; these are some of them.
trial = testing.trial("root")
for holds in (testing.causality, testing.padding, testing.packing, testing.shift, testing.relative):
    holds(trial)
    print(f"root: {holds.__name__} holds")
testing.parity(trial, root_scores)
testing.one_option("root", "slope", 1.0)

# A bias that says that it depends on distances, and does not.
wrong = posenc_jax.Encoding(
    bias=lambda params, q, k, dims: 0.01 * (q[:, :, None] * k[:, None]).astype(float)[:, None],
    relative=True,
)
try:
    testing.relative(testing.trial(wrong))
except AssertionError as failure:
    print(f"found: {failure}")
else:
    raise SystemExit("the wrong bias was not found")

# A config names the module in `imports`; its folder need not be on Python's path.
with tempfile.TemporaryDirectory() as folder:
    train = Path(__file__).parents[1] / "train.py"
    command = [
        sys.executable,
        train,
        f"--config={PROJECT}/conf.py:quick",
        f"--workdir={folder}/run",
    ]
    subprocess.run(command, check=True)
