"""What tells a model the order of its tokens, and what does not: every method in the catalogue.

1. The counterexample. Pairs (a, b) and (b, a) of different symbols; the label says which of the two
   is smaller. A bidirectional Transformer with mean pooling and no positions gives both the same
   output whatever its weights, so exactly half of all pairs come out right. A causal mask tells
   them apart, so does an LSTM, and so should an encoding.
2. Three different symbols: in which of the 6 orders they stand.
3. The general form: the largest |f(Px) - P f(x)| over random permutations P, before and after
   training, in float32 and float64. The control carries each position along with its token: what
   reads positions alone is then equivariant again.
4. Real text: hidden bytes said by an encoder with and without positions.

Methods are taken with their card's `example` options, which fit a small model. One that only moves
positions stands before `rope`; positions of several axes lie on a near-square grid.
"""

from collections.abc import Callable, Iterator

import numpy as np

from experiments import checks, length_extrapolation, workers
from experiments.permutation import pages
from experiments.permutation.measuring import (
    CAUSAL,
    LENGTHS,
    LSTM,
    EquivarianceConfig,
    Measured,
    OrderConfig,
    Setting,
    Subject,
    measure,
)
from experiments.rows import fitted
from posenc_jax import encodings
from posenc_jax.lab import report, runs, tasks
from posenc_jax.lab.config import schema
from posenc_jax.lab.hosts import failpoints, signals
from posenc_jax.lab.training.progress import Progress


class TextConfig(schema.Part):
    """The real text, as `length_extrapolation` takes it: an encoder, and a task with `masked`."""

    encoding: schema.EncodingConfig
    task: schema.TaskConfig
    model: schema.ModelConfig
    train: schema.TrainConfig
    eval: schema.EvalConfig


class Config(schema.ExperimentConfig):
    encoding: schema.EncodingConfig
    model: schema.ModelConfig
    order: OrderConfig
    equivariance: EquivarianceConfig
    text: TextConfig


def check(config: Config) -> None:
    """Refuses what cannot run, before data is read or anything compiled.

    Raises:
      ValueError: one line names the field, the value and the choices.
    """
    encodings.check_used(config.encoding.names, config.encoding.options)
    rows = subjects(config)
    labels = [row.label for row in rows]
    schema.distinct_in("encoding.name", labels)
    for row in rows:
        checks.width("model.width", row.label, row.encoding, config.model)
    for name in config.equivariance.float64:
        if name not in labels:
            raise ValueError(f"equivariance.float64: no row {name!r}; choices: {', '.join(labels)}")
    for field, kind in {"": config.model.kind, "text.": config.text.model.kind}.items():
        if kind != "encoder":
            raise ValueError(f"{field}model.kind: {kind!r} sees order by itself; use 'encoder'")
    if not config.text.task.options.get("masked"):
        raise ValueError("text.task.masked: must be given, the share of bytes that are hidden")
    try:
        length_extrapolation.check(_text(config))
    except ValueError as error:
        raise ValueError(f"text.{str(error).removeprefix('config.')}") from None


def run(config: Config, workdir: str) -> None:
    """Measures every row, then the text, and writes and prints the report."""
    with runs.Run(workdir, config.model_dump(), config.wandb.model_dump()) as record:
        rows = [row.label for row in subjects(config)]
        rows = [row for row in rows if not record.ended(f"row {row}")]
        for row in rows[:1]:
            record.begin(f"row {row}")
        with Progress(len(rows), "order") as progress:
            found = workers.measured(_measurer, config, rows)
            for done, (row, records) in enumerate(zip(rows, found, strict=True), 1):
                record.log(records)
                failpoints.reach("measured")
                record.end(f"row {row}")
                progress.update(done)
                signals.stop_if_requested()
        text = _text(config)
        task = tasks.make(text.task.name, **text.task.options)
        record.fact(task=dict(task.facts))
        length_extrapolation.measure(text, task, record)
        record.finish(pages.summarise(record.records(), dict(task.baselines())))
        show(workdir)


def show(workdir: str) -> None:
    """The report of a finished run again, from its folder."""
    report.present(workdir, *pages.sections(runs.read(workdir)))


def subjects(config: Config) -> list[Subject]:
    """All rows: the encodings, and two that need none."""
    found = []
    for name in config.encoding.names:
        label, encoding = fitted(name, config.encoding.options)
        found.append(Subject(label, encoding, "encoder", encodings.axes(label)))
    nothing = encodings.make("nope")
    return [
        *found,
        Subject(CAUSAL, nothing, "decoder", 1),
        Subject(LSTM, nothing, "lstm", 1),
    ]


def _measurer(config: Config) -> Callable[[str], list[dict]]:
    """What gives the records of a row by its label."""
    seeds = range(config.first_seed, config.first_seed + config.seeds)
    setting = Setting(config.model, config.order, config.equivariance, tuple(seeds))
    by_label = {subject.label: subject for subject in subjects(config)}
    return lambda label: list(_records(setting, label, measure(setting, by_label[label])))


def _text(config: Config) -> length_extrapolation.Config:
    return length_extrapolation.Config(
        experiment="length_extrapolation",
        seeds=config.seeds,
        first_seed=config.first_seed,
        **{field: getattr(config.text, field) for field in TextConfig.model_fields},
    )


def _records(setting: Setting, label: str, measured: Measured) -> Iterator[dict]:
    """One record for each number and seed; step 0 is the untrained model."""
    states, first = (0, setting.order.steps), setting.seeds[0]

    def record(metric, value, step, seed, length, **more):
        labels = {"encoding": label, "split": "test", "length": length, **more}
        return {"step": step, "seed": seed, "labels": labels, "metric": metric,
                "value": float(value)}  # fmt: skip

    for (n, s), right in np.ndenumerate(measured.right_NS):
        yield record("order_accuracy", right, states[1], setting.seeds[s], LENGTHS[n])
    for (state, s), gap in np.ndenumerate(measured.twins_2S):
        yield record("twins", gap, states[state], setting.seeds[s], LENGTHS[0])
    for dtype, both in measured.errors.items():
        for name, error_2L in zip(("error", "carried"), both, strict=True):
            for (state, n), error in np.ndenumerate(error_2L):
                length = setting.equivariance.lengths[n]
                yield record(name, error, states[state], first, length, dtype=dtype)
