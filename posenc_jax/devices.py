"""Several devices: the rows of a batch are spread over them, everything else is on each."""

import os
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding, PartitionSpec

MOST_CPU_DEVICES = 8


def use_cores(rows: int) -> None:
    """Makes cores of a CPU devices, as many as divide `rows`; before JAX starts its backend.

    Two halves of a batch on two cores train faster than one batch on a pool of two threads.
    """
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    divisors = [n for n in range(1, min(cores, MOST_CPU_DEVICES) + 1) if rows % n == 0]
    jax.config.update("jax_num_cpu_devices", divisors[-1])


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
    return jax.device_put(tree, NamedSharding(_mesh(), PartitionSpec()))


def agree(value: int) -> int:
    """The first process's value, in every process."""
    if jax.process_count() == 1:
        return value
    return int(multihost_utils.broadcast_one_to_all(np.int32(value)))


def _mesh() -> jax.sharding.Mesh:
    return jax.sharding.Mesh(jax.devices(), ("rows",))
