"""The claims ledger: 33 things that are said of positional encodings, each measured.

    python train.py --config=configs/claims.py                 # all of them, 5 seeds
    python train.py --config=configs/claims.py:sin-2,rope-1    # some
    python train.py --config=configs/claims.py:quick           # all, small
    python scripts/claims.py RUN                               # docs/claims.md from a run's folder

`quick` trains shorter, on smaller models and 3 seeds: a claim that needs a well-trained model may
come out otherwise there. `text` is of the models that claims share; what trains on a task of its
own says so in experiments/claims.
"""

from ml_collections import ConfigDict

from configs import common


def get_config(argument=""):
    ids, quick = common.words(argument)
    base = common.length_extrapolation()
    config = ConfigDict(
        {
            "experiment": "claims",
            "claims": ",".join(ids) or "all",
            "budget": "quick" if quick else "full",
            "text": {"task": base.task, "model": base.model, "train": base.train},
            "seeds": 3 if quick else 5,
            "first_seed": 0,
            "wandb": base.wandb,
        }
    )
    if quick:
        config.text.task.update(stretch=8192)
        config.text.model.update(width=32, layers=1)
        config.text.train.update(length=32, min_length=32, batch=16, steps=120, warmup=15, chunk=40)
    else:
        config.text.model.update(width=64)
        config.text.train.update(length=64, min_length=64, batch=32, steps=600, warmup=50, chunk=50)
    return config
