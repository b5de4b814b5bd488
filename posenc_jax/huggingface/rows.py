"""Rows: what a config.json of a type says of its positions, as data.

The row of a model of one part gives its encoding, or a reason, as text, why there is none. `Parts`
and `Seq2Seq` have parts, each with a row. `reading` reads them.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

from posenc_jax.encoding import Encoding
from posenc_jax.encodings.convolutions import Activation
from posenc_jax.encodings.grids import Resize
from posenc_jax.encodings.rotation import Pairing
from posenc_jax.huggingface.fields import Fields

Answer = Encoding | str  # a part's encoding, or why it has none
PAD = "pad_token_id + 1"  # the first row of tables that have one for padding
GROUPS = "num_conv_pos_embedding_groups"
# Activations of transformers, and ours; of several that are the same function the first is written.
ACTIVATIONS: Mapping[str, Activation] = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_accurate": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
}


class Same(NamedTuple):
    """The row of another type, with other fields; see `same`."""

    type: str
    changes: Mapping[str, Any]


class Whole(NamedTuple):
    """A type of a part, and the fields that it has where the model's config has no such part."""

    type: str
    fields: Mapping[str, Any]


class Partly(NamedTuple):
    """A type of a part, and the fields that it has where its config does not say them."""

    type: str
    fields: Mapping[str, Any]


class Parts(NamedTuple):
    """A model of several parts: for each the field of its config, and its type.

    The config of a part may name another type in its `model_type`. An older file may have the
    fields of its text part among its own.
    """

    types: Mapping[str, str | Whole | Partly]
    own: Mapping[str, Any] = {}  # name -> the row of a part that reads the model's own config


class Seq2Seq(NamedTuple):
    """An encoder, a decoder, and the decoder's attention to the encoder.

    A config with `is_decoder` is that of the decoder alone, one with `is_encoder_decoder` false
    that of the encoder.
    """

    encoder: Any
    decoder: Any
    cross: Any


class Table(NamedTuple):
    """A learned vector for each position.

    length: rows, where the config does not say it.
    first:  the row that position 0 reads.
    more:   rows more than the config says.
    names:  fields of the length.
    pad:    `pad_token_id`, where the config does not say it.
    """

    length: int
    first: int | Literal["pad_token_id + 1"] = 0
    more: int = 0
    names: tuple[str, ...] = ("n_positions", "max_position_embeddings")
    pad: int = 1


class Sines(NamedTuple):
    """Sines and cosines at the input, as of `sinusoidal`.

    first: the number of position 0.
    pad:   `pad_token_id`, where the config does not say it.
    """

    pairing: Pairing = "half"
    spacing: Literal["paper", "tensor2tensor"] = "tensor2tensor"
    first: int | Literal["pad_token_id + 1"] = 0
    pad: int = 1


class Grid(NamedTuple):
    """A learned vector for each patch of a picture, and for tokens before them.

    image, patch: sizes in pixels, where the config does not say them.
    fields: of these sizes.
    prefix: tokens before the patches that have a row of the table.
    square: the field with the number of patches of a square picture, and its default.
    resize: how the model reads pictures of other sizes.
    """

    image: int | tuple[int, int] = 224
    patch: int | tuple[int, int] = 16
    fields: tuple[str, str] = ("image_size", "patch_size")
    prefix: int = 1
    square: tuple[str, int] | None = None
    resize: Resize = "bicubic"


class Buckets(NamedTuple):
    """T5's buckets. In a decoder all are for keys behind the query.

    scaled: products of queries and keys are divided by the root of the head's width.
    """

    decoder: bool = False
    shared: bool = True
    scaled: bool = False
    names: tuple[str, str] = ("relative_attention_num_buckets", "relative_attention_max_distance")
    sizes: tuple[int, int] = (32, 128)


class Use(NamedTuple):
    """A method of the catalogue; an option that is a tuple is (name of a field, default).

    first: the number of position 0.
    """

    method: str
    options: Mapping[str, Any] = {}
    first: int = 0


class Switch(NamedTuple):
    """The row that the value of a field chooses. The first one is that of configs without it."""

    field: str
    rows: Mapping[Any, Any]


class Sum(NamedTuple):
    """Several that act together."""

    rows: tuple[Any, ...]


class Layers(NamedTuple):
    """The row of layers with attention; `layer_types` may have others without."""

    row: Any


class Nope(NamedTuple):
    """Attention without positions."""


class Absent(NamedTuple):
    """No encoding, and why."""

    reason: str


class Convolution(NamedTuple):
    """Convolution positions, as of `convolved`; a reason, if a model computes more.

    kernel: the field of the tokens that one reads, and its default.
    layers: the field of their number, and its default, of several one after another with norms.
    stride: the field of the steps from one output to the next, and its default.
    activation: the field of the function after it.
    even:   whether the model computes those of even kernels alone.
    batch_norm: whether the model has the field `conv_pos_batch_norm`.
    beside: other positions, of a model for which a reason is given.
    """

    kernel: tuple[str, int] = ("num_conv_pos_embeddings", 128)
    layers: tuple[str, int] | None = None
    stride: tuple[str, int] | None = None
    activation: str = "feat_extract_activation"
    even: bool = False
    batch_norm: bool = False
    beside: str = ""


class Ignoring(NamedTuple):
    """A row whose model does not read some fields with names of positions."""

    row: Any
    fields: tuple[str, ...]


class Reader(NamedTuple):
    """A row that is read by a function of its own."""

    read: Callable[[Fields], Answer]


def same(type_: str, **changes: Any) -> Same:
    """The row of another type, with other fields."""
    return Same(type_, changes)


def parts(**types: str | Whole | Partly) -> Parts:
    """`Parts` of fields `NAME_config`, by their NAME."""
    return Parts({f"{name}_config": type_ for name, type_ in types.items()})


def ignoring(row: Any, *fields: str) -> Ignoring:
    """The row, of a model that does not read these fields."""
    return Ignoring(row, fields)
