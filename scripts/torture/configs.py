"""Generates command lines: wrong ones must be refused in one line that names the field, good ones
accepted.

Each goes through `train.parse` and `experiments.prepare`, as on the command line.
"""

import functools
import importlib
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import hypothesis
from absl import flags
from hypothesis import strategies as st

import experiments
import train
from posenc_jax.lab.config import schema
from scripts.torture.check_result import CheckResult

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
    config = importlib.import_module(path.removesuffix(".py").replace("/", ".")).get_config(
        argument
    )
    kinds = KINDS | NARROWER.get(config.experiment, {})
    found = {}
    for name in _names(config.to_dict()):
        parts = name.split(".")
        for known in (".".join(parts[-2:]), name):
            if known in kinds:
                found[name] = kinds[known]
    return found


def _names(config: Mapping, under: str = "") -> Iterator[str]:
    for key, value in config.items():
        if isinstance(value, Mapping):
            yield from _names(value, f"{under}{key}.")
        else:
            yield under + key


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


def _bad(base: str) -> st.SearchStrategy[tuple[str, Line]]:
    values = _wrong_value(base)
    line = st.one_of(values, values, values, _misspelt(base), _stray(base))
    return st.tuples(st.just(base), line)


def _good(base: str) -> st.SearchStrategy[tuple[str, Line]]:
    right = {field: kind.good for field, kind in fields(base).items() if not kind.good.is_empty}
    chosen = st.sets(st.sampled_from(sorted(right)), min_size=1, max_size=4).flatmap(
        lambda names: st.tuples(
            *(right[name].map(lambda v, n=name: f"--config.{n}={v}") for name in sorted(names))
        )
    )
    return st.tuples(st.just(base), chosen.map(Line))


def refusal(base: str, line: Line) -> str:
    """Returns the refusal of a command line, "" if it is accepted; other errors are raised."""
    own = [argument for argument in line.arguments if argument.startswith("--config=")]
    rest = [argument for argument in line.arguments if argument not in own]
    argv = ["train.py", *(own or [f"--config={base}"]), *rest]
    _forget_flags()
    kept, sys.argv = sys.argv, argv  # ml_collections reads overrides from there
    try:
        experiments.prepare(*train.parse(argv))
    except ValueError as error:
        return str(error) or "(nothing said)"
    finally:
        sys.argv = kept
        _forget_flags()
    return ""


def _forget_flags() -> None:
    sys.modules.pop("config_config", None)  # a file is loaded on top of the one before
    for name in [name for name in flags.FLAGS if name.startswith("config.")]:
        delattr(flags.FLAGS, name)
    flags.FLAGS.unparse_flags()


def bad_lines(count: int) -> Counter[str]:
    """Returns how many wrong lines were "refused", "accepted: ..." or refused "badly: ..."."""
    found: Counter[str] = Counter()

    def one(base: str, line: Line) -> None:
        try:
            said = refusal(base, line)
        except Exception as error:
            found[f"badly: {base} {line}: {type(error).__name__}: {error}"[:300]] += 1
            return
        if not said:
            found[f"accepted: {base} {line}"] += 1
        elif "\n" in said or "Traceback" in said or line.names not in said:
            found[f"badly: {base} {line}: {said}"] += 1
        else:
            found["refused"] += 1

    _run(one, count, _bad)
    return found


def good_lines(count: int) -> Counter[str]:
    """Returns how many good lines were "accepted", and the refusals of the others."""
    found: Counter[str] = Counter()

    def one(base: str, line: Line) -> None:
        said = refusal(base, line)
        found[f"{base} {line.arguments}: {said}" if said else "accepted"] += 1

    _run(one, count, _good)
    return found


def _run(one: Callable, count: int, lines: Callable[[str], st.SearchStrategy]) -> None:
    """Tries `count` lines, equally many of each config."""
    for base, times in zip(BASES, _shares(count), strict=True):
        if times:
            settings = hypothesis.settings(
                max_examples=times, deadline=None, derandomize=True, database=None,
                phases=[hypothesis.Phase.generate], suppress_health_check=HEALTH,
            )  # fmt: skip
            settings(hypothesis.given(lines(base))(lambda drawn: one(*drawn)))()


def _shares(count: int) -> list[int]:
    return [count * (n + 1) // len(BASES) - count * n // len(BASES) for n in range(len(BASES))]


def unchecked(count: int) -> int:
    """The control: returns how many of `count` wrong lines are not refused without the schema."""
    kept = schema.check
    schema.check = lambda model, config: model.model_construct(**config)
    try:
        found = bad_lines(count)
    finally:
        schema.check = kept
    return count - found["refused"]


def show(folder: Path, bad: int, good: int) -> CheckResult:
    """Tries `bad` wrong lines and `good` good ones."""
    refused, accepted = bad_lines(bad), good_lines(good)
    wrong = [line for line in refused if line != "refused"]
    wrong += [line for line in accepted if line != "accepted"]
    return CheckResult(
        what="generated command lines: wrong ones refused in one line that names the field, good "
        "ones accepted",
        good=refused["refused"] + accepted["accepted"],
        tried=sum(refused.values()) + sum(accepted.values()),
        control="no schema: wrong lines come through",
        control_found=int(unchecked(50) > 0),
        control_tried=1,
        settings=f"Hypothesis {hypothesis.__version__}, {len(BASES)} configs",
        figures=f"{refused['refused']} of {sum(refused.values())} wrong ones refused, "
        f"{accepted['accepted']} of {sum(accepted.values())} good ones accepted",
        bad=tuple(wrong[:20]),
    )
