"""The types `Task` and `Batch`, and the functions that generated tasks share.

A generated task is one function that gives the token at each place of a line, and which of these
tokens are the answer. `generated` makes a task of it. Special tokens are the same in all tasks:

    id  token
     0  PAD    padding: segment 0 in the layout, not attended to, weight 0 in the loss
     1  BOS    first of every line
     2  SEP    between question and answer
     3  EOS    ends an answer whose length the model has to predict
     4  EXTRA  another special token of the task: the plus sign, the hole
     5  SYMBOL the first of the task's symbols; symbol number i has id SYMBOL + i
"""

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.layout import Layout, layout
from posenc_jax.options import FieldError

PAD, BOS, SEP, EOS, EXTRA, SYMBOL = range(6)
MOST_SYMBOLS = 2**20
SPLITS = ("train", "valid", "test")

Integer = int | np.integer
Padding = Literal["right", "left"]
Part = tuple[Any, Any]  # see `question_answer`
Rule = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]  # see `generated`


class Pair(NamedTuple):
    """The two sides of an encoder-decoder: tokens [B, K] and [B, T], or their layouts."""

    source: Any
    target: Any


class Batch(NamedTuple):
    """A batch for next-token prediction: rows of different sizes, padded to one static width.

    tokens_BT:  int32, the input; for images float32 [B, T, F], one patch at each place.
    targets_BT: int32, the target at each place; for images [B, 1], one label for each row.
    weights_BT: float32, 1 for targets that count in the loss, those of the answer; else 0.
    layout:     the position of each token; padding has segment 0.
    bytes_BT:   float32, the bytes that each target stands for, for scores per byte; None: one each.
    """

    tokens_BT: jax.Array
    targets_BT: jax.Array
    weights_BT: jax.Array
    layout: Layout
    bytes_BT: jax.Array | None = None


class Rows(NamedTuple):
    """Training rows that the host reads: [S, N, B, ...], of S seeds, N steps and B rows of each.

    shape: of all of them.
    fill:  (seeds, steps, rows) -> the rows of these three slices. Each row is a function of its
           seed, step and number, so each process reads its own.
    """

    shape: tuple[int, ...]
    fill: Callable[[slice, slice, slice], np.ndarray]

    def whole(self) -> np.ndarray:
        """All rows."""
        return self.fill(slice(None), slice(None), slice(None))


# (seeds, steps, batch, width) -> their training rows; see `Task.feed`.
Feed = Callable[[Sequence[int], range, int, int], Rows]


class Task(NamedTuple):
    """A task: pure functions from keys and indices to batches.

    vocab:    number of token ids.
    metric:   the metric of its scores, a name of `metrics.METRICS`.
    least, most: the smallest and the largest size; most None: no limit. A size is the number of
              symbols of a problem, or of bytes of a window.
    examples: (size) -> number of test examples; None: no limit.
    data:     arrays that `sample` and `test` read; an argument, so that they are not constants
              of the compiled program.
    sample:   (data, key, size_B, width) -> Batch of training examples; sizes may be traced.
    numbered: (data, index_B, size_B, width, split) -> Batch of test or validation examples by
              number, see `test`.
    baselines: () -> {name: the metric of a simple baseline}.
    facts:    facts about the data, for the record of a run.
    width:    (size) -> tokens that the model reads.
    features: numbers in a patch, for a task of images; None: the model reads token ids.
    feed:     (seeds, steps, batch, width) -> Rows, for training data that the host reads: `sample`
              gets the rows of its step instead of `data`. None: `data` is on the device.
    bag:      rules that predict answers without positions, by name, see `generated`.
    """

    name: str
    vocab: int
    metric: str
    least: int
    most: int | None
    examples: Callable[[int], int | None]
    data: Any
    sample: Callable[[Any, jax.Array, jax.Array, int], Batch]
    numbered: Callable[[Any, jax.Array, jax.Array, int, str], Batch]
    baselines: Callable[[], Mapping[str, float]]
    facts: Mapping[str, Any]
    width: Callable[[Any], Any] = lambda size: size
    features: int | None = None
    feed: Feed | None = None
    bag: Mapping[str, Rule] = MappingProxyType({})

    @property
    def streamed(self) -> bool:
        """Whether training rows are read step by step, by `feed`."""
        return self.feed is not None

    def training_data(self, step: int, batch: int, width: int) -> Any:
        """What `sample` reads at one step of seed 0, for callers that do not train."""
        if self.feed is None:
            return self.data
        return self.feed([0], range(step, step + 1), batch, width).whole()[0, 0]

    def test(
        self, data: Any, index_B: jax.Array, size: Any, width: int, split: str = "test"
    ) -> Batch:
        """The test examples of one size by number, or with split="valid" validation examples.

        They are the same in every run, and each split is drawn apart from the others. A number of
        `examples(size)` or more gives a row of weight 0.

        FieldError: a wrong size or width; a traced size is not checked.
        """
        check_size(self.name, size, self.least, self.most)
        if isinstance(size, Integer) and width < (needed := self.width(size)):
            reason = f"{width} is too narrow for {self.name} of size {size}; {needed} or more"
            raise FieldError("width", reason)
        size_B = jnp.broadcast_to(jnp.asarray(size, jnp.int32), index_B.shape)
        return self.numbered(data, index_B, size_B, width, split)


class Plan(NamedTuple):
    """A task whose data is not read yet: `least`, `most` and `width` as in `Task`; `read` makes the
    task.

    streamed: training rows are read step by step, see `Task.feed`.
    """

    least: int
    most: int | None
    read: Callable[[], Task]
    width: Callable[[int], int] = lambda size: size
    streamed: bool = False


def draw(key: jax.Array, index_T: jax.Array, choices: int) -> jax.Array:
    """Random numbers in 0 .. choices - 1, one for each index: int32 [T].

    Each depends only on the key and its own index, so an example is the same in any width. The
    remainder of 32 random bits favours no value by more than choices / 2**32.
    """
    bits_T = jax.vmap(jax.random.bits)(index_keys(key, index_T))
    return (bits_T % jnp.uint32(choices)).astype(jnp.int32)


def shuffled(key: jax.Array, count: int) -> jax.Array:
    """A random permutation of 0 .. count - 1, int32.

    Sorts random numbers whose low bits are the result; 20 or more bits are random. On a CPU a plain
    sort is four times faster than an argsort.
    """
    low = jnp.uint32((1 << (count - 1).bit_length()) - 1)
    number = jnp.arange(count, dtype=jnp.uint32)
    return (jnp.sort(jax.random.bits(key, (count,)) & ~low | number) & low).astype(jnp.int32)


def generated(
    name: str,
    line: Callable[[jax.Array, jax.Array, jax.Array], tuple[jax.Array, jax.Array]],
    length: Callable[[Any], Any],
    *,
    symbols: int,
    padding: Padding,
    least: int = 1,
    most: int | None = None,
    chance: float | None = None,
    group: Callable[[jax.Array, jax.Array], jax.Array] | None = None,
    bag: Mapping[str, Rule] | None = None,
) -> Task:
    """A task of random lines.

    Args:
      name: of the task; its test examples are drawn with a key made of the name.
      line: (key, size, place_L) -> (token_L, answer_L): the token at each place of one example,
        int32, and whether it is part of the answer. A shorter line ends at its first PAD.
        Values past the end are ignored.
      length: (size) -> tokens in the longest line of a size, for ints and traced ints.
      symbols: number of symbols, without the special tokens.
      padding: the side of the padding.
      least, most: the smallest and the largest size.
      chance: exact match of a random guess; None: no such baseline.
      group: (size, place_L) -> group_L, the group of each token of a line; see `Layout`.
      bag: rules that predict answers without positions, by name; the task's floor uses them, see
        `task_floors.py`. A rule is (token, question_V, answer_V) -> the predicted token: it gets
        the current token id, and how often each token id occurs up to it in the question
        (everything that is not answer) and in the answer.
    """
    group = group or (lambda size, place_L: jnp.zeros_like(place_L))

    def lines(key_B, size_B, width):
        place_L = jnp.arange(width + 1, dtype=jnp.int32)
        token_BL, answer_BL = jax.vmap(line, (0, 0, None))(key_B, size_B, place_L)
        group_BL = jax.vmap(group, (0, None))(size_B, place_L)
        inside_BL = (place_L[None] < length(size_B)[:, None]) & (token_BL != PAD)
        width_B = inside_BL.sum(axis=1, dtype=jnp.int32) - 1  # the last token is only a target
        return next_token(token_BL, answer_BL, width_B, group_BL=group_BL, padding=padding)

    def sample(data, key, size_B, width):
        row_B = jnp.arange(size_B.shape[0], dtype=jnp.int32)
        return lines(index_keys(jax.random.fold_in(key, 0), row_B), size_B, width)

    def numbered(data, index_B, size_B, width, split):
        return lines(example_keys(name, split, index_B, size_B), size_B, width)

    return Task(
        name=name, vocab=SYMBOL + symbols, metric="exact_match", least=least, most=most,
        width=lambda size: length(size) - 1, examples=lambda size: None, data=(), sample=sample,
        numbered=numbered, baselines=lambda: {} if chance is None else {"chance": chance}, facts={},
        bag=bag or {},
    )  # fmt: skip


def question_answer(
    place_L: jax.Array, question: Sequence[Part], answer: Sequence[Part]
) -> tuple[jax.Array, jax.Array]:
    """The line BOS question SEP answer, then PAD, and where its answer is: [L] each.

    question, answer: parts (tokens, count), one after the other: the first `count` tokens of an
      array, or one token id repeated `count` times. Counts may be traced.
    """
    before = [(BOS, 1), *question, (SEP, 1)]
    token_L, start = jnp.full_like(place_L, PAD), 0
    for tokens, count in (*before, *answer):
        index_L = place_L - start
        part_L = tokens[index_L] if jnp.ndim(tokens) else tokens
        token_L = jnp.where((index_L >= 0) & (index_L < count), part_L, token_L)
        start = start + count
    return token_L, place_L >= sum(count for _, count in before)


def next_token(
    token_BL: jax.Array,
    answer_BL: jax.Array,
    width_B: jax.Array,
    *,
    segment_BT: jax.Array | None = None,
    group_BL: jax.Array | None = None,
    padding: Padding = "right",
) -> Batch:
    """The batch in which each token of a line is predicted from those before it.

    Args:
      token_BL: the lines, int32 [B, T + 1].
      answer_BL: whether a token counts as a target, [B, T + 1] or [B, 1].
      width_B: number of input tokens of each line; the rest is padding.
      segment_BT, group_BL: see `Layout`; by default a line is one segment without groups.
      padding: the side of the padding.
    """
    width = token_BL.shape[1] - 1
    inside_BT = jnp.arange(width, dtype=jnp.int32)[None] < width_B[:, None]
    segment_BT = inside_BT.astype(jnp.int32) if segment_BT is None else segment_BT
    answer_BL = jnp.broadcast_to(answer_BL, token_BL.shape).astype(jnp.float32)
    group_BT = None if group_BL is None else group_BL[:, :-1]
    rows = (token_BL[:, :-1], token_BL[:, 1:], answer_BL[:, 1:], segment_BT, group_BT)
    rows: Any = jax.tree.map(lambda row_BT: jnp.where(inside_BT, row_BT, 0), rows)  # PAD is 0
    if padding == "left":
        rows = jax.tree.map(lambda row_BT: jax.vmap(jnp.roll)(row_BT, width - width_B), rows)
    token_BT, target_BT, weight_BT, line_BT, group_BT = rows
    place = layout(line_BT, group_BT=group_BT)
    return Batch(token_BT, target_BT, weight_BT, place)


def example_keys(name: str, split: str, index_B: jax.Array, size_B: jax.Array) -> jax.Array:
    """The random key of each test or validation example, [B]."""
    # A fixed implementation: the examples do not change with JAX's default.
    key = jax.random.key(zlib.crc32(name.encode()), impl="threefry2x32")
    key = jax.random.fold_in(key, {"test": 1, "valid": 2}[split])
    return jax.vmap(jax.random.fold_in)(index_keys(key, size_B), index_B)


def check_size(name: str, size: Any, least: int, most: int | None, field: str = "size") -> None:
    """Raises a FieldError if the task has no such size. A traced size is not checked."""
    if isinstance(size, Integer) and (size < least or (most is not None and size > most)):
        wanted = f"{least} or more" if most is None else f"{least} to {most}"
        raise FieldError(field, f"{size} is not a size of task {name}; {wanted}")


def check_least(option: str, value: int, least: int) -> None:
    """Raises a FieldError if an option of a task is too small."""
    if value < least:
        raise FieldError(("task", option), f"{value} is too small; {least} or more")


def check_symbols(option: str, value: int, most: int = MOST_SYMBOLS) -> None:
    """Raises a FieldError for fewer than 2 symbols, or more than an embedding may have rows."""
    check_least(option, value, 2)
    if value > most:
        raise FieldError(("task", option), f"{value} is too large; {most} or less")


def hash_split(digest: bytes, train: int, valid: int) -> str:
    """The split of an item by its hash, so that equal items are in one split; shares in percent."""
    percent = int.from_bytes(digest[:8], "big") % 100
    return "train" if percent < train else "valid" if percent < train + valid else "test"


def arrays_sha256(shapes: object, arrays: Iterable[np.ndarray]) -> str:
    """The SHA-256 of the shapes of arrays, as text, followed by the bytes of each."""
    digest = sha256(repr(shapes).encode())
    for array in arrays:
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def index_keys(key: jax.Array, index_B: jax.Array) -> jax.Array:
    """A random key for each index, [B]: the key with the index folded in."""
    return jax.vmap(jax.random.fold_in, (None, 0))(key, index_B)
