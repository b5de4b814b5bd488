"""A modern decoder as a language model on tokens: RMSNorm, SwiGLU, grouped heads, tied embeddings.

    python train.py --config=configs/lm.py                # 1.3M parameters, 2 to 4 minutes, 2 cores
    python train.py --config=configs/lm.py:quick
    python train.py --config=configs/lm.py:6m,rope,alibi --config.task.name=tokens:FOLDER

The tokens are those of the Python standard library by a BPE of 4,096 ids that comes with the
package, or a text of your own that `scripts/prepare_tokens.py` prepared (docs/tokens.md). Weights
are scored in bits per byte at the trained window and at 2, 4 and 8 times as many tokens.

    size    layers x width  window  text, at least     what it takes
    (none)  4 x 128         256     the standard library  2 cores, minutes
    6m      6 x 256         512     30M tokens         2 cores, hours
    38m     12 x 512        1,024   200M tokens        a GPU, an hour
    124m    12 x 768        2,048   2.5G tokens        8 TPU v5e, hours
    1b      16 x 2,048      4,096   20G tokens         a slice of TPUs, days

Parameters are counted with the BPE that is usual for the size (8,192 ids to 38m, 50,257 for 124m,
128,256 for 1b). From 38m on products are in bfloat16. The rate is constant after its warm-up and
falls during the last fifth of the steps, so a run can be continued from a checkpoint before its
fall (docs/going_on.md).

The default takes 2 to 4 minutes on 2 cores. It then has 1.66 bits per byte at 256 tokens, where
lzma has 1.81 and a trigram table 2.58.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from configs import common

NAMES = ("rope",)


class Size(NamedTuple):
    """A model, its window in tokens, and its training; a head has 32, 64 or 128 channels."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    mlp_width: int
    window: int
    batch: int
    steps: int
    lr: float
    fields: Mapping[str, Any] = MappingProxyType({})


LARGE = {"model.dtype": "bfloat16", "train.chunk": 10, "eval.tokens": 65536}
# Memory of a TPU v5e, 16 GB, decides how many parts of a batch are computed one after another.
FITS = {"train.remat": True, "train.fsdp": True}
SIZES = {
    "": Size(4, 128, 4, 2, 352, 256, 8, 600, 4e-3),
    "6m": Size(6, 256, 8, 2, 704, 512, 16, 4000, 2e-3, {"train.chunk": 10}),
    "38m": Size(12, 512, 8, 2, 1408, 1024, 64, 3000, 1e-3, LARGE),
    "124m": Size(
        12, 768, 12, 4, 2304, 2048, 256, 5000, 6e-4, {**LARGE, **FITS, "train.accumulate": 16}
    ),
    "1b": Size(
        16, 2048, 32, 8, 8192, 4096, 512, 10_000, 3e-4,
        {**LARGE, **FITS, "train.accumulate": 256, "train.tensor": 8},
    ),
}  # fmt: skip


def get_config(argument=""):
    words, quick = common.words(argument)
    name, methods = common.pick(words, [name for name in SIZES if name])
    size = SIZES[name]
    config = sized(
        "length_extrapolation",
        size,
        encoding={"name": ",".join(methods or NAMES)},
        eval={"lengths": tuple(size.window * times for times in (1, 2, 4, 8))},
    )
    return smallest(config) if quick else config


def sized(experiment: str, size: Size, **fields: Any) -> Any:
    """The config of an experiment on tokens with a model and a training of this size, one seed.

    fields: those of the experiment besides.
    """
    model = {
        "layers": size.layers,
        "width": size.width,
        "heads": size.heads,
        "kv_heads": size.kv_heads,
        "mlp_width": size.mlp_width,
        "norm": "rmsnorm",
        "activation": "silu",
        "gated": True,
        "biases": (),
        "tied": True,
    }
    train = {
        "length": size.window,
        "min_length": size.window,
        "batch": size.batch,
        "steps": size.steps,
        "warmup": size.steps // 20,
        "lr": size.lr,
        "decay": 0.1,
        "optimizer": {"name": "adamw", "b2": 0.95},
        "schedule": {"name": "wsd"},
    }
    task = {"name": "stdlib_tokens"}
    config = common.config(experiment, task=task, model=model, train=train, seeds=1, **fields)
    config.update_from_flattened_dict(dict(size.fields))
    return config


def smallest(config: Any) -> Any:
    """The config of `sized`, now so small that its run ends within a minute on two cores."""
    common.quick(config)
    config.model.update(kv_heads=2, mlp_width=96)
    config.seeds = 1
    return config
