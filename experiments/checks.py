"""What experiments refuse before data is read or anything compiled, in one line each.

`field` is the one to blame, as the experiment names it.
"""

from collections.abc import Mapping
from typing import Any

import jax

from posenc_jax import encodings
from posenc_jax.encoding import Encoding
from posenc_jax.lab import tasks
from posenc_jax.lab.config import schema


def sequence(field: str, name: str) -> None:
    """ValueError: a method that reads positions of several axes."""
    if (axes := encodings.axes(name)) > 1:
        raise ValueError(f"{field}: {name} reads positions of {axes} axes; sequences have 1")


def groups(field: str, name: str, task: schema.TaskConfig) -> None:
    """ValueError: a method that reads groups of tokens which the task does not state."""
    stated = (tasks.options(task.name) | task.options).get("groups")
    for part in encodings.cards(name):
        if part.groups not in (None, stated):
            raise ValueError(
                f"{field}: {part.name} reads the groups {part.groups!r}; the task {task.name} "
                f"states {repr(stated) if stated else 'none'}"
            )


def reach(field: str, name: str, options: Mapping[str, Any], length: int) -> None:
    """ValueError: the method has fewer positions than there are tokens."""
    most = encodings.reach(name, **options)
    if most is not None and length > most:
        raise ValueError(
            f"{field}: {length} is past what {name} reaches, {most}; shorten it, or let the method "
            "clamp or interpolate if it has the option `beyond`"
        )


def training(field: str, name: str, options: Mapping[str, Any], length: int) -> None:
    """ValueError: as `reach`, or in training a part is given positions that it cannot read."""
    reach(field, name, options, length)
    encodings.check(name, options, length)


def width(field: str, name: str, encoding: Encoding, model: schema.ModelConfig) -> None:
    """ValueError: widths that the method does not take."""
    if model.kind == "lstm":
        return
    try:
        params(encoding, model)
    except ValueError as error:
        raise ValueError(
            f"{field}: {model.width} over {model.heads} heads does not suit {name}: {error}"
        ) from None


def kind(field: str, model: schema.ModelConfig, task: schema.TaskConfig) -> None:
    """ValueError: an encoder on a task that asks for the next token, which it sees."""
    known = tasks.options(task.name) | task.options
    if model.kind == "encoder" and not known.get("masked"):
        hide = ", or hide bytes with the task's option `masked`" if "masked" in known else ""
        raise ValueError(
            f"{field}: 'encoder' sees the next tokens that {task.name} asks for; use 'decoder'"
            f"{hide}"
        )


def params(encoding: Encoding, model: schema.ModelConfig) -> Any:
    """The encoding's parameters in a model, as shapes."""
    return jax.eval_shape(lambda: encoding.init(jax.random.key(0), model.dims))


def weights(
    field: str, read: tuple[str, Encoding], trained: tuple[str, Encoding], model: schema.ModelConfig
) -> None:
    """ValueError: a method, by name, that reads other weights than those trained with another.

    One that reads none suits all; where in a chain a part stands is no difference.
    """
    wanted, found = (_arrays(params(encoding, model)) for _, encoding in (read, trained))
    if wanted and wanted != found:
        raise ValueError(
            f"{field}: {read[0]} reads the weights {_named(wanted)}; {trained[0]} trains "
            f"{_named(found) or 'none'}"
        )


def _arrays(params: Any) -> list[tuple[str, tuple[int, ...]]]:
    """Name and shape of each."""
    names = lambda path: [str(at.key) for at in path if isinstance(at, jax.tree_util.DictKey)]
    leaves = jax.tree_util.tree_leaves_with_path(params)
    return [(".".join(names(path)), leaf.shape) for path, leaf in leaves]


def _named(arrays: list[tuple[str, tuple[int, ...]]]) -> str:
    return ", ".join(f"{name} {list(shape)}" for name, shape in arrays)
