"""How far an encoding is from a model of transformers, of which arrays were recorded."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax import Dims, Encoding, attend, frame, merge, parts_from_huggingface, weights
from posenc_jax.encoding import embed, place
from posenc_jax.encodings import picture_positions
from posenc_jax.layout import layout


def of_picture(encoding: Encoding, image: Sequence[int] | None) -> Encoding:
    """The table of patches, read for a picture of so many along its height and width; None: as it
    is.
    """
    if image is None:
        return encoding
    options = {**encoding.options, "image_rows": image[0], "image_columns": image[1]}
    assert encoding.recipe is not None
    return encoding.recipe.function(**options)


def answer_of(
    config: Mapping[str, Any], part: str | None = None, image: Sequence[int] | None = None
) -> Encoding:
    """The encoding of a part of a config; None: of the first part that has one.

    image: as `of_picture`.
    ValueError: the part has none, and why.
    """
    answers = parts_from_huggingface(config)
    encodings = {name: a for name, a in answers.items() if isinstance(a, Encoding)}
    if not encodings or part not in {None, *encodings}:
        raise ValueError(f"{part}: {answers}")
    return of_picture(encodings[next(iter(encodings)) if part is None else part], image)


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
    encoding = of_picture(encoding, image)
    options = encoding.options
    rows, columns = image or (options["rows"], options["columns"])
    pos_BTA = picture_positions.tokens([(rows, columns)], prefix=options["prefix"]).pos_T2[None]
    if pos_BTA.shape[1] != len(code_TD):
        return np.inf
    with jax.enable_x64(True):
        at = layout(np.ones(pos_BTA.shape[:2], np.int32), jnp.asarray(pos_BTA))
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
            gap = float(np.maximum(gap, np.max(np.abs(np.asarray(made) - theirs))))
    return gap


def filled(encoding: Encoding, dims: Dims, arrays: Mapping[str, np.ndarray]) -> Any:
    """The parameters of an encoding with the leaves that have the name and shape of an array.

    Names of arrays may go on: "table", "table of frames". ValueError: an array that none has.
    """
    used = set()

    def pick(path, leaf):
        last = next((str(k.key) for k in path[::-1] if hasattr(k, "key")), "")
        fits = lambda name: name.split()[0] == last and arrays[name].shape == leaf.shape
        fitting = list(filter(fits, arrays)) if last else []
        if not fitting:
            return leaf
        name = next((name for name in fitting if name not in used), fitting[0])
        used.add(name)
        return jnp.asarray(np.asarray(arrays[name], np.float64))

    params = jax.tree_util.tree_map_with_path(pick, encoding.init(jax.random.key(0), dims))
    if other := set(arrays) - used:
        raise ValueError(f"no parameters of ours are {', '.join(sorted(other))}")
    return params


def scores_gap(encoding: Encoding, layer: int, arrays: Mapping[str, np.ndarray]) -> float:
    """The largest difference of our attention weights in a layer from those of a model.

    arrays: "q", "k", "weights", "pos" and "params/NAME", as `attention_modules.watch` gives them.
    """
    q, k, theirs = (np.asarray(arrays[name], np.float64) for name in ("q", "k", "weights"))
    _, time, heads, head = q.shape
    named = {n.partition("/")[2]: x for n, x in arrays.items() if n.startswith("params/")}
    with jax.enable_x64(True):
        dims = Dims(heads * head, heads, head, layer + 1)
        at = layout(np.ones((1, time), np.int32), jnp.asarray(arrays["pos"]))
        params = filled(encoding, dims, named)
        causal = bool(np.all(np.triu(theirs, 1) == 0))
        view = frame(encoding, params, at, dims, causal=causal, form="dense")
        view.embed(jnp.zeros((1, time, dims.model), float))
        x = [jnp.asarray(arrays["x"], float)] if "x" in arrays else []
        made = weights(jnp.asarray(q), jnp.asarray(k), view.layer(layer, *x))
        return float(np.max(np.abs(np.asarray(made) - theirs)))


def block_outputs_gap(
    parts: Mapping[str, Any], layer: int, arrays: Mapping[str, np.ndarray]
) -> float:
    """The largest difference of our attention's output in a layer from that of a model whose
    queries read tokens, and keys that stand for blocks of tokens.

    Args:
      parts: the encodings "tokens" and "blocks".
      arrays: as `block_layers.recorded_layers` gives them.
    """
    x = {n: jnp.asarray(a if a.dtype == bool else a.astype(np.float64)) for n, a in arrays.items()}
    time, heads, head = x["q"].shape[1:]
    with jax.enable_x64(True):
        dims = Dims(heads * head, heads, head, layer + 1)
        at = layout(np.ones((1, time), np.int32))
        q, tokens, sees = x["q"], x["tokens"], x["sees"]
        view = frame(parts["tokens"], {}, at, dims, form="dense").layer(layer)
        seen = attend(q, tokens, tokens, view, sink_H=x["sink"], return_lse=True)
        if "blocks" in x:
            blocks = x["blocks"]
            there = layout(np.ones((1, blocks.shape[1]), np.int32), jnp.asarray(arrays["pos"]))
            view = frame(parts["blocks"], {}, at, dims, there, causal=False, form="dense")
            mask = sees[..., time:]
            more = attend(q, blocks, blocks, view.layer(layer), mask_BHQK=mask, return_lse=True)
            seen = merge(seen, more)
        return float(np.max(np.abs(np.asarray(seen[0]) - arrays["out"])))


def code_gap(encoding: Encoding, arrays: Mapping[str, np.ndarray]) -> float:
    """The largest difference of what we add at the input from what a model adds.

    arrays: "pos" [T, A], "code" [T, D], "params/NAME", and "x" [T, D] of a model that reads it, as
      in `embedding_modules.Added`. A table of ours is that of the same shape.
    """
    code_TD = np.asarray(arrays["code"], np.float64)
    named = {n.partition("/")[2]: x for n, x in arrays.items() if n.startswith("params/")}
    time, width = code_TD.shape
    with jax.enable_x64(True):
        dims = Dims(width, 1, width)
        at = layout(np.ones((1, time), np.int32), jnp.asarray(arrays["pos"])[None])
        params = filled(encoding, dims, named)
        x_TD = np.asarray(arrays.get("x", np.zeros((time, width))), np.float64)
        made = embed(encoding, params, jnp.asarray(x_TD)[None], place(encoding, None, at))
        return float(np.max(np.abs(np.asarray(made)[0] - x_TD - code_TD)))
