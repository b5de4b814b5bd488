"""Rules that predict the next token from the tokens of the line alone.

    rule          looks for                                     predicts
    suffix k      the last k tokens, earlier in the line        the token after them
    mirror k      the last k tokens backwards, up to SEP        the token before them
    after m       the newest token m                            the token after it

Where k tokens are nowhere, fewer are looked for. Of several places the newest or the earliest is
taken; "shown" is the newest one before SEP. SEP, where an answer begins, is looked for as BOS,
where the question does; a rule that comes to SEP or BOS predicts the end of the answer. The m of
the last rule is the best one on training examples.

These rules know no positions, only which of two places comes first. A model that scores no better
has not shown that it uses positions: it may find by content what another finds by position, as the
lookup by n-grams of Jelassi et al. 2024 (arXiv 2402.01032) does.
"""

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.lab import metrics
from posenc_jax.lab.hosts.compiling import jit_quick
from posenc_jax.lab.tasks.task import BOS, EOS, PAD, SEP, SYMBOL, Batch, Task

LENGTHS = (1, 2, 3, 8)
SHORT = 3  # a rule that looks for so many tokens, or fewer, is within reach of two small layers
METRICS = ("token_accuracy", "exact_match", "symbol_accuracy", "end_accuracy")
LOGITS = 2**20  # in memory at a time
FITTED = 256  # training examples that choose the m of "after m"

Which = Literal["newest", "earliest", "shown"]


class ContentFloor(NamedTuple):
    """The best score of a metric among rules of content, and the name of the rule that has it.

    short: of the rules that look for at most SHORT tokens. long: of all.
    """

    short: tuple[str, float]
    long: tuple[str, float]


def above_floor(score: float, floor: float) -> float:
    """g = (score - floor) / (1 - floor): 0 at the floor, 1 where all is right, negative below the
    floor; NaN if the floor is 1.
    """
    return (score - floor) / (1 - floor) if floor < 1 else np.nan


def guesses(tokens_BT: np.ndarray, after: int | None = None) -> dict[str, np.ndarray]:
    """The token that each rule predicts at each place, [B, T], by name; PAD where it finds nothing.

    after: the m of the rule "after m"; None: without this rule.
    """
    named = dict(_suffix_guesses(tokens_BT)) | dict(_mirror_guesses(tokens_BT))
    return named if after is None else {**named, "after": _after_guesses(tokens_BT, after)}


def best_after(task: Task, trained: tuple[int, int]) -> int:
    """The symbol m of the best rule "after m" on training examples.

    trained: the smallest and the largest size in training.
    """
    width = int(task.width(trained[1]))

    @jit_quick
    def draw(data, key):
        size_key, key = jax.random.split(key)
        size_B = jax.random.randint(size_key, (FITTED,), trained[0], trained[1] + 1, jnp.int32)
        return task.sample(data, key, size_B, width)[:3]

    data = task.training_data(0, FITTED, width)
    tokens_BT, targets_BT, weights_BT = jax.device_get(draw(data, jax.random.key(0)))

    def right(token: int) -> float:
        return weights_BT[_after_guesses(tokens_BT, token) == targets_BT].sum()

    return max((int(token) for token in np.unique(tokens_BT) if token >= SYMBOL), key=right)


def scores(batch: Batch, vocab: int, after: int | None = None) -> dict[str, dict[str, float]]:
    """rule -> metric -> its score on a batch, by the metrics that score models; NaN where no target
    counts, as for the ends of answers that have none.

    vocab: number of token ids.
    """
    named = guesses(np.asarray(batch.tokens_BT), after)
    answered_T = np.asarray(batch.weights_BT).any(axis=0)  # the other places count nowhere
    padding = [(0, 0), (0, _rounded(answered_T.sum()) - answered_T.sum())]
    answers = lambda x_BT: np.pad(np.asarray(x_BT)[:, answered_T], padding)
    guess_RBT = np.stack([answers(guess_BT) for guess_BT in named.values()])
    scored = _scores_of(_rounded(vocab))
    values = jax.device_get(scored(guess_RBT, answers(batch.targets_BT), answers(batch.weights_BT)))
    return {
        name: {metric: float(values[metric][n]) for metric in METRICS}
        for n, name in enumerate(named)
    }


def floors(by_rule: Mapping[str, Mapping[str, float]]) -> dict[str, ContentFloor]:
    """metric -> the floor, from the scores of all rules."""
    short = [name for name in by_rule if f" {LENGTHS[-1]} " not in name]

    def best(names: Iterable[str], metric: str) -> tuple[str, float]:
        # NaN, where nothing counts, is never the best of several.
        name = max(names, key=lambda name: np.nan_to_num(by_rule[name][metric], nan=-1.0))
        return name, by_rule[name][metric]

    return {metric: ContentFloor(best(short, metric), best(by_rule, metric)) for metric in METRICS}


def by_size(
    task: Task, trained: tuple[int, int], sizes: Sequence[int], examples: int = 256
) -> dict[int, dict[str, ContentFloor]]:
    """size -> metric -> the floor on the first test examples of the task.

    trained: the smallest and the largest size in training.
    """
    after, index_B = best_after(task, trained), np.arange(examples, dtype=np.int32)
    width = int(task.width(max(sizes)))
    draw = jit_quick(lambda data, index_B, size: task.test(data, index_B, size, width))
    result = {}
    for size in sizes:
        count = min(examples, task.examples(size) or examples)
        batch = jax.device_get(draw(task.data, index_B[:count], size))
        result[size] = floors(scores(batch, task.vocab, after))
    return result


def _rounded(size: int) -> int:
    """The next power of two: tasks of about the same size share a program."""
    return 1 << (int(size) - 1).bit_length()


@functools.lru_cache
def _scores_of(vocab: int):
    """A function (guess_RBT, targets_BT, weights_BT) -> metric -> [R]: the scores of predictions,
    as of models that have them as their largest logits.
    """

    def of_rule(guess_BT, targets_BT, weights_BT):
        count, time = targets_BT.shape
        fits = max(LOGITS, time * vocab)
        rows = max(n for n in range(1, count + 1) if count % n == 0 and n * time * vocab <= fits)

        def of_rows(arrays):
            guess_BT, *targets = arrays
            logits_BTV = jax.nn.one_hot(guess_BT, vocab)
            return metrics.scores(METRICS, logits_BTV, *targets).by_example

        arrays = guess_BT, targets_BT, weights_BT
        parts = [array_BT.reshape(-1, rows, time) for array_BT in arrays]
        sums = jax.lax.map(of_rows, parts)
        return {name: metrics.mean(name, jax.tree.map(jnp.ravel, sums[name])) for name in METRICS}

    def of_rules(guess_RBT, targets_BT, weights_BT):
        return jax.lax.map(lambda guess_BT: of_rule(guess_BT, targets_BT, weights_BT), guess_RBT)

    return jax.jit(of_rules)


def _suffix_guesses(tokens_BT: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    begun_BT = np.where(tokens_BT == SEP, BOS, tokens_BT)
    next_BT = np.roll(tokens_BT, -1, axis=1)
    place_T, separator_B1 = _places(tokens_BT)
    here_BT = np.broadcast_to(place_T, tokens_BT.shape)
    limits = {"newest": here_BT, "earliest": here_BT, "shown": np.minimum(here_BT, separator_B1)}
    key_BT = _first_keys(begun_BT)
    guess = {which: np.full_like(tokens_BT, PAD) for which in limits}
    for length in range(1, LENGTHS[-1] + 1):
        source_BT = (tokens_BT != PAD) & (here_BT >= length - 1)
        for which, before_BT in limits.items():
            at_BT = _found(key_BT, source_BT, key_BT, before_BT, which == "earliest")
            at_BT = np.where(source_BT, at_BT, -1)
            guess[which] = _taken(next_BT, at_BT, guess[which])
            if length in LENGTHS:
                yield f"suffix {length} {which}", guess[which]
        (key_BT,) = _longer([np.roll(key_BT, 1, axis=1)], begun_BT)


def _mirror_guesses(tokens_BT: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    before_BT = np.roll(tokens_BT, 1, axis=1)
    place_T, separator_B1 = _places(tokens_BT)
    here_BT = np.broadcast_to(place_T, tokens_BT.shape)
    end_BT = np.full_like(here_BT, len(place_T))
    forward_BT = backward_BT = _first_keys(tokens_BT)
    guess = {which: np.full_like(tokens_BT, PAD) for which in ("newest", "earliest")}
    for length in range(1, LENGTHS[-1] + 1):
        source_BT = (tokens_BT != PAD) & (here_BT > 0) & (here_BT + length - 1 <= separator_B1)
        for which in guess:
            at_BT = _found(forward_BT, source_BT, backward_BT, end_BT, which == "earliest")
            at_BT = np.where(here_BT >= length - 1, at_BT, -1)
            guess[which] = _taken(before_BT, at_BT, guess[which])
            if length in LENGTHS:
                yield f"mirror {length} {which}", guess[which]
        shifted = np.roll(forward_BT, -1, axis=1), np.roll(backward_BT, 1, axis=1)
        forward_BT, backward_BT = _longer(shifted, tokens_BT)


def _after_guesses(tokens_BT: np.ndarray, token: int) -> np.ndarray:
    place_T, _ = _places(tokens_BT)
    at_BT = np.maximum.accumulate(np.where(tokens_BT == token, place_T, -1), axis=1)
    at_BT = np.pad(at_BT, ((0, 0), (1, 0)), constant_values=-1)[:, :-1]  # an earlier place
    return _taken(np.roll(tokens_BT, -1, axis=1), at_BT, np.full_like(tokens_BT, PAD))


def _places(tokens_BT: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The place of each token, [T], and of the first SEP, [B, 1]; T if there is none."""
    is_separator_BT = tokens_BT == SEP
    time = tokens_BT.shape[1]
    at_B = np.where(is_separator_BT.any(axis=1), is_separator_BT.argmax(axis=1), time)
    return np.arange(time), at_B[:, None]


def _first_keys(tokens_BT: np.ndarray) -> np.ndarray:
    """A number for each token of each row: equal tokens of one row have equal numbers."""
    row_B1 = np.arange(len(tokens_BT), dtype=np.int64)[:, None]
    return row_B1 * (int(tokens_BT.max()) + 1) + tokens_BT


def _longer(keys: Sequence[np.ndarray], tokens_BT: np.ndarray) -> list[np.ndarray]:
    """The numbers of runs of tokens that are longer by the token at their place; equal runs of one
    row have equal numbers, in all arrays.
    """
    longer = np.stack([key_BT * (int(tokens_BT.max()) + 1) + tokens_BT for key_BT in keys])
    _, number = np.unique(longer, return_inverse=True)
    return list(number.reshape(longer.shape))


def _found(
    source_key_BT: np.ndarray,
    source_BT: np.ndarray,
    key_BT: np.ndarray,
    before_BT: np.ndarray,
    earliest: bool,
) -> np.ndarray:
    """For each place its newest (or earliest) source before `before_BT` with the same number; -1
    where there is none.
    """
    time = key_BT.shape[1]
    place_BT = np.broadcast_to(np.arange(time), key_BT.shape)
    source_N = np.sort(source_key_BT[source_BT] * time + place_BT[source_BT])
    if not len(source_N):
        return np.full_like(place_BT, -1)
    first_BT, last_BT = key_BT * time, key_BT * time + before_BT
    if earliest:
        at_BT = np.searchsorted(source_N, first_BT)
    else:
        at_BT = np.searchsorted(source_N, last_BT) - 1
    source_BT = source_N[np.clip(at_BT, 0, len(source_N) - 1)]
    is_found_BT = (at_BT >= 0) & (first_BT <= source_BT) & (source_BT < last_BT)
    return np.where(is_found_BT, source_BT - first_BT, -1)


def _taken(token_BT: np.ndarray, at_BT: np.ndarray, otherwise_BT: np.ndarray) -> np.ndarray:
    """The tokens at these places, EOS for SEP and BOS; `otherwise_BT` where the place is -1."""
    taken_BT = np.take_along_axis(token_BT, np.maximum(at_BT, 0), axis=1)
    taken_BT = np.where((taken_BT == SEP) | (taken_BT == BOS), EOS, taken_BT)
    return np.where(at_BT >= 0, taken_BT, otherwise_BT)
