r"""Decoders that complete functions of held-out Python files, by their place in the file.

    python train.py --config=configs/completion.py                  # five well-known encodings
    python train.py --config=configs/completion.py:rope,fire
    python train.py --config=configs/completion.py:quick
    python train.py --config=configs/completion.py --config.task.name=functions:my_project
    python scripts/experiment_page.py RUN                           # docs/completion.md

Trained on windows of 128 bytes of the standard library. At test a window ends in a function of a
file that was not trained on, and the first 32 bytes of its body count; longer windows hold more of
the file before it. In the control the bytes of a window are shuffled.

Expect 2.6 bits per byte with `rope` at 128 bytes, 3.6 without positions, and 2.9 with `alibi`, the
best, at 512. Takes 3 minutes on 2 cores.
"""

from configs import common

DEFAULT = ("nope", "sinusoidal", "rope", "alibi", "t5")


def get_config(argument=""):
    names, quick = common.words(argument)
    config = common.config(
        "completion",
        encoding={"name": ",".join(names or (("nope", "rope") if quick else DEFAULT))},
        model={"width": 64, "mlp": 2},
        train={"length": 128, "batch": 8, "steps": 500, "lr": 4e-3, "chunk": 100},
        eval={"lengths": (64, 128, 256, 512)},
    )
    if quick:
        config.model.update(width=32, layers=1)
        config.train.update(length=64, min_length=64, batch=8, steps=60, warmup=10, chunk=20)
        config.eval.lengths = (64, 128)
        config.task["tested"] = 32
        config.seeds = 2
    return config
