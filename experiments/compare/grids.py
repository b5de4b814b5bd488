"""Methods on patches in rows and columns: images and canvases."""

from typing import Any

from experiments.compare.fields import Config, check_method
from posenc_jax import encodings
from posenc_jax.lab import tasks
from posenc_jax.options import FieldError


def task_of(config: Config, axes: int) -> tasks.Task:
    """The task with the positions that a method of so many axes reads: (row, column), or numbers of
    patches, row by row.
    """
    order = "line" if axes < 2 else "grid"
    return tasks.make(config.task.name, **config.task.options, order=order)


def options_of(config: Config, name: str, side: int) -> dict[str, Any]:
    """The options of a method, whose tables have the size of a grid with so many patches a side,
    and are clamped beyond it.
    """
    flat = encodings.axes(name) < 2
    fits = {"length": side * side if flat else side, "beyond": "clamp"}
    if not flat:
        fits["window"] = side
    return encodings.taken_by(name, fits | config.encoding.options)


def check_order(config: Config) -> None:
    """FieldError: the config says in which order patches are numbered."""
    if "order" in config.task.options:
        raise FieldError("task.order", "each method gets its own order; leave it out")


def check_methods(config: Config, where: str) -> None:
    """FieldError: a method does not suit patches, or an option is unused.

    where: how many axes they have, "images have 2".
    """
    encodings.check_used(config.encoding.names, config.encoding.options)
    for name in config.encoding.names:
        if (axes := encodings.axes(name)) > 2:
            raise FieldError("encoding.name", f"{name} reads positions of {axes} axes; {where}")
        positions = lambda size, axes=axes: size if axes == 2 else size * size
        check_method(config, name, options_of(config, name, config.train.length), positions)
