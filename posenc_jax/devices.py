"""Several devices: the rows of a batch are spread over them, everything else is on each."""

import os
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding, PartitionSpec

MOST_CPU_DEVICES = 8
HEARTBEAT = 30  # seconds
Number = TypeVar("Number", int, bool)


def use_cores(rows: int) -> None:
    """Makes cores of a CPU devices, as many as divide `rows`; before JAX starts its backend.

    Two halves of a batch on two cores train faster than one batch on a pool of two threads.
    """
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    divisors = [n for n in range(1, min(cores, MOST_CPU_DEVICES) + 1) if rows % n == 0]
    jax.config.update("jax_num_cpu_devices", divisors[-1])


def join_processes() -> None:
    """Joins the processes of one run, where the environment names them all: the coordinator's
    address (JAX_COORDINATOR_ADDRESS), JAX_NUM_PROCESSES and JAX_PROCESS_ID; before JAX starts.

    A process whose peer is lost ends within HEARTBEAT seconds.
    """
    if "JAX_NUM_PROCESSES" in os.environ:
        jax.distributed.initialize(
            num_processes=int(os.environ["JAX_NUM_PROCESSES"]),
            process_id=int(os.environ["JAX_PROCESS_ID"]),
            heartbeat_timeout_seconds=HEARTBEAT,
            shutdown_timeout_seconds=HEARTBEAT,
        )


def spread_rows(tree: Any) -> Any:
    """The arrays of [B, ...] with B over all devices, where it divides; for use under jit."""
    if jax.device_count() == 1:
        return tree

    def spread(x_B: jax.Array) -> jax.Array:
        spec = PartitionSpec("rows") if x_B.shape[0] % jax.device_count() == 0 else PartitionSpec()
        return jax.lax.with_sharding_constraint(x_B, NamedSharding(_mesh(), spec))

    return jax.tree.map(spread, tree)


def on_every_device(tree: Any) -> Any:
    """The arrays with a copy on each device."""
    if jax.device_count() == 1:
        return tree
    if jax.process_count() > 1:
        tree = jax.device_get(tree)
    return jax.device_put(tree, NamedSharding(_mesh(), PartitionSpec()))


def whole() -> NamedSharding | None:
    """How results are kept that every process reads; None: as the compiler likes."""
    return NamedSharding(_mesh(), PartitionSpec()) if jax.process_count() > 1 else None


def free_bytes() -> int | None:
    """What a program may still take: of a device's memory, or the machine's; None: not known."""
    stats = jax.local_devices()[0].memory_stats() or {}
    if "bytes_limit" in stats:
        return stats["bytes_limit"] - stats.get("bytes_in_use", 0)
    return _free_on_host() if jax.default_backend() == "cpu" else None


def _free_on_host() -> int | None:
    """What Linux says is available, to the machine and to this group of processes."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        kilobytes = next(line.split()[1] for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return None
    free, group = 1024 * int(kilobytes), Path("/sys/fs/cgroup")
    try:
        most, used = ((group / f"memory.{name}").read_text() for name in ("max", "current"))
        return min(free, int(most) - int(used))
    except (OSError, ValueError):  # no such group, or "max"
        return free


def agree(value: Number) -> Number:
    """The first process's value, in every process."""
    if jax.process_count() == 1:
        return value
    return type(value)(multihost_utils.broadcast_one_to_all(np.int32(value)))


def _mesh() -> jax.sharding.Mesh:
    return jax.sharding.Mesh(jax.devices(), ("rows",))
