"""What small models of transformers compute with positions, beside what posenc_jax computes from
their config.

Each function takes a type and its config class, builds a small random model, and returns rows
(what is noted of it, its arrays by name). A note has the config, the error of ours, and the error
of an encoding that must be told from it, the control, where the test does not make its own.
"""

# pyright: reportMissingImports=false

import functools
import inspect
import re
from collections.abc import Callable, Collection
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import torch
from transformers import AttentionInterface, AttentionMaskInterface, PretrainedConfig
from transformers.masking_utils import eager_mask

from goldens.attention_modules import CALLED, PARTS, WATCHED, interface, watch
from goldens.block_layers import block_outputs
from goldens.compared import answer_of, code_gap, grid_gap, input_gap, layers_gap, scores_gap
from goldens.embedding_modules import ADDED
from goldens.golden import reset
from goldens.layer_records import TIME, frozen, inputs_of, record
from goldens.small_models import model_class, plain, small
from posenc_jax import Encoding, make, parts_from_huggingface

Rows = list[tuple[dict[str, Any], dict[str, np.ndarray]]]
TABLE = re.compile("pos_?emb|position.*emb|embed_positions|pos_embed|wpe|positions_embed")


def attention_layers(kind: str, cls: type[PretrainedConfig], **fields: Any) -> Rows:
    """Queries, keys and weights of the first layer of each kind, of a model with these fields."""
    config = small(kind, cls, **fields)
    torch.manual_seed(0)
    model = reset(model_class(cls)(config), kind).float()
    with torch.no_grad():
        if kind.startswith("hunyuan_v1"):  # norms after the rotation, whose weights do not commute
            for name, parameter in model.named_parameters():
                parameter.fill_(1) if re.search("(query|key)_layernorm", name) else None
        inputs, pos = inputs_of(model, config)
        arrays = record(kind, model, pos, inputs)
    if not arrays:
        raise ValueError("attention was not seen")
    written = plain(config)
    (answer,) = parts_from_huggingface(written).values()
    if not isinstance(answer, Encoding):
        raise ValueError(answer)
    causal = all(np.allclose(np.triu(a[0, 0], 1), 0) for n, a in arrays.items() if "weights" in n)
    error = layers_gap(answer, arrays, pos, causal)
    other = make("rope" if answer == make("nope") else "nope")
    control = layers_gap(other, arrays, pos[..., 0] if pos.ndim == 3 else pos, causal)
    axes = pos.shape[2] if pos.ndim == 3 else 1
    note = {"type": kind, "config": written, "causal": causal, "axes": axes}
    return [(note | {"error": error, "control": control}, frozen(config, arrays))]


def at_input(model, inputs: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What is read or made of positions at the input, by part: "encoder", "decoder", or ""."""
    notes: dict[str, dict[str, Any]] = {}

    part_of = lambda name: next((p for p in ("encoder", "decoder") if f"{p}." in name), "")
    tables = {
        id(module.weight): name
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Embedding) and TABLE.search(name.rpartition(".")[2])
    }
    plain_embedding = torch.nn.functional.embedding

    def embedding(ids, weight, *args, **options):
        if (name := tables.get(id(weight))) is not None and not made_of_sines(model, name):
            rows = ids.flatten()[:TIME].tolist()
            notes[part_of(name)] = {"ids": rows, "rows": len(weight)}
        return plain_embedding(ids, weight, *args, **options)

    def note(name, module, args, output):
        if torch.is_tensor(output) and part_of(name) not in notes:
            code_TD = output.reshape(-1, output.shape[-1])[:TIME]
            # Kosmos-2.5 adds the vector of a segment to it in place
            notes[part_of(name)] = {"code": code_TD.numpy().copy()}

    hooks = []
    for name, module in model.named_modules():
        if TABLE.search(name.rpartition(".")[2]) and not list(module.children()):
            hooks.append(module.register_forward_hook(functools.partial(note, name)))
    with mock.patch("torch.nn.functional.embedding", embedding):
        model(**inputs)
    for hook in hooks:
        hook.remove()
    return notes


def made_of_sines(model, name: str) -> bool:
    """Whether a table is sines, which are no parameters."""
    return "inusoid" in type(model.get_submodule(name)).__name__


def input_rows(kind: str, cls: type[PretrainedConfig]) -> Rows:
    """What each part of a type adds to its tokens, or the rows of its table that they read."""
    config = small(kind, cls)
    model = model_class(cls)(config)
    sines = {
        name: module.weight.clone()
        for name, module in model.named_modules()
        if "inusoid" in type(module).__name__ and isinstance(module, torch.nn.Embedding)
    }
    model = reset(model, kind).float()
    for name, weight in sines.items():
        model.get_submodule(name).weight.data = weight
    fields, rows = plain(config), []
    answers = parts_from_huggingface(fields)
    with torch.no_grad():
        inputs, _ = inputs_of(model, config)
        if "decoder" in answers:
            inputs["decoder_input_ids"] = inputs["input_ids"]
        for part, seen in at_input(model, inputs).items():
            answer = answers[part if part in answers else ""]
            if not isinstance(answer, Encoding):  # a reason, beside a part with an encoding
                continue
            code = seen.pop("code", None)
            error = input_gap(answer, seen.get("ids"), seen.get("rows"), code)
            note = {"case": f"{kind} {part}".strip(), "type": kind, "config": fields, "part": part}
            rows.append((note | seen | {"error": error}, {} if code is None else {"code": code}))
    if not rows:
        raise ValueError("nothing was seen at the input")
    return rows


def patch_codes(kind: str, cls: type[PretrainedConfig]) -> Rows:
    """What a model of pictures adds to its tokens: at its table's size, and at another one."""
    default = cls().to_dict()
    patch = default.get("patch_size") or 16
    patch = patch[0] if isinstance(patch, list | tuple) else patch
    side = 4 * patch
    if default.get("num_patches"):
        sizes = {"num_patches": 16}
    elif isinstance(default.get("image_size"), list | tuple):
        sizes = {"image_size": [side, side]}
    else:
        sizes = {"image_size": side}
    config = small(kind, cls, **sizes)
    model = reset(model_class(cls)(config), kind).float()
    fields = plain(config) | {
        name: value for name, value in config.to_dict().items() if name in (*sizes, "patch_size")
    }
    (answer,) = parts_from_huggingface(fields).values()
    image_size: Any = sizes.get("image_size", side)
    height, width = image_size if isinstance(image_size, list) else (image_size, image_size)
    name, table = next(
        (name, weight) for name, weight in model.named_parameters() if TABLE.search(name)
    )
    parent = model.get_submodule(re.sub(r"\.?[^.]*(\.weight)?$", "", name))
    channels, rows = getattr(config, "num_channels", 3), []
    for image in (None, (height // patch + 1, width // patch + 2)):
        more = {}
        if image is not None:
            height, width = image[0] * patch, image[1] * patch
            name = "interpolate_pos_encoding"  # without it a model reads every size, or this alone
            more = {name: True} if name in inspect.signature(model.forward).parameters else {}
        generator = torch.Generator().manual_seed(0)
        pixels = torch.randn(1, channels, height, width, generator=generator)
        outputs: list[Any] = []
        keep = lambda kept, module, args, output: kept.append(output)
        hook = parent.register_forward_hook(functools.partial(keep, outputs))
        try:
            with torch.no_grad():
                weight = table.clone()
                model(pixels, **more)
                table.zero_()
                model(pixels, **more)
                table.copy_(weight)
        except (RuntimeError, ValueError):
            if image is None or more:
                raise
            break
        finally:
            hook.remove()
        with_table, without = (o[0] if isinstance(o, tuple) else o for o in outputs)
        code_TD = (with_table - without)[0].reshape(-1, weight.shape[-1])
        code_TD = code_TD[code_TD.abs().sum(-1) > 0].numpy()  # registers have no position
        table_LD = weight.reshape(-1, weight.shape[-1]).numpy()
        error = grid_gap(answer, table_LD, code_TD, image)
        case = f"{kind} {image[0]}x{image[1]}" if image else kind
        note = {"case": case, "type": kind, "config": fields, "image": image, "error": error}
        rows.append((note, {"table": table_LD, "code": code_TD}))
    return rows


def watched_scores(kind: str, cls: type[PretrainedConfig]) -> Rows:
    """The attention of the first layers of a type whose scores have parameters, or of pictures."""
    if kind in CALLED:
        config, arrays = CALLED[kind](cls)
        watched_layers = {0: arrays}
        fields = {"model_type": kind, **config}
        return score_rows(kind, fields, watched_layers)
    watched = WATCHED[kind]
    config = cls(**watched.fields)
    AttentionInterface.register("watched", interface)
    AttentionMaskInterface.register("watched", eager_mask)
    config._attn_implementation = watched.form
    torch.manual_seed(0)
    model = reset(model_class(cls)(config), kind).float()
    with torch.no_grad():
        for parameter in model.parameters():  # weights of attention are then not one-hot
            parameter.mul_(0.3 if parameter.ndim > 1 else 1)
    fields = (
        {"model_type": kind}
        | {name: value for name, value in plain(config).items()}
        | {name: value for name, value in watched.fields.items() if not isinstance(value, dict)}
    )
    return score_rows(kind, fields, watch(model, watched))


def score_rows(kind: str, fields: dict[str, Any], layers: dict[int, dict[str, np.ndarray]]) -> Rows:
    """What is noted of a type's attention: a row for each layer of other shapes."""
    answer = answer_of(fields, PARTS.get(kind))
    rows, shapes = [], set()
    for n, arrays in layers.items():
        shape = tuple(x.shape for x in arrays.values())
        if shape in shapes:
            continue
        shapes.add(shape)
        error = scores_gap(answer, n, arrays)
        still = {name: x for name, x in arrays.items() if "/" not in name}
        note = {"case": f"{kind} {n}", "type": kind, "config": fields, "layer": n, "error": error}
        note |= {"part": PARTS[kind]} if kind in PARTS else {}
        control = scores_gap(make("nope"), n, still)
        rows.append((note | {"control": control}, arrays))
    if not rows:
        raise ValueError("attention was not seen")
    return rows


def added_codes(kind: str, cls: type[PretrainedConfig]) -> Rows:
    """What a type adds to patches, points or frames, in each of its settings."""
    rows = []
    for setting, function in ADDED[kind].items():
        added = function(cls)
        arrays = {"pos": added.pos, "code": added.code.numpy()}
        arrays |= {f"params/{name}": table.numpy() for name, table in added.params.items()}
        arrays |= {} if added.x is None else {"x": added.x.numpy()}
        fields = {"model_type": kind, **added.config}
        error = code_gap(answer_of(fields, added.part, added.image), arrays)
        case = f"{kind} {setting}".strip()
        note = {"case": case, "type": kind, "config": fields, "error": error}
        more = {"part": added.part, "image": added.image}
        rows.append((note | {name: x for name, x in more.items() if x is not None}, arrays))
    return rows


def table_shapes(cls: type[PretrainedConfig]) -> dict[str, list[int]]:
    """The shapes of a default model's tables of positions, which is made without memory."""
    with torch.device("meta"):
        model = model_class(cls)(cls())
    arrays = [*model.named_parameters(), *model.named_buffers()]
    return {
        name: [*array.shape]
        for name, array in arrays
        if TABLE.search(name) and array.ndim > 1 and not re.search("ids|inv_freq", name)
    }


class Proof(NamedTuple):
    """A kind of proof.

    rows:  the function that proves a type.
    types: those that have a function made by hand; None: every type is tried.
    place: where such functions are.
    """

    rows: Callable[..., Rows]
    types: Collection[str] | None = None
    place: str = ""


MODULES = "scripts/goldens/attention_modules.py"
# The name of the files that hold its rows and arrays -> the proof.
PROOFS = {
    "proofs": Proof(attention_layers),
    "inputs": Proof(input_rows),
    "pictures": Proof(patch_codes),
    "codes": Proof(added_codes, ADDED, "ADDED of scripts/goldens/embedding_modules.py"),
    "outputs": Proof(block_outputs, {"deepseek_v4"}, "scripts/goldens/block_layers.py"),
    "scores": Proof(watched_scores, {**WATCHED, **CALLED}, f"WATCHED or CALLED of {MODULES}"),
}
