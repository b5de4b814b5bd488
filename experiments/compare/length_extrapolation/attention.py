"""Attention weights of the trained models of a finished run, from its checkpoints."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import experiments
from experiments.compare.fields import encoding_of
from experiments.compare.length_extrapolation.config import Config
from posenc_jax.lab import runs, tasks
from posenc_jax.lab.hosts.files import folder_name
from posenc_jax.lab.model import transformer
from posenc_jax.lab.runs.checkpoints import Checkpoints

TOKENS, EXAMPLES = 64, 8


def save_weights(workdir: str | Path) -> list[Path]:
    """Writes WORKDIR/attention/ENCODING.npy for each trained encoding, and returns the paths.

    Each holds the attention weights of the first seed [N, H, T, T], float16: the mean over EXAMPLES
    test examples of the trained length, cut to TOKENS tokens. Without checkpoints or attention
    nothing is written.

    Raises:
      ValueError: the folder holds no finished run, or checkpoints that do not fit its config.
    """
    run = runs.read(workdir)
    experiments.load_modules(run)
    config = experiments.check(_tuples(run.config))
    if not isinstance(config, Config) or config.model.kind == "lstm":
        return []
    task, written = tasks.make(config.task.name, **config.task.options), []
    for name in config.encoding.names:
        folder = run.path / "checkpoints" / folder_name(name)
        checkpoint = next(Checkpoints(folder).newest(), None) if folder.is_dir() else None
        if checkpoint is not None:
            path = run.path / "attention" / f"{name}.npy"
            path.parent.mkdir(exist_ok=True)
            np.save(path, _weights(config, task, name, checkpoint.leaves))
            written.append(path)
    return written


def _tuples(value: Any) -> Any:
    """The value with lists as tuples, which configs hold instead."""
    if isinstance(value, dict):
        return {name: _tuples(entry) for name, entry in value.items()}
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _weights(config: Config, task: tasks.Task, name: str, leaves) -> np.ndarray:
    encoding = encoding_of(config, name)
    model = transformer.build(config.model, encoding, task.vocab)
    assert model.attention is not None

    def stored(path, leaf):
        key = f".params{jax.tree_util.keystr(path)}"
        if key not in leaves or leaves[key].shape[1:] != leaf.shape:
            raise ValueError(
                f"checkpoint: {key} is missing or of another shape; was the code changed?"
            )
        return jnp.asarray(leaves[key][0])  # of the first seed

    shapes = jax.eval_shape(model.init, jax.random.key(0))
    params = jax.tree_util.tree_map_with_path(stored, shapes)
    size = config.train.length
    index_B = jnp.arange(min(task.examples(size) or EXAMPLES, EXAMPLES), dtype=jnp.int32)
    batch = task.test(task.data, index_B, size, task.width(size))
    layers = jax.jit(model.attention)(params, batch.tokens_BT, batch.layout)
    weights_NHTT = np.stack([np.asarray(w_BHTT, np.float32).mean(axis=0) for w_BHTT in layers])
    return weights_NHTT[..., :TOKENS, :TOKENS].astype(np.float16)
