"""RoPE trained on windows of 128 bytes, evaluated to 2,048 with and without context extension.

The same weights are read plain and under position interpolation, NTK, dynamic NTK and YaRN, with
the factor that the length asks for (length / 128), which dynamic NTK finds itself. At 128 all are
one. Expect plain RoPE to lose bits per byte with every doubling beyond, NTK to lose less, position
interpolation more, YaRN more at first and less from 8 times on.

    python train.py --config=configs/rope_extrap.py
    python train.py --config=configs/rope_extrap.py:quick

Takes about 3 minutes on 2 cores (3 seeds); `quick` about 15 seconds.
"""

from configs import common


def get_config(argument=""):
    config = common.length_extrapolation()
    config.eval.variants = ("rope", "pi", "ntk", "dynamic_ntk", "yarn")
    if common.only_quick(argument):
        config = common.quick(config)
        config.eval.variants = ("rope", "yarn")
    return config
