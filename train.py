"""Runs one experiment: `python train.py --config=configs/rope_extrap.py [--workdir=DIR]`.

Any field can be set from the command line: --config.train.steps=200 --config.encoding.base=5e5
Started again on the folder of a run that was ended in any way, it goes on from there. Exit status:
0 finished; 2 wrong input, in one line, and nothing was read or compiled; 75 interrupted by SIGTERM
or SIGINT, start it again; 1 it cannot go on, in one line.
"""

import datetime
import errno
import os
import pathlib
import re
import sys
from collections.abc import Callable

import jax
from absl import flags
from ml_collections import config_flags

import experiments
from posenc_jax import interrupts, processes, runs, stops
from posenc_jax.compiling import compile_lightly
from posenc_jax.devices import use_cores

CONFIG = config_flags.DEFINE_config_file(
    "config", None, "The config file, PATH or PATH:ARGUMENT.",
    lock_config=False, accept_new_attributes=True,
)  # fmt: skip
DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)  # no fault of ours
LEAVE_SECONDS = 3.0  # for what others do at exit, such as W&B
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
    stem = pathlib.Path(path).stem
    now = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    name = os.environ.get("WANDB_RUN_ID") or now  # agents of a sweep may start in one second
    return CONFIG.value.to_dict(), WORKDIR.value or f"runs/{stem}/{runs.folder_name(name)}"


def _rows(config: dict) -> int:
    batch = config.get("train", {}).get("batch")
    return batch if type(batch) is int and batch > 0 else 1


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


def main(argv: list[str]) -> int:
    try:
        config, workdir = parse(argv)
        if config.get("experiment") in experiments.MANY_PROGRAMS:
            compile_lightly()
        else:
            use_cores(_rows(config))
        processes.join()
        interrupts.install()
        if processes.several():
            _be_one_of_several()
        run = experiments.prepare(config, workdir)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        interrupts.leave_within(LEAVE_SECONDS, 2)
        return 2
    _cache_compilations()
    status = _status_of(run, workdir)
    sys.stdout.flush()
    interrupts.leave_within(LEAVE_SECONDS, status)
    return status


def _be_one_of_several() -> None:
    """Only the first process prints. ValueError: each would choose a folder of its own."""
    if not WORKDIR.value:
        raise ValueError("--workdir: must be given where several processes make one run")
    if not processes.first():
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115


def _status_of(run: Callable[[], None], workdir: str) -> int:
    """Runs to an end of any kind; the exit status. What is no fault of ours is one line."""
    try:
        run()
        processes.part()
    except stops.Stop as stop:
        print(f"error: {stop}", file=sys.stderr)
        return stop.status
    except Exception as error:
        line = stops.first_line(error)
        if "RESOURCE_EXHAUSTED" in line:
            print(f"error: out of memory: {line}", file=sys.stderr)
            return stops.Stop.status
        if isinstance(error, OSError) and error.errno in DISK:
            print(f"error: {error.filename or workdir}: {error.strerror}", file=sys.stderr)
            return stops.NotWritten.status
        if not processes.several():
            raise
        if isinstance(error, jax.errors.JaxRuntimeError):
            # Leaving in order would wait for the process that is gone.
            print(f"error: a process was lost: {line}", file=sys.stderr, flush=True)
            os._exit(stops.Interrupted.status)
        interrupts.leave_within(LEAVE_SECONDS, 1)
        raise
    return 0


def _cache_compilations() -> None:
    """Keeps compiled programs between runs, and between workers, which read the environment as they
    start, unless it says otherwise already.
    """
    wanted: dict[str, str | float] = {
        "jax_compilation_cache_dir": str(pathlib.Path.home() / ".cache" / "posenc_jax"),
        "jax_persistent_cache_min_compile_time_secs": 0.2,
    }
    for name, value in wanted.items():
        if name.upper() not in os.environ:
            os.environ[name.upper()] = str(value)
            jax.config.update(name, value)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
