"""Prints lines for people: folded on a terminal, whole in a file."""

import shutil
import sys
import textwrap
from typing import IO


def say(line: str, file: IO[str] | None = None) -> None:
    """Prints a line, on a terminal folded at spaces to its width.

    A word that is longer, such as a path, is not divided, so that it can be copied. In a pipe or a
    file a line stays whole.

    Args:
      file: standard output by default.
    """
    where: IO[str] = sys.stdout if file is None else file
    if where.isatty():
        columns = shutil.get_terminal_size().columns
        lines = textwrap.wrap(line, columns, subsequent_indent="  ", break_long_words=False,
                              break_on_hyphens=False)  # fmt: skip
        line = "\n".join(lines)
    print(line, file=where, flush=True)
