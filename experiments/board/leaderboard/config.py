"""The config of a leaderboard on one task, the methods that it names, and what it refuses."""

from typing import Annotated, Any

from pydantic import Field, PositiveFloat

from experiments import config_checks, method_options
from posenc_jax import encodings
from posenc_jax.encoding import Encoding
from posenc_jax.lab import tasks
from posenc_jax.lab.config import schema
from posenc_jax.options import FieldError

# The best-known methods of sequences; "known" in place of a name.
KNOWN = (
    *("nope", "sinusoidal", "learned", "shaw", "transformer_xl", "t5", "deberta", "rope"),
    *("alibi", "xpos", "kerple_log", "fire", "cope", "fox", "randomized+rope", "stick_breaking"),
    *("pi", "ntk", "ntk_by_parts", "yarn", "longrope", "clamped+rope"),
)
BY_DISTANCE = ("rerope", "leaky_rerope", "self_extend", "dual_chunk")
# Methods that read the weights that `rope` was trained to. In the trained window they are `rope`.
READ_ROPE = ("pi", "ntk", "ntk_by_parts", "yarn", "longrope", "clamped+rope", *BY_DISTANCE)
TRAINED_TWICE = "drope"  # trained as `rope`, then again as itself
# Methods that are another method by construction here: one row of the board.
SAME = {"dynamic_ntk": "ntk", "interpolated+rope": "pi", "shifted+rope": "rope"}
GROUPS = ("known", "others", "all")
# How a task is posed where that is not its default: small alphabets, so that few ids are enough.
POSED: dict[str, dict[str, Any]] = {
    "copy": {"alphabet": 26},
    "reverse": {"alphabet": 26},
    "sort": {"alphabet": 26},
    "addition": {"reverse": True},
    "associative_recall": {"keys": 128, "values": 8},
}


class TrainConfig(schema.Part):
    """The training of each method, until it has learned the task or its budget ends.

    The rate is constant. What is validated and tested are the weights averaged over the last steps,
    exponentially (Polyak and Juditsky 1992), which are as good as those of a rate that falls to 0.

    steps:   the budget.
    chunk:   steps between two looks at the validation examples.
    average: steps over which the weights are averaged.
    rates:   learning rates, all tried with the first seed; validation examples choose one for all.
    learned: exact match on validation examples of trained sizes at which a training ends.
    """

    batch: schema.Rows = 32
    steps: schema.Count = 4000
    chunk: schema.Rows = 100
    average: schema.Rows = 100
    warmup: schema.Count = 100
    rates: Annotated[tuple[PositiveFloat, ...], Field(min_length=1)] = (4e-3, 2e-3, 1e-3)
    learned: Annotated[float, Field(gt=0, le=1)] = 0.99
    decay: schema.NonNegativeFloat = 0.01
    clip: PositiveFloat = 1.0


class Config(schema.ExperimentConfig):
    """One task, the methods, and the budget that they share.

    encoding:  names of methods, or "known", the best-known ones; "others", all that are left of the
      catalogue; "all", both.
    reference: the method that the others are compared with, seed by seed.
    window:    tokens of a training example.
    multiples: windows of the tests, as multiples of the trained one.
    examples:  test examples of a window, and validation examples.
    """

    encoding: schema.EncodingConfig
    reference: str = "rope"
    task: schema.TaskConfig
    window: schema.Length = 32
    multiples: Annotated[tuple[schema.Few, ...], Field(min_length=2)] = (1, 2, 4, 8, 16)
    examples: schema.Rows = 128
    model: schema.ModelConfig
    train: TrainConfig = TrainConfig()


def trained(config: Config) -> dict[str, list[str]]:
    """The methods to train, each with the rows of the board that its weights give.

    A row is a method; one that only changes positions is put before rope.
    """
    rows: dict[str, list[str]] = {}
    for name in names(config):
        on_rope = name in READ_ROPE or name == TRAINED_TWICE
        rows.setdefault("rope" if on_rope else name, []).append(name)
    return rows


def names(config: Config) -> list[str]:
    """The rows to measure."""
    chosen = config.encoding.name
    if chosen not in GROUPS:
        return config.encoding.names
    if chosen == "known":
        return list(KNOWN)
    every = [_row(name) for name in encodings.CATALOG if name not in left_out(config)]
    first = KNOWN if chosen == "others" else ()
    return [name for name in every if name not in (*first, *SAME)]


def posed(task: schema.TaskConfig) -> schema.TaskConfig:
    """The task with the options of `POSED`, unless its own give them."""
    return schema.TaskConfig(name=task.name, **(POSED.get(task.name, {}) | task.options))


def _row(name: str) -> str:
    return f"{name}+rope" if encodings.card(name).kind == "positions" else name


def left_out(config: Config) -> dict[str, str]:
    """The methods of the catalogue that "all" and "others" leave out: name -> reason."""
    if config.encoding.name not in ("all", "others"):
        return {}
    stated = (tasks.options(config.task.name) | posed(config.task).options).get("groups")
    reasons = {}
    for card in map(encodings.card, encodings.CATALOG):
        if card.axes > 1:
            reasons[card.name] = "since their positions have several axes"
        elif card.groups not in (None, stated):
            reasons[card.name] = "since the task does not state the groups of tokens they read"
        elif _row(card.name) in SAME:
            reasons[card.name] = f"since it is {SAME[_row(card.name)]} by construction"
    return reasons


def encoding_of(config: Config, name: str, multiple: int | None = None) -> Encoding:
    """The method in training, or for a window that is a multiple of the trained one."""
    return encodings.make(name, **options_of(config, name, multiple))


def options_of(config: Config, name: str, multiple: int | None = None) -> dict[str, Any]:
    """The options of `encoding_of`.

    Beside what `method_options` gives, an option `length` is the trained window, `limit` the
    longest window tested, `factor` 1 in training and `multiple` in tests, `every` the number of
    layers, so that the last layer differs from the others, and `window` half the trained window. A
    method that chooses angles by distance does so past the trained window, and then so that no
    angle is new. The config's options take precedence.
    """
    options: dict[str, Any] = {
        "length": config.window,
        "limit": config.window * max(config.multiples),
        "factor": float(multiple or 1),
        "every": max(2, config.model.layers),
        "window": max(2, config.window // 2),
    }
    if name in BY_DISTANCE:
        trained, slower = config.window, 2 * (multiple or 1) - 1
        near = trained if slower == 1 else trained // 2
        chunk = trained if slower == 1 else 3 * trained // 4
        options |= {"window": near, "factor": float(slower), "group": slower}
        options |= {"chunk": chunk, "most": max(chunk, trained - 1)}
    return method_options.options(name, setting(config), config.encoding.options, options)


def setting(config: Config) -> method_options.Setting:
    """What the options of methods depend on."""
    longest = config.window * max(config.multiples)
    causal = config.model.kind == "decoder"
    return method_options.Setting(config.window, longest, config.model.dims.head, causal)


def told_length(name: str) -> bool:
    """Whether the method is told the length of the test: it has an option `factor`."""
    return any("factor" in card.defaults for card in encodings.cards(name))


def check(config: Config) -> None:
    """Raises FieldError for what cannot run, before data is read or anything compiled."""
    if config.model.kind == "lstm":
        raise FieldError("model.kind", "'lstm' has no attention; choices: decoder, encoder")
    for name in names(config):
        config_checks.sequence("encoding.name", name)
        encoding, *_ = [encoding_of(config, name, multiple) for multiple in config.multiples]
        config_checks.width("model.width", name, encoding, config.model)
        config_checks.training("window", name, options_of(config, name), config.window)
        config_checks.groups("task.groups", name, posed(config.task))
    encodings.check_used(names(config), config.encoding.options)
    if config.multiples[0] != 1 or sorted(set(config.multiples)) != list(config.multiples):
        raise FieldError("multiples", f"{config.multiples} must rise from 1")
    schema.check_distinct("train.rates", config.train.rates)
    if config.train.steps % (chunk := config.train.chunk):
        raise FieldError("train.steps", f"{config.train.steps} is no multiple of chunk, {chunk}")
    _check_task(config, posed(config.task))


def _check_task(config: Config, task: schema.TaskConfig) -> None:
    checked = tasks.check(task.name, **task.options)
    least = checked.width(checked.least)
    if least > config.window:
        raise FieldError("window", f"{config.window} tokens hold no {task.name}; {least} or more")
    if not isinstance(checked, tasks.Task) or checked.metric != "exact_match":
        raise FieldError("task.name", f"{task.name} has no answers that are right or wrong")
    config_checks.kind(config.model, task)
