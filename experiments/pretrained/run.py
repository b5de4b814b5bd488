"""Reads a released model under every extension, fine-tunes some, and reads those again."""

from collections.abc import Iterator, Sequence
from typing import Any

import jax
from jax.sharding import NamedSharding, PartitionSpec
from tokenizers import Tokenizer

from experiments.pretrained.checks import extensions
from experiments.pretrained.config import Config, lengths
from experiments.pretrained.extensions import Extended
from experiments.pretrained.measuring import Subject, records, scorer, windows
from experiments.pretrained.summary import summarise, tuned_row
from experiments.pretrained.text import Text, rows, text
from experiments.pretrained.tuning import tuned
from posenc_jax.backends.target import target
from posenc_jax.lab import runs, tasks
from posenc_jax.lab.hosts import signals
from posenc_jax.lab.hosts.devices import seed_sharding
from posenc_jax.lab.model import pretrained
from posenc_jax.lab.model.transformer import Model, build
from posenc_jax.lab.runs import Record
from posenc_jax.lab.summary import Summary
from posenc_jax.lab.training.progress import Progress


def measure(config: Config, run: runs.Run) -> Summary:
    """Measures every row; returns the summary, an empty one in a process that has no records."""
    extended = extensions(config)
    words = pretrained.tokenizer(config.folder)
    task = tasks.make(config.task.name, **config.task.options)
    content = text(task, words, max(lengths(config, extended.length)))
    run.fact(
        task=dict(task.facts),
        trained_length=extended.length,
        stretches=len(content.id_WL),
        bytes_per_token=float(content.bytes_WL.mean()),
        rate=config.rate,
    )
    measurer = _Measurer(config, run, extended, words, task, content)
    dtype = "float32" if config.train.steps else config.model.dtype
    place = spread if len(target().devices) > 1 else None
    loaded = pretrained.load(config.folder, dtype, place)
    names = list(extended.encodings)
    with Progress(len(names), "extensions") as progress:
        for done, name in enumerate(names, 1):
            measurer.row(name, loaded.params)
            progress.update(done)
    for name in config.train.rows if config.train.steps else ():
        for seed in config.seed_range:
            measurer.tuned_row(name, loaded.params, seed)
    if not run.is_writer:
        return Summary()
    return summarise(config, run.records(), extended.length)


def spread(leaf: jax.ShapeDtypeStruct) -> NamedSharding:
    """Each array over all devices, as `along_largest` says."""
    mesh = seed_sharding((1,)).mesh
    return NamedSharding(mesh, along_largest(leaf.shape, mesh.shape["rows"]))


def along_largest(shape: tuple[int, ...], devices: int) -> PartitionSpec:
    """The largest axis that the devices divide, if there is one.

    FSDP prefers whole tiles of a TPU. On four chips that would split Llama's read-out along its
    sum, and all logits would be reduced.
    """
    sizes = [0 if size % devices else size for size in shape]
    return (
        PartitionSpec(*[None] * sizes.index(max(sizes)), "rows") if any(sizes) else PartitionSpec()
    )


class _Measurer:
    """Measures the rows of a run; a row that has ended is not measured again."""

    def __init__(
        self,
        config: Config,
        run: runs.Run,
        extended: Extended,
        words: Tokenizer,
        task: tasks.Task,
        content: Text,
    ):
        self.config, self.run, self.extended, self.words = config, run, extended, words
        self.task, self.text = task, content
        every = lengths(config, extended.length)
        self.windows = [windows(config, words, content, length) for length in every]
        self._models: dict[str, tuple[Model, Any]] = {}

    def row(self, name: str, params: Any) -> None:
        """Measures released weights under one extension."""
        self._measured(name, params, Subject(name, 0, self.config.first_seed), name)

    def tuned_row(self, name: str, params: Any, seed: int) -> None:
        """Fine-tunes released weights under one extension, and measures them."""
        config, row = self.config, tuned_row(name)
        stage = f"{row}, seed {seed}"
        if self.run.ended(stage):
            return
        length = round(config.factor * self.extended.length)
        shape = config.train.batch, length
        data, first = self.task.data, self.text.first
        batch = lambda step: rows(data, self.words, first, seed, step, shape)
        labels = {"encoding": row, "split": "train", "length": length}
        losses: list[Record] = []
        with Progress(config.train.steps, f"fine-tune {name}") as progress:

            def read(step, loss):
                losses.extend(runs.seed_records(step, [seed], labels, {"loss": [loss]}))
                progress.update(step, loss)

            params = tuned(config, self._model(name)[0], params, batch, seed, read)
        self._measured(name, params, Subject(row, config.train.steps, seed), stage, losses)

    def _measured(
        self, name: str, params: Any, subject: Subject, stage: str, losses: Sequence[Record] = ()
    ) -> None:
        if self.run.ended(stage):
            return
        self.run.begin(stage)
        self.run.log([*losses, *self._records(self._model(name)[1], params, subject)])
        self.run.end(stage)
        signals.stop_if_requested()

    def _records(self, score: Any, params: Any, subject: Subject) -> Iterator[Record]:
        for read in self.windows:
            yield from records(score, params, self.text, read, subject)

    def _model(self, name: str) -> tuple[Model, Any]:
        """The model under one extension, and its scorer; fine-tuned weights share its programs."""
        if name not in self._models:
            extended, released = self.extended, self.extended.released
            config = released.config.model_copy(update={"dtype": self.config.model.dtype})
            model = build(config, extended.encodings[name], released.vocab)
            self._models[name] = model, scorer(model, self.config.eval.tokens)
        return self._models[name]
