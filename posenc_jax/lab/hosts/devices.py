"""Several devices: one mesh with the axes "seeds" and "rows".

The seeds of a run are spread as far as devices and seeds have a common factor; the devices of one
seed share the rows of its batches, and with FSDP its state too. Seeds never speak to each other.
"""

import functools
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from posenc_jax.lab.hosts import processes

MOST_CPU_DEVICES = 8


def use_cores(rows: int) -> None:
    """Makes cores of a CPU devices, as many as divide `rows`; before JAX starts its backend.

    Two halves of a batch on two cores train faster than one batch on a pool of two threads. A
    number of devices that JAX_NUM_CPU_DEVICES or XLA_FLAGS asks for stays.
    """
    forced = "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    if forced or "JAX_NUM_CPU_DEVICES" in os.environ:
        return
    divisors = [n for n in range(1, min(len(cores()), MOST_CPU_DEVICES) + 1) if rows % n == 0]
    jax.config.update("jax_num_cpu_devices", divisors[-1])


def cores() -> list[int]:
    """The numbers of the CPU cores that this process may run on, ascending."""
    affinity = getattr(os, "sched_getaffinity", None)
    return sorted(affinity(0)) if affinity else list(range(os.cpu_count() or 1))


def spread_seeds(function: Callable, given: Any, *trees: Any) -> Any:
    """function(given, *trees), where the leaves of `trees` lead with S: each device calls it on its
    share of the seeds. Arrays that lie on every device must be `given`, not closed over.
    """
    if jax.device_count() == 1:
        return function(given, *trees)
    seeds = jax.tree.leaves(trees)[0].shape[0]
    by_seed = PartitionSpec("seeds")
    return jax.shard_map(
        function, mesh=_mesh(seeds), in_specs=(PartitionSpec(), *[by_seed] * len(trees)),
        out_specs=by_seed, axis_names={"seeds"}, check_vma=False,
    )(given, *trees)  # fmt: skip


def spread_rows(tree: Any) -> Any:
    """The arrays of [B, ...] with B over the devices of the seed, where it divides."""
    return _constrained(tree, lambda shape, n: PartitionSpec("rows") if shape[0] % n == 0 else None)


def spread_parameters(tree: Any) -> Any:
    """The leaves over the devices of the seed, each along its largest dimension that divides."""
    return _constrained(tree, _largest)


def gathered(tree: Any) -> Any:
    """The leaves whole on each device of the seed."""
    return _constrained(tree, lambda shape, n: None)


def sum_over_rows(function: Callable, given: Any, batch: Any) -> Any:
    """function(given, batch), called by each device of the seed on its own rows and added up.

    All sums are then said at once. XLA by itself says the gradient of each parameter as it is made,
    and on a CPU devices wait for each other each time.

    Args:
      function: its values are sums over the rows that it is given.
      given: the same for all devices.
      batch: leaves [B, ...]; where the devices do not divide B each of them does it all.
    """
    devices = _row_devices()
    if devices == 1 or jax.tree.leaves(batch)[0].shape[0] % devices:
        return function(given, batch)
    own = lambda given, batch: jax.lax.psum(function(given, batch), "rows")
    return jax.shard_map(
        own, in_specs=(PartitionSpec(), PartitionSpec("rows")), out_specs=PartitionSpec(),
        axis_names={"rows"}, check_vma=False,
    )(given, batch)  # fmt: skip


def by_seed(tree: Any, fsdp: bool) -> Any:
    """Leaves that lead with S as a program is to leave them: each on the devices of its seed; with
    `fsdp` spread over those, as `spread_parameters` does. For use under jit.
    """
    if jax.device_count() == 1:
        return tree

    def one(x: jax.Array) -> jax.Array:
        mesh = _mesh(x.shape[0])
        rest = _largest(x.shape[1:], mesh.shape["rows"]) if fsdp else None
        spec = PartitionSpec("seeds", *(rest or ()))
        return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, spec))

    return jax.tree.map(one, tree)


def on_every_device(tree: Any) -> Any:
    """The arrays, the same in all processes, with a copy on each device."""
    if jax.device_count() == 1:
        return tree
    return jax.tree.map(lambda x: processes.place(x, _everywhere()), tree)


def replicated() -> NamedSharding | None:
    """How results are kept that every process reads while others are made; None: as they are."""
    return _everywhere() if processes.is_multiprocess() else None


def free_bytes() -> float:
    """What a program may still take: of a device's memory, or the machine's; inf: not known."""
    stats = jax.local_devices()[0].memory_stats() or {}
    if "bytes_limit" in stats:
        return stats["bytes_limit"] - stats.get("bytes_in_use", 0)
    return _free_on_host() if jax.default_backend() == "cpu" else math.inf


def _free_on_host() -> float:
    """What Linux says is available, to the machine and to this group of processes."""
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
    """The leaves as `spec` says of their shape and the number of devices; None: whole on each."""
    devices = _row_devices()
    if devices == 1:
        return tree
    constrain = jax.lax.with_sharding_constraint
    return jax.tree.map(lambda x: constrain(x, spec(x.shape, devices) or PartitionSpec()), tree)


def _row_devices() -> int:
    """How many devices share the rows, inside `spread_seeds`; 1 elsewhere."""
    return jax.sharding.get_abstract_mesh().shape.get("rows", 1)


def _largest(shape: tuple[int, ...], devices: int) -> PartitionSpec | None:
    sizes = [size if size % devices == 0 else 0 for size in shape]
    if not any(sizes):
        return None
    return PartitionSpec(*[None] * sizes.index(max(sizes)), "rows")


def _everywhere() -> NamedSharding:
    return NamedSharding(_mesh(1), PartitionSpec())


@functools.cache
def _mesh(seeds: int) -> Mesh:
    """All devices, in the order that suits their network, as [seeds apart, devices of a seed]."""
    line = jax.make_mesh((jax.device_count(),), ("all",), axis_types=(AxisType.Auto,))
    grid = line.devices.reshape(math.gcd(seeds, jax.device_count()), -1)
    return Mesh(grid, ("seeds", "rows"), axis_types=(AxisType.Auto,) * 2)
