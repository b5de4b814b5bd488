"""What padding changes with each of the 8 subsets of three masks, by measurement.

    python train.py --config=configs/padding_leakage.py
    python train.py --config=configs/padding_leakage.py:rope,alibi
    python train.py --config=configs/padding_leakage.py:quick
    python train.py --config=configs/padding_leakage.py --config.model.kind=decoder

Expect the attention mask to be necessary for everything, the output mask for the pooled output
alone, and the loss mask for a loss that does not depend on the amount of padding; with all masks on
the content of the padding to move nothing, to the bit.

Takes under 3 minutes on 2 cores, most of it compiling.
"""

from ml_collections import ConfigDict

from configs import common

DEFAULT = ("nope", "sinusoidal", "learned", "rope", "alibi", "t5")


def get_config(argument=""):
    names, quick = common.words(argument)
    base = common.length_extrapolation()
    config = ConfigDict(
        {
            "experiment": "padding_leakage",
            "encoding": {"name": ",".join(names or (DEFAULT[3:5] if quick else DEFAULT))},
            "model": {**base.model.to_dict(), "kind": "encoder"},
            "data": {
                "symbols": 6,
                "min_length": 8,
                "length": 16,
                "measured": 12,
                "amounts": (4, 20),
                "sides": ("left", "right"),
                "examples": 32,
            },
            "learning": {"steps": 100, "batch": 16, "lr": 1e-2},
            "seeds": 3,
            "first_seed": 0,
            "wandb": base.wandb.to_dict(),
        }
    )
    config.model.update(width=32, layers=2, mlp=2)
    if quick:
        config.model.update(layers=1)
        config.learning.update(steps=30)
        config.data.update(sides=("left",), examples=8)
        config.seeds = 2
    return config
