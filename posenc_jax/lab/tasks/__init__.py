"""The registry of tasks: each by its name, and functions that look tasks up.

A new task is one function that returns a `Task`, with the decorator `register()`, here or in a file
of a user's own. The arguments of the function are the options of the task. A task whose data takes
long to read returns a `Plan`.
`file:PATH` is the text or FASTA file at a path, `tokens:PATH` a text that was prepared as tokens,
see `tokens/`, `pairs:PATH` a file of questions and answers, see `question_answer.py`, and
`tfds:NAME` a set of TFDS, see `tfds_tasks.py`.
In tasks of images, such as `digits`, in TFDS and in `images:PATH`, the model reads patches instead
of tokens. `canvas` and `canvas:PATH` are pictures on a larger canvas, see `canvas.py`;
`clips` and `clips:PATH` are questions about clips, see `clips.py`;
`functions` and `functions:PATH` are questions about Python code, see `functions.py`.
In tasks for encoders, such as `splice`, it reads a sequence without the answer: a label or hidden
tokens. `labels:PATH` and `labels:tfds:NAME` are texts with labels, see `labelled_text.py`.
`task_floors.floor` is the best score of a task that needs no positions.
"""

import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, get_args

from posenc_jax.lab.tasks import (
    canvas,
    clips,
    corpus,
    functions,
    image_file,
    labelled_text,
    question_answer,
    tfds_folder,
    tfds_tasks,
)
from posenc_jax.lab.tasks.catalog import CATALOG, READS, UNITS, Reads, names
from posenc_jax.lab.tasks.catalog import register as register
from posenc_jax.lab.tasks.task import Plan, Task, check_size
from posenc_jax.lab.tasks.tokens import task as token_task
from posenc_jax.options import FieldError, checked, choices_for, parameters

MODULES = """corpus dna copying arithmetic expressions binary_arithmetic state_tracking retrieval
recall translation images negation clips canvas functions tokens.task"""
for _module in MODULES.split():  # each registers its tasks
    importlib.import_module(f"{__name__}.{_module}")

_TFDS, _LABELS = tfds_folder.PREFIX, "labels:"


class Stored(NamedTuple):
    """A kind of task whose data is at a path, `PREFIX:PATH`; the fields are as in `register`."""

    build: Callable[..., Task | Plan]
    reads: Reads
    unit: str


_BY_PATH = {
    "file:": Stored(corpus.file, "tokens", "bytes"),
    "pairs:": Stored(question_answer.pairs, "tokens", "tokens"),
    "tokens:": Stored(token_task.tokens, "tokens", "tokens"),
    _LABELS: Stored(labelled_text.labels, "whole", "bytes"),
    "images:": Stored(image_file.images, "patches", "patches a side"),
    "canvas:": Stored(canvas.canvas_file, "canvas", "patches a side"),
    "clips:": Stored(clips.clips_file, "clips", "seconds"),
    "functions:": Stored(functions.functions_file, "code", "bytes"),
}
_OF_TFDS: dict[Reads, Sequence[str]] = {
    "tokens": (f"{_TFDS}NAME",),
    "patches": (f"{_TFDS}NAME",),
    "whole": (f"{_LABELS}{_TFDS}NAME",),
}
_IS = {
    "tokens": "a task of token after token",
    "patches": "a task of images",
    "whole": "a task for encoders alone",
    "clips": "a task of clips",
    "canvas": "a task of pictures on a canvas",
    "code": "a task of Python code",
}


def make(name: str, **options: Any) -> Task:
    """A task by name: `make("copy", alphabet=10)`, `make("file:book.txt")`.

    Raises:
      FieldError: an unknown task or option, a value outside its choices, or a text that is missing,
        not text or too small.
    """
    build, arguments = _resolve(name, options)
    task_or_plan = build(**arguments)
    task = task_or_plan.read() if isinstance(task_or_plan, Plan) else task_or_plan
    stated = {option: value for option, value in arguments.items() if option != "prepared"}
    return task._replace(facts={"task": name, "options": stated, **task.facts})


def check(
    name: str,
    sizes: Mapping[str, Sequence[int]] | None = None,
    reads: Reads = "tokens",
    **options: Any,
) -> Task | Plan:
    """The task, or its plan if it has one; raises the errors of `make` without reading the data.

    Args:
      name, options: as for `make`.
      sizes: sizes that the task must have, by the field that holds them, such as
        {"train.length": [64], "eval.lengths": [64, 128]}.
      reads: the input of the model, see `input_of`; a task of another kind is refused.
    """
    if (kind := input_of(name)) != reads:
        fits = ", ".join(_choices(reads))
        raise FieldError("task.name", f"{name} is {_IS[kind]}; choices: {fits}")
    build, arguments = _resolve(name, options)
    task_or_plan = build(**arguments)
    for field, values in (sizes or {}).items():
        for size in values:
            check_size(name, size, task_or_plan.least, task_or_plan.most, field)
    return task_or_plan


def input_of(name: str) -> Reads:
    """What the model reads, one of `Reads`: tokens before the one to predict, patches of an image,
    a canvas with pictures, a clip, Python code before a question, or a whole sequence whose label
    or hidden tokens it predicts. FieldError: no such task.
    """
    if name in CATALOG:
        return READS[name]
    for prefix, stored in _BY_PATH.items():
        if name.startswith(prefix):
            return stored.reads
    build, _ = _builder(name)
    return "patches" if build is tfds_tasks.pictures else "tokens"


def unit(name: str) -> str:
    """What the size of a task counts, in the plural: "bytes", "clauses", "seconds"."""
    prefix = f"{name.partition(':')[0]}:"
    by_path = _BY_PATH[prefix].unit if prefix in _BY_PATH else "tokens" if prefix == _TFDS else ""
    return UNITS.get(name, by_path or "symbols")


def options(name: str) -> dict[str, Any]:
    """The options of a task with their defaults. FieldError: no such task."""
    return {option: p.default for option, p in _parameters(*_builder(name)).items()}


def _resolve(name: str, overrides: Mapping[str, Any]) -> tuple[Callable, dict[str, Any]]:
    """The function that builds a task, and all its arguments, checked."""
    build, named = _builder(name)
    accepted = _parameters(build, named)
    arguments = {option: p.default for option, p in accepted.items()} | named
    for option, value in overrides.items():
        if option not in accepted:
            near = choices_for(option, ["name", *accepted], ", ".join(accepted))
            raise FieldError(("task", option), f"{name} takes no such option{near}")
        arguments[option] = checked("task", accepted[option], value)
    return build, arguments


def _builder(name: str) -> tuple[Callable[..., Task | Plan], dict[str, Any]]:
    """The function that builds a task, and the arguments that are part of the name."""
    if name in _BY_PATH:
        raise FieldError("task.name", f"{name!r} lacks its path; it is written {name}PATH")
    if name.startswith(f"{_LABELS}{_TFDS}"):
        prepared = tfds_folder.find(name.removeprefix(f"{_LABELS}{_TFDS}"))
        return tfds_tasks.labels, {"prepared": prepared}
    for prefix, stored in _BY_PATH.items():
        if name.startswith(prefix):
            return stored.build, {"path": name.removeprefix(prefix)}
    if name.startswith(_TFDS):
        prepared = tfds_folder.find(name.removeprefix(_TFDS))
        return tfds_tasks.task_builder(prepared), {"prepared": prepared}
    if name not in CATALOG:
        choices = dict.fromkeys(n for reads in get_args(Reads) for n in _choices(reads))
        raise FieldError("task.name", f"no task {name!r}{choices_for(name, choices)}")
    return CATALOG[name], {}


def _choices(reads: Reads) -> list[str]:
    """The names of the tasks with this input; PATH and NAME stand for data of the user's choice."""
    stored = [f"{prefix}PATH" for prefix, task in _BY_PATH.items() if task.reads == reads]
    return [*names(reads), *stored, *_OF_TFDS.get(reads, ())]


def _parameters(build: Callable, named: Mapping[str, Any]) -> dict[str, inspect.Parameter]:
    """The options of a task by name: the builder's parameters that its name does not fix."""
    return {option: p for option, p in parameters(build).items() if option not in named}
