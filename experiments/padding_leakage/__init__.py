"""What padding changes: all 8 subsets of three masks, by measurement.

The masks are ModelConfig's: padding as keys in attention, outputs at padding, targets in the loss.
A small model learns two things at once from sequences padded to one width with the token 0: the
token before each token, and from the mean over tokens the most frequent symbol. Then, for models
untrained and trained with each subset, on sequences of one length:

  content  zeros in the padding become random symbols.
  amount   the padding is taken away altogether.

Each is the largest change over a batch of: the outputs of real tokens, the pooled output, the loss
of the tokens, the gradient of that loss. Beside them stands the share of attention that real tokens
pay to padding, and the accuracy with no padding, as in training, with other content, with more.
"""

from collections.abc import Callable, Iterator

import numpy as np

from experiments import checks, workers
from experiments.padding_leakage import pages
from experiments.padding_leakage.measuring import (
    Data,
    Leaks,
    Learning,
    Setting,
    Subject,
    measure,
)
from experiments.rows import fitted, fitted_options
from posenc_jax import encodings
from posenc_jax.lab import report, runs
from posenc_jax.lab.config import schema
from posenc_jax.lab.hosts import failpoints, signals
from posenc_jax.lab.training.progress import Progress


class Config(schema.ExperimentConfig):
    encoding: schema.EncodingConfig
    model: schema.ModelConfig
    data: Data
    learning: Learning


def check(config: Config) -> None:
    """Refuses what cannot run, before anything is compiled.

    Raises:
      ValueError: one line names the field, the value and the choices.
    """
    encodings.check_used(config.encoding.names, config.encoding.options)
    if config.model.kind == "lstm":
        raise ValueError("model.kind: 'lstm' has no attention to mask; choices: encoder, decoder")
    if config.model.masks != schema.MaskConfig():
        raise ValueError("model.masks: all subsets are measured; leave every mask True")
    longest = max(config.data.length, config.data.measured + max(config.data.amounts))
    for name in config.encoding.names:
        checks.sequence("encoding.name", name)
    rows = [fitted(name, config.encoding.options) for name in config.encoding.names]
    schema.distinct_in("encoding.name", [label for label, _ in rows])
    for name, (label, encoding) in zip(config.encoding.names, rows, strict=True):
        checks.width("model.width", label, encoding, config.model)
        _, options = fitted_options(name, config.encoding.options)
        encodings.check(label, options, config.data.length)
        most = encodings.reach(label, **options)
        if most is not None and longest > most:
            raise ValueError(f"data.amounts: {longest} tokens are past what {label} reaches, "
                             f"{most}")  # fmt: skip


def run(config: Config, workdir: str) -> None:
    """Measures every encoding under every subset, and writes and prints the report."""
    with runs.Run(workdir, config.model_dump(), config.wandb.model_dump()) as record:
        rows = [name for name in config.encoding.names if not record.ended(name)]
        for row in rows[:1]:
            record.begin(row)
        with Progress(len(rows), "padding") as progress:
            found = workers.measured(_measurer, config, rows)
            for done, (row, records) in enumerate(zip(rows, found, strict=True), 1):
                record.log(records)
                failpoints.reach("measured")
                record.end(row)
                progress.update(done)
                signals.leave_if_asked()
        record.finish(pages.summarise(record.records()))
        show(workdir)


def show(workdir: str) -> None:
    """The report of a finished run again, from its folder."""
    report.present(workdir, *pages.sections(runs.read(workdir)))


def _measurer(config: Config) -> Callable[[str], list[dict]]:
    """What gives the records of an encoding by its name."""
    seeds = range(config.first_seed, config.first_seed + config.seeds)
    setting = Setting(config.model, config.data, config.learning, tuple(seeds))

    def records(name):
        subject = Subject(*fitted(name, config.encoding.options))
        return list(_records(setting, subject.label, measure(setting, subject)))

    return records


def _records(setting: Setting, label: str, leaks: Leaks) -> Iterator[dict]:
    """One record for each number; `metric` is quantity/subset/side, step 0 the untrained model."""
    steps, data = (0, setting.learning.steps), setting.data
    for (quantity, masks), value_A2DS in leaks.items():
        for (a, state, side, s), value in np.ndenumerate(value_A2DS):
            yield {
                "step": steps[state], "seed": setting.seeds[s], "encoding": label, "split": "test",
                "length": data.measured + data.amounts[a],
                "metric": f"{quantity}/{masks}/{data.sides[side]}", "value": float(value),
            }  # fmt: skip
