"""Changes that range over powers of ten, as logarithms: so they have intervals that make sense."""

import numpy as np

from experiments.claims.ledger import Values
from posenc_jax.lab.report.statistics import Interval

NONE = -9.0  # stands for no change at all


def decades(change: Values) -> np.ndarray:
    """Log10 of changes; NONE for 0, and for what is smaller than 1e-9."""
    return np.log10(np.maximum(np.asarray(change, np.float64), 10**NONE))


def unchanged(number: Interval) -> bool:
    """Whether there was no change in any seed."""
    return number.mean == NONE


def power(number: Interval) -> str:
    """ "none", "0.00012", "4.2": the change whose mean logarithm this is."""
    return "none" if unchanged(number) else f"{10**number.mean:.2g}"
