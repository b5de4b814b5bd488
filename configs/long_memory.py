r"""Documents of 16 windows: recurrence memory against a cache, by position and by distance.

    python train.py --config=configs/long_memory.py                       # five encodings
    python train.py --config=configs/long_memory.py:rope,transformer_xl
    python train.py --config=configs/long_memory.py:quick
    python train.py --config=configs/long_memory.py --config.memory=16
    python train.py --config=configs/long_memory.py --config.task.name=file:book.txt \
        --config.window=32 --config.train.length=128 --config.eval.lengths="(128,512)"
    python scripts/experiment_page.py RUN                                 # docs/long_memory.md

A decoder reads assignments of values to keys, and recalls the value of a key that is asked for, in
the same window or many windows later. It is trained on documents of 4 windows with a memory of 3,
as Transformer-XL is. It reads documents of 16 with that memory, with a cache of all tokens, and
each window alone, the control. `file:PATH` takes a text, and any other text task will do; then the
loss by position is in bits per byte.

Expect at 4 windows, with a memory or a cache, 0.99 of the answers with `transformer_xl`, 0.96 with
`rope` and `alibi`, 0.87 without positions, and at most 0.60 with each window alone; at 16 windows
0.85 with the memory and 0.88 with the cache (`transformer_xl`). Takes 3 to 4 minutes on 2 cores.
"""

from configs import common

DEFAULT = ("nope", "sinusoidal", "rope", "alibi", "transformer_xl")


def get_config(argument=""):
    names, quick = common.words(argument)
    config = common.config(
        "long_memory",
        options="setting",
        encoding={"name": ",".join(names or (("rope",) if quick else DEFAULT))},
        model={"width": 48, "mlp": 2},
        train={"length": 64, "batch": 24, "steps": 350, "lr": 4e-3, "warmup": 50, "chunk": 70},
        eval={"lengths": (64, 128, 256), "examples": 128},
    )
    if quick:
        config.model.update(width=16, layers=1)
        config.train.update(length=32, min_length=32, batch=16, steps=40, warmup=5, chunk=20)
        config.eval.update(lengths=(32, 64), examples=16)
        config.seeds = 2
    return config
