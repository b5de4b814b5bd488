"""Causal attention in PyTorch: flex_attention with a bias, and its own kernels without one."""

# pyright: reportMissingImports=false

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.nn import functional

from scripts.gpu.worker import Prepared, milliseconds, prepare

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def prepared(job: dict[str, Any]) -> Prepared:
    """One case for each way and length; see `scripts/bench_gpu.py` for the job."""
    return prepare(job, {
        f"{way}/{length}": lambda way=way, length=length: _case(job, way, length)
        for length in job["lengths"] for way in ("forward", "backward")
    })  # fmt: skip


def _case(job: dict[str, Any], way: str, length: int) -> Callable[[], float]:
    shape = max(1, job["tokens"] // length), job["heads"], length, job["head"]
    draw = partial(torch.randn, shape, device=DEVICE, dtype=torch.bfloat16)
    qkv, weight = [draw().requires_grad_(way == "backward") for _ in range(3)], draw()
    options = {"num_stages": 1} if job["bias"] == "t5" else None  # else out of shared memory
    run, learned = _flex(job, length, way, options) if job["bias"] else (_plain, [])

    def start():
        if way == "forward":
            with torch.no_grad():
                return run(*qkv)
        for leaf in (*qkv, *learned):
            leaf.grad = None
        run(*qkv).backward(weight)

    wait = lambda _: torch.cuda.synchronize() if DEVICE == "cuda" else None
    wait(start())
    return lambda: milliseconds(start, wait)


def _plain(q, k, v):
    return functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def _flex(job: dict[str, Any], length: int, way: str, options: dict[str, int] | None):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    slope = 2.0 ** (-8 * torch.arange(1, job["heads"] + 1, device=DEVICE) / job["heads"])
    by_distance = torch.randn(length, job["heads"], device=DEVICE)
    if job["bias"] == "t5":
        by_distance.requires_grad_(way == "backward")
        biased = lambda score, b, h, i, j: score + by_distance[(i - j).clamp(min=0), h]
    else:
        biased = lambda score, b, h, i, j: score - slope[h] * (i - j)
    causal = lambda b, h, i, j: i >= j
    seen = create_block_mask(causal, None, None, length, length, device=DEVICE)
    flex = torch.compile(flex_attention, dynamic=False)
    learned = [by_distance] if job["bias"] == "t5" and way == "backward" else []
    return lambda q, k, v: flex(
        q, k, v, score_mod=biased, block_mask=seen, kernel_options=options
    ), learned
