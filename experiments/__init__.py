"""The experiments, in rooms. An experiment is a package, and its name is that of the experiment.

    compare     encodings are trained, and the same weights evaluated under several conditions
    board       many methods, tasks, learning rates and seeds; orderings that papers published
    invariance  what does not change a model's output: the order of its tokens, padding
    claims      statements about positional encodings, each with its rule
    pretrained  released models under extensions of their context

A room of several experiments has a package for each. An experiment has the modules

    config.py  `Config`, the fields; `check(config)`, which refuses what cannot run, or in a module
               `checks.py`, if it needs what a config does not
    run.py     `measure(config, run)`, which writes records to a `runs.Run` and returns a `Summary`,
               or what is in its `own`
    page.py    `sections(stored_run)`, if the report is not a table by length; if it has a page in
               docs/, `document(stored_runs)`, its sentences and sections, and
               `page_name(stored_runs)`, if it is not that of the experiment;
               `not_shown(stored_runs)`, sentences on what its runs cannot show, besides those that
               `limits` makes from their configs

and takes those it does not have from its room. A summary that is `incomplete` ends the run with
status 1, after its report is written. The module `run` is imported when the experiment runs, and
`page`, which loads Matplotlib, for the report.
"""

import contextlib
import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pydantic

from posenc_jax.lab.config import imports, schema
from posenc_jax.lab.config.errors import inside
from posenc_jax.lab.config.sweeps import dotted
from posenc_jax.lab.hosts import processes
from posenc_jax.lab.hosts.console import say
from posenc_jax.lab.hosts.exit_status import Refused, Unmeasured
from posenc_jax.options import FieldError, choices_for

if TYPE_CHECKING:
    from posenc_jax.lab.report import Section
    from posenc_jax.lab.runs import StoredRun


def names() -> list[str]:
    """The names of all experiments."""
    return sorted(_folders())


@cache
def _folders() -> dict[str, Path]:
    """The folder of each experiment by its name."""
    return {path.parent.name: path.parent for path in Path(__file__).parent.rglob("config.py")}


def config_class(name: Any) -> type[schema.ExperimentConfig]:
    """The `Config` of an experiment. FieldError: no such experiment."""
    return module(name, "config").Config


def check(config: dict[str, Any]) -> schema.ExperimentConfig:
    """The config as its experiment's `Config`, with all defaults.

    Raises:
      FieldError: the first field that is wrong, its value and the choices.
    """
    with inside("config"):
        name = config.get("experiment")
        checked = schema.check(config_class(name), config)
        imports.load(checked.imports)
        _check_trainings(checked)
        if isinstance(checked, schema.TrainedConfig):
            _check_kept_steps(checked)
        if start := _start(checked):
            checked = start.resolved(checked)
        (module(name, "checks") or module(name, "config")).check(checked)
    return checked


def _check_trainings(config: schema.ExperimentConfig) -> None:
    """FieldError: a training's optimizer or schedule, or one of their options, does not exist, or
    its weights are averaged over more steps than it has.
    """
    for path, training in _trainings(config):
        with inside(*path):
            average = getattr(training, "average", 0)
            if average > training.steps and not _is_evaluation(config):
                reason = f"{average} is more than the {training.steps} steps of the training"
                raise FieldError("average", f"{reason}: most of it would be initial weights")
            if {"optimizer", "schedule"} & training.model_dump(exclude_defaults=True).keys():
                # Optax takes as long to load as all else of a config; the defaults exist.
                from posenc_jax.lab.training import optimizers

                optimizers.check(training)


def _trainings(part: pydantic.BaseModel, *path: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yields the parts of a config that have steps, each with its path."""
    for name in type(part).model_fields:
        if isinstance(value := getattr(part, name), schema.Part):
            if "steps" in type(value).model_fields:
                yield (*path, name), value
            yield from _trainings(value, *path, name)


def _is_evaluation(config: schema.ExperimentConfig) -> bool:
    return isinstance(config, schema.TrainedConfig) and config.is_evaluation


def _say_unfinished_warmups(config: schema.ExperimentConfig) -> None:
    """Prints a line for each training that ends in its warm-up."""
    for path, training in () if _is_evaluation(config) else _trainings(config):
        if 0 < training.steps <= (warmup := getattr(training, "warmup", 0)):
            field = ".".join(("config", *path, "warmup"))
            say(f"{field}: {warmup}, and {training.steps} steps in all, so the learning rate never "
                "reaches its largest value")  # fmt: skip


def prepare(config: dict[str, Any], workdir: str) -> Callable[[], None]:
    """A function that starts or resumes the run; for a finished run, one that says so.

    Raises:
      ValueError: a field that is wrong, see `check`, or a folder that cannot hold this run.
    """
    checked = check(config)
    if processes.is_multiprocess() and not checked.several_processes:
        can = ", ".join(name for name in names() if config_class(name).several_processes)
        reason = f"{checked.experiment} runs as one process; those that run as several: {can}"
        raise FieldError("config.experiment", reason)

    from posenc_jax.lab import runs

    # The folder of an evaluation is chosen by the name of `evaluate`.
    flag = "--name" if _is_evaluation(checked) else "--workdir"
    if runs.run_status(workdir, checked.model_dump(), _defaults(checked), flag) == "finished":
        return partial(_say_finished, checked, workdir)
    if start := _start(checked):
        with inside("config"):
            start.check(checked, Path(workdir))
    return partial(_run, checked, workdir)


def _check_kept_steps(config: schema.TrainedConfig) -> None:
    """FieldError: a checkpoint is to be kept at a step where none can be made."""
    steps, chunk = config.train.steps, config.train.chunk
    for step in config.checkpoint.at:
        if step > steps or (step % chunk and step != steps):
            reason = f"{step} is not the end of a chunk: multiples of train.chunk {chunk}, up to"
            raise FieldError("checkpoint.at", f"{reason} train.steps {steps}")


def _start(config: schema.ExperimentConfig) -> Any:
    """The module of the experiment's room that starts from another run; None if nothing says so."""
    said = isinstance(config, schema.TrainedConfig) and config.start != schema.StartConfig()
    return module(config.experiment, "start") if said else None


def _defaults(config: schema.ExperimentConfig) -> set[str]:
    """The dotted fields that have their defaults: a run that is older than one of them had it."""
    return {*dotted(config.model_dump())} - {*dotted(config.model_dump(exclude_defaults=True))}


def _run(config: schema.ExperimentConfig, workdir: str) -> None:
    """Measures into the folder, then writes the summary and the report.

    Raises:
      Refused: a field is found wrong when the data is read, such as a text that is too small.
      Unmeasured: the summary is incomplete.
    """
    from posenc_jax.lab import runs
    from posenc_jax.lab.hosts import devices

    measure = module(config.experiment, "run").measure
    try:
        identity = config.model_dump(), config.wandb.model_dump(), _defaults(config)
        train = getattr(config, "train", None)
        with (
            devices.tensor_parallel(getattr(train, "tensor", 1)),
            runs.Run(workdir, *identity) as run,
        ):
            say(_header(config, workdir))
            _say_unfinished_warmups(config)
            summary = run.finish(measure(config, run))
            if run.is_writer:
                show(workdir)
    except FieldError as error:
        if error.path[0] not in type(config).model_fields:  # a bug of a caller
            raise
        raise Refused(str(error.inside("config"))) from None
    if summary.incomplete:
        raise Unmeasured(summary.incomplete)


def _header(config: schema.ExperimentConfig, workdir: str) -> str:
    """What runs where: the experiment, its seeds, the machine, the folder."""
    from posenc_jax.lab.runs.environment import environment

    machine = environment()
    count = f"{config.seeds} seed{'s' * (config.seeds > 1)}"
    devices = f"{machine['devices']} x {machine['device']}"
    cores = f"{machine['cpus']} core{'s' * (machine['cpus'] > 1)}"
    return f"{config.experiment}: {count} on {devices}, {cores}; folder {workdir}"


def _say_finished(config: schema.ExperimentConfig, workdir: str) -> None:
    """Prints that the run is finished; writes the report and sends it to W&B if that is missing."""
    from posenc_jax.lab import runs

    say(f"{workdir}: finished already; nothing to do")
    page = Path(workdir) / "report.html"
    if page.exists():
        say(f"report: {page}")
    elif processes.is_first():
        show(workdir)
    with contextlib.suppress(Refused):  # another process has the run open and will send it
        runs.send_report(workdir, config.model_dump(), config.wandb.model_dump())


def show(workdir: str, reference: str = "") -> None:
    """Writes and prints the report of a finished run: the experiment's own, or a table by length.

    reference: the encoding that others are compared with; "": the first.

    Raises:
      ValueError: the folder holds no finished run, or none of the reference.
    """
    from posenc_jax.lab import report, runs

    run = runs.read(workdir)
    load_modules(run.path, run.config, run.environment)
    name = run.config.get("experiment", "")
    page = module(name, "page") if name in names() else None
    report.show(workdir, getattr(page, "sections", None), reference=reference)


def load_modules(
    run: Path | str, config: Mapping[str, Any], environment: Mapping[str, Any]
) -> None:
    """Imports the modules that a stored run's config names, and prints which have changed since.

    FieldError: one is missing or fails.
    """
    with inside("config"):
        changed = imports.load_recorded(environment, config.get("imports", ()))
    if changed:
        say(f"{run}: {changed} changed since the run")


def document(finished: Sequence["StoredRun"]) -> tuple[str, list[str], list["Section"]]:
    """The name of the page of finished runs, and its sentences and sections.

    Raises:
      ValueError: runs of several experiments, of one that has no page, or that make no page.
    """
    name, *others = sorted({str(run.config.get("experiment")) for run in finished})
    if others:
        raise ValueError(f"workdir: runs of several experiments: {name}, {', '.join(others)}")
    page: Any = module(name, "page") if name in names() else None
    if not hasattr(page, "document"):
        have = [n for n in names() if hasattr(module(n, "page"), "document")]
        raise ValueError(f"workdir: {name} has no page in docs/{choices_for(name, have)}")
    from experiments import limits

    said, sections = page.document(finished)
    others = page.not_shown(finished) if hasattr(page, "not_shown") else []
    sections = limits.with_section(sections, finished, others)
    return page.page_name(finished) if hasattr(page, "page_name") else name, said, sections


def module(name: Any, part: str) -> Any:
    """The module `part` of an experiment, or of its room; None if neither has it.

    FieldError: no such experiment.
    """
    if name not in names():
        raise FieldError("experiment", f"no experiment {name!r}{choices_for(str(name), names())}")
    root, innermost = Path(__file__).parent, _folders()[name]
    for folder in (innermost, innermost.parent):
        if folder != root and (folder / f"{part}.py").is_file():
            inside_root = folder.relative_to(root).parts
            return importlib.import_module(".".join(["experiments", *inside_root, part]))
    return None
