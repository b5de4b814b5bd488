"""Runs one experiment: `python train.py --config=configs/rope_extrap.py [--workdir=DIR]`.

Any field can be set from the command line: --config.train.steps=200 --config.encoding.base=5e5
Started again on the folder of a run that was ended in any way, it goes on from there. Exit status:
0 finished; 2 wrong input, in one line, and nothing was compiled; 75 interrupted by SIGTERM
or SIGINT, start it again; 1 it cannot go on, in one line.
"""

import datetime
import os
import pathlib
import re
import runpy
import sys
from typing import Any, cast

from absl import flags
from ml_collections import ConfigDict, config_flags
from ml_collections.config_flags import config_path

from posenc_jax.lab.hosts.exit_status import first_line
from posenc_jax.lab.hosts.files import folder_name
from posenc_jax.lab.tasks import tfds_folder
from posenc_jax.options import choices_for

CONFIG = config_flags.DEFINE_config_file(
    "config", None, "The config file, PATH or PATH:ARGUMENT.",
    lock_config=False, accept_new_attributes=True,
)  # fmt: skip
WORKDIR = flags.DEFINE_string("workdir", None, "Folder of the run; default runs/CONFIG/TIME.")


def parse(argv: list[str]) -> tuple[dict, str]:
    """The config as a dict, and the folder of the run. ValueError: one line says what is wrong."""
    path, *argument = _config_path(argv)
    if not path:
        raise ValueError("--config: must be given, for example --config=configs/rope_extrap.py")
    if not pathlib.Path(path).is_file():
        raise ValueError(f"--config: no such file: {path}")
    _check_fields(_loaded(path, argument), argv)
    try:
        rest = flags.FLAGS(argv)
    except flags.Error as error:
        raise ValueError(_flag_error(str(error))) from None
    if rest[1:]:
        raise ValueError(f"{rest[1]}: not a flag; a field is set as --config.FIELD=VALUE")
    config = CONFIG.value.to_dict()
    _look_for_set(config)
    stem = pathlib.Path(path).stem
    now = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    name = os.environ.get("WANDB_RUN_ID") or now  # agents of a sweep may start in one second
    return config, WORKDIR.value or f"runs/{stem}/{folder_name(name)}"


def _config_path(argv: list[str]) -> list[str]:
    """PATH and perhaps ARGUMENT of `--config=PATH:ARGUMENT` or `--config PATH:ARGUMENT`."""
    for arg, following in zip(argv, [*argv[1:], ""], strict=True):
        if match := re.fullmatch(r"--?config(=(.*))?", arg):
            return (match[2] if match[1] else following).split(":", 1)
    return [""]


def _loaded(path: str, argument: list[str]) -> ConfigDict:
    """What the file's get_config gives. ValueError: says why it gives no ConfigDict."""
    try:
        get_config = runpy.run_path(path).get("get_config")
        if get_config is None:
            raise ValueError("module has no get_config")
        config = get_config(*argument)
        if not isinstance(config, ConfigDict):
            raise ValueError(f"get_config gives a {type(config).__name__}, not a ConfigDict")
    except Exception as error:
        said = first_line(error)
        if said.startswith("--config"):
            raise
        kind = "" if isinstance(error, ValueError) else f" ({type(error).__name__})"
        raise ValueError(f"--config: {path}: {said}{kind}") from None
    return config


def _check_fields(config: ConfigDict, argv: list[str]) -> None:
    """ValueError: an argument sets what is no field, and cannot be an option either."""
    for arg in argv:
        if match := re.match(r"--?(?:no)?config\.([^=]*)", arg):
            try:
                parts = config_path.split(match[1])
            except ValueError:
                raise ValueError(f"config.{match[1]}: no such field") from None
            _check_field(config, parts)


def _check_field(config: ConfigDict, parts: tuple[Any, ...]) -> None:
    here, where, *rest = config, "config", *parts
    while rest:
        part, *rest = rest
        shown = f"{where}.{part}" if isinstance(part, str) else f"{where}[{part!r}]"
        if isinstance(here, ConfigDict) and isinstance(part, str) and not rest:
            return  # one that is new may be an option; the schema looks at it
        if isinstance(here, tuple):
            if type(part) is not int or not 0 <= part < len(here):
                raise ValueError(f"{shown}: no such entry; {where} has {len(here)}, counted from 0")
            if not rest:
                raise ValueError(f"{shown}: cannot be set by itself; set {where}")
        elif not isinstance(here, ConfigDict | dict):
            raise ValueError(f"{shown}: no such field; {where} has none of its own")
        elif part not in list(here):
            raise ValueError(f"{shown}: no such field{choices_for(str(part), here)}")
        here, where = cast(Any, here)[part], shown


def _flag_error(said: str) -> str:
    """One line of what absl and ml_collections say."""
    if group := re.match(r"flag --(\S+?)=.* as a ConfigDict", said):
        return f"{group[1]}: has fields of its own; set one as --{group[1]}.FIELD=VALUE"
    return re.sub(r"^flag --|\s+", " ", said).strip()


def _look_for_set(config: dict) -> None:
    """ValueError: the task is a TFDS set that is not prepared. All else is checked with JAX."""
    task = config.get("task")
    name = task.get("name") if isinstance(task, dict) else None
    if isinstance(name, str) and name.startswith(tfds_folder.PREFIX):
        try:
            tfds_folder.find(name.removeprefix(tfds_folder.PREFIX))
        except ValueError as error:
            raise ValueError(f"config.{error}") from None


def main(argv: list[str]) -> int:
    try:
        config, workdir = parse(argv)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    from experiments import job  # and JAX, for seconds: what is wrong above is said before

    return job.run(config, workdir, named=bool(WORKDIR.value))


if __name__ == "__main__":
    sys.exit(main(sys.argv))
