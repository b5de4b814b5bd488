r"""An algorithmic task, trained on strings of up to 20 symbols and tested on up to 320.

Any task of posenc_jax/lab/tasks/ by its name; the report shows its floor, the best score of
predictors that need no positions.

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
# The smallest size of a task if it is not 1, and the largest that is tested if it is not 320.
SMALLEST = {
    "stack_manipulation": 2, "flip_flop": 2, "indirect_indexing": 2, "solve_equation": 3,
    "binary_addition": 3, "binary_multiplication": 3, "lookup": 4, "recall_order": 4,
    "dna": 5, "periodic": 9, "delay": 9,
}  # fmt: skip
LARGEST = {"associative_recall": 160, "indirect_indexing": 160, "translation": 160}


def get_config(argument=""):
    names, quick = common.words(argument)
    if len(names) > 1:
        raise FieldError("--config", f"one task at a time, not {', '.join(names)}")
    name = names[0] if names else "copy"
    smallest, largest = SMALLEST.get(name, 1), LARGEST.get(name, 320)
    lengths = (10, 20, 30, 40, 80, 160, 320)
    config = common.config(
        "length_extrapolation",
        options="setting",
        encoding={"name": "nope,sinusoidal,rope,alibi,t5,randomized+rope"},
        task={"name": name},
        model={"width": 64, "heads": 8},
        train={"length": 20, "min_length": smallest, "batch": 128, "steps": 1500, "lr": 1e-3},
        eval={"lengths": tuple(n for n in lengths if n <= largest)},
    )
    if quick:
        config = common.quick(config)
        config.encoding.name = "nope,rope"
        length = max(8, 2 * smallest)
        config.train.update(length=length, min_length=smallest)
        config.eval.lengths = (length, 2 * length)
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
