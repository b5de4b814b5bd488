"""What tells order: every method of the catalogue on pairs, triples, permutations and real text.

    python train.py --config=configs/permutation.py                  # the whole catalogue
    python train.py --config=configs/permutation.py:nope,rope,alibi  # some methods
    python train.py --config=configs/permutation.py:quick            # a few, no more than seconds

Expect `nope` in an encoder at exactly one half of the pairs and one sixth of the triples, a causal
mask or an LSTM at 1, and the encodings at 1 except those whose bias is the same for i - j and
j - i, as ALiBi's for an encoder is: they tell how far, not which way. On hidden bytes `nope`
stays near the unigram.

Takes under 3 minutes on 2 cores, most of it compiling a program or two for each method.
"""

from ml_collections import ConfigDict

from configs import common
from posenc_jax.encodings import CATALOG

QUICK = ("nope", "sinusoidal", "rope", "alibi")


def get_config(argument=""):
    names, quick = common.words(argument)
    base = common.length_extrapolation()
    config = ConfigDict(
        {
            "experiment": "permutation",
            "encoding": {"name": ",".join(names or (QUICK if quick else CATALOG))},
            "model": {**base.model.to_dict(), "kind": "encoder"},
            "order": {"symbols": 3, "steps": 180, "lr": 1e-2},
            "equivariance": {
                "lengths": (2, 32, 512),
                "permutations": 2,
                "float64": ("nope, causal mask", "lstm"),
            },
            "text": {
                "encoding": {"name": "nope,sinusoidal,rope"},
                "task": {"name": "stdlib", "masked": 0.15, "stretch": 16384},
                "model": {**base.model.to_dict(), "kind": "encoder"},
                "train": base.train.to_dict(),
                "eval": base.eval.to_dict(),
            },
            "seeds": 3,
            "first_seed": 0,
            "wandb": base.wandb.to_dict(),
        }
    )
    config.model.update(width=32, layers=1, mlp=2)
    config.text.model.update(width=64)
    config.text.train.update(length=16, min_length=16, batch=32, steps=240, chunk=80)
    config.text.eval.lengths = (16,)
    wanted = [n for n in ("nope", "rope", "alibi") if n in config.encoding.name.split(",")]
    config.equivariance.float64 = (*wanted, *config.equivariance.float64)
    if quick:
        config.equivariance.update(lengths=(2, 8), permutations=2)
        config.text.encoding.name = "nope,rope"
        config.text.model.update(width=32, layers=1)
        config.text.train.update(length=16, min_length=16, batch=16, steps=40)
        config.text.eval.lengths = (16,)
        config.seeds = 2
    return config
