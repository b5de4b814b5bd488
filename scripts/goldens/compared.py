"""How far an encoding is from a model of transformers, of which arrays were recorded."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax import Dims, Encoding, frame, weights
from posenc_jax.layout import layout


def layers_gap(
    encoding: Encoding, arrays: Mapping[str, np.ndarray], pos: np.ndarray, causal: bool
) -> float:
    """The largest difference of our attention weights from those of a model.

    Args:
      encoding: without parameters.
      arrays: "N/q" and "N/k" of layer N before they turn, [1, T, H, C], and "N/weights".
      pos: positions, [1, T] or [1, T, A].
    """
    numbers = sorted({int(name.split("/")[0]) for name in arrays})
    heads, head = arrays[f"{numbers[0]}/q"].shape[2:]
    gap = 0.0
    with jax.enable_x64(True):
        at = layout(np.ones(pos.shape[:2], np.int32), jnp.asarray(pos))
        dims = Dims(heads * head, heads, head, numbers[-1] + 1)
        params = encoding.init(jax.random.key(0), dims)
        view = frame(encoding, params, at, dims, causal=causal, form="dense")
        for n in numbers:
            q, k = (jnp.asarray(np.asarray(arrays[f"{n}/{side}"], np.float64)) for side in "qk")
            heads, head = q.shape[2:]
            if (heads, head) != (dims.heads, dims.head):  # heads of another width in other layers
                dims = Dims(heads * head, heads, head, numbers[-1] + 1)
                params = encoding.init(jax.random.key(0), dims)
                view = frame(encoding, params, at, dims, causal=causal, form="dense")
            made = weights(q, k, view.layer(n))
            theirs = np.asarray(arrays[f"{n}/weights"], np.float64)
            gap = max(gap, float(np.max(np.abs(np.asarray(made) - theirs))))
    return gap
