"""How the rows of `types` are read: the interpreter."""

import difflib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from posenc_jax.combinators import chain, per_layer
from posenc_jax.encoding import Encoding
from posenc_jax.encodings import make
from posenc_jax.encodings.convolutions import convolved
from posenc_jax.huggingface.fields import POSITIONAL, Fields
from posenc_jax.huggingface.own_readers import from_row
from posenc_jax.huggingface.rope_fields import unscaled_base
from posenc_jax.huggingface.rotary import WITHOUT, Rotary, rotary
from posenc_jax.huggingface.rotary_parts import without_attention
from posenc_jax.huggingface.rows import (
    ACTIVATIONS,
    GROUPS,
    Absent,
    Answer,
    Buckets,
    Convolution,
    Grid,
    Ignoring,
    Layers,
    Nope,
    Partly,
    Parts,
    Reader,
    Same,
    Seq2Seq,
    Sines,
    Sum,
    Switch,
    Table,
    Use,
    Whole,
)
from posenc_jax.options import FieldError, shown

# Types of transformers 4 that have other names now.
RENAMED = {
    "Glm4vMoe_text": "glm4v_moe_text",
    "hifigan": "speecht5_hifigan",
    "lfm2-vl": "lfm2_vl",
}


def resolved(row: Any, rows: Mapping[str, Any]) -> Any:
    """The row itself, of which a `Same` is a changed copy."""
    while isinstance(row, Same):
        other = resolved(rows[row.type], rows)
        row = other._replace(**row.changes)
    return row


def row_of(kind: str, rows: Mapping[str, Any], path: tuple[str, ...] = ()) -> Any:
    """The row of a type. FieldError: the type is not known."""
    kind = RENAMED.get(kind, kind)
    if kind not in rows:
        near = difflib.get_close_matches(kind.lower(), rows, n=3)
        hint = f"; did you mean {', '.join(near)}?" if near else ""
        raise FieldError((*path, "model_type"), f"{shown(kind)} is not known{hint}")
    return resolved(rows[kind], rows)


def read_all(config: Fields, kind: str, rows: Mapping[str, Any]) -> dict[str, Answer]:
    """The answer of each part of a config by the path of its field, "" for a model of one part.

    FieldError: a type that is not known, or a field of positions with a wrong value.
    """
    row = row_of(kind, rows, config.path)
    if isinstance(row, Parts):
        answers = {}
        for name, type_ in row.types.items():
            inside, part = _inside(config, kind, name, type_, rows)
            answers |= _under(name, read_all(inside, part, rows))
        for name, own in row.own.items():
            with config.named():
                answers[name] = _part(own, config)
        return answers
    if isinstance(row, Seq2Seq):
        return _sides(row, config)
    return {"": read(row, config)}


def _inside(
    config: Fields, kind: str, name: str, type_: str | Whole | Partly, rows: Mapping[str, Any]
) -> tuple[Fields, str]:
    """The config of a part and its type."""
    if config.get(name) is None and name == "text_config" and "hidden_size" in config.fields:
        return config, type_ if isinstance(type_, str) else type_.type
    inside = config.inside(name)
    if not isinstance(type_, str):
        if isinstance(type_, Partly) or not inside.fields:
            inside.fields = {**type_.fields, **inside.fields}
        type_ = type_.type
    said = inside.get("model_type") or type_  # "" in files of Segment Anything
    said = RENAMED.get(said, said)
    # A part may say the name of the whole model, as those of Qwen3-VL's vision do.
    whole = said == kind or (
        isinstance(rows.get(said), Parts) and not isinstance(rows[type_], Parts)
    )
    return inside, type_ if whole else said


def _under(name: str, answers: Mapping[str, Answer]) -> dict[str, Answer]:
    return {f"{name}.{inner}".rstrip("."): answer for inner, answer in answers.items()}


def read(row: Any, config: Fields) -> Answer:
    """The answer of a row that has no parts."""
    with config.named():
        answer = _part(row, config)
    _refuse_unread([answer], config)
    return answer


def _sides(row: Seq2Seq, config: Fields) -> dict[str, Answer]:
    """The answers of an encoder, a decoder and the attention between them; of one, if the config
    is that of one.
    """
    with config.named():
        answers = {name: _part(part, config) for name, part in row._asdict().items()}
    decoder, both = config.get("is_decoder"), config.get("is_encoder_decoder", default=True)
    _refuse_unread([*answers.values()], config)
    if decoder or not both:
        return {"": answers["decoder" if decoder else "encoder"]}
    return answers


def _refuse_unread(answers: Sequence[Answer], config: Fields) -> None:
    """FieldError: a field with a name of positions that no row has read, unless one has no encoding
    or attention reads no positions.
    """
    if any(isinstance(answer, str) for answer in answers) or {*answers} == {make("nope")}:
        return
    if "position_embedding_type" not in config.read:
        config.check("position_embedding_type", "absolute")
    config.refuse_unread(POSITIONAL)


def _part(row: Any, config: Fields) -> Answer:
    """The answer of a row inside of another one, which looks after fields that are not read."""
    return _READERS[type(row)](row, config)


def _table(row: Table, config: Fields) -> Encoding:
    rows = config.get(*row.names, default=row.length) + row.more
    return _from(make("learned", length=rows), row.first, config, row.pad)


def _sines(row: Sines, config: Fields) -> Encoding:
    config.get("max_source_positions", "max_target_positions")  # sines have no last row
    encoding = make("sinusoidal", pairing=row.pairing, spacing=row.spacing)
    return _from(encoding, row.first, config, row.pad)


def _from(encoding: Encoding, first: int | str, config: Fields, pad: int = 1) -> Encoding:
    """The encoding whose position 0 is number `first`."""
    if isinstance(first, str):
        first = int(config.get("pad_token_id", default=pad)) + 1
    return from_row(encoding, int(first)) if first else encoding


def _buckets(row: Buckets, config: Fields) -> Encoding:
    buckets, distance = (
        config.get(name, default=size) for name, size in zip(row.names, row.sizes, strict=True)
    )
    sides = {"bidirectional": not row.decoder}
    options = {"scaled": row.scaled, "shared": row.shared}
    return make("t5", buckets=buckets, distance=distance, **options, **sides)


def _grid(row: Grid, config: Fields) -> Encoding:
    options = {"prefix": row.prefix, "resize": row.resize}
    if row.square:
        name, patches = row.square
        side = math.isqrt(config.get(name, default=patches))
        return make("learned_grid", rows=side, columns=side, **options)
    sizes = zip(row.fields, (row.image, row.patch), strict=True)
    image, patch = (config.sizes(name, size) for name, size in sizes)
    rows, columns = (size // part for size, part in zip(image, patch, strict=True))
    return make("learned_grid", rows=rows, columns=columns, **options)


def _use(row: Use, config: Fields) -> Encoding:
    options = {
        name: _value(option, config) if isinstance(option, tuple) else option
        for name, option in row.options.items()
    }
    return _from(make(row.method, **options), row.first, config)


def _value(option: tuple[str, Any], config: Fields) -> Any:
    """The value of an option that a field has."""
    name, default = option
    if name != "rope_theta":
        return config.get(name, default=default)
    return unscaled_base(config, default, "axial", "default")


def _switch(row: Switch, config: Fields) -> Answer:
    default = next(iter(row.rows))
    value = config.get(row.field, default=default)
    if value not in row.rows:
        choices = ", ".join(map(repr, row.rows))
        raise FieldError((*config.path, row.field), f"{shown(value)} is not one of: {choices}")
    return _part(row.rows[value], config)


def _sum(row: Sum, config: Fields) -> Answer:
    answers = [_part(inner, config) for inner in row.rows]
    reasons = [answer for answer in answers if isinstance(answer, str)]
    return reasons[0] if reasons else chain(*answers)  # type: ignore[arg-type]


def _ignoring(row: Ignoring, config: Fields) -> Answer:
    config.read.update(row.fields)
    return _part(row.row, config)


def _convolution(row: Convolution, config: Fields) -> Answer:
    number = lambda field: config.get(field[0], default=field[1])
    kernel, groups = number(row.kernel), config.get(GROUPS, default=16)
    if row.even and kernel % 2:
        raise FieldError(
            (*config.path, row.kernel[0]), f"{kernel} is odd; the model takes even ones"
        )
    width = config.get("hidden_size", default=groups)
    if width % groups:
        reason = f"{groups} do not divide the {width} channels of hidden_size"
        raise FieldError((*config.path, GROUPS), reason)
    activation = config.get(row.activation, default="gelu")
    if activation not in ACTIVATIONS:
        reason = f"{shown(activation)} is not one of: {', '.join(map(repr, ACTIVATIONS))}"
        raise FieldError((*config.path, row.activation), reason)
    deep = {"layers": number(row.layers), "norm": True} if row.layers else {}
    encoding = convolved(kernel, groups, activation=ACTIVATIONS[activation], **deep)
    if row.stride:
        steps = number(row.stride)
        reason = f"shortens its row to means of {steps} tokens, and adds to each what {encoding!r}"
        return f"{reason} adds to the first of them{row.beside and '; '}{row.beside}"
    if row.batch_norm and config.get("conv_pos_batch_norm"):
        return f"adds what {encoding!r} makes of batch_norm(x), which reads all rows of a batch"
    return encoding


def _layers(row: Layers, config: Fields) -> Answer:
    answer = _part(row.row, config)
    types = config.get("layer_types", default=())
    if isinstance(answer, str) or not {*types} & {*WITHOUT}:
        return answer
    still = without_attention()
    return per_layer([still if type_ in WITHOUT else answer for type_ in types])


_READERS: dict[type, Callable[[Any, Fields], Answer]] = {
    Absent: lambda row, config: row.reason,
    Buckets: _buckets,
    Convolution: _convolution,
    Grid: _grid,
    Ignoring: _ignoring,
    Layers: _layers,
    Nope: lambda row, config: make("nope"),
    Reader: lambda row, config: row.read(config),
    Rotary: rotary,
    Sines: _sines,
    Sum: _sum,
    Switch: _switch,
    Table: _table,
    Use: _use,
}
