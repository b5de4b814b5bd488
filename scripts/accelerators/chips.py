"""Accelerators that programs can be compiled for on a machine without one."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

# So that a kernel's text has no line numbers, and is the same where only lines above it changed.
WITHOUT_LINES = {"JAX_TRACEBACK_IN_LOCATIONS_LIMIT": "0"}
LOCAL = {  # libtpu asks a machine with TPUs for these
    "JAX_PLATFORMS": "cpu",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # else the second process stops at a lock file
}
WITHOUT_GPU = {  # where JAX_PLATFORMS names the CPU, JAX does not load CUDA's plugin
    "JAX_PLATFORMS": "",
    "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",
    "XLA_FLAGS": "--xla_gpu_autotune_level=0",  # kernels are tuned by timing them on the GPU
}
# What the driver says of an H100, as XLA writes it.
H100 = """
gpu_device_info {
  cuda_compute_capability { major: 9 minor: 0 }
  core_count: 132
  fpus_per_core: 128
  clock_rate_ghz: 1.98
  threads_per_warp: 32
  threads_per_block_limit: 1024
  threads_per_core_limit: 2048
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
  shared_memory_per_block: 49152
  shared_memory_per_block_optin: 232448
  shared_memory_per_core: 233472
  l2_cache_size: 52428800
  device_memory_size: 84929347584
  memory_bandwidth: 3352320000000
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 7 }
runtime_version { major: 12 minor: 8 patch: 0 }
device_description_str: "NVIDIA H100 80GB HBM3"
"""


class Chip(NamedTuple):
    """A kind of accelerator: 4 of its chips are the largest mesh of a program.

    topology: what JAX's `get_topology_desc` takes.
    packages: the compiler.
    """

    backend: str
    topology: Mapping[str, str]
    packages: tuple[str, ...]


def _tpu(name: str) -> Chip:
    return Chip("tpu", {"platform": "tpu", "topology_name": name}, ("jax", "jaxlib", "libtpu"))


CHIPS = {
    "v5e": _tpu("v5e:2x2"),
    "v6e": _tpu("v6e:2x2"),
    "v5p": _tpu("v5p:2x2x1"),
    "v4": _tpu("v4:2x2x1"),
    "h100": Chip(
        "gpu",
        {"platform": "cuda", "topology_name": "", "topology": "1x1x4", "target_config": H100},
        ("jax", "jaxlib", "jax-cuda12-plugin", "nvidia-cudnn-cu12"),
    ),
}


def environment(chip: str) -> dict[str, str]:
    """Returns the variables of a process that compiles for this chip."""
    return {**WITHOUT_LINES, **(WITHOUT_GPU if CHIPS[chip].backend == "gpu" else LOCAL)}


def devices(chip: Chip, count: int) -> Sequence[Any]:
    """Returns so many devices of the topology, which can compile and not run."""
    from jax.experimental import topologies

    return topologies.get_topology_desc(**chip.topology).devices[:count]
