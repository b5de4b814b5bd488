"""Losses of windows of text, and of the answers of prompts.

Letters of shapes: W stretches of text, each as long as the longest window; L its targets; D depths
of a key and E examples of each.
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
from posenc_jax.lab.hosts.devices import replicated
from posenc_jax.lab.hosts.processes import fetch
from posenc_jax.lab.metrics import cross_entropy, is_right
from posenc_jax.lab.model.transformer import Model
from posenc_jax.lab.runs import Record, seed_records
from posenc_jax.lab.training.evaluation import position_bins
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
            row_labels = {k: int(v[n]) if np.ndim(v) else v for k, v in labels.items()}
            named = {"encoding": self.row, "split": "test", **row_labels}
            yield from seed_records(self.step, [self.seed], named, {metric: [value]})


def forward(model: Model, **form: Any) -> Any:
    """The compiled function (params, ids [B, T + 1]) -> (nats [B, T], argmax is right [B, T]).

    form: of attention, as of `frame`.
    """

    def read(params, id_BT):
        inputs_BT, target_BT = id_BT[:, :-1], id_BT[:, 1:]
        logits_BTV = model.apply(params, inputs_BT, full(*inputs_BT.shape), **form)
        return cross_entropy(logits_BTV, target_BT), is_right(logits_BTV, target_BT)

    return jax.jit(read, out_shardings=replicated())


def scorer(model: Model, tokens: int) -> Score:
    """The function (params, ids [N, T + 1]) -> (nats [N, T], argmax is right [N, T]).

    tokens: the most in one forward pass, unless one row has more.
    """
    group = forward(model)

    def score(params, id_NT):
        count, time = len(id_NT), id_NT.shape[1] - 1
        size = min(max(1, tokens // time), count)
        filled = np.pad(id_NT, ((0, -count % size), (0, 0)), mode="edge")
        scores = [fetch(group(params, part)) for part in np.split(filled, len(filled) // size)]
        nats, right = (np.concatenate(parts)[:count] for parts in zip(*scores, strict=True))
        return nats, right

    return score


class Windows(NamedTuple):
    """All that is read in windows of one length, by one compiled program.

    id_NT: int32 [N, T + 1]: the stretches of the text, then the prompts, each after the tokens that
      begin a text.
    answers: prompt -> the tokens of each of its answers, [depths, examples].
    depths: places of the key in percent.
    """

    length: int
    id_NT: np.ndarray
    answers: dict[str, np.ndarray]
    depths: np.ndarray


def windows(config: Config, words: Tokenizer, text: Text, length: int) -> Windows:
    """The windows of so many targets. FieldError: a prompt that is longer."""
    starts = range(0, text.id_WL.shape[1] - 1, length)
    rows = [row[start : start + length + 1] for row in text.id_WL for start in starts]
    rows = [[*text.first, *row] for row in rows]
    room, depths = length - len(text.first), np.linspace(0, 1, config.eval.depths)
    haystack, answers = text.id_WL[:, 1:].reshape(-1).tolist(), {}
    for name in config.prompts:
        prompt = prompts.read(name)
        hidden = [
            prompts.hide(prompt, words, haystack, room, depth, seed)
            for depth in depths
            for seed in range(config.eval.examples)
        ]
        rows += [[*text.first, *prompt.id_T] for prompt in hidden]
        answers[name] = np.reshape([prompt.answers for prompt in hidden], (len(depths), -1))
    return Windows(length, np.array(rows, np.int32), answers, np.rint(100 * depths))


def records(
    score: Score, params: Any, text: Text, read: Windows, subject: Subject
) -> Iterator[Record]:
    """Bits per byte and perplexity of each stretch of text, then what is found of the keys.

    Of the longest windows also bits per byte by the place in the window.
    """
    nats_NT, right_NT = score(params, read.id_NT)
    answer_rows = sum(count_DE.size for count_DE in read.answers.values())
    of_text, of_prompts = np.split(nats_NT, [len(nats_NT) - answer_rows])
    nats_WL = of_text[:, len(text.first) :].reshape(text.bytes_WL.shape)
    nats_W, targets = nats_WL.sum(axis=1), text.bytes_WL.shape[1]
    bits_W = nats_W / math.log(2) / text.bytes_WL.sum(axis=1)
    at = {"length": read.length, "stretch": np.arange(len(nats_W))}
    yield from subject.records("bits_per_byte", bits_W, **at)
    yield from subject.records("perplexity", np.exp(nats_W / targets), **at)
    if read.length == targets:
        yield from _by_place(nats_WL, text, subject)
    yield from _of_keys(of_prompts, right_NT[-answer_rows or None :], read, subject)


def _by_place(nats_WL: np.ndarray, text: Text, subject: Subject) -> Iterator[Record]:
    """Bits per byte of each range of places in the longest windows."""
    length = nats_WL.shape[1]
    starts = np.array(position_bins(length)[:-1])
    nats, size = (np.add.reduceat(x.sum(axis=0), starts) for x in (nats_WL, text.bytes_WL))
    bits = nats / math.log(2) / np.maximum(size, 1)
    yield from subject.records("bits_per_byte", bits, length=length, position=starts)


def _of_keys(
    nats_NT: np.ndarray, right_NT: np.ndarray, read: Windows, subject: Subject
) -> Iterator[Record]:
    """The share of keys that are found, and the bits of their digits, by prompt and depth.

    Greedy decoding finds a key exactly if every token of the answer is the argmax. Prompts of all
    rows are the same. A digit that is guessed has log2(10) = 3.3 bits.
    """
    start = 0
    for name, count_DE in read.answers.items():
        rows = [*enumerate(count_DE.reshape(-1), start)]
        nats = [nats_NT[n, -count:].sum(dtype=np.float64) for n, count in rows]
        right = [right_NT[n, -count:].all() for n, count in rows]
        mean = lambda x, shape=count_DE.shape: np.reshape(x, shape).mean(axis=1, dtype=np.float64)
        at = {"prompt": name, "length": read.length, "depth": read.depths}
        yield from subject.records("exact_match", mean(right), **at)
        bits_D = mean(nats) / math.log(2) / prompts.DIGITS
        yield from subject.records("bits_per_digit", bits_D, **at)
        start += count_DE.size
