"""A user's own pictures: an .npz file with `pixels`, integers 0 to 255, and `labels` from 0 on.

`pixels` is [N, side, side] or [N, side, side, channels], `labels` is [N]. A hash of a picture
decides its split: 80, 10 and 10 of 100.
"""

from hashlib import sha256

import numpy as np

from posenc_jax.lab.tasks.images import Images, Order, classified
from posenc_jax.lab.tasks.task import SPLITS, Task, hash_split
from posenc_jax.lab.tasks.user_files import check_range, named_arrays
from posenc_jax.options import FieldError

MOST_CLASSES = 1024


def images(path: str, patch: int = 4, order: Order = "grid", moved: float = 0.1) -> Task:
    """Classify the pictures of a file; patch, order, moved: see `images.digits`.

    FieldError: the file cannot be read or holds something else, or patches do not fill a picture.
    """
    return classified(stored(f"images:{path}", path), patch, order, moved)


def stored(name: str, path: str) -> Images:
    """The pictures of a file. FieldError: see `images`."""
    axes = {"pixels": "N side side or N side side channels", "labels": "N"}
    arrays = named_arrays(name, path, axes)
    pixels, label_N = arrays["pixels"], arrays["labels"]
    check_range(name, "pixels", pixels, 255)
    check_range(name, "labels", label_N, MOST_CLASSES - 1)
    pixels = pixels.astype(np.uint8).reshape(*pixels.shape[:3], -1)
    split_N = np.array(
        [hash_split(sha256(picture.tobytes()).digest(), 80, 10) for picture in pixels]
    )
    both = {"pixels": pixels, "labels": label_N.astype(np.int32)}
    splits = {s: {part: array[split_N == s] for part, array in both.items()} for s in SPLITS}
    for split in SPLITS:
        if not len(splits[split]["labels"]):
            raise FieldError("task.name", f"{name} has too few pictures; none is for {split}")
    return Images(name, splits, int(label_N.max()) + 1)
