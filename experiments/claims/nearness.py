"""Claims about how methods weigh near tokens against far ones."""

import numpy as np

from experiments.claims import activations
from experiments.claims.figures import lines
from experiments.claims.ledger import Curve, Measured, claim, verdict
from experiments.claims.models import Lab, Trained
from experiments.claims.sinusoidal import added
from posenc_jax import make

NEAR = 4
SOFT = ("sinusoidal", "rope")
BUMPS, GAINS, REACH = (0.5, 1.0, 2.0, 4.0), (1, 10, 100), 64


def local_1_rule(n):
    """Favours near tokens: the four before the query get 1.2 times or more what even attention
    would give them. By construction: they get it before the first step. The claim holds if trained
    models of all three favour near tokens, and ALiBi does so before training. If sinusoidal and
    rotary models do so only after training, that is a condition. Without positions and training,
    the control, attention must be even to 10%.
    """
    fresh = {m: n[f"near share over even, {m}, untrained"] for m in (*SOFT, "alibi")}
    trained = {m: n[f"near share over even, {m}, trained"] for m in (*SOFT, "alibi")}
    control = n["near share over even, nope, untrained (control)"]
    shown = "; ".join(f"{m} {fresh[m]} and {trained[m]}" for m in trained)
    reason = (
        f"attention to the nearest four over an even share, untrained and trained: {shown}; no "
        f"positions {control} and {n['near share over even, nope, trained']}"
    )
    even = control.over(0.9) and control.under(1.1)
    soft = all(fresh[m].over(1.2) for m in SOFT)
    return verdict(
        even and fresh["alibi"].over(1.2) and all(i.over(1.2) for i in trained.values()),
        reason,
        "" if soft else "sinusoidal and rotary models are trained; ALiBi needs no training",
    )


@claim(
    "most successful methods favour near tokens: softly (sinusoidal, RoPE), by construction "
    "(ALiBi)",
    rule=local_1_rule,
    figure=lines(
        "Attention by distance", "distance (tokens)", "attention over an even share", log_y=True,
        below="trained models · 1 is even attention · all layers and heads",
    ),
)  # fmt: skip
def local_1(lab: Lab) -> Measured:
    """Decoders on text before and after training, mean over layers, heads and the queries of the
    second half of 16 test windows: the share of the attention to earlier tokens that the four
    tokens before the query get, divided by their share under even attention.
    """
    tokens_BT, numbers, curves = lab.windows(16), {}, {}
    for name in (*SOFT, "alibi", "nope"):
        trained = lab.trained(name)
        control = " (control)" if name == "nope" else ""
        for state, model in ((f"untrained{control}", lab.fresh(trained)), ("trained", trained)):
            ratio_SD = by_distance(model, tokens_BT)
            numbers[f"near share over even, {name}, {state}"] = ratio_SD[:, :NEAR].mean(axis=1)
            if model is trained:
                curves[name] = Curve(np.arange(1, 1 + ratio_SD.shape[1]), ratio_SD)
    return Measured(numbers, curves)


def by_distance(trained: Trained, tokens_BT) -> np.ndarray:
    """Attention to distances 1 .. T / 2 over an even share of what earlier tokens get, [S, D]."""
    time, layers = tokens_BT.shape[1], []
    for p_SBHQK in activations.attention(trained, tokens_BT):
        rows = []
        for query in range(time // 2, time):
            earlier = p_SBHQK[..., query, :query]
            share = earlier / np.maximum(earlier.sum(axis=-1, keepdims=True), 1e-9) * query
            rows.append(share[..., ::-1][..., : time // 2].mean(axis=(1, 2)))
        layers.append(np.mean(rows, axis=0))
    return np.asarray(layers, np.float64).mean(axis=0)


def local_2_rule(n):
    """Attention is a Gaussian convolution if its rows differ from the best Gaussian kernel by less
    than 0.05 in total variation: 5% of the attention moved. This is asked for every width of the
    bumps from one grid step on. The claim holds without a condition if it is true of softmax
    attention for all sizes of the logits. Otherwise the verdict says from which size on it is true,
    or that the products must be the weights themselves, as in linear attention. Random codes, the
    control, must differ by 0.2 or more.
    """
    wide = [bump for bump in BUMPS if bump >= 1]
    miss = {g: max(n[f"softmax, bump {b:g}, gain {g}"].mean for b in wide) for g in GAINS}
    plain = max(n[f"no softmax, bump {b:g}"].mean for b in wide)
    control = n["no softmax, random codes (control)"]
    listed = ", ".join(f"{miss[g]:.3g} with logits to {g}" for g in GAINS)
    reason = (
        f"total variation from the best Gaussian: softmax {listed}; without a softmax "
        f"{plain:.3g}; random codes {control}"
    )
    loud = [g for g in GAINS if all(miss[h] < 0.05 for h in GAINS if h >= g)]
    condition = "the products are the weights, without a softmax"
    if loud:
        part = len(loud) < len(GAINS)
        condition = f"the logits are loud, {min(loud)} or more at their largest" if part else ""
    return verdict(control.over(0.2) and (bool(loud) or plain < 0.05), reason, condition)


@claim(
    "Gaussian RBF positions make attention a Gaussian convolution",
    rule=local_2_rule,
    figure=lines(
        "A row of attention among Gaussian bumps", "key - query (tokens)", "weight",
        below="s = 2 grid steps, a grid step is 4 tokens",
    ),
)  # fmt: skip
def local_2(lab: Lab) -> Measured:
    """Rows of attention between the catalogue's `rbf` codes of 512 positions, 128 centres 4 tokens
    apart, projections being the identity: 128 queries in the middle, the keys within 64 tokens.
    Weights are the products themselves, or their softmax with the logits' largest value at 1, 10
    and 100. Largest over queries of the total variation from the best Gaussian kernel.
    """
    numbers, curves = {}, {}
    for bump in BUMPS:
        encoding = make("rbf", length=509, bump=4 * bump)
        product_QK = rows_of(added(encoding, np.arange(509), 128))
        numbers[f"no softmax, bump {bump:g}"] = [from_gaussian(product_QK)]
        if bump == 2:
            curves["no softmax"] = row_curve(product_QK)
        for gain in GAINS:
            weights_QK = np.exp(gain * (product_QK / product_QK.max() - 1))
            numbers[f"softmax, bump {bump:g}, gain {gain}"] = [from_gaussian(weights_QK)]
            if bump == 2:
                curves[f"softmax, gain {gain}"] = row_curve(weights_QK)
    random = [np.random.default_rng(s).normal(size=(512, 128)) for s in lab.seeds]
    control = [from_gaussian(np.abs(rows_of(code_TD))) for code_TD in random]
    numbers["no softmax, random codes (control)"] = control
    return Measured(numbers, curves)


def rows_of(code_TD: np.ndarray) -> np.ndarray:
    """Products of 128 middle queries with the keys within REACH of each, [Q, 2 REACH + 1]."""
    first = len(code_TD) // 2 - 64
    queries = range(first, first + 128)
    return np.stack([code_TD[q - REACH : q + REACH + 1] @ code_TD[q] for q in queries])


def from_gaussian(weights_QK: np.ndarray) -> float:
    """Total variation between the rows and the one Gaussian that is nearest to their mean."""
    p_QK = weights_QK / weights_QK.sum(axis=1, keepdims=True)
    offset_K = np.arange(-REACH, REACH + 1)
    found = []
    for width in np.geomspace(0.3, 4 * REACH, 200):
        kernel_K = np.exp(-(offset_K**2) / (2 * width**2))
        found.append(np.abs(p_QK - kernel_K / kernel_K.sum()).sum(axis=1).max() / 2)
    return float(min(found))


def row_curve(weights_QK: np.ndarray) -> Curve:
    row_K = weights_QK[0] / weights_QK[0].sum()
    return Curve(np.arange(-REACH, REACH + 1), [row_K])
