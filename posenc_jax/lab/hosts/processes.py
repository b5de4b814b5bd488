"""Several processes, often on several hosts, that compute one run together.

All run the same program in step; only the first one writes files, prints and logs to W&B. Each
function that exchanges values must be called by all processes, in the same order.
"""

import importlib.util
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils

HEARTBEAT = 30  # seconds without a heartbeat after which a process counts as lost
SHUTDOWN = 600  # seconds that a finished process waits for the others
# Variables in which launchers give the number of processes; jax.distributed finds the rest.
LAUNCHERS = ("SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE")
OURS = ("JAX_NUM_PROCESSES", "JAX_PROCESS_ID", "JAX_COORDINATOR_ADDRESS")
Number = TypeVar("Number", int, bool)


def join(environment: Mapping[str, str] = os.environ) -> None:
    """Joins the processes of one run, if the environment says that there are several: the three
    variables JAX_NUM_PROCESSES, JAX_PROCESS_ID and JAX_COORDINATOR_ADDRESS, Slurm or Open MPI with
    several tasks, or a TPU, whose slice may have several hosts. Call it before JAX starts a
    backend.

    A process whose peer is lost ends within about HEARTBEAT seconds.

    Raises:
      ValueError: a variable is missing or not a number; names it.
    """
    settings = _ours(environment) if OURS[0] in environment else {}
    counts = (
        [settings["num_processes"]] if settings else [_number(environment, n, 1) for n in LAUNCHERS]
    )
    several = max(counts) > 1
    if not several and (settings or not _on_tpu(environment)):
        return
    # JAX would handle SIGTERM itself; `signals` handles it in the same way everywhere.
    jax.config.update("jax_enable_preemption_service", False)
    try:
        jax.distributed.initialize(
            **settings, heartbeat_timeout_seconds=HEARTBEAT, shutdown_timeout_seconds=SHUTDOWN
        )
    except ValueError:
        if several:
            raise  # otherwise a TPU on one host, not in a slice that JAX knows


def is_multiprocess() -> bool:
    """Returns whether several processes compute this run; with one, starts no JAX backend."""
    return jax.distributed.is_initialized() and jax.process_count() > 1


def is_first() -> bool:
    """Returns whether this is the first process, which writes."""
    return not is_multiprocess() or jax.process_index() == 0


def leave() -> None:
    """Waits for all processes at the end of a run, and disconnects."""
    if is_multiprocess():
        jax.distributed.shutdown()


def from_first(value: Number) -> Number:
    """Returns the first process's value."""
    if not is_multiprocess():
        return value
    return type(value)(multihost_utils.broadcast_one_to_all(np.int32(value)))


def any_process(value: bool) -> bool:
    """Returns whether the value is true in any process."""
    return bool(_all_values(float(value)).any()) if is_multiprocess() else value


def minimum(value: float) -> float:
    """Returns the smallest value of all processes, in single precision if there are several."""
    return float(_all_values(value).min()) if is_multiprocess() else value


def fetch(tree: Any) -> Any:
    """Returns the whole arrays of a tree on this host, however they are sharded."""
    return jax.tree.map(_whole, tree) if is_multiprocess() else jax.device_get(tree)


def place(x: Any, sharding: jax.sharding.Sharding | None) -> jax.Array:
    """Puts an array that every process has whole on devices as the sharding says; None: on the
    first device of this process.
    """
    if sharding is None or sharding.is_fully_addressable:
        return jax.device_put(x, sharding)
    host = np.asarray(x)
    return jax.make_array_from_callback(host.shape, sharding, lambda index: host[index])


def _whole(leaf: Any) -> Any:
    if not isinstance(leaf, jax.Array) or leaf.is_fully_replicated or leaf.is_fully_addressable:
        return jax.device_get(leaf)
    return multihost_utils.process_allgather(leaf, tiled=True)


def _all_values(value: float) -> np.ndarray:
    return multihost_utils.process_allgather(np.float32(value))


def _ours(environment: Mapping[str, str]) -> dict[str, Any]:
    if missing := [name for name in OURS if name not in environment]:
        raise ValueError(f"{missing[0]}: must be set, as {OURS[0]} is")
    count, index = (_number(environment, name, 0) for name in OURS[:2])
    if not 0 <= index < count:
        raise ValueError(f"{OURS[1]}: {index} is not one of 0 to {count - 1}")
    return {
        "num_processes": count, "process_id": index, "coordinator_address": environment[OURS[2]]
    }  # fmt: skip


def _number(environment: Mapping[str, str], name: str, default: int) -> int:
    text = environment.get(name, str(default))
    if not text.isdecimal():
        raise ValueError(f"{name}: {text!r} is not a number of processes")
    return int(text)


def _on_tpu(environment: Mapping[str, str]) -> bool:
    """Returns whether this host has TPU chips and JAX may use them."""
    if environment.get("JAX_PLATFORMS", "tpu").split(",")[0] != "tpu":
        return False
    chips = [*Path("/dev").glob("accel*"), *Path("/dev").glob("vfio/[0-9]*")]
    return bool(chips) and importlib.util.find_spec("libtpu") is not None
