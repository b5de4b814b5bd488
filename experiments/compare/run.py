"""Encoders that read whole sequences, each with one encoding."""

from experiments.compare.comparison import compare, lengths_and_control, model_of
from experiments.compare.fields import EncoderConfig, encoding_of
from posenc_jax.lab import runs, tasks
from posenc_jax.lab.summary import Summary


def measure(config: EncoderConfig, run: runs.Run) -> Summary:
    """Trains and tests an encoder with every encoding; returns the summary."""

    def rows(task):
        for name in config.encoding.names:
            model = model_of(config, task, encoding_of(config, name), pooling=config.pooling)
            yield lengths_and_control(config, task, model, name)

    return compare(config, run, tasks.make(config.task.name, **config.task.options), rows)
