"""Measures what waiting for data costs: training with text from memory, and with text streamed.

    python scripts/bench_data.py                # prints a line each, writes results/data.json

The sets are made in a temporary folder: the standard library's files, about 16 kB each, and the
same text cut into documents of 150 bytes, as long as a sentence. The three ways train in turn,
every second round in the opposite order; a step is one update of one seed. Two things are measured:
how long the device waited for its next rows; and how much longer a step took than with the text in
memory, which includes the time for making rows where the device is the same cores. The control
makes rows slower than the device uses them.
"""

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

sys.path.insert(0, str(Path(__file__).parents[1]))  # the package need not be installed

import jax
import tensorflow_datasets as tfds

from posenc_jax import encodings
from posenc_jax.lab import tasks
from posenc_jax.lab.config import schema
from posenc_jax.lab.hosts.devices import use_cores
from posenc_jax.lab.model import transformer
from posenc_jax.lab.report.statistics import interval
from posenc_jax.lab.tasks import corpus, tfds_builder, tfds_tasks
from posenc_jax.lab.training import loop

RESULTS = Path(__file__).parents[1] / "results"
SENTENCE = 150
BATCH, LENGTH, CHUNK, SEEDS = 32, 128, 20, 3
MEMORY, FILES, SENTENCES = "in memory", "streamed, 16 kB documents", "streamed, 150 byte documents"
CONTROL = "control: rows that take 1.5 times a chunk's training"


class Sentences(tfds.core.GeneratorBasedBuilder):
    """The standard library in documents of a sentence's length."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        return tfds.core.DatasetInfo(
            builder=self, features=tfds.features.FeaturesDict({"text": tfds.features.Text()})
        )

    def _split_generators(self, dl_manager):
        del dl_manager
        return {split: self._generate_examples(split) for split in tfds_builder.SPLITS}

    def _generate_examples(self, split):
        files = corpus.texts(corpus.standard_library())[split]
        text = b"".join(text for _, text in files)
        for i in range(0, len(text), SENTENCE):
            yield i, {"text": text[i : i + SENTENCE]}


def prepare(folder: str) -> None:
    """Writes both sets to the folder, and makes TFDS read them from there."""
    os.environ["TFDS_DATA_DIR"] = folder
    tfds.display_progress_bar(False)
    for name in ("posenc_jax/stdlib", "sentences"):
        tfds.builder(name, data_dir=folder, file_format="array_record").download_and_prepare()


def rivals() -> dict[str, tasks.Task]:
    """Returns tasks on the same text: from memory, and streamed as if it did not fit."""
    found = {MEMORY: tasks.make("tfds:posenc_jax/stdlib")}
    tfds_tasks.FITS = 0
    found[FILES] = tasks.make("tfds:posenc_jax/stdlib")
    found[SENTENCES] = tasks.make("tfds:sentences")
    return found


class Watched:
    """A chunk runner; `idle` is how long the device waited before each chunk but the first."""

    def __init__(self, run_chunk: Callable):
        self.run_chunk, self.done, self.idle = run_chunk, None, []
        self.watch = ThreadPoolExecutor(1)

    def __call__(self, state, data, steps: int):
        asked = time.perf_counter()
        if self.done is not None:
            idle = asked - self.done.result() if self.done.done() else 0.0
            self.idle.append(max(0.0, idle))
        state, metrics = self.run_chunk(state, data, steps)
        self.done = self.watch.submit(self.when_ready, metrics)
        return state, metrics

    @staticmethod
    def when_ready(metrics) -> float:
        jax.block_until_ready(metrics)
        return time.perf_counter()


class Measured(NamedTuple):
    """Seconds for each step of one seed."""

    step: float
    waiting: float  # the device had no data
    reading: float  # the host made rows, most of it beside the device


def measured(task: tasks.Task, steps: int, delay: float = 0.0) -> Measured:
    """Trains, and returns the mean times of all chunks but the first, which compiles, and the last,
    beside which no rows are made. `delay`: seconds that the rows of each chunk take longer.
    """
    model = transformer.build(schema.ModelConfig(), encodings.make("rope"), task.vocab)
    config = schema.TrainConfig(
        length=LENGTH, min_length=LENGTH, batch=BATCH, steps=steps, chunk=CHUNK
    )
    seconds, reading, watched, chunk_runner = [], [], [], loop.chunk_runner

    if (feed := task.feed) is not None:

        def timed(*asked):
            started = time.perf_counter()
            fed = feed(*asked)
            time.sleep(delay)
            reading.append(time.perf_counter() - started)
            return fed

        task = task._replace(feed=timed)

    def watching(*asked):
        watched.append(Watched(chunk_runner(*asked)))
        return watched[0]

    with mock.patch.object(loop, "chunk_runner", watching):
        loop.train(model, task, config, SEEDS, 0, True, lambda _, s: seconds.append(s))
    parts = seconds[1:-1], watched[0].idle[1:], reading[2:] or [0.0]
    return Measured(*(statistics.mean(part) / (CHUNK * SEEDS) for part in parts))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--out", type=Path, default=RESULTS / "data.json")
    flags = parser.parse_args()
    use_cores(BATCH)
    with tempfile.TemporaryDirectory() as folder:
        prepare(folder)
        jax.config.update("jax_compilation_cache_dir", folder)
        contestants = rivals()
        rounds: dict[str, list[Measured]] = {name: [] for name in contestants}
        for turn in range(flags.rounds):
            for name, task in list(contestants.items())[:: -1 if turn % 2 else 1]:
                rounds[name].append(measured(task, flags.steps))
        usual = statistics.median(found.step for found in rounds[MEMORY]) * CHUNK * SEEDS
        rounds[CONTROL] = [measured(contestants[FILES], flags.steps, delay=1.5 * usual)]
    results = {name: summed_up(found, rounds[MEMORY]) for name, found in rounds.items()}
    for name, found in results.items():
        print(f"{name}: {found}")
    machine = {
        "date": datetime.date.today().isoformat(),
        "backend": jax.devices()[0].device_kind,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "jax": importlib.metadata.version("jax"),
        "rounds": flags.rounds,
        "steps": flags.steps,
    }
    flags.out.write_text(json.dumps({"machine": machine, "results": results}, indent=1) + "\n")


def summed_up(found: list[Measured], base: list[Measured]) -> dict[str, Any]:
    """Returns medians over rounds, the share of time spent waiting, and differences to `base`."""
    more = [100 * (a.step / b.step - 1) for a, b in zip(found, base, strict=False)]
    total = Measured(*(sum(part) for part in zip(*found, strict=True)))
    return {
        "ms_per_step": round(1e3 * statistics.median(one.step for one in found), 3),
        "ms_reading": round(1e3 * statistics.median(one.reading for one in found), 3),
        "waiting_percent": round(100 * total.waiting / total.step, 3),
        "more_than_in_memory_percent": [round(m, 1) for m in more],
        "more_mean_and_95_interval": [
            None if m is None else round(m, 2) for m in interval(more)[:3]
        ],
    }


if __name__ == "__main__":
    main()
