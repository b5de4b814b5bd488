"""Two columns of a text file: labels and texts, or sentences and their translations."""

from pathlib import Path

from posenc_jax.options import FieldError


def tab_separated(name: str, path: str, wanted: str) -> list[tuple[bytes, bytes]]:
    """The two columns of a UTF-8 file, without empty lines.

    Args:
      name: of the task.
      path: of the file.
      wanted: what a line must hold, in words.

    FieldError: the file cannot be read, or a line is not two texts with one tab between.
    """
    try:
        lines = Path(path).expanduser().read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        said = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise FieldError("task.name", f"{name} cannot be read: {said}") from None
    rows = [(number, line.split("\t")) for number, line in enumerate(lines, 1) if line.strip()]
    for number, parts in rows:
        if len(parts) != 2 or not all(part.strip() for part in parts):
            raise FieldError("task.name", f"{name}: line {number} is not {wanted}")
    return [(a.strip().encode(), b.strip().encode()) for _, (a, b) in rows]
