"""A process of scripts/bench.py that runs a peer in PyTorch."""

# pyright: reportMissingImports=false

import json
import sys

import torch
from bench_ours import serve
from torch.nn import functional

POSITIONS = {
    "nope": {},
    "sinusoidal": {"scaled_sinu_pos_emb": True},
    "rope": {"rotary_pos_emb": True},
    "alibi": {"alibi_pos_bias": True},
    "t5": {"rel_pos_bias": True},
}
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def x_transformers(job: dict) -> torch.nn.Module:
    """x-transformers' decoder of the same shape; `flash` is its switch for fused attention."""
    from x_transformers import Decoder, TransformerWrapper

    position = dict(POSITIONS[job["encoding"]])
    sinusoidal = position.pop("scaled_sinu_pos_emb", False)
    layers = Decoder(
        dim=job["width"], depth=job["layers"], heads=job["heads"],
        attn_dim_head=job["width"] // job["heads"], attn_flash=job["flash"], **position,
    )  # fmt: skip
    return TransformerWrapper(
        num_tokens=256, max_seq_len=job["length"], attn_layers=layers,
        use_abs_pos_emb=sinusoidal, scaled_sinu_pos_emb=sinusoidal,
    )  # fmt: skip


class Layer(torch.nn.Module):
    """A pre-norm layer on PyTorch's fused attention."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norms = torch.nn.ModuleList([torch.nn.LayerNorm(width) for _ in range(2)])
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.mlp = torch.nn.Sequential(
            torch.nn.Linear(width, 4 * width), torch.nn.GELU(), torch.nn.Linear(4 * width, width)
        )

    def forward(self, x):
        batch, time, width = x.shape
        split = lambda t: t.view(batch, time, self.heads, -1).transpose(1, 2)
        q, k, v = map(split, self.qkv(self.norms[0](x)).chunk(3, dim=-1))
        o = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(o.transpose(1, 2).reshape(batch, time, width))
        return x + self.mlp(self.norms[1](x))


def plain(job: dict) -> torch.nn.Module:
    """The same decoder written directly in PyTorch, without positions."""
    width = job["width"]
    return torch.nn.Sequential(
        torch.nn.Embedding(256, width),
        *(Layer(width, job["heads"]) for _ in range(job["layers"])),
        torch.nn.LayerNorm(width),
        torch.nn.Linear(width, 256),
    )


def step(job: dict):
    """`steps` training steps: forward, backward, clipped gradients, AdamW."""
    torch.manual_seed(0)
    model = (plain if job["peer"] == "pytorch" else x_transformers)(job).to(DEVICE)
    if job.get("compile"):
        model = torch.compile(model)
    adam = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    text = torch.randint(0, 256, (job["batch"], job["length"] + 1), device=DEVICE)

    def call():
        loss = torch.zeros(())
        for _ in range(job["steps"]):
            logits = model(text[:, :-1])
            loss = functional.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten())
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            adam.step()
            adam.zero_grad(set_to_none=True)
        assert torch.isfinite(loss).item()

    return (), call


def products(job: dict):
    """The matrix products of the same steps and nothing else; see bench_ours.py."""
    width, heads = job["width"], job["heads"]
    scale = (width // heads * job["length"]) ** 0.5  # values stay about 1
    draw = lambda shape: torch.randn(shape, device=DEVICE) / shape[0] ** 0.5
    normal = lambda *shape, by=1.0: (draw(shape) / by).requires_grad_()
    layers = [
        (normal(width, 3 * width), normal(width, width, by=scale), normal(width, 4 * width),
         normal(4 * width, width)) for _ in range(job["layers"])
    ]  # fmt: skip
    read_out, first = normal(width, 256), normal(job["batch"], job["length"], width)
    split = lambda t: t.view(*t.shape[:2], heads, -1).transpose(1, 2)

    def call():
        for _ in range(job["steps"]):
            x = first
            for qkv, out, up, down in layers:
                q, k, v = map(split, (x @ qkv).chunk(3, dim=-1))
                o = (q @ k.transpose(2, 3)) @ v
                x = o.transpose(1, 2).reshape(x.shape) @ out @ up @ down
            logits = x @ read_out
            logits.backward(torch.ones_like(logits))
            for leaf in (first, read_out, *(w for layer in layers for w in layer)):
                leaf.grad = None

    return (), call


def attention(job: dict):
    """Causal attention over one long sequence: flex_attention with a T5 bias, or with a mask."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    heads, head, time_ = job["heads"], job["head"], job["length"]
    q, k, v = torch.randn(3, 1, heads, time_, head, device=DEVICE).unbind()
    table = torch.randn(32, heads, device=DEVICE)

    def bucket(distance):
        near, distance = distance.clamp(min=0), distance.clamp(min=1)
        far = 16 + (torch.log(distance.float() / 16) / torch.log(torch.tensor(8.0)) * 16).long()
        return torch.where(near < 16, near, far.clamp(max=31))

    by_distance = table[bucket(torch.arange(time_, device=DEVICE))]
    if job["form"] == "mask":
        offset = torch.arange(time_, device=DEVICE)[:, None] - torch.arange(time_, device=DEVICE)
        bias = by_distance[offset.clamp(min=0)].permute(2, 0, 1)
        bias = bias.masked_fill(offset < 0, float("-inf"))[None]
        run = lambda: functional.scaled_dot_product_attention(q, k, v, attn_mask=bias)
    elif job["form"] == "none":
        run = lambda: functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    else:
        biased = lambda score, b, h, i, j: score + by_distance[(i - j).clamp(min=0), h]
        causal = lambda b, h, i, j: i >= j
        blocks = create_block_mask(causal, None, None, time_, time_, device=DEVICE)
        flex = torch.compile(flex_attention)
        run = lambda: flex(q, k, v, score_mod=biased, block_mask=blocks)

    def call():
        with torch.no_grad():
            run()
        if DEVICE == "cuda":
            torch.cuda.synchronize()

    return (), call


if __name__ == "__main__":
    job = json.loads(sys.argv[1])
    serve(job, {"step": step, "products": products, "attention": attention}[job["what"]])
