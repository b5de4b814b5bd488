"""Attention weights of the trained models of a finished run, from its checkpoints."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from experiments.compare.length_extrapolation.config import Config
from experiments.compare.loading import Loaded, load, read_config
from posenc_jax.lab import runs
from posenc_jax.lab.runs import source

TOKENS, EXAMPLES = 64, 8


def save_weights(workdir: str | Path) -> list[Path]:
    """Writes WORKDIR/attention/ENCODING.npy for each trained encoding, and returns the paths.

    Each holds the attention weights of the first seed [N, H, T, T], float16: the mean over EXAMPLES
    test examples of the trained length, cut to TOKENS tokens. Without checkpoints or attention
    nothing is written.

    Raises:
      ValueError: the folder holds no finished run, or checkpoints that do not fit its config.
    """
    path = runs.read(workdir).path
    if not source.stages(path):
        return []
    config, written = read_config(path), []
    if not isinstance(config, Config) or config.model.kind == "lstm":
        return []
    for name in config.encoding.names:
        if source.steps(path, name):
            file = path / "attention" / f"{name}.npy"
            file.parent.mkdir(exist_ok=True)
            np.save(file, _mean_weights(load(path, name)))
            written.append(file)
    return written


def _mean_weights(trained: Loaded) -> np.ndarray:
    task, size = trained.task, trained.config.train.length
    assert trained.model.attention is not None
    index_B = jnp.arange(min(task.examples(size) or EXAMPLES, EXAMPLES), dtype=jnp.int32)
    batch = task.test(task.data, index_B, size, task.width(size))
    layers = jax.jit(trained.model.attention)(trained.params, batch.tokens_BT, batch.layout)
    weights_NHTT = np.stack([np.asarray(w_BHTT, np.float32).mean(axis=0) for w_BHTT in layers])
    return weights_NHTT[..., :TOKENS, :TOKENS].astype(np.float16)
