"""The loop over the rows of an experiment, each measured once and kept on disk as it ends."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from experiments import workers
from posenc_jax.lab import runs
from posenc_jax.lab.hosts import failpoints, signals
from posenc_jax.lab.training.progress import Progress

T = TypeVar("T")


def measure_rows(
    run: runs.Run,
    title: str,
    names: Sequence[str],
    prepare: workers.Prepare[T],
    config: Any,
    keep: Callable[[str, T], None],
    stage: str = "{}",
) -> None:
    """Measures the rows that no earlier start of the run has measured.

    Args:
      run: where a row that has ended is noted as a stage.
      title: shown with the progress.
      names: one for each row.
      prepare: `prepare(config)` returns the function that measures a row by its name; see
        `workers.measured`.
      config: what `prepare` is called with.
      keep: `keep(name, result)` writes a row's result to disk.
      stage: the name of a row's stage, with {} for the row's name.
    """
    missing = [name for name in names if not run.ended(stage.format(name))]
    for name in missing[:1]:
        run.begin(stage.format(name))
    with Progress(len(missing), title) as progress:
        results = workers.measured(prepare, config, missing)
        for done, (name, result) in enumerate(zip(missing, results, strict=True), 1):
            keep(name, result)
            failpoints.reach("measured")
            run.end(stage.format(name))
            progress.update(done)
            signals.stop_if_requested()
