"""Causal attention in JAX: this library's, and `jax.nn`'s on cuDNN."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from posenc_jax import Dims, attend, frame, make
from posenc_jax.backends.target import compile_for
from posenc_jax.layout import full
from scripts.gpu.worker import Prepared, milliseconds, prepare

WAYS = "forward", "backward"


def prepared(job: dict[str, Any]) -> Prepared:
    """One case for each way and length; see `scripts/bench_gpu.py` for the job."""
    implementation = _ours if "method" in job else _jax_nn
    return prepare(job, {
        f"{way}/{length}": lambda way=way, length=length: _case(implementation, job, way, length)
        for length in job["lengths"] for way in WAYS
    })  # fmt: skip


def _case(
    implementation: Callable, job: dict[str, Any], way: str, length: int
) -> Callable[[], float]:
    shape = max(1, job["tokens"] // length), length, job["heads"], job["head"]
    qkv = jax.random.normal(jax.random.key(1), (3, *shape), jnp.bfloat16)
    forward, learned = implementation(job, *shape)
    weight_BTHC = jax.random.normal(jax.random.key(2), shape, jnp.bfloat16)

    def loss(learned, q, k, v):
        return (forward(learned, q, k, v) * weight_BTHC).astype(jnp.float32).sum()

    run = jax.jit(jax.grad(loss, argnums=(0, 1, 2, 3)) if way == "backward" else forward)
    target = partial(compile_for, "gpu", kernel=job.get("kernel", ""))
    with target():
        jax.block_until_ready(run(learned, *qkv))

    def measure():
        with target():
            return milliseconds(lambda: run(learned, *qkv), jax.block_until_ready)

    return measure


def _ours(job: dict[str, Any], batch: int, length: int, heads: int, head: int):
    encoding, dims = make(job["method"], **job.get("options", {})), Dims(heads * head, heads, head)

    def forward(params, q, k, v):
        view = frame(encoding, params, full(batch, length), dims, form=job["form"])
        x_BTD = jnp.zeros((batch, length, dims.model), q.dtype)
        return attend(q, k, v, view.layer(0, x_BTD))

    return forward, encoding.init(jax.random.key(0), dims)


def _jax_nn(job: dict[str, Any], batch: int, length: int, heads: int, head: int):
    """Its bias is an array that is made before, of [1, H, T, T]."""
    bias = None
    if job["bias"]:
        offset_QK = jnp.arange(length)[None] - jnp.arange(length)[:, None]
        slope_H = 2.0 ** (-8 * jnp.arange(1, heads + 1) / heads)
        by_head = lambda slope: (slope * offset_QK).astype(jnp.bfloat16)
        bias = jax.block_until_ready(jax.jit(lambda: jax.lax.map(by_head, slope_H)[None])())

    def forward(_, q, k, v):
        return jax.nn.dot_product_attention(
            q, k, v, bias=bias, is_causal=True, implementation=job["implementation"]
        )

    return forward, ()
