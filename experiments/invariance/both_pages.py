"""The page of an experiment in docs/: of small models and of a released encoder."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from posenc_jax.lab.report import Section
from posenc_jax.lab.report.summaries import only
from posenc_jax.lab.runs import StoredRun


def document(
    runs: Sequence[StoredRun],
    conclusions: Callable[[Mapping], list[str]],
    sections: Callable[[StoredRun], tuple[str, list[Section]]],
    seeds: Callable[[Mapping], Section],
    released_page: Any,
) -> tuple[list[str], list[Section]]:
    """The sentences and the sections of the page.

    Args:
      runs: one of small models, and at most one of a released encoder.
      conclusions, sections, seeds: of the page of small models, from its summary or its run.
      released_page: a module with `sentences(name, summary)` and `sections(run)`.

    ValueError: other runs.
    """
    released = [run for run in runs if is_released(run)]
    small_models = [run for run in runs if not is_released(run)]
    if not small_models:
        raise ValueError("workdir: the page needs a run of small models, not of an encoder alone")
    small = only(small_models)
    said, more = conclusions(small.summary.own), []
    if released:
        run = only(released)
        said = [*said, *released_page.sentences(name_of(run), run.summary.own["released"])]
        more = released_page.sections(run)
    return said, [*sections(small)[1], *more, seeds(small.summary.own)]


def not_shown(runs: Sequence[StoredRun], of_small: Callable[[Mapping], list[str]]) -> list[str]:
    """Sentences on what the runs cannot show.

    of_small: those on the small models, from the config of their run.
    """
    lines = [line for run in runs if not is_released(run) for line in of_small(run.config)]
    names = [name_of(run) for run in runs if is_released(run)]
    return [*lines, *(f"Other released encoders than {name}." for name in names)]


def is_released(run: StoredRun) -> bool:
    """Whether a run is of a released encoder."""
    return "released" in run.summary.own


def name_of(run: StoredRun) -> str:
    """The name of the folder that the encoder was read from."""
    return run.summary.facts["checkpoint"]["name"]
