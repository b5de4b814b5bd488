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
from collections.abc import Callable

import jax
from absl import flags
from ml_collections import config_flags

import experiments
from posenc_jax import interrupts, processes, stops
from posenc_jax.devices import use_cores

CONFIG = config_flags.DEFINE_config_file(
    "config", None, "The config file, PATH or PATH:ARGUMENT.",
    lock_config=False, accept_new_attributes=True,
)  # fmt: skip
LEAVE_SECONDS = 3.0  # for what others do at exit, such as W&B
WORKDIR = flags.DEFINE_string("workdir", None, "Folder of the run; default runs/CONFIG/TIME.")


def parse(argv: list[str]) -> tuple[dict, str]:
    """The config as a dict, and the folder of the run. ValueError: one line says what is wrong."""
    path = _config_path(argv)
    if path and not pathlib.Path(path).is_file():
        raise ValueError(f"--config: no such file: {path}")
    try:
        rest = flags.FLAGS(argv)
    except flags.Error as error:
        raise ValueError(re.sub(r"^flag --|\s+", " ", str(error)).strip()) from None
    except KeyError as error:  # 'name', maybe followed by a line with a suggestion
        name, *hint = str(error.args[0]).splitlines()
        message = f"config.{name.strip(chr(39))}: no such field"
        raise ValueError("; ".join([message, *map(str.lower, hint)])) from None
    if rest[1:]:
        raise ValueError(f"{rest[1]}: not a flag; a field is set as --config.FIELD=VALUE")
    if CONFIG.value is None:
        raise ValueError("--config: must be given, for example --config=configs/rope_extrap.py")
    stem = pathlib.Path(path).stem
    now = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    name = os.environ.get("WANDB_RUN_ID") or now  # agents of a sweep may start in one second
    return CONFIG.value.to_dict(), WORKDIR.value or f"runs/{stem}/{name}"


def _rows(config: dict) -> int:
    batch = config.get("train", {}).get("batch")
    return batch if type(batch) is int and batch > 0 else 1


def _config_path(argv: list[str]) -> str:
    found = [re.match(r"--?config=([^:]+)", arg) for arg in argv]
    return next((match[1] for match in found if match), "")


def main(argv: list[str]) -> int:
    try:
        config, workdir = parse(argv)
        use_cores(_rows(config))
        processes.join()
        if processes.several():
            _be_one_of_several()
        run = experiments.prepare(config, workdir)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        interrupts.leave_within(LEAVE_SECONDS, 2)
        return 2
    _cache_compilations()
    interrupts.install()
    status = _status_of(run)
    sys.stdout.flush()
    interrupts.leave_within(LEAVE_SECONDS, status)
    return status


def _be_one_of_several() -> None:
    """Only the first process prints. ValueError: each would choose a folder of its own."""
    if not WORKDIR.value:
        raise ValueError("--workdir: must be given where several processes make one run")
    if not processes.first():
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115


def _status_of(run: Callable[[], None]) -> int:
    """Runs to an end of any kind; the exit status."""
    try:
        run()
        processes.part()
    except stops.Stop as stop:
        print(f"error: {stop}", file=sys.stderr)
        return stop.status
    except Exception as error:
        if not processes.several():
            raise
        full = "RESOURCE_EXHAUSTED" in str(error)
        if isinstance(error, jax.errors.JaxRuntimeError) and not full:
            # Leaving in order would wait for the process that is gone.
            print(f"error: a process was lost: {stops.first_line(error)}", file=sys.stderr)
            sys.stderr.flush()
            os._exit(stops.Interrupted.status)
        interrupts.leave_within(LEAVE_SECONDS, 1)
        raise
    return 0


def _cache_compilations() -> None:
    """Keeps compiled programs between runs, unless the environment names a place of its own."""
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        folder = pathlib.Path.home() / ".cache" / "posenc_jax"
        jax.config.update("jax_compilation_cache_dir", str(folder))


if __name__ == "__main__":
    sys.exit(main(sys.argv))
