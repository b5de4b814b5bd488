"""Every method on the same tasks at one budget: what it costs in range, what it gains beyond.

A task is posed at the largest size that a window of tokens holds, and tested in windows 1, 2, 4, 8
times as wide.
"""

from pydantic import Field

from experiments import checks, workers
from experiments.leaderboard import measure, standings
from posenc_jax import encodings
from posenc_jax.lab import report, runs, tasks
from posenc_jax.lab.config import schema
from posenc_jax.lab.hosts import failpoints, signals
from posenc_jax.lab.training.progress import Progress

ALL = "all"
TRAINED_TWICE = ("drope",)


class Config(schema.ExperimentConfig):
    """`encoding.name` "all" is the catalogue, but for what `left_out` names.

    `reference` is the method that the others are compared with, in pairs. Window and pool count
    tokens and training examples of a task, `multiples` trained windows.
    """

    encoding: schema.EncodingConfig
    reference: str
    tasks: tuple[schema.TaskConfig, ...] = Field(min_length=1)
    window: schema.Length
    multiples: tuple[schema.Few, ...] = Field(min_length=2)
    pool: schema.Rows
    examples: schema.Rows
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
    found = [encodings.card(name) for name in encodings.CATALOG if name not in left_out(config)]
    return [f"{card.name}+rope" if card.kind == "positions" else card.name for card in found]


def left_out(config: Config) -> dict[str, str]:
    """Why "all" does not hold a method of the catalogue, by its name."""
    if config.encoding.name != ALL:
        return {}
    found = {}
    for card in map(encodings.card, encodings.CATALOG):
        if card.axes > 1:
            found[card.name] = "since their positions have several axes"
        elif card.groups not in _groups(config):
            found[card.name] = "since no task states the groups of tokens they read"
        elif card.name in TRAINED_TWICE:
            found[card.name] = "since it takes another's place after training"
    return found


def check(config: Config) -> None:
    """Refuses what cannot run, before data is read or anything compiled.

    Raises:
      ValueError: one line names the field, the value and the choices.
    """
    for name in names(config):
        checks.sequence("config.encoding.name", name)
        encoding = measure.encoding_of(config, name)
        checks.width("config.model.width", name, encoding, config.model)
        options = measure.options_of(config, name)
        checks.training("config.window", name, options, config.window)
    encodings.check_used(names(config), config.encoding.options)
    if config.model.kind == "lstm":
        raise ValueError("config.model.kind: 'lstm' reads no positions; choices: decoder, encoder")
    if config.reference not in names(config):
        raise ValueError(f"config.reference: {config.reference!r} is not measured; choose one of: "
                         f"{', '.join(names(config))}")  # fmt: skip
    if config.multiples[0] != 1 or sorted(set(config.multiples)) != list(config.multiples):
        raise ValueError(f"config.multiples: {config.multiples} must rise from 1")
    schema.distinct_in("config.tasks", [entry.name for entry in config.tasks])
    for n, entry in enumerate(config.tasks):
        _check_task(config, f"config.tasks[{n}]", entry)
    for field in ("length", "min_length"):
        if (length := getattr(config.train, field)) != config.window:
            raise ValueError(f"config.train.{field}: {length} is not config.window, "
                             f"{config.window}, which is what is trained in")  # fmt: skip


def _check_task(config: Config, field: str, task: schema.TaskConfig) -> None:
    try:
        width = tasks.check(task.name, **task.options)
    except ValueError as error:
        raise ValueError(f"{field}{str(error).removeprefix('task')}") from None
    least = width(tasks.least(task.name, **task.options))
    if least > config.window:
        raise ValueError(f"config.window: {config.window} tokens hold no {task.name}; "
                         f"{least} or more")  # fmt: skip
    if tasks.streamed(task.name, **task.options):
        raise ValueError(f"{field}.name: {task.name} is read step by step, and examples are drawn "
                         "beforehand; take a part, such as train 'train[:1%]'")  # fmt: skip
    checks.kind("config.model.kind", config.model, task)
    for name in names(config):
        checks.groups(f"{field}.groups", name, task)


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
                signals.leave_if_asked()
        record.finish(
            standings.summarise(record.records(), config.reference, reasons, left_out(config))
        )
        show(workdir)


def show(workdir: str) -> None:
    """The board of a finished run again, from its folder."""
    report.present(workdir, *standings.sections(runs.read(workdir)))
