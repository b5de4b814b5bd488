"""Loads the models of stored runs, and evaluates their weights again."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import jax

import experiments
from experiments.compare import start_task
from experiments.compare.comparison import Row
from experiments.compare.fields import Config
from experiments.compare.start import as_tuples, class_of
from posenc_jax.encoding import Encoding
from posenc_jax.lab import runs, tasks
from posenc_jax.lab.hosts.console import say
from posenc_jax.lab.hosts.exit_status import Refused
from posenc_jax.lab.hosts.files import as_folder_name, expanded, folder_name
from posenc_jax.lab.model.transformer import Encodings, Model
from posenc_jax.lab.runs import source
from posenc_jax.lab.runs.checkpoints import fill
from posenc_jax.options import FieldError, choices_for, typed

EVALUATIONS = "evaluations"  # the folder in a run's folder


class Loaded(NamedTuple):
    """A trained model: `model.apply(params, tokens_BT, layout)` gives its logits, and
    `model.attention(params, tokens_BT, layout)` the weights of each layer, [B, H, Q, K].

    params:   the weights of one seed; their average, if the training averaged them.
    encoding: of an encoder-decoder its `Encodings`.
    config:   of the run.
    step:     training steps of these weights.
    """

    model: Model
    params: Any
    encoding: Encoding | Encodings
    task: tasks.Task
    config: Config
    seed: int
    step: int


def load(
    run: str | Path, encoding: str = "", seed: int | None = None, step: int | None = None
) -> Loaded:
    """The model of one encoding and seed of a run that compares encodings.

    The run need not be finished. Its folder is only read.

    Args:
      run: its folder.
      encoding: the name of a trained row; "": the only one.
      seed: by default the first.
      step: of a checkpoint; by default the last.

    Raises:
      FieldError: an argument of another type, or that the run does not have, with the choices.
      Refused: a checkpoint that is damaged, or of other shapes than the model of this code has; the
        task's tokenizer or labels are not those of the training.

    Example:
      trained = load("runs/rope_extrap", "rope")
      logits_BTV = trained.model.apply(trained.params, tokens_BT, posenc_jax.full(1, 64))
    """
    path, encoding = _folder(run), typed("encoding", str, encoding)
    seed, step = (typed(n, int | None, v) for n, v in (("seed", seed), ("step", step)))
    config = read_config(path)
    row = _row(path, config, encoding)
    checkpoint = source.find(path, row.name, step)
    if step is None:
        _say_unfinished(config, checkpoint.described(), checkpoint.step)
    start_task.check_ids(config.task.name, row.task, checkpoint)
    trained, leaves = source.seeds(checkpoint), source.read_weights(checkpoint)
    seed = trained[0] if seed is None else seed
    if seed not in trained:
        raise FieldError("seed", f"{seed}: {path} has the seeds {', '.join(map(str, trained))}")
    of_seed = {name: leaf[trained.index(seed)] for name, leaf in leaves.items()}
    params = fill(jax.eval_shape(row.model.init, jax.random.key(0)), of_seed)
    return Loaded(row.model, params, row.encoding, row.task, config, seed, checkpoint.step)


def _folder(run: Any) -> Path:
    """The path of a run's folder. FieldError: it is no path."""
    try:
        return expanded(str(typed("run", str | Path, run)))
    except Refused as error:
        raise FieldError("run", str(error)) from None


def _several(field: str, kind: type, values: Any) -> tuple[Any, ...]:
    """The values of an argument; one that is no sequence stands for itself. FieldError: one is of
    another type.
    """
    alone = isinstance(values, str) or not isinstance(values, Iterable)
    return typed(field, tuple[kind, ...], (values,) if alone else tuple(values))


def read_config(run: Path) -> Config:
    """The config of a stored run, whose own modules are imported first.

    FieldError: the folder holds no run, or one of an experiment that is no comparison.
    """
    content, environment = source.stored_config(run)
    class_of(content, run, Config)
    experiments.load_modules(run, content, environment)
    config = experiments.check(as_tuples(content))
    assert isinstance(config, Config)
    return config


def _rows(config: Config) -> list[Row]:
    module = experiments.module(config.experiment, "run")
    return [*module.rows(config, module.make_task(config))]


def _row(run: Path, config: Config, name: str) -> Row:
    rows = {row.name: row for row in _rows(config)}
    if not name and len(rows) == 1:
        return next(iter(rows.values()))
    if name not in rows:
        reason = f"{run} trains {', '.join(rows)}; name one" if not name else ""
        raise FieldError("encoding", reason or f"no row {name!r} in {run}{choices_for(name, rows)}")
    return rows[name]


def evaluate(
    run: str | Path,
    lengths: int | Sequence[int] = (),
    encodings: str | Sequence[str] = (),
    *,
    encoding: str = "",
    step: int | None = None,
    task: Mapping[str, Any] = MappingProxyType({}),
    name: str = "",
) -> runs.StoredRun:
    """Evaluates stored weights at other lengths, under other encodings, or on another task; returns
    the evaluation.

    It is a run of its own in RUN/evaluations/NAME, which takes no training step; nothing else in
    RUN is written. A second call with the same arguments says that it is finished, and reads it.

    Args:
      run: the folder of a run that compares encodings; it need not be finished.
      lengths: that or those to evaluate at; (): those of the run.
      encodings: that or those to evaluate under, as `eval.variants`; (): the trained one.
      encoding: the trained encoding; "": every one that has a checkpoint.
      step: of the checkpoints; by default the last.
      task: fields of the task that differ from the run's: {"test": "recall"}, or another text by
        {"name": "file:PATH"}, whose options are those given here, else their defaults.
      name: of the folder; by default made from the arguments.

    Raises:
      FieldError: an argument of another type, or that the run does not have, or a field of its
        config that the experiment refuses.
      Refused: the folder holds another evaluation, or a checkpoint is damaged.
    """
    config, workdir = evaluation(
        run, lengths, encodings, encoding=encoding, step=step, task=task, name=name
    )
    experiments.prepare(config, str(workdir))()
    return runs.read(workdir)


def evaluation(
    run: str | Path,
    lengths: int | Sequence[int] = (),
    encodings: str | Sequence[str] = (),
    *,
    encoding: str = "",
    step: int | None = None,
    task: Mapping[str, Any] = MappingProxyType({}),
    name: str = "",
) -> tuple[dict[str, Any], Path]:
    """The config of an evaluation, and its folder; arguments as of `evaluate`."""
    run, step, task = _folder(run), typed("step", int | None, step), typed("task", Mapping, task)
    encoding, name = (typed(n, str, v) for n, v in (("encoding", encoding), ("name", name)))
    lengths, encodings = _several("lengths", int, lengths), _several("encodings", str, encodings)
    before = read_config(run)
    trained = {name: _steps(run, before, name) for name in before.encoding.names}
    if encoding and encoding not in trained:
        raise FieldError(
            "encoding", f"{run} did not train {encoding!r}{choices_for(encoding, trained)}"
        )
    every = sorted({n for name, steps in trained.items() for n in steps if encoding in ("", name)})
    if not every:
        of_encoding = f" of {encoding}" if encoding else ""
        raise FieldError("run", f"{run} has no complete checkpoint{of_encoding}")
    if step not in (None, *every):
        choices = ", ".join(map(str, every))
        raise FieldError("step", f"{step}: {run} has no such checkpoint; choices: {choices}")
    done = every[-1] if step is None else step
    chosen = [n for n, steps in trained.items() if done in steps and encoding in ("", n)]
    if encodings and len(chosen) > 1:
        reason = f"{run} trained {', '.join(chosen)}; choose whose weights {encodings[0]} reads"
        raise FieldError("encoding", reason)
    if left := [n for n in trained if n not in chosen and not encoding and not encodings]:
        say(f"{run}: no checkpoint at step {done} of {', '.join(left)}, left out")
    if step is None and _say_unfinished(before, f"{run}, {', '.join(chosen)} at step {done}", done):
        step = done  # the finished run can be evaluated beside it
    parts = [encoding, f"step{step}" if step else "", *map(str, task.values())]
    parts += [*map(str, lengths), *encodings]
    default = as_folder_name("-".join(filter(None, parts))) or "again"
    workdir = run / EVALUATIONS / folder_name(name or default)
    config = before.model_dump()
    config["encoding"]["name"] = ",".join(chosen)
    config["eval"] |= {"lengths": lengths} if lengths else {}
    config["eval"] |= {"variants": encodings} if encodings else {}
    if task.get("name", before.task.name) != before.task.name:
        config["task"] = {}
    config["task"] |= task
    config["train"]["steps"] = done
    config["start"] = {"run": _path_in(workdir, run), "what": "state", "step": done}
    config["wandb"]["mode"] = "disabled"
    config["checkpoint"] = {}
    config["profile"] = False
    return config, workdir


def _steps(run: Path, config: Config, encoding: str) -> list[int]:
    """The steps that every row of an encoding has a complete checkpoint of, ascending."""
    alone = config.encoding.model_copy(update={"name": encoding})
    rows = config.model_copy(update={"encoding": alone}).row_names
    return sorted(set.intersection(*({*source.steps(run, row)} for row in rows)))


def _say_unfinished(config: Config, checkpoint: str, step: int) -> bool:
    """Prints that weights are those of a training that has not ended; returns whether they are."""
    steps = config.train.steps
    if step < steps:
        say(f"{checkpoint} of {steps}: the training has not ended")
    return step < steps


def _path_in(workdir: Path, run: Path) -> str:
    """The path of the run, as an evaluation names it that was begun before the run was moved."""
    if (workdir / "config.json").is_file():
        return source.stored_config(workdir)[0].get("start", {}).get("run", "")
    return str(run.resolve())
