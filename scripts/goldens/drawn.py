"""Weights that are a function of their name, so that no file needs to hold them."""

import hashlib
import json
import pathlib
import zlib
from collections.abc import Mapping, Sequence

import numpy as np
from safetensors import safe_open


def drawn(case: str, shapes: Mapping[str, Sequence[int]]) -> dict[str, np.ndarray]:
    """Returns float32 tensors of these names and shapes, for which logits are about 1."""
    return {name: _drawn(f"{case} {name}", tuple(shape)) for name, shape in shapes.items()}


def _drawn(name: str, shape: tuple[int, ...]) -> np.ndarray:
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    spread = (2 * rng.random(shape) - 1) * 3**0.5  # of variance 1
    if len(shape) > 1:
        spread = spread * shape[-1] ** -0.5
    else:
        spread = 0.3 * spread + name.endswith("weight")
    return spread.astype(np.float32)


def digest(folder: pathlib.Path) -> str:
    """Returns the SHA-256 of a folder's config and tensors, whatever their order in the file."""
    digest = hashlib.sha256(json.dumps(json.loads((folder / "config.json").read_text())).encode())
    with safe_open(folder / "model.safetensors", "np") as file:
        for name in sorted(file.keys()):
            digest.update(name.encode() + file.get_tensor(name).tobytes())
    return digest.hexdigest()
