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
    """The expected score at a distance is the mean logit of pairs so far apart over texts, queries,
    heads and layers. A model favours near tokens if the expected score of the four before the query
    is 0.2 or more above that of those further away, which gives them 1.2 times the weight. By
    construction: before the first step. The claim holds if trained models of all three favour near
    tokens, and ALiBi does so before training. If sinusoidal and rotary models do so only after
    training, that is a condition. Without positions and training, the control, the difference must
    be under 0.1 either way.
    """
    fresh = {m: n[f"near score minus far, {m}, untrained"] for m in (*SOFT, "alibi")}
    trained = {m: n[f"near score minus far, {m}, trained"] for m in (*SOFT, "alibi")}
    control = n["near score minus far, nope, untrained (control)"]
    soft = all(fresh[m].over(0.2) for m in SOFT)
    return verdict(
        control.over(-0.1)
        and control.under(0.1)
        and fresh["alibi"].over(0.2)
        and all(i.over(0.2) for i in trained.values()),
        f"trained, near tokens score {trained['sinusoidal']} more than far ones with sinusoidal "
        f"positions and {trained['rope']} with rotary ones; untrained, {fresh['alibi']} with ALiBi",
        "" if soft else "sinusoidal and rotary models are trained; ALiBi needs no training",
    )


@claim(
    "most successful methods favour near tokens: softly (sinusoidal, RoPE), by construction "
    "(ALiBi)",
    rule=local_1_rule,
    figure=lines(
        "Expected score by distance", "distance (tokens)", "expected score, less its mean",
        below="trained models · all layers and heads", levels={"even attention": 0.0},
    ),
)  # fmt: skip
def local_1(lab: Lab) -> Measured:
    """Decoders on text before and after training: the expected score at each distance, mean over
    layers, heads, 16 test windows and the queries of their second half, less its mean over
    distances. Near: distances 1 to 4; far: those from 5 to half of the window.
    """
    tokens_BT, numbers, curves = lab.windows(16), {}, {}
    for name in (*SOFT, "alibi", "nope"):
        trained = lab.trained(name)
        control = " (control)" if name == "nope" else ""
        for state, model in ((f"untrained{control}", lab.fresh(trained)), ("trained", trained)):
            score_SD = by_distance(model, tokens_BT)
            gap_S = score_SD[:, :NEAR].mean(axis=1) - score_SD[:, NEAR:].mean(axis=1)
            numbers[f"near score minus far, {name}, {state}"] = gap_S
            if model is trained:
                curves[name] = Curve(np.arange(1, 1 + score_SD.shape[1]), score_SD)
    return Measured(numbers, curves)


def by_distance(trained: Trained, tokens_BT) -> np.ndarray:
    """The expected score at distances 1 .. T / 2, less its mean over them, [S, D].

    Up to a constant of each query, a logit is the logarithm of the attention.
    """
    time, layers = tokens_BT.shape[1], []
    for p_SBHQK in activations.attention(trained, tokens_BT):
        rows = []
        for query in range(time // 2, time):
            near_SBHD = p_SBHQK[..., query, query - time // 2 : query]
            score = np.log(np.maximum(near_SBHD, 1e-30))
            rows.append((score - score.mean(axis=-1, keepdims=True))[..., ::-1].mean(axis=(1, 2)))
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
    reason = (
        f"rows differ from the best Gaussian by {miss[min(GAINS)]:.3g} in total variation with "
        f"quiet logits, by {miss[max(GAINS)]:.3g} with loud ones and by {plain:.3g} without a "
        "softmax"
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
