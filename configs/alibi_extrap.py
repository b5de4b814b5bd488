"""ALiBi trained on windows of 128 bytes, evaluated at up to 2,048.

Expect bits per byte to stay the same or fall with length, because a linear bias mostly reads near
tokens.

    python train.py --config=configs/alibi_extrap.py
    python train.py --config=configs/alibi_extrap.py:quick
"""

from configs import common


def get_config(argument=""):
    config = common.config("length_extrapolation", encoding={"name": "alibi"})
    return common.quick(config) if common.only_quick(argument) else config
