"""The catalogue's methods for sequences, on the same tasks at one budget: cost and gain.

    python train.py --config=configs/leaderboard.py
    python train.py --config=configs/leaderboard.py:rope,alibi,nope    # rope must be one
    python train.py --config=configs/leaderboard.py:quick
    python scripts/leaderboard.py RUN    # writes docs/leaderboard.md from a finished run

Each method is trained on each task in windows of 32 tokens and tested in windows of 32 to 256: what
it costs within the trained window, and what it gains in longer ones.
Takes about 30 minutes on 2 cores (3 seeds), one process a core; `quick` 20 to 30 seconds.
"""

from configs import common


def get_config(argument=""):
    names, quick = common.words(argument)
    config = common.config(
        "leaderboard",
        encoding={"name": ",".join(names) or "all"},
        reference="rope",
        tasks=(
            {"name": "copy", "alphabet": 30},
            {"name": "sort", "alphabet": 30},
            {"name": "stdlib"},
        ),
        window=32,
        multiples=(1, 2, 4, 8),
        pool=16384,
        examples=64,
        model={"width": 64, "mlp": 2},
        train={"batch": 16, "steps": 500, "warmup": 50, "lr": 4e-3},
    )
    for field in ("length", "min_length"):  # follow the window
        config.train[field] = config.get_ref("window").identity()
    if quick:
        config.encoding.name = ",".join(names) or "nope,rope,alibi"
        config.update(tasks=config.tasks[:1], multiples=(1, 2), pool=1024, seeds=2)
        config.model.update(width=32)
        config.train.update(steps=60, warmup=10)
    return config
