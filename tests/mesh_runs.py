"""`python -m tests.mesh_runs FOLDER CASE...`: short trainings over the devices that there are.

Prints what lab/training/test_mesh.py compares, as JSON. JAX_NUM_CPU_DEVICES says how many devices;
with JAX_NUM_PROCESSES and its like the run is shared by several processes, and each prints.
"""

import functools
import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from posenc_jax import make
from posenc_jax.lab import tasks
from posenc_jax.lab.config.schema import EvalConfig, ModelConfig, TrainConfig
from posenc_jax.lab.hosts import devices, processes
from posenc_jax.lab.model import transformer
from posenc_jax.lab.runs.checkpoints import Checkpoints
from posenc_jax.lab.tasks.task import SPLITS, Rows
from posenc_jax.lab.tasks.tokens.shards import Stream
from posenc_jax.lab.tasks.tokens.task import embedded_tokenizer, of_streams
from posenc_jax.lab.training import evaluation, loop
from scripts.accelerators.collectives import collectives

HALF, STEPS = 3, 6


class Case(NamedTuple):
    """What is trained; with `goes_on`, from the checkpoint of that case at half the steps, made
    with so many devices and processes: "fsdp@4x2".
    """

    name: str
    seeds: int = 1
    fsdp: bool = False
    tensor: int = 1  # devices that share the heads, where there are several
    goes_on: str = ""
    encoding: str = "transformer_xl"  # one of its weights has three axes
    reads: str = "text"  # a task of `TASKS`


CASES = {
    case.name: case
    for case in (
        Case("rows"),
        Case("seeds", seeds=8),
        Case("fsdp", fsdp=True),
        Case("rows to fsdp", fsdp=True, goes_on="rows@1x1"),
        Case("fsdp to rows", goes_on="fsdp@8x1"),
        Case("eight to four", fsdp=True, goes_on="fsdp@8x1"),
        Case("two processes to one", goes_on="fsdp@4x2"),
        Case("heads", tensor=2),
        Case("heads and fsdp", fsdp=True, tensor=2),
        Case("four to four", fsdp=True, tensor=2, goes_on="heads and fsdp@4x1"),
        Case("four to one", goes_on="heads and fsdp@4x1"),
        Case("heads to four", fsdp=True, tensor=2, goes_on="heads@4x1"),
        Case("heads to one", goes_on="heads@4x1"),
        Case("random", seeds=2, encoding="shifted+sinusoidal"),
        Case("tokens", encoding="rope", reads="tokens"),
        Case("tokens go on", goes_on="tokens@1x1", encoding="rope", reads="tokens"),
        Case("tokens of seeds", seeds=2, encoding="rope", reads="tokens"),
    )
}


def on_first_device(tree: Any) -> int:
    """Returns the bytes of a tree that are on the first device of this process."""
    shards = [shard for leaf in jax.tree.leaves(tree) for shard in leaf.addressable_shards]
    return sum(shard.data.nbytes for shard in shards if shard.device == jax.local_devices()[0])


@functools.cache
def text() -> tasks.Task:
    """A task whose data lie on every device; made once JAX knows of the other processes."""
    return tasks.make(f"file:{Path(__file__).parent}")._replace(examples=lambda size: 7)


ROWS_READ: list[list[int]] = []  # first and last seed and row of each request of this process


@functools.cache
def tokens() -> tasks.Task:
    """The tokens of that text, whose training rows the host reads; `ROWS_READ` says which."""
    words = embedded_tokenizer()
    texts = [path.read_text("utf-8") for path in sorted(Path(__file__).parent.glob("*.py"))]
    stream = Stream([np.concatenate(words.encode(texts))])
    facts = {"bytes": dict.fromkeys(SPLITS, 1)}
    task = of_streams("tokens", dict.fromkeys(SPLITS, stream), words, 1000, facts)
    read = task.feed

    def feed(*asked: Any) -> Rows:
        rows = read(*asked)

        def fill(seeds: slice, steps: slice, at: slice) -> np.ndarray:
            asked_for = [*seeds.indices(rows.shape[0])[:2], *at.indices(rows.shape[2])[:2]]
            ROWS_READ.append(asked_for)
            return rows.fill(seeds, steps, at)

        return Rows(rows.shape, fill)

    return task._replace(feed=feed, examples=lambda size: 7)


TASKS = {"text": text, "tokens": tokens}


class Half:
    """Saves the state at half the steps; with `goes_on`, starts from the state of that case."""

    step = 0  # of the checkpoint that was restored, of its own stage

    def __init__(self, folder: Path, case: Case):
        self._folder, self._case = folder, case

    def restore(self, fresh: Any) -> Any:
        self.step = HALF if self._case.goes_on else 0
        if not self._case.goes_on:
            return fresh
        return Checkpoints(self._folder / self._case.goes_on).restore(HALF, fresh)

    def due(self, step: int) -> bool:
        return True

    def save(self, step: int, state: Any) -> None:
        if step == HALF and not self._case.goes_on:
            by = f"{self._case.name}@{jax.device_count()}x{jax.process_count()}"
            checkpoints = Checkpoints(self._folder / by)
            checkpoints.save(step, state, {})
            checkpoints.wait()


class Trainer:
    """Trains and tests; each program is compiled once, and a state placed otherwise is refused."""

    def __init__(self, seeds: int, fsdp: bool, encoding: str, reads: str, tensor: int):
        self._seeds, self._programs, self._task = seeds, {}, TASKS[reads]()
        self._init: Any = None
        shape = ModelConfig(width=16, heads=2, layers=1)
        self._model = transformer.build(shape, make(encoding), self._task.vocab)
        self._config = TrainConfig(
            length=6, min_length=1, batch=8, steps=STEPS, chunk=HALF, lr=1e-2, warmup=2, fsdp=fsdp
        )
        limits = EvalConfig(lengths=(6,), examples=7, tokens=1)
        self.evaluator = evaluation.Evaluator(self._model, self._task, limits)

    def init(self, function: Any) -> Any:
        """In place of `loop.jit_quick`, which compiles the initial state alone."""
        self._init = self._init or JIT_QUICK(function)
        return self._init

    def runner(self, *args: Any) -> Any:
        """In place of `loop.chunk_runner`."""
        run = CHUNK_RUNNER(*args)

        def call(state, batches, rate_N):
            steps = len(rate_N)
            if steps not in self._programs:
                self._programs[steps] = run.lower(state, batches, rate_N).compile()
            return self._programs[steps](state, batches, rate_N)

        return call

    def __call__(self, folder: Path, case: Case) -> dict[str, Any]:
        """Losses [S, steps], summed losses of 7 test examples [S], bytes of state, collectives."""
        losses, loop.jit_quick, loop.chunk_runner = [], self.init, self.runner
        try:
            self.state = loop.train(
                self._model, self._task, self._config, self._seeds, 0, True,
                lambda metrics, seconds: losses.append(metrics["loss"]), Half(folder, case),
            )  # fmt: skip
        finally:
            loop.jit_quick, loop.chunk_runner = JIT_QUICK, CHUNK_RUNNER
        whole = sum(leaf.nbytes for leaf in jax.tree.leaves(self.state))
        said = list(collectives(self._programs[HALF].as_text()))
        return {
            "losses": np.concatenate(losses, axis=1).tolist(),
            "scores": self.evaluator(self.state.params, 6)
            .by_example["loss"]
            .total.sum(axis=1)
            .tolist(),
            "bytes": [whole, on_first_device(self.state)],
            "each step": [one.kind for one in said if one.each_step],
            "once": [one.kind for one in said if not one.each_step],
        }

    def does_not_fit(self) -> str:
        """What an evaluation says where the last process has no memory left."""
        free = 100.0 if jax.process_index() == jax.process_count() - 1 else 1e12
        evaluation.free_bytes = lambda: free
        try:
            self.evaluator(self.state.params, 6)
        except evaluation.DoesNotFit as reason:
            return str(reason)
        return ""


JIT_QUICK, CHUNK_RUNNER = loop.jit_quick, loop.chunk_runner
trainer = functools.cache(Trainer)


def trained(folder: Path, name: str) -> dict[str, Any]:
    """What one case gives; cases of one shape share their programs."""
    case = CASES[name]
    ROWS_READ.clear()
    with devices.tensor_parallel(case.tensor):
        of_case = trainer(case.seeds, case.fsdp, case.encoding, case.reads, case.tensor)
        actual = of_case(folder, case)
    return {**actual, "rows read": list(ROWS_READ)}


def main() -> None:
    processes.join()
    folder, *names = sys.argv[1:]
    actual: dict[str, Any] = {name: trained(Path(folder), name) for name in names}
    actual["devices"], actual["first"] = jax.device_count(), processes.is_first()
    if processes.is_multiprocess() and "fsdp" in names:
        of_fsdp = trainer(1, True, CASES["fsdp"].encoding, CASES["fsdp"].reads, 1)
        actual["does not fit"] = of_fsdp.does_not_fit()
        actual["asked"] = [
            processes.any_process(jax.process_index() == 1),
            processes.any_process(False),
        ]
    print(json.dumps(actual))
    processes.leave()


if __name__ == "__main__":
    main()
