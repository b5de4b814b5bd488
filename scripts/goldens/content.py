"""Methods of position and content: the weights that attention sums values by."""

from collections.abc import Iterator

import torch
from timm.models import mvitv2
from torch.nn import functional
from transformers import (
    DebertaConfig,
    DebertaV2Config,
    SamVisionConfig,
    SeamlessM4Tv2Config,
    XLNetConfig,
)
from transformers.models.deberta import modeling_deberta
from transformers.models.deberta_v2 import modeling_deberta_v2
from transformers.models.sam import modeling_sam
from transformers.models.seamless_m4t_v2 import modeling_seamless_m4t_v2
from transformers.models.xlnet import modeling_xlnet
from x_transformers import attend, x_transformers

from .golden import Golden, attended, drawn, grid, lone_file, normal, projected, reset, weights


def shaw() -> Iterator[Golden]:
    """Vectors shared by all heads, read by key minus query."""
    for distance, heads, head, time in ((2, 2, 6, 7), (4, 3, 4, 11)):
        case = f"shaw/seamless_m4t_v2 {distance}"
        config = SeamlessM4Tv2Config(
            hidden_size=heads * head, speech_encoder_attention_heads=heads,
            position_embeddings_type="relative_key", left_max_position_embeddings=distance,
            right_max_position_embeddings=distance, attn_implementation="eager",
        )  # fmt: skip
        module = modeling_seamless_m4t_v2.SeamlessM4Tv2ConformerSelfAttention(config)
        reset(module, case)
        x = normal(case, 1, time, heads * head)
        _, probs = module(x)
        q, k = projected(x, heads, module.linear_q, module.linear_k)
        keys = module.distance_embedding.weight.flip(0)
        yield attended(
            case, "transformers", "SeamlessM4Tv2ConformerSelfAttention", {"distance": distance},
            {}, q, k, probs, causal=False,
            params__0__keys=keys[None].repeat(heads, 1, 1),
        )  # fmt: skip


def transformer_xl() -> Iterator[Golden]:
    """XLNet's layer, which kept the formula; with memory the queries are the last tokens."""
    for heads, head, queries, keys, causal in ((2, 6, 7, 7, False), (3, 4, 4, 9, True)):
        case = f"transformer_xl/xlnet {keys}"
        config = XLNetConfig(d_model=heads * head, n_head=heads, n_layer=1, d_inner=4, vocab_size=9)
        model = reset(modeling_xlnet.XLNetModel(config), case)
        layer = model.layer[0].rel_attn
        q, k, v = drawn(case, 1, keys, heads, head, names="qkv")
        q, late = q[:, :queries], torch.ones(queries, keys).triu(keys - queries + 1)
        r = torch.einsum(
            "tbd,dhc->tbhc", model.relative_positional_encoding(queries, keys, bsz=1), layer.r
        )
        _, probs = layer.rel_attn_core(
            *(x.transpose(0, 1) for x in (q, k, v)), r, output_attentions=True,
            attn_mask=late[:, :, None, None] if causal else None,
        )  # fmt: skip
        yield attended(
            case, "transformers", "XLNetRelativeAttention.rel_attn_core", {}, {}, q, k,
            probs.permute(2, 3, 0, 1), causal=causal, params__w__0=layer.r,
            params__u=layer.r_w_bias, params__v=layer.r_r_bias,
        )  # fmt: skip


def deberta() -> Iterator[Golden]:
    """Both versions read position to content by query minus key."""
    for family, config_of, buckets, distance, time in (
        (modeling_deberta_v2, DebertaV2Config, 4, 9, 13),
        (modeling_deberta_v2, DebertaV2Config, 6, 12, 7),
        (modeling_deberta, DebertaConfig, 0, 4, 9),
    ):
        heads, head = 2, 6
        case = f"deberta/{family.__name__.split('.')[-2]} {buckets} {distance}"
        config = config_of(
            hidden_size=12, num_attention_heads=heads, relative_attention=True,
            pos_att_type=["c2p", "p2c"], position_buckets=buckets, share_att_key=False,
            max_relative_positions=distance,
        )  # fmt: skip
        module = reset(family.DisentangledSelfAttention(config), case)
        table, x = normal(f"{case} table", 2 * (buckets or distance), 12), normal(case, 1, time, 12)
        if buckets:
            key_of, query_of = module.pos_key_proj, module.pos_query_proj
            key_of.bias.zero_()
            q, k = projected(x, heads, module.query_proj, module.key_proj)
            rows = family.build_relative_position(x, x, buckets, distance)
        else:
            key_of, query_of = module.pos_proj, module.pos_q_proj
            module.q_bias.zero_()
            q, k, _ = module.in_proj(x).reshape(1, time, heads, 3 * head).chunk(3, -1)
            rows = family.build_relative_position(x, x)
        query_of.bias.zero_()
        _, probs = module(
            x, torch.ones(1, 1, time, time), True, relative_pos=rows, rel_embeddings=table
        )
        options = {"buckets": buckets, "distance": distance, "flipped": False}
        yield attended(
            case, "transformers", f"{family.__name__.split('.')[-2]}.DisentangledSelfAttention",
            options, {"flipped": True}, q, k, probs, causal=False, params__table=table,
            params__keys__0=key_of.weight.T.reshape(12, heads, head),
            params__queries__0=query_of.weight.T.reshape(12, heads, head),
        )  # fmt: skip


def cope() -> Iterator[Golden]:
    for length, heads, head, time in ((3, 2, 6, 9), (5, 3, 4, 12)):
        case = f"cope/x-transformers {length}"
        module = reset(x_transformers.CoPE(head, heads, length), case)
        layer = attend.Attend(heads=heads, causal=True, cope=module)
        q, k = drawn(case, 1, time, heads, head)
        _, intermediates = layer(*(x.transpose(1, 2) for x in (q, k, k)))
        yield attended(
            case, "x-transformers", "Attend(cope=CoPE)", {"length": length, "scaled": False},
            {"scaled": True}, q, k, intermediates.post_softmax_attn,
            params__0__table=module.pos_emb,
        )  # fmt: skip


def fox() -> Iterator[Golden]:
    naive = lone_file("fla-core", "fla/ops/forgetting_attn/naive.py")["naive_forgetting_attn"]
    for package, heads, head, time in (("fla-core", 2, 4, 9), ("x-transformers", 3, 5, 7)):
        case = f"fox/{package}"
        q, k = drawn(case, 1, time, heads, head)
        x, gate = normal(case, 1, time, heads * head), torch.nn.Linear(heads * head, heads)
        if package == "fla-core":
            function, g = "naive_forgetting_attn", functional.logsigmoid(reset(gate, case)(x))
            probs = naive(q, k, units(time, heads), g).permute(0, 2, 1, 3)
        else:
            function = "DataDependentAlibi"
            module = reset(x_transformers.DataDependentAlibi(heads * head, heads), case)
            gate, probs = module.to_forget_gates[0], weights(q, k, module(x))
        yield attended(
            case, package, function, {}, {}, q, k, probs, x=x,
            params__0__gate=gate.weight.T, params__0__gate_bias=gate.bias,
        )  # fmt: skip


def units(time: int, heads: int) -> torch.Tensor:
    """Values [1, T, H, T] whose weighted sum is the weights."""
    return torch.eye(time)[None, :, None].repeat(1, 1, heads, 1)


def path() -> Iterator[Golden]:
    """Given directions and strengths, as the layer of the same package makes them."""
    naive = lone_file("fla-core", "fla/ops/path_attn/naive.py")["naive_path_attn"]
    for heads, head, rank, time, chunk in ((2, 6, 3, 9, 4), (3, 4, 5, 13, 16)):
        case = f"path/fla {time}"
        q, k = drawn(case, 1, time, heads, head)
        x, width = normal(case, 1, time, heads * head), heads * head
        down, up = normal(f"{case} down", width, rank), normal(f"{case} up", rank, width)
        beta = reset(torch.nn.Linear(width, heads), case)
        w = functional.normalize((x @ down @ up).reshape(1, time, heads, head), dim=-1)
        probs = naive(
            q, k, units(time, heads), w, 2 * beta(x).sigmoid(), torch.zeros(1, time, heads),
            head**-0.5, chunk,
        )  # fmt: skip
        yield attended(
            case, "fla-core", "naive_path_attn", {"rank": rank}, {}, q, k,
            probs.permute(0, 2, 1, 3), x=x, params__0__down=down,
            params__0__up=up.reshape(rank, heads, head), params__0__beta=beta.weight.T,
            params__0__beta_bias=beta.bias,
        )  # fmt: skip


def stick_breaking() -> Iterator[Golden]:
    naive = lone_file("fla-core", "fla/ops/stickbreaking_attn/naive.py")["naive_stickbreaking_attn"]
    for sees_itself, heads, head, time in ((False, 2, 6, 9), (True, 3, 4, 6)):
        q, k = drawn("stick_breaking", 1, time, heads, head)
        probs, _ = naive(q, k, units(time, heads), attend_current=sees_itself)
        yield attended(
            f"stick_breaking/fla {sees_itself}", "fla-core", "naive_stickbreaking_attn",
            {"own": sees_itself}, {"own": not sees_itself}, q, k, probs.permute(0, 2, 1, 3),
        )  # fmt: skip


def wall() -> Iterator[Golden]:
    """With torch's cumulative sum in place of the package's kernel for GPUs."""
    naive = lone_file("fla-core", "fla/ops/wall_attn/naive.py")["naive_wall_attn"]
    naive.__globals__["chunk_global_cumsum"] = lambda g, cu_seqlens, scale: g.cumsum(1) * scale
    for heads, head, time in ((2, 6, 9), (3, 4, 20)):
        case = f"wall/fla {time}"
        q, k = drawn(case, 1, time, heads, head)
        x, width = normal(case, 1, time, heads * head), heads * head
        gate = reset(torch.nn.Linear(width, width), case)
        g = functional.logsigmoid(gate(x)).reshape(1, time, heads, head)
        probs = naive(q, k, units(time, heads), g, scale=head**-0.5)
        yield attended(
            case, "fla-core", "naive_wall_attn", {}, {}, q, k, probs.permute(0, 2, 1, 3), x=x,
            params__0__gate=gate.weight.T.reshape(width, heads, head),
            params__0__gate_bias=gate.bias.reshape(heads, head),
        )  # fmt: skip


def fox_rows() -> Iterator[Golden]:
    for heads, head, time, small in ((2, 6, 9, 8), (3, 4, 12, 5)):
        case = f"fox_rows/x-transformers {time}"
        width = heads * head
        module = x_transformers.PerRowDataDependentAlibi(width, heads, dim_head=small)
        reset(module, case)
        q, k = drawn(case, 1, time, heads, head)
        x = normal(case, 1, time, width)
        readers, keepers = module.to_forget_gates[0].weight.reshape(2, heads, small, width)
        yield attended(
            case, "x-transformers", "PerRowDataDependentAlibi", {"width": small}, {}, q, k,
            weights(q, k, module(x)), x=x, params__0__readers=readers.permute(2, 0, 1),
            params__0__keepers=keepers.permute(2, 0, 1),
        )  # fmt: skip


def content_bias() -> Iterator[Golden]:
    """Fewer distances than tokens, and more; with earlier keys the queries are the last tokens."""
    for curves, distance, heads, head, queries, keys in ((3, 4, 2, 6, 9, 9), (5, 16, 3, 4, 4, 11)):
        case = f"content_bias/x-transformers {distance}"
        width = heads * head
        module = x_transformers.RelativeProjPositionalBias(width, heads, curves, distance)
        reset(module, case)
        q, k = drawn(case, 1, keys, heads, head)
        q, x = q[:, keys - queries :], normal(case, 1, keys, width)
        linear = module.to_distance_weights[0]
        yield attended(
            case, "x-transformers", "RelativeProjPositionalBias",
            {"curves": curves, "distance": distance}, {}, q, k,
            weights(q, k, module(x[:, keys - queries :], seq_len_k=keys)), x=x,
            params__0__weight=linear.weight.T.reshape(width, heads, curves),
            params__0__weight_bias=linear.bias.reshape(heads, curves),
            params__0__curves=module.distance_bank,
        )  # fmt: skip


def decomposed() -> Iterator[Golden]:
    """Both add products with vectors that are not divided by sqrt(C)."""
    side, heads, head = 3, 2, 6
    case, width = "decomposed/transformers", heads * head
    config = SamVisionConfig(hidden_size=width, num_attention_heads=heads, use_rel_pos=True)
    module = reset(modeling_sam.SamVisionAttention(config, window_size=side), case)
    x = normal(case, 1, side * side, width)
    _, probs = module(x.reshape(1, side, side, width))
    q, k, _ = module.qkv(x).reshape(1, side * side, 3, heads, head).unbind(2)
    yield attended(
        case, "transformers", "SamVisionAttention", {"window": side}, {}, q, k,
        probs.reshape(1, heads, side * side, side * side), causal=False, pos=grid(side, side),
        params__0__rows=module.rel_pos_h, params__0__columns=module.rel_pos_w,
    )  # fmt: skip
    case, rows, columns, heads, head = "decomposed/timm", 4, 3, 3, 4
    q, k = drawn(case, 1, rows * columns, heads, head)
    tables = [normal(f"{case} {name}", 2 * rows - 1, head) for name in ("rows", "columns")]
    first = q.transpose(1, 2)
    s = head**-0.5 * first @ k.permute(0, 2, 3, 1)
    # Its table of columns begins at the offset -(columns - 1), ours at -(window - 1).
    s = mvitv2.cal_rel_pos_type(
        s, first, False, [rows, columns], [rows, columns], tables[0], tables[1][rows - columns :]
    )
    yield attended(
        case, "timm", "mvitv2.cal_rel_pos_type", {"window": rows}, {}, q, k, s.softmax(-1),
        causal=False, pos=grid(rows, columns), params__0__rows=tables[0],
        params__0__columns=tables[1],
    )  # fmt: skip
