"""The config of a leaderboard on one task, the methods that it names, and what it refuses."""

from typing import Annotated, Any

from pydantic import Field, PositiveFloat

from experiments import config_checks, method_options
from experiments.board.leaderboard.problems import PROBLEMS
from experiments.board.looks import look_steps
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
# Positions that in training are as far as those of the longest test.
OFFSETS = ("shifted", "randomized", "pose")
# Tables of positions: of the longest test, as without more rows they read no longer line.
POSITION_TABLES = ("learned", "binary", "one_hot", "rbf", "tupe")
TRAINED_TWICE = "drope"  # trained as `rope`, then again as itself
# Methods that are another method by construction here: one row of the board.
SAME = {"dynamic_ntk": "ntk", "interpolated+rope": "pi", "shifted+rope": "rope"}
GROUPS = ("known", "others", "all")
# The methods that are measured first and most, by the one whose learning rate they take: rates are
# tried with that one. The others of the catalogue take the rate of one of them too: "as_METHOD" is
# all others that take that of METHOD.
SIXTEEN = {
    "nope": ("nope",),
    "sinusoidal": ("sinusoidal", "shifted+learned"),
    "rope": ("rope", "p_rope", "partial"),
    "alibi": ("alibi", "kerple_log"),
    "t5": ("t5", "fire"),
    "shaw": ("shaw", "deberta"),
    "fox": ("fox", "cope"),
    "path": ("path",),
    "randomized+rope": ("randomized+rope",),
}
RATED = tuple(SIXTEEN)
AS = "as_"
# Left out by "as_METHOD": a step of their training takes 15 to 30 times that of rope on a CPU.
SLOW = ("wall", "selective_rope", "mamba3_rope")
_GATES = ("fox", "fox_rows", "stick_breaking", "wall", "cope")
_TABLES = ("t5", "clipped", "mlp", "fire", "bam")
_BY_KIND = {
    "none": "nope", "input": "sinusoidal", "rotary": "rope", "by_layer": "rope", "bias": "alibi",
    "content": "shaw", "positions": "randomized+rope",
}  # fmt: skip
# How a task is posed where that is not its default: small alphabets, so that few ids are enough.
POSED: dict[str, dict[str, Any]] = {
    "copy": {"alphabet": 26},
    "reverse": {"alphabet": 26},
    "sort": {"alphabet": 26},
    "addition": {"reverse": True},
    "associative_recall": {"keys": 128, "values": 8},
}


class TrainConfig(schema.Part):
    """The training of each method, to the end of its budget or until it has learned the task.

    steps:   the budget.
    chunk:   steps of one program; with `learned`, those between two looks at validation examples.
    average: steps over which the weights that are validated and tested are averaged, exponentially
      (Polyak and Juditsky 1992); 0: they are not.
    fall:    the share of the steps, at their end, in which the learning rate falls to 0.
    looks:   late checkpoints that are tested, each on a part of the test examples.
    late:    the share of the steps, at their end, in which these stand, evenly apart.
    pairs:   two training examples stand in a row, see `TrainingBatches`.
    rates:   learning rates, all tried with the first seed. The loss on validation examples chooses
      one for all; with `learned`, their exact match, then the fewest steps.
    widen:   rates that may be added, each half or twice one at the end of the grid that is best.
    learned: exact match on validation examples of trained sizes at which a training ends; None: it
      never does.
    """

    batch: schema.Rows = 32
    steps: schema.Count = 4000
    chunk: schema.Rows = 100
    average: schema.Whole = 100
    warmup: schema.Count = 100
    fall: Annotated[float, Field(ge=0, lt=1)] = 0.0
    looks: schema.Few = 1
    late: Annotated[float, Field(gt=0, le=1)] = 0.3
    pairs: bool = False
    rates: Annotated[tuple[PositiveFloat, ...], Field(min_length=1)] = (4e-3, 2e-3, 1e-3)
    widen: Annotated[int, Field(ge=0, le=8)] = 0
    learned: Annotated[float, Field(gt=0, le=1)] | None = 0.99
    decay: schema.NonNegativeFloat = 0.01
    clip: PositiveFloat = 1.0


class Config(schema.ExperimentConfig):
    """One task, the methods, and the budget that they share.

    encoding:  names of methods, or "known", the best-known ones; "others", all that are left of the
      catalogue; "all", both; "as_rope", those of the catalogue, beyond `SIXTEEN`, whose learning
      rate is that of rope.
    reference: the method that the others are compared with, seed by seed.
    window:    tokens of a training example.
    multiples: windows of the tests, as multiples of the trained one.
    shortest:  the smallest size in training is the largest divided by this.
    examples:  test examples of a window, and validation examples.
    task:      a task, or one of `PROBLEMS`.
    """

    encoding: schema.EncodingConfig
    reference: str = "rope"
    task: schema.TaskConfig
    window: schema.Length = 32
    multiples: Annotated[tuple[schema.Few, ...], Field(min_length=2)] = (1, 2, 4, 8, 16)
    shortest: schema.Few = 4
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
    if not _is_group(chosen):
        return config.encoding.names
    if chosen == "known":
        return list(KNOWN)
    every = [_row(name) for name in encodings.CATALOG if name not in left_out(config)]
    if chosen.startswith(AS):
        rated = chosen.removeprefix(AS)
        first = (*SIXTEEN[rated], *SAME)
        return [name for name in every if name not in first and rated_as(name) == rated]
    first = KNOWN if chosen == "others" else ()
    return [name for name in every if name not in (*first, *SAME)]


def posed(task: schema.TaskConfig) -> schema.TaskConfig:
    """The task of a problem, or the task with the options of `POSED`, unless its own give them."""
    if (problem := PROBLEMS.get(task.name)) is not None:
        return schema.TaskConfig(name=problem.task, **{**problem.options, **task.options})
    return schema.TaskConfig(name=task.name, **(POSED.get(task.name, {}) | task.options))


def _row(name: str) -> str:
    return f"{name}+rope" if encodings.card(name).kind == "positions" else name


def _is_group(name: str) -> bool:
    return name in (*GROUPS, *(f"{AS}{method}" for method in RATED))


def rated_as(row: str) -> str:
    """The method of `RATED` whose learning rate a row of the catalogue takes; of rows that are
    trained as rope, this is rope.
    """
    if row in READ_ROPE or row == TRAINED_TWICE:
        return "rope"
    name = row.removesuffix("+rope")
    if name in RATED:
        return name
    if name in _GATES:
        return "fox"
    if name in _TABLES:
        return "t5"
    return "path" if name.startswith("grape_a") else _BY_KIND[encodings.card(name).kind]


def left_out(config: Config) -> dict[str, str]:
    """The methods of the catalogue that a group of all methods leaves out: name -> reason."""
    if not _is_group(config.encoding.name) or config.encoding.name == "known":
        return {}
    task = posed(config.task)
    stated = (tasks.options(task.name) | task.options).get("groups")
    reasons = {}
    for card in map(encodings.card, encodings.CATALOG):
        if card.axes > 1:
            reasons[card.name] = "since their positions have several axes"
        elif card.groups not in (None, stated):
            reasons[card.name] = "since the task does not state the groups of tokens they read"
        elif config.encoding.name.startswith(AS) and card.name in SLOW:
            reasons[card.name] = "since a step of its training takes 15 to 30 times that of rope"
        elif _row(card.name) in SAME:
            reasons[card.name] = f"since it is {SAME[_row(card.name)]} by construction"
    return reasons


def encoding_of(config: Config, name: str, multiple: int | None = None) -> Encoding:
    """The method in training, or for a window that is a multiple of the trained one."""
    return encodings.make(name, **options_of(config, name, multiple))


def options_of(config: Config, name: str, multiple: int | None = None) -> dict[str, Any]:
    """The options of `encoding_of`.

    Beside what `method_options` gives, an option `length` is the trained window, or the rows of a
    table of positions, which are those of the longest window tested, `limit` that window, `factor`
    1 in training and `multiple` in tests, `every` the number of layers, so that the last layer
    differs from the others, and `window` half the trained window. A method that chooses angles by
    distance does so past the trained window, and then so that no angle is new. The config's options
    take precedence.
    """
    longest = config.window * max(config.multiples)
    options: dict[str, Any] = {
        "length": config.window,
        "limit": longest,
        "factor": float(multiple or 1),
        "every": max(2, config.model.layers),
        "window": max(2, config.window // 2),
    }
    if name.partition("+")[0] in (*OFFSETS, *POSITION_TABLES):
        options |= {"length": longest, "shift": longest - config.window}
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
    config_checks.sequence("reference", config.reference)
    if config.multiples[0] != 1 or sorted(set(config.multiples)) != list(config.multiples):
        raise FieldError("multiples", f"{config.multiples} must rise from 1")
    schema.check_distinct("train.rates", config.train.rates)
    if config.train.steps % (chunk := config.train.chunk):
        raise FieldError("train.steps", f"{config.train.steps} is no multiple of chunk, {chunk}")
    _check_looks(config)
    _check_task(config, posed(config.task))


def _check_looks(config: Config) -> None:
    train = config.train
    if train.looks == 1:
        return
    if train.learned is not None:
        reason = f"{train.looks}, but a training may end before; set train.learned to None"
        raise FieldError("train.looks", reason)
    steps = look_steps(train)
    if any(step % train.chunk for step in steps) or len(set(steps)) < train.looks:
        shown = ", ".join(map(str, steps))
        reason = f"at steps {shown}, not all multiples of chunk, {train.chunk}"
        raise FieldError("train.looks", reason)
    if config.examples % train.looks:
        reason = f"{config.examples} is no multiple of train.looks, {train.looks}"
        raise FieldError("examples", reason)


def _check_task(config: Config, task: schema.TaskConfig) -> None:
    checked = tasks.check(task.name, **task.options)
    least = checked.width(checked.least)
    if least > config.window:
        raise FieldError("window", f"{config.window} tokens hold no {task.name}; {least} or more")
    if not isinstance(checked, tasks.Task) or checked.metric != "exact_match":
        raise FieldError("task.name", f"{task.name} has no answers that are right or wrong")
    config_checks.kind(config.model, task)
