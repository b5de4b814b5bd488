"""`python -m tests.ring_runs [NAME...] [--sample 50]`: attention by a ring of 4 devices as of one.

Each method forward and backward, in dense and blockwise forms, packed documents, both orders of
tokens. Prints a line for each case that is refused, fails or differs, and counts.
tests/test_context_parallel.py runs `SOME`; all of them take hours.
"""

import itertools
import os
import zlib
from typing import Any, NamedTuple

if __name__ == "__main__":
    os.environ.setdefault("JAX_NUM_CPU_DEVICES", "4")
    os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

from posenc_jax import Dims, attend, frame, make, masks, ring, zigzag
from tests.support.catalogue import capped, encoding_of, gap, layers, normalised, stir, where
from tests.support.many_cases import arguments, run_cases

DEVICES, TIME, HEADS, HEAD = 4, 16, 4, 8
RELATIVE = 5e-5  # of the largest value of an array: sums in another order
KINDS = {"form": ("dense", "blockwise"), "order": ("zigzag", "contiguous")}


class Case(NamedTuple):
    """`full`: keys of fewer heads, a sink, a cap, padding, and a prefix that is seen by all."""

    name: str
    form: str = "blockwise"
    order: str = "zigzag"
    full: bool = False
    causal: bool = True


SOME = (
    Case("rope+window", "dense", "contiguous", full=True),
    Case("alibi", full=True),
    Case("rbf+t5", "auto", causal=False),  # rbf places tokens among all those of the row
    Case("logn+shaw"),  # counts the keys that a query sees; content of each pair alone
    Case("repo", "dense"),  # positions made of x
    Case("gta"),  # turns values
    Case("dinov3", "dense"),  # draws more than positions in training, and here nothing
)


def difference(*case: Any) -> float:
    """The largest difference of a `Case` from one device, in values and gradients."""
    c = Case(*case)
    encoding = make(c.name) if "+" in c.name else encoding_of(c.name)
    dims = Dims(HEADS * HEAD, HEADS, HEAD, layers(encoding))
    params = stir(encoding.init(jax.random.key(0), dims), zlib.crc32(c.name.encode()))
    params = jax.tree.map(jnp.asarray, params)
    rng = np.random.default_rng(1)
    draw = lambda groups: jnp.asarray(rng.normal(size=(2, TIME, groups, HEAD)), jnp.float32)
    groups = 2 if c.full else HEADS
    g, x = draw(HEADS), draw(HEADS).reshape(2, TIME, -1)
    arrays = (
        draw(HEADS),
        draw(groups),
        draw(groups),
        jnp.asarray(rng.normal(size=HEADS), jnp.float32),
    )
    segment_BT = np.ones((2, TIME), np.int32)
    segment_BT[1, 5:] = 2
    if c.full:
        segment_BT[0, :3] = segment_BT[1, -2:] = 0
    order = zigzag(TIME, DEVICES) if c.order == "zigzag" else np.arange(TIME)
    move = lambda x: x[:, order]
    at = where(c.name.split("+")[0], segment_BT)
    at = masks.prefix(at, np.array([5, 2])) if c.full else at
    options = {"cap": 3.0} if c.full and capped(encoding) else {}

    def run(attended, params, q, k, v, sink_H, x, at, **over):
        view = frame(encoding, params, at, dims, form=c.form, block=4, causal=c.causal, **over)
        sinks = {"sink_H": sink_H} if c.full and normalised(encoding) else {}
        x = view.embed(x)
        return attended(q, k, v, view.layer(dims.layers - 1, x), **sinks, **options)

    spread, whole = P(None, "d"), P()
    mesh = jax.make_mesh((DEVICES,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
    by_ring = jax.shard_map(
        lambda *given: run(ring, *given, ring="d"), mesh=mesh, out_specs=spread,
        in_specs=(whole, spread, spread, spread, whole, spread, spread),
    )  # fmt: skip

    def value(of, move):
        def loss(params, q, k, v, sink_H):
            o_BQHC = of(params, *map(move, (q, k, v)), sink_H, move(x), jax.tree.map(move, at))
            return (o_BQHC * move(g)).sum(), o_BQHC

        return jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2, 3, 4), has_aux=True))

    (_, alone), slopes = value(lambda *given: run(attend, *given), lambda x: x)(params, *arrays)
    (_, actual), ring_slopes = value(by_ring, move)(params, *arrays)
    wanted = jax.tree.leaves((move(alone), slopes))
    assert all(np.isfinite(leaf).all() for leaf in wanted), "one device gives NaN"
    pairs = zip(jax.tree.leaves((actual, ring_slopes)), wanted, strict=True)
    return max(gap(a, b) / (1 + float(np.abs(np.asarray(b)).max(initial=0))) for a, b in pairs)


def main() -> None:
    given = arguments(__doc__, KINDS)
    kinds = itertools.product(given.names, given.form, given.order)
    cases = [Case(*kind, full=kind[-1] == "zigzag") for kind in kinds]
    run_cases(SOME if given.some else cases, difference, RELATIVE, given.sample)


if __name__ == "__main__":
    main()
