"""Checks that experiments share, made before anything is compiled.

Each raises a FieldError for `field`, the path of the field to change in the experiment's config.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import jax

from posenc_jax import encodings
from posenc_jax.combinators import acts_in_attention
from posenc_jax.encoding import Encoding
from posenc_jax.lab import tasks
from posenc_jax.lab.config import schema
from posenc_jax.options import FieldError

TEXTS = "stdlib$|prose$|file:|tfds:"  # tasks whose tokens are the bytes of a text


def sizes(config: Any) -> dict[str, Sequence[int]]:
    """The sizes of the task that each field names: field -> sizes. An evaluation of stored weights,
    which takes no training step, has those of its tests alone.
    """
    train, tested = config.train, {"eval.lengths": config.eval.lengths}
    if config.is_evaluation:
        return tested
    return {"train.min_length": (train.min_length,), "train.length": (train.length,), **tested}


def text_of_bytes(task: schema.TaskConfig) -> None:
    """FieldError: the task is not the next byte of a text."""
    if task.options.get("masked") or not re.match(TEXTS, task.name):
        choices = "stdlib, prose, file:PATH, tfds:NAME"
        raise FieldError("task.name", f"{task.name} is no text to read; choices: {choices}")


def sequence(field: str, name: str) -> None:
    """FieldError: there is no such method, or it reads positions of several axes."""
    try:
        axes = encodings.axes(name)
    except FieldError as error:  # names "encoding.name"
        raise FieldError(field, error.reason) from None
    if axes > 1:
        raise FieldError(field, f"{name} reads positions of {axes} axes; sequences have 1")


def groups(field: str | Sequence[str | int], name: str, task: schema.TaskConfig) -> None:
    """FieldError: the method reads groups of tokens that the task does not give."""
    stated = (tasks.options(task.name) | task.options).get("groups")
    for part in encodings.cards(name):
        if part.groups not in (None, stated):
            raise FieldError(
                field,
                f"{part.name} reads the groups {part.groups!r}; the task {task.name} states "
                f"{repr(stated) if stated else 'none'}",
            )


def reach(
    field: str, name: str, options: Mapping[str, Any], length: int, variants: bool = False
) -> None:
    """FieldError: the method has fewer positions than there are tokens.

    variants: whether its weights can be read under other methods, by `eval.variants`.
    """
    most = encodings.reach(name, **options)
    if most is None or length <= most:
        return
    ways = ["shorten it"]
    further = [f"{mover}+{name}" for mover in ("clamped", "interpolated")]
    if variants and (fit := [other for other in further if _reads_all(other, options)]):
        ways.append(f"read its weights as {' or '.join(fit)}, by eval.variants or --encodings")
    elif any("beyond" in part.options for part in encodings.cards(name)):
        ways.append("set encoding.beyond to 'clamp' or 'interpolate'")
    raise FieldError(field, f"{length} is past what {name} reaches, {most}; {', or '.join(ways)}")


def _reads_all(name: str, options: Mapping[str, Any]) -> bool:
    """Whether there is such a chain with these options, and it reads sequences of any length."""
    try:
        return encodings.reach(name, **encodings.taken_by(name, options)) is None
    except FieldError:
        return False


def training(field: str, name: str, options: Mapping[str, Any], length: int) -> None:
    """FieldError: as `reach`, or a method of the chain gets positions in training that it cannot
    read.
    """
    reach(field, name, options, length)
    encodings.check(name, options, length)


def width(field: str, name: str, encoding: Encoding, model: schema.ModelConfig) -> None:
    """FieldError: the method does not take heads of this width, or the model has no attention for
    it.
    """
    if model.kind == "lstm" and acts_in_attention(encoding):
        at_input = (n for n in encodings.CATALOG if encodings.cards(n)[0].kind == "input")
        fits = ["nope", *(n for n in at_input if encodings.axes(n) < 2)]
        reason = (
            f"{name} acts in attention, which an LSTM does not have; choices: {', '.join(fits)}"
        )
        raise FieldError("encoding.name" if field == "model.width" else field, reason)
    try:
        params(encoding, model)
    except ValueError as error:
        reason = f"{model.width} over {model.heads} heads does not suit {name}: {error}"
        raise FieldError(field, reason) from None


def kind(model: schema.ModelConfig, task: schema.TaskConfig) -> None:
    """FieldError: an encoder on a task whose targets are among the tokens that it sees, or an
    encoder-decoder on a task of one sequence.
    """
    options = tasks.options(task.name) | task.options
    if model.kind == "encoder_decoder":
        reason = f"'encoder_decoder' reads a source and a target; {task.name} is one sequence"
        raise FieldError("model.kind", f"{reason}; use 'decoder'")
    if model.kind == "encoder" and not options.get("masked"):
        hide = ", or hide bytes with the task's option `masked`" if "masked" in options else ""
        raise FieldError(
            "model.kind",
            f"'encoder' sees the next tokens that {task.name} asks for; use 'decoder'{hide}",
        )


def params(encoding: Encoding, model: schema.ModelConfig) -> Any:
    """The shapes of the encoding's parameters in a model."""
    return jax.eval_shape(lambda: encoding.init(jax.random.key(0), model.dims))


def undecayed(name: str, encoding: Encoding, config: schema.TrainedConfig) -> None:
    """FieldError: a name of `train.undecayed` that no weights have, of a model that reads ids or
    vectors.
    """
    if config.train.undecayed:
        from posenc_jax.lab.training import optimizers

        trees = [shapes(config.model, encoding, encodings.axes(name), n) for n in (None, 1)]
        optimizers.check_undecayed(config.train.undecayed, trees)


def shapes(
    model: schema.ModelConfig, encoding: Encoding, axes: int = 1, features: int | None = None
) -> Any:
    """The shapes of the weights of a model of one symbol; axes, features: as of `build`."""
    from posenc_jax.lab.model.transformer import Encodings, build  # loads Flax

    paired = model.kind == "encoder_decoder"
    placed: Any = Encodings(encoding, encoding) if paired else encoding
    built = build(model, placed, 1, axes=max(1, axes), features=features)
    return jax.eval_shape(built.init, jax.random.key(0))


def weights(
    field: str, read: tuple[str, Encoding], trained: tuple[str, Encoding], model: schema.ModelConfig
) -> None:
    """FieldError: the method `read` has other weights than `trained`; both are (name, encoding).

    A method without weights is never refused. The order of a chain does not matter.
    """
    wanted, trained_arrays = (_arrays(params(encoding, model)) for _, encoding in (read, trained))
    if wanted and wanted != trained_arrays:
        raise FieldError(
            field,
            f"{read[0]} reads the weights {_named(wanted)}; {trained[0]} trains "
            f"{_named(trained_arrays) or 'none'}",
        )


def _arrays(params: Any) -> list[tuple[str, tuple[int, ...]]]:
    """The name and the shape of each array."""
    names = lambda path: [str(at.key) for at in path if isinstance(at, jax.tree_util.DictKey)]
    leaves = jax.tree_util.tree_leaves_with_path(params)
    return [(".".join(names(path)), leaf.shape) for path, leaf in leaves]


def _named(arrays: list[tuple[str, tuple[int, ...]]]) -> str:
    return ", ".join(f"{name} {list(shape)}" for name, shape in arrays)
