"""The registry of tasks: each by its name, and functions that look tasks up.

A new task is one function that returns a `Task` and one line in `TASKS`. The arguments of the
function are the options of the task. A task whose data takes long to read returns a `Plan`.
`file:PATH` is the text or FASTA file at a path, `pairs:PATH` a file of questions and answers, see
`question_answer.py`, and `tfds:NAME` a set of TFDS, see `tfds_tasks.py`.
In tasks of images, which are in `IMAGES`, in TFDS and in `images:PATH`, the model reads patches
instead of tokens. `canvas` and `canvas:PATH` are pictures on a larger canvas, see `canvas.py`;
`clips` and `clips:PATH` are questions about clips, see `clips.py`;
`functions` and `functions:PATH` are questions about Python code, see `functions.py`.
In tasks for encoders, which are in `WHOLE`, it reads a sequence without the answer: a label or
hidden tokens. `labels:PATH` and `labels:tfds:NAME` are texts with labels, see `labelled_text.py`.
`floors.floor` is the best score of a task that needs no positions.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from posenc_jax.lab.tasks import (
    arithmetic,
    binary,
    canvas,
    clips,
    copying,
    corpus,
    dna,
    expressions,
    functions,
    image_file,
    images,
    labelled_text,
    negation,
    question_answer,
    recall,
    retrieval,
    state,
    tfds_folder,
    tfds_tasks,
    translation,
)
from posenc_jax.lab.tasks.task import Plan, Task, check_size
from posenc_jax.options import FieldError, checked, choices_for

TASKS: dict[str, Callable[..., Task | Plan]] = {
    "stdlib": corpus.stdlib,
    "prose": corpus.prose,
    "dna": dna.dna,
    "copy": copying.copy,
    "reverse": copying.reverse,
    "duplicate_string": copying.duplicate_string,
    "missing_duplicate_string": copying.missing_duplicate_string,
    "odds_first": copying.odds_first,
    "selective_copy": copying.selective_copy,
    "sort": copying.sort,
    "bucket_sort": copying.bucket_sort,
    "addition": arithmetic.addition,
    "parity": arithmetic.parity,
    "sum": arithmetic.digit_sum,
    "modular_arithmetic": arithmetic.modular_arithmetic,
    "modular_arithmetic_brackets": expressions.modular_arithmetic_brackets,
    "solve_equation": expressions.solve_equation,
    "binary_addition": binary.binary_addition,
    "binary_multiplication": binary.binary_multiplication,
    "compute_sqrt": binary.compute_sqrt,
    "even_pairs": state.even_pairs,
    "cycle_navigation": state.cycle_navigation,
    "stack_manipulation": state.stack_manipulation,
    "counting": state.counting,
    "flip_flop": state.flip_flop,
    "marker_position": retrieval.marker_position,
    "passkey": retrieval.passkey,
    "needle": retrieval.needle,
    "indirect_indexing": retrieval.indirect_indexing,
    "associative_recall": recall.associative_recall,
    "lookup": recall.lookup,
    "periodic": recall.periodic,
    "translation": translation.translation,
}

IMAGES: dict[str, Callable[..., Task]] = {"digits": images.digits}

WHOLE: dict[str, Callable[..., Task]] = {
    "negation": negation.negation,
    "reading_frame": dna.reading_frame,
    "splice": dna.splice,
    "spacing": dna.spacing,
}

CLIPS: dict[str, Callable[..., Task]] = {"clips": clips.clips}

CANVAS: dict[str, Callable[..., Task]] = {"canvas": canvas.canvas}

CODE: dict[str, Callable[..., Plan]] = {"functions": functions.functions}

Reads = Literal["tokens", "patches", "whole", "clips", "canvas", "code"]
_TFDS, _LABELS = tfds_folder.PREFIX, "labels:"
_BY_PATH = {
    "file:": corpus.file,
    "pairs:": question_answer.pairs,
    _LABELS: labelled_text.labels,
    "images:": image_file.images,
    "canvas:": canvas.canvas_file,
    "clips:": clips.clips_file,
    "functions:": functions.functions_file,
}
_CHOICES: dict[Reads, Sequence[str]] = {
    "tokens": (*TASKS, "file:PATH", "pairs:PATH", "tfds:NAME"),
    "patches": (*IMAGES, "images:PATH", "tfds:NAME"),
    "whole": (*WHOLE, "labels:PATH", "labels:tfds:NAME"),
    "clips": (*CLIPS, "clips:PATH"),
    "canvas": (*CANVAS, "canvas:PATH"),
    "code": (*CODE, "functions:PATH"),
}
# What a size counts, by the name before a colon; of the other tasks it is symbols.
_UNITS = {
    **dict.fromkeys(("stdlib", "prose", "file", "functions", "labels"), "bytes"),
    **dict.fromkeys(("lookup", "pairs", "tfds"), "tokens"),
    **dict.fromkeys(("dna", "reading_frame"), "codons"),
    **dict.fromkeys(("digits", "images", "canvas"), "patches a side"),
    "splice": "introns",
    "spacing": "bases",
    "negation": "pairs of clauses",
    "translation": "clauses",
    "clips": "seconds",
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
    made = build(**arguments)
    task = made.read() if isinstance(made, Plan) else made
    stated = {option: value for option, value in arguments.items() if option != "found"}
    return task._replace(facts={"task": name, "options": stated, **task.facts})


def check(
    name: str,
    sizes: Mapping[str, Sequence[int]] | None = None,
    reads: Reads = "tokens",
    **options: Any,
) -> Task | Plan:
    """The task, or its plan if it has one; raises the errors of `make` without reading a text.

    Args:
      name, options: as for `make`.
      sizes: sizes that the task must have, by the field that holds them, such as
        {"train.length": [64], "eval.lengths": [64, 128]}.
      reads: the input of the model, see `input_of`; a task of another kind is refused.
    """
    if (own := input_of(name)) != reads:
        fits = ", ".join(_CHOICES[reads])
        raise FieldError("task.name", f"{name} is {_IS[own]}; choices: {fits}")
    build, arguments = _resolve(name, options)
    found = build(**arguments)
    for field, asked in (sizes or {}).items():
        for size in asked:
            check_size(name, size, found.least, found.most, field)
    return found


def input_of(name: str) -> Reads:
    """What the model reads: tokens before the one to predict, patches of an image, a canvas with
    pictures, a clip, Python code before a question, or a whole sequence whose label or hidden
    tokens it predicts. FieldError: no such task.
    """
    build, _ = _builder(name)
    if build in (*IMAGES.values(), image_file.images, tfds_tasks.pictures):
        return "patches"
    if build in (*CLIPS.values(), clips.clips_file):
        return "clips"
    if build in (*CANVAS.values(), canvas.canvas_file):
        return "canvas"
    if build in (*CODE.values(), functions.functions_file):
        return "code"
    stored = (labelled_text.labels, tfds_tasks.labels)
    return "whole" if build in (*WHOLE.values(), *stored) else "tokens"


def unit(name: str) -> str:
    """What the sizes of a task count, in the plural: "bytes", "clauses", "seconds"."""
    return _UNITS.get(name.partition(":")[0], "symbols")


def options(name: str) -> dict[str, Any]:
    """The options of a task with their defaults. FieldError: no such task."""
    return {option: p.default for option, p in _parameters(*_builder(name)).items()}


def _resolve(name: str, given: Mapping[str, Any]) -> tuple[Callable, dict[str, Any]]:
    """The function that builds a task, and all its arguments, checked."""
    build, named = _builder(name)
    known = _parameters(build, named)
    arguments = {option: p.default for option, p in known.items()} | named
    for option, value in given.items():
        if option not in known:
            reason = f"{name} takes no such option; its options: {', '.join(known)}"
            raise FieldError(("task", option), reason)
        arguments[option] = checked("task", known[option], value)
    return build, arguments


def _builder(name: str) -> tuple[Callable[..., Task | Plan], dict[str, Any]]:
    """The function that builds a task, and the arguments that are part of the name."""
    if name.startswith(f"{_LABELS}{_TFDS}"):
        found = tfds_folder.find(name.removeprefix(f"{_LABELS}{_TFDS}"))
        return tfds_tasks.labels, {"found": found}
    for prefix, build in _BY_PATH.items():
        if name.startswith(prefix):
            return build, {"path": name.removeprefix(prefix)}
    if name.startswith(_TFDS):
        found = tfds_folder.find(name.removeprefix(_TFDS))
        return tfds_tasks.task_of(found), {"found": found}
    known = TASKS | IMAGES | WHOLE | CLIPS | CANVAS | CODE
    if name not in known:
        hint = choices_for(name, list(dict.fromkeys(n for few in _CHOICES.values() for n in few)))
        raise FieldError("task.name", f"no task {name!r}{hint}")
    return known[name], {}


def _parameters(build: Callable, named: Mapping[str, Any]) -> dict[str, inspect.Parameter]:
    parameters = inspect.signature(build).parameters
    return {option: p for option, p in parameters.items() if option not in named}
