"""Positions of a stream that mixes text, images, sound and video, for `mrope` and related methods.

Each part starts one after the largest id of all parts before it. Marks around a part, such as begin
and end of an image, are text. The functions run on the host, in NumPy.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from posenc_jax.encodings.rotary_axes import EARLY
from posenc_jax.options import FieldError


class Text(NamedTuple):
    """Tokens of text: their three ids are equal and count up by one."""

    tokens: int


class Audio(NamedTuple):
    """Tokens of sound, one for each unit of time; their three ids are equal."""

    tokens: int


class Image(NamedTuple):
    """Patches of one image, row by row, all at the same time."""

    rows: int
    columns: int


class Video(NamedTuple):
    """Frames of patches at their times in seconds from the start, and tokens of sound, if any."""

    rows: int
    columns: int
    seconds: tuple[float, ...]
    sound: int = 0


Part = Text | Audio | Image | Video


def ids(parts: Iterable[Part], rate: int = 25, chunk: int = 2, reset: bool = False) -> np.ndarray:
    """Ids (time, row, column) of a stream's tokens, int32 [T, 3], as `mrope` reads them.

    Sound and picture of a video start together. They are ordered in chunks of `chunk` seconds, in
    each the frames before the sound (arXiv 2503.20215). Hugging Face's Qwen2.5-Omni differs in two
    cases: it starts the next part after the video's last chunk instead of its largest id, and if a
    chunk has no frame, it puts later frames too early.

    Args:
      parts: the parts of the stream, in order.
      rate: ids per second.
      chunk: seconds of a chunk of video.
      reset: rows and columns of images and frames begin at 0, not where the part starts (spatial
        reset, arXiv 2510.23095). Where parts start does not change.

    FieldError: a part without tokens or of negative size, frames whose times do not rise from 0 or
    more, a rate or a chunk that is not positive.
    """
    if rate < 1 or chunk < 1:
        raise FieldError("rate, chunk", f"{rate}, {chunk} must be positive")
    start, id_parts = 0, []
    for part in parts:
        offset_TA, patch_T = _offsets(part, rate, chunk)
        start_TA = np.full_like(offset_TA, start)
        start_TA[:, 1:] *= ~(reset & patch_T)[:, None]
        id_parts.append(start_TA + offset_TA)
        start += int(offset_TA.max()) + 1
    return np.concatenate([np.zeros((0, 3), int), *id_parts]).astype(np.int32)


def diagonal_ids(parts: Iterable[Part], stride: float = 2.0) -> np.ndarray:
    """Ids (time, row, column) on VideoRoPE's diagonal, float32 [T, 3], as `video_rope` reads them.

    A frame is `stride` after the frame before it, and the middle of its rows and columns is its
    time, so that its middle stands on the diagonal as text does. The next part starts one after the
    time of the last frame, as in the public code (arXiv 2502.05173).

    Args:
      parts: text, sound, images, and videos without sound, of which the times are not read.
      stride: time from one frame to the next.

    FieldError: a part without tokens, a video with sound, or a stride that is not positive.
    """
    if not stride > 0:
        raise FieldError("stride", f"{stride} must be positive")
    start, id_parts = 0.0, []
    for part in parts:
        middle, part = (0, 0), _silent(part)
        if isinstance(part, Image | Video):
            middle = (part.rows - 1) // 2, (part.columns - 1) // 2
        offset_TA, patch_T = _offsets(part, rate=1, chunk=1)
        time_T = start + np.where(patch_T, stride, 1) * offset_TA[:, 0]
        space_TA = np.where(patch_T[:, None], offset_TA[:, 1:] - middle, 0)
        id_parts.append(np.concatenate([time_T[:, None], time_T[:, None] + space_TA], axis=1))
        start = time_T.max() + 1
    return np.concatenate([np.zeros((0, 3)), *id_parts]).astype(np.float32)


def circle_ids(parts: Iterable[Part], radius: float, mix: float) -> np.ndarray:
    """Ids (time, row, column) of Circle-RoPE, float32 [T, 3], as `circle_rope` reads them.

    The patches of an image stand on a circle that is perpendicular to the line of text, (t, t, t),
    so each token of text is equally far from all of them. A patch's angle is a mean of the angle
    under which it is seen from the middle of the image and of its number, both spread over a whole
    turn. The next part starts one after the largest id, which is no whole number.

    The paper (arXiv 2505.16416) uses these ids in some layers and those of `ids` in the others, as
    `circle_rope` does, which takes both side by side, [B, T, 6].

    Args:
      parts: text, sound and images.
      radius: of the circle, in tokens.
      mix: weight of the angle from the middle, 0 to 1; its patch's number has the rest.

    FieldError: a part without tokens, a video, a radius that is not positive, or a mix outside
    0 to 1.
    """
    if not radius > 0:
        raise FieldError("radius", f"{radius} must be positive")
    if not 0 <= mix <= 1:
        raise FieldError("mix", f"{mix} must be from 0 to 1")
    start, id_parts = 0.0, []
    for part in parts:
        if isinstance(part, Video):
            raise FieldError("parts", f"{part} is a video; a circle is for an image")
        offset_TA, _ = _offsets(part, rate=1, chunk=1)
        if isinstance(part, Image):
            offset_TA = radius * _circle(offset_TA[:, 1], offset_TA[:, 2], mix)
        id_parts.append(start + offset_TA)
        start = id_parts[-1].max() + 1
    return np.concatenate([np.zeros((0, 3)), *id_parts]).astype(np.float32)


def corner_ids(parts: Iterable[Part]) -> np.ndarray:
    """Ids of VRoPE, int32 [T, 4], as `nd_rope(order="alternate", ladders="head")` reads them.

    The four ids of a patch count its steps, along rows and columns, from the corners of its frame:
    top left, top right, bottom left, bottom right. So no side of a picture is nearer to the text
    behind it. A frame begins rows + columns - 1 after the frame before it; the ids of text are
    equal (arXiv 2502.11664 and its public code).

    Args:
      parts: text, sound, images, and videos without sound, of which the times are not read.

    FieldError: a part without tokens, or a video with sound.
    """
    start, id_parts = 0, []
    for part in parts:
        offset_TA, _ = _offsets(_silent(part), rate=1, chunk=1)
        steps, corners_T4 = 1, np.zeros((len(offset_TA), 4), int)
        if isinstance(part, Image | Video):
            steps = part.rows + part.columns - 1
            row_T, column_T = offset_TA[:, 1:].T
            below_T, beside_T = part.rows - 1 - row_T, part.columns - 1 - column_T
            pairs = (row_T, column_T), (row_T, beside_T), (below_T, column_T), (below_T, beside_T)
            corners_T4 = np.stack([sum(pair) for pair in pairs], axis=1)
        time_T = offset_TA[:, 0] * steps
        id_parts.append(start + time_T[:, None] + corners_T4)
        start += int(time_T.max()) + steps
    return np.concatenate([np.zeros((0, 4), int), *id_parts]).astype(np.int32)


def _silent(part: Part) -> Part:
    """The part; of a video, one with a frame at each whole second. FieldError: it has sound."""
    if not isinstance(part, Video):
        return part
    if part.sound:
        raise FieldError("parts", f"{part} has sound, which has no place in these ids")
    return part._replace(seconds=tuple(range(len(part.seconds))))


def _circle(row_T: np.ndarray, column_T: np.ndarray, mix: float) -> np.ndarray:
    """(time, row, column) of patches on a circle of radius 1 around the origin, [T, 3]."""
    seen_T = np.arctan2(row_T - row_T.max() / 2, column_T - column_T.max() / 2)
    if np.ptp(seen_T) > 0:
        seen_T = (seen_T - seen_T.min()) / np.ptp(seen_T) * 2 * np.pi
    counted_T = np.arange(len(row_T)) / len(row_T) * 2 * np.pi
    angle_T1 = (mix * seen_T + (1 - mix) * counted_T)[:, None]
    across, up = np.array([0, 1, -1]) / np.sqrt(2), np.array([2, -1, -1]) / np.sqrt(6)
    return np.cos(angle_T1) * across + np.sin(angle_T1) * up


def positions(parts: Iterable[Part], rate: int = 25, chunk: int = 2) -> np.ndarray:
    """The ids of a stream as (seconds, row, column), float32 [T, 3], as `tmrope` of this rate reads
    them.

    Seconds are those of the middle of the id's unit of time. In float32 they give the same id up to
    2^22 ids, 46 hours at 40 ms.
    """
    id_TA = ids(parts, rate, chunk).astype(np.float64)
    id_TA[:, 0] = (id_TA[:, 0] + 0.5) / rate
    return id_TA.astype(np.float32)


def _offsets(part: Part, rate: int, chunk: int) -> tuple[np.ndarray, np.ndarray]:
    """Ids of a part that starts at 0, int [T, 3], and which tokens are patches, bool [T]."""
    if any(size < 1 for name, size in part._asdict().items() if name not in ("seconds", "sound")):
        raise FieldError("parts", f"{part} has a size that is not positive")
    if isinstance(part, Text | Audio):
        return _equal(part.tokens), np.zeros(part.tokens, bool)
    if isinstance(part, Image):
        return _grid(part, 0), np.ones(part.rows * part.columns, bool)
    steps = np.diff([0.0, *part.seconds])
    if part.sound < 0 or not part.seconds or part.seconds[0] < 0 or (steps[1:] <= 0).any():
        raise FieldError("parts", f"{part} needs times that rise from 0 or more, and sound >= 0")
    times = [int(np.floor(moment * rate + EARLY)) for moment in part.seconds]
    both = np.concatenate([*(_grid(part, time) for time in times), _equal(part.sound)])
    patch_T = np.arange(len(both)) < len(times) * part.rows * part.columns
    order = np.lexsort((~patch_T, both[:, 0] // (chunk * rate)))
    return both[order], patch_T[order]


def _equal(tokens: int) -> np.ndarray:
    """Ids of text or sound: three equal numbers that count from 0."""
    return np.repeat(np.arange(tokens)[:, None], 3, axis=1)


def _grid(part: Image | Video, time: int) -> np.ndarray:
    """Ids of the patches of one frame at `time`."""
    row, column = np.indices((part.rows, part.columns)).reshape(2, -1)
    return np.stack([np.full_like(row, time), row, column], axis=1)
