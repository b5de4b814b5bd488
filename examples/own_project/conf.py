"""An encoding of one's own beside RoPE, on a task of one's own. Takes a minute.

python train.py --config=examples/own_project/conf.py
python scripts/sweep.py --config=examples/own_project/conf.py
"""

from configs import common
from posenc_jax.lab.config import sweeps


def get_config(argument=""):
    config = common.config(
        "length_extrapolation",
        imports=("my_methods",),  # beside this file
        encoding={"name": "root,rope"},
        task={"name": "threes"},
    )
    config = common.quick(config)
    if common.only_quick(argument):
        config.seeds, config.train.steps, config.encoding.name = 1, 20, "root"
    return config


def get_sweep(argument=""):
    return sweeps.grid({"encoding.name": ("root", "rope+root")})
