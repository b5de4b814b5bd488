"""What small random models of pictures, points and video of transformers add to their tokens."""

# pyright: reportMissingImports=false

import functools
import importlib
import inspect
import math
import re
from collections.abc import Callable
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import torch
import transformers

from goldens import small_models


class Added(NamedTuple):
    """A small model's config, and what it adds to tokens.

    pos:    positions, [T, A].
    code:   [T, D].
    params: parameters of ours by name.
    part:   that adds it, of a model of several; None for the first with an encoding.
    image:  patches of the picture along its height and width, if others than the config says.
    x:      the tokens, [T, D], of a model that reads them to make what it adds; None: it does not.
    """

    config: dict[str, Any]
    pos: np.ndarray
    code: torch.Tensor
    params: dict[str, torch.Tensor]
    part: str | None = None
    image: tuple[int, int] | None = None
    x: torch.Tensor | None = None


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def grid(*sizes: int, prefix: int = 0) -> np.ndarray:
    """Positions of a grid, row by row, after tokens (-1, ..., n)."""
    patches_TA = np.indices(sizes).reshape(len(sizes), -1).T
    before_TA = np.full((prefix, len(sizes)), -1)
    before_TA[:, -1] = np.arange(prefix)
    if len(sizes) == 3:
        before_TA[:, 1] = -1
    return np.concatenate([before_TA, patches_TA]).astype(np.int32)


def module_of(cls, name: str) -> type:
    """The class with this ending in the file of the model of a config."""
    path = cls.__module__.replace("configuration_", "modeling_")
    members = vars(importlib.import_module(path))
    return next(thing for key, thing in members.items() if key.endswith(name))


def difference(module, parameters: list[torch.nn.Parameter], *inputs: Any) -> torch.Tensor:
    """What a module adds by parameters: its output less that with all of them zero, [T, D]."""
    with torch.no_grad():
        for n, parameter in enumerate(parameters):
            parameter.copy_(normal(*parameter.shape, seed=n + 1))
        kept = [parameter.clone() for parameter in parameters]
        first = lambda output: output[0] if isinstance(output, tuple) else output
        output = first(module(*inputs))
        for parameter in parameters:
            parameter.zero_()
        code = output - first(module(*inputs))
        for parameter, weight in zip(parameters, kept, strict=True):
            parameter.copy_(weight)
    return code[0]


def points(cls) -> Added:
    """Segment Anything's points (row, column), in pixels of a picture of 32 x 32."""
    fields = {"image_size": 32, "patch_size": 8, "hidden_size": 16}
    config = cls(**fields)
    config.num_pos_feats, config.scale = 8, getattr(config, "scale", 1)
    module = module_of(cls, "PositionalEmbedding")(config)
    pos_T2 = np.array([[0, 0], [3, 7], [31, 2], [12, 12], [5, 30]], np.int32)
    with torch.no_grad():
        given = torch.tensor(pos_T2[:, ::-1].copy()).float() + 0.5  # (x, y)
        code_TD = module(given[None, None], (32, 32))[0, 0]
    freq_2F = module.positional_embedding.detach().flip(0) * 4 * math.pi / 32
    return Added(fields, pos_T2, code_TD, {"freq_2F": freq_2F})


def spectrogram(cls) -> Added:
    fields = {"num_mel_bins": 36, "max_length": 46, "hidden_size": 16}
    module = module_of(cls, "ASTEmbeddings")(cls(**fields)).eval()
    table = module.position_embeddings
    code_TD = difference(module, [table], normal(1, 46, 36))
    return Added(fields, grid(3, 4, prefix=2), code_TD, {"table": table[0].detach()})


def vit_mae(cls) -> Added:
    fields = {"image_size": 64, "patch_size": 16, "hidden_size": 16}
    module = module_of(cls, "ViTMAEEmbeddings")(cls(**fields))
    module.initialize_weights()
    return Added(fields, grid(4, 4, prefix=1), module.position_embeddings[0].detach(), {})


def aimv2_native(cls) -> Added:
    fields = {"image_size": 56, "patch_size": 14, "hidden_size": 16, "is_native": True}
    module = module_of(cls, "Aimv2VisionEmbeddings")(cls(**fields))
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()
        code_TD = module(normal(1, 3, 42, 70))[0]
    return Added(fields, grid(3, 5), code_TD, {})


def aimv2(cls) -> Added:
    fields = {"image_size": 56, "patch_size": 14, "hidden_size": 16}
    module = module_of(cls, "Aimv2VisionEmbeddings")(cls(**fields))
    table = module.position_embedding.weight
    code_TD = difference(module, [table], normal(1, 3, 56, 56))
    return Added(fields, grid(4, 4), code_TD, {"table": table.detach()})


def vitpose(cls) -> Added:
    fields = {"image_size": [64, 48], "patch_size": [16, 16], "hidden_size": 16}
    module = module_of(cls, "VitPoseBackboneEmbeddings")(cls(**fields)).eval()
    table = module.position_embeddings
    code_TD = difference(module, [table], normal(1, 3, 64, 48))
    return Added(fields, grid(4, 3), code_TD, {"table": table[0].detach()})


def vivit(cls) -> Added:
    fields = {"image_size": 32, "num_frames": 4, "tubelet_size": [2, 16, 16], "hidden_size": 16}
    module = module_of(cls, "VivitEmbeddings")(cls(**fields)).eval()
    table = module.position_embeddings
    code_TD = difference(module, [table], normal(1, 4, 3, 32, 32))
    return Added(fields, np.arange(9, dtype=np.int32), code_TD, {"table": table[0].detach()})


def timesformer(cls) -> Added:
    """Its tokens follow each other by patch, then by frame."""
    fields = {"image_size": 32, "patch_size": 8, "num_frames": 3, "hidden_size": 16}
    module = module_of(cls, "TimesformerEmbeddings")(cls(**fields)).eval()
    tables = [module.position_embeddings, module.time_embeddings]
    code_TD = difference(module, tables, normal(1, 3, 3, 32, 32))
    by_patch = grid(3, 4, 4).reshape(3, 16, 3).swapaxes(0, 1).reshape(-1, 3)
    pos_T3 = np.concatenate([np.array([[-1, -1, 0]], np.int32), by_patch])
    return Added(fields, pos_T3, code_TD, {"table": tables[0][0].detach(),
                                           "table of frames": tables[1][0].detach()})  # fmt: skip


def flat_grid(name: str, table: str, fields: dict[str, Any], rows: int, columns: int) -> Callable:
    """A module that takes patches of pictures of any size, and their numbers."""

    def added(cls) -> Added:
        module = module_of(cls, name)(cls(**fields)).eval()
        weight = getattr(module, table).weight
        size = fields["patch_size"]
        numbers = getattr(cls(**fields), "patch_temporal", 1) * 3 * size**2
        sizes = torch.tensor([[1, rows, columns]])
        inputs = (normal(rows * columns, numbers), sizes)
        code = difference(module, [weight], *inputs)
        code_TD = code if code.ndim == 2 else code[None]
        return Added(fields, grid(rows, columns), code_TD, {"table": weight.detach()})

    return added


def reformer(cls) -> Added:
    fields = {"hidden_size": 16, "axial_pos_shape": [3, 4], "axial_pos_embds_dim": [6, 10]}
    module = module_of(cls, "AxialPositionEmbeddings")(cls(**fields)).eval()
    with torch.no_grad():
        for n, weight in enumerate(module.weights):
            weight.copy_(normal(*weight.shape, seed=n))
        code_TD = module(torch.arange(11)[None])[0]
    rows, columns = (weight.detach().reshape(-1, weight.shape[-1]) for weight in module.weights)
    params = {"rows": rows, "columns": columns}
    return Added(fields, np.arange(11, dtype=np.int32), code_TD, params)


BOXES_T4 = np.array(
    [[0, 0, 30, 30], [2, 5, 9, 7], [9, 5, 9, 8], [11, 20, 30, 25], [30, 30, 30, 30]], np.int32
)


def layoutlm(cls) -> Added:
    """LayoutLM's tables of a token's number and of its box, on pages of 0 to 30."""
    fields = {
        "hidden_size": 16, "num_attention_heads": 2, "vocab_size": 5, "pad_token_id": 0,
        "max_position_embeddings": 12, "max_2d_position_embeddings": 31,
    }  # fmt: skip
    if (kind := cls.model_type) != "layoutlm":
        fields |= {"coordinate_size": 3, "shape_size": 2}
    if kind == "layoutxlm":  # whose model is LayoutLMv2's
        cls = transformers.LayoutLMv2Config
    name = "TextEmbeddings" if kind == "layoutlmv3" else "Embeddings"
    module = module_of(cls, name)(cls(**fields)).eval()
    module.LayerNorm = torch.nn.Identity()

    def second(ids, boxes):  # its model adds them
        numbers = module.position_embeddings(module.position_ids[:, : ids.shape[1]])
        return numbers + module._calc_spatial_position_embeddings(boxes)

    names = {"x": "x", "y": "y", "height": "h", "width": "w"}
    tables = {ours: getattr(module, f"{theirs}_position_embeddings").weight
              for ours, theirs in names.items()}  # fmt: skip
    tables["table"] = module.position_embeddings.weight
    ids, boxes = torch.ones(1, 5, dtype=torch.long), torch.tensor(BOXES_T4)[None].long()
    called = module if kind in ("layoutlm", "layoutlmv3") else second
    code_TD = difference(called, [*tables.values()], ids, boxes)
    pos_T5 = np.concatenate([np.arange(5, dtype=np.int32)[:, None], BOXES_T4], axis=1)
    params = {name: table.detach() for name, table in tables.items()}
    return Added(fields, pos_T5, code_TD, params)


def udop(cls) -> Added:
    """UDOP's tables of the sides of boxes, which are shares of the page, some outside of it."""
    fields = {"d_model": 16, "max_2d_position_embeddings": 31, "is_encoder_decoder": True}
    module = module_of(cls, "UdopCellEmbeddings")(31, 16).eval()
    box_T4 = (BOXES_T4 - 3).astype(np.float32) / 25
    tables = {"x": module.x_position_embeddings.weight, "y": module.y_position_embeddings.weight}
    with torch.no_grad():
        for seed, table in enumerate(tables.values()):
            table.copy_(normal(*table.shape, seed=seed))
        code_TD = module(torch.tensor(box_T4)[None])[0]
    pos_T5 = np.concatenate([np.arange(5, dtype=np.float32)[:, None], box_T4], axis=1)
    return Added(fields, pos_T5, code_TD, {name: table.detach() for name, table in tables.items()})


def words(table: str, name: str, part: str, **fields: Any) -> Callable:
    """The table that a module of text reads, of a model of pictures and text."""

    def added(cls) -> Added:
        config = cls(**SMALL_WORDS | fields)
        module = module_of(cls, name)(config).eval()
        for attribute in ("LayerNorm", "layer_norm"):
            if hasattr(module, attribute):
                setattr(module, attribute, torch.nn.Identity())
        weight = getattr(module, table).weight
        ids = torch.ones(1, 7, dtype=torch.long)
        types = {"token_type_ids": torch.zeros_like(ids)} if cls.model_type != "perceiver" else {}
        call = functools.partial(module, **types)
        code = difference(call, [weight], ids)
        params = {"table": weight.detach()}
        return Added(SMALL_WORDS | fields, np.arange(7, dtype=np.int32), code, params, part)

    return added


def vilt_picture(rows: int, columns: int) -> Callable:
    """ViLT's patches, which it puts into a random order, sorted."""

    def added(cls) -> Added:
        fields = SMALL_WORDS | {"image_size": 32, "patch_size": 8, "max_image_length": -1}
        module = module_of(cls, "ViltEmbeddings")(cls(**fields)).eval()
        table = module.position_embeddings
        pixels = normal(1, 3, 8 * rows, 8 * columns)
        mask = torch.ones(1, 8 * rows, 8 * columns, dtype=torch.long)
        chosen = mock.patch("torch.multinomial", lambda weights, count: torch.arange(count))
        with chosen:
            code = difference(lambda x: module.visual_embed(x, mask, -1), [table], pixels)
        params = {"table": table[0].detach()}
        image = (rows, columns)
        return Added(fields, grid(*image, prefix=1), code, params, "picture", image)

    return added


def tvp_picture(cls) -> Added:
    fields = SMALL_WORDS | {
        "max_grid_row_position_embeddings": 6, "max_grid_col_position_embeddings": 6,
    }  # fmt: skip
    module = module_of(cls, "TvpVisualInputEmbedding")(cls(**fields)).eval()
    module.layer_norm = torch.nn.Identity()
    tables = [module.row_position_embeddings.weight, module.col_position_embeddings.weight]
    code = difference(module, tables, normal(1, 2, 3, 4, 16))
    params = {"row": tables[0].detach(), "column": tables[1].detach()}
    return Added(fields, grid(3, 4), code, params, "picture")


def pvt(stage: int) -> Callable:
    """The Pyramid Vision Transformer's patches of a stage, from 0."""

    def added(cls) -> Added:
        fields = {
            "image_size": 64, "hidden_sizes": [8, 8, 16, 16], "num_attention_heads": [1, 1, 2, 2],
        }  # fmt: skip
        model = module_of(cls, "PvtModel")(cls(**fields)).eval()
        module = model.encoder.patch_embeddings[stage]
        side = 64 if not stage else 64 // 2 ** (stage + 1)
        patches = (64 // 4) >> stage
        table = module.position_embeddings
        channels = fields["hidden_sizes"][stage - 1] if stage else 3
        code = difference(module, [table], normal(1, channels, side, side))
        pos_T2 = grid(patches, patches, prefix=int(stage == 3))
        return Added(fields, pos_T2, code, {"table": table[0].detach()}, f"stage {stage + 1}")

    return added


def sam2_hiera(cls) -> Added:
    """A table of 3 x 3 that is resized to 8 x 12, and one of 4 x 4 that is repeated."""
    fields = {
        "image_size": [32, 48], "hidden_size": 8, "embed_dim_per_stage": [8, 16, 16, 16],
        "num_attention_heads_per_stage": [1, 1, 1, 1], "blocks_per_stage": [1, 1, 1, 1],
        "window_positional_embedding_background_size": [3, 3],
        "window_size_per_stage": [4, 4, 4, 4], "global_attention_blocks": [],
    }  # fmt: skip
    module = module_of(cls, "HieraDetModel")(cls(**fields)).eval()
    tables = [module.pos_embed, module.pos_embed_window]
    size = torch.zeros(2)
    code = difference(lambda x: module._get_pos_embed((8, 12)).flatten(1, 2), tables, size)
    rows = [table[0].detach().flatten(1).T for table in tables]
    params = {"table of pictures": rows[0], "table of windows": rows[1]}
    return Added(fields, grid(8, 12), code, params)


def radio(rows: int, columns: int) -> Callable:
    """RADIO's patches of a table of 8 x 8; its first ten tokens have no position."""

    def added(cls) -> Added:
        longer = max(rows, columns)
        fields = {
            "max_img_size": 32, "patch_size": 4, "patch_dim": 48, "hidden_size": 16,
            "image_size": 4 * longer, "num_attention_heads": 2,
        }  # fmt: skip
        module = module_of(cls, "RadioPatchEmbeddings")(cls(**fields)).eval()
        table = module.position_embedding
        code = difference(module, [table], normal(1, 3, 4 * rows, 4 * columns))[10:]
        return Added(fields, grid(rows, columns), code, {"table": table[0].detach()})

    return added


def hy_v4(rows: int, columns: int) -> Callable:
    """HunYuan 4's patches of a table of 4 x 4."""

    def added(cls) -> Added:
        fields = {"max_image_size": 16, "patch_size": 4, "hidden_size": 16}
        module = module_of(cls, "VisionPatchEmbed")(cls(**fields)).eval()
        weight = module.position_embedding.weight
        inputs = normal(rows * columns, 48), [[1, rows, columns]]
        code = difference(module, [weight], *inputs)
        image = None if (rows, columns) == (4, 4) else (rows, columns)
        return Added(fields, grid(rows, columns), code, {"table": weight.detach()}, None, image)

    return added


def mllama(later: bool) -> Callable:
    """Llama 3.2's tiles of 2 x 2 patches, of pictures of one and of three tiles; what is added to
    tokens before its first layers, or before the later ones.
    """

    def added(cls) -> Added:
        fields = {
            "image_size": 8, "patch_size": 4, "hidden_size": 16, "attention_heads": 2,
            "max_num_tiles": 3, "supported_aspect_ratios": [[1, 1], [1, 3]],
        }  # fmt: skip
        config = cls(**fields)
        table = module_of(cls, "PrecomputedPositionEmbedding")(config)
        tile = module_of(cls, "PrecomputedAspectRatioEmbedding")(config, is_gated=True)
        for seed, parameter in enumerate((*table.parameters(), *tile.parameters())):
            parameter.data = normal(*parameter.shape, seed=seed)
        kinds, zeros_BMTD = torch.tensor([[1], [2]]), torch.zeros(2, 3, 5, 16)
        with torch.no_grad():
            if later:
                code = tile(zeros_BMTD, kinds)
            else:
                patches = tile(zeros_BMTD[:, :, 1:], kinds)
                code = table(torch.cat([zeros_BMTD[:, :, :1], patches], 2), kinds)
        pos_BT3 = np.indices((2, 3, 5)).reshape(3, -1).T + np.array([1, 0, 0])
        params = {"tile": tile.embedding.weight.reshape(3, 3, 16), "tile_gate": tile.gate}
        if not later:
            by_tile = table.tile_embedding.weight.reshape(3, 3, 5, 16)
            params |= {"table": table.embedding, "by_tile": by_tile, "gate": table.gate}
        part = "global_transformer" if later else "transformer"
        frozen = {name: x.detach() for name, x in params.items()}
        return Added(fields, pos_BT3.astype(np.int32), code.reshape(-1, 16), frozen, part)

    return added


def detr(part: str) -> Callable:
    """The sines of a picture of 3 x 4 patches that DETR and its kin add to queries and keys."""

    def added(cls) -> Added:
        module = module_of(cls, "SinePositionEmbedding")
        fields: dict[str, Any] = {}
        pixels, mask = torch.zeros(1, 8, 3, 4), torch.ones(1, 3, 4)
        if "config" in (taken := inspect.signature(module).parameters):
            fields = {"d_model": 16, "hidden_size": 16}
            code = module(cls(**fields))(pixels, mask)
        elif "embedding_dim" in taken:  # Table Transformer
            code = module(8, normalize=True)(pixels, mask)
        else:
            code = module(8, normalize=True)(pixels.shape, "cpu", torch.float32)
        return Added(fields, grid(3, 4), code[0].flatten(1).T, {}, part)

    return added


def rt_detr(cls) -> Added:
    """The sines of a picture of 3 x 4 patches in RT-DETR's encoder."""
    module = module_of(cls, "SinePositionEmbedding")(16, 50.0)
    code = module(width=4, height=3, device=torch.device("cpu"), dtype=torch.float32)
    fields = {"positional_encoding_temperature": 50.0}
    return Added(fields, grid(3, 4), code[0], {}, "model")


def omdet_turbo(cls) -> Added:
    """OmDet-Turbo's sines, of a square picture: of another one it mixes up rows and columns."""
    module = module_of(cls, "OmDetTurboHybridEncoder")
    code = module.build_2d_sincos_position_embedding(4, 4, 16, 50.0)
    fields = {"positional_encoding_temperature": 50.0}
    return Added(fields, grid(4, 4), code[0], {}, "model")


def yolos(cls) -> Added:
    """YOLOS's tokens: the class token, patches, and detection tokens."""
    fields = {
        "image_size": [24, 32], "patch_size": 8, "hidden_size": 16, "num_detection_tokens": 3,
        "use_mid_position_embeddings": False,
    }  # fmt: skip
    module = module_of(cls, "YolosEmbeddings")(cls(**fields)).eval()
    table = module.position_embeddings
    code = difference(module, [table], normal(1, 3, 24, 32))
    before_T2 = grid(0, 0, prefix=4)
    pos_T2 = np.concatenate([before_T2[:1], grid(3, 4), before_T2[1:]])
    rows = table[0].detach()
    return Added(fields, pos_T2, code, {"table": torch.cat([rows[:1], rows[13:], rows[1:13]])})


def swin(cls) -> Added:
    """The table of a Swin Transformer with `use_absolute_embeddings`."""
    fields = {
        "image_size": 16, "patch_size": 4, "embed_dim": 16, "window_size": 2, "depths": [1, 1],
        "num_heads": [2, 2], "use_absolute_embeddings": True,
    }  # fmt: skip
    module = module_of(cls, "SwinEmbeddings")(cls(**fields)).eval()
    table = module.position_embeddings
    code = difference(module, [table], normal(1, 3, 16, 16))
    return Added(fields, grid(4, 4), code, {"table": table[0].detach()})


def series(name: str, **fields: Any) -> Callable:
    """The vectors of the patches of a time series."""

    def added(cls) -> Added:
        config = cls(**fields)
        mixer = cls.model_type == "patchtsmixer"
        patches = (config.context_length - config.patch_length) // config.patch_stride + 1
        module = module_of(cls, name)(config, *([] if mixer else [patches])).eval()
        code = module.position_enc.detach()
        table = {"table": code} if fields["positional_encoding_type"] == "random" else {}
        return Added(fields, np.arange(len(code), dtype=np.int32), code, table)

    return added


def timesfm(cls) -> Added:
    fields = {"hidden_size": 16, "use_positional_embedding": True, "max_timescale": 100}
    code = module_of(cls, "TimesFmPositionalEmbedding")(cls(**fields))(9)[0]
    return Added(fields, np.arange(9, dtype=np.int32), code, {})


CONVOLVED = re.compile(r"(pos_conv_embed|^encode_positions)$")
SOUND = {
    "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8,
    "conv_dim": [8, 8], "conv_kernel": [5, 3], "conv_stride": [4, 2], "num_feat_extract_layers": 2,
    "num_conv_pos_embedding_groups": 4, "feat_extract_norm": "layer",
}  # fmt: skip


def multiplied(conv: torch.nn.Conv1d) -> torch.Tensor:
    """The weight of a convolution, g v / |v| if it is normalised for each step."""
    if not hasattr(conv, "parametrizations"):
        return conv.weight
    g, v = (getattr(conv.parametrizations.weight, f"original{n}") for n in (0, 1))
    return g * v / v.norm(dim=(0, 1), keepdim=True)


def convolution(
    padding: int = 0, name: str = "", part: str | None = None, **sizes: Any
) -> Callable:
    """What a model of sound adds by convolutions to the frames that it made of a waveform.

    padding: samples of padding after the sound; of its frames, nothing is noted.
    name:    the ending of the model's class, if it is not the one without a head.
    """

    def added(cls) -> Added:
        fields = SOUND | sizes
        model_class = module_of(cls, name) if name else small_models.model_class(cls)
        model = model_class(cls(**fields)).eval()
        module = next(m for n, m in model.named_modules() if CONVOLVED.search(n))
        notes: dict[str, torch.Tensor] = {}

        def before(called, args):
            """Notes the input of the convolution, and the next that a module of its size gets."""
            x = args[0] if args and torch.is_tensor(args[0]) else torch.zeros(())
            if called is module:
                notes["x"] = x.clone()
            elif "made" in notes and "out" not in notes and x.shape == notes["x"].shape:
                notes["out"] = x.clone()

        convs = [m for m in module.modules() if isinstance(m, torch.nn.Conv1d)]
        inputs = {"input_values": normal(1, 112 + padding)}
        if padding:
            inputs["attention_mask"] = (torch.arange(112 + padding) < 112)[None].long()
        if hasattr(model, "subsampling"):  # of a waveform with an axis of channels
            inputs["input_values"] = inputs["input_values"][:, None]
        hooks = [torch.nn.modules.module.register_module_forward_pre_hook(before)]
        hooks += [module.register_forward_hook(lambda *args: notes.update(made=args[2]))]
        with torch.no_grad():
            for n, parameter in enumerate(module.parameters()):
                parameter.copy_(0.5 * normal(*parameter.shape, seed=n + 1))
            model(**inputs)
            kernels = [multiplied(conv).detach().permute(2, 1, 0) for conv in convs]
        for hook in hooks:
            hook.remove()
        real_T = notes["x"][0].abs().sum(-1) > 0  # the model sets frames of padding to 0
        x_TD, out_TD = (notes[name][0, real_T] for name in ("x", "out"))
        biases = [conv.bias.detach() for conv in convs]
        params = {"kernel": torch.stack(kernels), "bias": torch.stack(biases)}
        names = "conv_pos|hidden_size|activation|stable|hidden_act"
        written = {name: value for name, value in fields.items() if re.search(names, name)}
        pos_T = np.arange(len(x_TD), dtype=np.int32)
        return Added(written, pos_T, out_TD - x_TD, params, part, x=x_TD)

    return added


def scaled_sines(name: str, part: str) -> Callable:
    """SpeechT5's sines times a learned factor."""

    def added(cls) -> Added:
        fields = {"hidden_size": 16, "positional_dropout": 0.0}
        module = module_of(cls, name)(cls(**fields)).eval().encode_positions
        module.alpha.data.fill_(1.7)
        with torch.no_grad():
            code_TD = module(torch.zeros(1, 9, 16))[0]
        pos_T = np.arange(9, dtype=np.int32)
        written = {"hidden_size": 16}
        return Added(written, pos_T, code_TD, {"factor": module.alpha.detach()}, part)

    return added


STABLE = convolution(do_stable_layer_norm=True, num_conv_pos_embeddings=6)
SMALL_WORDS = {
    "hidden_size": 16, "d_model": 16, "num_attention_heads": 2, "vocab_size": 5, "pad_token_id": 0,
    "max_position_embeddings": 12, "d_latents": 16,
}  # fmt: skip
SERIES = {"context_length": 20, "patch_length": 4, "patch_stride": 2, "d_model": 16}
POINTS = (
    "edgetam_prompt_encoder", "edgetam_video_prompt_encoder", "sam2_prompt_encoder",
    "sam2_video_prompt_encoder", "sam3_tracker_prompt_encoder",
    "sam3_tracker_video_prompt_encoder", "sam_hq_prompt_encoder", "sam_prompt_encoder",
)  # fmt: skip
ADDED: dict[str, dict[str, Callable[[Any], Added]]] = {
    **{kind: {"": points} for kind in POINTS},
    "aimv2_vision_model": {"": aimv2, "native": aimv2_native},
    "audio-spectrogram-transformer": {"": spectrogram},
    **{kind: {"": layoutlm} for kind in ("layoutlm", "layoutlmv2", "layoutlmv3", "layoutxlm")},
    "reformer": {"": reformer},
    "timesformer": {"": timesformer},
    "udop": {"": udop},
    "vilt": {
        "text": words("position_embeddings", "TextEmbeddings", "text"),
        "picture": vilt_picture(4, 4),
        "picture 3x5": vilt_picture(3, 5),
    },
    "tvp": {
        "text": words("position_embeddings", "TvpTextInputEmbeddings", "text"),
        "picture": tvp_picture,
    },
    "perceiver": {"": words("position_embeddings", "PerceiverTextPreprocessor", "text")},
    "pvt": {f"stage {n + 1}": pvt(n) for n in range(4)},
    "sam2_hiera_det_model": {"": sam2_hiera},
    "radio": {"": radio(6, 6), "3x6": radio(3, 6), "8x5": radio(8, 5)},
    "mllama_vision_model": {"": mllama(False), "later": mllama(True)},
    **{
        kind: {"": detr("model")}
        for kind in (
            "conditional_detr",
            "dab-detr",
            "deformable_detr",
            "detr",
            "grounding-dino",
            "mask2former",
            "maskformer",
            "mm-grounding-dino",
            "oneformer",
            "table-transformer",
        )
    },
    **{
        kind: {"": detr("neck")}
        for kind in ("edgetam_vision_model", "sam2_vision_model", "sam3_vision_model")
    },
    **{
        kind: {"": rt_detr}
        for kind in (
            "d_fine",
            "deimv2",
            "pp_doclayout_v2",
            "pp_doclayout_v3",
            "pp_doclayout_v4",
            "rt_detr",
            "rt_detr_v2",
        )
    },
    "omdet-turbo": {"": omdet_turbo},
    "yolos": {"": yolos},
    "hy_v4_vl_vision": {"": hy_v4(4, 4), "3x6": hy_v4(3, 6)},
    "swin": {"": swin},
    "patchtst": {
        kind: series("PatchTSTPositionalEncoding", positional_encoding_type=kind, **SERIES)
        for kind in ("sincos", "random")
    },
    "patchtsmixer": {
        kind: series(
            "PatchTSMixerPositionalEncoding",
            positional_encoding_type=kind,
            self_attn=True,
            use_positional_encoding=True,
            **SERIES,
        )
        for kind in ("sincos", "random")
    },
    "timesfm": {"": timesfm},
    **{
        kind: {"": convolution(num_conv_pos_embeddings=6), "stable": STABLE}
        for kind in ("hubert", "unispeech", "unispeech-sat", "wavlm")
    },
    "data2vec-audio": {
        "": convolution(conv_pos_kernel_size=5, num_conv_pos_embeddings=3),
        "even": convolution(conv_pos_kernel_size=4, num_conv_pos_embeddings=2),
    },
    "omniasr_audio": {"": convolution(num_conv_pos_embeddings=6)},
    "speecht5": {
        "sound": convolution(
            name="EncoderWithSpeechPrenet",
            part="speech_encoder",
            num_conv_pos_embeddings=6,
            encoder_layers=1,
            encoder_attention_heads=2,
            encoder_ffn_dim=8,
            decoder_layers=1,
            decoder_attention_heads=2,
            decoder_ffn_dim=8,
        ),
        "text": scaled_sines("SpeechT5TextEncoderPrenet", "text_encoder"),
        "made sound": scaled_sines("SpeechT5SpeechDecoderPrenet", "speech_decoder"),
    },
    "wav2vec2": {
        "": convolution(num_conv_pos_embeddings=6),
        "odd": convolution(num_conv_pos_embeddings=5, feat_extract_activation="gelu_new"),
        "padded": convolution(padding=40, num_conv_pos_embeddings=6),
        "stable": STABLE,
    },
    "vit_mae": {"": vit_mae},
    "vitpose_backbone": {"": vitpose},
    "vivit": {"": vivit},
}
