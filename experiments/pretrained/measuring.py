"""Losses of windows of text, and of the answers of prompts.

Letters of shapes: W stretches of text, each as long as the longest window; L its targets.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
from tokenizers import Tokenizer

from experiments.pretrained import prompts
from experiments.pretrained.config import Config
from experiments.pretrained.text import Text
from posenc_jax.lab.model.transformer import Model
from posenc_jax.lab.runs import Record, seed_records
from posenc_jax.lab.training.evaluation import position_bins
from posenc_jax.lab.training.step import cross_entropy
from posenc_jax.layout import full

Score = Callable[[Any, np.ndarray], tuple[np.ndarray, np.ndarray]]


class Subject(NamedTuple):
    """What is measured: a row of the results, after so many steps of fine-tuning with a seed."""

    row: str
    step: int
    seed: int

    def records(self, metric: str, values: Any, **labels: Any) -> Iterator[Record]:
        """A record of the metric for each value; the labels are the same, or one for each."""
        for n, value in enumerate(np.atleast_1d(values)):
            own = {k: int(v[n]) if np.ndim(v) else v for k, v in labels.items()}
            named = {"encoding": self.row, "split": "test", **own}
            yield from seed_records(self.step, [self.seed], named, {metric: [value]})


def scorer(model: Model, tokens: int) -> Score:
    """The function (params, ids [N, T + 1]) -> (nats [N, T], whether the argmax is right [N, T]).

    tokens: the most in one forward pass.
    """

    @jax.jit
    def group(params, id_BT):
        inputs_BT, target_BT = id_BT[:, :-1], id_BT[:, 1:]
        logits_BTV = model.apply(params, inputs_BT, full(*inputs_BT.shape))
        return cross_entropy(logits_BTV, target_BT), logits_BTV.argmax(axis=-1) == target_BT

    def score(params, id_NT):
        count, time = len(id_NT), id_NT.shape[1] - 1
        size = min(max(1, tokens // time), count)
        filled = np.pad(id_NT, ((0, -count % size), (0, 0)), mode="edge")
        found = [
            jax.device_get(group(params, part)) for part in np.split(filled, len(filled) // size)
        ]
        nats, right = (np.concatenate(parts)[:count] for parts in zip(*found, strict=True))
        return nats, right

    return score


def text_records(
    score: Score, params: Any, text: Text, lengths: list[int], subject: Subject
) -> Iterator[Record]:
    """Bits per byte and perplexity of each stretch, read in windows of each length.

    Of the longest windows also bits per byte by the place in the window.
    """
    size_W, targets = text.bytes_WL.sum(axis=1), text.bytes_WL.shape[1]
    for length in lengths:
        nats_NT, _ = score(params, _windows(text, length))
        nats_WL = nats_NT[:, len(text.first) :].reshape(text.bytes_WL.shape)
        nats_W = nats_WL.sum(axis=1)
        at = {"length": length, "stretch": np.arange(len(nats_W))}
        yield from subject.records("bits_per_byte", nats_W / math.log(2) / size_W, **at)
        yield from subject.records("perplexity", np.exp(nats_W / targets), **at)
        if length == targets:
            yield from _by_place(nats_WL, text, subject)


def _by_place(nats_WL: np.ndarray, text: Text, subject: Subject) -> Iterator[Record]:
    """Bits per byte of each range of places in the longest windows."""
    length = nats_WL.shape[1]
    starts = np.array(position_bins(length)[:-1])
    nats, size = (np.add.reduceat(x.sum(axis=0), starts) for x in (nats_WL, text.bytes_WL))
    bits = nats / math.log(2) / np.maximum(size, 1)
    yield from subject.records("bits_per_byte", bits, length=length, position=starts)


def _windows(text: Text, length: int) -> np.ndarray:
    """Windows [N, T + 1] of so many targets, each after the tokens that begin a text."""
    starts = range(0, text.id_WL.shape[1] - 1, length)
    parts = [row[start : start + length + 1] for row in text.id_WL for start in starts]
    first = np.tile(np.array(text.first, np.int32), (len(parts), 1))
    return np.concatenate([first, np.stack(parts)], axis=1)


def prompt_records(
    config: Config,
    score: Score,
    params: Any,
    words: Tokenizer,
    text: Text,
    length: int,
    subject: Subject,
) -> Iterator[Record]:
    """The share of keys that are found, and the bits of their digits, by prompt and depth.

    Greedy decoding finds a key exactly if every token of the answer is the argmax. Prompts of all
    rows are the same. A digit that is guessed has log2(10) = 3.3 bits.
    """
    room, count = length - len(text.first), config.eval.examples
    depths = np.linspace(0, 1, config.eval.depths)
    haystack = text.id_WL[:, 1:].reshape(-1).tolist()
    for name in config.prompts:
        prompt = prompts.read(name)
        hidden = [
            prompts.hide(prompt, words, haystack, room, depth, seed)
            for depth in depths
            for seed in range(count)
        ]
        id_NT = np.stack([[*text.first, *one.id_T] for one in hidden])
        nats_NT, right_NT = score(params, id_NT)
        answered = [
            (nats[-one.answers :].sum(), right[-one.answers :].all())
            for nats, right, one in zip(nats_NT, right_NT, hidden, strict=True)
        ]
        nats_N, found_N = zip(*answered, strict=True)
        at = {"prompt": name, "length": length, "depth": np.rint(100 * depths)}
        mean = lambda x: np.reshape(x, (len(depths), count)).mean(axis=1, dtype=np.float64)
        yield from subject.records("exact_match", mean(found_N), **at)
        yield from subject.records(
            "bits_per_digit", mean(nats_N) / math.log(2) / prompts.DIGITS, **at
        )
