"""Any encodings, side by side: trained on windows of 128 bytes, evaluated to 2,048.

    python train.py --config=configs/extrap.py                       # seven well-known ones
    python train.py --config=configs/extrap.py:rope
    python train.py --config=configs/extrap.py:nope,t5,randomized+rope
    python train.py --config=configs/extrap.py:rope,alibi,quick

Each name is trained and evaluated in turn with the same seeds; "a+b" chains two. An option goes to
every method that takes it: --config.encoding.base=500000.0

The same names as a sweep, each at two learning rates with 3 seeds, one run for each point:

    python scripts/sweep.py --config=configs/extrap.py
    python scripts/sweep.py --config=configs/extrap.py:rope,alibi,quick
"""

from configs import common
from posenc_jax.lab.config import sweeps

DEFAULT = ("nope", "sinusoidal", "rope", "alibi", "t5", "xpos", "randomized+rope")


def get_config(argument=""):
    names, quick = common.words(argument)
    chosen = ",".join(names or (DEFAULT[2:4] if quick else DEFAULT))
    config = common.config("length_extrapolation", encoding={"name": chosen})
    return common.quick(config) if quick else config


def get_sweep(argument=""):
    names = get_config(argument).encoding.name.split(",")
    return sweeps.product(
        sweeps.grid({"encoding.name": names, "train.lr": (1e-3, 3e-3)}),
        sweeps.grid({"seed": range(3)}),
    )
