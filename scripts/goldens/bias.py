"""Relative methods: the bias that is added to the logits, or the attention weights with it."""

import types
from collections.abc import Iterator

import timm.layers
import torch
from transformers import Swinv2Config, T5Config, masking_utils
from transformers.models.bloom import modeling_bloom
from transformers.models.esm import modeling_esmfold
from transformers.models.mpt import modeling_mpt
from transformers.models.swin import modeling_swin
from transformers.models.swinv2 import modeling_swinv2
from transformers.models.t5 import modeling_t5
from x_transformers import x_transformers

from .golden import Golden, arrays, attended, count, drawn, grid, normal, projected, reset, weights


def biased(case, package, function, options, wrong, pos, bias, **inputs) -> Golden:
    """Returns a golden of a bias [H, Q, K]."""
    heads = bias.shape[0]
    return Golden(
        case, package, function, "bias", options, wrong, (8 * heads, heads, 8),
        arrays(pos=pos, **inputs), arrays(bias=bias[None]),
    )  # fmt: skip


def clipped() -> Iterator[Golden]:
    """ESMFold's table is read by key minus query, after a row for masked pairs."""
    for bins, heads, time in ((3, 2, 9), (5, 3, 4)):
        case = f"clipped/esmfold {bins}"
        config = types.SimpleNamespace(position_bins=bins, pairwise_state_dim=heads)
        module = reset(modeling_esmfold.EsmFoldRelativePosition(config), case)
        bias = module(count(time, 7))[0].permute(2, 0, 1)
        yield biased(
            case, "transformers", "EsmFoldRelativePosition", {"distance": bins},
            {}, count(time, 7), bias,
            params__0__table=module.embedding.weight[1:].flip(0),
        )  # fmt: skip


def t5() -> Iterator[Golden]:
    """Two queries, near the start and far out, and keys on both sides of them."""
    q_pos = torch.tensor([[0, 150]])
    for bidirectional, buckets, distance, heads in (
        (True, 32, 128, 2), (False, 32, 128, 3), (True, 20, 50, 3), (False, 9, 100, 1),
    ):  # fmt: skip
        case = f"t5/t5 {bidirectional} {buckets} {distance}"
        config = T5Config(
            d_model=8 * heads, d_kv=8, num_heads=heads, is_decoder=not bidirectional,
            relative_attention_num_buckets=buckets, relative_attention_max_distance=distance,
        )  # fmt: skip
        module = modeling_t5.T5Attention(config, has_relative_attention_bias=True, layer_idx=0)
        reset(module, case)
        options = {"buckets": buckets, "distance": distance, "bidirectional": bidirectional}
        yield biased(
            case, "transformers", "T5Attention.compute_bias", options,
            {"distance": 2 * distance}, count(300), module.compute_bias(300, 300)[0][:, q_pos[0]],
            q_pos=q_pos, params__table=module.relative_attention_bias.weight,
        )  # fmt: skip
    yield t5_weights()
    case = "t5/x-transformers"
    module = reset(x_transformers.RelativePositionBias(1.0, True, 16, 40, heads=3), case)
    yield biased(
        case, "x-transformers", "RelativePositionBias",
        {"buckets": 16, "distance": 40, "bidirectional": False}, {"distance": 80}, count(60),
        module(60, 60)[:, [3, 59]], q_pos=torch.tensor([[3, 59]]),
        params__table=module.relative_attention_bias.weight,
    )  # fmt: skip


def t5_weights() -> Golden:
    """A whole attention of T5, which does not divide its logits."""
    case, heads, head, time = "t5/t5 weights", 2, 5, 9
    config = T5Config(d_model=6, d_kv=head, num_heads=heads, attn_implementation="eager")
    module = modeling_t5.T5Attention(config, has_relative_attention_bias=True, layer_idx=0)
    x = normal(case, 1, time, 6)
    _, _, probs = reset(module, case)(x)
    q, k = projected(x, heads, module.q, module.k)
    return attended(
        case, "transformers", "T5Attention", {"scaled": False}, {"scaled": True}, q, k, probs,
        causal=False, params__table=module.relative_attention_bias.weight,
    )  # fmt: skip


def alibi() -> Iterator[Golden]:
    for heads, time in ((8, 5), (3, 4)):
        module = x_transformers.AlibiPositionalBias(heads)
        yield biased(
            f"alibi/x-transformers {heads}", "x-transformers", "AlibiPositionalBias", {}, {},
            count(time, 4), module(time, time),
        )  # fmt: skip
    # Biases of the key's position alone, the same as ours after a causal softmax.
    for heads in (4, 6):
        q, k = drawn("alibi", 1, 9, heads, 4)
        bloom = modeling_bloom.build_alibi_tensor(torch.ones(1, 9), heads, torch.float32)
        mpt = modeling_mpt.build_mpt_alibi_tensor(heads, 9)
        for family, bias in (("bloom.build_alibi_tensor", bloom), ("build_mpt_alibi_tensor", mpt)):
            yield attended(
                f"alibi/{family} {heads}", "transformers", family, {}, {}, q, k,
                weights(q, k, bias.reshape(1, heads, 1, 9)),
            )  # fmt: skip


def swin_2d() -> Iterator[Golden]:
    window = 3
    for package, name, module, heads in (
        ("transformers", "SwinRelativePositionBias", modeling_swin.SwinRelativePositionBias, 2),
        ("timm", "RelPosBias", timm.layers.RelPosBias, 3),
    ):
        case = f"swin_2d/{package}"
        bias_module = reset(module(window_size=(window, window), num_heads=heads), case)
        bias = (bias_module if package == "transformers" else bias_module.get_bias)()
        table = bias_module.relative_position_bias_table.reshape(
            2 * window - 1, 2 * window - 1, heads
        )
        yield biased(
            case, package, name, {"window": window}, {}, grid(window, window), bias[0],
            params__0__table=table,
        )  # fmt: skip


def mlp() -> Iterator[Golden]:
    """A window one row high, whose rows' offset of 0 is the network's other input."""
    for mode, reach, hidden, heads, time in (("swin", 5, 6, 2, 7), ("cr", None, 4, 3, 6)):
        case = f"mlp/timm {mode}"
        module = timm.layers.RelPosMlp(
            (1, time), heads, hidden, mode=mode, pretrained_window_size=(2, reach or 0)
        )
        reset(module, case)
        if mode == "cr":
            module.mlp.fc2.bias.zero_()
        yield biased(
            case, "timm", f"RelPosMlp(mode={mode!r})",
            {"reach": reach, "squash": mode == "swin", "hidden": hidden}, {"spacing": "linear"},
            count(time), module.get_bias()[0], params__0__w1=module.mlp.fc1.weight[:, 1],
            params__0__b1=module.mlp.fc1.bias, params__0__w2=module.mlp.fc2.weight.T,
        )  # fmt: skip


def swin_v2() -> Iterator[Golden]:
    """In a window of 3 x 4, pretrained at another; HF gives weights, of its cosine attention."""
    window, heads, trained = (3, 4), 3, 5
    case = "swin_v2/timm"
    module = timm.layers.RelPosMlp(
        window, heads, 6, mode="swin", pretrained_window_size=(trained, trained)
    )
    reset(module, case)
    yield biased(
        case, "timm", "RelPosMlp(mode='swin')", {"window": trained, "hidden": 6},
        {"window": trained + 1}, grid(*window), module.get_bias()[0],
        params__0__w1=module.mlp.fc1.weight.T, params__0__b1=module.mlp.fc1.bias,
        params__0__w2=module.mlp.fc2.weight.T,
    )  # fmt: skip
    case, window, heads, trained = "swin_v2/transformers", (4, 4), 2, 8
    module = modeling_swinv2.Swinv2SelfAttention(
        Swinv2Config(), 12, heads, window, pretrained_window_size=(trained, trained)
    )
    reset(module, case)
    first, _, last = module.continuous_position_bias_mlp
    last.weight.mul_(0.02)  # sums of 512 normal numbers would be rounded too far from ours
    module.logit_scale.zero_()
    x = normal(case, 1, 16, 12)
    _, probs = module(x, output_attentions=True)
    q, k = projected(x, heads, module.query, module.key)
    unit = torch.nn.functional.normalize
    yield attended(
        case, "transformers", "Swinv2SelfAttention", {"window": trained}, {"window": 9},
        unit(q, dim=-1) * 6**0.5, unit(k, dim=-1), probs, causal=False, pos=grid(*window),
        params__0__w1=first.weight.T, params__0__b1=first.bias, params__0__w2=last.weight.T,
    )  # fmt: skip


def window() -> Iterator[Golden]:
    for overlay, width, distance in (
        ("sliding_window_bidirectional_overlay", 3, 3), ("sliding_window_overlay", 3, 2),
    ):  # fmt: skip
        i, j = torch.meshgrid(count(7)[0], count(7)[0], indexing="ij")
        seen = getattr(masking_utils, overlay)(width)(0, 0, i, j)
        bias = torch.where(seen, 0.0, -torch.inf)
        q, k = drawn("window", 1, 7, 2, 4)
        causal = overlay == "sliding_window_overlay"
        yield attended(
            f"window/{overlay}", "transformers", f"masking_utils.{overlay}",
            {"distance": distance}, {"distance": distance + 1}, q, k,
            weights(q, k, bias, causal), causal=causal,
        )  # fmt: skip
