"""What waiting for data costs: training steps of the main job with text from memory and streamed.

    python scripts/bench_data.py                # prints a line each, writes docs/data.json

The sets are made here, in a temporary folder: the standard library's files, about 16 kB each, and
the same text cut into documents of 150 bytes, as long as a sentence. Rivals train in turn, a round
each; a step is one update of one seed.
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
from pathlib import Path

# The package need not be installed: it is found beside this folder.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import jax
import tensorflow_datasets as tfds

from posenc_jax import encodings, schema, tasks, transformer
from posenc_jax.devices import use_cores
from posenc_jax.tasks import builders, corpus, sets
from posenc_jax.training import train

DOCS = Path(__file__).resolve().parents[1] / "docs"
ROOT = Path(__file__).resolve().parents[1]
SENTENCE = 150
# The main job's size.
MODEL = schema.ModelConfig(width=128, heads=4, layers=2, mlp=4)
BATCH, LENGTH, CHUNK, SEEDS = 32, 128, 20, 3


class Sentences(tfds.core.GeneratorBasedBuilder):
    """The standard library in documents of a sentence's length."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        return tfds.core.DatasetInfo(
            builder=self, features=tfds.features.FeaturesDict({"text": tfds.features.Text()})
        )

    def _split_generators(self, dl_manager):
        del dl_manager
        return {split: self._generate_examples(split) for split in builders.SPLITS}

    def _generate_examples(self, split):
        files = corpus.texts(corpus.plan_stdlib())[split]
        text = b"".join(text for _, text in files)
        for i in range(0, len(text), SENTENCE):
            yield i, {"text": text[i : i + SENTENCE]}


def prepare(folder: str) -> None:
    os.environ["TFDS_DATA_DIR"] = folder
    tfds.display_progress_bar(False)
    for name in ("posenc_jax/stdlib", "sentences"):
        tfds.builder(name, data_dir=folder, file_format="array_record").download_and_prepare()


def rivals() -> dict[str, tasks.Task]:
    """The same text from memory, and streamed as if it did not fit."""
    found = {"in memory": tasks.make("tfds:posenc_jax/stdlib")}
    sets.FITS = 0
    found["streamed, 16 kB documents"] = tasks.make("tfds:posenc_jax/stdlib")
    found["streamed, 150 byte documents"] = tasks.make("tfds:sentences")
    return found


def measured(task: tasks.Task, steps: int) -> tuple[float, float]:
    """Seconds a step, and of them the host's in reading rows; the first chunk compiles."""
    model = transformer.build(MODEL, encodings.make("rope"), task.vocab)
    config = schema.TrainConfig(
        length=LENGTH, min_length=LENGTH, batch=BATCH, steps=steps, chunk=CHUNK
    )
    seconds, reading = [], []

    if (feed := task.feed) is not None:

        def timed(*asked):
            started = time.perf_counter()
            fed = feed(*asked)
            reading.append(time.perf_counter() - started)
            return fed

        task = task._replace(feed=timed)
    train(model, task, config, SEEDS, 0, True, lambda _, s: seconds.append(s))
    chunk = CHUNK * SEEDS
    return statistics.median(seconds[1:]) / chunk, statistics.median(reading or [0.0]) / chunk


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--out", type=Path, default=DOCS / "data.json")
    flags = parser.parse_args()
    use_cores(BATCH)
    with tempfile.TemporaryDirectory() as folder:
        prepare(folder)
        contestants = rivals()
        rounds: dict[str, list] = {name: [] for name in contestants}
        for _ in range(flags.rounds):
            for name, task in contestants.items():
                rounds[name].append(measured(task, flags.steps))
    results = {}
    base = rounds["in memory"]
    for name, found in rounds.items():
        more = [100 * (a[0] / b[0] - 1) for a, b in zip(found, base, strict=True)]
        results[name] = {
            "ms_per_step": round(1e3 * statistics.median(s for s, _ in found), 3),
            "ms_reading": round(1e3 * statistics.median(r for _, r in found), 3),
            "more_than_in_memory_percent": [round(m, 1) for m in more],
        }
        print(name, results[name])
    machine = {
        "date": datetime.date.today().isoformat(),
        "backend": jax.devices()[0].device_kind,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "jax": importlib.metadata.version("jax"),
        "steps": flags.steps,
    }
    flags.out.write_text(json.dumps({"machine": machine, "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
