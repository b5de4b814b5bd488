"""What three papers claim of sinks, massive values and the middle, fixed before any run.

    sinks    Gu et al. 2024 (arXiv 2410.10781): with any positional encoding, or none, heads that
             attend to the first token whatever it is emerge in training; there are none before.
    massive  Jin et al. 2025 (arXiv 2502.01563): rotation makes a few channels of queries and keys
             massive, not of values; they are in the half of the pairs that turn slowly; models
             without rotation have none.
    middle   Chowdhury 2026 (arXiv 2603.10123): before training the last token depends more on the
             beginning and the end of a window than on its middle; this is the same with and without
             rotation, and training does not remove it.

Each prediction has two bounds: a number beyond the one is as claimed, beyond the other it refutes
the claim, and between them nothing is decided. A run records `fingerprint` before its first
training. The numbers are measured in `probes.py`.
"""

import inspect
import json
from collections.abc import Sequence
from hashlib import sha256
from typing import Literal, NamedTuple

import numpy as np

from posenc_jax import encodings

SINK = 0.3  # a head has a sink if its mean attention to the first token is above this
SINK_TOKENS, SEQUENCES = 64, 100  # tokens of a sequence, and sequences, as Gu et al. have them
MASSIVE = 5.0  # a channel is massive if its norm is above so many times the mean over channels
LEAST = 10  # massive values of which a share is formed, in all heads together
TEXTS = 32  # windows of the trained length in which massive values and influence are measured
DIRECTIONS = 8  # random directions in the last hidden state, see `probes.influence`
BINS = 32  # ranges of positions of equal width, at most

Number = Literal[
    "sinks in text", "sinks in random tokens", "massive in q and k", "massive in v",
    "slow pairs' share", "ends over middle", "factor from nope",
]  # fmt: skip
Kind = Literal["all", "rotary", "others"]


class Prediction(NamedTuple):
    """A number of all methods of a kind, before or after training.

    kind:    "rotary": those that rotate queries and keys; "others": those that do not.
    holds:   a number beyond this bound, on the side away from `refuted`, is as claimed.
    refuted: a number beyond this bound, on the side away from `holds`, refutes the claim.
    """

    number: Number
    trained: bool
    kind: Kind
    holds: float
    refuted: float


PREDICTIONS = (
    Prediction("sinks in text", False, "all", holds=0.01, refuted=0.05),
    Prediction("sinks in text", True, "all", holds=0.05, refuted=0.01),
    Prediction("sinks in random tokens", True, "all", holds=0.05, refuted=0.01),
    Prediction("massive in q and k", True, "rotary", holds=0.5, refuted=0.25),
    Prediction("massive in v", True, "rotary", holds=0.25, refuted=0.5),
    Prediction("massive in q and k", True, "others", holds=0.25, refuted=0.5),
    Prediction("slow pairs' share", True, "rotary", holds=0.75, refuted=0.5),
    Prediction("ends over middle", False, "all", holds=1.1, refuted=1.0),
    Prediction("factor from nope", False, "rotary", holds=1.25, refuted=2.0),
    Prediction("ends over middle", True, "all", holds=1.1, refuted=1.0),
)
WORDS: dict[Number, str] = {
    "sinks in text": (
        f"share of heads whose mean attention to the first of {SINK_TOKENS} tokens of text is "
        f"above {SINK}"
    ),
    "sinks in random tokens": "the same of random tokens",
    "massive in q and k": (
        "channels of queries and keys for each head whose norm over tokens is above "
        f"{MASSIVE:g} times the mean over channels"
    ),
    "massive in v": "the same of values",
    "slow pairs' share": (
        f"share of the massive channels of queries and keys, if they are {LEAST} or more, in the "
        "half of the pairs that turn slowly"
    ),
    "ends over middle": (
        "influence on the last hidden state of the first or the last positions, the lesser of the "
        "two, over that of the middle half of the window"
    ),
    "factor from nope": (
        "the largest factor between the influence of a range of positions, as a share of that of "
        "all, and the same without positions"
    ),
}


def is_of(kind: Kind, method: str) -> bool:
    """Whether a method, or a chain of methods, is of a kind."""
    rotates = any(card.kind == "rotary" for card in encodings.cards(method))
    return kind == "all" or rotates == (kind == "rotary")


def outcome(
    prediction: Prediction, number: float
) -> Literal["as claimed", "refuted", "not decided"]:
    """What a number says of the claim."""
    sign = 1 if prediction.holds > prediction.refuted else -1
    if sign * (number - prediction.holds) > 0:
        return "as claimed"
    return "refuted" if sign * (number - prediction.refuted) < 0 else "not decided"


def ends_over_middle(influence_P: Sequence[float]) -> float:
    """The influence of the first or the last range, the lesser, over the mean of the middle half of
    the ranges, which are of equal width and from the beginning of the window to its end.
    """
    count = len(influence_P)
    middle = np.mean(influence_P[count // 4 : count - count // 4])
    return float(min(influence_P[0], influence_P[-1]) / middle)


def largest_factor(influence_P: Sequence[float], other_P: Sequence[float]) -> float:
    """The largest factor between two curves by range, each divided by its mean: 1 or more."""
    logs = [np.log(np.asarray(x_P) / np.mean(x_P)) for x_P in (influence_P, other_P)]
    return float(np.exp(np.abs(logs[0] - logs[1]).max()))


def fingerprint() -> str:
    """The SHA-256 of the predictions, of how they are measured in words and settings, and of the
    rules that make numbers and outcomes.
    """
    settings = SINK, SINK_TOKENS, SEQUENCES, MASSIVE, LEAST, TEXTS, DIRECTIONS, BINS
    rules = [inspect.getsource(rule) for rule in (is_of, outcome, ends_over_middle, largest_factor)]
    fixed = [PREDICTIONS, WORDS, settings, rules]
    return sha256(json.dumps(fixed, sort_keys=True).encode()).hexdigest()
