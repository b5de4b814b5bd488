"""Every method on the same tasks at one budget: what it costs in range, what it gains beyond.

A task is posed at the largest size that a window of tokens holds, and tested in windows 1, 2, 4, 8
times as wide.
"""

from pydantic import Field

from experiments import workers
from experiments.leaderboard import measure, standings
from posenc_jax import encodings, failpoints, interrupts, report, runs, schema, tasks
from posenc_jax.progress import Progress

ALL = "all"


class Config(schema.ExperimentConfig):
    """`encoding.name` "all" is the catalogue, but for methods that read images or video, or
    groups of tokens that the tasks do not state.

    `reference` is the method that the others are compared with, in pairs. Window and pool count
    tokens and training examples of a task, `multiples` trained windows.
    """

    encoding: schema.EncodingConfig
    reference: str
    tasks: tuple[schema.TaskConfig, ...] = Field(min_length=1)
    window: schema.Count
    multiples: tuple[schema.Count, ...] = Field(min_length=2)
    pool: schema.Count
    examples: schema.Count
    model: schema.ModelConfig
    train: schema.TrainConfig


def _groups(config: Config) -> set[str | None]:
    """The groups of tokens that every task states."""
    stated = [tasks.options(task.name) | task.options for task in config.tasks]
    return {None} | set.intersection(*({options.get("groups")} for options in stated))


def names(config: Config) -> list[str]:
    """The methods to measure; one that only places stands before rope."""
    if config.encoding.name != ALL:
        return config.encoding.names
    cards = map(encodings.card, encodings.CATALOG)
    found = [card for card in cards if card.axes <= 1 and _groups(config) >= {card.groups}]
    return [f"{card.name}+rope" if card.kind == "positions" else card.name for card in found]


def check(config: Config) -> None:
    """Refuses what cannot run, before data is read or anything compiled.

    Raises:
      ValueError: one line names the field, the value and the choices.
    """
    for name in names(config):
        if encodings.axes(name) > 1:
            raise ValueError(f"config.encoding.name: {name} reads positions of several axes; the "
                             "tasks are sequences, with 1")  # fmt: skip
        measure.encoding_of(config, name)
    encodings.check_used(names(config), config.encoding.options)
    if config.reference not in names(config):
        raise ValueError(f"config.reference: {config.reference!r} is not measured; choose one of: "
                         f"{', '.join(names(config))}")  # fmt: skip
    if config.multiples[0] != 1 or sorted(set(config.multiples)) != list(config.multiples):
        raise ValueError(f"config.multiples: {config.multiples} must rise from 1")
    schema.distinct_in("config.tasks", [entry.name for entry in config.tasks])
    for entry in config.tasks:
        width = tasks.check(entry.name, **entry.options)
        if width(1) > config.window:
            raise ValueError(f"config.window: {config.window} tokens hold no {entry.name}; "
                             f"{width(1)} or more")  # fmt: skip


def run(config: Config, workdir: str) -> None:
    """Measures every method, its records kept as it ends, then writes and prints the board."""
    with runs.Run(workdir, config.model_dump(), config.wandb.model_dump()) as record:
        methods = [name for name in names(config) if not record.ended(name)]
        for name in methods[:1]:
            record.begin(name)
        reasons = record.facts.get("reasons", {})
        with Progress(len(methods), "leaderboard") as progress:
            for done, result in enumerate(workers.measured(measure.measurer, config, methods), 1):
                record.log(result.records)
                if result.reason:
                    reasons[result.name] = result.reason
                    record.fact(reasons=reasons)
                failpoints.reach("measured")
                record.end(result.name)
                progress.update(done)
                interrupts.leave_if_asked()
        record.finish(standings.summarise(record.records(), config.reference, reasons))
        show(workdir)


def show(workdir: str) -> None:
    """The board of a finished run again, from its folder."""
    report.present(workdir, *standings.sections(runs.read(workdir)))
