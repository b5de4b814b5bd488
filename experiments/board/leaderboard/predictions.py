"""What theory predicts for each problem and kind of method, fixed before anything is measured.

The theory is that of C-RASP (Huang et al. 2024, arXiv 2410.02140; Jobanputra et al. 2025, arXiv
2505.21785; Yang & Chiang 2024, arXiv 2404.04393): what it expresses carries to longer lines.
Distinct symbols can be copied, reversed and recalled by content alone; strings of bits cannot be
copied nor reversed, and parity is not expressible. The value of the first of several equal keys is
expressible, as an earlier equal key can be counted; that of the last one, of which flip-flop is a
case, is not (theorem 1 of Jobanputra et al., for models without positions or with absolute ones).
A bias that decays, or a gate, tells the last one by its distance, which the theory does not cover.

A prediction is about g at four times the trained window, the mean over the methods of a kind:
0 at the floor, 1 where all is right, see `content_rules.above_floor`. A run records `fingerprint`
before its first training.
"""

import inspect
import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Literal, NamedTuple

from experiments.board.leaderboard.problems import PROBLEMS

MULTIPLE = 4  # of the trained window

# Kinds of methods, by names of rows of the board. A method that is nowhere has no prediction.
KINDS: dict[str, tuple[str, ...]] = {
    "none": ("nope",),
    "absolute": ("sinusoidal", "learned", "index", "fourier", "binary", "one_hot", "rbf"),
    "random offsets": ("shifted+learned", "randomized+learned"),
    "decaying bias": ("alibi", "kerple_log", "kerple_power", "sandwich"),
    "tables": ("t5", "shaw", "clipped", "deberta", "transformer_xl", "content_bias"),
    "rope": ("rope",),
    # Its slowest pair turns once in the trained window, so no angle of a longer one is new.
    "rope, all angles trained": ("rope, base 14.2",),
    "gates": ("fox", "fox_rows", "stick_breaking"),
    "path": ("path",),
}


class Prediction(NamedTuple):
    """g of the methods of a kind on a problem is above `low` and below `high`.

    test: which test of the problem, "" the one as in training.
    """

    problem: str
    kind: str
    low: float = -1.0
    high: float = 1.01
    test: str = ""


FLOOR = 0.1  # "at the floor": g below this
EXPRESSIBLE = ("copy_distinct", "reverse_distinct", "recall_distinct")
PREDICTIONS: tuple[Prediction, ...] = (
    *(
        prediction
        for problem in EXPRESSIBLE
        for prediction in (
            Prediction(problem, "absolute", high=0.2),
            Prediction(problem, "random offsets", low=0.9),
            Prediction(problem, "decaying bias", low=0.9),
            Prediction(problem, "tables", low=0.6),
            Prediction(problem, "rope", high=0.5),
            Prediction(problem, "rope, all angles trained", low=0.7),
            Prediction(problem, "gates", low=0.7),
        )
    ),
    Prediction("copy_distinct", "none", high=0.2),
    Prediction("reverse_distinct", "none", high=0.2),
    Prediction("recall_distinct", "none", low=0.3, high=0.7),
    Prediction("copy_distinct", "path", low=0.4, high=0.9),
    Prediction("reverse_distinct", "path", low=0.9),
    Prediction("recall_distinct", "path", low=0.4, high=0.9),
    *(
        Prediction(problem, kind, high=FLOOR)
        for problem in ("copy_bits", "reverse_bits", "parity")
        for kind in KINDS
        if (problem, kind) not in (("parity", "path"), ("reverse_bits", "path"))
    ),
    Prediction("parity", "path", low=0.8),
    # More would refute that path reverses by content.
    Prediction("reverse_bits", "path", high=0.1),
    Prediction("delay8", "tables", low=0.9),
    Prediction("delay8", "rope", low=0.8),
    Prediction("delay8", "none", high=FLOOR),
    Prediction("delay8", "absolute", high=FLOOR),
    Prediction("delay8", "decaying bias", high=0.3),
    Prediction("recall_order", "decaying bias", high=0.5, test="first"),
    Prediction("recall_order", "tables", low=0.6, test="first"),
    Prediction("recall_order", "decaying bias", low=0.7, test="last"),
    Prediction("recall_order", "gates", low=0.7, test="last"),
    *(
        Prediction("recall_order", kind, high=0.5, test="last")
        for kind in ("none", "absolute", "tables", "rope")
    ),
    Prediction("flip_flop", "decaying bias", low=0.9),
    Prediction("flip_flop", "gates", low=0.9),
    *(Prediction("flip_flop", k, high=0.5) for k in ("none", "absolute", "tables", "rope", "path")),
    Prediction("count", "rope", high=FLOOR),
    Prediction("count", "absolute", high=FLOOR),
    *(Prediction("majority", kind, low=0.95) for kind in KINDS),
)
# Of problems whose last word is the best kind, not a bound.
BEST = {"count": "none"}


def outcome(prediction: Prediction, g: float) -> Literal["as predicted", "refuted"]:
    """Whether g, the mean over the methods of the kind and their seeds, is as predicted."""
    return "as predicted" if prediction.low < g < prediction.high else "refuted"


def fingerprint() -> str:
    """The SHA-256 of the problems, the kinds, the predictions and the rule of their outcome."""
    problems = {name: _plain(problem._asdict()) for name, problem in PROBLEMS.items()}
    fixed: list[Any] = [problems, KINDS, PREDICTIONS, BEST, MULTIPLE, inspect.getsource(outcome)]
    return sha256(json.dumps(fixed, sort_keys=True).encode()).hexdigest()


def _plain(value: Any) -> Any:
    """Mappings of any type as dictionaries."""
    if isinstance(value, Mapping):
        return {key: _plain(entry) for key, entry in value.items()}
    return value
