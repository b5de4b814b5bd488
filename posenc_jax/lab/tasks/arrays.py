"""Named arrays of an .npz file: pictures with labels, or clips with questions."""

import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from posenc_jax.options import FieldError


def named_arrays(name: str, path: str, wanted: Mapping[str, str]) -> dict[str, np.ndarray]:
    """The arrays of whole numbers of an .npz file, as `numpy.savez` writes it.

    Args:
      name: of the task.
      path: of the file.
      wanted: the names of the arrays -> their axes, "N side side or N side side channels". Axes of
        one name have one size.

    FieldError: the file cannot be read, or an array is missing, has other axes, or holds no whole
    numbers.
    """
    try:
        with Path(path).expanduser().open("rb") as opened:
            stored = np.load(opened, allow_pickle=False)
            found = {key: stored[key] for key in wanted if key in getattr(stored, "files", ())}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        said = getattr(error, "strerror", None) or "it is not an .npz file of numbers"
        raise FieldError("task.name", f"{name} cannot be read: {said}") from None
    sizes: dict[str, int] = {}
    for key, axes in wanted.items():
        described = f"{key}, whole numbers with the axes {axes}"
        if key not in found:
            raise FieldError("task.name", f"{name} has no array {described}")
        shape, kind = found[key].shape, found[key].dtype
        own = next((a.split() for a in axes.split(" or ") if len(a.split()) == len(shape)), [])
        fits = all(sizes.setdefault(a, n) == n for a, n in zip(own, shape, strict=False))
        if not own or not fits or kind.kind not in "iu" or 0 in shape:
            reason = f"{key} is {kind} of shape {list(shape)}; give {described}"
            raise FieldError("task.name", f"{name}: {reason}")
    return found


def check_range(name: str, key: str, array: np.ndarray, most: int, least: int = 0) -> None:
    """Raises a FieldError if a number of an array is not in least .. most."""
    for number in (int(array.min()), int(array.max())):
        if not least <= number <= most:
            reason = f"{key} holds {number}; give {least} to {most}"
            raise FieldError("task.name", f"{name}: {reason}")
