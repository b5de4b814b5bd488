r"""Decoders on held-out Python files: completing functions, and which bracket is closed where.

    python train.py --config=configs/completion.py                  # functions, byte by byte
    python train.py --config=configs/completion.py:brackets         # the kind of closing brackets
    python train.py --config=configs/completion.py:brackets,rope,fire
    python train.py --config=configs/completion.py:brackets,quick
    python train.py --config=configs/completion.py --config.task.name=functions:my_project
    python scripts/experiment_page.py RUN RUN                       # docs/completion.md

Trained on the standard library; at test longer windows hold more of the file before their end. In
the control the bytes of a window are shuffled.

Functions: trained on windows of 128 bytes. A test window ends in a function, and the first 32 bytes
of its body count. Expect 2.6 bits per byte with `rope` at 128 bytes, 3.6 without positions, and 2.9
with `alibi`, the best, at 512. What comes next is not determined: half of the bytes are right.

Brackets: trained on windows of 64 bytes. Closing brackets are hidden, and the code before them says
which they are, `)`, `]` or `}`; which kind a pair has is drawn for each example. Expect 0.98 of
them right with `rope` and `alibi` at 64 bytes and 0.96 with `alibi` at 512; 0.70 are of the kind
that was opened last, and shuffled 0.50 are right.

Takes 3 minutes on 2 cores, `brackets` 4.
"""

from configs import common

DEFAULT = ("nope", "sinusoidal", "rope", "alibi", "t5")
# Bytes of a trained window, fields of the model, those of the training.
QUESTIONS = {
    "complete": (128, {"heads": 4}, {"steps": 500, "lr": 4e-3}),
    "brackets": (64, {"heads": 8, "qk_norm": "head"}, {"steps": 1500, "lr": 3e-3, "decay": 0.3}),
}


def get_config(argument=""):
    words, quick = common.words(argument)
    chosen, names = common.pick(words, QUESTIONS)
    question = chosen or "complete"
    length, model, train = QUESTIONS[question]
    config = common.config(
        "completion",
        options="setting",
        encoding={"name": ",".join(names or (("nope", "rope") if quick else DEFAULT))},
        task={"name": "functions", "question": question},
        model={"width": 64, "mlp": 2, **model},
        train={"length": length, "batch": 8, "chunk": 100, **train},
        eval={"lengths": (64, 128, 256, 512)},
    )
    if quick:
        config.model.update(width=32, layers=1)
        config.train.update(length=64, min_length=64, batch=8, steps=60, warmup=10, chunk=20)
        config.eval.lengths = (64, 128)
        config.task["tested"] = 32
        config.seeds = 2
    return config
