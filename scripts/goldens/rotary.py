"""Rotary methods: the rotated queries and keys."""

import functools
import sys
from collections.abc import Iterator
from typing import Any

import rotary_embedding_torch
import torch
from transformers import CohereConfig, GPTNeoXConfig, LlamaConfig
from transformers.models.cohere import modeling_cohere
from transformers.models.gpt_neox import modeling_gpt_neox
from transformers.models.gptj import modeling_gptj
from transformers.models.llama import modeling_llama
from x_transformers import x_transformers

from .golden import Golden, arrays, attended, count, drawn, lone_file, reset, weights

DEFAULT = {"rope_type": "default", "rope_theta": 1e4}


def turned(
    case, package, function, options, wrong, pos, heads, head, turn, turn_k=None, **inputs
) -> Golden:  # fmt: skip
    """Returns a golden of q and k [B, H, T, C] rotated by `turn`, or k by `turn_k`."""
    q, k = drawn(case, *pos.shape[:2], heads, head)
    turned_q = turn(q.transpose(1, 2)).transpose(1, 2)
    turned_k = (turn_k or turn)(k.transpose(1, 2)).transpose(1, 2)
    return Golden(
        case, package, function, "rotate", options, wrong, (heads * head, heads, head),
        arrays(pos=pos, q=q, k=k, **inputs), arrays(q=turned_q, k=turned_k),
    )  # fmt: skip


def hugging_face(case, module, config, options, wrong, pos) -> Golden:
    """Rotated by a module of transformers, and `apply_rotary_pos_emb` of the same model family.

    The module is given positions [1, T], or ids [3, 1, T] for `pos` [1, T, 3].
    """
    cos, sin = module(config)(torch.zeros(1), pos.permute(2, 0, 1) if pos.ndim == 3 else pos)
    rotate = sys.modules[module.__module__].apply_rotary_pos_emb
    heads = config.num_attention_heads
    return turned(
        case, "transformers", f"{module.__name__}, apply_rotary_pos_emb", options, wrong, pos,
        heads, config.hidden_size // heads, lambda x: rotate(x, x, cos, sin)[0],
    )  # fmt: skip


def x_rotary(case, function, options, wrong, pos, heads, **scaling) -> Golden:
    """Rotated by x-transformers, with heads of width 6."""
    freqs, _ = x_transformers.RotaryEmbedding(6, **scaling)(pos[0])
    return turned(
        case, "x-transformers", function, options, wrong, pos, heads, 6,
        lambda x: x_transformers.apply_rotary_pos_emb(x, freqs),
    )  # fmt: skip


def torch_rotary(case, function, options, wrong, pos, heads, **scaling) -> Golden:
    """Rotated by rotary-embedding-torch, with heads of width 8."""
    module = rotary_embedding_torch.RotaryEmbedding(8, **scaling)
    return turned(
        case, "rotary-embedding-torch", function, options, wrong, pos, heads, 8,
        lambda x: module.rotate_queries_or_keys(x, offset=int(pos[0, 0])),
    )  # fmt: skip


def llama(case, options, wrong, pos, head, parameters: dict[str, Any], length=64) -> Golden:
    """Llama with scaling `parameters`, of three heads, trained on `length` tokens."""
    config = LlamaConfig(
        hidden_size=3 * head, num_attention_heads=3, max_position_embeddings=length,
        rope_parameters={**DEFAULT, **parameters},
    )  # fmt: skip
    return hugging_face(case, modeling_llama.LlamaRotaryEmbedding, config, options, wrong, pos)


def rope() -> Iterator[Golden]:
    interleaved, half = {"pairing": "interleaved"}, {"pairing": "half"}
    yield llama("rope/llama", half, interleaved, count(7), 10, {})
    yield llama(
        "rope/llama far", half | {"base": 5e5}, {"base": 1e4}, count(5, 1000), 8,
        {"rope_theta": 5e5},
    )  # fmt: skip
    config = CohereConfig(hidden_size=12, num_attention_heads=2, rope_parameters=dict(DEFAULT))
    module = modeling_cohere.CohereRotaryEmbedding
    yield hugging_face("rope/cohere", module, config, interleaved, half, count(9))
    yield x_rotary(
        "rope/x-transformers", "RotaryEmbedding, apply_rotary_pos_emb",
        interleaved | {"base": 500.0}, half, count(5, 3), 3, base=500,
    )  # fmt: skip
    yield torch_rotary(
        "rope/rotary-embedding-torch", "RotaryEmbedding.rotate_queries_or_keys", interleaved,
        half, count(6, 11), 1,
    )  # fmt: skip


def partial() -> Iterator[Golden]:
    for share, head in ((0.25, 16), (0.5, 12)):
        config = GPTNeoXConfig(
            hidden_size=2 * head, num_attention_heads=2,
            rope_parameters={**DEFAULT, "partial_rotary_factor": share},
        )  # fmt: skip
        yield hugging_face(
            f"partial/gpt_neox {share}", modeling_gpt_neox.GPTNeoXRotaryEmbedding, config,
            {"share": share, "pairing": "half"}, {"pairing": "interleaved"}, count(7, 2),
        )  # fmt: skip
    sin, cos = (x[None] for x in modeling_gptj.create_sinusoidal_positions(6, 4).chunk(2, -1))

    def gptj(x):
        x = x.transpose(1, 2)
        front = modeling_gptj.apply_rotary_pos_emb(x[..., :4], sin, cos)
        return torch.cat([front, x[..., 4:]], dim=-1).transpose(1, 2)

    yield turned(
        "partial/gptj", "transformers", "gptj.apply_rotary_pos_emb",
        {"share": 0.4, "pairing": "interleaved"}, {"pairing": "half"}, count(6), 3, 10, gptj,
    )  # fmt: skip


def p_rope() -> Iterator[Golden]:
    for share, head in ((0.25, 16), (0.75, 10)):
        yield llama(
            f"p_rope/llama {share}", {"share": share}, {"share": 0.5}, count(9, 20), head,
            {"rope_type": "proportional", "partial_rotary_factor": share},
        )  # fmt: skip


def pope() -> Iterator[Golden]:
    for heads, head, base in ((3, 5, 1e4), (2, 8, 100.0)):
        case = f"pope/x-transformers {head}"
        module = reset(x_transformers.PolarEmbedding(head, heads, base=base), case)
        freqs, delta = module(count(7)[0])
        yield turned(
            case, "x-transformers", "PolarEmbedding, apply_polar_pos_emb", {"base": base},
            {"base": 2 * base}, count(7), heads, head,
            functools.partial(x_transformers.apply_polar_pos_emb, freqs=freqs),
            functools.partial(x_transformers.apply_polar_pos_emb, freqs=freqs + delta),
            params__0__delta_HC=module.learned_bias[:, 0],
        )  # fmt: skip


def xpos() -> Iterator[Golden]:
    """Weights, since implementations differ in the middle that the decay counts from."""
    heads_first = lambda x: x.transpose(1, 2)
    for head, span, time in ((8, 8, 11), (6, 5, 8)):
        module = x_transformers.RotaryEmbedding(head, use_xpos=True, scale_base=span)
        freqs, gain = module(torch.arange(time))
        turn = lambda x, gain, freqs=freqs: heads_first(
            x_transformers.apply_rotary_pos_emb(heads_first(x), freqs, gain)
        )
        q, k = drawn("xpos", 1, time, 2, head)
        probs = weights(turn(q, gain), turn(k, gain**-1))
        yield decayed("x-transformers", "RotaryEmbedding(use_xpos)", span, q, k, probs)
    authors = lone_file("torchscale", "torchscale/component/xpos_relative_position.py")
    module = authors["XPOS"](8, scale_base=6)
    q, k = drawn("xpos torchscale", 1, 9, 1, 8)
    probs = weights(module(q[:, :, 0])[:, :, None], module(k[:, :, 0], downscale=True)[:, :, None])
    yield decayed("torchscale", "XPOS", 6, q, k, probs)


def decayed(package, function, span, q, k, probs) -> Golden:
    options = {"span": float(span), "pairing": "interleaved"}
    return attended(
        f"xpos/{package} {span}", package, function, options, {"span": 512.0}, q, k, probs
    )
