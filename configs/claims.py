"""The claims ledger: 33 claims about positional encodings, each measured.

    python train.py --config=configs/claims.py                 # all of them, 5 seeds
    python train.py --config=configs/claims.py:sin-2,rope-1    # some
    python train.py --config=configs/claims.py:quick           # all, small
    python scripts/claims.py RUN                               # docs/claims.md from a run's folder

`quick` trains smaller models for fewer steps, with 3 seeds: a claim that needs a well-trained model
may have another verdict there. `text` configures the models that claims share; the other models are
configured by their claims, in experiments/claims.
"""

from configs import common

FULL = {
    "task": {"name": "stdlib", "stretch": 32768},
    "model": {"width": 64},
    "train": {"length": 64, "steps": 600, "warmup": 50, "chunk": 50},
}
QUICK = {
    "task": {"name": "stdlib", "stretch": 8192},
    "model": {"width": 32, "layers": 1},
    "train": {"length": 32, "batch": 16, "steps": 120, "warmup": 15, "chunk": 40},
}


def get_config(argument=""):
    ids, quick = common.words(argument)
    return common.config(
        "claims",
        claims=",".join(ids) or "all",
        budget="quick" if quick else "full",
        text=QUICK if quick else FULL,
        seeds=3 if quick else 5,
    )
