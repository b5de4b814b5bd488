"""Adds the outer part of a path to the errors of a field: see `posenc_jax.options.FieldError`."""

from collections.abc import Iterator
from contextlib import contextmanager

from posenc_jax.options import FieldError


@contextmanager
def inside(*path: str | int) -> Iterator[None]:
    """Puts `path` before the path of a FieldError that is raised in the block."""
    try:
        yield
    except FieldError as error:
        raise error.inside(*path) from None
