"""`python -m tests.ring_runs [NAME...]`: attention by a ring of 4 devices as of one.

Each method forward and backward, in dense and blockwise forms, packed documents, both orders of
tokens. Prints a line for each case that fails, differs or is refused, and their number;
tests/test_context_parallel.py runs `SOME`.
"""

import itertools
import os
import sys
import zlib
from typing import Any, NamedTuple

if __name__ == "__main__":
    os.environ.setdefault("JAX_NUM_CPU_DEVICES", "4")
    os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

from posenc_jax import CATALOG, Dims, attend, frame, make, masks, ring, zigzag
from tests.support.catalogue import encoding_of, gap, layers, stir, where

DEVICES, TIME, HEADS, HEAD = 4, 16, 4, 8
RELATIVE = 5e-5  # of the largest value of an array: sums in another order


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
)


def difference(c: Case) -> float:
    """The largest difference from one device, in values and gradients."""
    encoding = make(c.name) if "+" in c.name else encoding_of(c.name)
    dims = Dims(HEADS * HEAD, HEADS, HEAD, layers(encoding))
    params = stir(encoding.init(jax.random.key(0), dims), zlib.crc32(c.name.encode()))
    params = jax.tree.map(jnp.asarray, params)
    rng = np.random.default_rng(1)
    draw = lambda groups: jnp.asarray(rng.normal(size=(2, TIME, groups, HEAD)), jnp.float32)
    groups = 2 if c.full else HEADS
    g, x = draw(HEADS), draw(HEADS).reshape(2, TIME, -1)
    own = draw(HEADS), draw(groups), draw(groups), jnp.asarray(rng.normal(size=HEADS), jnp.float32)
    segment_BT = np.ones((2, TIME), np.int32)
    segment_BT[1, 5:] = 2
    if c.full:
        segment_BT[0, :3] = segment_BT[1, -2:] = 0
    order = zigzag(TIME, DEVICES) if c.order == "zigzag" else np.arange(TIME)
    move = lambda x: x[:, order]
    at = where(c.name.split("+")[0], segment_BT)
    at = masks.prefix(at, np.array([5, 2])) if c.full else at
    options = {"cap": 3.0} if c.full else {}

    def run(attended, params, q, k, v, sink_H, x, at, **over):
        view = frame(encoding, params, at, dims, form=c.form, block=4, causal=c.causal, **over)
        sinks = {"sink_H": sink_H} if c.full else {}
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

    (_, alone), slopes = value(lambda *given: run(attend, *given), lambda x: x)(params, *own)
    (_, actual), ring_slopes = value(by_ring, move)(params, *own)
    pairs = zip(
        jax.tree.leaves((actual, ring_slopes)), jax.tree.leaves((move(alone), slopes)), strict=True
    )
    return max(gap(a, b) / (1 + float(np.abs(np.asarray(b)).max(initial=0))) for a, b in pairs)


def main() -> None:
    names = sys.argv[1:] or list(CATALOG)
    cases: Any = SOME
    if names != ["some"]:
        forms = itertools.product(names, ("dense", "blockwise"))
        orders = itertools.cycle(("zigzag", "contiguous"))
        cases = [Case(*kind, order, full=order == "zigzag")
                 for kind, order in zip(forms, orders, strict=False)]  # fmt: skip
    failed = 0
    for c in cases:
        try:
            off = difference(c)
            error = "" if off < RELATIVE else f"off by {off:.2g}"
        except Exception as failure:
            error = f"{type(failure).__name__}: {str(failure).splitlines()[0][:200]}"
        if error:
            failed += 1
            print(*c, error, flush=True)
    print(f"{failed} of {len(cases)} failed")


if __name__ == "__main__":
    main()
