"""What the encoding of a training shares with that of the weights it starts from.

Weights that were trained under one base of rotations give no sense under another, and an extension
such as YaRN is made for the window that they were trained on. A config that says nothing of these
has a method's defaults, which nobody chose; so they are compared.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from experiments.compare import fields
from posenc_jax import encodings
from posenc_jax.encoding import Encoding
from posenc_jax.lab import tasks
from posenc_jax.lab.config import schema
from posenc_jax.options import FieldError

ROTATION = "base", "pairing"
EXTENSION = {"factor", "length"}  # a method with both is made for a trained `length`


def check(
    config: schema.TrainedConfig, name: str, trained: Mapping[str, Any], source: Path
) -> None:
    """Checks the encoding `name` of a training against the weights of another encoding.

    trained: the source's base and pairing, as far as it rotates, and `length`, the tokens of its
      window, where known.

    FieldError: an option that the config does not state is not as it was trained.
    """
    chosen = compared(config, name)
    unstated = trained.keys() & chosen.keys() - config.encoding.options.keys()
    for option in sorted(unstated):
        if chosen[option] != trained[option]:
            raise FieldError(
                ("encoding", option),
                f"{chosen[option]!r} for {name}, since none is stated; the weights of {source} "
                f"were trained with {trained[option]!r}: state one of the two",
            )


def compared(config: schema.TrainedConfig, name: str) -> dict[str, Any]:
    """The base, pairing and trained length of the parts of `name` that rotate, as the config has
    them.
    """
    chosen = fields.options_of(config, name)
    defaults: dict[str, Any] = {}
    for part in encodings.cards(name):
        if part.kind == "rotary":
            taken = (*ROTATION, *(("length",) if part.options.keys() >= EXTENSION else ()))
            defaults |= {o: part.defaults[o] for o in taken if o in part.options}
    return defaults | {option: chosen[option] for option in defaults.keys() & chosen.keys()}


def of_run(before: schema.TrainedConfig, name: str) -> dict[str, Any]:
    """What `check` compares, of the training `name` of a run."""
    task = before.task
    width = tasks.check(task.name, reads=tasks.input_of(task.name), **task.options).width
    return {"length": int(width(before.train.length))} | compared(before, name)


def of_released(encoding: Encoding, length: int | None) -> dict[str, Any]:
    """What `check` compares, of a released model; an option of several values is left out.

    length: the tokens that the model was trained on, if known.
    """
    values: dict[str, set] = {}
    for part in _parts(encoding):
        for option in ROTATION:
            if option in part.options:
                values.setdefault(option, set()).add(part.options[option])
    trained = {option: several.pop() for option, several in values.items() if len(several) == 1}
    return trained | ({"length": length} if length else {})


def _parts(value: Any) -> Iterator[Encoding]:
    """An encoding and those that it is made of."""
    if isinstance(value, Encoding):
        yield value
        value = list(value.options.values())
    if isinstance(value, list | tuple):
        for entry in value:
            yield from _parts(entry)
