"""Attention to parts of the keys, merged; a ring of devices."""

import os
import subprocess
import sys
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh, AxisType
from jax.sharding import PartitionSpec as P

from posenc_jax import Dims, attend, frame, full, layout, logits, make, merge, ring, zigzag
from tests import ring_runs
from tests.support import ROOT
from tests.support.catalogue import gap, stir
from tests.support.many_cases import summary_line

DIMS = Dims(model=16, heads=2, head=8)
TIME = 9
q, k, v, g = jax.random.normal(jax.random.key(1), (4, 2, TIME, DIMS.heads, DIMS.head))
AT = layout(jnp.asarray([[1] * TIME, [0] * 2 + [1] * 4 + [2] * 3]))


def view(name: str, at=AT, **options):
    encoding = make(name)
    params = jax.tree.map(jnp.asarray, stir(encoding.init(jax.random.key(0), DIMS), 3))
    return frame(encoding, params, at, DIMS, block=4, **options)


@pytest.mark.thorough
@pytest.mark.parametrize("form", ["auto", "dense", "blockwise"])
@pytest.mark.parametrize("name", ["t5", "cope"])
def test_the_log_sum_exp_is_that_of_the_logits(name, form):
    """In values and gradients, of both results at once; -inf where a query sees no key."""
    s_BHQK = lambda q: logits(q, k, view(name, form="dense").layer(0))
    wanted = lambda q: jax.nn.logsumexp(s_BHQK(q), axis=-1).swapaxes(1, 2)
    both = lambda q: attend(q, k, v, view(name, form=form).layer(0), return_lse=True)
    real_BQ1 = (AT.segment_BT > 0)[..., None]
    o, lse = both(q)
    assert gap(o, attend(q, k, v, view(name, form=form).layer(0))) < 1e-6
    assert lse.dtype == jnp.float32
    assert gap(jnp.exp(lse), jnp.exp(wanted(q))) < 1e-4
    assert np.isneginf(lse[~np.broadcast_to(real_BQ1, lse.shape)]).all()

    def loss(of, q):
        o, lse = of(q)
        return (o * g).sum() + jnp.where(real_BQ1, lse * g[..., 0], 0).sum()

    dense = lambda q: (attend(q, k, v, view(name, form="dense").layer(0)), wanted(q))
    slope = jax.grad(partial(loss, both))(q)
    safe = jax.grad(lambda q: loss(dense, q))(q)
    rows = np.asarray(real_BQ1[..., None]) & np.isfinite(safe)
    assert gap(jnp.where(rows, slope, 0), jnp.where(rows, safe, 0)) < 1e-5
    only = jax.grad(lambda q: (both(q)[0] * g).sum())(q)
    assert gap(slope, only) > 0.01, "control: the log-sum-exp has a gradient"


@pytest.mark.thorough
@pytest.mark.parametrize("form", ["dense", "blockwise"])
def test_attention_to_two_parts_of_the_keys_merges(form):
    """A query of padding and one that sees nothing of a part are among them."""
    cut = lambda a, b: jax.tree.map(lambda x: x[:, a:b], AT.replace(counted=False))

    def part(q, a, b):
        facing = view("alibi", AT.replace(counted=False), keys=cut(a, b), causal=True, form=form)
        return attend(q, k[:, a:b], v[:, a:b], facing.layer(0), return_lse=True)

    actual = lambda q: merge(part(q, 0, 5), part(q, 5, TIME))
    whole = lambda q: attend(q, k, v, view("alibi", form=form).layer(0), return_lse=True)
    for one, other in zip(actual(q), whole(q), strict=True):
        assert gap(jnp.exp(one), jnp.exp(other)) < 1e-5
    slope = lambda slope_of: jax.grad(lambda q: (slope_of(q)[0] * g).sum())(q)
    assert gap(slope(actual), slope(whole)) < 1e-5
    mean = lambda q: ((part(q, 0, 5)[0] + part(q, 5, TIME)[0]) / 2,)
    assert gap(mean(q)[0], whole(q)[0]) > 0.1, "control"


def test_what_has_no_log_sum_exp_says_so():
    with pytest.raises(ValueError, match=r"^return_lse: this method makes the weights itself"):
        attend(q, k, v, view("stick_breaking").layer(0), return_lse=True)


@pytest.mark.thorough
def test_a_ring_of_four_devices_gives_the_values_of_one(kept_programs):
    settings = {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "4"}
    ran = subprocess.run([sys.executable, "-m", "tests.ring_runs", "--some"], text=True,
                         capture_output=True, env={**os.environ, **settings})  # fmt: skip
    cases = len(ring_runs.SOME)
    assert ran.stdout == f"{summary_line(cases, passed=cases)}\n", ran.stdout + ran.stderr[-2000:]


CHECK = """
import jax.numpy as jnp
frame = posenc_jax.frame(encoding, jax.device_get(params), posenc_jax.full(2, 16), whole)
assert mesh.size == 4
assert jnp.abs(posenc_jax.attend(*[jax.device_get(q)] * 3, frame.layer(0)) - out).max() < 1e-5
"""


@pytest.mark.thorough
def test_the_page_of_devices_spreads_heads_as_it_says(kept_programs):
    page = (ROOT / "docs" / "devices.md").read_text("utf-8")
    recipe = page.split("```python\n")[1].split("```")[0]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "4"}

    def run(code: str) -> subprocess.CompletedProcess:
        command = [sys.executable, "-c", code + CHECK]
        return subprocess.run(command, text=True, capture_output=True, env=environment)

    done = run(recipe)
    assert done.returncode == 0, done.stderr[-2000:]
    told = ", heads=(start, whole.heads)"
    assert told in recipe
    assert "AssertionError" in run(recipe.replace(told, "")).stderr, "control"


def over_two(name: str, attended=ring, **options):
    """Traces attention to tokens that are spread over two devices."""
    mesh = AbstractMesh((2,), ("d",), axis_types=(AxisType.Auto,))

    def run(q):
        at = full(2, q.shape[1])
        layer = view(name, at, **({"ring": "d"} | options)).layer(0, q.reshape(2, -1, DIMS.model))
        return attended(q, q, q, layer)

    spread = P(None, "d")
    by_ring = jax.shard_map(run, mesh=mesh, in_specs=spread, out_specs=spread)
    return jax.eval_shape(by_ring, jax.ShapeDtypeStruct((2, 8, 2, 8), jnp.float32))


@pytest.mark.parametrize(
    ("name", "options", "line"),
    [
        ("fox", {}, "^ring: the scores of this method read all keys between a key and its query"),
        ("rope+cope", {}, "^ring: the scores of this method read all keys between"),
        ("stick_breaking", {}, "^ring: the scores of this method read all keys between"),
        ("rope", {"ring": None}, "^layer: its frame was made without ring="),
        ("rope", {"attended": attend}, "^layer: its tokens are spread over the mesh axis 'd'; use"),
        ("rope", {"queries": (0, 1)}, "^ring: for self-attention alone"),
    ],
)
def test_what_a_ring_cannot_do_is_one_line(name, options, line):
    assert over_two("rope+shaw").shape == (2, 8, 2, 8), "control"
    with pytest.raises(ValueError, match=line):
        over_two(name, **options)


def test_zigzag_gives_each_device_an_early_and_a_late_stretch():
    assert zigzag(8, 2).tolist() == [0, 1, 6, 7, 2, 3, 4, 5]
    assert sorted(zigzag(24, 3)) == list(range(24))
    pairs = [(device + 1).sum() for device in zigzag(24, 3).reshape(3, -1)]
    assert len(set(pairs)) == 1, "as many visible keys for each device"
    assert len({(part + 1).sum() for part in np.arange(24).reshape(3, -1)}) > 1, "control"
    with pytest.raises(ValueError, match=r"^zigzag: 10 tokens are not 8 equal stretches$"):
        zigzag(10, 4)
