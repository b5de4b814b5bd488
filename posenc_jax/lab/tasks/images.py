"""Image classification: the tokens are patches of the image, as in a vision Transformer.

    task    images                                                           split
    digits  scikit-learn's handwritten digits, 1,797 of 8 x 8, 10 classes    by hash: 60, 10, 30

A size is the number of patches along a side. The smallest size uses the images as they are. For a
larger size the image is first enlarged (bilinear, centres of pixels aligned), so that it has more
patches of the same number of pixels.

Each test image is shown in three views, VIEWS, one after the other in the numbering:

    counted       positions are row and column of the patch, counted from 0 at every size
    interpolated  the same, with rows and columns scaled to the range of the smallest size
    shuffled      as counted, with the patches of each image in another order, which changes the
                  accuracy of a model that uses positions, and of no other
"""

import zlib
from functools import cache
from hashlib import sha256
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.lab.tasks.catalog import register
from posenc_jax.lab.tasks.task import (
    SPLITS,
    Batch,
    Task,
    arrays_sha256,
    check_least,
    hash_split,
    index_keys,
)
from posenc_jax.layout import layout
from posenc_jax.options import FieldError

Order = Literal["grid", "line"]
VIEWS = ("counted", "interpolated", "shuffled")


class Images(NamedTuple):
    """Images with labels by split: "pixels" uint8 [N, side, side, C], "labels" int32 [N]."""

    name: str
    splits: dict[str, dict[str, np.ndarray]]
    classes: int


@register(reads="patches", unit="patches a side")
def digits(patch: int = 2, order: Order = "grid", moved: float = 0.1) -> Task:
    """Handwritten digits (Alpaydin and Kaynak 1998), as included in scikit-learn.

    The same 13 people wrote the digits of all splits.

    patch: pixels along a side of a patch; it divides the side of the images, here 8.
    order: positions are row and column ("grid"), or the number of the patch, row by row ("line").
    moved: every second training image is moved and stretched by up to this share of its side, along
      rows and along columns.
    """
    return classified(handwritten(), patch, order, moved)


@cache
def handwritten() -> Images:
    """The pictures of `digits`."""
    from sklearn.datasets import load_digits  # takes a second

    dataset: Any = load_digits()
    pixels = dataset.images.astype(np.uint8)[..., None]
    split_N = np.array([hash_split(sha256(image.tobytes()).digest(), 60, 10) for image in pixels])
    both = {"pixels": pixels, "labels": dataset.target.astype(np.int32)}
    splits = {s: {part: array[split_N == s] for part, array in both.items()} for s in SPLITS}
    return Images("digits", splits, 10)


def check_patch(name: str, side: int, patch: int) -> None:
    """Raises a FieldError if patches do not fill an image of side * side pixels."""
    check_least("patch", patch, 1)
    if side % patch:
        fits = [str(p) for p in range(1, side + 1) if side % p == 0]
        raise FieldError(
            "task.patch",
            f"{patch} does not divide the {side} pixels of {name}; choices: {', '.join(fits)}",
        )


def classified(images: Images, patch: int, order: Order, moved: float) -> Task:
    """The task of classifying images; the model gives one answer for each, [B, 1, classes].

    FieldError: patches do not fill the images.
    """
    *_, side, channels = images.splits["train"]["pixels"].shape
    check_patch(images.name, side, patch)
    least_side = side // patch
    counts = {split: len(held["labels"]) for split, held in images.splits.items()}

    def batch(data, split, index_B, size_B, width, squeeze_B, order_BT=None, moves_2B2=None):
        """A batch of one split; `order_BT` is the number of the patch at each place."""
        place_BT = jnp.broadcast_to(jnp.arange(width, dtype=jnp.int32), (len(size_B), width))
        real_BT = place_BT < (size_B * size_B)[:, None]
        pixels = data[split]["pixels"][index_B].astype(jnp.float32)
        pixels = (pixels - data["mean"]) / data["deviation"]
        shown_BT = place_BT if order_BT is None else order_BT
        patch_BTF = patches(pixels, shown_BT, size_B, patch, moves_2B2)
        return Batch(
            jnp.where(real_BT[..., None], patch_BTF, 0.0),
            data[split]["labels"][index_B][:, None],
            jnp.ones((len(index_B), 1), jnp.float32),
            layout(
                real_BT.astype(jnp.int32),
                _positions(place_BT, size_B, least_side, order, squeeze_B),
            ),
        )

    def sample(data, key, size_B, width):
        index_key, move_key = jax.random.split(key)
        index_B = jax.random.randint(index_key, size_B.shape, 0, counts["train"])
        moves_2B2 = every_second_moved(move_key, len(size_B), moved)
        never_B = jnp.zeros(size_B.shape, bool)
        return batch(data, "train", index_B, size_B, width, never_B, moves_2B2=moves_2B2)

    def numbered(data, index_B, size_B, width, split):
        # A fixed implementation: the orders do not change with JAX's default.
        key = jax.random.key(zlib.crc32(images.name.encode()), impl="threefry2x32")
        view_B, shown_B = jnp.divmod(index_B, counts[split])
        place_T = jnp.arange(width, dtype=jnp.int32)
        order_BT = jax.vmap(_shuffled, (0, 0, None))(index_keys(key, shown_B), size_B, place_T)
        shuffle_B1 = (view_B == VIEWS.index("shuffled"))[:, None]
        order_BT = jnp.where(shuffle_B1, order_BT, place_T[None])
        squeeze_B = view_B == VIEWS.index("interpolated")
        shown = batch(data, split, shown_B, size_B, width, squeeze_B, order_BT)
        exists_B1 = (view_B < len(VIEWS))[:, None]
        return shown._replace(weights_BT=exists_B1.astype(jnp.float32))

    return Task(
        name=images.name, vocab=images.classes, metric="accuracy", least=least_side, most=None,
        width=lambda size: size * size, examples=lambda size: len(VIEWS) * counts["test"],
        data=_data(images), sample=sample, numbered=numbered,
        baselines=lambda: {"most_frequent": most_frequent(images)},
        facts=image_facts(images), features=patch * patch * channels,
    )  # fmt: skip


def patches(
    pixels_BHWC: jax.Array,
    shown_BT: jax.Array,
    side_B: jax.Array,
    patch: int,
    moves_2B2: jax.Array | None = None,
) -> jax.Array:
    """Patches by number, [B, T, patch * patch * C], of images enlarged to side * patch pixels.

    Each pixel is interpolated between two pixels of the image on either axis; if the image is not
    enlarged it is one of them.

    moves_2B2: how far each image is moved, and how much it is stretched, along rows and columns,
      as shares of its side. The edge is repeated outside the image.
    """
    height = pixels_BHWC.shape[1]
    pixel_P, source_H = jnp.arange(patch, dtype=jnp.float32), jnp.arange(height, dtype=jnp.float32)

    def weights(line_BT, axis):
        """The weight of each line of pixels of the image in each line of a patch, [B, T, P, H]."""
        pixel_BTP = line_BT.astype(jnp.float32)[..., None] * patch + pixel_P[None, None]
        scale_B11 = (height / (side_B * patch).astype(jnp.float32))[:, None, None]
        at_BTP = (pixel_BTP + 0.5) * scale_B11 - 0.5
        if moves_2B2 is not None:
            move_B11, stretch_B11 = moves_2B2[..., axis, None, None]
            middle = (height - 1) / 2
            at_BTP = middle + (at_BTP - middle) * (1 + stretch_B11) + height * move_B11
        at_BTP = jnp.clip(at_BTP, 0, height - 1)
        return jnp.maximum(0, 1 - jnp.abs(at_BTP[..., None] - source_H[None, None, None]))

    row_BT, column_BT = jnp.divmod(shown_BT, side_B[:, None])
    rows = jnp.einsum("btph,bhwc->btpwc", weights(row_BT, 0), pixels_BHWC)
    enlarged = (rows[..., None, :, :] * weights(column_BT, 1)[..., None, :, :, None]).sum(axis=-2)
    return enlarged.reshape(*shown_BT.shape, -1)


def every_second_moved(key: jax.Array, count: int, most: float) -> jax.Array:
    """Random moves and stretches of every second image, at most `most`, for `patches`."""
    moves_2B2 = most * jax.random.uniform(key, (2, count, 2), minval=-1, maxval=1)
    return moves_2B2.at[:, ::2].set(0)


def _positions(place_BT, size_B, least_side, order, squeeze_B):
    """The positions, float32: [B, T, 2] for a grid, [B, T] for a line; scaled where `squeeze_B`."""
    line = order == "line"
    axes = [place_BT] if line else jnp.divmod(place_BT, size_B[:, None])
    share_B1 = (least_side / size_B.astype(jnp.float32))[:, None] ** (2 if line else 1)
    axes_positions = []
    for axis_BT in axes:
        counted_BT = axis_BT.astype(jnp.float32)
        squeezed_BT = (counted_BT + 0.5) * share_B1 - 0.5  # centres of patches stay aligned
        axes_positions.append(jnp.where(squeeze_B[:, None], squeezed_BT, counted_BT))
    return axes_positions[0] if line else jnp.stack(axes_positions, axis=-1)


def _shuffled(key, size, place_T):
    """A random order of the places of size * size patches, followed by the places of padding."""
    random_T = jax.random.uniform(key, place_T.shape)
    return jnp.argsort(jnp.where(place_T < size * size, random_T, 2.0)).astype(jnp.int32)


def _data(images: Images) -> dict[str, Any]:
    """The arrays of the task; mean and deviation by channel, over the training pixels."""
    train = images.splits["train"]["pixels"].astype(np.float32)
    channel_axes = {"axis": (0, 1, 2), "keepdims": True}
    mean, deviation = train.mean(**channel_axes), np.maximum(train.std(**channel_axes), 1e-6)
    return jax.tree.map(jnp.asarray, {**images.splits, "mean": mean, "deviation": deviation})


def most_frequent(images: Images) -> float:
    """The accuracy of the most frequent label of the training split."""
    label = np.bincount(images.splits["train"]["labels"]).argmax()
    return float((images.splits["test"]["labels"] == label).mean())


def image_facts(images: Images) -> dict[str, Any]:
    """Facts about images for the record of a run: hash, sizes of splits, pixels, channels,
    classes.
    """
    held = [images.splits[split] for split in SPLITS]
    arrays = [array for part in held for array in (part["pixels"], part["labels"].astype("<i4"))]
    *_, side, channels = held[0]["pixels"].shape
    return {
        "sha256": arrays_sha256([part["pixels"].shape for part in held], arrays),
        "images": {split: len(images.splits[split]["labels"]) for split in SPLITS},
        "pixels": side, "channels": channels, "classes": images.classes,
    }  # fmt: skip
