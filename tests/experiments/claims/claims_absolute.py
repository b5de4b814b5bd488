"""Numbers for which the rules of claims on order and absolute positions must give each verdict."""

import numpy as np

from experiments.claims.absolute import COMPARED, FEW
from experiments.claims.additive import LABELS
from experiments.claims.additive import WIDTHS as PROBED
from experiments.claims.nearness import BUMPS, GAINS
from experiments.claims.sinusoidal import WIDTHS
from experiments.claims.spectrum import BASES, LENGTHS, NARROW
from experiments.claims.worked import EXAMPLES


def waves(share):
    return {
        "smallest distance, d = 64": 0.26,
        "smallest distance, d = 2 (control)": 1e-5,
        "largest entry": 1.0,
        "spread of lengths": 1e-15,
    } | {f"longest wavelength / (10000 * 2 pi), d = {d}": share(d) for d in WIDTHS}


def shifts(change, control):
    return {
        "change under shifts": change,
        "difference from the sum of cosines": 1e-12,
        "change under shifts, random matrix between (control)": control,
    }


def turned(error, control):
    return {
        "error of the rotation": error,
        "error of the best map, random table (control)": control,
    }


def aliases(first):
    return {
        f"first alias / longest wavelength, d = {d}, base {b:g}": first(d)
        for d in NARROW
        for b in BASES
    }


def still(share, control=0.0):
    return {f"constant in the last quarter, {n} tokens": share(n) for n in LENGTHS} | {
        "constant in the first quarter, 32 tokens (control)": control
    }


def mixing(offset, both, paired):
    return {
        **{f"explained by t - u, {kind}": offset for kind in ("random", "trained")},
        **{f"explained by t - u and t + u, {kind}": both for kind in ("random", "trained")},
        "explained by t - u and t + u, random within pairs": paired,
        "explained by t - u, identity (control)": 1.0,
    }


def simple(**changes):
    ways = {"growth": 1.0, "step shrinks": 1.0, "jump": 1.0, "flatness": 0.2}
    own = {"index": "growth", "normalized": "step shrinks", "binary": "jump", "one_hot": "flatness"}
    actual = {}
    for name in (*own, "sinusoidal"):
        actual |= {f"{way}, {name}": value for way, value in ways.items()}
        if name in own:
            actual[f"{own[name]}, {name}"] = 2.0
    return actual | {"defined past the range, one_hot": 0.0} | changes


def table(lost, less, same=0.0, control=0.0):
    return {
        "clamped: bits lost at 4x": lost,
        "interpolated: bits lost at 4x": lost,
        "alibi: bits lost at 4x (control)": control,
        "clamped minus interpolated at 1x": same,
        "clamped minus interpolated at 4x": less,
    }


def kinds(fixed, text, control=2.0, above=0.01):
    return {
        "learned minus sinusoidal, DNA-like": fixed,
        "learned minus sinusoidal, prose": text,
        **{f"bits above the entropy, {m}, DNA-like": above for m in COMPARED},
        "bits that wrong positions cost, DNA-like (control)": control,
    }


def probes(accuracy, control=0.01):
    numbers = {"position from the token alone (control)": control}
    for d in PROBED:
        for what in LABELS:
            numbers[f"{what}, sum, d = {d}, ratio 1"] = accuracy(d)
            numbers[f"{what}, side by side, d = {d}"] = 1.0
    return numbers


def depth(additive, rotary, blind=0.0, own=0.3):
    return {
        "fall from first to last layer, sinusoidal": additive,
        "fall from first to last layer, rope": rotary,
        "difference of the falls": np.subtract(additive, rotary),
        "read at the last layer, rope minus nope": own,
        "read at layer 1, sinusoidal": 0.9,
        "read at layer 1, rope": 0.0,
        "read at layer 1, nope": blind,
    }


def near(soft, trained, alibi=1.9, control=0.0):
    numbers = {
        f"near score minus far, {name}, {state}": value
        for name in ("sinusoidal", "rope")
        for state, value in (("untrained", soft), ("trained", trained))
    }
    return numbers | {
        "near score minus far, alibi, untrained": alibi,
        "near score minus far, alibi, trained": alibi,
        "near score minus far, nope, untrained (control)": control,
    }


def gaussian(softmax, plain, control=0.4):
    return {
        **{f"softmax, bump {b:g}, gain {g}": softmax(g) for b in BUMPS for g in GAINS},
        **{f"no softmax, bump {b:g}": plain for b in BUMPS},
        "no softmax, random codes (control)": control,
    }


def worked(off, by_hand=0.5):
    numbers = {f"units in the last place, {name}": off for name in EXAMPLES}
    return numbers | {"units in the last place, by hand (control)": by_hand}


def permuted(exact, broken=3.0):
    return {
        "no positions, float64": exact,
        "no positions, float32": 1e-6,
        "sinusoidal, float32 (control)": broken,
        "sinusoidal, positions carried along": 1e-6,
    }


def pairs(half, control=1.0):
    return {
        "difference of (a, b) and (b, a), no positions": 1e-7,
        "accuracy, no positions": half,
        "accuracy, sinusoidal (control)": control,
        "accuracy, rope": 1.0,
        "accuracy, alibi": 0.5,
    }


def mask(pair, triple, control=0.5):
    rows = ("nope, causal mask", "lstm")
    return {
        **{f"pairs, {name}": pair for name in rows},
        **{f"triples, {name}": triple for name in rows},
        "pairs, no mask (control)": control,
    }


def saved(kept, bits=1.5):
    return {
        "share of the saving kept without positions": kept,
        "bits saved, sinusoidal": bits,
        "bits saved, no positions": 0.1,
    }


HOLDS, WHEN, NOT = "holds", "holds when", "does not hold"


# Rows of (numbers, the verdict's word) for each claim. A number is a value, or one for each seed.
# A control fails in the last rows of a claim.
def scarce(few, every, control=0.3):
    less = np.array([few] * 3 if np.ndim(few) == 0 else few)
    return {
        f"learned minus sinusoidal, {FEW[0] // 1024} KiB": less,
        "learned minus sinusoidal, all": every,
        "learned minus sinusoidal, smallest text minus all": less - every,
        "bits that wrong positions cost, smallest text (control)": control,
    }


def drowned(ten, hundred, small=0.0, control=0.3):
    cost = {10: ten, 100: hundred, 0.1: small}
    return {f"bits lost, positions {a} times as long as words": c for a, c in cost.items()} | {
        "bits that wrong positions cost, as long as words (control)": control
    }


RULES = {
    "order-1": [(permuted(1e-14), HOLDS), (permuted(1e-3), NOT), (permuted(1e-14, 1e-6), NOT)],
    "order-2": [(pairs([0.5] * 3), HOLDS), (pairs([0.5, 0.5, 0.6]), NOT), (pairs(0.5, 0.5), NOT)],
    "order-3": [
        (mask(1.0, 1.0), HOLDS),
        (mask(1.0, 0.5), WHEN),
        (mask(0.5, 0.2), NOT),
        (mask(1.0, 1.0, 1.0), NOT),
    ],
    "order-4": [
        (saved([0.1, 0.12, 0.1]), HOLDS),
        (saved([0.1, 0.9, 0.1]), NOT),
        (saved(0.1, 0.05), NOT),
    ],
    "sin-1": [
        (waves(lambda d: 0.999), HOLDS),
        (waves(lambda d: 10_000 ** (-2 / d)), WHEN),
        (waves(lambda d: 0.5), NOT),
        (waves(lambda d: 0.999) | {"smallest distance, d = 2 (control)": 0.5}, NOT),
    ],
    "sin-2": [
        (shifts(1e-12, [0.5, 0.4, 0.5]), HOLDS),
        (shifts(1e-3, 0.5), NOT),
        (shifts(1e-12, 1e-12), NOT),
    ],
    "sin-3": [
        (mixing(0.5, 0.999, 1.0), HOLDS),
        (mixing(0.2, 0.4, 1.0), WHEN),
        (mixing(1.0, 1.0, 1.0), NOT),
        (mixing(0.2, 0.4, 1.0) | {"explained by t - u, identity (control)": 0.9}, NOT),
    ],
    "sin-4": [
        (aliases(lambda d: 1.0), HOLDS),
        (aliases(lambda d: 1.0 if d <= 4 else 100.0), WHEN),
        (aliases(lambda d: 100.0), NOT),
        (aliases(lambda d: 0.1), NOT),
    ],
    "sin-5": [
        (turned(1e-11, 0.9), HOLDS),
        (turned(1e-3, 0.9), NOT),
        (turned(1e-11, 1e-11), NOT),
    ],
    "sin-6": [
        (still(lambda n: 1.0), HOLDS),
        (still(lambda n: float(n <= 64)), WHEN),
        (still(lambda n: 0.5), NOT),
        (still(lambda n: 1.0, control=1.0), NOT),
    ],
    "abs-1": [
        (table([0.5, 0.6, 0.5], [0.2, 0.3, 0.2]), HOLDS),
        (table([0.5, 0.6, 0.5], [-0.2, 0.3, 0.2]), WHEN),
        (table([0.01, 0.02, 0.01], 0.01), NOT),
        (table(0.5, 0.2, control=0.5), NOT),
    ],
    "abs-2": [
        (simple(), HOLDS),
        (simple(**{"jump, binary": 1.0}), NOT),
        (simple(**{"growth, sinusoidal": 2.0}), NOT),
    ],
    "abs-3": [
        (kinds([-0.1, -0.12, -0.1], [0.1, 0.11, 0.1]), HOLDS),
        (kinds([-0.1, -0.11, -0.1], [-0.2, 0.2, 0.1]), WHEN),
        (kinds([-0.1, 0.1, 0.0], [-0.1, 0.1, 0.0]), NOT),
        (kinds(-0.1, 0.1, control=0.0), NOT),
        (kinds(-0.1, 0.1, above=0.3), NOT),
    ],
    "add-1": [
        (probes(lambda d: 1.0), HOLDS),
        (probes(lambda d: float(d >= 64)), WHEN),
        (probes(lambda d: 0.5), NOT),
        (probes(lambda d: 1.0, control=0.5), NOT),
    ],
    "add-2": [
        (depth([0.5, 0.4, 0.5], [-0.1, 0.0, -0.1]), HOLDS),
        (depth([0.5, 0.4, 0.5], [-0.1, 0.0, -0.1], own=[0.0, 0.1, 0.0]), WHEN),
        (depth([0.5, 0.4, 0.5], [0.5, 0.4, 0.3]), NOT),
        (depth([0.0, 0.01, 0.0], [-0.1, 0.0, -0.1]), NOT),
        (depth(0.5, 0.0, blind=0.9), NOT),
    ],
    "abs-4": [
        (scarce(0.1, 0.0), HOLDS),
        (scarce([0.012, 0.014, 0.013], 0.0), WHEN),
        (scarce([-0.01, 0.02, 0.01], -0.1), NOT),
        (scarce(0.1, 0.1), NOT),
        (scarce(0.1, 0.0, control=0.05), NOT),
    ],
    "add-3": [
        (drowned(0.1, 0.5), HOLDS),
        (drowned(0.0, 0.5), WHEN),
        (drowned(0.1, 0.5, small=0.2), WHEN),
        (drowned(0.0, [0.0, 0.2, 0.1]), NOT),
        (drowned(0.1, 0.5, control=0.0), NOT),
    ],
    "local-1": [
        (near(0.5, 0.8), HOLDS),
        (near(0.0, [0.8, 0.9, 0.8]), WHEN),
        (near(0.0, [0.0, 0.9, 0.2]), NOT),
        (near(0.5, 0.8, control=0.5), NOT),
    ],
    "local-2": [
        (gaussian(lambda g: 0.01, 0.01), HOLDS),
        (gaussian(lambda g: 0.2 if g == 1 else 0.01, 0.2), WHEN),
        (gaussian(lambda g: 0.2, 0.01), WHEN),
        (gaussian(lambda g: 0.2, 0.2), NOT),
        (gaussian(lambda g: 0.01, 0.01, control=0.01), NOT),
    ],
    "num-1": [(worked(0.5), HOLDS), (worked(100.0), NOT), (worked(0.5, by_hand=100.0), NOT)],
}
