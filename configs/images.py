r"""A small vision Transformer on handwritten digits: which positions it needs, and how far they go.

    python train.py --config=configs/images.py                   # eight methods
    python train.py --config=configs/images.py:axial,mixed,nope  # any others
    python train.py --config=configs/images.py:quick
    python train.py --config=configs/images.py --config.task.name=tfds:mnist \
        --config.train.length=7 --config.train.min_length=7 --config.eval.lengths="(7,10,14)"

Trained on patches of 2 x 2 pixels, 4 a side; tested at that resolution, and at 6 and 8 patches a
side on the same images enlarged, with positions that go on counting or are interpolated. A set of
TFDS is first prepared (scripts/prepare_data.py); its patches have 4 pixels a side, so MNIST is 7
patches a side and CIFAR-10 8.

Expect 0.74 of the test images right without positions and 0.94 to 0.98 with them (`swin_2d` 0.90),
in one dimension as in two; shuffled patches, the control, to leave the first as it was and take the
others below 0.3 (`swin_2d` 0.44). At 8 patches a side, interpolated: 0.87 to 0.91 in two dimensions
(`swin_2d` 0.71), 0.35 to 0.58 in one. Positions that go on counting are mostly worse than none.

Takes 3 to 4 minutes on 2 cores.
"""

from ml_collections import ConfigDict

from configs import common

FLAT = ("nope", "learned", "sinusoidal", "rope")
GRID = ("learned_2d", "sinusoidal_2d", "axial", "swin_2d")


def get_config(argument=""):
    names, quick = common.words(argument)
    base = common.length_extrapolation()
    chosen = names or (("nope", "rope", "axial") if quick else (*FLAT, *GRID))
    config = ConfigDict(
        {
            "experiment": "images",
            "encoding": {"name": ",".join(chosen)},
            "task": {"name": "digits"},
            "model": {**base.model.to_dict(), "kind": "encoder"},
            "train": base.train.to_dict(),
            "eval": {"lengths": (4, 6, 8), "tokens": 2048},
            "checkpoint": base.checkpoint.to_dict(),
            "seeds": 3,
            "first_seed": 0,
            "wandb": base.wandb.to_dict(),
        }
    )
    config.model.update(width=48, heads=4, layers=2, mlp=2)
    config.train.update(length=4, min_length=4, batch=32, steps=800, lr=5e-3, decay=0.3, chunk=100)
    if quick:
        config.model.update(width=16, layers=1)
        config.train.update(steps=40, warmup=5, chunk=20)
        config.eval.lengths = (4, 8)
        config.seeds = 2
    return config
