"""Several devices give the same run as one."""

import json
import os
import subprocess
import sys

import numpy as np

PROGRAM = """
import sys, json, jax
jax.config.update("jax_num_cpu_devices", int(sys.argv[1]))
from posenc_jax import make, tasks, transformer
from posenc_jax.evaluation import Evaluator
from posenc_jax.schema import EvalConfig, ModelConfig, TrainConfig
from posenc_jax.training import train
task = tasks.make("copy", alphabet=8)
model = transformer.build(ModelConfig(width=32, heads=4, layers=1), make("t5"), task.vocab)
found = []
for batch in (8, 7):
    config = TrainConfig(length=6, min_length=1, batch=batch, steps=6, lr=1e-2, chunk=3)
    losses = []
    state = train(model, task, config, 2, 0, True, lambda m, s: losses.append(m["loss"].tolist()))
    scores = Evaluator(model, task, EvalConfig(lengths=(6,), examples=7))(state.params, 6)
    found.append([losses, scores.loss_SE.tolist()])
print(json.dumps([jax.device_count(), *found]))
"""


def run(devices):
    """Losses and scores of training by 8 rows, and by 7."""
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": os.getcwd()}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(devices)],
        capture_output=True, text=True, check=True, env=environment,
    )  # fmt: skip
    count, *found = json.loads(done.stdout)
    assert count == devices
    return [(np.concatenate(losses, axis=1), np.array(scores)) for losses, scores in found]


def test_devices_change_nothing():
    """Rows that divide over two devices, rows that do not; the control is another batch size."""
    one, two = run(1), run(2)
    for (losses, scores), (spread_losses, spread_scores) in zip(one, two, strict=True):
        np.testing.assert_allclose(losses, spread_losses, rtol=1e-5)
        np.testing.assert_allclose(scores, spread_scores, rtol=1e-4)
    assert abs(two[1][0] - one[0][0]).max() > 1e-3
