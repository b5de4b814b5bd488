"""Generated command lines: wrong ones are refused in one line that names the field, good ones run.

Every one goes through `train.parse` and `experiments.prepare`, as on the command line.
"""

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import hypothesis
from absl import flags
from hypothesis import strategies as st

import experiments
import train
from posenc_jax import schema
from scripts.torture.shown import Shown

HEALTH = (hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.filter_too_much)
BASES = (
    "configs/rope_extrap.py:quick", "configs/alibi_extrap.py:quick", "configs/extrap.py:t5,quick",
    "configs/tasks_extrap.py:copy,quick", "configs/tasks_extrap.py:parity,quick",
)  # fmt: skip

_count = st.integers(1, 64).map(str)
_share = st.floats(1e-6, 10.0).map(repr)
GOOD = {
    "train.steps": _count, "train.batch": _count, "train.chunk": _count, "train.warmup": _count,
    "train.lr": _share, "train.clip": _share, "train.decay": _share, "eval.examples": _count,
    "eval.tokens": _count, "seeds": _count, "first_seed": _count,
    "model.layers": st.sampled_from(["1", "2", "3"]), "model.mlp": _count,
    "model.dtype": st.sampled_from(["float32", "bfloat16"]),
    "model.heads": st.sampled_from(["1", "2", "4", "8", "16"]),
    "model.masks.loss": st.sampled_from(["true", "false"]), "checkpoint.seconds": _share,
    "checkpoint.keep": _count, "wandb.mode": st.sampled_from(["disabled", "offline", "online"]),
    "wandb.group": st.text("abc-_ ", min_size=1),
}  # fmt: skip

_whole = [field for field, values in GOOD.items() if values is _count and field != "first_seed"]
_real = [field for field, values in GOOD.items() if values is _share]
_text = st.text("abcdefghijklmnopqrstuvwxyz_", min_size=2, max_size=12)
_not_a_number = st.one_of(_text, st.sampled_from(["", "1e", "0x", "None", "[1]", "(2,)", "true"]))


class Line(NamedTuple):
    """A command line, and a word that its refusal must hold."""

    arguments: tuple[str, ...]
    names: str = ""


def _set(field: str, value: str, names: str = "") -> Line:
    return Line((f"--config.{field}={value}",), names or field.split(".")[-1])


@st.composite
def _misspelt(draw) -> Line:
    field = draw(st.sampled_from(sorted(GOOD)))
    *path, last = field.split(".")
    at = draw(st.integers(0, len(last)))
    wrong = last[:at] + draw(st.sampled_from("qzx")) + last[at:]
    return _set(".".join([*path, wrong]), "1", wrong)


_choices = st.sampled_from(
    ["model.kind", "model.dtype", "wandb.mode", "task.name", "encoding.name", "experiment"]
)
_out_of_range = {
    **{field: st.integers(-(10**6), 0).map(str) for field in _whole if field != "train.warmup"},
    **{field: st.sampled_from(["-1.0", "nan", "inf", "-inf"]) for field in _real},
    "train.warmup": st.integers(-(10**6), -1).map(str),
    "first_seed": st.integers(-(10**6), -1).map(str),
    "train.min_length": st.integers(10**4, 10**6).map(str),
    "model.heads": st.sampled_from(["3", "5", "7", "-4", "0"]),
    "model.width": st.sampled_from(["-32", "0", "33"]),
}
_zero = ["train.lr", "train.clip"]
BAD = st.one_of(
    _misspelt(),
    st.builds(_set, st.sampled_from(_whole), _not_a_number),
    st.builds(_set, st.sampled_from(_real), _not_a_number.filter(lambda v: v != "")),
    st.builds(_set, _choices, _text.map(lambda word: f"no_{word}")),
    st.sampled_from(sorted(_out_of_range)).flatmap(
        lambda field: st.builds(_set, st.just(field), _out_of_range[field])
    ),
    st.builds(_set, st.sampled_from(_zero), st.just("0.0")),
    st.builds(
        _set, st.just("encoding.name"), st.sampled_from(["rope,", "rope+", "+", "rope+xpos"])
    ),
    st.builds(_set, _text.map(lambda word: f"encoding.zz{word}"), st.just("1")),
    st.builds(_set, _text.map(lambda word: f"task.zz{word}"), st.just("1")),
    _text.map(lambda word: Line((f"--zz{word}=1",), f"zz{word}")),
    _text.map(lambda word: Line((f"left_{word}",), f"left_{word}")),
    _text.map(lambda word: Line((f"--config=configs/zz{word}.py",), f"zz{word}")),
    _text.map(lambda word: Line((f"--config=configs/rope_extrap.py:zz{word}",), f"zz{word}")),
)


def refusal(base: str, line: Line) -> str:
    """What the command line is refused with; "" where it is accepted. Other errors come through."""
    own = [argument for argument in line.arguments if argument.startswith("--config=")]
    rest = [argument for argument in line.arguments if argument not in own]
    argv = ["train.py", *(own or [f"--config={base}"]), *rest]
    _forget_flags()
    kept, sys.argv = sys.argv, argv  # where ml_collections looks for overrides
    try:
        experiments.prepare(*train.parse(argv))
    except ValueError as error:
        return str(error) or "(nothing said)"
    finally:
        sys.argv = kept
        _forget_flags()
    return ""


def _forget_flags() -> None:
    for name in [name for name in flags.FLAGS if name.startswith("config.")]:
        delattr(flags.FLAGS, name)
    flags.FLAGS.unparse_flags()


def bad_lines(count: int) -> Counter[str]:
    """How many wrong lines were refused well, "accepted", or refused "badly: ..."."""
    found: Counter[str] = Counter()

    def one(base: str, line: Line) -> None:
        try:
            said = refusal(base, line)
        except Exception as error:
            found[f"badly: {line}: {type(error).__name__}: {error}"[:200]] += 1
            return
        if not said:
            found[f"accepted: {line}"] += 1
        elif "\n" in said or line.names not in said:
            found[f"badly: {line}: {said}"] += 1
        else:
            found["refused"] += 1

    _run(one, count, st.sampled_from(BASES), BAD)
    return found


def good_lines(count: int) -> Counter[str]:
    """How many good lines were "accepted"; the others with what was said."""
    found: Counter[str] = Counter()
    changes = st.sets(st.sampled_from(sorted(GOOD)), min_size=1, max_size=4).flatmap(
        lambda fields: st.tuples(
            *(GOOD[field].map(lambda v, f=field: f"--config.{f}={v}") for field in sorted(fields))
        )
    )

    def one(base: str, arguments: tuple[str, ...]) -> None:
        said = refusal(base, Line(arguments))
        found[f"{arguments}: {said}" if said else "accepted"] += 1

    _run(one, count, st.sampled_from(BASES), changes)
    return found


def _run(one: Callable, count: int, *strategies: st.SearchStrategy) -> None:
    settings = hypothesis.settings(
        max_examples=count, deadline=None, derandomize=True, database=None,
        phases=[hypothesis.Phase.generate], suppress_health_check=HEALTH,
    )  # fmt: skip
    settings(hypothesis.given(*strategies)(lambda base, drawn: one(base, drawn)))()


def unchecked(count: int) -> int:
    """The control: how many wrong lines come through when the config's model takes anything."""
    kept = schema.check
    schema.check = lambda model, config: model.model_construct(**config)
    try:
        found = bad_lines(count)
    finally:
        schema.check = kept
    return count - found["refused"]


def show(folder: Path, bad: int, good: int) -> Shown:
    """So many wrong and good lines."""
    refused, accepted = bad_lines(bad), good_lines(good)
    wrong = [line for line in refused if line != "refused"]
    wrong += [line for line in accepted if line != "accepted"]
    return Shown(
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
