"""ALiBi trained on windows of 128 bytes, evaluated to 2,048.

Expect bits per byte to stay level or fall with length: a linear bias gives most of the weight to
near tokens.

    python train.py --config=configs/alibi_extrap.py
    python train.py --config=configs/alibi_extrap.py:quick
"""

from configs import common


def get_config(argument=""):
    config = common.config("length_extrapolation", encoding={"name": "alibi"})
    return common.quick(config) if common.only_quick(argument) else config
