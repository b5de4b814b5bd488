"""The checkpoints of a stored run, from which another run starts, or whose weights are read."""

import hashlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from posenc_jax.lab.hosts.exit_status import Refused
from posenc_jax.lab.hosts.files import folder_name, read_object
from posenc_jax.lab.runs.checkpoints import ITEMS, MANIFEST, OTHERS, Checkpoints, verify
from posenc_jax.lab.runs.journal import read_progress
from posenc_jax.options import FieldError, choices_for

CHECKPOINTS = "checkpoints"  # the folder of a run that has a folder of each stage


class Source(NamedTuple):
    """One checkpoint of a run, or of another program's model, whose `stage` and `step` are empty.

    run:    the folder.
    id:     of the run, as in its progress.json.
    stage:  the training that wrote the checkpoint.
    step:   training steps.
    sha256: of the list of the hashes of all its files.
    """

    run: Path
    id: str
    stage: str
    step: int
    sha256: str

    def described(self) -> str:
        """Where it is, for one line to the user."""
        return f"{self.run}, {self.stage} at step {self.step}" if self.stage else str(self.run)


def stage_name(stage: str) -> str:
    """The name of the folder of a stage's checkpoints. Refused: it cannot be a folder's."""
    return folder_name(stage.replace(" ", "_"))


def stage_folder(run: Path, stage: str) -> Path:
    """The folder of the checkpoints of a stage. Refused: as `stage_name`."""
    return run / CHECKPOINTS / stage_name(stage)


def stages(run: Path) -> list[str]:
    """The folders of the trainings that have a complete checkpoint, by name."""
    folders = sorted((run / CHECKPOINTS).glob("*"))
    return [folder.name for folder in folders if _steps(folder)]


def steps(run: Path, stage: str) -> list[int]:
    """The steps of the complete checkpoints of a stage, ascending."""
    return _steps(stage_folder(run, stage))


def _steps(folder: Path) -> list[int]:
    return sorted(
        int(path.parent.name)
        for path in folder.glob(f"*/{MANIFEST}")
        if path.parent.name.isdecimal()
    )


def stored_config(run: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The config of a run that may not be finished, and the environment of its first start.

    FieldError: of the field `run`: the folder holds no run.
    """
    try:
        config = read_object(run / "config.json")
        environment = config.pop("environment")
    except OSError as error:
        raise FieldError("run", f"{run / 'config.json'}: {error.strerror}") from None
    except KeyError:
        raise FieldError("run", f"{run} holds no run of ours") from None
    except ValueError as error:
        raise FieldError("run", str(error)) from None
    if not isinstance(environment, dict):
        raise FieldError("run", f"{run} holds no run of ours")
    return config, environment


def find(run: Path, stage: str, step: int | None = None) -> Source:
    """The checkpoint of a stage after `step` steps, by default the last.

    Raises:
      FieldError: of the field `run`: there is none; of the field `step`: not one of this step.
      Refused: it is damaged.
    """
    complete = steps(run, stage)
    if not complete:
        raise FieldError("run", f"{run} has no complete checkpoint of {stage}")
    if step is not None and step not in complete:
        choices = ", ".join(map(str, complete))
        raise FieldError(
            "step", f"{step}: {run} has no such checkpoint of {stage}; choices: {choices}"
        )
    step = complete[-1] if step is None else step
    folder = stage_folder(run, stage) / str(step)
    try:
        verify(folder)
        id = read_progress(run / "progress.json").get("id", "")
        sha256 = hashlib.sha256((folder / MANIFEST).read_bytes()).hexdigest()
    except (OSError, ValueError) as error:
        raise Refused(f"{folder}: not used: {error}") from None
    return Source(run, id, stage, step, sha256)


def find_stage(run: Path, stage: str, trained: str = "") -> str:
    """The training of a run that another training of this name starts from: `trained` if it is
    given, else the one of the same name, else the only one.

    FieldError: of the field `encoding`: there is none, or there are several.
    """
    has = stages(run)
    wanted = stage_name(trained or stage)
    if wanted in has:
        return wanted
    if not has:
        raise FieldError("run", f"{run} has no complete checkpoint")
    if trained or len(has) > 1:
        raise FieldError("encoding", f"{run} did not train {wanted!r}{choices_for(wanted, has)}")
    return has[0]


def seeds(source: Source) -> list[int]:
    """The seeds of a training's checkpoint."""
    return _checkpoints(source).read(source.step, [OTHERS]).leaves[".seed"].tolist()


def facts(source: Source) -> dict[str, Any]:
    """The facts that the run of a checkpoint has noted so far, see `Run.fact`."""
    return read_progress(source.run / "progress.json").get("facts", {})


def restore(source: Source, like: Any) -> Any:
    """The state of a training as `like` has it; see `Checkpoints.restore`."""
    return _checkpoints(source).restore(source.step, like)


def read_state(source: Source) -> dict[str, np.ndarray]:
    """The arrays of a training by name, [S, ...]; see `checkpoints.named_leaves`."""
    return _checkpoints(source).read(source.step).leaves


def read_weights(source: Source) -> dict[str, np.ndarray]:
    """The weights by their names in the model, [S, ...]: their average, if the training averaged
    them.
    """
    for item in ("average", "weights"):
        if leaves := _checkpoints(source).read(source.step, [item]).leaves:
            return {name.removeprefix(ITEMS[item]): leaf for name, leaf in leaves.items()}
    raise Refused(f"{source.described()}: it holds no weights")


def _checkpoints(source: Source) -> Checkpoints:
    return Checkpoints(stage_folder(source.run, source.stage))
