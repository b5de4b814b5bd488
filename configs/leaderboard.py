"""The catalogue's methods for sequences on one task, each trained until it has learned the task.

    python train.py --config=configs/leaderboard.py                    # copy, well-known methods
    python train.py --config=configs/leaderboard.py:others --config.task.name=reverse
    python train.py --config=configs/leaderboard.py:rope,alibi,nope    # these
    python train.py --config=configs/leaderboard.py:quick
    python scripts/sweep.py --config=configs/leaderboard.py --dry-run  # the runs of the board
    make board              # those that docs/leaderboard does not have yet; then writes the page

Each method is trained in windows of 32 tokens, with three learning rates, of which validation
examples choose one, and tested in windows of 32 to 512. Against rope it has a cost (what it loses
within the trained window) and a gain (beyond it).

A training takes half a minute of one core, a task of the best-known methods an hour of two;
`quick` takes 20 to 30 seconds.
"""

from configs import common
from posenc_jax.lab.config import sweeps

# Learned within the trained sizes, and not solved by the bag of the tokens alone.
TASKS = (
    *("reverse", "duplicate_string", "passkey", "flip_flop", "marker_position", "periodic", "copy"),
    *("selective_copy", "binary_addition", "needle"),
)
# The rate where three are not tried. Against the best of three it costs the families of the
# best-known methods (input, biases, rotations, content) at most .012 of exact match on validation
# examples, on average; nope and randomized+rope at most .08.
RATE, RATES = 4e-3, {"needle": 1e-3}


def get_config(argument=""):
    names, quick = common.words(argument)
    config = common.config(
        "leaderboard",
        encoding={"name": ",".join(names) or ("nope,rope,alibi" if quick else "known")},
        task={"name": "copy"},
        model={"width": 64, "mlp": 2},
        seeds=5,
    )
    if names == ["others"]:
        config.update(seeds=3)
    if quick:
        config.update(multiples=(1, 2), examples=32, seeds=2)
        config.model.update(width=32)
        config.train.update(batch=16, steps=80, chunk=20, average=10, warmup=10, rates=(4e-3,))
    return config


# Settings that check the board.
CHECKS = {
    "doubled": {"train.steps": 8000},
    "second": {"seeds": 3, "window": 48, "model.heads": 8, "train.batch": 64},
}


def get_sweep(argument=""):
    """Every task with the best-known methods, then every task with all others at one rate.

    "doubled,METHODS" and "second,METHODS" are checks: these methods with every task in another
    setting, of which the second has one rate too.
    """
    every = sweeps.grid({"task.name": TASKS})
    rates = [(RATES.get(task, RATE),) for task in TASKS]
    at_one = sweeps.zipped({"task.name": TASKS, "train.rates": rates})
    check, _, names = argument.partition(",")
    if names and check in CHECKS:
        fields = {"encoding.name": names, **CHECKS[check]}
        return sweeps.product((fields,), every if check == "doubled" else at_one)
    well_known = {"encoding.name": "known", "seeds": 5}
    others = {"encoding.name": "others", "seeds": 3}
    return sweeps.product((well_known,), every) + sweeps.product((others,), at_one)
