"""Every method's kernel: is it right on this GPU, or how long does it take?

Right is asked of sequences of `few` tokens, the second half padding: output and gradients, against
dense attention in float32. The error is |found - reference| / |reference|; beside that of dense
attention in the kernel's dtype it is what the kernel adds.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax import Dims, attend, encodings, frame
from posenc_jax.backends.target import compile_for
from posenc_jax.layout import Layout, layout
from scripts.accelerators.programs import encoding_of, layout_of, takes_form
from scripts.gpu.worker import Prepared, milliseconds, prepare

DTYPE = "bfloat16"
ZERO = 1e-5  # of the largest gradient's norm; a constant of all logits has no gradient
NOISE = 0.3  # what is added to parameters: many start where they do nothing


def prepared(job: dict[str, Any]) -> Prepared:
    """The errors of these methods, or the times of each way."""
    with compile_for("gpu"):
        names = [name for name in job["names"] if takes_form(name, "kernel")]
    if job["what"] == "errors":
        return prepare(job, {name: partial(_errors, job, name) for name in names})
    return prepare(job, {
        f"{name}/{way}": partial(_time, job, name, way)
        for name in names for way in ("forward", "backward")
    })  # fmt: skip


def _dims(job: dict[str, Any]) -> Dims:
    return Dims(job["heads"] * job["head"], job["heads"], job["head"], 1)


def _inputs(name: str, dims: Dims, batch: int, tokens: int) -> tuple:
    """Returns parameters, x, queries, keys, values and the gradient of the output, all drawn."""
    keys = iter(jax.random.split(jax.random.key(0), 64))
    noisy = lambda x: x + NOISE * jax.random.normal(next(keys), x.shape, x.dtype)
    params = encoding_of(name).init(next(keys), dims)
    params = jax.tree.map(
        lambda x: noisy(x) if jnp.issubdtype(x.dtype, jnp.floating) else x, params
    )
    shape = batch, tokens, dims.heads, dims.head
    draw = lambda shape: jax.random.normal(next(keys), shape, DTYPE)
    return params, draw((batch, tokens, dims.model)), *(draw(shape) for _ in range(4))


def _output(name: str, dims: Dims, at: Layout, form: str, params, x_BTD, q, k, v) -> jax.Array:
    view = frame(encoding_of(name), params, at, dims, form=form)  # pyright: ignore[reportArgumentType]
    return attend(q, k, v, view.layer(0, view.embed(x_BTD)))


def _errors(job: dict[str, Any], name: str) -> Callable[[], Any]:
    start = both_ways(name, _dims(job), job["few"], "gpu")
    reference = jax.device_get(start("reference")())
    errors = {form: distances(start(form)(), reference) for form in ("kernel", "dense")}
    return lambda: errors


def both_ways(
    name: str, dims: Dims, tokens: int, backend: str, kernel: str = ""
) -> Callable[[str], Callable[[], Any]]:
    """Returns a function that draws inputs for a form, compiles, and returns a call that computes.

    The call returns the output and all gradients of two sequences, of which one ends in padding;
    those of padding are 0. The form "reference" is "dense" in float32. Each form is compiled once.
    kernel: name of the one that alone is asked, see `backends.target.KERNELS`.
    """
    real_BT = jnp.arange(tokens)[None] < jnp.array([[tokens], [tokens // 2]])
    at = layout_of(name, tokens)
    pos = at.pos_BT if encodings.card(name).axes > 1 else None
    pos = None if pos is None else jnp.broadcast_to(pos, (2, *pos.shape[1:]))
    at = layout(real_BT.astype(jnp.int32), pos)

    @partial(jax.jit, static_argnums=0)
    def run(form, g, *inputs):
        real_BT11 = real_BT[..., None, None]
        o, pull = jax.vjp(partial(_output, name, dims, at, form), *inputs)
        gradients = pull(jnp.where(real_BT11, g, 0).astype(o.dtype))
        return jnp.where(real_BT11, o, 0), gradients

    compiled: dict[str, Any] = {}

    def start(form: str) -> Callable[[], Any]:
        exact = form == "reference"
        inputs = _inputs(name, dims, 2, tokens)
        *inputs, g = jax.tree.map(lambda x: _cast(x, "float32" if exact else DTYPE), inputs)
        precision = jax.default_matmul_precision("highest" if exact else None)
        with compile_for(backend, jax.devices()[:1], kernel=kernel), precision:
            if form not in compiled:
                compiled[form] = run.lower("dense" if exact else form, g, *inputs).compile()
        return lambda: compiled[form](g, *inputs)

    return start


def _cast(x: jax.Array, dtype: str) -> jax.Array:
    return x.astype(dtype) if x.dtype == DTYPE else x


def distances(computed: Any, reference: Any) -> dict[str, float]:
    """Returns the distance of the output, and the largest of the gradients; NaN if one has a NaN.

    Finite gradients of what has none but for rounding are left out.
    """
    norm = lambda x: float(np.linalg.norm(np.asarray(x, np.float64)))
    output, *gradients = zip(jax.tree.leaves(computed), jax.tree.leaves(reference), strict=True)
    least = ZERO * np.max([norm(exact) for _, exact in gradients])
    counts = lambda computed, exact: not (norm(exact) <= least and np.isfinite(norm(computed)))
    seen = [_distance(*pair) for pair in gradients if counts(*pair)]
    return {"output": _distance(*output), "gradient": float(np.max(seen))}


def _distance(computed, reference) -> float:
    computed, reference = (np.asarray(x, np.float64) for x in (computed, reference))
    return float(np.linalg.norm(computed - reference) / np.linalg.norm(reference))


def _time(job: dict[str, Any], name: str, way: str) -> Callable[[], float]:
    dims, tokens = _dims(job), job["tokens"]
    at = layout_of(name, tokens)
    *inputs, g = _inputs(name, dims, 1, tokens)
    forward = partial(_output, name, dims, at, "kernel")
    loss = lambda *inputs: (forward(*inputs) * g).astype(jnp.float32).sum()
    argnums = tuple(range(5))
    run = jax.jit(jax.grad(loss, argnums) if way == "backward" else forward)

    def measure():
        with compile_for("gpu"):
            return milliseconds(lambda: run(*inputs), jax.block_until_ready)

    with compile_for("gpu"):
        jax.block_until_ready(run(*inputs))
    return measure
