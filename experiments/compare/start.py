"""What a training starts from, if not from initial weights: a checkpoint of another run, or a model
of Hugging Face; the fields `start` of the config.

With `start.what` "state" a training goes on: its weights, optimizer and step are those of the
checkpoint, and its batches those of the steps that follow. With "weights" a new training begins:
another task, length, optimizer, or encoding. The folder of the run has start.json: the id, the step
and the hash of the checkpoint.
"""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

import experiments
from experiments import config_checks
from experiments.compare import fields, start_encoding, start_task
from posenc_jax.encoding import Encoding
from posenc_jax.lab import runs
from posenc_jax.lab.config import schema
from posenc_jax.lab.config.errors import inside
from posenc_jax.lab.config.sweeps import dotted
from posenc_jax.lab.hosts import processes
from posenc_jax.lab.hosts.console import say
from posenc_jax.lab.hosts.exit_status import Refused
from posenc_jax.lab.hosts.files import expanded, read_object, write_json
from posenc_jax.lab.runs import source
from posenc_jax.lab.runs.checkpoints import fill, named_leaves
from posenc_jax.lab.runs.source import Source
from posenc_jax.lab.training.loop import from_weights, params_shapes
from posenc_jax.lab.training.step import State
from posenc_jax.options import FieldError

FILE = "start.json"
# Fields that may differ where a training goes on: none of them changes an update, but for the
# steps and the schedule, whose rates are compared. Where no step is left, the task may differ too.
FREE = (
    "checkpoint", "documents", "encoding.name", "eval", "first_seed", "imports", "profile", "seeds",
    "start", "train.accumulate", "train.chunk", "train.fsdp", "train.remat", "train.remat_policy",
    "train.schedule", "train.steps", "train.tensor", "wandb",
)  # fmt: skip


def check(config: schema.TrainedConfig, workdir: Path) -> None:
    """Raises FieldError for a start that cannot be; nothing is asked of a run that has begun."""
    start = config.start
    if not start.run:
        for field in start.model_dump(exclude_defaults=True):
            raise FieldError(("start", field), "has no effect without start.run")
        return
    if (workdir / FILE).is_file():
        return
    folder = folder_of(start)
    if folder.resolve() == workdir.resolve():
        reason = f"{folder} is the folder of this run; give another --workdir"
        raise FieldError("start.run", reason)
    if is_huggingface(folder):
        _check_huggingface(start)
        trained = _trained_as(config, folder)
        for name in config.encoding.names:
            start_encoding.check(config, name, trained, folder)
        return
    before = _stored(folder)
    checkpoints = {name: find(start, name) for name in config.row_names}
    for seed in config.seed_range:
        if seed not in before.seed_range:
            has = f"{before.seed_range.start} to {before.seed_range.stop - 1}"
            raise FieldError("seeds", f"{folder} has no seed {seed}, but {has}")
    if start.what == "state":
        trains = any(config.train.steps != checkpoint.step for checkpoint in checkpoints.values())
        _check_same(config, before, folder, FREE if trains else (*FREE, "task"))
        for name, checkpoint in checkpoints.items():
            _check_goes_on(config, before, name, checkpoint)
    else:
        _check_shapes(config.model, before.model, folder)
        for name in config.encoding.names:
            trained = start_encoding.of_run(before, _method(before, checkpoints[name].stage))
            start_encoding.check(config, name, trained, folder)
    start_task.check_config(config.task, before.task, folder)


def _check_shapes(model: schema.ModelConfig, trained: schema.ModelConfig, folder: Path) -> None:
    """FieldError: the weights of a model are of other shapes than those of a run, by a field."""

    def leaf_shapes(model: schema.ModelConfig) -> dict[str, tuple[int, ...]] | None:
        try:
            leaves = named_leaves(config_checks.shapes(model, Encoding()))
        except (TypeError, ValueError):  # no such model, as heads that kv_heads do not divide
            return None
        return {name: leaf.shape for name, leaf in leaves.items()}

    if model == trained or (ours := leaf_shapes(model)) == leaf_shapes(trained):
        return
    for field in type(model).model_fields:
        here, there = getattr(model, field), getattr(trained, field)
        if here != there and leaf_shapes(model.model_copy(update={field: there})) != ours:
            reason = f"{here!r}, but the weights of {folder} were trained with {there!r}"
            raise FieldError(("model", field), f"{reason}: state the same")


def _method(config: schema.TrainedConfig, stage: str) -> str:
    """The method of a row, from the name of its training: "rope" of the row "rope on time"."""
    (row,) = (name for name in config.row_names if source.stage_name(name) == stage)
    return max((name for name in config.encoding.names if row.startswith(name)), key=len)


def _trained_as(config: schema.TrainedConfig, folder: Path) -> dict[str, Any]:
    """What `start_encoding.check` compares, of a model of Hugging Face."""
    from experiments.pretrained.extensions import trained_length
    from posenc_jax.lab.model.pretrained.tensors import read_json

    encoding = _released(folder, config).encoding
    length = trained_length(read_json(folder / "config.json"))
    return start_encoding.of_released(encoding, length)


def folder_of(start: schema.StartConfig) -> Path:
    """The folder that `start.run` names. FieldError: there is none."""
    try:
        folder = expanded(start.run)
    except Refused as error:
        raise FieldError("start.run", str(error)) from None
    if not folder.is_dir():
        raise FieldError("start.run", f"{folder}: no such folder")
    return folder


def is_huggingface(folder: Path) -> bool:
    """Whether a folder holds a model of Hugging Face, and not a run."""
    return (folder / "config.json").is_file() and any(folder.glob("*.safetensors"))


def _check_huggingface(start: schema.StartConfig) -> None:
    reason = "a model of Hugging Face has weights alone"
    if start.what != "weights":
        raise FieldError("start.what", f"{start.what!r}: {reason}; use 'weights'")
    for field in ("step", "encoding"):
        if getattr(start, field):
            raise FieldError(("start", field), f"{getattr(start, field)!r}: {reason}; leave it out")


def resolved(config: schema.TrainedConfig) -> schema.TrainedConfig:
    """The config with the sizes of the model that it starts from, if that is one of Hugging Face.

    FieldError: a field of `model` that is neither its default nor that of the folder.
    """
    try:
        folder = expanded(config.start.run)
    except Refused:  # `check` says why
        return config
    if not config.start.run or not is_huggingface(folder):
        return config
    what = _released(folder, config)
    default = schema.ModelConfig(kind=what.config.kind)
    for field in type(default).model_fields:
        chosen, wanted = getattr(config.model, field), getattr(what.config, field)
        if chosen not in (wanted, getattr(default, field)):
            raise FieldError(("model", field), f"{chosen!r}; {folder} has {wanted!r}: leave it out")
    return config.model_copy(update={"model": what.config})


def find(start: schema.StartConfig, name: str) -> Source:
    """The checkpoint that the row of this name starts from, verified.

    FieldError: of a field of `start`: there is none. Refused: it is damaged.
    """
    folder = folder_of(start)
    if is_huggingface(folder):
        return _huggingface(folder)
    with inside("start"):
        return source.find(folder, source.find_stage(folder, name, start.encoding), start.step)


def _huggingface(folder: Path) -> Source:
    digest = hashlib.sha256()
    for path in sorted([folder / "config.json", *folder.glob("*.safetensors")]):
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return Source(folder, "", "", 0, digest.hexdigest())


def _stored(folder: Path) -> schema.TrainedConfig:
    """The config of the run in a folder, with the defaults of fields that are newer than it."""
    with inside("start"):
        content, _ = source.stored_config(folder)
        kind = class_of(content, folder, schema.TrainedConfig)
    with inside("start", "run"):
        return schema.check(kind, as_tuples(content))


C = TypeVar("C", bound=schema.TrainedConfig)


def class_of(content: Mapping[str, Any], run: Path, wanted: type[C]) -> type[C]:
    """The `Config` of a stored run's experiment.

    FieldError: of the field `run`: it is not one of the experiments whose class is `wanted`, which
    are those that keep the models of their rows.
    """
    name = content.get("experiment")
    with inside("run"):
        kind = experiments.config_class(name)
    if not issubclass(kind, wanted):
        keep = [n for n in experiments.names() if issubclass(experiments.config_class(n), wanted)]
        reason = f"{name} keeps no models; experiments that do: {', '.join(keep)}"
        raise FieldError("run", f"{run}: {reason}")
    return kind


def as_tuples(value: Any) -> Any:
    """The value with lists as tuples, which configs hold instead."""
    if isinstance(value, Mapping):
        return {name: as_tuples(entry) for name, entry in value.items()}
    return tuple(map(as_tuples, value)) if isinstance(value, list) else value


def _check_same(
    config: schema.TrainedConfig,
    before: schema.TrainedConfig,
    folder: Path,
    free: Sequence[str],
) -> None:
    """FieldError: a field of the training that is not free differs from the run that goes on."""
    ours, theirs = dotted(config.model_dump()), dotted(before.model_dump())
    for field in {**ours, **theirs}:
        if any(f"{field}.".startswith(f"{prefix}.") for prefix in free):
            continue
        if ours.get(field) != theirs.get(field):
            raise FieldError(
                tuple(field.split(".")),
                f"{ours.get(field)!r}, but {folder} was trained with {theirs.get(field)!r}; with "
                "start.what='weights' a new training starts from its weights",
            )


def _check_goes_on(
    config: schema.TrainedConfig, before: schema.TrainedConfig, name: str, checkpoint: Source
) -> None:
    """FieldError: the row's own name differs, its steps end before the checkpoint, or a rate up to
    the checkpoint is not that which it was trained with.
    """
    from posenc_jax.lab.training.optimizers import rates

    if checkpoint.stage != source.stage_name(name):
        reason = f"{name} is not {checkpoint.stage}, whose training would go on"
        raise FieldError("encoding.name", f"{reason}; use start.what='weights'")
    steps, done = config.train.steps, checkpoint.step
    if steps < done:
        raise FieldError("train.steps", f"{steps} is less than the {done} that are done already")
    if steps == done:
        return
    then, now = (rates(one.train, range(done)) for one in (before, config))
    differs = np.flatnonzero(then != now)
    if not differs.size:
        return
    first, was = int(differs[0]), before.train
    over = f"{config.train.schedule.name} over {steps} steps"
    kept = [step for step in source.steps(checkpoint.run, name) if step <= first]
    if kept or first > was.warmup + 1:
        at = f"start.step={kept[-1]}" if kept else "a step kept by checkpoint.at"
        reason = (
            f"{over} has a rate of {now[first]:.3g} at step {first + 1}, where {checkpoint.run} "
            f"was trained with {then[first]:.3g}, so the first {done} steps are not those of a "
            f"longer training; it goes on from step {first} or before, {at}"
        )
    else:
        reason = (
            f"{over} has other rates right after the warm-up than {was.schedule.name} over "
            f"{was.steps}, which {checkpoint.run} was trained with, so that never goes on; "
            "constant does, and wsd up to its fall"
        )
    again = "with start.what='weights' a new training starts from its weights"
    raise FieldError(("train", "schedule"), f"{reason}; {again}")


def only_evaluates(config: schema.TrainedConfig, name: str, run: runs.Run) -> bool:
    """Whether the training that a row goes on with has all its steps already.

    A run that has begun does not ask for its source, which it may no longer need.
    """
    start = config.start
    if not start.run or start.what != "state":
        return False
    entry = _entries(run).get(name)
    step = entry["step"] if entry else find(start, name).step
    return step == config.train.steps


def trained_params(config: schema.TrainedConfig, row: Any, run: runs.Run) -> Any:
    """The weights of a row whose training is not continued, leaves [S, ...]."""
    checkpoint = _recorded(config, row, run)
    leaves = _weights(config, checkpoint)
    shapes = params_shapes(row.model, config.seeds, config.train.fsdp)
    start_task.check_symbols(config, shapes, leaves, checkpoint)
    return fill(shapes, leaves)


def begin(config: schema.TrainedConfig, row: Any, run: runs.Run, fresh: State) -> State:
    """The state that the training of a row starts from.

    fresh: the initial state, which is replaced in whole or in part.

    Refused: an array that does not fit the model, by name.
    """
    if not config.start.run:
        return fresh
    checkpoint = _recorded(config, row, run)
    say(f"{row.name}: starts from {checkpoint.described()}")
    if config.start.what == "state":
        if source.seeds(checkpoint) == [*config.seed_range]:
            return source.restore(checkpoint, fresh)
        return fill(fresh, _of_seeds(config, checkpoint, source.read_state(checkpoint)))
    if changed := _changed_encoding(config, row, checkpoint):
        say(f"{row.name}: {changed}")
    leaves = _weights(config, checkpoint)
    start_task.check_symbols(config, fresh.params, leaves, checkpoint)
    params = fill(fresh.params, _fitting(row.name, fresh.params, leaves))
    return from_weights(config.train, fresh, params)


def _changed_encoding(config: schema.TrainedConfig, row: Any, checkpoint: Source) -> str:
    """How the encoding differs from that of the source, for one line; "" if it does not."""
    if checkpoint.stage:
        before = _stored(checkpoint.run)
        method = _method(config, source.stage_name(row.name))
        here = fields.options_of(config, method)
        there = fields.options_of(before, _method(before, checkpoint.stage))
        words = f"options of the encoding are {here}, of the source {there}"
        return "" if here == there else words
    there = _released(checkpoint.run, config).encoding
    words = f"the encoding is {row.encoding!r}, of the source {there!r}"
    return "" if row.encoding == there else words


def _released(folder: Path, config: schema.TrainedConfig) -> Any:
    """What the config.json of a model of Hugging Face describes."""
    from posenc_jax.lab.model.pretrained import released
    from posenc_jax.lab.model.pretrained.tensors import read_json

    with inside("start", "run"):
        return released(read_json(folder / "config.json"), config.model.dtype)


def _recorded(config: schema.TrainedConfig, row: Any, run: runs.Run) -> Source:
    """The checkpoint that a row starts from, which start.json names from then on.

    Refused: an earlier start of this run began from another one, or the ids of the task do not mean
    what they meant to the weights.
    """
    name = row.name
    checkpoint = find(config.start, name)
    goes_on = config.start.what == "state"
    start_task.check_ids(config.task.name, row.task, checkpoint, labels=goes_on)
    if goes_on:
        start_task.check_data(config, row.task, checkpoint)
    path, entries = run.path / FILE, _entries(run)
    before = entries.get(name, {}).get("sha256", checkpoint.sha256)
    if processes.from_first(before != checkpoint.sha256):
        reason = f"{name} started from {before}, not {checkpoint.sha256}; bring that back"
        raise Refused(f"workdir: {path}: {reason}, or choose another folder")
    entry = {**checkpoint._asdict(), "run": str(checkpoint.run.resolve())}
    if checkpoint.stage:
        entry["steps"] = _stored(checkpoint.run).train.steps
    entries[name] = {"what": config.start.what, **entry}
    if processes.is_first():
        write_json(path, entries)
    run.fact(start=entries)
    return checkpoint


def _entries(run: runs.Run) -> dict[str, Any]:
    """What start.json has of each row."""
    path = run.path / FILE
    return read_object(path) if path.is_file() else {}


def _weights(config: schema.TrainedConfig, checkpoint: Source) -> Mapping[str, np.ndarray]:
    """The weights of a checkpoint by their names in the model, [S, ...]."""
    if not checkpoint.stage:
        from posenc_jax.lab.model import pretrained

        params = pretrained.load(checkpoint.run).params
        for_all = lambda leaf: np.broadcast_to(leaf, (config.seeds, *leaf.shape))
        return {name: for_all(leaf) for name, leaf in named_leaves(params).items()}
    return _of_seeds(config, checkpoint, source.read_weights(checkpoint))


def _of_seeds(
    config: schema.TrainedConfig, checkpoint: Source, leaves: Mapping[str, np.ndarray]
) -> Mapping[str, np.ndarray]:
    """The arrays [S, ...] of the config's seeds, which are among the trained ones.

    Refused: the checkpoint lacks one.
    """
    trained = source.seeds(checkpoint)
    for seed in config.seed_range:
        if seed not in trained:
            raise Refused(f"{checkpoint.described()}: no seed {seed}; it has {trained}")
    rows = [trained.index(seed) for seed in config.seed_range]
    return {name: leaf[rows] for name, leaf in leaves.items()}


def _fitting(row: str, params: Any, leaves: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
    """The arrays for a model whose encoding may be another one. What the encoding learns is taken
    where it has the same name and shape, else drawn anew; a printed line says so.
    """
    wanted = named_leaves(params)
    of_encoding = lambda name: "['encoding']" in name
    form = lambda tree, name: (tree[name].shape, tree[name].dtype) if name in tree else None
    drawn = [
        name
        for name, leaf in wanted.items()
        if of_encoding(name) and leaf.size and form(leaves, name) != form(wanted, name)
    ]
    unused = [name for name in leaves if of_encoding(name) and name not in wanted]
    said = [f"{', '.join(drawn)} drawn anew"] if drawn else []
    said += [f"{', '.join(unused)} of the source not used"] if unused else []
    if said:
        say(f"{row}: {'; '.join(said)}")
    kept = {name: leaf for name, leaf in leaves.items() if name not in unused}
    return kept | {name: np.asarray(processes.fetch(wanted[name])) for name in drawn}
