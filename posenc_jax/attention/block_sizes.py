"""Sides of the blocks that kernels have."""

LANES = 128  # a TPU's vectors are so wide, and the blocks of a kernel are multiples of it
GPU_BLOCK = 16, 64  # the least and the largest side of a GPU's blocks, powers of 2


def to_whole(size: int, block: int) -> int:
    """The least multiple of `block` that is `size` or more."""
    return size + -size % block
