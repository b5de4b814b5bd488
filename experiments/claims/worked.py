"""The claim that the worked examples of tutorials are right."""

from collections.abc import Callable

import jax
import numpy as np

from experiments.claims.figures import dots
from experiments.claims.ledger import Measured, claim, verdict
from experiments.claims.models import Lab
from experiments.claims.sinusoidal import vectors
from posenc_jax import Dims, frame, full, make

DIGIT = 1e-4  # one unit in the last printed place


def sine(pos: int, **options) -> Callable[[], np.ndarray]:
    return lambda: vectors(np.array([pos]), 4, **options)[0]


def slopes() -> np.ndarray:
    """ALiBi's bias for each step of distance, as a cost, for each of 8 heads."""
    encoding, dims = make("alibi"), Dims(64, 8, 8)
    params = encoding.init(jax.random.key(0), dims)
    bias_BHQK = frame(encoding, params, full(1, 2), dims).layer(0).bias()
    return -np.asarray(bias_BHQK, np.float64)[0, :, 1, 0]


# The printed numbers, as found in public notes, courses and repositories in November 2026, and a
# function that computes them with the catalogue.
EXAMPLES = {
    "sines, t = 1, d = 4": ((0.8415, 0.5403, 0.0100, 1.0000), sine(1)),
    "sines, t = 2, d = 4": ((0.9093, -0.4161, 0.0200, 0.9998), sine(2)),
    "sines, t = 3, d = 4": ((0.1411, -0.9900, 0.0300, 0.9996), sine(3)),
    "PE(0).PE(1), d = 4": ((1.5403,), lambda: np.array([sine(0)() @ sine(1)()])),
    "sines, t = 1, d = 4, swapped": ((0.8415, 0.5403, 0.9950, 0.0998), sine(1)),
    "sines, t = 1, d = 4, of base 100": ((0.8415, 0.5403, 0.0998, 0.9950), sine(1)),
    "the same, base 100 stated": ((0.8415, 0.5403, 0.0998, 0.9950), sine(1, base=100.0)),
    "ALiBi slopes, 2^(-8h/H), h from 1": (tuple(2.0**-h for h in range(1, 9)), slopes),
    "ALiBi slopes, 2^(-8h/H), h from 0": (tuple(2.0**-h for h in range(8)), slopes),
    "ALiBi slopes, 2^(-8/h)": (tuple(2.0 ** (-8 / h) for h in range(1, 9)), slopes),
}


def num_1_rule(n):
    """Right: no number is wrong by more than one unit in its last printed place, so that rounded
    and truncated numbers both pass. All examples must be right. The vector for t = 1, d = 4
    recomputed by hand, (0.8415, 0.5403, 0.0100, 0.99995), is the control and must pass.
    """
    by_hand = n["units in the last place, by hand (control)"]
    if by_hand.over(1):
        return verdict(False, f"the check itself is off by {by_hand} units in the last place")
    off = {name: n[f"units in the last place, {name}"] for name in EXAMPLES}
    wrong = [name for name, units in off.items() if not units.under(1)]
    reason = f"{len(off) - len(wrong)} of {len(off)} examples are right"
    if wrong:
        listed = "; ".join(f"{name} (by {off[name]} units)" for name in wrong)
        reason += f"; off in the last printed place: {listed}"
    return verdict(not wrong, reason)


@claim(
    "the worked examples that circulate are right",
    rule=num_1_rule,
    figure=dots("Worked examples", "error (units in the last printed place)", "units", log=True),
)
def num_1(lab: Lab) -> Measured:
    """Ten worked examples found in public notes, courses and repositories, recomputed with the
    catalogue in float64: the largest error in units of the last printed place. "Base 100" is an
    example made for that base, often repeated beside the formula with 10000; "swapped" is the same
    with its last two numbers exchanged; 2^(-8/h) and h from 0 are ALiBi's formula misprinted.
    """
    by_hand = (0.8415, 0.5403, 0.0100, 0.99995), sine(1)
    numbers = {f"units in the last place, {name}": [error(*e)] for name, e in EXAMPLES.items()}
    return Measured(numbers | {"units in the last place, by hand (control)": [error(*by_hand)]})


def error(printed: tuple[float, ...], compute: Callable[[], np.ndarray]) -> float:
    """The largest error in units of the last place; at least 0.01, for the log axis."""
    return max(float(np.abs(np.array(printed) - compute()).max() / DIGIT), 0.01)
