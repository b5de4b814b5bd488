"""The fields of a config.json that say an encoding: the rows of `types` read backwards."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from posenc_jax.combinators import chain
from posenc_jax.encoding import Encoding
from posenc_jax.huggingface.fields import Fields
from posenc_jax.huggingface.normal_form import parts_of, same
from posenc_jax.huggingface.offset_readers import BEIT
from posenc_jax.huggingface.own_readers import (
    DEBERTA,
    DINOV3,
    EOMT_DINOV3,
    FALCON_ALIBI,
    GPT_NEO,
    MPT,
)
from posenc_jax.huggingface.reading import read, row_of
from posenc_jax.huggingface.rotary import Rotary
from posenc_jax.huggingface.rotary_writing import ROPE, rotary_fields
from posenc_jax.huggingface.rows import (
    ACTIVATIONS,
    GROUPS,
    PAD,
    Absent,
    Buckets,
    Convolution,
    Grid,
    Ignoring,
    Layers,
    Nope,
    Parts,
    Reader,
    Seq2Seq,
    Sines,
    Sum,
    Switch,
    Table,
    Use,
)
from posenc_jax.options import FieldError

Written = dict[str, Any]
SIDES = {"encoder": {"is_encoder_decoder": False}, "decoder": {"is_decoder": True}}


def write(encoding: Encoding, kind: str, rows: Mapping[str, Any], count: int | None) -> Written:
    """The fields of a config of a type, for a model of `count` layers.

    FieldError: see `to_huggingface`.
    """
    row = row_of(kind, rows)
    if isinstance(row, Parts):
        types = [f"{name} {type_!r}" for name, type_ in row.types.items()]
        reason = f"{kind!r} has several parts; write the fields of one, of its own type: "
        raise FieldError("model_type", reason + ", ".join([*types, *row.own]))
    if isinstance(row, Seq2Seq):
        sides = {name: (getattr(row, name), fields) for name, fields in SIDES.items()}
        return _first(sides.values(), encoding, kind, count)
    return _checked(row, encoding, kind, count)


def _checked(row: Any, encoding: Encoding, kind: str, count: int | None) -> Written:
    """The fields of a row, from which it reads the same encoding.

    FieldError: it does not, and an option that differs.
    """
    fields = _fields(row, encoding, kind, count)
    back = read(row, Fields({"model_type": kind, **fields}))
    if isinstance(back, Encoding) and same(back, encoding, count):
        return fields
    if isinstance(back, Encoding) and back.name == encoding.name:
        for name, value in encoding.options.items():
            if (other := back.options[name]) != value:
                reason = f"{value!r} has no field in a config of {kind!r}, which is {other!r}"
                raise FieldError(("encoding", name), reason)
    raise FieldError("encoding", f"{encoding!r} has no fields in a config of {kind!r}: {back!r}")


def _first(choices: Any, encoding: Encoding, kind: str, count: int | None) -> Written:
    """The fields of the first (row, fields) that says the encoding. FieldError: that of the first
    one, if none does.
    """
    errors = []
    for row, fields in choices:
        try:
            return fields | _checked(row, encoding, kind, count)
        except FieldError as error:
            errors.append(error)
    raise errors[0]


def _fields(row: Any, encoding: Encoding, kind: str, count: int | None) -> Written:
    if isinstance(row, Rotary):
        return rotary_fields(row, kind, encoding, count)
    if isinstance(row, Absent) or (isinstance(row, Convolution) and row.stride):
        raise FieldError("model_type", f"{kind!r} {read(row, Fields({}))}")
    if isinstance(row, Ignoring):
        return _fields(row.row, encoding, kind, count)
    if isinstance(row, Layers):
        return _layers(row, encoding, kind, count)
    if isinstance(row, Switch):
        choices = [(inner, {row.field: value}) for value, inner in row.rows.items()]
        return _first(choices, encoding, kind, count)
    if isinstance(row, Sum):
        return _sum(row, encoding, kind, count)
    if isinstance(row, Reader):
        if row not in OWN:
            reason = f"a config of {kind!r} is read, but the fields are not known the other way"
            raise FieldError("model_type", reason)
        return OWN[row](encoding, kind, count)
    parts = parts_of(encoding)
    if isinstance(row, Nope) and not parts:
        return {}
    if isinstance(row, Nope) or len(parts) != 1:
        raise _other(row, encoding, kind)
    return _WRITERS[type(row)](row, parts[0], kind)


def _other(row: Any, encoding: Encoding, kind: str) -> FieldError:
    """The error for a method that is not the one of the type."""
    names = {Table: "learned", Sines: "sinusoidal", Grid: "learned_grid", Buckets: "t5"}
    names[Convolution] = "convolved"
    name = row.method if isinstance(row, Use) else names.get(type(row), "nope")
    reason = f"{encoding!r} has no field in a config of {kind!r}, whose positions are {name!r}"
    return FieldError("encoding", reason)


def _sum(row: Sum, encoding: Encoding, kind: str, count: int | None) -> Written:
    """The fields of a chain with a part, or several for the last one, for each row."""
    parts, fields = parts_of(encoding), {}
    if len(parts) < len(row.rows):
        reason = f"{encoding!r} has {len(parts)} parts; a config of {kind!r} says {len(row.rows)}"
        raise FieldError("encoding", reason)
    for n, inner in enumerate(row.rows):
        rest = parts[n:] if n == len(row.rows) - 1 else parts[n : n + 1]
        fields |= _fields(inner, rest[0] if len(rest) == 1 else chain(*rest), kind, count)
    return fields


def _layers(row: Layers, encoding: Encoding, kind: str, count: int | None) -> Written:
    """The fields of layers with attention, which are alike, and the types of all."""
    if count is None:
        reason = f"is missing; layer_types of a config of {kind!r} has an entry for each layer"
        raise FieldError("layers", reason)
    parts = encoding.options["parts"] if encoding.name == "per_layer" else [encoding]
    attending = [part for part in parts if part.name != "without_attention"]
    if not attending or any(part != attending[0] for part in attending):
        raise FieldError("layer_types", f"the layers of {kind!r} that have attention are alike")
    names = ["full_attention" if part in attending else "conv" for part in parts]
    types = [names[n % len(names)] for n in range(count)]
    return _fields(row.row, attending[0], kind, count) | {"layer_types": types}


def _unmoved(
    encoding: Encoding, first: int | str, method: str, row: Any, kind: str
) -> tuple[Mapping[str, Any], Written]:
    """The options of the encoding whose position 0 is `first`, and the field that says `first`.

    FieldError: it is another method, or another position 0.
    """
    number = encoding.options["first"] if encoding.name == "from_row" else 0
    plain = encoding.options["encoding"] if encoding.name == "from_row" else encoding
    if plain.name != method:
        raise _other(row, encoding, kind)
    if first == PAD and number:
        return plain.options, {"pad_token_id": number - 1}
    if number != first:
        wanted = "pad_token_id + 1" if first == PAD else first
        reason = f"position 0 has number {number}; the code of {kind!r} counts from {wanted}"
        raise FieldError("encoding", reason)
    return plain.options, {}


def _table(row: Table, encoding: Encoding, kind: str) -> Written:
    options, fields = _unmoved(encoding, row.first, "learned", row, kind)
    return fields | dict.fromkeys(row.names, options["length"] - row.more)


def _sines(row: Sines, encoding: Encoding, kind: str) -> Written:
    return _unmoved(encoding, row.first, "sinusoidal", row, kind)[1]


def _buckets(row: Buckets, encoding: Encoding, kind: str) -> Written:
    options, _ = _unmoved(encoding, 0, "t5", row, kind)
    sizes = options["buckets"], options["distance"]
    return {name: size for name, size in zip(row.names, sizes, strict=True) if name}


def image_fields(
    rows: int, columns: int, names: Sequence[str], patch: int | tuple[int, ...]
) -> Written:
    """The fields of the sizes of a picture of so many patches and of a patch, in pixels."""
    height, width = (patch, patch) if isinstance(patch, int) else patch
    square = isinstance(patch, int) and rows == columns
    image = rows * height if square else [rows * height, columns * width]
    return dict(zip(names, (image, patch if isinstance(patch, int) else list(patch)), strict=True))


def _grid(row: Grid, encoding: Encoding, kind: str) -> Written:
    options, _ = _unmoved(encoding, 0, "learned_grid", row, kind)
    rows, columns = options["rows"], options["columns"]
    if not row.square:
        patch = row.patch if isinstance(row.patch, int) else tuple(row.patch)
        return image_fields(rows, columns, row.fields, patch)
    if rows != columns:
        reason = f"is of a square; the encoding has {rows} rows and {columns} columns"
        raise FieldError(row.square[0], reason)
    return {row.square[0]: rows * columns}


def _use(row: Use, encoding: Encoding, kind: str) -> Written:
    options, _ = _unmoved(encoding, row.first, row.method, row, kind)
    fields = {}
    for name, option in row.options.items():
        if isinstance(option, tuple) and option[0] == "rope_theta":
            fields[ROPE] = {"rope_type": "default", "rope_theta": options[name]}
        elif isinstance(option, tuple):
            fields[option[0]] = options[name]
    return fields


def _convolution(row: Convolution, encoding: Encoding, kind: str) -> Written:
    options, _ = _unmoved(encoding, 0, "convolved", row, kind)
    activation = next(name for name, ours in ACTIVATIONS.items() if ours == options["activation"])
    fields = {row.kernel[0]: options["kernel"], GROUPS: options["groups"]}
    fields |= {row.layers[0]: options["layers"]} if row.layers else {}
    fields |= {"conv_pos_batch_norm": False} if row.batch_norm else {}
    return fields | {row.activation: activation}


_WRITERS: dict[type, Callable[[Any, Encoding, str], Written]] = {
    Buckets: _buckets,
    Convolution: _convolution,
    Grid: _grid,
    Sines: _sines,
    Table: _table,
    Use: _use,
}


def _of_method(encoding: Encoding, method: str, kind: str) -> Mapping[str, Any]:
    return _unmoved(encoding, 0, method, Use(method), kind)[0]


def _deberta(encoding: Encoding, kind: str, count: int | None) -> Written:
    parts = {part.name: part.options for part in parts_of(encoding)}
    if not {*parts} <= {"learned", "deberta"}:
        raise _other(Use("deberta"), encoding, kind)
    fields: Written = {"position_biased_input": "learned" in parts}
    if "learned" in parts:
        fields["max_position_embeddings"] = parts["learned"]["length"]
    if "deberta" not in parts:
        return fields | {"relative_attention": False}
    buckets, distance = (parts["deberta"][name] for name in ("buckets", "distance"))
    sizes = {"position_buckets": buckets or -1, "max_relative_positions": distance}
    return fields | {"relative_attention": True, "pos_att_type": "c2p|p2c", **sizes}


def _dinov3(encoding: Encoding, kind: str, count: int | None) -> Written:
    options = _of_method(encoding, "dinov3", kind)
    sizes = image_fields(options["rows"], options["columns"], ("image_size", "patch_size"), 16)
    return sizes | {
        ROPE: {"rope_type": "default", "rope_theta": options["base"]},
        "rope_theta": options["base"],  # which DINOv3 reads, and EoMT the other
        "pos_embed_jitter": options["jitter"],
        "pos_embed_rescale": options["rescale"],
    }


def _gpt_neo(encoding: Encoding, kind: str, count: int | None) -> Written:
    layers = encoding.options["parts"] if encoding.name == "per_layer" else [encoding]
    windows = {part.options.get("distance", 0) + 1 for part in layers if parts_of(part)}
    if len(windows) > 1:
        listed = ", ".join(map(str, sorted(windows)))
        raise FieldError("window_size", f"has one value; the encoding has windows of {listed}")
    if count is None:
        reason = "is missing; attention_layers of a config of 'gpt_neo' has an entry for each layer"
        raise FieldError("layers", reason)
    types = ["local" if parts_of(layers[n % len(layers)]) else "global" for n in range(count)]
    window = {"window_size": windows.pop()} if windows else {}
    return {"attention_layers": types, "attention_types": [[types, 1]], **window}


def _mpt(encoding: Encoding, kind: str, count: int | None) -> Written:
    bias_max = _of_method(encoding, "alibi", kind)["bias_max"]
    bias_max = int(bias_max) if bias_max == int(bias_max) else bias_max
    return {"attn_config": {"alibi": True, "alibi_bias_max": bias_max}}


def _beit(encoding: Encoding, kind: str, count: int | None) -> Written:
    table, bias, shared = (
        "use_absolute_position_embeddings", "use_relative_position_bias",
        "use_shared_relative_position_bias",
    )  # fmt: skip
    fields: Written = dict.fromkeys((table, bias, shared), False)
    for part in parts_of(encoding):
        if part.name not in ("learned_grid", "class_offsets"):
            raise _other(Use("nope"), encoding, kind)
        options = part.options
        fields[table if part.name == "learned_grid" else shared if options["shared"] else bias] = (
            True
        )
        names = "image_size", "patch_size"
        fields |= image_fields(options["rows"], options["columns"], names, 16)
    return fields


# What functions of their own read, the other way.
OWN: dict[Reader, Callable[[Encoding, str, int | None], Written]] = {
    BEIT: _beit,
    DEBERTA: _deberta,
    DINOV3: _dinov3,
    EOMT_DINOV3: _dinov3,
    FALCON_ALIBI: lambda encoding, kind, count: {},
    GPT_NEO: _gpt_neo,
    MPT: _mpt,
}
