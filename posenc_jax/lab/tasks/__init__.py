"""Tasks: every one by name, and the functions that read the registry.

A new task is one function that returns a `Task` and one line in `TASKS`; its options are the
function's arguments. `file:PATH` names the text at a path, and `tfds:NAME` a set of TFDS, see
`tfds_tasks.py`. Of images, in `IMAGES` and in TFDS, the model reads patches in place of token ids.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from posenc_jax.lab.tasks import (
    arithmetic,
    copying,
    corpus,
    images,
    periodic,
    recall,
    sets,
    tfds_folder,
)
from posenc_jax.lab.tasks.task import BOS, EOS, EXTRA, PAD, SEP, SYMBOL, Batch, Task, check_size
from posenc_jax.options import checked, choices_for

__all__ = [
    "BOS",
    "EOS",
    "EXTRA",
    "IMAGES",
    "PAD",
    "SEP",
    "SYMBOL",
    "TASKS",
    "Batch",
    "Task",
    "check",
    "least",
    "make",
    "options",
    "streamed",
]

TASKS: dict[str, Callable[..., Task]] = {
    "stdlib": corpus.stdlib,
    "copy": copying.copy,
    "reverse": copying.reverse,
    "sort": copying.sort,
    "missing_duplicate_string": copying.missing_duplicate_string,
    "addition": arithmetic.addition,
    "parity": arithmetic.parity,
    "associative_recall": recall.associative_recall,
    "periodic": periodic.periodic,
}

IMAGES: dict[str, Callable[..., Task]] = {"digits": images.digits}

_FILE, _TFDS = "file:", tfds_folder.PREFIX
_PATTERNS = ("file:PATH", "tfds:NAME")
# Tasks that cost something to make are planned first; a plan knows its sizes, as a task does.
_PLANS: dict[Callable, Callable] = {
    corpus.stdlib: corpus.plan_stdlib,
    corpus.file: corpus.plan_file,
    sets.text: sets.plan_text,
    sets.answers: sets.plan_pairs,
    sets.pictures: sets.plan_pictures,
}
_SETS = {"text": sets.text, "pairs": sets.answers, "images": sets.pictures}


def make(name: str, **options: Any) -> Task:
    """A task by name: `make("copy", alphabet=10)`, `make("file:book.txt")`.

    Raises:
      ValueError: an unknown task or option, a value outside its choices, or a text that is missing,
        not text or too small, in one line that names the field, the value and the choices.
    """
    build, arguments = _resolve(name, options)
    task = build(**arguments)
    stated = {option: value for option, value in arguments.items() if option != "found"}
    return task._replace(facts={"task": name, "options": stated, **task.facts})


def check(
    name: str,
    sizes: Mapping[str, Sequence[int]] | None = None,
    reads: Literal["tokens", "patches"] = "tokens",
    **options: Any,
) -> Callable[[int], int]:
    """Raises what `make` would, without reading a text: its files are only listed.

    Returns the task's `width`, the tokens that a size takes.

    Args:
      name: as for `make`, and so are the options.
      sizes: sizes that the task must have, by the field that asks for them, such as
        {"train.length": [64], "eval.lengths": [64, 128]}.
      reads: what the model is to read; a task of the other kind is refused.
    """
    _check_kind(name, reads)
    found = _planned(name, options)
    for field, asked in (sizes or {}).items():
        for size in asked:
            check_size(name, size, found.least, found.most, field)
    return found.width


def least(name: str, **options: Any) -> int:
    """The smallest size that a task has. ValueError: as `check`."""
    return _planned(name, options).least


def streamed(name: str, **options: Any) -> bool:
    """Whether training rows are fed step by step, see `Task.feed`. ValueError: as `check`."""
    return getattr(_planned(name, options), "streamed", False)


def options(name: str) -> dict[str, Any]:
    """The options of a task with their defaults. ValueError: no such task."""
    return {option: parameter.default for option, parameter in _parameters(name).items()}


def _builder(name: str) -> Callable[..., Task]:
    if name.startswith(_FILE):
        return corpus.file
    if name.startswith(_TFDS):
        return _SETS[sets.kind(tfds_folder.find(name.removeprefix(_TFDS)))]
    if name not in TASKS | IMAGES:
        hint = choices_for(name, [*TASKS, *IMAGES, *_PATTERNS])
        raise ValueError(f"task.name: no task {name!r}{hint}")
    return (TASKS | IMAGES)[name]


def _check_kind(name: str, reads: str) -> None:
    shown = _builder(name) in (*IMAGES.values(), sets.pictures)
    if shown != (reads == "patches"):
        fits = [*IMAGES, _PATTERNS[1]] if reads == "patches" else [*TASKS, *_PATTERNS]
        shows = "is" if shown else "is not"
        raise ValueError(f"task.name: {name} {shows} a task of images; choices: {', '.join(fits)}")


def _parameters(name: str) -> dict[str, inspect.Parameter]:
    parameters = inspect.signature(_builder(name)).parameters
    return {option: p for option, p in parameters.items() if option not in ("path", "found")}


def _planned(name: str, given: Mapping[str, Any]) -> Any:
    """What is known of a task before a text is read: its sizes, and what tokens they take."""
    build, arguments = _resolve(name, given)
    return _PLANS.get(build, build)(**arguments)


def _resolve(name: str, given: Mapping[str, Any]) -> tuple[Callable[..., Task], dict[str, Any]]:
    """The function that builds a task, and all its arguments, checked."""
    build, known = _builder(name), _parameters(name)
    arguments = options(name)
    if build is corpus.file:
        arguments["path"] = name.removeprefix(_FILE)
    if name.startswith(_TFDS):
        arguments["found"] = tfds_folder.find(name.removeprefix(_TFDS))
    for option, value in given.items():
        if option not in known:
            raise ValueError(
                f"task.{option}: {name} takes no such option; its options: {', '.join(known)}"
            )
        arguments[option] = checked("task", known[option], value)
    return build, arguments
