"""How far an encoding is from a model of transformers, of which arrays were recorded."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax import Dims, Encoding, frame, make, weights
from posenc_jax.encoding import embed, place
from posenc_jax.layout import layout


def input_gap(
    encoding: Encoding, ids: list[int] | None, rows: int | None, code_TD: np.ndarray | None
) -> float:
    """The largest difference of what we add at the input from what a model adds.

    Args:
      ids: the rows of its table that tokens 0, 1, ... read; None: it has no table.
      rows: of its table.
      code_TD: what it adds where it has no table.
    """
    if ids is not None:
        at = layout(np.ones((1, len(ids)), np.int32))
        shapes = jax.eval_shape(lambda: encoding.init(jax.random.key(0), Dims(32, 2, 16, 2)))
        ours = {leaf.shape[0] for leaf in jax.tree.leaves(shapes) if leaf.ndim == 2}
        placed = jax.tree.leaves(place(encoding, None, at))[0]
        return np.inf if rows not in ours else float(np.max(np.abs(np.asarray(placed)[0] - ids)))
    assert code_TD is not None
    with jax.enable_x64(True):
        at = layout(np.ones((1, len(code_TD)), np.int32))
        x_BTD = jnp.zeros((1, *code_TD.shape), float)
        made = embed(encoding, {}, x_BTD, place(encoding, None, at))
        return float(np.max(np.abs(np.asarray(made)[0] - code_TD)))


def grid_gap(
    encoding: Encoding, table_LD: np.ndarray, code_TD: np.ndarray, image: tuple[int, int] | None
) -> float:
    """The largest difference of the codes of a picture's tokens from those of a model.

    Args:
      encoding: a `learned_grid`.
      table_LD: its weights.
      code_TD: what the model adds to the tokens before the patches, and to the patches row by row.
      image: patches of the picture along its height and width; None: those of the table.
    """
    options = dict(encoding.options)
    if image is not None:
        options |= {"image_rows": image[0], "image_columns": image[1]}
    rows, columns = image or (options["rows"], options["columns"])
    prefix = np.array([(-1, n) for n in range(options["prefix"])], np.int32).reshape(-1, 2)
    patches = np.stack(np.divmod(np.arange(rows * columns), columns), -1)
    pos_BTA = np.concatenate([prefix, patches]).astype(np.int32)[None]
    if pos_BTA.shape[1] != len(code_TD):
        return np.inf
    with jax.enable_x64(True):
        at = layout(np.ones(pos_BTA.shape[:2], np.int32), jnp.asarray(pos_BTA))
        encoding = make("learned_grid", **options)
        params = {"table": jnp.asarray(np.asarray(table_LD, np.float64))}
        x_BTD = jnp.zeros((1, *code_TD.shape), float)
        made = embed(encoding, params, x_BTD, place(encoding, None, at))
        return float(np.max(np.abs(np.asarray(made)[0] - code_TD)))


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
