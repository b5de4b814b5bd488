"""Makes a list of the fields that a docstring describes: Markdown would join their lines."""

import re
from typing import Any

from griffe import Extension, Object  # pyright: ignore[reportMissingImports]

# A name and a colon, or a name and two spaces; lines that go on are further to the right.
FIELD = re.compile(r"^( *)(\w+)(?::|(?= {2})) +(\S.*)$")


class Fields(Extension):
    """Rewrites the docstrings of all objects that mkdocstrings shows."""

    def on_object(self, *, obj: Object, **rest: Any) -> None:
        """Called by griffe for each object that it has read."""
        if obj.docstring is not None:
            obj.docstring.value = listed(obj.docstring.value)


def listed(text: str) -> str:
    """Returns a docstring with each paragraph of fields as a list in Markdown.

    Sections such as "Args:", which the site's parser knows, stay as they are.
    """
    parts = text.split("\n\n")
    return "\n\n".join(_list(part) if FIELD.match(part.split("\n")[0]) else part for part in parts)


def _list(part: str) -> str:
    margin = len(part) - len(part.lstrip(" "))
    lines = []
    for line in part.split("\n"):
        match = FIELD.match(line)
        if match and len(match[1]) == margin:
            lines.append(f"- `{match[2]}`: {match[3]}")
        else:
            lines.append(f"  {line.strip()}")
    return "\n".join(lines)
