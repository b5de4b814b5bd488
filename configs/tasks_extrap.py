r"""An algorithmic task, trained on strings of up to 20 symbols and tested on up to 320.

    python train.py --config=configs/tasks_extrap.py                 # copy
    python train.py --config=configs/tasks_extrap.py:reverse
    python train.py --config=configs/tasks_extrap.py:addition,quick
    python train.py --config=configs/tasks_extrap.py:addition --config.task.reverse=True \
        --config.encoding.name=fire+abacus+learned

As a sweep, with one run for each task and method:

    python scripts/sweep.py --config=configs/tasks_extrap.py
    python scripts/sweep.py --config=configs/tasks_extrap.py:quick --dry-run

Answers are scored with teacher forcing: a string is an exact match if every token of its answer is
the argmax. Expect all methods to come close to 1 within the trained lengths, and most to fall to 0
beyond them; the experiment shows how fast.
"""

from configs import common
from posenc_jax.lab.config import sweeps
from posenc_jax.options import FieldError

TASKS = ("copy", "reverse", "sort", "addition")


def get_config(argument=""):
    names, quick = common.words(argument)
    if len(names) > 1:
        raise FieldError("--config", f"one task at a time, not {', '.join(names)}")
    config = common.config(
        "length_extrapolation",
        encoding={"name": "nope,sinusoidal,rope,alibi,t5,randomized+rope"},
        task={"name": names[0] if names else "copy"},
        model={"width": 64, "heads": 8},
        train={"length": 20, "min_length": 1, "batch": 128, "steps": 1500, "lr": 1e-3},
        eval={"lengths": (10, 20, 30, 40, 80, 160, 320)},
    )
    if quick:
        config = common.quick(config)
        config.encoding.name = "nope,rope"
        config.train.update(length=8, min_length=1)
        config.eval.lengths = (8, 16)
    return config


def get_sweep(argument=""):
    config, (names, _) = get_config(argument), common.words(argument)
    return sweeps.grid(
        {
            "task.name": names or TASKS,
            "encoding.name": config.encoding.name.split(","),
            "seed": range(config.seeds),
        }
    )
