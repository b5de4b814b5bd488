"""Any encodings, compared: trained on windows of 128 bytes, evaluated at up to 2,048.

    python train.py --config=configs/extrap.py                       # seven well-known encodings
    python train.py --config=configs/extrap.py:rope
    python train.py --config=configs/extrap.py:nope,t5,randomized+rope
    python train.py --config=configs/extrap.py:rope,alibi,quick

The encodings are trained and evaluated one after another, with the same seeds. "a+b" is the chain
of two methods. An option goes to every method that takes it: --config.encoding.base=500000.0

As a sweep, each encoding has two learning rates, with 3 seeds in each run:

    python scripts/sweep.py --config=configs/extrap.py
    python scripts/sweep.py --config=configs/extrap.py:rope,alibi,quick
"""

from configs import common
from posenc_jax.lab.config import sweeps

DEFAULT = ("nope", "sinusoidal", "rope", "alibi", "t5", "xpos", "randomized+rope")


def get_config(argument=""):
    names, quick = common.words(argument)
    chosen = ",".join(names or (DEFAULT[2:4] if quick else DEFAULT))
    config = common.config("length_extrapolation", options="setting", encoding={"name": chosen})
    return common.quick(config) if quick else config


def get_sweep(argument=""):
    names = get_config(argument).encoding.name.split(",")
    return sweeps.product(
        sweeps.grid({"encoding.name": names, "train.lr": (1e-3, 3e-3)}),
        sweeps.grid({"seed": range(3)}),
    )
