"""Accelerators that programs can be compiled for on a machine without one."""

from collections.abc import Sequence
from typing import Any, NamedTuple

LOCAL = {  # libtpu asks a machine with TPUs for these
    "JAX_PLATFORMS": "cpu",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # else the second process stops at a lock file
}


class Chip(NamedTuple):
    """A kind of accelerator: 4 of its chips are the largest mesh of a program."""

    backend: str
    platform: str
    topology: str
    packages: tuple[str, ...]  # the compiler


def _tpu(topology: str) -> Chip:
    return Chip("tpu", "tpu", topology, ("jax", "jaxlib", "libtpu"))


CHIPS = {
    "v5e": _tpu("v5e:2x2"),
    "v6e": _tpu("v6e:2x2"),
    "v5p": _tpu("v5p:2x2x1"),
    "v4": _tpu("v4:2x2x1"),
}


def environment(dump: str) -> dict[str, str]:
    """Returns the variables of a process that compiles; it writes instruction bundles to `dump`."""
    flags = {
        "xla_jf_dump_to": dump,
        "xla_jf_dump_llo_text": "true",
        "xla_jf_dump_llo_pass_label_regex": "final_bundles",  # all passes take 8 times as long
    }
    return {**LOCAL, "LIBTPU_INIT_ARGS": " ".join(f"--{k}={v}" for k, v in flags.items())}


def devices(chip: Chip, count: int) -> Sequence[Any]:
    """Returns so many devices of the topology, which can compile and not run."""
    from jax.experimental import topologies

    found = topologies.get_topology_desc(platform=chip.platform, topology_name=chip.topology)
    return found.devices[:count]
