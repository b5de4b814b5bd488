"""Generates command lines: wrong ones must be refused in one line that names the field.

Good ones must be accepted. Each goes through `train.parse` and `experiments.prepare`, as on the
command line.
"""

import functools
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import hypothesis
from absl import flags
from hypothesis import strategies as st

import experiments
import train
from posenc_jax.lab.config import schema, sweeps
from scripts.torture.check_result import Attempt, CheckResult

BAD, GOOD = 2000, 500  # lines
HEALTH = (hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.filter_too_much)
BASES = (
    "configs/rope_extrap.py:quick", "configs/alibi_extrap.py:quick", "configs/extrap.py:t5,quick",
    "configs/tasks_extrap.py:copy,quick", "configs/tasks_extrap.py:parity,quick",
    "configs/permutation.py:quick", "configs/padding_leakage.py:quick", "configs/images.py:quick",
    "configs/claims.py:sin-2,rope-1,quick", "configs/leaderboard.py:quick",
)  # fmt: skip


class Kind(NamedTuple):
    """Values that a field accepts, and values that it refuses."""

    good: st.SearchStrategy[str]
    bad: st.SearchStrategy[str]


_text = st.text("abcdefghijklmnopqrstuvwxyz_", min_size=2, max_size=12)
_not_a_number = st.one_of(_text, st.sampled_from(["1e", "0x", "None", "[1]", "(2,)", "true"]))
_not_a_real = st.one_of(_not_a_number, st.sampled_from(["-1.0", "nan", "inf", "-inf"]))


def _count(least: int, most: int = 64) -> Kind:
    wrong = st.one_of(_not_a_number, st.just(""), st.integers(-(10**6), least - 1).map(str))
    return Kind(st.integers(max(least, 1), most).map(str), wrong)


def _one_of(*words: str) -> Kind:
    return Kind(st.sampled_from(words), _text.map(lambda word: f"no_{word}"))


_real = Kind(st.floats(1e-6, 10.0).map(repr), st.one_of(_not_a_real, st.just("0.0")))
_share = Kind(_real.good, _not_a_real)
_flag = Kind(st.sampled_from(["true", "false"]), _text.map(lambda word: f"no_{word}"))
_lengths = st.sampled_from(["()", "(0,)", "(4, -8)", "(4, 'a')", "(4.5,)", "x", "(4"])
_many = Kind(st.nothing(), _lengths)  # which lengths are good depends on the task

# Keys are the last one or two parts of a field's name.
KINDS: dict[str, Kind] = {
    "train.steps": _count(1), "train.batch": _count(1), "train.chunk": _count(1),
    "train.warmup": _count(0), "train.lr": _real, "train.clip": _real, "train.decay": _share,
    "eval.examples": _count(1), "eval.tokens": _count(1), "eval.lengths": _many,
    "model.layers": _count(1, 3), "model.mlp": _count(1),
    "model.dtype": _one_of("float32", "bfloat16"),
    "model.heads": Kind(st.sampled_from(["1", "2", "4"]), _count(1).bad | st.sampled_from("357")),
    "model.width": Kind(st.nothing(), _count(1).bad | st.just("33")),
    "model.kind": Kind(st.nothing(), _one_of("").bad),
    "masks.loss": _flag, "checkpoint.seconds": _share, "checkpoint.keep": _count(1),
    "wandb.mode": _one_of("disabled", "offline", "online"),
    "wandb.group": Kind(st.text("abc-_ ", min_size=1), st.nothing()),
    "seeds": _count(1), "first_seed": _count(0), "experiment": Kind(st.nothing(), _one_of("").bad),
    "encoding.name": Kind(
        st.nothing(), _text.map(lambda word: f"no_{word}") | st.sampled_from(
            ["rope,", "rope+", "+", "rope+xpos"])),
    "task.name": Kind(st.nothing(), _one_of("").bad),
    "train.min_length": Kind(st.nothing(), _count(1).bad | st.integers(10**4, 10**6).map(str)),
    "order.symbols": _count(3, 6), "order.steps": _count(1), "order.lr": _real,
    "equivariance.lengths": _many, "equivariance.permutations": _count(1),
    "data.symbols": _count(2), "data.examples": _count(1), "data.measured": _count(1),
    "data.amounts": _many, "data.length": Kind(st.integers(8, 64).map(str), _count(1).bad),
    "learning.steps": _count(1), "learning.batch": _count(1), "learning.lr": _real,
    "claims": Kind(st.sampled_from(["all", "sin-2", "pad-1,num-1"]), _text.map("no-{}".format)),
    "budget": _one_of("quick", "full"),
    "reference": Kind(st.just("nope"), _text.map("no_{}".format)),
    "window": Kind(st.integers(8, 64).map(str), _count(1).bad | st.sampled_from("123")),
    "multiples": _many, "pool": _count(1), "examples": _count(1),
}  # fmt: skip
# Fields of which an experiment accepts less.
NARROWER = {"padding_leakage": {"masks.loss": Kind(st.just("true"), _flag.bad)}}


@functools.cache
def fields(base: str) -> dict[str, Kind]:
    """Returns the fields of a config that are tried, by their full names."""
    path, _, argument = base.partition(":")
    module = importlib.import_module(path.removesuffix(".py").replace("/", "."))
    config = module.get_config(argument)
    kinds = KINDS | NARROWER.get(config.experiment, {})
    ends = {name: ".".join(name.split(".")[-2:]) for name in sweeps.dotted(config.to_dict())}
    return {name: kinds[end] for name, end in ends.items() if end in kinds}


class Line(NamedTuple):
    """A command line, and a word that its refusal must hold."""

    arguments: tuple[str, ...]
    names: str = ""


def _set(field: str, value: str, names: str = "") -> Line:
    return Line((f"--config.{field}={value}",), names or field.split(".")[-1])


def _misspelt(base: str) -> st.SearchStrategy[Line]:
    def one(field: str, at: int, letter: str) -> Line:
        *path, last = field.split(".")
        wrong = last[: at % (len(last) + 1)] + letter + last[at % (len(last) + 1) :]
        return _set(".".join([*path, wrong]), "1", wrong)

    at, letter = st.integers(0, 20), st.sampled_from("qzx")
    return st.builds(one, st.sampled_from(sorted(fields(base))), at, letter)


def _wrong_value(base: str) -> st.SearchStrategy[Line]:
    wrong = {field: kind.bad for field, kind in fields(base).items() if not kind.bad.is_empty}
    return st.sampled_from(sorted(wrong)).flatmap(
        lambda field: st.builds(_set, st.just(field), wrong[field])
    )


def _stray(base: str) -> st.SearchStrategy[Line]:
    """Unknown options and flags, and files and arguments that do not exist."""
    parts = [name for name in ("encoding", "task") if f"{name}.name" in fields(base)]
    lines = [
        _text.map(lambda word, part=part: _set(f"{part}.zz{word}", "1", f"zz{word}"))
        for part in parts
    ]
    path = base.partition(":")[0]
    for form in ("--zz{}=1", "left_zz{}", "--config=configs/zz{}.py", f"--config={path}:zz{{}}"):
        lines.append(_text.map(lambda word, form=form: Line((form.format(word),), f"zz{word}")))
    return st.one_of(lines)


def _bad(base: str) -> st.SearchStrategy[Line]:
    values = _wrong_value(base)
    return st.one_of(values, values, values, _misspelt(base), _stray(base))


def _good(base: str) -> st.SearchStrategy[Line]:
    right = {field: kind.good for field, kind in fields(base).items() if not kind.good.is_empty}
    chosen = st.sets(st.sampled_from(sorted(right)), min_size=1, max_size=4).flatmap(
        lambda names: st.fixed_dictionaries({name: right[name] for name in sorted(names)})
    )
    return chosen.map(lambda values: Line(tuple(f"--config.{n}={values[n]}" for n in values)))


def parse(argv: list[str]) -> tuple[dict, str]:
    """Returns `train.parse(argv)`, for one command line after another in the same process."""
    _forget_flags()
    with mock.patch.object(sys, "argv", argv):  # ml_collections reads overrides from there
        try:
            return train.parse(argv)
        finally:
            _forget_flags()


def _forget_flags() -> None:
    sys.modules.pop("config_config", None)  # a file is loaded on top of the one before
    for name in [name for name in flags.FLAGS if name.startswith("config.")]:
        delattr(flags.FLAGS, name)
    flags.FLAGS.unparse_flags()


def refusal(base: str, line: Line) -> str:
    """Returns the refusal of a command line, "" if it is accepted; other errors are raised."""
    own = [argument for argument in line.arguments if argument.startswith("--config=")]
    rest = [argument for argument in line.arguments if argument not in own]
    try:
        experiments.prepare(*parse(["train.py", *(own or [f"--config={base}"]), *rest]))
    except ValueError as error:
        return str(error) or "(nothing said)"
    return ""


def try_bad(count: int) -> list[Attempt]:
    """Tries `count` wrong lines: each must be refused in one line that names what is wrong."""

    def one(base: str, line: Line) -> str:
        try:
            said = refusal(base, line)
        except Exception as error:
            return f"{type(error).__name__}: {error}"[:300]
        if not said:
            return "accepted"
        return said if "\n" in said or "Traceback" in said or line.names not in said else ""

    return _try(one, count, _bad)


def try_good(count: int) -> list[Attempt]:
    """Tries `count` good lines: each must be accepted."""
    return _try(refusal, count, _good)


def _try(
    wrong: Callable[[str, Line], str], count: int, lines: Callable[[str], st.SearchStrategy[Line]]
) -> list[Attempt]:
    """Returns wrong(config, line) of `count` lines, equally many of each config."""
    found = []

    def one(case: tuple[str, Line]) -> None:
        base, line = case
        failure = wrong(base, line)
        found.append(Attempt(f"{base} {line.arguments}", [failure] if failure else []))

    for n, base in enumerate(BASES):
        if times := count * (n + 1) // len(BASES) - count * n // len(BASES):
            settings = hypothesis.settings(
                max_examples=times, deadline=None, derandomize=True, database=None,
                phases=[hypothesis.Phase.generate], suppress_health_check=HEALTH,
            )  # fmt: skip
            settings(hypothesis.given(st.tuples(st.just(base), lines(base)))(one))()
    return found


def unchecked(count: int) -> int:
    """The control: returns how many of `count` wrong lines are not refused without the schema."""
    accept = lambda model, config: model.model_construct(**config)
    with mock.patch.object(schema, "check", accept):
        return sum(bool(attempt.wrong) for attempt in try_bad(count))


def check(folder: Path) -> CheckResult:
    """Tries wrong lines and good ones."""
    tried = {"wrong ones refused": try_bad(BAD), "good ones accepted": try_good(GOOD)}
    figures = [
        f"{sum(not each.wrong for each in attempts)} of {len(attempts)} {name}"
        for name, attempts in tried.items()
    ]
    return CheckResult(
        what="generated command lines: wrong ones refused in one line that names the field, good "
        "ones accepted",
        attempts=[attempt for attempts in tried.values() for attempt in attempts],
        control="no schema: wrong lines come through",
        control_found=[unchecked(50) > 0],
        settings=f"Hypothesis {hypothesis.__version__}, {len(BASES)} configs",
        figures=", ".join(figures),
    )
