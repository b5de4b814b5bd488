"""Runs one experiment: `python train.py --config=configs/rope_extrap.py [--workdir=DIR]`.

Any field can be set from the command line: --config.train.steps=200 --config.encoding.base=5e5
Started again on the folder of a run that was ended in any way, it goes on from there. Exit status:
0 finished; 2 wrong input, in one line, and nothing was read or compiled; 75 interrupted by SIGTERM
or SIGINT, start it again; 1 it cannot go on, in one line.
"""

import datetime
import os
import pathlib
import re
import sys

from absl import flags
from ml_collections import config_flags

from posenc_jax import prepared
from posenc_jax.files import folder_name

CONFIG = config_flags.DEFINE_config_file(
    "config", None, "The config file, PATH or PATH:ARGUMENT.",
    lock_config=False, accept_new_attributes=True,
)  # fmt: skip
WORKDIR = flags.DEFINE_string("workdir", None, "Folder of the run; default runs/CONFIG/TIME.")


def parse(argv: list[str]) -> tuple[dict, str]:
    """The config as a dict, and the folder of the run. ValueError: one line says what is wrong."""
    path = _config_path(argv)
    if not path:
        raise ValueError("--config: must be given, for example --config=configs/rope_extrap.py")
    if not pathlib.Path(path).is_file():
        raise ValueError(f"--config: no such file: {path}")
    try:
        rest = flags.FLAGS(argv)
    except flags.Error as error:
        raise ValueError(_flag_error(str(error))) from None
    except KeyError as error:
        raise ValueError(_no_field(str(error.args[0]))) from None
    except AttributeError as error:
        raise ValueError(f"--config: {path}: {error}") from None
    if rest[1:]:
        raise ValueError(f"{rest[1]}: not a flag; a field is set as --config.FIELD=VALUE")
    config = CONFIG.value.to_dict()
    _look_for_set(config)
    stem = pathlib.Path(path).stem
    now = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    name = os.environ.get("WANDB_RUN_ID") or now  # agents of a sweep may start in one second
    return config, WORKDIR.value or f"runs/{stem}/{folder_name(name)}"


def _config_path(argv: list[str]) -> str:
    """What stands before the colon in `--config=PATH:ARGUMENT` or `--config PATH:ARGUMENT`."""
    for arg, following in zip(argv, [*argv[1:], ""], strict=True):
        if match := re.fullmatch(r"--?config(=(.*))?", arg):
            return (match[2] if match[1] else following).partition(":")[0]
    return ""


def _flag_error(said: str) -> str:
    """One line of what absl and ml_collections say; of a config file's traceback, its last."""
    if "Error whilst parsing config file" in said:
        return said.strip().splitlines()[-1].partition(": ")[2]
    if group := re.match(r"flag --(\S+?)=.* as a ConfigDict", said):
        return f"{group[1]}: has fields of its own; set one as --{group[1]}.FIELD=VALUE"
    return re.sub(r"^flag --|\s+", " ", said).strip()


def _no_field(said: str) -> str:
    """From "'name'", a sentence that ends in the name, or either with a suggestion below it."""
    name, *hint = said.splitlines()
    message = f"config.{name.split()[-1].strip(chr(39))}: no such field"
    return "; ".join([message, *map(str.lower, hint)])


def _look_for_set(config: dict) -> None:
    """ValueError: the task is a TFDS set that is not prepared. All else is checked with JAX."""
    task = config.get("task")
    name = task.get("name") if isinstance(task, dict) else None
    if isinstance(name, str) and name.startswith(prepared.PREFIX):
        try:
            prepared.find(name.removeprefix(prepared.PREFIX))
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
