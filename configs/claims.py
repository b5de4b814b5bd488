"""The claims ledger: 35 claims about positional encodings, each with a rule and a measurement.

    python train.py --config=configs/claims.py                 # all claims, 3 budgets, 5 seeds
    python train.py --config=configs/claims.py:sin-2,rope-1    # some claims
    python train.py --config=configs/claims.py:quick           # all claims, small models; 3 minutes
    python train.py --config=configs/claims.py --config.first_seed=5 --config.budgets=1,
    python scripts/claims.py RUN RUN...                        # docs/claims.md from runs' folders

Each claim on trained models is measured three times: with the steps of its trainings, with twice as
many, and with four times as many. Its verdict is that of all three, or "not decided at this
budget". A verdict that differs with other seeds, as of the fourth command, is not decided either.
The shared models take 1,200, 2,400 and 4,800 steps. `quick` trains smaller models for
fewer steps, once, with 3 seeds; there no claim on trained models is decided.
`text` configures the models that several claims share. Each claim configures its other models
itself, in experiments/claims. Trained models are kept in RUN/models, so a run that is interrupted
goes on with what is missing.
"""

from configs import common

FULL = {
    "task": {"name": "stdlib", "stretch": 32768},
    "model": {"width": 64},
    "train": {"length": 64, "steps": 1200, "warmup": 50, "chunk": 50},
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
        scale="quick" if quick else "full",
        budgets=(1,) if quick else (1, 2, 4),
        text=QUICK if quick else FULL,
        seeds=3 if quick else 5,
    )
