"""Runs one experiment: `python train.py --config=configs/rope_extrap.py [--workdir=DIR]`.

Any field can be set from the command line: --config.train.steps=200 --config.encoding.base=5e5
With the folder of a run that did not finish, it resumes that run. `--help` lists the configs, and
with a config its fields.

Exit status: 0 finished; 2 wrong input, before anything is compiled; 75 interrupted by SIGTERM or
SIGINT, run it again to resume; 1 it cannot continue. One line says what is wrong.
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

from experiments import job, train_help
from posenc_jax.lab.config import imports
from posenc_jax.lab.hosts.console import say
from posenc_jax.lab.hosts.exit_status import Refused, first_line
from posenc_jax.lab.hosts.files import expanded, folder_name
from posenc_jax.options import FieldError, choices_for, field_name

HELP = {"--help", "-help", "-h"}


def parse(argv: list[str]) -> tuple[dict[str, Any], str]:
    """The config, which the file makes and the flags change, and the folder of the run.

    ValueError: a wrong argument.
    """
    path, *argument = _config_path(argv)
    if not path:
        raise FieldError("--config", "must be given, as in --config=configs/rope_extrap.py")
    if not pathlib.Path(path).is_file():
        raise FieldError("--config", f"no such file: {path}")
    config = _loaded(path, argument)
    _check_fields(config, argv)
    # A flag of a config file would run the file once more: this one holds what it returned.
    fields = _without_config(argv)
    values = flags.FlagValues()
    workdir = flags.DEFINE_string("workdir", None, "Folder of the run.", flag_values=values)
    try:
        changed = config_flags.DEFINE_config_dict(
            "config", config, flag_values=values, sys_argv=fields, lock_config=False,
            accept_new_attributes=True,
        )  # fmt: skip
        rest = values(fields)
    except flags.Error as error:
        raise ValueError(" ".join(str(error).split())) from None
    if rest[1:]:
        raise FieldError(rest[1], "not a flag; a field is set as --config.FIELD=VALUE")
    stem = pathlib.Path(path).stem
    now = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    name = os.environ.get("WANDB_RUN_ID") or now  # agents of a sweep may start in one second
    try:
        folder = str(expanded(workdir.value)) if workdir.value else ""
    except Refused as error:
        raise FieldError("--workdir", str(error)) from None
    return changed.value.to_dict(), folder or f"runs/{stem}/{folder_name(name)}"


def _without_config(argv: list[str]) -> list[str]:
    """The arguments without `--config=PATH` and `--config PATH`."""
    found, skip = [], False
    for arg in argv:
        if not skip and not re.fullmatch(r"--?config(=.*)?", arg):
            found.append(arg)
        skip = not skip and re.fullmatch(r"--?config", arg) is not None
    return found


def _config_path(argv: list[str]) -> list[str]:
    """[PATH] or [PATH, ARGUMENT] of `--config=PATH:ARGUMENT` or `--config PATH:ARGUMENT`."""
    for arg, following in zip(argv, [*argv[1:], ""], strict=True):
        if match := re.fullmatch(r"--?config(=(.*))?", arg):
            return (match[2] if match[1] else following).split(":", 1)
    return [""]


def _loaded(path: str, argument: list[str]) -> ConfigDict:
    """The ConfigDict that the file's `get_config` returns. FieldError: the file has none.

    Modules beside the file can be imported from then on.
    """
    imports.add_folder(pathlib.Path(path).parent)
    try:
        get_config = runpy.run_path(path).get("get_config")
        if get_config is None:
            raise ValueError("module has no get_config")
        config = get_config(*argument)
        if not isinstance(config, ConfigDict):
            raise ValueError(f"get_config gives a {type(config).__name__}, not a ConfigDict")
    except FieldError:
        raise
    except Exception as error:
        kind = "" if isinstance(error, ValueError) else f" ({type(error).__name__})"
        raise FieldError("--config", f"{path}: {first_line(error)}{kind}") from None
    return config


def _check_fields(config: ConfigDict, argv: list[str]) -> None:
    """FieldError: an argument sets a field that does not exist and cannot be an option."""
    for arg in argv:
        if match := re.match(r"--?(?:no)?config\.([^=]*)", arg):
            try:
                parts = config_path.split(match[1])
            except ValueError:
                raise FieldError(f"config.{match[1]}", "no such field") from None
            _check_field(config, parts)


def _check_field(config: ConfigDict, parts: tuple[Any, ...]) -> None:
    here: Any = config
    for n, part in enumerate(parts):
        path, last = ("config", *parts[: n + 1]), n + 1 == len(parts)
        where = field_name(path[:-1])
        if isinstance(here, tuple):
            if type(part) is not int or not 0 <= part < len(here):
                raise FieldError(path, f"no such entry; {where} has {len(here)}, counted from 0")
            if last:
                raise FieldError(path, f"cannot be set by itself; set {where}")
        elif not isinstance(here, ConfigDict | dict):
            raise FieldError(path, f"no such field; {where} has none of its own")
        elif part not in list(here):
            if isinstance(here, ConfigDict) and isinstance(part, str) and last:
                return  # a new field may be an option of a method or a task; the schema checks it
            raise FieldError(path, f"no such field{choices_for(str(part), here)}")
        here = cast(Any, here)[part]
    if isinstance(here, ConfigDict):
        flag = f"--{field_name(('config', *parts))}.FIELD=VALUE"
        raise FieldError(("config", *parts), f"has fields of its own; set one as {flag}")


def helped(argv: list[str]) -> str:
    """The help of the config that is given, or of train.py. ValueError: a wrong config."""
    path, *argument = _config_path(argv)
    if not path:
        return train_help.overview()
    return train_help.of_config(pathlib.Path(path), _loaded(path, argument).to_dict())


def main(argv: list[str]) -> int:
    if not argv[1:]:
        print(train_help.overview())
    try:
        if HELP.intersection(argv):
            print(helped(argv))
            return 0
        config, workdir = parse(argv)
    except ValueError as error:
        say(f"error: {error}", sys.stderr)
        return 2
    path, *argument = _config_path(argv)
    expected = train_help.duration(pathlib.Path(path), *argument)
    named = any(re.match(r"--?workdir\b", arg) for arg in argv)
    return job.run(config, workdir, named=named, expected=expected)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
