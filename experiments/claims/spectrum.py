"""Claims about sinusoidal wavelengths: aliasing, shifts as rotations, slow channels."""

import numpy as np

from experiments.claims.figures import lines
from experiments.claims.ledger import Curve, Measured, claim, verdict
from experiments.claims.models import Lab
from experiments.claims.sinusoidal import ROUNDING, apart, frequencies, nearest, vectors

BASES, NARROW = (1e1, 1e2, 1e3, 1e4, 1e5, 1e6), (2, 4, 8, 16, 32, 64, 128)
FAR = 10.0  # longest wavelengths that are searched
PIECE = 1 << 20  # distances searched at once
LENGTHS = (32, 64, 128, 256, 512, 1024, 2048)


def sin_4_rule(n):
    """A distance aliases if its vector is nearer to that of distance 0 than the vector of distance
    1 is: the far token then looks like a neighbour. The claim holds if, at every base, the first
    alias lies between half of the longest wavelength (up to there that wavelength distinguishes all
    distances) and 10 times the longest wavelength. The verdict names the widths for which this is
    true.
    """
    first = {
        d: [n[f"first alias / longest wavelength, d = {d}, base {b:g}"] for b in BASES]
        for d in NARROW
    }
    aliasing = [d for d in NARROW if all(i.over(0.5) and i.under(FAR) for i in first[d])]
    some = [d for d in NARROW if any(i.over(0.5) and i.under(FAR) for i in first[d])]
    reason = (
        f"of {len(NARROW)} widths {len(aliasing)} have an alias within {FAR:.0f} longest "
        "wavelengths at every base, and "
        + ("no other at any base" if some == aliasing else "others at some bases")
    )
    condition = f"d is {' or '.join(map(str, aliasing))}" if len(aliasing) < len(NARROW) else ""
    return verdict(bool(aliasing), reason, condition)


@claim(
    "beyond the longest wavelength distances alias",
    rule=sin_4_rule,
    figure=lines(
        "Does a far position pass for a near one?", "distance (longest wavelengths)",
        "|PE(t) - PE(u)| / |PE - PE of the next|", log_x=True, log_y=True,
        below="base 100 · below 1 a far vector is nearer than the next position's",
        levels={"the next": 1.0},
    ),
)  # fmt: skip
def sin_4(lab: Lab) -> Measured:
    """For widths 2 to 128 and bases 10 to 1e6, the first distance from 2 on, in longest
    wavelengths, whose vector is nearer to PE(0) than PE(1) is; all distances up to 10 longest
    wavelengths are tried. 10 means that there is no such distance.
    """
    numbers, curves = {}, {}
    for d in NARROW:
        for base in BASES:
            wave = 2 * np.pi / frequencies(d, base).min()
            first = min(first_alias(frequencies(d, base), int(FAR * wave)) / wave, FAR)
            numbers[f"first alias / longest wavelength, d = {d}, base {base:g}"] = [first]
            if base == 100 and d in (4, 8, 16, 64):
                distance_T = np.arange(1, int(FAR * wave) + 2)
                apart_T = apart(distance_T, d, base)
                x_T, y_ST = nearest(distance_T, apart_T / apart_T[0])
                curves[f"d = {d}"] = Curve(np.asarray(x_T) / wave, y_ST)
    return Measured(numbers, curves)


def first_alias(freq_K: np.ndarray, most: int) -> float:
    """The first distance from 2 to `most` whose vector is nearer to that of 0 than that of 1 is;
    infinite if there is none.

    The squared distance is a sum over pairs, each 0 or more: a distance is dropped at the first
    pair, slow ones first, at which the sum is too large.
    """
    limit = np.sum(1 - np.cos(freq_K)) * (1 - ROUNDING)
    for start in range(2, most + 1, PIECE):
        left_T = np.arange(start, min(start + PIECE, most + 1), dtype=np.float64)
        total_T = np.zeros(len(left_T))
        for freq in np.sort(freq_K):
            total_T += 1 - np.cos(freq * left_T)
            near_T = total_T < limit
            left_T, total_T = left_T[near_T], total_T[near_T]
        if len(left_T):
            return float(left_T[0])
    return np.inf


def sin_5_rule(n):
    """The rotation by k w in each pair takes PE(t) to PE(t + k) with an error under 1e-9 of |PE|
    over all t to 1e6. For a random table, the control, the best map by least squares must have an
    error of 10% or more.
    """
    error, control = n["error of the rotation"], n["error of the best map, random table (control)"]
    return verdict(
        error.under(ROUNDING) and control.over(0.1),
        f"one rotation takes PE(t) to PE(t + k) with an error of {error} of |PE|; the best linear "
        f"map of a random table misses by {control}",
    )


@claim("PE(t + k) is a linear function of PE(t)", rule=sin_5_rule)
def sin_5(lab: Lab) -> Measured:
    """Largest |R_k PE(t) - PE(t + k)| over |PE|, d = 64, for k = 1, 10, 1000 and 1,000 positions t
    to 1e6, R_k turning each pair by k times its frequency. Control: for a Gaussian table of 512
    rows, the root mean square error of the least squares map from row t to row t + 1.
    """
    width = 64
    pos_T = np.unique(np.geomspace(1, 1e6, 1000).astype(int))
    pair_TK2 = vectors(pos_T, width).reshape(len(pos_T), -1, 2)
    error = 0.0
    for k in (1, 10, 1000):
        sin, cos = np.sin(k * frequencies(width)), np.cos(k * frequencies(width))
        a, b = pair_TK2[..., 0], pair_TK2[..., 1]
        turned = np.stack([a * cos + b * sin, b * cos - a * sin], axis=-1)
        miss = turned.reshape(len(pos_T), -1) - vectors(pos_T + k, width)
        error = max(error, np.linalg.norm(miss, axis=1).max() / np.sqrt(width / 2))
    missed = {"error of the best map, random table (control)": [*map(_best_map, lab.seeds)]}
    return Measured({"error of the rotation": [error]} | missed)


def _best_map(seed: int) -> float:
    """The error of the linear map that takes each row of a random table to the next, at best."""
    table_TD = np.random.default_rng(seed).normal(size=(512, 64))
    now_TD, next_TD = table_TD[:-1], table_TD[1:]
    fitted = now_TD @ np.linalg.lstsq(now_TD, next_TD, rcond=None)[0]
    return float(np.sqrt(np.mean((fitted - next_TD) ** 2)))


def sin_6_rule(n):
    """A channel looks constant if it changes by less than 5% of its range of 2 over the sequence.
    The high channels are the last quarter. The claim holds without a condition if it is true up to
    512 tokens; if it is true up to 32 tokens or more, the verdict says how many. The first quarter,
    the control, must not look constant at 32 tokens.
    """
    last = {L: n[f"constant in the last quarter, {L} tokens"] for L in LENGTHS}
    constant = [L for L, share in last.items() if share.over(0.999)]
    first = n["constant in the first quarter, 32 tokens (control)"]
    reason = (
        f"the share of the last quarter of channels that looks constant is {last[min(LENGTHS)]} "
        f"over the shortest sequence and {last[max(LENGTHS)]} over the longest; of the first "
        f"quarter {first} over the shortest"
    )
    if not constant or not first.under(0.001):
        return verdict(False, reason)
    most = max(constant)
    return verdict(True, reason, "" if most >= 512 else f"the sequence has at most {most} tokens")


@claim(
    "high channels look constant over short sequences",
    rule=sin_6_rule,
    figure=lines(
        "How much each channel moves over a sequence", "channel of 512", "range covered (of 2)",
        below="sines of each pair", levels={"looks constant below": 0.1},
    ),
)  # fmt: skip
def sin_6(lab: Lab) -> Measured:
    """d = 512: the range that each channel covers over positions 0 to n - 1, and the share of the
    last quarter of channels that covers less than 5% of 2.
    """
    width, numbers, curves = 512, {}, {}
    code_TD = vectors(np.arange(max(LENGTHS)), width)
    for n in LENGTHS:
        moved_D = np.ptp(code_TD[:n], axis=0)
        still_4D = np.split(moved_D < 0.1, 4)
        numbers[f"constant in the last quarter, {n} tokens"] = [still_4D[-1].mean()]
        if n == 32:
            numbers["constant in the first quarter, 32 tokens (control)"] = [still_4D[0].mean()]
        if n in (32, 128, 512, 2048):
            curves[f"{n} tokens"] = Curve(np.arange(0, width, 4), [moved_D[::4]])
    return Measured(numbers, curves)
