"""Rules that predict the next token from the tokens of the line alone.

    rule          looks for                                     predicts
    suffix k      the last k tokens, earlier in the line        the token after them
    mirror k      the last k tokens backwards, up to SEP        the token before them
    pairs k       the last k second tokens of pairs, among      the first token of the pair after
                  the first ones                                them
    after m       the newest token m                            the token after it
    hops          the last token but one                        a neighbour up to 3 places from it

Where k tokens are nowhere, fewer are looked for. Of several places the newest or the earliest is
taken; "shown" is the newest one before SEP; "vote" takes what most of them predict, and of equal
numbers what came to it last. SEP, where an answer begins, is looked for as BOS, where the question
does; a rule that comes to SEP or BOS predicts the end of the answer. The m of "after", and how far
"hops" goes after each last token, are the best ones on training examples.

These rules know which of two places comes first and which tokens are neighbours, and no other
positions. A model that scores no better has not shown that it uses positions: it may find by
content what another finds by position, as the lookup by n-grams of Jelassi et al. 2024 (arXiv
2402.01032) does.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.lab import metrics
from posenc_jax.lab.hosts.compiling import jit_quick
from posenc_jax.lab.tasks.task import BOS, EOS, PAD, SEP, SYMBOL, Batch, Task

LENGTHS = (1, 2, 3, 8)
SHORT = 3  # a rule that looks for so many tokens, or fewer, is within reach of two small layers
METRICS = ("token_accuracy", "exact_match", "symbol_accuracy", "end_accuracy")
FITTED = 256  # training examples that choose what is best on them


class Fitted(NamedTuple):
    """What rules learn from training examples.

    after: the m of "after m".
    hops:  last token -> how many places "hops" goes, negative to the left; others go nowhere.
    """

    after: int
    hops: Mapping[int, int]


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


def guesses(tokens_BT: np.ndarray, fitted: Fitted | None = None) -> dict[str, np.ndarray]:
    """The token that each rule predicts at each place, [B, T], by name; PAD where it finds nothing.

    fitted: None: without the rules that learn from training examples.
    """
    rules = _suffix_guesses, _mirror_guesses, _pairs_guesses
    named = {name: guess_BT for rule in rules for name, guess_BT in rule(tokens_BT)}
    if fitted is None:
        return named
    return {
        **named,
        "after": _after_guesses(tokens_BT, fitted.after),
        "hops": _hops_guesses(tokens_BT, fitted.hops),
    }


def fit(task: Task, trained: tuple[int, int]) -> Fitted:
    """What rules learn from training examples of a task.

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
    last_tokens = [int(token) for token in np.unique(tokens_BT) if token >= SYMBOL]

    def right(token: int) -> float:
        return weights_BT[_after_guesses(tokens_BT, token) == targets_BT].sum()

    # [hops, tokens]: the right answers of each number of places after each token.
    places = sorted(range(-SHORT, SHORT + 1), key=abs)
    right_HV = np.stack([
        np.bincount(tokens_BT.ravel(), (weights_BT * (guess_BT == targets_BT)).ravel())
        for hop in places
        for guess_BT in [_hops_guesses(tokens_BT, dict.fromkeys(last_tokens, hop))]
    ])  # fmt: skip
    hops = {token: places[right_HV[:, token].argmax()] for token in last_tokens}
    return Fitted(max(last_tokens, key=right), hops)


def scores(batch: Batch, fitted: Fitted | None = None) -> dict[str, dict[str, float]]:
    """rule -> metric -> its score on a batch, by the metrics that score models; NaN where no target
    counts, as for the ends of answers that have none.
    """
    named = guesses(np.asarray(batch.tokens_BT), fitted)
    answered_T = np.asarray(batch.weights_BT).any(axis=0)  # the other places count nowhere
    padding = [(0, 0), (0, _rounded(answered_T.sum()) - answered_T.sum())]
    answers = lambda x_BT: np.pad(np.asarray(x_BT)[:, answered_T], padding)
    target_BT = answers(batch.targets_BT)
    # The metrics ask whether a prediction is right and whether an answer ends, no more: three ids
    # in place of a vocabulary.
    id_BT = np.where(target_BT == EOS, EOS, SYMBOL)

    def guessed_id(guess_BT):
        return np.where(guess_BT == EOS, EOS, np.where(guess_BT == target_BT, SYMBOL, PAD))

    guess_RBT = np.stack([guessed_id(answers(guess_BT)) for guess_BT in named.values()])
    values = jax.device_get(_scores_of(guess_RBT, id_BT, answers(batch.weights_BT)))
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
    fitted, index_B = fit(task, trained), np.arange(examples, dtype=np.int32)
    width = int(task.width(max(sizes)))
    draw = jit_quick(lambda data, index_B, size: task.test(data, index_B, size, width))
    result = {}
    for size in sizes:
        count = min(examples, task.examples(size) or examples)
        batch = jax.device_get(draw(task.data, index_B[:count], size))
        result[size] = floors(scores(batch, fitted))
    return result


def _rounded(size: int) -> int:
    """The next power of two: tasks of about the same size share a program."""
    return 1 << (int(size) - 1).bit_length()


@jax.jit
def _scores_of(guess_RBT, targets_BT, weights_BT):
    """metric -> [R]: the scores of predictions, as of models that have them as their largest
    logits.
    """

    def of_rule(guess_BT):
        logits_BTV = jax.nn.one_hot(guess_BT, SYMBOL + 1)
        by_example = metrics.scores(METRICS, logits_BTV, targets_BT, weights_BT).by_example
        return {name: metrics.mean(name, by_example[name]) for name in METRICS}

    return jax.lax.map(of_rule, guess_RBT)


def _suffix_guesses(tokens_BT: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    begun_BT = np.where(tokens_BT == SEP, BOS, tokens_BT)
    next_BT = np.roll(tokens_BT, -1, axis=1)
    here_BT, separator_B1 = _places(tokens_BT)
    shown_BT = np.minimum(here_BT, separator_B1)
    key_BT = _first_keys(begun_BT)
    guess = _none_yet(tokens_BT, "newest", "earliest", "vote", "shown")
    for length in range(1, LENGTHS[-1] + 1):
        source_BT = (tokens_BT != PAD) & (here_BT >= length - 1)
        sources = _Sources(key_BT, source_BT, next_BT)
        at = sources.find(key_BT, here_BT)
        at["shown"] = sources.find(key_BT, shown_BT)["newest"]
        for which, at_BT in at.items():
            guess[which] = _taken(next_BT, np.where(source_BT, at_BT, -1), guess[which])
            if length in LENGTHS:
                yield f"suffix {length} {which}", guess[which]
        (key_BT,) = _longer([np.roll(key_BT, 1, axis=1)], begun_BT)


def _mirror_guesses(tokens_BT: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    before_BT = np.roll(tokens_BT, 1, axis=1)
    here_BT, separator_B1 = _places(tokens_BT)
    end_BT = np.full_like(here_BT, here_BT.shape[1])
    forward_BT = backward_BT = _first_keys(tokens_BT)
    guess = _none_yet(tokens_BT, "newest", "earliest", "vote")
    for length in range(1, LENGTHS[-1] + 1):
        source_BT = (tokens_BT != PAD) & (here_BT > 0) & (here_BT + length - 1 <= separator_B1)
        at = _Sources(forward_BT, source_BT, before_BT).find(backward_BT, end_BT)
        for which, at_BT in at.items():
            at_BT = np.where(here_BT >= length - 1, at_BT, -1)
            guess[which] = _taken(before_BT, at_BT, guess[which])
            if length in LENGTHS:
                yield f"mirror {length} {which}", guess[which]
        shifted = np.roll(forward_BT, -1, axis=1), np.roll(backward_BT, 1, axis=1)
        forward_BT, backward_BT = _longer(shifted, tokens_BT)


def _pairs_guesses(tokens_BT: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """The token here is the first one of a pair, of which the second is predicted."""
    next_BT = np.roll(tokens_BT, -2, axis=1)
    here_BT, _ = _places(tokens_BT)
    key_BT = _first_keys(tokens_BT)  # of every second token, up to this one
    guess = _none_yet(tokens_BT, "newest", "earliest", "vote")
    for length in range(1, LENGTHS[-1] + 1):
        source_BT = (tokens_BT != PAD) & (here_BT >= 2 * (length - 1))
        seconds_BT = 2 * np.roll(key_BT, 1, axis=1) + here_BT % 2
        is_pair_BT = (tokens_BT != PAD) & (here_BT > 2 * (length - 1))
        sources = _Sources(2 * key_BT + here_BT % 2, source_BT, next_BT)
        for which, at_BT in sources.find(seconds_BT, here_BT - 1).items():
            guess[which] = _taken(next_BT, np.where(is_pair_BT, at_BT, -1), guess[which])
            if length in LENGTHS:
                yield f"pairs {length} {which}", guess[which]
        (key_BT,) = _longer([np.roll(key_BT, 2, axis=1)], tokens_BT)


def _after_guesses(tokens_BT: np.ndarray, token: int) -> np.ndarray:
    here_BT, _ = _places(tokens_BT)
    at_BT = np.maximum.accumulate(np.where(tokens_BT == token, here_BT, -1), axis=1)
    at_BT = np.pad(at_BT, ((0, 0), (1, 0)), constant_values=-1)[:, :-1]  # an earlier place
    return _taken(np.roll(tokens_BT, -1, axis=1), at_BT, np.full_like(tokens_BT, PAD))


def _hops_guesses(tokens_BT: np.ndarray, hops: Mapping[int, int]) -> np.ndarray:
    here_BT, _ = _places(tokens_BT)
    hop_V = np.zeros(int(tokens_BT.max()) + 1, int)
    for token, hop in hops.items():
        if token < hop_V.size:
            hop_V[token] = hop
    hop_BT = hop_V[tokens_BT]
    key_BT, inside_BT = _first_keys(tokens_BT), tokens_BT != PAD
    last_BT = np.where(here_BT > 0, np.roll(key_BT, 1, axis=1), -1)
    at_BT = _Sources(key_BT, inside_BT, tokens_BT).find(last_BT, here_BT - 1)["newest"]
    goes_BT = inside_BT & (hop_BT != 0) & (at_BT >= 0)
    to_BT = np.where(goes_BT, at_BT + hop_BT, -1)
    to_BT = np.where(to_BT <= here_BT, to_BT, -1)
    return _taken(tokens_BT, to_BT, np.full_like(tokens_BT, PAD))


def _none_yet(tokens_BT: np.ndarray, *which: str) -> dict[str, np.ndarray]:
    return dict.fromkeys(which, np.full_like(tokens_BT, PAD))


def _places(tokens_BT: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The place of each token, [B, T], and of the first SEP, [B, 1]; T if there is none."""
    is_separator_BT = tokens_BT == SEP
    time = tokens_BT.shape[1]
    at_B = np.where(is_separator_BT.any(axis=1), is_separator_BT.argmax(axis=1), time)
    return np.broadcast_to(np.arange(time), tokens_BT.shape), at_B[:, None]


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


class _Sources:
    """The places of a batch where a rule may look, sorted by their keys.

    Args:
      key_BT: the number of what stands at each place; those of different rows differ.
      source_BT: whether a rule may look there.
      token_BT: what it predicts if it takes this place, which "vote" counts.
    """

    def __init__(self, key_BT: np.ndarray, source_BT: np.ndarray, token_BT: np.ndarray):
        self._time = key_BT.shape[1]
        place_BT = np.broadcast_to(np.arange(self._time), key_BT.shape)
        source_N = key_BT[source_BT] * self._time + place_BT[source_BT]
        order_N = np.argsort(source_N)
        self._source_N = source_N[order_N]
        key_N, place_N = np.divmod(self._source_N, self._time)
        is_first_N = np.diff(key_N, prepend=-1) > 0
        first_N = np.maximum.accumulate(np.where(is_first_N, np.arange(key_N.size), 0))
        voted_N = self._voted(key_N, place_N, token_BT[source_BT][order_N])
        self._place = {"newest": place_N, "earliest": place_N[first_N], "vote": voted_N}

    def find(self, key_BT: np.ndarray, before_BT: np.ndarray) -> dict[str, np.ndarray]:
        """The newest and the earliest place with a key before `before_BT`, and one that predicts
        what most of them do; -1 where there is none.
        """
        if not self._source_N.size:
            return dict.fromkeys(self._place, np.full_like(before_BT, -1))
        first_BT = key_BT * self._time
        at_BT = np.searchsorted(self._source_N, first_BT + before_BT) - 1
        is_found_BT = (at_BT >= 0) & (self._source_N[at_BT] >= first_BT)
        return {which: np.where(is_found_BT, place_N[at_BT], -1)
                for which, place_N in self._place.items()}  # fmt: skip

    def _voted(self, key_N: np.ndarray, place_N: np.ndarray, token_N: np.ndarray) -> np.ndarray:
        """For each source a place that predicts what most sources with its key do, up to it; of
        equal numbers the one that came to it last.
        """
        pair_N = key_N * (int(token_N.max(initial=0)) + 1) + token_N
        order_N = np.argsort(pair_N, kind="stable")
        sorted_N = pair_N[order_N]
        # How many sources with this key predicted the same so far: the place in its run of equals.
        count_N = np.empty_like(pair_N)
        count_N[order_N] = np.arange(pair_N.size) - np.searchsorted(sorted_N, sorted_N)
        best_N = np.maximum.accumulate((key_N * self._time + count_N) * self._time + place_N)
        return best_N % self._time


def _taken(token_BT: np.ndarray, at_BT: np.ndarray, otherwise_BT: np.ndarray) -> np.ndarray:
    """The tokens at these places, EOS for SEP and BOS; `otherwise_BT` where the place is -1."""
    taken_BT = np.take_along_axis(token_BT, np.maximum(at_BT, 0), axis=1)
    taken_BT = np.where((taken_BT == SEP) | (taken_BT == BOS), EOS, taken_BT)
    return np.where(at_BT >= 0, taken_BT, otherwise_BT)
