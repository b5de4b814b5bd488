"""Clips of frames with a track of tones, and a question in text: a stream of three kinds of tokens.

    BOS, then for each 2 seconds the patches of 2 frames and 2 tones, then two words

There is one frame and one tone a second. A frame has 3 x 3 patches. In one frame of the clip one of
them shows a digit, all others are blank. Frames stand before the tones of the same 2 seconds, as in
Qwen2.5-Omni (arXiv 2503.20215), so a frame and its tone are far apart in storage.

    question  words                   answer                           needs
    tone      two that ask            the tone that sounds with it     the shared time
    column    two that ask            its column, 0 to 2               the place in the frame
    order     the digit and another   whether the digit is the first   the order of the text
"""

from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.encodings.multimodal_ids import Text, Video
from posenc_jax.encodings.multimodal_ids import ids as multimodal_ids
from posenc_jax.lab.tasks.recall import shuffled
from posenc_jax.lab.tasks.task import BOS, EXTRA, PAD, SYMBOL, Task, draw
from posenc_jax.lab.tasks.whole import labelled

Ids = Literal["index", "time", "all"]
SIDE, CHUNK, MOST = 3, 2, 16  # patches along a side, seconds, the most frames
PATCHES = SIDE * SIDE
DIGITS, TONES = 10, 8
BLANK = SYMBOL
DIGIT, TONE, WORD = SYMBOL + 1, SYMBOL + 1 + DIGITS, SYMBOL + 1 + DIGITS + TONES
CHANCE = {"tone": 1 / TONES, "column": 1 / SIDE, "order": 1 / 2}


def clips(question: Literal["tone", "column", "order"] = "tone", ids: Ids = "all") -> Task:
    """Answer a question about a clip; a size is its number of frames, 2 to 16.

    question: see above.
    ids: the positions of tokens: their number in storage, their time alone, or (time, row, column).
    """
    place = {size: _places(size) for size in range(2, MOST + 1)}
    width = lambda size: 1 + size * (PATCHES + 1) + 2
    table_N = [place.get(size, place[2]) for size in range(MOST + 1)]
    most = width(MOST)
    stack = lambda i: jnp.asarray(np.stack([_padded(each[i], most) for each in table_N]))
    frame_NT, patch_NT, pos_NTA = stack(0), stack(1), stack(2)

    def line(key, n, place_T):
        digit_key, patch_key, tone_key, second_key, first_key = jax.random.split(key, 5)
        at_T = jnp.minimum(place_T, most - 1)
        frame_T, patch_T = frame_NT[n, at_T], patch_NT[n, at_T]
        tone_F = draw(tone_key, jnp.arange(MOST, dtype=jnp.int32), TONES)
        digit, other = shuffled(digit_key, DIGITS)[:2]
        patch = jax.random.randint(patch_key, (), 0, PATCHES)
        second = jax.random.randint(second_key, (), 0, n)
        token_T = jnp.where((frame_T == second) & (patch_T == patch), DIGIT + digit, BLANK)
        token_T = jnp.where(patch_T < 0, TONE + tone_F[frame_T], token_T)
        leads = jax.random.bernoulli(first_key)
        words = jnp.where(leads, jnp.stack([digit, other]), jnp.stack([other, digit]))
        words = WORD + words if question == "order" else jnp.full(2, EXTRA)
        token_T = jnp.where(place_T == 0, BOS, token_T)
        word_T = words[jnp.clip(place_T - (width(n) - 2), 0, 1)]
        token_T = jnp.where(place_T >= width(n) - 2, word_T, token_T)
        answers = {"tone": tone_F[second], "column": patch % SIDE, "order": leads.astype(jnp.int32)}
        label = answers[question]
        return jnp.where(place_T < width(n), token_T, PAD), label

    task = labelled(
        "clips", line, width, symbols=1 + DIGITS + TONES + DIGITS, least=2,
        baselines={"chance": CHANCE[question]},
    )  # fmt: skip
    if ids != "index":
        task = _placed(task, pos_NTA if ids == "all" else pos_NTA[..., 0])
    return task._replace(most=MOST)


def _placed(task: Task, pos_NTA: jax.Array) -> Task:
    """The task with positions by size and column."""

    def moved(batch, size_B):
        columns = jnp.minimum(jnp.arange(batch.tokens_BT.shape[1]), pos_NTA.shape[1] - 1)
        return batch._replace(layout=batch.layout.replace(pos_BT=pos_NTA[size_B][:, columns]))

    return task._replace(
        sample=lambda data, key, size_B, width: moved(
            task.sample(data, key, size_B, width), size_B
        ),
        numbered=lambda data, index_B, size_B, width, split: moved(
            task.numbered(data, index_B, size_B, width, split), size_B
        ),
    )


def _places(size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of the tokens of a clip: the frame [T]; the patch, -1 for a tone [T]; the ids [T, 3]."""
    stream = [Text(1), Video(SIDE, SIDE, tuple(map(float, range(size))), size), Text(2)]
    frame, patch = [0], [-1]
    for start in range(0, size, CHUNK):
        seconds = range(start, min(start + CHUNK, size))
        frame += [second for second in seconds for _ in range(PATCHES)] + [*seconds]
        patch += [*range(PATCHES)] * len(seconds) + [-1] * len(seconds)
    found = np.array([*frame, 0, 0], np.int32), np.array([*patch, -1, -1], np.int32)
    return *found, multimodal_ids(stream, rate=1, chunk=CHUNK)


def _padded(x_T: np.ndarray, width: int) -> np.ndarray:
    return np.pad(x_T, ((0, width - len(x_T)), *((0, 0),) * (x_T.ndim - 1)))
