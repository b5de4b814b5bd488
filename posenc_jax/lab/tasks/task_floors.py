"""The floor of a task: the best score of predictors that need no positions.

    predictor        predicts from
    unigram table    nothing: the most frequent answer token
    bigram table     the current token
    trigram table    the current token and the one before it
    4-gram table     the current token and the two before it
    rules            the current token and two bags of words, if the task has rules, see
                     `bag_of_words.py`

Tables are fitted to fresh training examples of the sizes in training, or of the nearest that the
task has. A context that was not seen there is shortened from its far end. A model that scores no
better than the floor has not shown that it uses positions.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.lab.hosts.compiling import jit_quick
from posenc_jax.lab.tasks.task import Rule, Task

TABLES = ("unigram table", "bigram table", "trigram table", "4-gram table")
ROWS = 256  # examples drawn at a time


class Score(NamedTuple):
    """Share of answer tokens, and of answers without an error, that are predicted."""

    token_accuracy: float
    exact_match: float


class Floor(NamedTuple):
    """The best score of each metric, and the name of the predictor that has it."""

    token_accuracy: tuple[str, float]
    exact_match: tuple[str, float]


class _Rows(NamedTuple):
    """Lines of a task: inputs, targets, whether a target is an answer, whether an input is a
    token.
    """

    tokens_BT: np.ndarray
    targets_BT: np.ndarray
    answer_BT: np.ndarray
    inside_BT: np.ndarray


def floors(
    task: Task,
    trained: tuple[int, int],
    sizes: Sequence[int],
    examples: int = 1024,
    fitted: int = 8192,
) -> dict[int, Floor]:
    """The best score that needs no positions, on test examples of each size; of equal scores, that
    of the predictor with the better other metric.

    Args:
      task: reads tokens.
      trained: the smallest and the largest size in training.
      sizes: of the test examples.
      examples: how many test examples of a size.
      fitted: how many training examples the tables are fitted to.
    """
    train = _drawn(task, trained, fitted)
    tests = zip(sizes, _tested(task, sizes, examples), strict=True)
    return {size: _best(_scores(task, train, test)) for size, test in tests}


def by_metric(
    task: Task, trained: tuple[int, int], sizes: Sequence[int], examples: int = 1024
) -> dict[str, dict[int, float]]:
    """metric -> size -> the floor; arguments as for `floors`; {} if the task has another metric."""
    if task.metric not in Floor._fields:
        return {}
    size_floors = floors(task, trained, sizes, examples)
    return {
        metric: {
            size: getattr(floor_at_size, metric)[1] for size, floor_at_size in size_floors.items()
        }
        for metric in Floor._fields
    }


def floor(
    task: Task, trained: tuple[int, int], size: int, examples: int = 1024, fitted: int = 8192
) -> Floor:
    """The floor at one size; arguments as for `floors`."""
    return floors(task, trained, (size,), examples, fitted)[size]


def predictors(
    task: Task, trained: tuple[int, int], size: int, examples: int = 1024, fitted: int = 8192
) -> dict[str, Score]:
    """The score of each predictor at one size, by name; arguments as for `floors`."""
    (test,) = _tested(task, (size,), examples)
    return _scores(task, _drawn(task, trained, fitted), test)


def _best(scores: Mapping[str, Score]) -> Floor:
    """The best score of each metric, with the name of its predictor."""
    token = max(scores, key=lambda name: scores[name])
    exact = max(scores, key=lambda name: scores[name][::-1])
    return Floor((token, scores[token].token_accuracy), (exact, scores[exact].exact_match))


def _scores(task: Task, train: _Rows, test: _Rows) -> dict[str, Score]:
    """The score of each table and rule on the test lines, by name."""
    scores = {}
    for name, guess_BT in _table_guesses(train, test).items():
        scores[name] = _score(guess_BT == test.targets_BT, test)
    for name, rule in task.bag.items():
        scores[name] = _score(_guesses(rule, task.vocab, test) == test.targets_BT, test)
    return scores


def _drawn(task: Task, trained: tuple[int, int], count: int) -> _Rows:
    """Training examples, with sizes drawn uniformly from those that the task has."""
    least, most = (int(np.clip(size, task.least, task.most)) for size in trained)
    width = int(task.width(most))

    @jit_quick
    def draw(data, key):
        size_key, key = jax.random.split(key)
        size_B = jax.random.randint(size_key, (ROWS,), least, most + 1, jnp.int32)
        return _rows(task.sample(data, key, size_B, width))

    keys = jax.random.split(jax.random.key(0), -(-count // ROWS))
    data = (task.training_data(step, ROWS, width) for step in range(len(keys)))
    drawn = [jax.device_get(draw(*args)) for args in zip(data, keys, strict=True)]
    return _joined(drawn, count)


def _tested(task: Task, sizes: Sequence[int], examples: int) -> Iterator[_Rows]:
    """Yields the first test examples of each size; one program draws them all, at the largest
    width.
    """
    width, index_B = int(task.width(max(sizes))), np.arange(ROWS, dtype=np.int32)
    draw = jit_quick(lambda data, index_B, size: _rows(task.test(data, index_B, size, width)))
    for size in sizes:
        count = min(examples, task.examples(size) or examples)
        drawn = [draw(task.data, start + index_B, size) for start in range(0, count, ROWS)]
        rows = _joined(jax.device_get(drawn), count)
        inside_T = rows.inside_BT.any(axis=0)
        yield _Rows(*(array_BT[:, inside_T] for array_BT in rows))


def _rows(batch):
    """The lines of a batch, without layout."""
    inside_BT = batch.layout.segment_BT > 0
    return _Rows(batch.tokens_BT, batch.targets_BT, batch.weights_BT > 0, inside_BT)


def _joined(parts: list[_Rows], count: int) -> _Rows:
    """The first `count` lines of all parts."""
    return _Rows(*(np.concatenate(arrays)[:count] for arrays in zip(*parts, strict=True)))


def _score(right_BT: np.ndarray, rows: _Rows) -> Score:
    """The score of predictions that are right where `right_BT` is True."""
    right_BT = right_BT | ~rows.answer_BT
    tokens = right_BT[rows.answer_BT].mean()
    return Score(float(tokens), float(right_BT.all(axis=1).mean()))


def _table_guesses(train: _Rows, test: _Rows) -> dict[str, np.ndarray]:
    """The prediction of each table at each place of the test lines, [B, T], by name."""
    guesses, guess = {}, {}
    # A context is a number; equal contexts of both sets have equal numbers.
    train_BT, test_BT = (np.zeros(rows.tokens_BT.shape, np.int64) for rows in (train, test))
    shorter_BT = test_BT
    for order, name in enumerate(TABLES):
        if order:
            train_BT = _longer(train_BT, train, order)
            test_BT = _longer(test_BT, test, order)
            both = np.concatenate([train_BT.ravel(), test_BT.ravel()])
            _, number = np.unique(both, return_inverse=True)
            train_BT = number[: train_BT.size].reshape(train_BT.shape)
            test_BT = number[train_BT.size :].reshape(test_BT.shape)
        guess = _most_frequent(train_BT[train.answer_BT], train.targets_BT[train.answer_BT])
        contexts, tokens = guess
        at_BT = np.minimum(np.searchsorted(contexts, test_BT), len(contexts) - 1)
        shorter_BT = np.where(contexts[at_BT] == test_BT, tokens[at_BT], shorter_BT)
        guesses[name] = shorter_BT
    return guesses


def _longer(context_BT: np.ndarray, rows: _Rows, order: int) -> np.ndarray:
    """The contexts extended by one token, the one `order` - 1 places back; 0 before the line."""
    back = order - 1
    token_BT = np.where(rows.inside_BT, rows.tokens_BT + 1, 0).astype(np.int64)
    token_BT = np.pad(token_BT, ((0, 0), (back, 0)))[:, : rows.tokens_BT.shape[1]]
    return context_BT * 2**32 + token_BT


def _most_frequent(context_N: np.ndarray, target_N: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The contexts, ascending, and the most frequent target after each; of equal counts the
    smallest.
    """
    targets = target_N.max() + 1  # a pair is one number: rows are ten times slower to sort
    pair_P, count_P = np.unique(context_N * targets + target_N, return_counts=True)
    context_P, target_P = np.divmod(pair_P, targets)
    order_P = np.lexsort((target_P, -count_P, context_P))
    context_P, target_P = context_P[order_P], target_P[order_P]
    first_P = np.concatenate([[True], context_P[1:] != context_P[:-1]])
    return context_P[first_P], target_P[first_P]


def _guesses(rule: Rule, vocab: int, rows: _Rows) -> np.ndarray:
    """The prediction of a rule at each place, [B, T]; it reads one line at a time."""
    last_BT = np.pad(rows.answer_BT, ((0, 0), (1, 0)))[:, :-1]  # an input that was an answer

    def line_guesses(arrays):
        token_T, answer_T, inside_T = arrays
        one_hot_TV = jax.nn.one_hot(token_T, vocab, dtype=jnp.int32) * inside_T[:, None]
        bag = lambda where_T: jnp.cumsum(one_hot_TV * where_T[:, None], axis=0)
        question_T = 1 - answer_T
        return jax.vmap(rule)(token_T, bag(question_T), bag(answer_T))

    arrays = rows.tokens_BT, last_BT.astype(np.int32), rows.inside_BT.astype(np.int32)
    return np.asarray(jax.jit(lambda arrays: jax.lax.map(line_guesses, arrays))(arrays))
