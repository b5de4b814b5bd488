"""RoPE trained on windows of 128 bytes, evaluated to 2,048 with and without context extension.

The same weights are evaluated under plain RoPE, position interpolation, NTK, dynamic NTK and YaRN,
with the factor length / 128, which dynamic NTK computes itself. At 128 all give the same. Expect
plain RoPE to get worse with every doubling after 128, NTK less, position interpolation more, and
YaRN more at first but less from 1,024 on.

    python train.py --config=configs/rope_extrap.py
    python train.py --config=configs/rope_extrap.py:quick

Takes about 3 minutes on 2 cores (3 seeds); `quick` about 15 seconds.
"""

from configs import common


def get_config(argument=""):
    quick = common.only_quick(argument)
    variants = ("rope", "yarn") if quick else ("rope", "pi", "ntk", "dynamic_ntk", "yarn")
    config = common.config("length_extrapolation", eval={"variants": variants})
    return common.quick(config) if quick else config
