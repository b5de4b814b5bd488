"""Models with each method on one question about a canvas."""

import math
from collections.abc import Iterator
from functools import partial

from experiments.compare.comparison import Row, compare, lengths_and_control, model_of
from experiments.compare.grids import options_of, task_of
from experiments.compare.vision.config import Config, draws, rows_of
from experiments.compare.vision.windows import shifted_windows
from posenc_jax import encodings
from posenc_jax.combinators import chain
from posenc_jax.encoding import Encoding
from posenc_jax.lab import runs, tasks
from posenc_jax.lab.summary import Summary
from posenc_jax.lab.tasks.canvas import ink_share


def measure(config: Config, run: runs.Run) -> Summary:
    """Trains and tests every row; returns the summary."""
    baselines = partial(_baselines, config)
    return compare(config, run, make_task(config), partial(rows, config), baselines=baselines)


def make_task(config: Config) -> tasks.Task:
    """The task in positions of two axes; each row has it in those of its method."""
    return task_of(config, axes=2)


def rows(config: Config, task: tasks.Task) -> Iterator[Row]:
    """The rows of each method, see `rows_of`."""
    for name in config.encoding.names:
        axes = encodings.axes(name)
        placed = task_of(config, axes)
        for label, windowed in rows_of(config, name):
            encoding = encoding_of(config, name, windowed)
            model = model_of(config, placed, encoding, axes)
            yield lengths_and_control(config, placed, encoding, model, label)


def encoding_of(config: Config, name: str, windowed: bool) -> Encoding:
    """The encoding of a row; one in shifted windows has tables of the size of a window."""
    side = config.window if windowed else config.train.length
    encoding = encodings.make(name, **options_of(config, name, side))
    return chain(shifted_windows(config.window), encoding) if windowed else encoding


def _baselines(config: Config, task: tasks.Task) -> dict[str, float]:
    """Those of the task; of `draw` the bits of a pixel that is ink as often as on average."""
    if not draws(config):
        return dict(task.baselines())
    size = config.train.length
    share = ink_share(task, size)
    bits = -share * math.log2(share) - (1 - share) * math.log2(1 - share)
    return {f"share of ink, size {size}": bits}
