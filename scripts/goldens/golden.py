"""A run of a public implementation as a `Golden`, and what its inputs are made of."""

import dataclasses
import importlib.metadata
import runpy
import zlib
from typing import Any, Literal

import numpy as np
import torch


@dataclasses.dataclass(frozen=True)
class Golden:
    """A run of `function` of `package`, and the options of ours that must give the same.

    case:    method/setting.
    options: what `posenc_jax.make` takes to do the same.
    wrong:   options which, put over these, must give something else (the test's control); if none,
             the test doubles positions and features.
    hook:    what the test compares: "embed" (the code alone, added to zeros), "rotate" (rotated q
             and k), "bias", "attend" (attention weights), or "stream" (the ids of options["parts"],
             by posenc_jax.encodings.multimodal_ids).
    dims:    widths: model, heads, head.
    inputs:  pos [B, T] or [B, T, A], of keys and queries; "q_pos" for a bias of other queries; "q"
             [B, Q, H, C] and "k" [B, T, H, C], the queries being the last of the tokens; "x", the
             tokens' features [B, T, D]; parameters as "params/<path>" in our names.
    outputs: "code" [B, T, D]; "q" and "k"; "bias" [B|1, H, Q, T]; "weights" [B, H, Q, T];
             "ids" [T, 3].
    layer:   which layer of ours does the same.
    causal:  of hook "attend".
    """

    case: str
    package: str
    function: str
    hook: Literal["embed", "rotate", "bias", "attend", "stream"]
    options: dict[str, Any]
    wrong: dict[str, Any]
    dims: tuple[int, int, int]
    inputs: dict[str, np.ndarray]
    outputs: dict[str, np.ndarray]
    layer: int = 0
    causal: bool = True


def normal(case: str, *shape: int) -> torch.Tensor:
    """Returns normal numbers, float32, the same for the same case and shape."""
    rng = np.random.default_rng(zlib.crc32(f"{case}{shape}".encode()))
    return torch.from_numpy(rng.normal(size=shape).astype(np.float32))


def drawn(case: str, *shape: int, names: str = "qk") -> list[torch.Tensor]:
    """Returns queries and keys, or what the letters of `names` stand for, drawn by `normal`."""
    return [normal(f"{case} {name}", *shape) for name in names]


def projected(x: torch.Tensor, heads: int, *projections: Any) -> list[torch.Tensor]:
    """Returns f(x) [B, T, H, C] for x [B, T, D] and each projection f."""
    return [f(x).reshape(*x.shape[:2], heads, -1) for f in projections]


def count(time: int, start: int = 0) -> torch.Tensor:
    """Returns positions start, start + 1, ... [1, T]."""
    return torch.arange(start, start + time)[None]


def grid(rows: int, columns: int) -> torch.Tensor:
    """Returns (row, column) of a grid, row by row, [1, T, 2]."""
    return torch.cartesian_prod(torch.arange(rows), torch.arange(columns))[None]


def reset(module: torch.nn.Module, case: str) -> torch.nn.Module:
    """Returns the module with every parameter drawn by its name, in evaluation mode."""
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.copy_(normal(f"{case} {name}", *parameter.shape))
    return module.eval()


def arrays(**tensors: torch.Tensor) -> dict[str, np.ndarray]:
    """Returns NumPy arrays; whole numbers as int32, "__" in a name as "/"."""
    arrays = {}
    for name, tensor in tensors.items():
        array = tensor.detach().numpy()
        whole = np.issubdtype(array.dtype, np.integer)
        arrays[name.replace("__", "/")] = array.astype(np.int32) if whole else array.copy()
    return arrays


def weights(q, k, bias: Any = 0.0, causal: bool = True) -> torch.Tensor:
    """Returns the softmax of q k / sqrt(C) + bias, [B, H, Q, K]; q and k are [B, T, H, C]."""
    s = torch.einsum("bqhc,bkhc->bhqk", q, k) * q.shape[-1] ** -0.5 + bias
    seen = torch.ones(s.shape[-2:]).tril(s.shape[-1] - s.shape[-2]).bool() | (not causal)
    return s.masked_fill(~seen, -torch.inf).softmax(-1)


def attended(
    case, package, function, options, wrong, q, k, weights, *, causal=True, layer=0, pos=None,
    **inputs
) -> Golden:  # fmt: skip
    """Returns a golden of attention weights [B, H, Q, K] for q and k [B, T, H, C], not rotated.

    The positions are 0, 1, ... if `pos` is None.
    """
    heads, head = q.shape[2:]
    pos = count(k.shape[1]) if pos is None else pos
    return Golden(
        case, package, function, "attend", options, wrong, (heads * head, heads, head),
        arrays(pos=pos, q=q, k=k, **inputs), arrays(weights=weights), layer, causal,
    )  # fmt: skip


def lone_file(package: str, path: str) -> dict[str, Any]:
    """Returns the names of a file whose package would need Triton or old versions."""
    return runpy.run_path(str(importlib.metadata.distribution(package).locate_file(path)))
