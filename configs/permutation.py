"""Which methods make a model see order: pairs, triples, permutations and real text.

    python train.py --config=configs/permutation.py                  # the whole catalogue
    python train.py --config=configs/permutation.py:nope,rope,alibi  # some methods
    python train.py --config=configs/permutation.py:quick            # four methods, a few seconds

Expect `nope` in an encoder at exactly one half of the pairs and one sixth of the triples, a causal
mask or an LSTM at 1, and the encodings at 1 except those whose bias is the same for i - j and
j - i, as ALiBi's for an encoder is: it has the distance without the direction. On hidden bytes
`nope` stays near the unigram.

Takes under 3 minutes on 2 cores, most of it compiling a program or two for each method.
"""

from configs import common
from posenc_jax.encodings import CATALOG

QUICK = ("nope", "sinusoidal", "rope", "alibi")


def get_config(argument=""):
    names, quick = common.words(argument)
    chosen = names or (QUICK if quick else CATALOG)
    wanted = [name for name in ("nope", "rope", "alibi") if name in chosen]
    config = common.config(
        "permutation",
        encoding={"name": ",".join(chosen)},
        model={"kind": "encoder", "width": 32, "layers": 1, "mlp": 2},
        order={"symbols": 3, "steps": 180, "lr": 1e-2},
        equivariance={
            "lengths": (2, 32, 512),
            "permutations": 2,
            "float64": (*wanted, "nope, causal mask", "lstm"),
        },
        text={
            "encoding": {"name": "nope,sinusoidal,rope"},
            "task": {"name": "stdlib", "masked": 0.15, "stretch": 16384},
            "model": {"kind": "encoder", "width": 64},
            "train": {"length": 16, "steps": 240, "chunk": 80},
            "eval": {"lengths": (16,)},
        },
    )
    if quick:
        config.equivariance.lengths = (2, 8)
        config.text.encoding.name = "nope,rope"
        config.text.model.update(width=32, layers=1)
        config.text.train.update(batch=16, steps=40)
        config.seeds = 2
    return config
