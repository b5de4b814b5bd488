"""Spreads seeds, rows and heads over several devices: one mesh with the axes "seeds", "rows" and
"heads".

The axis "heads" has as many devices as `tensor_parallel` says, by default one. Of the others the
axis "seeds" has the greatest common divisor of their number and that of seeds. The devices of one
seed share the rows of its batches and, with FSDP, its state. Seeds do not communicate.

Along "heads" a layer's heads, the channels of its MLP and the vocabulary are spread, as in
Megatron-LM (Shoeybi et al., arXiv 1909.08053): the weights are stored so, and XLA spreads the
computation as they are.
"""

import contextlib
import functools
import math
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jax
from jax.experimental.layout import Layout, with_layout_constraint
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from posenc_jax.backends.target import target
from posenc_jax.lab.hosts import processes
from posenc_jax.lab.hosts.exit_status import Refused

MOST_CPU_DEVICES = 8
# Weights whose last axis is of heads, channels of the MLP or tokens, those whose first axis is, and
# those of cross-attention, which have the prefix.
_TO_HEADS = ("query", "key", "value", "up", "gate", "read_out")
_FROM_HEADS = ("out", "down")
_CROSS = "cross_"
_tensor_devices = 1  # the size of the axis "heads"


@contextlib.contextmanager
def tensor_parallel(count: int) -> Iterator[None]:
    """Inside, `count` devices share the heads, MLP channels and vocabulary of a model.

    Refused: `count` does not divide the number of devices.
    """
    global _tensor_devices  # not a context variable: evaluations are compiled in a thread
    devices = len(target().devices) if count > 1 else 1
    if devices % count:
        fits = ", ".join(str(n) for n in range(1, devices + 1) if devices % n == 0)
        reason = f"{count} does not divide the {devices} devices; numbers that divide them: {fits}"
        raise Refused(f"config.train.tensor: {reason}")
    before, _tensor_devices = _tensor_devices, count
    try:
        yield
    finally:
        _tensor_devices = before


def tensor_devices() -> int:
    """Returns how many devices share the heads of a model, see `tensor_parallel`."""
    return _tensor_devices


def use_cores(rows: int) -> None:
    """Makes each CPU core a device, as many as divide `rows`. Call it before JAX starts a backend.

    Two halves of a batch on two cores train faster than one batch on a pool of two threads. A
    number of devices set by JAX_NUM_CPU_DEVICES or XLA_FLAGS is kept.
    """
    forced = "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    if forced or "JAX_NUM_CPU_DEVICES" in os.environ:
        return
    divisors = [n for n in range(1, min(len(cores()), MOST_CPU_DEVICES) + 1) if rows % n == 0]
    jax.config.update("jax_num_cpu_devices", divisors[-1])


def cores() -> list[int]:
    """Returns the numbers of the CPU cores that this process may run on, ascending."""
    affinity = getattr(os, "sched_getaffinity", None)
    return sorted(affinity(0)) if affinity else list(range(os.cpu_count() or 1))


def spread_seeds(function: Callable, shared: Any, *trees: Any) -> Any:
    """Returns function(shared, *trees), computed by each device for its share of the seeds.

    Args:
      shared: arrays that are on every device; a closure over them would be copied.
      trees: leaves [S, ...].
    """
    if len(target().devices) == 1:
        return function(shared, *trees)
    seeds = jax.tree.leaves(trees)[0].shape[0]
    by_seed = PartitionSpec("seeds")
    return jax.shard_map(
        function, mesh=_mesh(seeds), in_specs=(PartitionSpec(), *[by_seed] * len(trees)),
        out_specs=by_seed, axis_names={"seeds"}, check_vma=False,
    )(shared, *trees)  # fmt: skip


def spread_rows(tree: Any) -> Any:
    """Spreads arrays [B, ...] along B over the devices of the seed, if their number divides B."""
    return _constrained(tree, lambda shape, n: PartitionSpec("rows") if shape[0] % n == 0 else None)


def batch_sharding(shape: tuple[int, ...]) -> NamedSharding:
    """The sharding of a leaf [S, N, B, ...] of batches: seeds over groups of devices, rows over the
    devices of a seed, if their number divides B.
    """
    mesh = _mesh(shape[0])
    divides = shape[2] % mesh.shape["rows"] == 0
    return NamedSharding(mesh, PartitionSpec("seeds", None, "rows" if divides else None))


def spread_parameters(tree: Any) -> Any:
    """Spreads each leaf over the rows' devices along its largest dimension that divides."""
    return _parameters_constrained(tree, fsdp=True)


def gathered(tree: Any) -> Any:
    """Puts the leaves on each of the rows' devices whole, but for what is spread over heads."""
    return _parameters_constrained(tree, fsdp=False)


def _parameters_constrained(tree: Any, fsdp: bool) -> Any:
    sizes = jax.sharding.get_abstract_mesh().shape
    rows, heads = sizes.get("rows", 1), sizes.get("heads", 1)
    if rows == heads == 1:
        return tree
    constrain = lambda path, x: jax.lax.with_sharding_constraint(
        x, _parameter_spec(path, x.shape, rows if fsdp else 1, heads)
    )
    return jax.tree_util.tree_map_with_path(constrain, tree)


def sum_over_rows(function: Callable, shared: Any, batch: Any, spread: bool = False) -> Any:
    """Returns the sum over devices of function(shared, the device's rows of the batch).

    One all-reduce for all gradients, unless they are spread. By itself XLA makes one for each
    parameter, and on a CPU devices wait for each other at each one.

    Args:
      function: returns sums over the rows that it gets.
      shared: the same for all devices.
      batch: leaves [B, ...]; if the devices do not divide B, each computes all rows.
      spread: each device gets its part of each sum alone, as `spread_parameters` spreads it, by
        reduce-scatters, which move half of the bytes of an all-reduce.
    """
    devices = _row_devices()
    if devices == 1 or jax.tree.leaves(batch)[0].shape[0] % devices:
        return function(shared, batch)
    reduce, parts = lambda tree: jax.lax.psum(tree, "rows"), PartitionSpec()
    if spread:
        reduce = partial(_scattered, devices=devices)
        sums = jax.eval_shape(function, shared, batch)
        parts = jax.tree_util.tree_map_with_path(partial(_row_spec, devices=devices), sums)
    return jax.shard_map(
        lambda shared, batch: reduce(function(shared, batch)),
        in_specs=(PartitionSpec(), PartitionSpec("rows")), out_specs=parts,
        axis_names={"rows"}, check_vma=False,
    )(shared, batch)  # fmt: skip


def _scattered(tree: Any, devices: int) -> Any:
    """Returns this device's part of the sum over devices of each leaf; see `_row_spec`.

    There is one reduce-scatter for each leaf that is spread: for leaves joined to one array XLA for
    a TPU makes an all-reduce and a slice instead. It does the same where it puts the first axis of
    a leaf last in memory, which `in_order` forbids.
    """

    def in_order(x):  # a matrix needs no constraint
        return x if x.ndim < 3 else with_layout_constraint(x, Layout(tuple(range(x.ndim))))

    leaves, structure = jax.tree.flatten(tree)
    specs = jax.tree_util.tree_map_with_path(partial(_row_spec, devices=devices), tree)
    parts = jax.tree.leaves(specs, is_leaf=lambda x: isinstance(x, PartitionSpec))
    both = list(zip(leaves, parts, strict=True))
    scattered = iter([
        jax.lax.psum_scatter(
            in_order(x), "rows", scatter_dimension=part.index("rows"), tiled=True
        )
        for x, part in both if "rows" in part
    ])  # fmt: skip
    summed = iter(jax.lax.psum([x for x, part in both if "rows" not in part], "rows"))
    return structure.unflatten([next(scattered if "rows" in part else summed) for part in parts])


def by_seed(tree: Any, fsdp: bool) -> Any:
    """Constrains leaves [S, ...] to the devices of their seeds; with `fsdp` spread over those, as
    `spread_parameters` does. For use under jit.
    """
    return jax.tree.map(jax.lax.with_sharding_constraint, tree, state_shardings(tree, fsdp))


def state_shardings(tree: Any, fsdp: bool = False) -> Any:
    """Returns the shardings of leaves [S, ...] of parameters, or of a state, by `by_seed`."""

    def sharding(path, x):
        mesh = _mesh(x.shape[0])
        rows = mesh.shape["rows"] if fsdp else 1
        spec = _parameter_spec(path, x.shape[1:], rows, mesh.shape["heads"])
        return NamedSharding(mesh, PartitionSpec("seeds", *spec))

    return jax.tree_util.tree_map_with_path(sharding, tree)


def seed_sharding(shape: tuple[int, ...]) -> NamedSharding:
    """Returns the sharding of an array [S, ...] that each device of a seed has whole."""
    return NamedSharding(_mesh(shape[0]), PartitionSpec("seeds"))


def on_every_device(tree: Any) -> Any:
    """Copies arrays, which are the same in all processes, to each device."""
    if len(target().devices) == 1:
        return tree
    everywhere = NamedSharding(_mesh(1), PartitionSpec())
    return jax.tree.map(lambda x: processes.place(x, everywhere), tree)


def filled(shape: tuple[int, ...], fill: Callable[[slice, slice, slice], Any]) -> Any:
    """Returns an array [S, N, B, ...] of rows, spread as `batch_sharding` says.

    fill: (seeds, steps, rows), slices -> these rows as a NumPy array. Each process asks once, for
      those of its own devices.
    """
    if len(target().devices) == 1:
        return fill(slice(None), slice(None), slice(None))
    sharding = batch_sharding(shape)
    indices: Any = sharding.addressable_devices_indices_map(shape).values()
    axes = zip(*(index[:3] for index in indices), strict=True)
    local = [_hull(slices, size) for slices, size in zip(axes, shape, strict=False)]
    host = fill(*local)

    def part(index: Any) -> Any:
        moved = zip(index[:3], local, shape, strict=False)
        return host[tuple(_moved(axis, hull.start, size) for axis, hull, size in moved)]

    return jax.make_array_from_callback(shape, sharding, part)


def _hull(slices: tuple[slice, ...], size: int) -> slice:
    """Returns the smallest slice of an axis that holds all of these."""
    bounds = [axis.indices(size) for axis in slices]
    return slice(min(start for start, *_ in bounds), max(stop for _, stop, _ in bounds))


def _moved(axis: slice, start: int, size: int) -> slice:
    """Returns a slice of an axis as one of the part that begins at `start`."""
    first, stop, _ = axis.indices(size)
    return slice(first - start, stop - start)


def replicated() -> NamedSharding | None:
    """Returns the sharding of results that every process reads; None with one process."""
    return NamedSharding(_mesh(1), PartitionSpec()) if processes.is_multiprocess() else None


def free_bytes() -> float:
    """Returns the free bytes of a device, or of the machine on a CPU; inf if not known."""
    stats = jax.local_devices()[0].memory_stats() or {}
    if "bytes_limit" in stats:
        return stats["bytes_limit"] - stats.get("bytes_in_use", 0)
    return _free_on_host() if jax.default_backend() == "cpu" else math.inf


def peak_bytes() -> float | None:
    """Returns the most bytes that a device of this process has had in use, or on a CPU this
    process; None if not known.
    """
    stats = [device.memory_stats() or {} for device in jax.local_devices()]
    peaks = [stat["peak_bytes_in_use"] for stat in stats if "peak_bytes_in_use" in stat]
    return max(peaks) if peaks else _peak_on_host() if jax.default_backend() == "cpu" else None


def _peak_on_host() -> float | None:
    """Returns the largest resident memory of this process so far."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        return None


def _free_on_host() -> float:
    """Returns the bytes available on this machine and within this process's cgroup."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        kilobytes = next(line.split()[1] for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return math.inf
    free, group = 1024 * int(kilobytes), Path("/sys/fs/cgroup")
    try:
        most, used = ((group / f"memory.{name}").read_text() for name in ("max", "current"))
        return min(free, int(most) - int(used))
    except (OSError, ValueError):  # no such group, or "max"
        return free


def _constrained(tree: Any, spec: Callable[[tuple[int, ...], int], PartitionSpec | None]) -> Any:
    """Constrains each leaf to spec(shape, number of devices); None puts it whole on each device."""
    devices = _row_devices()
    if devices == 1:
        return tree
    constrain = jax.lax.with_sharding_constraint
    return jax.tree.map(lambda x: constrain(x, spec(x.shape, devices) or PartitionSpec()), tree)


def _parameter_spec(path: Any, shape: tuple[int, ...], rows: int, heads: int) -> PartitionSpec:
    """Returns the spec of a leaf of parameters, or of what an optimizer keeps of one, over so many
    devices of rows and of heads; 1: it is not spread over them.
    """
    axis = _heads_axis(path, shape, heads)
    if rows > 1:
        # The axis of heads is not spread further: 1 is divided by no number of devices.
        others = tuple(1 if n == axis else size for n, size in enumerate(shape))
        spec = [*(_largest(others, rows) or ())]
    else:
        spec = []
    spec += [None] * (len(shape) - len(spec))
    if axis is not None:
        spec[axis] = "heads"
    while spec and spec[-1] is None:
        spec.pop()
    return PartitionSpec(*spec)


def _heads_axis(path: Any, shape: tuple[int, ...], heads: int) -> int | None:
    """Returns the axis of a leaf that is spread over `heads` devices, by its names; or None."""
    names = [str(getattr(key, "key", getattr(key, "name", ""))) for key in path]
    layer = {name.removeprefix(_CROSS) for name in names}
    if heads == 1 or not shape:
        return None
    if not layer.isdisjoint(_TO_HEADS):
        axis = len(shape) - 1
    elif not layer.isdisjoint(_FROM_HEADS):
        axis = 0 if len(shape) > 1 else None
    else:
        axis = 0 if "embed" in layer else None
    return axis if axis is not None and shape[axis] % heads == 0 else None


def _row_spec(path: Any, x: Any, devices: int) -> PartitionSpec:
    """Returns the spec of a sum over rows that is spread over their devices."""
    heads = jax.sharding.get_abstract_mesh().shape.get("heads", 1)
    whole = _parameter_spec(path, x.shape, devices, heads)
    return PartitionSpec(*(axis if axis == "rows" else None for axis in whole))


def _row_devices() -> int:
    """Returns how many devices share the rows, inside `spread_seeds`; 1 elsewhere."""
    return jax.sharding.get_abstract_mesh().shape.get("rows", 1)


def _largest(shape: tuple[int, ...], devices: int) -> PartitionSpec | None:
    """Returns the spec that splits the largest dimension that `devices` divides; None if none does.

    A dimension whose parts are whole tiles of a TPU comes before larger ones: for other parts XLA
    makes an all-reduce and a slice, not a reduce-scatter.
    """
    tiles = (*[1] * len(shape), 8, 128)[2:]
    divides = lambda n, size: size > 0 and size % n == 0
    rank = [
        (divides(devices, size), divides(devices * tile, size), size)
        for size, tile in zip(shape, tiles, strict=True)
    ]
    if not any(whole for whole, *_ in rank):
        return None
    return PartitionSpec(*[None] * rank.index(max(rank)), "rows")


def _mesh(seeds: int) -> Mesh:
    return _device_mesh(target().devices, seeds, _tensor_devices)


@functools.cache
def _device_mesh(devices: tuple[Any, ...], seeds: int, heads: int) -> Mesh:
    """Returns the devices as [groups of seeds, devices of rows, devices of heads], in their
    network's order.
    """
    count = len(devices)
    line = jax.make_mesh((count,), ("all",), axis_types=(AxisType.Auto,), devices=devices)
    grid = line.devices.reshape(math.gcd(seeds, count // heads), -1, heads)
    return Mesh(grid, ("seeds", "rows", "heads"), axis_types=(AxisType.Auto,) * 3)
