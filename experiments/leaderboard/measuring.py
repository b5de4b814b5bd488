"""Measures one method on all tasks: one compiled program for training, one for each test window.

The examples of every task are drawn before into a pool, whose shape is the same for all tasks. The
programs take it as an argument, so that all tasks share them.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.leaderboard.config import encoding_of, of_task, options_of
from posenc_jax import encodings
from posenc_jax.lab import runs, tasks
from posenc_jax.lab.hosts.exit_status import Diverged
from posenc_jax.lab.model import transformer
from posenc_jax.lab.tasks.task import Batch, Task
from posenc_jax.lab.training.loop import (
    chunk_runner,
    init_states,
    over_seeds,
    refuse_not_finite,
)
from posenc_jax.lab.training.step import cross_entropy, optimizer

DRAWN = 1024  # examples drawn at a time


class Pool(NamedTuple):
    """One task's examples: a Batch to train on, and a Batch for each test window."""

    task: Task
    train: Batch
    test: tuple[Batch, ...]


class Result(NamedTuple):
    """A method's records, or the reason why there are none."""

    records: list[dict[str, Any]]
    reason: str


def largest(width: Any, least: int, most: int | None, window: int) -> int:
    """The largest size whose width fits the window; `least - 1` if none fits."""
    size = least - 1
    while width(size + 1) <= window and size != most:
        size += 1
    return size


def draw_pools(config: Any) -> list[Pool]:
    """The examples of every task: the same in every process, and for every method."""
    return [_draw_pool(config, number) for number in range(len(config.tasks))]


def _draw_pool(config: Any, number: int) -> Pool:
    entry = config.tasks[number]
    with of_task(number):
        task = tasks.make(entry.name, **entry.options)
    fits = partial(largest, task.width, task.least, task.most)
    size, window = fits(config.window), config.window
    least = max(task.least, size // 4)

    @jax.jit
    def sample(key):
        size_key, key = jax.random.split(key)
        size_B = jax.random.randint(size_key, (DRAWN,), least, size + 1, jnp.int32)
        return task.sample(task.data, key, size_B, window)

    keys = jax.random.split(jax.random.key(config.first_seed), -(-config.pool // DRAWN))
    drawn = [jax.device_get(sample(key)) for key in keys]
    train = jax.tree.map(lambda *parts: np.concatenate(parts)[: config.pool], *drawn)
    index_B = np.arange(config.examples)
    widths = [window * multiple for multiple in config.multiples]
    test = tuple(
        jax.device_get(task.test(task.data, index_B, fits(width), width)) for width in widths
    )
    return Pool(task, train, test)


def sample_pool(data: Batch, key: jax.Array, size_B: jax.Array, width: int) -> Batch:
    """As many examples of a pool as there are sizes, drawn with replacement."""
    del width  # that of the pool
    row_B = jax.random.randint(key, size_B.shape, 0, len(data.tokens_BT), jnp.int32)
    return jax.tree.map(lambda leaf: leaf[row_B], data)


def measurer(config: Any) -> Callable[[str], Result]:
    """A function from the name of a method to its result; the examples are drawn once."""
    return partial(_attempt, config, draw_pools(config))


def _attempt(config: Any, pools: Sequence[Pool], name: str) -> Result:
    """The method's result, with a reason if it diverges or runs out of memory."""
    try:
        return Result(list(measure(config, name, pools)), "")
    except Diverged as reason:
        return Result([], str(reason))
    except Exception as error:
        if "RESOURCE_EXHAUSTED" not in str(error) and not isinstance(error, MemoryError):
            raise
        return Result([], "out of memory")


def measure(config: Any, name: str, pools: Sequence[Pool]) -> Iterator[runs.Record]:
    """The records of one method: every task, seed and window within its reach."""
    started = time.perf_counter()
    vocab = max(pool.task.vocab for pool in pools)
    build = lambda encoding: transformer.build(config.model, encoding, vocab)
    model, train = build(encoding_of(config, name)), config.train
    task = pools[0].task._replace(sample=sample_pool)
    run_chunk = chunk_runner(model, task, train, config.model.masks.loss)
    records = partial(runs.seed_records, train.steps, config.seed_range)
    labels = {"encoding": name, "length": config.window}
    states = []
    for pool in pools:
        state = init_states(model, optimizer(train), config.seeds, config.first_seed)
        state, metrics = run_chunk(state, pool.train, train.steps)
        refuse_not_finite(jax.device_get(metrics), config.seed_range, f"{pool.task.name}, ")
        states.append(state)
    count = sum(leaf[0].size for leaf in jax.tree.leaves(states[0].params["encoding"]))
    yield from records({**labels, "split": "train"}, {"parameters": [count] * config.seeds})
    same = not any("factor" in part.options for part in encodings.cards(name))
    for n, multiple in enumerate(config.multiples):
        most = encodings.reach(name, **options_of(config, name, multiple))
        if most is not None and config.window * multiple > most:
            continue
        reader = model if same else build(encoding_of(config, name, multiple))
        score = jax.jit(partial(_score, reader))
        for pool, state in zip(pools, states, strict=True):
            scores = jax.device_get(score(state.params, pool.test[n]))
            tested = {**labels, "split": "test", "length": config.window * multiple}
            yield from records({**tested, "task": pool.task.name}, scores)
    took = (time.perf_counter() - started) / config.seeds
    yield from records({**labels, "split": "test"}, {"seconds": [took] * config.seeds})


def _score(model: transformer.Model, params: Any, batch: Batch) -> dict[str, jax.Array]:
    """Each metric, [S] over seeds."""

    def one(params):
        logits_BTV = model.apply(params, batch.tokens_BT, batch.layout)
        counts_BT = batch.weights_BT > 0
        right_BT = (logits_BTV.argmax(axis=-1) == batch.targets_BT) & counts_BT
        loss_BT = cross_entropy(logits_BTV, batch.targets_BT) * batch.weights_BT
        count, posed_B = counts_BT.sum(), counts_BT.any(axis=1)
        exact_B = posed_B & (right_BT == counts_BT).all(axis=1)
        share = lambda part, whole: part.astype(jnp.float32) / whole.astype(jnp.float32)
        return {
            "token_accuracy": share(right_BT.sum(), count),
            "exact_match": share(exact_B.sum(), posed_B.sum()),
            "loss": loss_BT.sum() / count.astype(jnp.float32),
        }

    return over_seeds(one, params)
