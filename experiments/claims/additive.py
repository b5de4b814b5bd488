"""Claims about adding positions to content, by linear probes in closed form."""

import numpy as np

from experiments.claims import inside
from experiments.claims.figures import lines
from experiments.claims.lab import Lab
from experiments.claims.ledger import (
    Curve,
    Measured,
    claim,
    either,
    fails,
    holds,
    holds_when,
    over,
    said,
    under,
)
from experiments.claims.waves import vectors

WIDTHS, RATIOS = (16, 32, 64, 128, 256), (0.1, 1.0, 10.0)
TOKENS, PLACES = 256, 64


def probe(x_ND, label_N, test_ND, test_N) -> float:
    """Accuracy of the linear classifier that assumes one Gaussian a class, all of one covariance
    (Fisher 1936); a thousandth of the mean variance is added to it. Every class must occur.
    """
    order, count_K = np.argsort(label_N), np.bincount(label_N)
    starts = np.cumsum(count_K) - count_K
    mean_KD = np.add.reduceat(x_ND[order], starts) / count_K[:, None]
    within_ND = x_ND - mean_KD[label_N]
    cov_DD = within_ND.T @ within_ND / len(x_ND)
    cov_DD += (1e-3 * np.trace(cov_DD) / len(cov_DD) + 1e-9) * np.eye(len(cov_DD))
    weights_DK = np.linalg.solve(cov_DD, mean_KD.T)
    score_NK = test_ND @ weights_DK - np.sum(mean_KD.T * weights_DK, axis=0) / 2
    return float(np.mean(score_NK.argmax(axis=1) == test_N))


def add_1_rule(n):
    """Neither is destroyed: linear probes read the token, of 256, and the position, of 64, from
    their sum with 99% accuracy each, both being equally loud. The verdict names the width from
    which on this is so. Positions probed from the tokens alone, the control, must stay under 5%.
    """
    control = n["position from the token alone (control)"]
    both = {d: [n[f"{what}, sum, d = {d}, ratio 1"] for what in ("token", "position")]
            for d in WIDTHS}  # fmt: skip
    shown = "; ".join(f"{said(t)} and {said(p)} at d = {d}" for d, (t, p) in both.items())
    widest = max(WIDTHS)
    beside = [n[f"{what}, side by side, d = {widest}"] for what in ("token", "position")]
    reason = (
        f"accuracy for token and position at equal loudness: {shown}; side by side at d = "
        f"{widest}: {said(beside[0])} and {said(beside[1])}; from the token alone {said(control)}"
    )
    short = [d for d in WIDTHS if not all(over(i, 0.99) for i in both[d])]
    if widest in short or not under(control, 0.05):
        return fails(reason)
    if not short:
        return holds(reason)
    return holds_when(f"d is {min(d for d in WIDTHS if d > max(short))} or more", reason)


@claim(
    "add-1",
    "adding position to content destroys neither",
    rule=add_1_rule,
    figure=lines(
        "What a linear probe reads from token + position", "width d", "accuracy", log_x=True
    ),
)
def add_1(lab: Lab) -> Measured:
    """Random Gaussian embeddings of 256 tokens plus sinusoidal positions 0 to 63, d = 16 to 256,
    the position 0.1, 1 and 10 times as long as the token; against both side by side in d / 2
    channels each. Probes are fitted on 8,192 random pairs and scored on 2,048 others.
    """
    found: dict[str, list[float]] = {}
    for seed in lab.seeds:
        rng = np.random.default_rng(seed)
        token_N = rng.integers(TOKENS, size=10_240)
        place_N = rng.integers(PLACES, size=10_240)

        def score(name, x_ND, token_N=token_N, place_N=place_N):
            cut = 8192
            for what, label_N in (("token", token_N), ("position", place_N)):
                accuracy = probe(x_ND[:cut], label_N[:cut], x_ND[cut:], label_N[cut:])
                found.setdefault(f"{what}, {name}", []).append(accuracy)

        for d in WIDTHS:
            for ratio in RATIOS:
                x_ND = embedded(rng, token_N, d) + ratio * placed(place_N, d)
                score(f"sum, d = {d}, ratio {ratio:g}", x_ND)
            halves = embedded(rng, token_N, d // 2), placed(place_N, d // 2)
            score(f"side by side, d = {d}", np.concatenate(halves, axis=1))
        alone_ND = embedded(rng, token_N, 64)
        accuracy = probe(alone_ND[:8192], place_N[:8192], alone_ND[8192:], place_N[8192:])
        found.setdefault("position from the token alone (control)", []).append(accuracy)
    curves = {}
    for what in ("token", "position"):
        for how, rest in (("sum", ", ratio 1"), ("side by side", "")):
            rows = [found[f"{what}, {how}, d = {d}{rest}"] for d in WIDTHS]
            curves[f"{what}, {how}"] = Curve(WIDTHS, np.array(rows).T)
    return Measured(found, curves)


def embedded(rng, token_N, width):
    return rng.normal(size=(TOKENS, width))[token_N]


def placed(place_N, width):
    """Sinusoidal vectors as long as a Gaussian one of this width."""
    return np.sqrt(2) * vectors(np.arange(PLACES), width)[place_N]


def add_2_rule(n):
    """Faded: the share of the position's variance that is read linearly from the keys, as queries
    meet them, falls by 0.1 or more from the first layer to the last. The claim asks that additive
    positions fade, rotary ones do not, and that the fall of the first is the greater, seed by seed.
    At the input the same reading must find additive positions (over 0.5), and none (under 0.1) in
    a rotary model, which has none there.
    """
    fade = {name: n[f"fall from first to last layer, {name}"] for name in METHODS}
    seen, blind = (n[f"read at the input, {name}"] for name in METHODS)
    reason = (
        f"from the first layer to the last the share read falls by {said(fade['sinusoidal'])} for "
        f"sinusoidal positions and by {said(fade['rope'])} for rotary ones; at the input it is "
        f"{said(seen)} and {said(blind)}"
    )
    if not (over(seen, 0.5) and under(blind, 0.1)):
        return fails(f"the reading fails its controls: {reason}")
    return either(
        over(fade["sinusoidal"], 0.1)
        and under(fade["rope"], 0.1)
        and over(n["difference of the falls"], 0),
        reason,
    )


METHODS = ("sinusoidal", "rope")


@claim(
    "add-2",
    "additive position fades with depth, rotary does not",
    rule=add_2_rule,
    figure=lines("Position in the keys, by layer", "layer", "share of variance read linearly"),
)
def add_2(lab: Lab) -> Measured:
    """Decoders of 4 layers (quick: 1) on text: how much of the variance of the position a linear
    map reads from the keys of each layer after any rotation, all heads side by side; fitted on 192
    windows of test text and scored on 64 others. The same from the input of the first layer.
    """
    layers = lab.pick(lab.model.layers, 4)
    tokens_BT, numbers, curves = lab.windows(256), {}, {}
    for name in METHODS:
        trained = lab.trained(name, model={"layers": layers})
        first_SBTD = inside.hidden(trained, tokens_BT)[0]
        read_NS = np.array(
            [[place_read(k) for k in k_SBTHC] for k_SBTHC in inside.keys(trained, tokens_BT)]
        )
        numbers[f"read at the input, {name}"] = [place_read(x) for x in first_SBTD]
        numbers[f"fall from first to last layer, {name}"] = read_NS[0] - read_NS[-1]
        for layer, read_S in enumerate(read_NS, 1):
            numbers[f"read from the keys of layer {layer}, {name}"] = read_S
        curves[name] = Curve(np.arange(1, layers + 1), read_NS.T)
    additive, rotary = (numbers[f"fall from first to last layer, {name}"] for name in METHODS)
    numbers["difference of the falls"] = additive - rotary
    return Measured(numbers, curves)


def place_read(x_BT) -> float:
    """Share of the variance of t that least squares reads from [B, T, ...], on the last quarter of
    the windows when fitted on the others; 0 where it reads nothing."""
    batch, time = x_BT.shape[:2]
    x_ND = np.asarray(x_BT, np.float64).reshape(batch * time, -1)
    x_ND = np.concatenate([x_ND, np.ones((len(x_ND), 1))], axis=1)
    t_N = np.tile(np.arange(time), batch) - (time - 1) / 2
    cut = batch * 3 // 4 * time
    weights_D = np.linalg.lstsq(x_ND[:cut], t_N[:cut], rcond=None)[0]
    missed_N = t_N[cut:] - x_ND[cut:] @ weights_D
    return max(0.0, float(1 - np.mean(missed_N**2) / np.mean(t_N[cut:] ** 2)))
