"""Pictures on a larger black canvas, with four questions: what, where, which pixels, and drawing.

    question  on the canvas       the model reads             it answers
    what      one picture         patches                     its label
    where     one picture         patches                     its third of rows, of columns: 0 to 8
    which     two, side by side   patches, each pixel 0 or 1  the pixels of the left one, by patch
    draw      one picture         its label, earlier pixels   each pixel, 0 or 1, row by row

`canvas` has scikit-learn's digits, `canvas:PATH` those of an .npz file, see `image_file.py`. A size
is the number of patches along a side of the canvas; in `draw` a patch is one pixel. A picture
stands at a random place on whole patches. Its third is that among the places where it fits. In
`which` no column of patches has ink of both; patches with ink count, and each is one of the sets of
its pixels, none of them in the right picture. A pixel is 1 from half of the largest value on. In
`draw` a token has the place of the pixel that comes next.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.lab.tasks.catalog import register
from posenc_jax.lab.tasks.image_file import stored
from posenc_jax.lab.tasks.images import (
    Images,
    Order,
    check_patch,
    every_second_moved,
    handwritten,
    image_facts,
    most_frequent,
    patches,
)
from posenc_jax.lab.tasks.task import (
    SPLITS,
    SYMBOL,
    Batch,
    Task,
    example_keys,
    index_keys,
    next_token,
)
from posenc_jax.layout import layout
from posenc_jax.options import FieldError

Question = Literal["what", "where", "which", "draw"]
THIRDS = 3
MOST_SETS = 2**9  # of the pixels of a patch
INK = SYMBOL  # the token of a pixel that is 0; then 1, then the labels


class CanvasQuestion(NamedTuple):
    """A question about pictures of a given size.

    make:   see `_what`.
    vocab:  answers, or tokens in `draw`.
    least:  the size of the smallest canvas.
    floors: the baselines.
    """

    metric: str
    make: Callable[..., Batch]
    vocab: int
    least: int
    floors: Callable[[], dict[str, float]]


@register(reads="canvas", unit="patches a side")
def canvas(
    question: Question = "what", order: Order = "grid", patch: int = 2, moved: float = 0.1
) -> Task:
    """A question about handwritten digits on a canvas.

    question: see above.
    order: positions are row and column ("grid"), or the number of the patch, row by row ("line").
    patch: pixels along a side of a patch; it divides the side of the pictures, here 8.
    moved: in training every second picture is moved and stretched inside of its place by up to this
      share of its side.
    """
    return placed(handwritten(), question, order, patch, moved)


def canvas_file(
    path: str,
    question: Question = "what",
    order: Order = "grid",
    patch: int = 4,
    moved: float = 0.1,
) -> Task:
    """A question about the pictures of a file, channels averaged; options as of `canvas`."""
    return placed(stored(f"canvas:{path}", path), question, order, patch, moved)


def placed(images: Images, question: Question, order: Order, patch: int, moved: float) -> Task:
    """The task of one question. FieldError: patches that do not fill a picture, or too large ones
    for `which`.
    """
    side = images.splits["train"]["pixels"].shape[1]
    check_patch(images.name, side, patch)
    if question == "draw" and patch != 1:
        raise FieldError("task.patch", f"{patch}; 'draw' draws pixel by pixel, give 1")
    if question == "which" and 2 ** (patch * patch) > MOST_SETS:
        raise FieldError(
            "task.patch", f"{patch} has too many sets of pixels for 'which'; 3 or less"
        )
    picture_side, counts = side // patch, image_facts(images)["images"]
    spec = _questions(images, picture_side, patch)[question]
    ink = question in ("which", "draw")

    def batch(data, split, picture_B, key_B, size_B, width, moves_2B2=None):
        place_BT = jnp.broadcast_to(jnp.arange(width, dtype=jnp.int32), (len(size_B), width))
        at_BT2 = jnp.stack(jnp.divmod(place_BT, size_B[:, None]), axis=-1)
        real_BT = place_BT < (size_B * size_B)[:, None]

        def pictures(picture_B):
            patch_BPF = _cut(data[split]["pixels"][picture_B], picture_side, patch, moves_2B2)
            if ink:
                patch_BPF = (patch_BPF >= data["half"]).astype(jnp.float32)
            else:
                patch_BPF = patch_BPF / data["deviation"]
            return patch_BPF, data[split]["labels"][picture_B]

        result = spec.make(
            pictures, counts[split], picture_B, key_B, size_B, at_BT2, real_BT, picture_side
        )
        if order == "line":
            return result
        return result._replace(layout=result.layout.replace(pos_BT=at_BT2))

    def sample(data, key, size_B, width):
        picture_key, move_key, key = jax.random.split(key, 3)
        key_B = index_keys(key, jnp.arange(len(size_B), dtype=jnp.int32))
        picture_B = _drawn(picture_key, size_B.shape, counts["train"])
        moves_2B2 = every_second_moved(move_key, len(size_B), moved)
        return batch(data, "train", picture_B, key_B, size_B, width, moves_2B2)

    def numbered(data, index_B, size_B, width, split):
        key_B = example_keys(f"canvas {question}", split, index_B, size_B)
        return batch(data, split, index_B % counts[split], key_B, size_B, width)

    return Task(
        name=images.name, metric=spec.metric, vocab=spec.vocab,
        least=spec.least, most=None,
        width=lambda size: size * size, examples=lambda size: None,
        data=_data(images),
        sample=sample, numbered=numbered,
        baselines=spec.floors,
        facts={**image_facts(images), "patch": patch},
        features=None if question == "draw" else patch * patch,
    )  # fmt: skip


def _questions(images: Images, picture_side: int, patch: int) -> dict[Question, CanvasQuestion]:
    """The questions about pictures that are `picture_side` patches wide."""
    most = lambda: {"most_frequent": most_frequent(images)}
    chance, blank = lambda: {"chance": 1 / THIRDS**2}, lambda: {"no pixels": 0.5}
    return {
        "what": CanvasQuestion("accuracy", _what, images.classes, picture_side, most),
        "where": CanvasQuestion("accuracy", _where, THIRDS**2, picture_side + THIRDS - 1, chance),
        "which": CanvasQuestion(
            "token_accuracy", _which, 2 ** (patch * patch), 2 * picture_side, blank
        ),
        "draw": CanvasQuestion(
            "bits_per_pixel", _draw, INK + 2 + images.classes, picture_side, dict
        ),
    }


def _what(pictures, count, picture_B, key_B, size_B, at_BT2, real_BT, picture_side) -> Batch:
    """The batch of the question "what"; the functions of the other questions are alike.

    pictures: picture_B -> their patches [B, P, F] and labels [B].
    count:    of pictures in the split.
    size_B:   patches along a side of each canvas.
    at_BT2:   the (row, column) of each place; real_BT: whether the canvas has it.
    """
    patch_BPF, label_B = pictures(picture_B)
    patch_BTF = _shown(patch_BPF, _corners(key_B, size_B, picture_side), at_BT2, picture_side)
    return _labelled(patch_BTF, label_B, real_BT)


def _where(pictures, count, picture_B, key_B, size_B, at_BT2, real_BT, picture_side) -> Batch:
    """The batch of the question "where"."""
    corner_B2 = _corners(key_B, size_B, picture_side)
    third_B2 = corner_B2 * THIRDS // (size_B - picture_side + 1)[:, None]
    patch_BTF = _shown(pictures(picture_B)[0], corner_B2, at_BT2, picture_side)
    return _labelled(patch_BTF, third_B2[:, 0] * THIRDS + third_B2[:, 1], real_BT)


def _which(pictures, count, picture_B, key_B, size_B, at_BT2, real_BT, picture_side) -> Batch:
    """The batch of the question "which"."""

    def places(key, size):
        rows_key, columns_key, other_key = jax.random.split(key, 3)
        row_2 = _drawn(rows_key, (2,), size - picture_side + 1)
        column_2 = jnp.sort(_drawn(columns_key, (2,), size - 2 * picture_side + 1)) + jnp.asarray(
            [0, picture_side]
        )
        return jnp.stack([row_2, column_2], axis=-1), _drawn(other_key, (), count)

    corner_B22, other_B = jax.vmap(places)(key_B, size_B)
    left_BTF, right_BTF = (
        _shown(pictures(picture_B)[0], corner_B22[:, side], at_BT2, picture_side)
        for side, picture_B in enumerate((picture_B, other_B))
    )
    patch_BTF = left_BTF + right_BTF
    bit_F = 2 ** jnp.arange(patch_BTF.shape[-1], dtype=jnp.int32)
    set_BT = (left_BTF.astype(jnp.int32) * bit_F[None, None]).sum(axis=-1)
    weight_BT = (patch_BTF.any(axis=-1) & real_BT).astype(jnp.float32)
    return Batch(patch_BTF, set_BT, weight_BT, layout(real_BT.astype(jnp.int32)))


def _draw(pictures, count, picture_B, key_B, size_B, at_BT2, real_BT, picture_side) -> Batch:
    """The batch of the question "draw"."""
    patch_BPF, label_B = pictures(picture_B)
    pixel_BT = _shown(patch_BPF, _corners(key_B, size_B, picture_side), at_BT2, picture_side)[
        ..., 0
    ]
    label_B1 = INK + 2 + label_B[:, None]
    token_BL = jnp.concatenate([label_B1, INK + pixel_BT.astype(jnp.int32)], axis=1)
    return next_token(token_BL, jnp.ones_like(token_BL), size_B * size_B)


def _cut(pixels_BHWC, picture_side, patch, moves_2B2) -> jax.Array:
    """Cuts pictures into patches, [B, P, F]."""
    rows = len(pixels_BHWC)
    number_BP = jnp.broadcast_to(
        jnp.arange(picture_side * picture_side, dtype=jnp.int32),
        (rows, picture_side * picture_side),
    )
    side_B = jnp.full(rows, picture_side, jnp.int32)
    return patches(pixels_BHWC, number_BP, side_B, patch, moves_2B2)


def _drawn(key, shape, choices) -> jax.Array:
    """Random numbers in 0 .. choices - 1; `choices` may be traced."""
    return jax.random.randint(key, shape, 0, choices, jnp.int32)


def _corners(key_B, size_B, picture_side) -> jax.Array:
    """A random (row, column) for the first patch of each picture, so that it fits, [B, 2]."""
    return jax.vmap(lambda key, size: _drawn(key, (2,), size - picture_side + 1))(key_B, size_B)


def _shown(patch_BPF, corner_B2, at_BT2, picture_side) -> jax.Array:
    """The patch that the canvas shows at each (row, column), [B, T, F]; 0 outside the picture."""
    inner_BT2 = at_BT2 - corner_B2[:, None]
    inside_BT = ((inner_BT2 >= 0) & (inner_BT2 < picture_side)).all(axis=-1)
    number_BT = jnp.where(inside_BT, inner_BT2[..., 0] * picture_side + inner_BT2[..., 1], 0)
    shown_BTF = jax.vmap(lambda patch_PF, number_T: patch_PF[number_T])(patch_BPF, number_BT)
    return jnp.where(inside_BT[..., None], shown_BTF, 0.0)


def _labelled(patch_BTF, label_B, real_BT) -> Batch:
    """The batch of patches with one label for each row."""
    weight_B1 = jnp.ones((len(label_B), 1), jnp.float32)
    return Batch(patch_BTF, label_B[:, None], weight_B1, layout(real_BT.astype(jnp.int32)))


def _data(images: Images) -> dict[str, Any]:
    """The pixels [N, side, side, 1] and labels of each split, the threshold and the deviation of
    pixels.

    Pixels are divided by their deviation in training, so that black stays 0.
    """
    gray = {
        s: images.splits[s]["pixels"].astype(np.float32).mean(axis=-1, keepdims=True)
        for s in SPLITS
    }
    held = {s: {"pixels": gray[s], "labels": images.splits[s]["labels"]} for s in SPLITS}
    half, deviation = gray["train"].max() / 2, np.maximum(gray["train"].std(), np.float32(1e-6))
    return jax.tree.map(jnp.asarray, {**held, "half": half, "deviation": deviation})


def ink_share(task: Task, size: int) -> float:
    """The share of pixels that are 1 on a canvas of `draw`, over the test pictures."""
    ink_N = (task.data["test"]["pixels"] >= task.data["half"]).sum(axis=(1, 2, 3))
    return float(ink_N.mean()) / size**2
