"""What padding changes in the outputs and the loss, with each of the 8 subsets of three masks.

    python train.py --config=configs/padding_leakage.py                # the whole catalogue
    python train.py --config=configs/padding_leakage.py:rope,alibi     # some methods
    python train.py --config=configs/padding_leakage.py:quick          # rope and alibi, in seconds
    python scripts/experiment_page.py RUN                              # docs/padding_leakage.md
    python train.py --config=configs/padding_leakage.py --config.model.kind=decoder

Expect the attention mask to be necessary for everything, the output mask only for the pooled
output, and the loss mask for a loss that does not depend on the amount of padding. With all masks
on, the content of the padding changes no bit.

Methods with positions of several axes are left out. The model has one layer; the claim pad-2 of
`configs/claims.py` measures what a second layer reads of what padding has taken in.

Takes 4 to 5 minutes on 2 cores; about half of the time is compilation, two programs for each
method. A run that was interrupted goes on with the missing methods.
"""

from configs import common

QUICK = ("rope", "alibi")


def get_config(argument=""):
    names, quick = common.words(argument)
    config = common.config(
        "padding_leakage",
        encoding={"name": ",".join(names or (QUICK if quick else ("all",)))},
        model={"kind": "encoder", "width": 32, "layers": 1, "mlp": 2},
        data={
            "symbols": 6,
            "min_length": 8,
            "length": 16,
            "measured": 12,
            "amounts": (4, 12),
            "sides": ("left", "right"),
            "examples": 8,
        },
        learning={"steps": 100, "batch": 8, "lr": 1e-2},
    )
    if quick:
        config.learning.update(steps=30)
        config.data.update(sides=("left",))
        config.seeds = 2
    return config
