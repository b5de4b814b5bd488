"""The log-sum-exp that kernels return beside the output, and its gradient."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax import Dims, attend, frame, make, merge
from posenc_jax.attention import kernels
from posenc_jax.attention.score_options import ScoreOptions
from posenc_jax.backends.target import compile_for
from posenc_jax.layout import layout
from tests.attention.kernels.test_tpu import gap, noisy

TIME = 70
DIMS = Dims(model=32, heads=2, head=16, layers=1)
# Padding before and after, and two packed sequences.
TOKENS = np.array([[0] * 10 + [1] * 60, [1] * 30 + [2] * 35 + [0] * 5])
KERNELS = {"tpu": ("cpu", "float32"), "triton": ("gpu", "float32"), "mosaic": ("gpu", "bfloat16")}
CASES = {"rope": {}, "t5+rope": {"sink_H": jnp.array([0.5, -1.0])}, "fox": {}}


def run(form, name, dtype, weight=1.0, **options):
    """(output, log-sum-exp with 0 for -inf, which are -inf), and gradients of a loss of both."""
    encoding = make(name)
    params = noisy(encoding.init(jax.random.key(1), DIMS))
    shape = 4, 2, TIME, DIMS.heads, DIMS.head
    q, k, v, g = jax.random.normal(jax.random.key(0), shape).astype("bfloat16").astype(dtype)
    x = jax.random.normal(jax.random.key(3), (2, TIME, DIMS.model))
    g_lse = jax.random.normal(jax.random.key(4), shape[1:4])

    def both(q, k, v, params):
        view = frame(encoding, params, layout(jnp.asarray(TOKENS)), DIMS, form=form)
        o, lse = attend(q, k, v, view.layer(0, x), return_lse=True, **options)
        return o.astype(jnp.float32), lse

    def loss(*args):
        o, lse = both(*args)
        seen = jnp.isfinite(lse)
        results = o, jnp.where(seen, lse, 0), seen.astype(jnp.float32)
        return (o * g.astype(jnp.float32)).sum() + weight * (results[1] * g_lse).sum(), results

    slopes, results = jax.jit(jax.grad(loss, (0, 1, 2, 3), has_aux=True))(q, k, v, params)
    return jax.tree.map(lambda x: x.astype(jnp.float32), (results, slopes))


def of_kernel(kernel, name, dtype, **options):
    backend = KERNELS[kernel][0]
    with compile_for(backend, kernel="" if backend == "cpu" else kernel):
        return run("kernel", name, dtype, **options)


@pytest.mark.thorough(after=1)
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("case", CASES)
def test_it_is_that_of_dense_attention_and_so_is_its_gradient(kernel, case):
    dtype, options = KERNELS[kernel][1], CASES[case]
    exact = run("dense", case, "float32", **options)
    actual = of_kernel(kernel, case, dtype, **options)
    near = 5e-5 if dtype == "float32" else 0.05
    assert gap(exact, actual) < near
    seen = np.asarray(actual[0][2])
    assert (seen == (TOKENS > 0)[..., None]).all() or "sink_H" in options, "-inf at padding"
    without = run("dense", case, "float32", weight=0.0, **options)
    assert gap(exact[1], without[1]) > 2 * near, "control: the log-sum-exp has a gradient"


def test_attention_to_two_parts_of_the_keys_merges_in_a_kernel():
    encoding, whole = make("alibi"), jnp.asarray(TOKENS)
    q, k, v = jax.random.normal(jax.random.key(0), (3, 2, TIME, DIMS.heads, DIMS.head))
    at = layout(whole).replace(counted=False)

    def part(a, b):
        keys = jax.tree.map(lambda x: x[:, a:b], at)
        view = frame(encoding, {}, at, DIMS, keys=keys, causal=True, form="kernel")
        return attend(q, k[:, a:b], v[:, a:b], view.layer(0), return_lse=True)

    dense = frame(encoding, {}, at, DIMS, form="dense").layer(0)
    expected = attend(q, k, v, dense, return_lse=True)
    for one, other in zip(merge(part(0, 20), part(20, TIME)), expected, strict=True):
        assert gap(jnp.exp(one), jnp.exp(other)) < 1e-5
    assert gap(part(0, 20)[0], expected[0]) > 0.1, "control"


@pytest.mark.parametrize("kernel", ["cudnn", "splash"])
def test_kernels_without_one_leave_it_to_the_next_in_line(kernel):
    q = jax.ShapeDtypeStruct((1, 128, 2, 64), jnp.bfloat16)
    module = getattr(kernels, kernel, None) or __import__(
        f"posenc_jax.attention.kernels.{kernel}", fromlist=["refuses_call"]
    )
    reason = module.refuses_call(q, q, q, ScoreOptions(lse=True))
    assert reason.startswith(("sinks, caps and return_lse", "sinks and return_lse"))
    assert module.refuses_call(q, q, q, ScoreOptions()) == "", "control"
