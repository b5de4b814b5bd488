"""Questions in text about clips of frames with a track of tones: a stream of three kinds of tokens.

    BOS, then for each 2 seconds the patches of 2 frames and 2 tones, then words

There is one frame and one tone a second. Frames stand before the tones of the same 2 seconds, as in
Qwen2.5-Omni (arXiv 2503.20215), so a frame and its tone are far apart in storage.

`clips` makes clips of 3 x 3 patches. A small digit, as large as a patch, comes in at the top or at
the bottom of a column, moves on by one patch a second, and leaves on the other side; all other
patches are blank.

    question  words                   answer                           needs
    tone      two that ask            the tone with which it comes in  the shared time
    column    two that ask            its column, 0 to 2               the place in the frame
    order     the digit and another   whether the digit is the first   the order of the text

`clips:PATH` reads an .npz file with these arrays of numbers from 0 on, of N clips of up to F
seconds. A hash of a clip decides its split: 80, 10 and 10 of 100. A size stands for all clips of up
to so many seconds.

    frames   [N, F, rows, columns]  patches
    tones    [N, F]                 tones
    seconds  [N]                    of each clip; what is later is not read
    words    [N, W]                 the words of the question
    answers  [N]                    labels
"""

from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.encodings.multimodal_ids import Text, Video, diagonal_ids
from posenc_jax.encodings.multimodal_ids import ids as multimodal_ids
from posenc_jax.lab.tasks.catalog import register
from posenc_jax.lab.tasks.encoder_tasks import label_batch
from posenc_jax.lab.tasks.task import (
    BOS,
    PAD,
    SPLITS,
    SYMBOL,
    Batch,
    Task,
    arrays_sha256,
    draw,
    example_keys,
    hash_split,
    index_keys,
)
from posenc_jax.lab.tasks.user_files import check_range, named_arrays
from posenc_jax.options import FieldError

Ids = Literal["index", "time", "all", "reset", "diagonal"]
SIDE, CHUNK, MOST = 3, 2, 16  # patches along a side, seconds, the most frames
DIGITS, TONES, WORDS = 10, 8, 2
# Patches are symbols 0 (blank) to 10, then come tones, the word that asks, and names of digits.
TONE = 1 + DIGITS
ASK, NAME = TONE + TONES, TONE + TONES + 1
CHANCE = {"tone": 1 / TONES, "column": 1 / SIDE, "order": 1 / 2}
LARGEST = 2**16  # symbols of each kind in a file
DRAWN = 2**30  # random numbers are below it, so remainders favour hardly any


class Clips(NamedTuple):
    """Clips of P patches a frame, as symbols; a file's clips are rows of these arrays."""

    frames_BFP: Any
    tones_BF: Any
    words_BW: Any
    answers_B: Any
    seconds_B: Any


class Places(NamedTuple):
    """Tables by seconds N and column T: the frame, the patch or -1 for a tone, and positions.

    pos_NTA:  [N, T], or [N, T, 3]; None: columns of storage.
    patches, words: of a frame, and of a question.
    """

    frame_NT: Any
    patch_NT: Any
    pos_NTA: Any
    patches: int
    words: int

    def width(self, seconds: Any) -> Any:
        """The tokens of a clip."""
        return 1 + seconds * (self.patches + 1) + self.words


@register(reads="clips", unit="seconds")
def clips(question: Literal["tone", "column", "order"] = "tone", ids: Ids = "all") -> Task:
    """Answer a question about a clip; a size is its number of frames, 2 to 16.

    question: see above.
    ids: the positions of tokens: "index", their number in storage; "time", their time alone; "all",
      (time, row, column); "reset" and "diagonal", these as `mhrope` and `video_rope` read them.
    """
    places = _places(MOST, SIDE, SIDE, WORDS, ids)

    def sample(data, key, size_B, width):
        key_B = index_keys(key, jnp.arange(len(size_B), dtype=jnp.int32))
        return batch(key_B, size_B, width)

    def numbered(data, index_B, size_B, width, split):
        return batch(example_keys("clips", split, index_B, size_B), size_B, width)

    def batch(key_B, size_B, width):
        moving = jax.vmap(lambda key, n: _moving(key, n, question))(key_B, size_B)
        return _batch(moving, jnp.ones(size_B.shape, bool), width, places)

    return _task(
        "clips", places, NAME + DIGITS, least=2, most=MOST, sample=sample, numbered=numbered,
        baselines=lambda: {"chance": CHANCE[question]},
    )  # fmt: skip


def _moving(key, n, question) -> Clips:
    """One clip of n seconds in which a digit moves through a column."""
    # Drawn at once: programs that make clips then compile in half the time.
    number = draw(key, jnp.arange(MOST + 6, dtype=jnp.int32), DRAWN)
    digit = number[0] % DIGITS
    other = (digit + 1 + number[1] % (DIGITS - 1)) % DIGITS
    column, begin, up, leads = number[2] % SIDE, number[3] % (n - 1), number[4] % 2, number[5] % 2
    tone_F = number[6:] % TONES
    step_F = jnp.arange(MOST, dtype=jnp.int32) - begin
    row_F = jnp.where(up > 0, SIDE - 1 - step_F, step_F)
    patch_F = jnp.where((step_F >= 0) & (step_F < SIDE), row_F * SIDE + column, -1)
    here_FP = patch_F[:, None] == jnp.arange(SIDE * SIDE, dtype=jnp.int32)[None]
    names_W = jnp.where(leads > 0, jnp.stack([digit, other]), jnp.stack([other, digit]))
    words_W = NAME + names_W if question == "order" else jnp.full(WORDS, ASK, jnp.int32)
    answers = {"tone": tone_F[begin], "column": column, "order": leads}
    return Clips(jnp.where(here_FP, 1 + digit, 0), TONE + tone_F, words_W, answers[question], n)


def clips_file(path: str, ids: Ids = "all") -> Task:
    """Answer questions about the clips of a file; ids as of `clips`.

    FieldError: the file cannot be read or holds something else, or a split has no clip.
    """
    name = f"clips:{path}"
    held, (rows, columns), vocab = _stored(name, path)
    most, words = held["train"].tones_BF.shape[1], held["train"].words_BW.shape[1]
    places = _places(most, rows, columns, words, ids)

    def batch(data, split, index_B, counts_B, width):
        return _batch(Clips(*(x[index_B] for x in data[split])), counts_B, width, places)

    def sample(data, key, size_B, width):
        count_B = jnp.searchsorted(data["train"].seconds_B, size_B, side="right")
        index_B = jax.random.randint(key, size_B.shape, 0, count_B)
        return batch(data, "train", index_B, jnp.ones(size_B.shape, bool), width)

    def numbered(data, index_B, size_B, width, split):
        count_B = jnp.searchsorted(data[split].seconds_B, size_B, side="right")
        return batch(data, split, jnp.minimum(index_B, count_B - 1), index_B < count_B, width)

    seconds = {split: held[split].seconds_B for split in SPLITS}
    arrays = [array for split in SPLITS for array in held[split]]
    task = _task(
        name, places, vocab, least=max(int(s[0]) for s in seconds.values()),
        most=max(int(s[-1]) for s in seconds.values()), sample=sample, numbered=numbered,
        baselines=lambda: {"most frequent answer": _most_frequent(held)},
    )  # fmt: skip
    return task._replace(
        data=jax.tree.map(jnp.asarray, held),
        examples=lambda size: int(np.searchsorted(seconds["test"], size, side="right")),
        facts={
            "sha256": arrays_sha256([array.shape for array in arrays], arrays),
            "clips": {split: len(seconds[split]) for split in SPLITS},
        },
    )


def _stored(name: str, path: str) -> tuple[dict[str, Clips], tuple[int, int], int]:
    """The clips of each split, shortest first, as symbols; rows and columns; number of tokens."""
    axes = {"frames": "N F rows columns", "tones": "N F", "seconds": "N", "words": "N W"}
    arrays = named_arrays(name, path, {**axes, "answers": "N"})
    frames, tones = arrays["frames"], arrays["tones"]
    for key in ("frames", "tones", "words", "answers"):
        check_range(name, key, arrays[key], LARGEST - 1)
    check_range(name, "seconds", arrays["seconds"], tones.shape[1], least=1)
    first_tone = int(frames.max()) + 1
    first_word = first_tone + int(tones.max()) + 1
    vocab = max(first_word + int(arrays["words"].max()) + 1, int(arrays["answers"].max()) + 1)
    whole = Clips(
        frames.reshape(*tones.shape, -1), first_tone + tones, first_word + arrays["words"],
        arrays["answers"], arrays["seconds"],
    )  # fmt: skip
    whole = Clips(*(array.astype(np.int32) for array in whole))
    clip_N = zip(*whole[:3], strict=True)
    digest = lambda clip: sha256(b"".join(part.tobytes() for part in clip)).digest()
    split_N = np.array([hash_split(digest(clip), 80, 10) for clip in clip_N])
    held = {}
    for split in SPLITS:
        chosen_N = np.flatnonzero(split_N == split)
        if not chosen_N.size:
            raise FieldError("task.name", f"{name} has too few clips; none is for {split}")
        chosen_N = chosen_N[np.argsort(whole.seconds_B[chosen_N], kind="stable")]
        held[split] = Clips(*(array[chosen_N] for array in whole))
    return held, frames.shape[2:], vocab


def _most_frequent(held: Mapping[str, Clips]) -> float:
    """The test accuracy of the most frequent answer of the training split."""
    answer = np.bincount(held["train"].answers_B).argmax()
    return float((held["test"].answers_B == answer).mean())


def _task(
    name: str,
    places: Places,
    symbols: int,
    *,
    least: int,
    most: int,
    sample: Callable[..., Batch],
    numbered: Callable[..., Batch],
    baselines: Callable[[], Mapping[str, float]],
) -> Task:
    """A task of clips; `data`, `examples` and `facts` are those of generated clips."""
    return Task(
        name=name, vocab=SYMBOL + symbols, metric="accuracy", least=least, most=most,
        width=places.width, examples=lambda size: None, data=(),
        sample=sample, numbered=numbered, baselines=baselines, facts={},
    )  # fmt: skip


def _batch(clips: Clips, counts_B: jax.Array, width: int, places: Places) -> Batch:
    """The batch of clips, with the positions of `places`."""
    place_T = jnp.arange(width, dtype=jnp.int32)
    at_T = jnp.minimum(place_T, places.frame_NT.shape[1] - 1)
    lookup = lambda table_NT: jnp.asarray(table_NT)[clips.seconds_B][:, at_T]
    frame_BT, patch_BT = lookup(places.frame_NT), lookup(places.patch_NT)
    end_B1 = places.width(clips.seconds_B)[:, None]
    row_B1 = jnp.arange(len(frame_BT), dtype=jnp.int32)[:, None]
    token_BT = clips.frames_BFP[row_B1, frame_BT, jnp.maximum(patch_BT, 0)]
    token_BT = jnp.where(patch_BT < 0, clips.tones_BF[row_B1, frame_BT], token_BT)
    word_BT = place_T[None] - (end_B1 - places.words)
    named_BT = clips.words_BW[row_B1, jnp.clip(word_BT, 0, places.words - 1)]
    token_BT = jnp.where(word_BT >= 0, named_BT, token_BT)
    token_BT = jnp.where(place_T[None] == 0, BOS, SYMBOL + token_BT)
    token_BT = jnp.where(place_T[None] < end_B1, token_BT, PAD)
    batch = label_batch(token_BT, clips.answers_B, counts_B)
    if places.pos_NTA is None:
        return batch
    return batch._replace(layout=batch.layout.replace(pos_BT=lookup(places.pos_NTA)))


def _places(most: int, rows: int, columns: int, words: int, ids: Ids) -> Places:
    """The `Places` of clips of 0 to `most` seconds; row 0 is empty."""
    patches = rows * columns
    width = lambda seconds: 1 + seconds * (patches + 1) + words
    frame_NT, patch_NT = np.zeros((2, most + 1, width(most)), np.int32)
    pos_NT3 = np.zeros((most + 1, width(most), 3), np.float32)
    for size in range(1, most + 1):
        frame, patch = [0], [-1]
        for start in range(0, size, CHUNK):
            seconds = range(start, min(start + CHUNK, size))
            frame += [second for second in seconds for _ in range(patches)] + [*seconds]
            patch += [*range(patches)] * len(seconds) + [-1] * len(seconds)
        frame_NT[size, : len(frame)], patch_NT[size, : len(patch)] = frame, patch
        pos_NT3[size, : width(size)] = _ids(size, rows, columns, words, ids)
    by_ids = {"index": None, "time": pos_NT3[..., 0]}
    return Places(frame_NT, patch_NT, by_ids.get(ids, pos_NT3), patches, words)


def _ids(size: int, rows: int, columns: int, words: int, ids: Ids) -> np.ndarray:
    """(time, row, column) of the tokens of a clip, [T, 3]."""
    seconds = tuple(map(float, range(size)))
    stream = lambda sound: [Text(1), Video(rows, columns, seconds, sound), Text(words)]
    if ids != "diagonal":
        return multimodal_ids(stream(size), rate=1, chunk=CHUNK, reset=ids == "reset")
    # A tone is, as text is, on the diagonal, at the time of its frame.
    silent_T3 = diagonal_ids(stream(0))
    frames_F = silent_T3[1:-words].reshape(size, rows * columns, 3)
    parts = [silent_T3[:1]]
    for start in range(0, size, CHUNK):
        chunk = frames_F[start : start + CHUNK]
        parts += [chunk.reshape(-1, 3), np.repeat(chunk[:, 0, :1], 3, axis=1)]
    return np.concatenate([*parts, silent_T3[-words:]])
