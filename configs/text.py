r"""Encodings on text: bits per byte by length, what more context is worth, recall, sinks.

    python scripts/prepare_tokens.py TEXT --tokenizer=bpe:8192 --out=FOLDER
    python scripts/sweep.py --config=configs/text.py --config.task.name=tokens:$PWD/FOLDER
    python scripts/experiment_page.py runs/sweeps/text    # the page in docs/

    python train.py --config=configs/text.py:rope,alibi   # on the standard library
    python train.py --config=configs/text.py:quick        # under a minute

The model and its training are those of `configs/lm.py:6m` (6 layers of width 256, windows of 512
tokens), on 30M tokens: 3,700 steps of 8,192. The weights then read windows of 512 to 8,192 tokens;
the same last 256 tokens with 512 to 8,192 tokens of context; and spans of 16 tokens whose first 4
tell the rest, if they were read before, beside spans that were not. What three papers claim of
attention sinks, massive values and the influence of the middle is measured before and after
training; the predictions are fixed in experiments/compare/text/predictions.py.

A sweep runs, in this order, six encodings with one seed, two more seeds of rope and of nope, then
t5 and fox with one; started again, it runs what is missing. An encoding with one seed is shown, and
no difference between it and another is called decided. Options of the methods are those that suit
the window (experiments/method_options.py). Products are in float32, as in `configs/lm.py:6m`.

The standard library has 8 documents of more than 8,192 tokens in a split, so its tests of context
and recall tell little; a larger text of your own (docs/tokens.md) has more.
"""

from configs import common, lm
from posenc_jax.lab.config import sweeps

DEFAULT = ("rope",)
SIZE = lm.SIZES["6m"]._replace(steps=3700)
FIRST = (
    {"encoding.name": "rope"},
    {"encoding.name": "rope", "encoding.base": 1e5},
    {"encoding.name": "partial", "encoding.share": 0.25},
    {"encoding.name": "nope"},
    {"encoding.name": "alibi"},
    {"encoding.name": "kerple_log"},
)
AGAIN = ("rope", "nope")  # with seeds 1 and 2
LAST = ("t5", "fox")


def get_config(argument=""):
    names, quick = common.words(argument)
    config = lm.sized(
        "text",
        SIZE,
        options="setting",
        encoding={"name": ",".join(names or DEFAULT)},
        eval={"lengths": tuple(SIZE.window * times for times in (1, 2, 4, 8, 16))},
    )
    if quick:
        lm.smallest(config)
        config.train.update(length=64, min_length=64)
        config.eval.lengths = (64, 256, 512)
        config.documents = 8
    return config


def get_sweep(argument=""):
    one_seed = {"first_seed": 0, "seeds": 1}
    return (
        *sweeps.product(FIRST, (one_seed,)),
        *sweeps.product(sweeps.grid({"encoding.name": AGAIN}), ({"first_seed": 1, "seeds": 2},)),
        *sweeps.product(sweeps.grid({"encoding.name": LAST}), (one_seed,)),
    )
