"""Methods at the model's input: the code that is added to the embeddings."""

import math
from collections.abc import Iterator

import positional_encodings.torch_encodings as positional_encodings
import torch
from transformers.models.detr import modeling_detr
from transformers.models.m2m_100 import modeling_m2m_100
from transformers.models.marian import modeling_marian
from transformers.models.opt import modeling_opt
from transformers.models.vit_mae import modeling_vit_mae
from x_transformers import x_transformers

from .golden import Golden, arrays, count, grid, reset


def coded(case, package, function, options, wrong, pos, code, **params) -> Golden:
    """Returns a golden of a code [T, D] or [1, T, D]."""
    width = code.shape[-1]
    return Golden(
        case, package, function, "embed", options, wrong, (width, 1, width),
        arrays(pos=pos, **params), arrays(code=code.reshape(1, -1, width)),
    )  # fmt: skip


def sinusoidal() -> Iterator[Golden]:
    make = modeling_m2m_100.M2M100SinusoidalPositionalEmbedding.get_embedding
    fairseq = {"pairing": "half", "spacing": "tensor2tensor"}
    for width, time in ((10, 7), (13, 5)):
        yield coded(
            f"sinusoidal/m2m_100 {width}", "transformers",
            "M2M100SinusoidalPositionalEmbedding.get_embedding", fairseq, {"spacing": "paper"},
            count(time), make(time, width),
        )  # fmt: skip
    module = modeling_m2m_100.M2M100SinusoidalPositionalEmbedding(8, 6, padding_idx=0)
    yield coded(
        "sinusoidal/m2m_100 from one", "transformers",
        "M2M100SinusoidalPositionalEmbedding.forward(padding_idx=0)", fairseq | {"start": 1},
        {"start": 0}, count(5), module(torch.ones((1, 5), dtype=torch.int64)),
    )  # fmt: skip
    module = modeling_marian.MarianSinusoidalPositionalEmbedding(9, 12)
    yield coded(
        "sinusoidal/marian", "transformers", "MarianSinusoidalPositionalEmbedding",
        {"pairing": "half"}, {"spacing": "tensor2tensor"}, count(9), module.create_weight(),
    )  # fmt: skip
    module = positional_encodings.PositionalEncoding1D(10)
    yield coded(
        "sinusoidal/positional-encodings", "positional-encodings", "PositionalEncoding1D",
        {}, {"pairing": "half"}, count(11), module(torch.zeros(1, 11, 10)),
    )  # fmt: skip
    module = x_transformers.ScaledSinusoidalEmbedding(6, theta=300)
    yield coded(
        "sinusoidal/x-transformers", "x-transformers", "ScaledSinusoidalEmbedding",
        {"pairing": "half", "base": 300.0, "scale": 1.0}, {"base": 1e4}, count(8),
        module(torch.zeros(1, 8)), params__scale=module.scale[0],
    )  # fmt: skip


def sinusoidal_2d() -> Iterator[Golden]:
    make = modeling_vit_mae.build_2d_sinusoidal_position_embedding
    for rows, columns, width in ((3, 5, 8), (4, 2, 20)):
        yield coded(
            f"sinusoidal_2d/vit_mae {width}", "transformers",
            "vit_mae.build_2d_sinusoidal_position_embedding", {}, {"pairing": "interleaved"},
            grid(rows, columns), make(rows, columns, width),
        )  # fmt: skip
    module = positional_encodings.PositionalEncoding2D(12)
    yield coded(
        "sinusoidal_2d/positional-encodings", "positional-encodings", "PositionalEncoding2D",
        {"pairing": "interleaved"}, {"pairing": "half"}, grid(4, 3),
        module(torch.zeros(1, 4, 3, 12)),
    )  # fmt: skip
    module = modeling_detr.DetrSinePositionEmbedding(6, normalize=True)
    code = module(torch.Size([1, 1, 3, 4]), "cpu", torch.float32)[0].permute(1, 2, 0)
    pos = (grid(3, 4) + 1) / (torch.tensor([[[3.0, 4.0]]]) + 1e-6) * 2 * math.pi
    yield coded(
        "sinusoidal_2d/detr", "transformers", "DetrSinePositionEmbedding(normalize=True)",
        {"pairing": "interleaved"}, {"pairing": "half"}, pos, code,
    )  # fmt: skip


def learned() -> Iterator[Golden]:
    module = reset(x_transformers.AbsolutePositionalEmbedding(5, 9), "learned/x-transformers")
    yield coded(
        "learned/x-transformers", "x-transformers", "AbsolutePositionalEmbedding",
        {"length": 9}, {}, count(4, 2), module(torch.zeros(1, 4), offset=2),
        params__table=module.emb.weight * module.scale,
    )  # fmt: skip
    module = reset(modeling_opt.OPTLearnedPositionalEmbedding(11, 6), "learned/opt")
    yield coded(
        "learned/opt", "transformers", "OPTLearnedPositionalEmbedding", {"length": 11}, {},
        count(7), module(torch.ones((1, 7), dtype=torch.int64)), params__table=module.weight[2:],
    )  # fmt: skip


def learned_2d() -> Iterator[Golden]:
    for rows, columns, half in ((3, 5, 4), (2, 2, 3)):
        case = f"learned_2d/detr {half}"
        module = reset(modeling_detr.DetrLearnedPositionEmbedding(half), case)
        code = module(torch.Size([1, 1, rows, columns]), "cpu", torch.float32)[0].permute(1, 2, 0)
        yield coded(
            case, "transformers", "DetrLearnedPositionEmbedding", {"length": 50}, {},
            grid(rows, columns), code,
            params__row=module.row_embeddings.weight,
            params__column=module.column_embeddings.weight,
        )  # fmt: skip
