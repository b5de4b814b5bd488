"""Whether a task is that which weights were trained on: the number of its symbols, its tokenizer,
its labels and its data.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from posenc_jax.lab import tasks
from posenc_jax.lab.config import schema
from posenc_jax.lab.hosts.console import say
from posenc_jax.lab.hosts.exit_status import Refused
from posenc_jax.lab.hosts.files import expanded
from posenc_jax.lab.runs import source
from posenc_jax.lab.runs.checkpoints import named_leaves
from posenc_jax.lab.runs.source import Source
from posenc_jax.lab.tasks import Task
from posenc_jax.lab.tasks.tokens import tokenizer
from posenc_jax.lab.tasks.tokens.shards import sha256_of
from posenc_jax.lab.tasks.tokens.task import EMBEDDED
from posenc_jax.options import FieldError


def check_config(task: schema.TaskConfig, trained: schema.TaskConfig, run: Path) -> None:
    """FieldError: a task has other symbols than that of a run, by their number, as far as it is
    known before data is read.
    """
    here, there = _symbols(task), _symbols(trained)
    if here is not None and there is not None and here != there:
        raise FieldError("task.name", _other_symbols(task.name, run, here, there))


def check_symbols(
    config: schema.TrainedConfig,
    params: Any,
    leaves: Mapping[str, np.ndarray],
    checkpoint: Source,
) -> None:
    """Refused: the task has other symbols than the weights were trained on, by their number."""
    count = lambda leaf: leaf.shape[1] if leaf is not None and leaf.ndim == 3 else None
    here, there = (count(tree.get("['embed']")) for tree in (named_leaves(params), leaves))
    if here and there and here != there:
        reason = _other_symbols(config.task.name, checkpoint.run, here, there)
        raise Refused(f"config.task.name: {reason}")


def check_ids(name: str, task: Task, checkpoint: Source, labels: bool = True) -> None:
    """Refused: the ids of the task are those of another tokenizer than the weights were trained
    with, or stand for other labels.

    name: of the task in the config.
    labels: whether labels are compared, which a new training may learn anew.
    """
    here, there = task.facts, _facts(checkpoint)
    field = f"config.task.name: {name!r}"
    ours, theirs = (facts.get("tokenizer_sha256", "") for facts in (here, there))
    if ours and theirs and ours != theirs:
        raise Refused(
            f"{field} has the tokenizer {ours[:8]}; the weights of {checkpoint.run} were trained "
            f"with {theirs[:8]}: prepare its text with --tokenizer={_tokenizer(checkpoint, there)}"
        )
    ours, theirs = (facts.get("labels", []) for facts in (here, there))
    if labels and ours and theirs and ours != theirs:
        raise Refused(
            f"{field} has the labels {', '.join(ours)}; the weights of {checkpoint.run} were "
            f"trained with {', '.join(theirs)}: use a task of these"
        )


def check_data(config: schema.TrainedConfig, task: Task, checkpoint: Source) -> None:
    """Says in a line that the data of a task are not those that the weights were trained on, if the
    task has the same name. Refused: and the training would go on with them.
    """
    content, _ = source.stored_config(checkpoint.run)
    hashes = [facts.get("sha256", "") for facts in (task.facts, _facts(checkpoint))]
    if content["task"]["name"] != config.task.name or hashes[0] == hashes[1] or not all(hashes):
        return
    here, there = (sha256[:8] for sha256 in hashes)
    differ = (
        f"{config.task.name!r} holds other data (SHA-256 {here}) than {checkpoint.run} was trained "
        f"on ({there})"
    )
    if config.train.steps != checkpoint.step:
        reason = "bring those back, or start from the weights by start.what='weights'"
        raise Refused(f"config.task.name: {differ}: {reason}")
    say(differ)


def _facts(checkpoint: Source) -> Mapping[str, Any]:
    """What is known of the task that weights were trained on, as in `Task.facts`."""
    if checkpoint.stage:
        return source.facts(checkpoint).get("task", {})
    path = checkpoint.run / tokenizer.FILE
    return {"tokenizer_sha256": sha256_of(path)} if path.is_file() else {}


def _tokenizer(checkpoint: Source, facts: Mapping[str, Any]) -> str:
    """The path of the tokenizer in the facts of a task, or words if it is not there any more."""
    prepared = expanded(str(facts.get("options", {}).get("path", "")))
    folders = checkpoint.run / tokenizer.FILE, prepared / tokenizer.FILE, EMBEDDED
    for path in folders:
        if path.is_file() and sha256_of(path) == facts["tokenizer_sha256"]:
            return str(path)
    return f"the tokenizer.json whose SHA-256 begins with {facts['tokenizer_sha256'][:8]}"


def _symbols(task: schema.TaskConfig) -> int | None:
    """The number of a task's symbols; None: it is known when the data is read, or there are
    vectors in their place.
    """
    try:
        built = tasks.check(task.name, reads=tasks.input_of(task.name), **task.options)
    except FieldError:  # the data of an earlier run may be gone
        return None
    return built.vocab if isinstance(built, tasks.Task) and built.features is None else None


def _other_symbols(name: str, run: Path, here: int, there: int) -> str:
    return f"{name!r} has {here} symbols; the weights of {run} know {there}: use a task of as many"
