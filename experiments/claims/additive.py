"""Claims about adding positions to content: by linear probes in closed form, and by amplitude."""

import dataclasses
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from experiments.claims import activations
from experiments.claims.figures import lines
from experiments.claims.ledger import Curve, Measured, claim, verdict
from experiments.claims.models import Lab, Trained, misplaced
from experiments.claims.sinusoidal import vectors
from posenc_jax import encodings
from posenc_jax.lab.model import transformer

LABELS = ("token", "position")
WIDTHS, RATIOS = (16, 32, 64, 128, 256), (0.1, 1.0, 10.0)
TOKENS, PLACES = 256, 64
FITTED, PAIRS = 8192, 10_240
METHODS = ("sinusoidal", "rope", "nope")
AMPLITUDES = (0.1, 1, 10, 100)


def probe(x_ND, label_N) -> float:
    """Accuracy of the linear classifier that assumes one Gaussian for each class, all with one
    covariance (Fisher 1936), to which a thousandth of the mean variance is added.

    It is fitted on the first FITTED rows, in which every class must occur, and scored on the rest.
    """
    test_ND, test_N = x_ND[FITTED:], label_N[FITTED:]
    x_ND, label_N = x_ND[:FITTED], label_N[:FITTED]
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
    """Neither is destroyed: linear probes read the token (of 256) and the position (of 64) from
    their sum with 99% accuracy each, if both vectors have the same length. The verdict names the
    smallest width for which this is true. Positions probed from the tokens alone, the control, must
    stay under 5%.
    """
    control = n["position from the token alone (control)"]
    both = {d: [n[f"{what}, sum, d = {d}, ratio 1"] for what in LABELS] for d in WIDTHS}
    token, place = both[max(WIDTHS)]
    reason = (
        f"at the largest width a probe of the sum is right for {token} of the tokens and {place} "
        f"of the positions; of the token alone for {control} of the positions"
    )
    short = [d for d in WIDTHS if not all(i.over(0.99) for i in both[d])]
    enough = [d for d in WIDTHS if d > max(short, default=0)]
    condition = f"d is {enough[0]} or more" if short and enough else ""
    return verdict(bool(enough) and control.under(0.05), reason, condition)


@claim(
    "adding position to content destroys neither",
    rule=add_1_rule,
    figure=lines(
        "What a linear probe reads from token + position",
        "width d",
        "accuracy",
        log_x=True,
        levels={"chance, position": 1 / PLACES, "chance, token": 1 / TOKENS},
    ),
)
def add_1(lab: Lab) -> Measured:
    """Random Gaussian embeddings of 256 tokens plus sinusoidal positions 0 to 63, d = 16 to 256,
    with position vectors 0.1, 1 and 10 times as long as those of tokens (quick: 1). For comparison,
    both stand side by side in d / 2 channels each. Probes are fitted on 8,192 random pairs and
    scored on 2,048 others.
    """
    ratios = lab.pick((1.0,), RATIOS)
    by_seed = [_probed(np.random.default_rng(seed), ratios) for seed in lab.seeds]
    found = {name: [own[name] for own in by_seed] for name in by_seed[0]}
    curves = {}
    for what in LABELS:
        for how, rest in (("sum", ", ratio 1"), ("side by side", "")):
            rows = [found[f"{what}, {how}, d = {d}{rest}"] for d in WIDTHS]
            curves[f"{what}, {how}"] = Curve(WIDTHS, np.array(rows).T)
    return Measured(found, curves)


def _probed(rng: np.random.Generator, ratios: Sequence[float]) -> dict[str, float]:
    """Accuracy of every probe, by its name, on one draw of tokens and positions."""
    token_N = rng.integers(TOKENS, size=PAIRS)
    place_N = rng.integers(PLACES, size=PAIRS)
    found = {}

    def score(name, x_ND):
        for what, label_N in zip(LABELS, (token_N, place_N), strict=True):
            found[f"{what}, {name}"] = probe(x_ND, label_N)

    for d in WIDTHS:
        for ratio in ratios:
            x_ND = embedded(rng, token_N, d) + ratio * placed(place_N, d)
            score(f"sum, d = {d}, ratio {ratio:g}", x_ND)
        halves = embedded(rng, token_N, d // 2), placed(place_N, d // 2)
        score(f"side by side, d = {d}", np.concatenate(halves, axis=1))
    found["position from the token alone (control)"] = probe(embedded(rng, token_N, 64), place_N)
    return found


def embedded(rng, token_N, width):
    return rng.normal(size=(TOKENS, width))[token_N]


def placed(place_N, width):
    """Sinusoidal vectors as long as a Gaussian one of this width."""
    return np.sqrt(2) * vectors(np.arange(PLACES), width)[place_N]


def add_2_rule(n):
    """Faded: the share of the position's variance that a linear map reads from the hidden states
    falls by 0.1 or more from the input of the first layer to that of the last. The claim holds if
    additive positions fade, rotary ones do not, and the first fall more, paired by seed. Rotary
    positions are never added to the states, and a causal model can count tokens without positions:
    if the rotary model's last states do not give 0.1 more than those of a model without positions,
    that is a condition. As controls, the same map must find positions at the input of the additive
    model (over 0.5), and none at the inputs of the other two (under 0.1).
    """
    fade = {name: n[f"fall from first to last layer, {name}"] for name in METHODS[:2]}
    seen, *blind = (n[f"read at layer 1, {name}"] for name in METHODS)
    own = n["read at the last layer, rope minus nope"]
    return verdict(
        seen.over(0.5)
        and all(i.under(0.1) for i in blind)
        and fade["sinusoidal"].over(0.1)
        and fade["rope"].under(0.1)
        and n["difference of the falls"].over(0),
        f"from the first layer to the last the share read falls by {fade['sinusoidal']} for "
        f"sinusoidal positions and by {fade['rope']} for rotary ones, where the last states give "
        f"{own} more than without positions",
        "" if own.over(0.1) else "rotary states tell no more of the position than the causal mask",
    )


@claim(
    "additive position fades with depth, rotary does not",
    rule=add_2_rule,
    figure=lines("Position in hidden states, by layer", "layer", "share of variance read linearly"),
)
def add_2(lab: Lab) -> Measured:
    """Decoders of 4 layers (quick: 2) on text, with sinusoidal, rotary and no positions: how much
    of the variance of the position a linear map reads from the hidden states at the input of each
    layer; fitted on 192 windows of test text and scored on 64 others.
    """
    layers = lab.pick(2, 4)
    tokens_BT, numbers, curves, read = lab.windows(256), {}, {}, {}
    for name in METHODS:
        trained = lab.trained(name, model={"layers": layers})
        states = activations.hidden(trained, tokens_BT)
        read[name] = np.array([[place_read(x_BTD) for x_BTD in x_SBTD] for x_SBTD in states])
        numbers[f"fall from first to last layer, {name}"] = read[name][0] - read[name][-1]
        for layer, read_S in enumerate(read[name], 1):
            numbers[f"read at layer {layer}, {name}"] = read_S
        curves[name] = Curve(np.arange(1, layers + 1), read[name].T)
    additive, rotary = (numbers[f"fall from first to last layer, {name}"] for name in METHODS[:2])
    numbers["difference of the falls"] = additive - rotary
    numbers["read at the last layer, rope minus nope"] = read["rope"][-1] - read["nope"][-1]
    return Measured(numbers, curves)


def add_3_rule(n):
    """Drowned: a model whose positions are 10 or 100 times as long as words loses 0.05 bits a byte
    or more against one in which they are as long, paired by seed. If only those 100 times as long
    do, that is a condition. The claim asks for small positions: if ones a tenth as long as words
    lose 0.05 bits too, that is a condition. Wrong positions, the control, must cost the model with
    equal lengths 0.1 bits; otherwise it does not use them.
    """
    cost = {a: n[f"bits lost, positions {a} times as long as words"] for a in AMPLITUDES if a != 1}
    control = n["bits that wrong positions cost, as long as words (control)"]
    long = [a for a in AMPLITUDES if a > 1]
    drowned = [a for a in long if cost[a].over(0.05)]
    return verdict(
        bool(drowned) and control.over(0.1),
        f"against positions as long as words, in bits a byte: ten times as long lose {cost[10]}, a "
        f"hundred times {cost[100]}, a tenth {cost[0.1]}",
        "" if drowned[:1] == long[:1] else "positions are a hundred times as long as words",
        "positions may be too small as well" if cost[0.1].over(0.05) else "",
    )


@claim(
    "the amplitude of positions is small so that words are not drowned",
    rule=add_3_rule,
    figure=lines(
        "Bits by the length of position vectors", "length of a position / of a word",
        "bits per byte", log_x=True,
    ),
)  # fmt: skip
def add_3(lab: Lab) -> Measured:
    """Decoders on text with sinusoidal vectors multiplied by a constant, so that before training
    they are 0.1, 1, 10 and 100 times as long as the embeddings of bytes, by the root mean square;
    embeddings are trained, and may grow. A model without positions is for comparison.
    """
    models = {a: amplified(lab, a) for a in AMPLITUDES}
    bits = {a: lab.bits(trained, lab.train.length) for a, trained in models.items()}
    numbers = {
        f"bits lost, positions {a} times as long as words": bits[a] - bits[1]
        for a in AMPLITUDES
        if a != 1
    }
    none = lab.bits(lab.trained("nope"), lab.train.length)
    numbers["bits lost without positions"] = none - bits[1]
    wrong = lab.bits(misplaced(models[1]), lab.train.length)
    numbers["bits that wrong positions cost, as long as words (control)"] = wrong - bits[1]
    numbers |= {f"bits, positions {a} times as long as words": b for a, b in bits.items()}
    curves = {"sinusoidal": Curve(AMPLITUDES, np.stack([*bits.values()], 1))}
    everywhere = np.repeat(none[:, None], len(AMPLITUDES), axis=1)
    return Measured(numbers, curves | {"no positions": Curve(AMPLITUDES, everywhere)})


def amplified(lab: Lab, amplitude: float) -> Trained:
    """The model trained with sinusoidal vectors so many times as long as words are before training.

    Embeddings start with a mean square of 1; that of sines is 1 / 2.
    """
    factor = amplitude * np.sqrt(2)
    sinusoidal = encodings.make("sinusoidal")

    def embed(params, x_BTD, pos_BT):
        assert sinusoidal.embed is not None
        return x_BTD + factor * sinusoidal.embed(params, jnp.zeros_like(x_BTD), pos_BT)

    encoding, config = dataclasses.replace(sinusoidal, embed=embed), lab.training()
    model = transformer.build(lab.model, encoding, lab.text.vocab)
    key = "amplified", amplitude, lab.model

    def make():
        return Trained(model, lab.model, encoding, lab.text, lab.fit(model, lab.text, config, key))

    return lab.once((*key, config), make)


def place_read(x_BT) -> float:
    """Share of the variance of t that a linear map reads from [B, T, ...]; 0 if it reads nothing.

    It is fitted by least squares on all windows but the last quarter, and scored on these.
    """
    batch, time = x_BT.shape[:2]
    x_ND = np.asarray(x_BT, np.float64).reshape(batch * time, -1)
    x_ND = np.concatenate([x_ND, np.ones((len(x_ND), 1))], axis=1)
    t_N = np.tile(np.arange(time), batch) - (time - 1) / 2
    cut = batch * 3 // 4 * time
    weights_D = np.linalg.lstsq(x_ND[:cut], t_N[:cut], rcond=None)[0]
    missed_N = t_N[cut:] - x_ND[cut:] @ weights_D
    return max(0.0, float(1 - np.mean(missed_N**2) / np.mean(t_N[cut:] ** 2)))
