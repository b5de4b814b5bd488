"""What padding changes in the outputs and the loss, with each of the 8 subsets of three masks.

    python train.py --config=configs/padding_leakage.py                # well-known methods
    python train.py --config=configs/padding_leakage.py:all            # every method of sequences
    python train.py --config=configs/padding_leakage.py:rope,alibi     # these
    python train.py --config=configs/padding_leakage.py:quick          # rope and alibi, in seconds
    python scripts/experiment_page.py RUN                              # docs/padding_leakage.md
    python train.py --config=configs/padding_leakage.py --config.model.kind=decoder
    python train.py --config=configs/padding_leakage.py --config.model.checkpoint=all-MiniLM-L6-v2

Expect the attention mask to be necessary for everything, the output mask only for the pooled
output, and the loss mask for a loss that does not depend on the amount of padding. With all masks
on, the content of the padding changes no bit.

With a checkpoint, a folder of Hugging Face with an encoder, its vectors of sentences are measured,
and nothing is trained; see `configs/permutation.py`. Expect no change with both masks, and a vector
that turns by 40 degrees and more without one of them. The page is made of both runs.

`all` leaves out methods with positions of several axes; the page is of the others. The model has
one layer; the claim pad-2 of `configs/claims.py` measures what a second layer reads of what padding
has taken in.

Takes 1 to 2 minutes on 2 cores, with `all` 5, with a checkpoint half a minute; about half of the
time is compilation, two programs for each method. A run that was interrupted goes on with the
missing methods.
"""

from configs import common

QUICK = ("rope", "alibi")
DEFAULT = (
    *("nope", "sinusoidal", "learned", "randomized", "rope", "xpos", "ntk", "yarn", "longrope"),
    *("t5", "alibi", "kerple_log", "fire", "window", "shaw", "transformer_xl", "deberta", "cope"),
    *("fox", "stick_breaking", "path"),
)


def get_config(argument=""):
    names, quick = common.words(argument)
    config = common.config(
        "padding_leakage",
        encoding={"name": ",".join(names or (QUICK if quick else DEFAULT))},
        model={"kind": "encoder", "width": 32, "layers": 1, "mlp": 2},
        data={
            "symbols": 6,
            "min_length": 8,
            "length": 16,
            "measured": 12,
            "amounts": (4, 12),
            "sides": ("left", "right"),
            "examples": 8,
        },
        learning={"steps": 100, "batch": 8, "lr": 1e-2},
    )
    if quick:
        config.learning.update(steps=30)
        config.data.update(sides=("left",))
        config.seeds = 2
    return config
