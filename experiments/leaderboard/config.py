"""The config of a leaderboard, the methods and tasks that it names, and what it refuses."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pydantic import Field

from experiments import checks
from posenc_jax import encodings
from posenc_jax.encoding import Encoding
from posenc_jax.lab import tasks
from posenc_jax.lab.config import schema
from posenc_jax.options import FieldError

ALL = "all"
TRAINED_TWICE = ("drope",)


class Config(schema.ExperimentConfig):
    """The methods, the tasks and the budget that they share.

    encoding:  the name "all" is the whole catalogue, without the methods of `left_out`.
    reference: the method that the others are compared with, seed by seed.
    window:    tokens of a training example.
    multiples: windows of the tests, as multiples of the trained one.
    pool, examples: training and test examples of a task.
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


def names(config: Config) -> list[str]:
    """The methods to measure; one that only changes positions is put before rope."""
    if config.encoding.name != ALL:
        return config.encoding.names
    found = [encodings.card(name) for name in encodings.CATALOG if name not in left_out(config)]
    return [f"{card.name}+rope" if card.kind == "positions" else card.name for card in found]


def left_out(config: Config) -> dict[str, str]:
    """The methods of the catalogue that "all" leaves out: name -> reason."""
    if config.encoding.name != ALL:
        return {}
    found = {}
    for card in map(encodings.card, encodings.CATALOG):
        if card.axes > 1:
            found[card.name] = "since their positions have several axes"
        elif card.groups not in _groups(config):
            found[card.name] = "since no task states the groups of tokens they read"
        elif card.name in TRAINED_TWICE:
            found[card.name] = "since it replaces another method after training"
    return found


def _groups(config: Config) -> set[str | None]:
    """The kinds of groups of tokens that every task states."""
    stated = [tasks.options(task.name) | task.options for task in config.tasks]
    return {None} | set.intersection(*({options.get("groups")} for options in stated))


def encoding_of(config: Config, name: str, multiple: int | None = None) -> Encoding:
    """The method in training, or for a window that is a multiple of the trained one."""
    return encodings.make(name, **options_of(config, name, multiple))


def options_of(config: Config, name: str, multiple: int | None = None) -> dict[str, Any]:
    """The options of `encoding_of`.

    An option `length` is the trained window, `limit` the longest window tested, `factor` 1 in
    training and `multiple` in tests, `every` the number of layers, so that the last layer differs
    from the others, and `window` half the trained window. The config's options take precedence.
    """
    asked: dict[str, Any] = {
        "length": config.window,
        "limit": config.window * max(config.multiples),
        "factor": float(multiple or 1),
        "every": max(2, config.model.layers),
        "window": max(2, config.window // 2),
    }
    return encodings.taken_by(name, {**asked, **config.encoding.options})


@contextmanager
def of_task(number: int) -> Iterator[None]:
    """Changes the path of a FieldError, "task.name", to the path of the task, "tasks[0].name"."""
    try:
        yield
    except FieldError as error:
        raise FieldError(("tasks", number, *error.path[1:]), error.reason) from None


def check(config: Config) -> None:
    """Raises FieldError for what cannot run, before data is read or anything compiled."""
    for name in names(config):
        checks.sequence("encoding.name", name)
        encoding = encoding_of(config, name)
        checks.width("model.width", name, encoding, config.model)
        checks.training("window", name, options_of(config, name), config.window)
    encodings.check_used(names(config), config.encoding.options)
    if config.model.kind == "lstm":
        raise FieldError("model.kind", "'lstm' reads no positions; choices: decoder, encoder")
    if config.reference not in names(config):
        choices = ", ".join(names(config))
        reason = f"{config.reference!r} is not measured; choose one of: {choices}"
        raise FieldError("reference", reason)
    if config.multiples[0] != 1 or sorted(set(config.multiples)) != list(config.multiples):
        raise FieldError("multiples", f"{config.multiples} must rise from 1")
    schema.check_distinct("tasks", [entry.name for entry in config.tasks])
    for number, entry in enumerate(config.tasks):
        _check_task(config, number, entry)
    for field in ("length", "min_length"):
        if (length := getattr(config.train, field)) != config.window:
            reason = f"{length} is not config.window, {config.window}, the trained length"
            raise FieldError(("train", field), reason)


def _check_task(config: Config, number: int, task: schema.TaskConfig) -> None:
    with of_task(number):
        found = tasks.check(task.name, **task.options)
    least = found.width(found.least)
    if least > config.window:
        raise FieldError("window", f"{config.window} tokens hold no {task.name}; {least} or more")
    if found.streamed:
        raise FieldError(
            ("tasks", number, "name"),
            f"{task.name} is read step by step, but examples are drawn before training; take a "
            "part, such as train 'train[:1%]'",
        )
    checks.kind(config.model, task)
    for name in names(config):
        checks.groups(("tasks", number, "groups"), name, task)
