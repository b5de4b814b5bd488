"""Prints lines for people: folded on a terminal, whole in a file."""

import os
import shutil
import sys
import textwrap
from typing import IO


def say(line: str, file: IO[str] | None = None) -> None:
    """Prints a line, on a terminal folded at spaces to its width.

    A word that is longer, such as a path, is not divided, so that it can be copied. In a pipe or a
    file a line stays whole, unless COLUMNS is set.

    Args:
      file: standard output by default.
    """
    where: IO[str] = sys.stdout if file is None else file
    if (columns := width(where)) is not None:
        lines = textwrap.wrap(line, columns, subsequent_indent="  ", break_long_words=False,
                              break_on_hyphens=False)  # fmt: skip
        line = "\n".join(lines)
    print(line, file=where, flush=True)


def width(file: IO[str]) -> int | None:
    """Returns how many columns a line may have; None: any number."""
    if file.isatty() or os.environ.get("COLUMNS"):
        return shutil.get_terminal_size().columns
    return None
