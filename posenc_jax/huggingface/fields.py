"""The fields of a config.json: what has been read, and errors that name a field."""

import re
from collections.abc import Mapping
from typing import Any

from posenc_jax.options import FieldError

# Names of fields that may change positions: such a field that is not read is refused.
POSITIONAL = re.compile(
    "rope|rotary|alibi|relative|position|sliding|window|^layer_types|attention_chunk|buckets|mscale"
    "|temperature_tuning|bidirectional|local_attention|every_n_layers"
)
LENGTHS = "max_position_embeddings", "n_positions", "original_max_position_embeddings"


class Fields:
    """The fields of a config, and which of them have been read."""

    def __init__(self, fields: Mapping[str, Any], *path: str):
        self.fields, self.path = fields, path
        self.read: set[str] = set(LENGTHS)

    def get(self, *names: str, default: Any = None) -> Any:
        """The value of the first of the names that has one; all of them count as read."""
        self.read.update(names)
        found = (self.fields[name] for name in names if self.fields.get(name) is not None)
        return next(found, default)

    def need(self, name: str) -> Any:
        if (found := self.get(name)) is None:
            raise FieldError((*self.path, name), "is missing; this model's positions need it")
        return found

    def number(self, *names: str, default: float | None = None) -> Any:
        found = self.need(names[0]) if default is None else self.get(*names, default=default)
        if isinstance(found, bool) or not isinstance(found, int | float):
            raise FieldError((*self.path, names[0]), f"{found!r} is not a number")
        return found

    def check(self, name: str, *allowed: Any) -> None:
        """FieldError: the field has a value that is not one of those."""
        if (found := self.get(name, default=allowed[0])) not in allowed:
            choices = ", ".join(map(repr, allowed))
            raise FieldError((*self.path, name), f"{found!r} is not one of: {choices}")

    def refuse_unread(self, pattern: re.Pattern) -> None:
        """FieldError: a field of such a name has a value, is not off, and has not been read."""
        for name, value in self.fields.items():
            unread = name not in self.read and not name.startswith("_")
            if unread and pattern.search(name) and value is not None and value is not False:
                raise FieldError((*self.path, name), f"{value!r} is not known for this model")
