"""Command lines that set each field of several configs to wrong and to good values: wrong ones must
be refused in one line that names the field, good ones accepted.

Each command line goes through `train.parse` and `experiments.prepare`, as in `train.py`.
"""

import importlib
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple
from unittest import mock

import experiments
import train
from posenc_jax.lab.config import schema, sweeps

BASES = (
    "configs/rope_extrap.py:quick", "configs/alibi_extrap.py:quick", "configs/extrap.py:t5,quick",
    "configs/tasks_extrap.py:copy,quick", "configs/tasks_extrap.py:parity,quick",
    "configs/permutation.py:quick", "configs/padding_leakage.py:quick", "configs/images.py:quick",
    "configs/claims.py:sin-2,rope-1,quick", "configs/leaderboard.py:quick",
)  # fmt: skip
NO_NUMBER = ("", "no", "1e", "0x", "None", "[1]", "(2,)", "true")
# Wrong for every field whose value has this type, but for FREE.
WRONG = {
    bool: ("no", "2", "None", "(True,)"),
    int: (*NO_NUMBER, "1.5", "-1", "-1000000", "100000000000"),
    float: (*NO_NUMBER, "-1.0", "nan", "inf", "-inf"),
    str: ("no_such", "None", ",", "+"),
    type(None): ("no", "1e", "[1]", "(2,)", "-1", "0"),  # a number, or none
    tuple: ("(0,)", "(4, -8)", "(4, 'a')", "x", "(4"),
}
FRACTIONS = ("rates",)  # tuples that hold fractions; "(4.5,)" is wrong in any other tuple
# Any text; `undecayed` has names of weights, which are known when the model is built.
FREE = ("project", "group", "job_type", "tags", "undecayed")
# By the last part of a field's name.
GOOD = {
    **dict.fromkeys(("steps", "batch", "chunk", "keep", "seeds", "tokens", "examples", "measured",
                     "permutations", "pool", "layers", "mlp", "symbols"), ("3", "12", "64")),
    **dict.fromkeys(("lr", "clip"), ("1e-6", "0.5", "10.0")),
    **dict.fromkeys(("decay", "seconds"), ("0.0", "0.5", "10.0")),
    **dict.fromkeys(("warmup", "first_seed"), ("0", "7", "64")),
    **dict.fromkeys(("heads", "kv_heads"), ("1", "2", "4")), "cap": ("1.0", "30.0"),
    "remat_policy": ("nothing",), "tensor": ("1",),
    "dtype": ("float32", "bfloat16"), "group": ("a-b c",),
    "mode": ("disabled", "offline", "online"), "scale": ("quick", "full"),
    "claims": ("all", "sin-2", "pad-1,num-1"),
    **dict.fromkeys(("fsdp", "remat", "sinks"), ("true", "false")),
}  # fmt: skip

# The board's steps are whole chunks, and its learning rate needs steps to rise.
GOOD_ON_THE_BOARD = GOOD | {"steps": ("20", "400"), "chunk": ("1", "40"), "warmup": ("7", "64")}


class Line(NamedTuple):
    """A command line, and a word that its refusal must hold; "" if it must be accepted."""

    base: str
    argument: str
    word: str = ""


def fields(base: str) -> dict[str, Any]:
    """Returns the fields of a config, dotted, and their values."""
    path, _, argument = base.partition(":")
    module = importlib.import_module(path.removesuffix(".py").replace("/", "."))
    return sweeps.dotted(module.get_config(argument).to_dict())


def wrong_lines() -> Iterator[Line]:
    """Yields lines with a wrong value, a misspelt field, or what does not exist."""
    for base in BASES:
        path = base.partition(":")[0]
        for argument in ("--zz=1", "zz", "--config=configs/zz.py", f"--config={path}:zz"):
            yield Line(base, argument, "zz")
        for field, value in fields(base).items():
            *_, last = field.split(".")
            yield Line(base, f"--config.{field}z=1", f"{last}z")
            wrong_values = () if last in FREE else WRONG[type(value)]
            if isinstance(value, tuple) and last not in FRACTIONS:
                wrong_values += ("(4.5,)",)
            for wrong in wrong_values:
                yield Line(base, f"--config.{field}={wrong}", last)


def good_lines() -> Iterator[Line]:
    """Yields lines with a good value."""
    for base in BASES:
        values = GOOD_ON_THE_BOARD if base.startswith("configs/leaderboard") else GOOD
        for field in fields(base):
            for good in values.get(field.split(".")[-1], ()):
                yield Line(base, f"--config.{field}={good}")


def refusal(base: str, *arguments: str) -> str:
    """Returns the refusal of a command line, "" if it is accepted; other errors are raised.

    `base` is the config if the arguments have none.
    """
    configs = [argument for argument in arguments if argument.startswith("--config=")]
    rest = [argument for argument in arguments if argument not in configs]
    try:
        experiments.prepare(*train.parse(["train.py", *(configs or [f"--config={base}"]), *rest]))
    except ValueError as error:
        return str(error) or "(nothing said)"
    return ""


def trouble(line: Line) -> str:
    """Returns "" if a line is answered as it must be: a wrong one refused in one line with its
    word, a good one accepted. Otherwise what was said.
    """
    try:
        said = refusal(line.base, line.argument)
    except Exception as error:
        said = f"{type(error).__name__}:\n{error}"
    right = said and "\n" not in said and line.word in said if line.word else not said
    return "" if right else f"{' '.join(line)}: {said or 'accepted'}"


def accepted_without_schema(lines: Iterable[Line]) -> int:
    """The control: returns how many wrong lines are not refused without the schema."""
    accept = lambda model, config: model.model_construct(**config)
    with mock.patch.object(schema, "check", accept):
        return sum(bool(trouble(line)) for line in lines)
