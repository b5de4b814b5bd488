"""Links between arrays of our model and tensors in the files of a released one."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from posenc_jax.lab.hosts.exit_status import Refused
from posenc_jax.lab.model.pretrained.architectures import Released
from posenc_jax.lab.model.pretrained.tensors import Tensors
from posenc_jax.lab.model.transformer import Model, build

Arrays = tuple[np.ndarray, ...]
# Parts of ours that are one tensor in some models, in its order.
FUSED = {"qkv": ("query", "key", "value"), "gate_up": ("gate", "up")}
ROWS = "encoding/table"


class Link(NamedTuple):
    """Some of our arrays, and the tensors that hold them.

    read:  their tensors -> our arrays, in the order of the names.
    write: our arrays -> their tensors.
    """

    ours: tuple[str, ...]
    theirs: tuple[str, ...]
    read: Callable[..., Arrays]
    write: Callable[..., Arrays]


def model(released: Released) -> Model:
    """The model as functions of its weights."""
    reads = {"features": released.features, "axes": 2} if released.patch else {}
    given = released.config, released.encoding, released.vocab
    return build(*given, states=released.states, **reads)


def shapes(released: Released) -> dict[str, jax.ShapeDtypeStruct]:
    """The shape of each array of the model, by its path such as "block_0/query/kernel"."""
    return by_path(jax.eval_shape(model(released).init, jax.random.key(0)))


def check_depth(released: Released, tensors: Tensors) -> None:
    """Refused: no tensor of the last layer. A wrong depth is seen before the model is built."""
    names = released.architecture.names
    module = next(name for path, name in names.items() if path.endswith("block_*/out"))
    tensors.find(f"{module.replace('*', str(released.config.layers - 1))}.weight")


def by_path(params: Any) -> dict[str, Any]:
    """The leaves of a tree by their paths, such as "block_0/query/kernel"."""
    leaves = jax.tree_util.tree_leaves_with_path(params)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in leaves}


def links(released: Released, paths: Iterable[str]) -> list[Link]:
    """The links of the model's arrays at these paths, which `shapes` names."""
    all_links, shared = [], {}
    for path in paths:
        module, _, leaf = path.rpartition("/")
        block, _, part = module.rpartition("/")
        names = released.architecture.names
        if fused := _fused(names, block, part):
            if part == FUSED[fused][0]:
                all_links.append(_fused_link(released, block, fused, leaf))
            continue
        if path == ROWS and released.architecture.types:
            all_links.append(_typed_link(released, path, _tensor_name(names, path)))
            continue
        shared.setdefault(_tensor_name(names, path), []).append(path)
    return all_links + [_tensor_link(released, tuple(ours), name) for name, ours in shared.items()]


def _starred(path: str) -> str:
    """The path with a star in place of a layer's number."""
    return re.sub(r"block_\d+/", "block_*/", path)


def _tensor_name(names: Mapping[str, str], path: str) -> str:
    """The name of the tensor that holds our array, or of the fused tensor that holds it."""
    whole = _starred(path)
    if whole in names and whole.endswith(("/table", "_bias")):
        name = names[whole]
    elif whole in names:
        name = f"{names[whole]}.weight"
    else:
        module, _, leaf = whole.rpartition("/")
        name = f"{names[module]}.{'bias' if leaf == 'bias' else 'weight'}"
    layer = re.search(r"block_(\d+)/", path)
    return name.replace("*", layer[1]) if layer else name


def _tensor_link(released: Released, ours: tuple[str, ...], theirs: str) -> Link:
    """The link of one tensor, which several of our arrays may share."""
    architecture, path = released.architecture, ours[0]
    turned = path.endswith("/kernel") and not architecture.conv1d
    more = float(architecture.unit_offset and path.endswith("/scale"))
    factor = next((x for end, x in released.factors.items() if f"/{path}".endswith(f"/{end}")), 1.0)
    turn = lambda x: x.T if turned else x
    patches = path == "embed/kernel" and released.patch  # their kernel is that of a convolution

    def read(tensor):
        array = turn(tensor.reshape(len(tensor), -1) if patches else tensor)
        if (more, factor) != (0.0, 1.0):
            array = (array.astype(np.float32) + more) * np.float32(factor)
        return (array,) * len(ours)

    def write(array, *others):
        if not all(np.array_equal(array, other) for other in others):
            raise Refused(f"{' and '.join(ours)} differ; the format has one tensor, {theirs}")
        if patches:
            return (turn(array).reshape(-1, *patches),)
        return (turn(array) if (more, factor) == (0.0, 1.0) else turn(array) / factor - more,)

    return Link(ours, (theirs,), read, write)


def _fused(names: Mapping[str, str], block: str, part: str) -> str | None:
    """The name of the tensor in `FUSED` that holds a block's part; None: it has its own."""
    tensors = (name for name, parts in FUSED.items() if part in parts)
    return next((name for name in tensors if _starred(f"{block}/{name}") in names), None)


def _fused_link(released: Released, block: str, fused: str, leaf: str) -> Link:
    """The link of several parts of a block that are one tensor."""
    architecture, c = released.architecture, released.config
    turned = leaf == "kernel" and not architecture.conv1d
    by_head = fused == "qkv" and architecture.qkv == "by head"
    heads, shared = c.heads, c.kv_heads or c.heads
    sizes = [c.dims.head * count for count in (heads, shared, shared)]
    if fused == "gate_up":
        sizes = [c.mlp_width or c.mlp * c.width] * 2

    def read(tensor):  # our kernels are [in, out], and the fused axis is theirs of outputs
        whole = tensor.T if turned else tensor
        if not by_head or whole.shape[-1] != sum(sizes):  # a wrong shape is refused by `load`
            return tuple(np.split(whole, np.cumsum(sizes)[:-1], axis=-1))
        by_part = whole.reshape(*whole.shape[:-1], heads, 3, -1)
        return tuple(by_part[..., n, :].reshape(*whole.shape[:-1], -1) for n in range(3))

    def write(*arrays):
        whole = np.concatenate(arrays, axis=-1)
        if by_head:
            by_part = [x.reshape(*x.shape[:-1], heads, 1, -1) for x in arrays]
            whole = np.concatenate(by_part, axis=-2).reshape(whole.shape)
        return (whole.T if turned else whole,)

    name = _tensor_name(architecture.names, f"{block}/{fused}/{leaf}")
    return Link(tuple(f"{block}/{part}/{leaf}" for part in FUSED[fused]), (name,), read, write)


def _typed_link(released: Released, path: str, name: str) -> Link:
    """The link of a table of positions, to each row of which the vector of the first token type is
    added.
    """
    read = lambda rows, types: (rows.astype(np.float32) + types[:1].astype(np.float32),)
    write = lambda rows: (rows, np.zeros((released.types, rows.shape[1]), rows.dtype))
    return Link((path,), (name, released.architecture.types), read, write)
