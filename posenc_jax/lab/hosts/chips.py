"""Accelerators: how fast each one is at most, and how to compile for it on a machine without one.

Peaks are of products of bfloat16 matrices without sparsity, as their makers publish them:

    v4, v5e, v5p, v6e  docs.cloud.google.com/tpu/docs/v4, /v5e, /v5p, /v6e, "Peak compute per chip"
    A100               nvidia.com/en-us/data-center/a100
    H100               nvidia.com/en-us/data-center/h100, half of the numbers "with sparsity"
    H200               nvidia.com/en-us/data-center/h200, the same
    B200               the data sheet of Blackwell, the same
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import MappingProxyType
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
    "MOSAIC_GPU_DUMP_PTXAS": "1",  # says what registers a kernel takes
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
    """A kind of accelerator.

    peaks:    FLOP/s of one device, by JAX's `device_kind`. A name that is not here has none: a part
              of a GPU (MIG) is called as the whole with more words, and others are slower.
    topology: what JAX's `get_topology_desc` takes, of 4 chips; None: no program is compiled for it
              here.
    slices:   names of larger topologies by their number of chips.
    packages: the compiler.
    """

    backend: str
    peaks: Mapping[str, float]
    topology: Mapping[str, str] | None = None
    packages: tuple[str, ...] = ()
    slices: Mapping[int, str] = MappingProxyType({})


def _tpu(name: str, peak: float, *kinds: str, **slices: Mapping[int, str]) -> Chip:
    topology = {"platform": "tpu", "topology_name": name}
    packages = "jax", "jaxlib", "libtpu"
    return Chip("tpu", dict.fromkeys(kinds, peak), topology, packages, **slices)


CHIPS = {
    "v5e": _tpu(
        "v5e:2x2", 197e12, "TPU v5 lite", "TPU v5e", slices={8: "v5e:2x4", 256: "v5e:16x16"}
    ),
    "v6e": _tpu("v6e:2x2", 918e12, "TPU v6 lite", "TPU v6e"),
    "v5p": _tpu("v5p:2x2x1", 459e12, "TPU v5", "TPU v5p"),
    "v4": _tpu("v4:2x2x1", 275e12, "TPU v4"),
    "h100": Chip(
        "gpu",
        {"NVIDIA H100 80GB HBM3": 989e12, "NVIDIA H100 PCIe": 756e12, "NVIDIA H100 NVL": 835e12},
        {"platform": "cuda", "topology_name": "", "topology": "1x1x4", "target_config": H100},
        ("jax", "jaxlib", "jax-cuda12-plugin", "nvidia-cudnn-cu12"),
    ),
    "a100": Chip(
        "gpu",
        dict.fromkeys(
            ("NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-80GB", "NVIDIA A100-PCIE-40GB",
             "NVIDIA A100 80GB PCIe"), 312e12,
        ),
    ),
    "h200": Chip("gpu", {"NVIDIA H200": 989e12, "NVIDIA H200 NVL": 835e12}),
    "b200": Chip("gpu", {"NVIDIA B200": 2250e12}),
}  # fmt: skip
COMPILED = {name: chip for name, chip in CHIPS.items() if chip.topology is not None}


def peak_flops(device_kind: str) -> float | None:
    """Returns the most FLOP/s of a device in bfloat16; None if it is not in the table, as a CPU.

    There is no default: torchtitan takes a device that it does not know for an A100.
    """
    return next((c.peaks[device_kind] for c in CHIPS.values() if device_kind in c.peaks), None)


def environment(chip: str) -> dict[str, str]:
    """Returns the variables of a process that compiles for this chip."""
    return {**WITHOUT_LINES, **(WITHOUT_GPU if COMPILED[chip].backend == "gpu" else LOCAL)}


def traced_for(chip: Chip, device: Any) -> AbstractContextManager[Any]:
    """In this context JAX lowers kernels for the device of a topology.

    JAX 0.12 asks the mesh for which GPU it lowers a kernel in Mosaic, else this machine.
    """
    import jax
    from jax.sharding import AbstractDevice, AbstractMesh

    if chip.backend != "gpu":
        return nullcontext()
    kind = AbstractDevice(device_kind=device.device_kind, num_cores=None, platform="gpu")
    return jax.sharding.use_abstract_mesh(AbstractMesh((), (), abstract_device=kind))


def devices(chip: Chip, count: int) -> Sequence[Any]:
    """Returns so many devices of the topology, which can compile and not run."""
    from jax.experimental import topologies

    assert chip.topology is not None
    name = chip.slices.get(count, chip.topology["topology_name"])
    return topologies.get_topology_desc(**{**chip.topology, "topology_name": name}).devices[:count]
