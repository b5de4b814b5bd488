"""RoPE trained on windows of 128 bytes, evaluated at up to 2,048 with and without extension.

The same weights are evaluated as plain RoPE, position interpolation, NTK, dynamic NTK and YaRN.
Each extension gets the factor length / 128; dynamic NTK computes it itself, so it equals NTK. At
128 all results are equal: better than a trigram table and than gzip, though gzip copies from 32 KiB
before. Expect plain RoPE to get worse with every doubling of the length. NTK is better than plain
RoPE at each of them, and YaRN from 8 times on; position interpolation is worse up to 8 times.

    python train.py --config=configs/rope_extrap.py
    python train.py --config=configs/rope_extrap.py:quick

Takes 3 to 6 minutes on 2 cores (4 seeds); `quick` about 15 seconds.
"""

from configs import common


def get_config(argument=""):
    quick = common.only_quick(argument)
    variants = ("rope", "yarn") if quick else ("rope", "pi", "ntk", "dynamic_ntk", "yarn")
    config = common.config(
        "length_extrapolation",
        train={"batch": 8, "steps": 1000, "warmup": 50},
        eval={"variants": variants},
        seeds=4,
    )
    return common.quick(config) if quick else config
