"""The claim that the worked examples of tutorials are right."""

import jax
import numpy as np

from experiments.claims.figures import dots
from experiments.claims.ledger import Measured, claim, verdict
from experiments.claims.models import Lab
from experiments.claims.sinusoidal import vectors
from posenc_jax import Dims, frame, full, make

DIGIT = 1e-4  # one unit in the last printed place


def sine(pos: int, width: int = 4, base: float = 10_000.0) -> np.ndarray:
    """The catalogue's vector; for an odd width, which it does not have, by the same formula."""
    if width % 2 == 0:
        return vectors(np.array([pos]), width, base=base)[0]
    channel = np.arange(width)
    angle = pos * base ** (-2 * (channel // 2) / width)
    return np.where(channel % 2, np.cos(angle), np.sin(angle))


def slopes() -> np.ndarray:
    """ALiBi's bias for each step of distance, as a cost, for each of 8 heads."""
    encoding, dims = make("alibi"), Dims(64, 8, 8)
    params = encoding.init(jax.random.key(0), dims)
    bias_BHQK = frame(encoding, params, full(1, 2), dims).layer(0).bias()
    return -np.asarray(bias_BHQK, np.float64)[0, :, 1, 0]


# The printed numbers, as found in public notes, courses and repositories in November 2026: of
# vectors by (position, width, base), of ALiBi's slopes for 8 heads.
SINES = {
    "sin(1) = 0.001": ((0.001,), (1, 1, 1e4)),
    "sines, t = 1, d = 4": ((0.8415, 0.5403, 0.0100, 1.0000), (1, 4, 1e4)),
    "sines, t = 2, d = 4": ((0.9093, -0.4161, 0.0200, 0.9998), (2, 4, 1e4)),
    "sines, t = 3, d = 4": ((0.1411, -0.9900, 0.0300, 0.9996), (3, 4, 1e4)),
    "sines, t = 4, d = 4": ((-0.7568, -0.6536, 0.0400, 0.9992), (4, 4, 1e4)),
    "sines, t = 5, d = 4": ((-0.9589, 0.2837, 0.0500, 0.9988), (5, 4, 1e4)),
    "sines, t = 1, d = 4, swapped": ((0.8415, 0.5403, 0.9950, 0.0998), (1, 4, 1e4)),
    "sines, t = 1, d = 4, of base 100": ((0.8415, 0.5403, 0.0998, 0.9950), (1, 4, 1e4)),
    "the same, base 100 stated": ((0.8415, 0.5403, 0.0998, 0.9950), (1, 4, 1e2)),
    "sines, t = 1, d = 5, fifth 0": ((0.8415, 0.5403, 0.0251, 0.9997, 0.0000), (1, 5, 1e4)),
    "sines, t = 1, d = 5": ((0.8415, 0.5403, 0.0251, 0.9997, 0.0006), (1, 5, 1e4)),
}
SLOPES = {
    "ALiBi slopes, 2^(-8h/H), h from 1": tuple(2.0**-h for h in range(1, 9)),
    "ALiBi slopes, 2^(-8h/H), h from 0": tuple(2.0**-h for h in range(8)),
    "ALiBi slopes, 2^(-8/h)": tuple(2.0 ** (-8 / h) for h in range(1, 9)),
}
PRODUCT = "PE(0).PE(1), d = 4"  # printed as 1.5403
EXAMPLES = (*SINES, PRODUCT, *SLOPES)


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
        worst = max((off[name] for name in wrong), key=lambda units: units.mean)
        reason += f"; the worst is off by {worst} units in the last printed place"
    return verdict(not wrong, reason)


@claim(
    "the worked examples that circulate are right",
    rule=num_1_rule,
    figure=dots(
        "Worked examples",
        "error (units in the last printed place)",
        "units in the last place",
        log=True,
        levels={"right up to": 1.0},
    ),
)
def num_1(lab: Lab) -> Measured:
    """Fifteen worked examples found in public notes, courses and repositories, recomputed with the
    catalogue in float64: the largest error in units of the last printed place. "Base 100" is an
    example made for that base, often repeated beside the formula with 10000; "swapped" is the same
    with its last two numbers exchanged; "fifth 0" gives an odd width no fifth channel; 2^(-8/h) and
    h from 0 are ALiBi's formula misprinted.
    """
    off = {name: error(printed, sine(*of)) for name, (printed, of) in SINES.items()}
    off[PRODUCT] = error((1.5403,), np.array([sine(0) @ sine(1)]))
    off |= {name: error(printed, slopes()) for name, printed in SLOPES.items()}
    off["by hand (control)"] = error((0.8415, 0.5403, 0.0100, 0.99995), sine(1))
    return Measured({f"units in the last place, {name}": [units] for name, units in off.items()})


def error(printed: tuple[float, ...], computed: np.ndarray) -> float:
    """The largest error in units of the last place; at least 0.01, for the log axis."""
    return max(float(np.abs(np.array(printed) - computed).max() / DIGIT), 0.01)
