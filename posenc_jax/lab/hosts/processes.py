"""Several processes, often on several hosts, that make one run together.

All of them run the same program in step; the first alone writes, prints and speaks to W&B. What one
process knows and the others do not (a clock, a signal, free memory, a file) is agreed on here: each
of these functions must be called by all processes, in the same order.
"""

import importlib.util
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding, PartitionSpec

HEARTBEAT = 30  # seconds until a process that is lost counts as such
SHUTDOWN = 600  # seconds that a process which is done waits for the others
GATHERED = 1 << 28  # bytes that are put together on each device at a time, or one leaf
# What launchers call the number of processes; jax.distributed finds the rest by itself.
LAUNCHERS = ("SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE")
OURS = ("JAX_NUM_PROCESSES", "JAX_PROCESS_ID", "JAX_COORDINATOR_ADDRESS")
Number = TypeVar("Number", int, bool)


def join(environment: Mapping[str, str] = os.environ) -> None:
    """Joins the processes of one run, where the environment says that there are several: our three
    variables, Slurm or Open MPI with several tasks, or a TPU, whose slice may have several hosts.
    Elsewhere it does nothing. Before JAX starts its backend.

    A process whose peer is lost ends within about HEARTBEAT seconds.

    Raises:
      ValueError: one line names the variable that is missing or no number.
    """
    if OURS[0] in environment:
        given = _ours(environment)
        counted = given["num_processes"] > 1
    else:
        given = {}
        counted = any(_number(environment, name, 1) > 1 for name in LAUNCHERS)
    if not counted and (given or not _on_tpu(environment)):
        return
    # JAX would take SIGTERM for itself; `interrupts` handles it in one way everywhere.
    jax.config.update("jax_enable_preemption_service", False)
    try:
        jax.distributed.initialize(
            **given, heartbeat_timeout_seconds=HEARTBEAT, shutdown_timeout_seconds=SHUTDOWN
        )
    except ValueError:
        if counted:
            raise  # else a TPU that is in no slice JAX knows of: one host


def is_multiprocess() -> bool:
    """Whether this is one of several processes; does not start JAX's backend where it is not."""
    return jax.distributed.is_initialized() and jax.process_count() > 1


def is_first() -> bool:
    """Whether this process is the one that writes."""
    return not is_multiprocess() or jax.process_index() == 0


def leave() -> None:
    """Waits for all processes to come here; for the end of a run."""
    if is_multiprocess():
        jax.distributed.shutdown()


def from_first(value: Number) -> Number:
    """The first process's value."""
    if not is_multiprocess():
        return value
    return type(value)(multihost_utils.broadcast_one_to_all(np.int32(value)))


def any_process(value: bool) -> bool:
    """Whether it is so in any process."""
    return bool(_all_values(float(value)).any()) if is_multiprocess() else value


def minimum(value: float) -> float:
    """The smallest value of all processes, in single precision where there are several."""
    return float(_all_values(value).min()) if is_multiprocess() else value


def fetch(tree: Any) -> Any:
    """The values of a tree, whole, on this host, however they are spread over devices."""
    if not is_multiprocess():
        return jax.device_get(tree)
    leaves, structure = jax.tree.flatten(tree)
    group, size = [], 0
    for at, leaf in enumerate(leaves):
        if not isinstance(leaf, jax.Array) or leaf.is_fully_replicated or leaf.is_fully_addressable:
            continue
        group, size = [*group, at], size + leaf.nbytes
        if size >= GATHERED:
            _gather(leaves, group)
            group, size = [], 0
    _gather(leaves, group)
    return jax.device_get(structure.unflatten(leaves))


def place(x: Any, sharding: jax.sharding.Sharding) -> jax.Array:
    """An array that all processes have, whole, as the sharding says."""
    if sharding.is_fully_addressable:
        return jax.device_put(x, sharding)
    host = np.asarray(x)
    return jax.make_array_from_callback(host.shape, sharding, lambda index: host[index])


def _gather(leaves: list[Any], group: Sequence[int]) -> None:
    """Makes these leaves whole, in one program, and brings them to the host."""
    spread = [leaves[at] for at in group]
    shardings = [NamedSharding(leaf.sharding.mesh, PartitionSpec()) for leaf in spread]
    whole = jax.device_get(jax.jit(_same, out_shardings=shardings)(spread))
    for at, leaf in zip(group, whole, strict=True):
        leaves[at] = leaf


def _same(leaves: list[jax.Array]) -> list[jax.Array]:
    return leaves


def _all_values(value: float) -> np.ndarray:
    return multihost_utils.process_allgather(np.float32(value))


def _ours(environment: Mapping[str, str]) -> dict[str, Any]:
    for name in OURS:
        if name not in environment:
            raise ValueError(f"{name}: must be set, as {OURS[0]} is")
    count, index = (_number(environment, name, 0) for name in OURS[:2])
    if not 0 <= index < count:
        raise ValueError(f"{OURS[1]}: {index} is not one of 0 to {count - 1}")
    return {
        "num_processes": count, "process_id": index, "coordinator_address": environment[OURS[2]]
    }  # fmt: skip


def _number(environment: Mapping[str, str], name: str, default: int) -> int:
    said = environment.get(name, str(default))
    if not said.isdecimal():
        raise ValueError(f"{name}: {said!r} is not a number of processes")
    return int(said)


def _on_tpu(environment: Mapping[str, str]) -> bool:
    """Whether this host has TPU chips and JAX is to use them."""
    if environment.get("JAX_PLATFORMS", "tpu").split(",")[0] != "tpu":
        return False
    chips = [*Path("/dev").glob("accel*"), *Path("/dev").glob("vfio/[0-9]*")]
    return bool(chips) and importlib.util.find_spec("libtpu") is not None
