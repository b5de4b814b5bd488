"""`python -m tests.mesh_attention [NAME...] [--form dense] [--sample 500]`: 4 devices as one.

Attention of each method, forward and backward, in each of `KINDS`. Prints a line for each case that
is refused, fails or differs, and counts. tests/lab/training/test_mesh.py runs `SOME`; all of them
take hours.
"""

import contextlib
import functools
import itertools
import os
import zlib
from typing import Any

if __name__ == "__main__":
    os.environ.setdefault("JAX_NUM_CPU_DEVICES", "4")
    os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from posenc_jax import Dims, attend, frame
from posenc_jax.encodings import card
from posenc_jax.layout import layout
from tests.support.catalogue import encoding_of, gap, in_blocks, layers, stir, where
from tests.support.many_cases import arguments, run_cases

ROWS, TIME, HEADS, HEAD = 4, 12, 4, 8
RELATIVE = 5e-5  # of the largest value of an array: sums in another order
KINDS = {
    "form": ("auto", "dense", "blockwise"),
    "axes": ("Explicit", "Auto"),
    "set_mesh": ("no", "yes"),
    # Rows, each with its own documents; rows of one layout; heads; heads of grouped queries, whose
    # keys are whole on each device; heads with their parameters; tokens.
    "spread": ("rows", "alike", "heads", "grouped", "weights", "time"),
}
# One for each way in which arrays are made from one another.
SOME = (
    ("alibi", "auto", "Explicit", "no", "alike"),  # the gradient of a row of offsets
    ("t5", "auto", "Explicit", "yes", "heads"),  # of a table, that all rows read
    ("fire", "blockwise", "Explicit", "yes", "weights"),  # of a bias made in blocks
    ("fox", "blockwise", "Explicit", "no", "rows"),  # a walk with features of x
    ("cope", "dense", "Explicit", "yes", "grouped"),
    ("learned", "auto", "Explicit", "yes", "rows"),  # at the input, by a gather
    ("liere", "blockwise", "Explicit", "no", "rows"),  # matrices of each token
    ("randomized", "auto", "Explicit", "yes", "rows"),  # positions that are drawn
    ("repo", "auto", "Explicit", "no", "time"),  # positions made of x
    ("tupe", "dense", "Auto", "yes", "heads"),
)


def case(name: str, form: str, spread: str):
    """The value and gradients of a loss, its arguments, and their PartitionSpecs."""
    encoding = encoding_of(name)
    dims = Dims(HEADS * HEAD, HEADS, HEAD, layers(encoding))
    params = stir(encoding.init(jax.random.key(0), dims), zlib.crc32(name.encode()))
    params = jax.tree.map(jnp.asarray, params)
    rng = np.random.default_rng(1)
    groups = 2 if spread == "grouped" else HEADS
    draw = lambda *shape: jnp.asarray(rng.normal(size=shape), jnp.float32)
    q, g = draw(ROWS, TIME, HEADS, HEAD), draw(ROWS, TIME, HEADS, HEAD)
    k, v = draw(ROWS, TIME, groups, HEAD), draw(ROWS, TIME, groups, HEAD)
    x = draw(ROWS, TIME, HEADS * HEAD)
    segment_BT = np.ones((1 if spread == "alike" else ROWS, TIME), np.int32)
    if spread == "rows":
        segment_BT[1, :3], segment_BT[2, 7:] = 0, 2
    at = where(name, segment_BT) if card(name).axes > 1 else jnp.asarray(segment_BT)

    def loss(params, q, k, v, x, g, at):
        if isinstance(at, jax.Array):
            at = layout(at, group_BT=at * 2)
        view = frame(encoding, params, at, dims, form=form, block=4)
        x = view.embed(x)
        out = attend(q, k, v, view.layer(dims.layers - 1, x))
        return (out * g).sum() + (x * x).sum()

    over = P("d") if spread in ("rows", "alike") else P(None, None, "d", None)
    at_specs = jax.tree.map(lambda _: P("d") if spread == "rows" else P(), at)
    k_spec = P() if spread == "grouped" else over
    x_spec = P("d") if spread in ("rows", "alike") else P()

    def of_param(leaf):
        axes = [n for n, size in enumerate(leaf.shape) if size == HEADS]
        return P(*[None] * axes[0], "d") if spread == "weights" and len(axes) == 1 else P()

    if spread == "time":
        over = k_spec = x_spec = P(None, "d")
        at_specs = jax.tree.map(lambda _: over, at)
    specs = jax.tree.map(of_param, params), over, k_spec, k_spec, x_spec, over, at_specs
    return jax.value_and_grad(loss, argnums=(0, 1, 2, 3, 4)), (params, q, k, v, x, g, at), specs


@functools.cache
def alone(name: str, form: str, spread: str) -> Any:
    run, arguments, _ = case(name, form, spread)
    results = jax.tree.map(np.asarray, jax.jit(run)(*arguments))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(results)), "one device gives NaN"
    return results


def traced(name: str, form: str, spread: str) -> None:
    """Traces a case on Explicit axes of four devices that need not be there."""
    mesh = AbstractMesh((4,), ("d",), axis_types=(AxisType.Explicit,))
    run, arguments, specs = case(name, form, spread)
    of_type = lambda leaf, spec: jax.ShapeDtypeStruct(
        leaf.shape, leaf.dtype, sharding=NamedSharding(mesh, spec)
    )
    jax.eval_shape(run, *jax.tree.map(of_type, arguments, specs))


def difference(
    name: str, form: str, axes: str, set_mesh: str, spread: str, trace: bool = False
) -> float:
    """The largest difference from one device, relative to the largest value of each array."""
    mesh = jax.make_mesh((4,), ("d",), axis_types=(getattr(AxisType, axes),))
    run, arguments, specs = case(name, form, spread)
    put = lambda leaf, spec: jax.device_put(leaf, NamedSharding(mesh, spec))
    arguments = jax.tree.map(put, arguments, specs)
    with jax.set_mesh(mesh) if set_mesh == "yes" else contextlib.nullcontext():
        if trace:
            jax.jit(run).trace(*arguments)
            return 0.0
        actual = jax.jit(run)(*arguments)
    pairs = zip(jax.tree.leaves(actual), jax.tree.leaves(alone(name, form, spread)), strict=True)
    return max(gap(a, b) / (1 + np.abs(b).max(initial=0)) for a, b in pairs)


def main() -> None:
    flags = arguments(__doc__, KINDS, trace="trace the cases, and compile nothing")
    kinds = [getattr(flags, kind) for kind in KINDS]
    cases = [
        (name, form, *others)
        for name, form, *others in itertools.product(flags.names, *kinds)
        if form != "blockwise" or in_blocks(encoding_of(name))
    ]
    compare = functools.partial(difference, trace=flags.trace)
    run_cases(SOME if flags.some else cases, compare, RELATIVE, flags.sample)


if __name__ == "__main__":
    main()
