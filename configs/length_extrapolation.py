r"""The well-known methods to 16 times their trained length, at a budget where training has ended.

    for data in text copy reverse passkey; do
        python scripts/sweep.py --config=configs/length_extrapolation.py:$data
    done
    python scripts/experiment_page.py runs/sweeps/length_extrapolation-*   # the page in docs/

    python scripts/sweep.py --config=configs/length_extrapolation.py:copy,quick   # minutes
    python train.py --config=configs/length_extrapolation.py:copy                 # rope alone

Text is trained in windows of 64 bytes and tested to 1,024, a task on up to 16 symbols and tested to
256. Each method is a run of 3 seeds. RoPE's weights are also read as pi, ntk, dynamic_ntk and yarn;
`learned` repeats its last trained row. rope, alibi and nope are trained again for twice the steps,
as are three methods that reverse in part: where the page shows no change, the budget was enough. A
sweep started again runs what is missing.
"""

from typing import NamedTuple

from configs import common
from posenc_jax.lab.config import sweeps
from posenc_jax.options import FieldError, choices_for

READINGS = ("rope", "pi", "ntk", "dynamic_ntk", "yarn")
METHODS = (
    "nope", "sinusoidal", "shaw", "t5", "alibi", "kerple_log", "fire", "xpos", "randomized+rope",
    "cope", "fox",
)  # fmt: skip


class Data(NamedTuple):
    """The trained length of a text or task, its longest input in tokens, the training steps, and
    the methods that are trained again for twice the steps.
    """

    length: int
    tokens: int
    steps: int
    again: tuple[str, ...] = ("rope", "alibi", "nope")


DATA = {
    "text": Data(64, 64, 20_000),
    "copy": Data(16, 34, 8_000),
    "reverse": Data(16, 34, 8_000, ("rope", "alibi", "nope", "t5", "cope", "fox")),
    "passkey": Data(16, 30, 8_000),
}


def get_config(argument=""):
    name, quick = _data(argument)
    length = DATA[name].length
    text = {"name": "stdlib", "stretch": 32768}
    config = common.config(
        "length_extrapolation",
        options="setting",
        encoding={"name": "rope"},
        task=text if name == "text" else {"name": name},
        model={"width": 64},
        train={
            "length": length,
            "min_length": length if name == "text" else 1,
            "batch": 32 if name == "text" else 64,
            "steps": DATA[name].steps,
            "lr": 3e-3 if name == "text" else 2e-3,
            "warmup": 200,
            "chunk": 100,
        },
        eval={"lengths": tuple(length * times for times in (1, 2, 4, 8, 16))},
    )
    if quick:
        config.model.update(width=32, layers=1)
        config.train.update(batch=16, steps=60, warmup=10, chunk=20)
        config.eval.update(lengths=(length, 2 * length), examples=32)
        config.seeds = 2
    return config


def get_sweep(argument=""):
    name, quick = _data(argument)
    steps = get_config(argument).to_dict()["train"]["steps"]
    learned = {"encoding.length": DATA[name].tokens, "encoding.beyond": "clamp"}
    points = (
        {"encoding.name": "rope", "eval.variants": READINGS},
        *sweeps.grid({"encoding.name": ("nope", "alibi") if quick else METHODS}),
        {"encoding.name": "learned", **learned},
    )
    doubled = {"encoding.name": DATA[name].again, "train.steps": (2 * steps,)}
    return points + sweeps.grid(doubled)


def _data(argument):
    """The data that the argument names, "text" by default, and whether it says quick."""
    names, quick = common.words(argument)
    name = names[0] if names else "text"
    if len(names) > 1 or name not in DATA:
        raise FieldError("--config", f"argument {argument!r}{choices_for(name, DATA)}")
    return name, quick
