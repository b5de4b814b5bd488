"""Released models from folders of Hugging Face (config.json, safetensors, tokenizer), and back."""

import itertools
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from tokenizers import Tokenizer

from posenc_jax.encoding import Encoding
from posenc_jax.huggingface.fields import Fields
from posenc_jax.lab.config.schema import ModelConfig
from posenc_jax.lab.hosts import processes
from posenc_jax.lab.hosts.exit_status import Refused
from posenc_jax.lab.hosts.files import write_json
from posenc_jax.lab.model.pretrained import deberta, links, pooling
from posenc_jax.lab.model.pretrained.architectures import (
    ARCHITECTURES,
    Released,
    released,
    with_pictures,
    with_read_out,
)
from posenc_jax.lab.model.pretrained.pooling import Pooling
from posenc_jax.lab.model.pretrained.tensors import Tensors, read_json, write_tensors
from posenc_jax.lab.model.transformer import Encodings, Model
from posenc_jax.lab.tasks.tokens.tokenizer import read_tokenizer
from posenc_jax.options import FieldError, shown

__all__ = [
    "ARCHITECTURES", "Pooling", "Pretrained", "load", "patches", "released", "save", "shapes",
    "tokenizer",
]  # fmt: skip

shapes = links.shapes
Place = Callable[[jax.ShapeDtypeStruct], jax.sharding.Sharding]


class Pretrained(NamedTuple):
    """A released model with its weights. With another encoding: `build(config, other, vocab)`.

    states: the model gives hidden states, [B, T, D], in place of logits.
    pooling: how a text's vector is made of them, if the folder says it.
    patch: (channels, rows, columns) of a patch, of a model of pictures, which reads `patches`.
    """

    config: ModelConfig
    encoding: Encoding | Encodings
    vocab: int
    model: Model
    params: Any
    states: bool = False
    pooling: Pooling | None = None
    patch: tuple[int, int, int] | None = None


def load(
    folder: str | Path,
    dtype: str = "float32",
    sharding: Place | None = None,
    states: bool = False,
    image: tuple[int, int] | None = None,
) -> Pretrained:
    """The released model in a folder.

    Weights are read one tensor after another and go to their devices at once: the host holds the
    tensors of one link alone, such as queries, keys and values that are one tensor.

    Args:
      folder: has config.json, and model.safetensors or its parts with their index.
      dtype: "float32" or "bfloat16", of the forward pass and of weights with two axes or more.
      sharding: where an array of this shape goes; None: to the first device.
      states: hidden states in place of logits. A base model, such as an embedding model or a
        sentence encoder, has no read-out, and gives them anyway.
      image: patches along the height and the width of the pictures that a model of pictures reads,
        to which its table is resized; None: those that it was trained on.

    Raises:
      FieldError: see `released`, and `pooling.read`; an `image` for a model of text.
      Refused: a file that is missing or damaged; a tensor that is missing, is of another shape, has
        no place in the model, or has a value that is not finite.

    Example:
      found = load("pythia-70m")
      logits = found.model.apply(found.params, tokens_BT, full(*tokens_BT.shape))
    """
    folder = Path(folder)
    config = read_json(folder / "config.json")
    what = with_pictures(released(config, dtype), image)
    tensors = Tensors(folder)
    if what.config.kind == "encoder_decoder" and tensors.differ("lm_head.weight", "shared.weight"):
        what = with_read_out(what)
    links.check_depth(what, tensors)
    head = _read_out_tensors(what, tensors) if states or _may_be_base(config) else {}
    if states or (head and not any(head.values())):
        what = what._replace(states=True)
    model, arrays = links.model(what), {}
    params = jax.eval_shape(model.init, jax.random.key(0))
    wanted = links.by_path(params)
    linked = [(link, [*map(tensors.find, link.theirs)]) for link in _links(what, wanted)]
    first = {path: names[0] for link, names in linked for path in link.ours}
    embedding = next((first[path] for path in wanted if path.endswith("embed")), None)
    read = itertools.chain(*(names for _, names in linked), filter(None, head.values()))
    beside = what.architecture.unread
    tensors.check_all_read(read, embedding, first.get("read_out_bias"), beside)
    for link, names in sorted(linked, key=lambda row: (tensors.files[row[1][0]], row[1])):
        for path, array in zip(link.ours, link.read(*map(tensors.read, names)), strict=True):
            if array.shape != wanted[path].shape:
                needs = f"the model of its config needs {wanted[path].shape} for {path}"
                raise Refused(f"{folder}: tensor {names[0]} gives {array.shape}; {needs}")
            arrays[path] = _placed(array, wanted[path], dtype, sharding)
            if arrays[path] is None:
                raise tensors.not_finite(names)
    leaves = (arrays[path] for path in wanted)
    params = jax.tree.unflatten(jax.tree.structure(params), leaves)
    pooled = pooling.read(folder) if what.states and not what.patch else None
    given = what.config, what.encoding, what.vocab
    return Pretrained(*given, model, params, what.states, pooled, what.patch)


def patches(pixels_BCHW: jax.Array, patch: tuple[int, int, int]) -> jax.Array:
    """Cuts pictures into the vectors [B, T, F] that a model of pictures reads, row by row.

    Args:
      pixels_BCHW: pictures, whose colours are as the model was trained on.
      patch: (channels, rows, columns) of a patch, `Pretrained.patch`.

    FieldError: other channels, or sides that patches do not fill.
    """
    batch, channels, height, width = pixels_BCHW.shape
    if channels != patch[0] or height % patch[1] or width % patch[2]:
        raise FieldError("pixels", f"shape {pixels_BCHW.shape} is not cut by patches of {patch}")
    sizes = batch, channels, height // patch[1], patch[1], width // patch[2], patch[2]
    cut = pixels_BCHW.reshape(sizes).transpose(0, 2, 4, 1, 3, 5)
    return cut.reshape(batch, sizes[2] * sizes[4], -1)


def _read_out_tensors(what: Released, tensors: Tensors) -> dict[str, str | None]:
    """The tensors of the weights that come after the hidden states: name -> the folder's name of
    it, None where it has none.
    """
    if what.config.kind == "encoder_decoder" or what.states:
        return {}
    paths = shapes(what).keys() - shapes(what._replace(states=True)).keys()
    names = {name for link in links.links(what, paths) for name in link.theirs}
    return {name: tensors.known(name) for name in sorted(names)}


def _may_be_base(config: Mapping[str, Any]) -> bool:
    """Whether the config does not name a class that has a read-out, such as BertForMaskedLM."""
    classes = config.get("architectures")
    first = classes[0] if isinstance(classes, list) and classes else None
    return not isinstance(first, str) or first.endswith("Model")


def _links(what: Released, paths: Iterable[str]) -> list[links.Link]:
    """The links between the arrays at these paths and the tensors of the files."""
    relative_links = deberta.links(what) if what.architecture.relative else []
    taken = {path for link in relative_links for path in link.ours}
    return relative_links + links.links(what, [path for path in paths if path not in taken])


def _placed(array: np.ndarray, wanted, dtype: str, sharding: Place | None) -> jax.Array | None:
    """The array on its devices; None if it is not finite."""
    array_dtype = np.dtype(dtype) if array.ndim > 1 else np.dtype(np.float32)
    with np.errstate(over="ignore"):  # what becomes infinite is refused
        array = array.astype(array_dtype, copy=False)
    if not np.isfinite(array).all():
        return None
    if sharding is None:
        return jnp.array(array)
    return processes.place(array, sharding(jax.ShapeDtypeStruct(wanted.shape, array_dtype)))


def save(
    folder: str | Path, config: Mapping[str, Any], params: Any, file_bytes: int = 5 * 10**9
) -> None:
    """Writes weights as a folder that transformers reads: config.json and safetensors.

    Weights keep their dtype. Where a model has types of tokens, their vectors are zeros. DeBERTa is
    written with projections of its offsets' own: `share_att_key` false, `norm_rel_ebd` "none".

    Args:
      folder: is made if it is not there.
      config: the config.json of the model, as a dictionary; `released` makes our model of it.
      params: the weights.
      file_bytes: bytes of a file, from which on weights go to several.

    Raises:
      FieldError: see `released`.
      Refused: weights of other shapes than the config's; weights that the format has once, and that
        differ.
    """
    folder, what = Path(folder), released(config)
    ours = links.by_path(params)
    if what.config.kind != "encoder_decoder" and not what.states:
        base = what._replace(states=True)
        what = base if ours.keys() == shapes(base).keys() else what
    if "decoder/read_out/kernel" in ours:
        what = with_read_out(what)
    _check_shapes(shapes(what), ours)
    files, size = [[]], 0
    for link in _links(what, ours):
        bytes_ = sum(ours[path].nbytes for path in link.ours)
        if files[-1] and size + bytes_ > file_bytes:
            files, size = [*files, []], 0
        files[-1].append(link)
        size += bytes_
    folder.mkdir(parents=True, exist_ok=True)
    write_tensors(folder, (_theirs(file, ours) for file in files), len(files))
    write_json(folder / "config.json", config)


def _check_shapes(wanted: Mapping[str, Any], ours: Mapping[str, Any]) -> None:
    for path in sorted({*wanted, *ours}):
        shape, given = (tree[path].shape if path in tree else None for tree in (wanted, ours))
        if shape != given:
            raise Refused(f"{path}: weights of shape {given}; the config needs {shape}")


def _theirs(file: list[links.Link], ours: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The tensors of one file, made of our arrays."""
    tensors: dict[str, np.ndarray] = {}
    for link in file:
        arrays = link.write(*(np.asarray(processes.fetch(ours[path])) for path in link.ours))
        tensors |= dict(zip(link.theirs, arrays, strict=True))
    return tensors


def tokenizer(folder: str | Path) -> Tokenizer:
    """The tokenizer of a folder, from its tokenizer.json. It neither cuts nor pads a text.

    Raises:
      FieldError: a config.json without the vocabulary's size.
      Refused: a file that is missing or damaged; a token whose id is not in the model's vocabulary.
    """
    path = Path(folder) / "tokenizer.json"
    if not path.is_file():
        raise Refused(f"{path}: no such file; a released model needs its tokenizer")
    fields = Fields(read_json(path.with_name("config.json")))
    fields = fields.inside("text_config") if "text_config" in fields.fields else fields
    vocab = fields.need("vocab_size")
    words, _ = read_tokenizer(path)
    added = words.encode("").ids  # what a template puts before or after a text
    ids = words.get_vocab() | {f"number {n} before a text": id_ for n, id_ in enumerate(added)}
    token, last = max(ids.items(), key=lambda item: item[1], default=("", -1))
    if last >= vocab:
        reason = f"token {shown(token)} has the id {last}; the model's vocab_size is {vocab}"
        raise Refused(f"{path}: {reason}")
    return words
