"""What a task is, and what the generated ones share.

A generated task is one function: which token stands at each place of a line, and which tokens are
its answer. `generated` turns it into batches. Special tokens are the same in all of them:

    id  token
     0  PAD    outside the line; segment 0 in the layout, never attended to or counted
     1  BOS    first of every line
     2  SEP    between question and answer
     3  EOS    ends an answer whose length the model has to find
     4  EXTRA  the task's own mark: the plus sign, the hole
     5  SYMBOL the first of the task's symbols; symbol number i has id SYMBOL + i
"""

import zlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.layout import Layout, layout

PAD, BOS, SEP, EOS, EXTRA, SYMBOL = range(6)
MOST_SYMBOLS = 2**20

Integer = int | np.integer
Metric = Literal["bits_per_byte", "exact_match", "accuracy"]
Padding = Literal["right", "left"]


class Batch(NamedTuple):
    """A batch for next-token prediction; rows of different sizes stand in one static width.

    tokens_BT:  int32, what the model reads; of images float32 [B, T, F], one patch a place.
    targets_BT: int32, what it must say at each place; of images [B, 1], one label a row.
    weights_BT: float32, 1 where the target counts: on the answer alone.
    layout:     where each token stands; padding has segment 0.
    """

    tokens_BT: jax.Array
    targets_BT: jax.Array
    weights_BT: jax.Array
    layout: Layout


class Fed(NamedTuple):
    """Training rows made on the host, [S, N, ...]: of the seeds from `seed` on and the N steps from
    `step` on.
    """

    rows: Any
    seed: Any
    step: Any

    def at(self, seed: jax.Array, step: jax.Array) -> Any:
        """The rows of one step of one seed."""
        return self.rows[seed - self.seed, step - self.step]


class Task(NamedTuple):
    """A task: pure functions from keys and indices to batches.

    vocab:    number of token ids.
    metric:   what the task is judged by.
    least, most: sizes it has, most None where there is no limit. A size is the number of symbols
              of a problem, or the bytes of a window.
    width:    (size) -> tokens the model reads for it.
    examples: (size) -> how many test examples there are; None: as many as one likes.
    data:     arrays that `sample`, `test` and `valid` read, handed over so that jit compiles no
              copy of them in.
    sample:   (data, key, size_B, width) -> Batch of training examples; sizes may be traced.
    test:     (data, index_B, size, width) -> Batch of test examples, by number: the same in every
              run, and from another stream than the training examples. Numbers from `examples(size)`
              on give rows of weight 0.
    valid:    the same, from a third stream.
    baselines: () -> value of the metric for what a model has to beat, by name.
    facts:    for the record of a run: what the data was.
    features: numbers in a patch, for a task of images; None: the model reads token ids.
    feed:     (seeds, steps, batch, width) -> Fed: what `sample` is given of each step in place of
              `data`, where that does not fit on the device; None: it does. Both are ranges.
    """

    name: str
    vocab: int
    metric: Metric
    least: int
    most: int | None
    width: Callable[[int], int]
    examples: Callable[[int], int | None]
    data: Any
    sample: Callable[[Any, jax.Array, jax.Array, int], Batch]
    test: Callable[[Any, jax.Array, Any, int], Batch]
    valid: Callable[[Any, jax.Array, Any, int], Batch]
    baselines: Callable[[], Mapping[str, float]]
    facts: Mapping[str, Any]
    features: int | None = None
    feed: Callable[[range, range, int, int], Fed] | None = None


def draw(key: jax.Array, index_T: jax.Array, choices: int) -> jax.Array:
    """Entries, by index, of an endless random sequence over 0 .. choices - 1: int32, [T].

    Each entry depends on the key and its own index alone, so an example is the same in any width.
    The remainder of 32 random bits favours no entry by more than choices / 2**32.
    """
    bits_T = jax.vmap(jax.random.bits)(_fold_each(key, index_T))
    return (bits_T % jnp.uint32(choices)).astype(jnp.int32)


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
) -> Task:
    """A task made of random lines.

    Args:
      name: also sets apart its test examples from those of other tasks.
      line: (key, size, place_L) -> (token_L, answer_L): the token at each place of one example,
        int32, and whether it is part of the answer. What it says outside the line is ignored.
      length: (size) -> tokens in a line, for ints and traced ints.
      symbols: how many symbols there are besides the special tokens.
      padding: the side that padding stands on.
      least, most: sizes it has.
      chance: exact match of a guesser, where that is simple.
      group: (size, place_L) -> group_L, which tokens of a line belong together; see `Layout`.
    """
    group = group or (lambda size, place_L: jnp.zeros_like(place_L))
    examples = partial(_batch_of_lines, line, length, group, padding)

    def sample(data, key, size_B, width):
        del data
        row_B = jnp.arange(size_B.shape[0], dtype=jnp.int32)
        return examples(_fold_each(jax.random.fold_in(key, 0), row_B), size_B, width)

    def fixed(stream):
        def numbered(data, index_B, size, width):
            del data
            check_size(name, size, least, most)
            check_width(name, size, length(size) - 1, width)
            # The implementation is pinned: these examples outlive JAX's default.
            key = jax.random.key(zlib.crc32(name.encode()), impl="threefry2x32")
            key = jax.random.fold_in(jax.random.fold_in(key, stream), size)
            size_B = jnp.broadcast_to(jnp.asarray(size, jnp.int32), index_B.shape)
            return examples(_fold_each(key, index_B), size_B, width)

        return numbered

    return Task(
        name=name,
        vocab=SYMBOL + symbols,
        metric="exact_match",
        least=least,
        most=most,
        width=lambda size: length(size) - 1,
        examples=lambda size: None,
        data=(),
        sample=sample,
        test=fixed(1),
        valid=fixed(2),
        baselines=lambda: {} if chance is None else {"chance": chance},
        facts={},
    )


def _batch_of_lines(line, length, group, padding, key_B, size_B, width) -> Batch:
    """A line for each key, of its own size, in a batch of one width."""
    place_L = jnp.arange(width + 1, dtype=jnp.int32)
    token_BL, answer_BL = jax.vmap(line, (0, 0, None))(key_B, size_B, place_L)
    group_BL = jax.vmap(group, (0, None))(size_B, place_L)
    width_B = length(size_B) - 1  # the last token is only ever a target
    inside_BT = place_L[None, :-1] < width_B[:, None]
    rows = (
        jnp.where(inside_BT, token_BL[:, :-1], PAD),
        jnp.where(inside_BT, token_BL[:, 1:], PAD),
        (inside_BT & answer_BL[:, 1:]).astype(jnp.float32),
        inside_BT.astype(jnp.int32),
        jnp.where(inside_BT, group_BL[:, :-1], 0),
    )
    if padding == "left":
        rows = [jax.vmap(jnp.roll)(row_BT, width - width_B) for row_BT in rows]
    *content, segment_BT, group_BT = rows
    return Batch(*content, layout(segment_BT, group_BT=group_BT))


def check_size(name: str, size: Any, least: int, most: int | None, field: str = "size") -> None:
    """ValueError for a size that the task does not have; a traced size is not looked at."""
    if isinstance(size, Integer) and (size < least or (most is not None and size > most)):
        wanted = f"{least} or more" if most is None else f"{least} to {most}"
        raise ValueError(f"{field}: {size} is not a size of task {name}; {wanted}")


def check_width(name: str, size: Any, needs: Any, width: int) -> None:
    """ValueError for a batch too narrow for a size; a traced size is not looked at."""
    if isinstance(size, Integer) and width < needs:
        raise ValueError(f"width: {width} is too narrow for {name} of size {size}; {needs} or more")


def check_least(option: str, value: int, least: int) -> None:
    """ValueError for an option of a task that is too small."""
    if value < least:
        raise ValueError(f"task.{option}: {value} is too small; {least} or more")


def check_symbols(option: str, value: int) -> None:
    """ValueError for a number of symbols that says nothing, or that no table has rows for."""
    check_least(option, value, 2)
    if value > MOST_SYMBOLS:
        raise ValueError(f"task.{option}: {value} is too large; {MOST_SYMBOLS} or less")


def _fold_each(key: jax.Array, index_B: jax.Array) -> jax.Array:
    return jax.vmap(jax.random.fold_in, (None, 0))(key, index_B)
