"""Claims about long distances and texts: rotary scores, ALiBi and xPos."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from experiments.claims.figures import lines
from experiments.claims.ledger import Curve, Measured, claim, verdict
from experiments.claims.models import Lab, Trained, bits_at, by_seed, read_as
from experiments.claims.rotary import stretched
from posenc_jax import Dims, frame, make
from posenc_jax.encodings.rotation import ladder
from posenc_jax.lab.metrics import cross_entropy
from posenc_jax.layout import full, layout

LONG = 4096
READ = ("ntk", "yarn")
DISTANCES = np.unique(np.geomspace(1, 16_384, 160).astype(int))
MEMORY = 64  # tokens
OWN = f"bits lost past 2048, trained on {LONG}"
SAVED = f"bits saved past 2048 against a memory of {MEMORY} tokens"
TIMES = (4, 16)  # test length over trained length
VISIBLE = (2, 4, 8, 16, 32, 64, 128, 256)
READERS = ("alibi", "sinusoidal", "rope", "nope")


def rope_5_rule(n):
    """Does not decay: at distances of 4,096 to 16,384 the spread of scores of unrelated queries and
    keys is 0.9 or more of what it is at 0, and equal ones keep 0.9 of their score at its best.
    xPos, the control, must fall under 0.5 by the first measure. Works: a byte in windows of 4,096
    costs under 0.1 bits more than at the trained length. It is a condition if this is true only for
    unrelated vectors, only with an extension, or only for a model that was trained on such windows
    (again 0.1 bits, bytes past 2,048 against those before). A model with a short memory, which sees
    its last 64 tokens only, works as well if far tokens are not read: if the model trained on such
    windows does not save 0.02 bits against it, that is a condition too.
    """
    spread, same = n["spread of scores past 4096, unrelated"], n["best score past 4096, equal"]
    control = n["spread of scores past 4096, xpos (control)"]
    lost = {name: n[f"bits lost at {LONG}, {name}"] for name in ("rope", *READ)}
    own, saved = n.get(OWN), n.get(SAVED)
    read = any(lost[name].under(0.1) for name in READ)
    if plain := lost["rope"].under(0.1):
        how = ""
    elif read:
        how = "the model is read as one of its extensions"
    else:
        how = "the model was trained on texts as long"
    works = plain or read or (own is not None and own.under(0.1))
    far = saved is not None and saved.over(0.02)
    return verdict(
        works and spread.over(0.9) and control.under(0.5),
        f"far scores of unrelated vectors spread {spread} times as much as near ones; in windows "
        f"of {LONG} a model trained on short ones loses {lost['rope']} bits a byte",
        "" if same.over(0.9) else "queries and keys are unrelated",
        how,
        "" if far else "to work is to do no better than with a memory of 64 tokens",
    )


@claim(
    "rotary does not decay with length; works at 4k+",
    rule=rope_5_rule,
    figure=lines(
        "Rotary scores by distance", "distance (tokens)", "relative to distance 0", log_x=True,
        below="heads of 64 channels, base 10,000",
    ),
)  # fmt: skip
def rope_5(lab: Lab) -> Measured:
    """Heads of 64 channels in float64. Unrelated: 1,000 pairs of Gaussian queries and keys, the
    standard deviation of their score. Equal: q = k, all ones. Bound: the mean of |S_j|, S_j the sum
    of the first j phases, which is the bound on the score in the paper (arXiv 2104.09864, 3.4.3).
    Works: the shared rotary model on windows of 4,096 bytes, plain and read as ntk and yarn with
    the factor that the length asks for; it was trained on much shorter windows. Two models of one
    layer are trained on windows of 4,096, one of which sees its last 64 tokens only (quick: none).
    """
    pairs = [np.random.default_rng(s).normal(size=(2, 1000, 64)) for s in lab.seeds]
    spread_SX = np.array([spread("rope", *sides) for sides in pairs])
    decayed_SX = np.array([spread("xpos", *sides) for sides in pairs])
    phase_XF = np.exp(1j * DISTANCES[:, None] * ladder(64, 10_000.0))
    equal_X = np.real(phase_XF).mean(axis=1)
    bound_X = np.abs(np.cumsum(phase_XF, axis=1)).mean(axis=1) / np.arange(1, 33).mean()
    far = DISTANCES >= LONG
    base = lab.bits(lab.trained("rope"), lab.train.length)
    numbers = {
        "spread of scores past 4096, unrelated": spread_SX[:, far].min(axis=1),
        "spread of scores past 4096, xpos (control)": decayed_SX[:, far].max(axis=1),
        "best score past 4096, equal": [equal_X[far].max()],
        "bound past 4096": [bound_X[far].max()],
    }
    for name in ("rope", *READ):
        numbers[f"bits lost at {LONG}, {name}"] = lab.bits(stretched(lab, name, LONG), LONG) - base
    if lab.full:
        numbers |= _trained_long(lab)
    drawn = {"unrelated": spread_SX, "equal": [equal_X], "bound": [bound_X], "xpos": decayed_SX}
    return Measured(numbers, {name: Curve(DISTANCES, y) for name, y in drawn.items()})


def _trained_long(lab: Lab) -> dict[str, np.ndarray]:
    """What models trained on windows of 4,096 lose past the middle of them, and what far tokens
    save there; [S] each.
    """
    model = {"width": 32, "heads": 2, "layers": 1}
    train = {"length": LONG, "min_length": LONG, "batch": 1, "steps": 500}
    near, far = slice(lab.train.length, LONG // 2), slice(LONG // 2, LONG)
    whole = lab.scores(lab.trained("rope", model=model, train=train), LONG)
    short = lab.trained("rope+window", model=model, train=train, distance=MEMORY - 1)
    return {
        OWN: bits_at(whole, far) - bits_at(whole, near),
        SAVED: bits_at(lab.scores(short, LONG), far) - bits_at(whole, far),
    }


def spread(name: str, q_NC: np.ndarray, k_NC: np.ndarray) -> np.ndarray:
    """Standard deviation of scores over N pairs at each distance, over that at distance 0: [X]."""
    with jax.enable_x64(True):
        pos_BT = jnp.asarray([0, *DISTANCES])[None]
        where, (pairs, head) = full(*pos_BT.shape).replace(pos_BT=pos_BT), q_NC.shape
        layer = frame(make(name), {}, where, Dims(pairs * head, pairs, head)).layer(0)
        everywhere = lambda x_NC: jnp.broadcast_to(x_NC, (*pos_BT.shape, *x_NC.shape))
        q_BTNC, k_BTNC = layer.rotate(everywhere(q_NC), everywhere(k_NC))
        s_TN = np.asarray(jnp.einsum("tnc,nc->tn", q_BTNC[0], k_BTNC[0, 0]))
    return s_TN[1:].std(axis=1) / s_TN[0].std()


def alibi_1_rule(n):
    """Extrapolates: loses under 0.1 bits a byte at 4 and 16 times the trained length and at 4,096
    tokens, the longest measured. The sinusoidal model, the control, must lose more than that at 16
    times. Without limit: the model uses more tokens than it was trained on, so that it loses over
    0.02 bits if it sees only the last tokens, as many as in training. If fewer tokens are enough
    for it, that is a condition. The span of the other models, at the trained length, is for
    comparison.
    """
    lost = {k: n[f"bits lost at {k}, alibi"] for k in (*(f"{t}x" for t in TIMES), f"{LONG} tokens")}
    control, trained_on = n["bits lost at 16x, sinusoidal (control)"], n["trained length"].mean
    enough = [w for w in VISIBLE if n[f"bits lost with the last {w} tokens"].under(0.02)]
    short = bool(enough) and enough[0] <= trained_on
    reason = (
        f"ALiBi loses {lost[f'{LONG} tokens']} bits a byte in the longest windows, the sinusoidal "
        f"model {control} in shorter ones; "
        + (f"the last {enough[0]} tokens" if short else "no fewer tokens than in training")
        + " are enough for ALiBi"
    )
    return verdict(
        all(i.under(0.1) for i in lost.values()) and control.over(0.1),
        reason,
        "to extrapolate is to read no further back than in training" if short else "",
    )


@claim(
    "a linear bias extrapolates without limit",
    rule=alibi_1_rule,
    figure=lines(
        "How far back models read", "last tokens visible", "bits lost per byte", log_x=True,
        below="windows of 16 times the trained length, and of the trained length",
        levels={"all visible": 0.0},
    ),
)  # fmt: skip
def alibi_1(lab: Lab) -> Measured:
    """The shared ALiBi model on text at 1, 4 and 16 times its trained length and in windows of
    4,096. What it reads: in 32 windows (quick: 8) of 16 times the length, text cut into stretches
    of w tokens that do not see each other; bytes in the second half of each, which see w/2 to w
    tokens, against the same bytes with all before them visible. The same in windows of the
    trained length, for the sinusoidal model too, for a rotary one and one without positions (quick:
    not these two).
    """
    length, trained = lab.train.length, lab.trained("alibi")
    numbers = {f"bits lost at {k}x, alibi": lab.lost(trained, k * length) for k in TIMES}
    numbers[f"bits lost at {LONG} tokens, alibi"] = lab.lost(trained, LONG)
    sinusoidal = lab.trained("sinusoidal")
    numbers["bits lost at 16x, sinusoidal (control)"] = lab.lost(sinusoidal, 16 * length)
    numbers["trained length"] = np.array([length])
    lost_SW = shortened(lab, trained, 16 * length, VISIBLE)
    for w, lost_S in zip(VISIBLE, lost_SW.T, strict=True):
        numbers[f"bits lost with the last {w} tokens"] = lost_S
    curves = {"alibi, 16x": Curve(VISIBLE, lost_SW)}
    within = [w for w in VISIBLE if w <= length]
    for name in READERS[: lab.pick(2, 4)]:
        lost_SW = shortened(lab, lab.trained(name), length, within)
        for w, lost_S in zip(within, lost_SW.T, strict=True):
            numbers[f"bits lost at 1x with the last {w} tokens, {name}"] = lost_S
        curves[f"{name}, 1x"] = Curve(within, lost_SW)
    return Measured(numbers, curves)


def shortened(lab: Lab, trained: Trained, length: int, visible: Sequence[int]) -> np.ndarray:
    """Bits lost by bytes that see only the last w/2 to w tokens, for each w: [S, W]."""
    count = min(lab.pick(8, 32), lab.text.examples(length) or 32)
    index_B = jnp.arange(count // 4 * 4, dtype=jnp.int32).reshape(-1, 4)
    place_T = jnp.arange(length, dtype=jnp.int32)

    def run(params):
        def loss(index_B, w):
            batch = lab.text.test(lab.text.data, index_B, length, length)
            apart = layout(1 + place_T[None] // w)
            logits_BTV = trained.model.apply(params, batch.tokens_BT, apart)
            return cross_entropy(logits_BTV, batch.targets_BT).sum(axis=0)

        total = lambda w: jax.lax.map(lambda index_B: loss(index_B, w), index_B).sum(axis=0)
        whole_T = total(jnp.int32(length))

        def lost(w):
            late_T = place_T % w >= w // 2
            count = (late_T.sum() * index_B.size).astype(jnp.float32)
            return jnp.where(late_T, total(w) - whole_T, 0.0).sum() / count

        return jax.lax.map(lost, jnp.array(visible, jnp.int32))

    return np.asarray(by_seed(run, trained.params), np.float64) / np.log(2)


def xpos_1_rule(n):
    """Extends: xPos loses fewer bits than RoPE at 4 and at 16 times the trained length, paired by
    seed. Without a condition it must lose under 0.1 bits a byte at 4 times; otherwise "to lose
    less" is a condition. The same weights with the decay switched off, the control, must lose more
    than with it at 16 times.
    """
    share = {k: n[f"part of RoPE's loss at {k}x"] for k in TIMES}
    lost = {k: n[f"bits lost at {k}x, xpos"] for k in TIMES}
    control = n["loss at 16x without the decay, over that with it (control)"]
    reason = (
        f"at four times the trained length xPos loses {lost[4]} bits a byte, RoPE "
        f"{n['bits lost at 4x, rope']}; at the longest the loss without the decay is {control} "
        "times as large"
    )
    condition = "" if lost[4].under(0.1) else "to extend is to lose less, not to lose nothing"
    return verdict(all(i.under(1) for i in share.values()) and control.over(1), reason, condition)


@claim(
    "xPos extends RoPE",
    rule=xpos_1_rule,
    figure=lines(
        "xPos and RoPE past the trained length", "test length / trained length",
        "bits lost per byte", log_x=True, levels={"trained length": 0.0},
    ),
)  # fmt: skip
def xpos_1(lab: Lab) -> Measured:
    """Two decoders on text at 1, 4 and 16 times the trained length: rope, and xpos with the paper's
    span of 512. Decay off: the weights trained with xpos read with a span of a billion.
    """
    length, times = lab.train.length, (1, *TIMES)
    rope, xpos = lab.trained("rope"), lab.trained("xpos")
    models = {"rope": rope, "xpos": xpos, "decay off": read_as(xpos, "xpos", span=1e9)}
    lost = {m: {k: lab.lost(model, k * length) for k in times} for m, model in models.items()}
    numbers = {f"bits lost at {k}x, {m}": lost[m][k] for m in ("rope", "xpos") for k in TIMES}
    for k in TIMES:
        numbers[f"part of RoPE's loss at {k}x"] = _part(lost["xpos"][k], lost["rope"][k])
    without = _part(lost["decay off"][16], lost["xpos"][16])
    numbers["loss at 16x without the decay, over that with it (control)"] = without
    curves = {m: Curve(times, np.stack([*by_time.values()], 1)) for m, by_time in lost.items()}
    return Measured(numbers, curves)


def _part(lost_S: np.ndarray, of_S: np.ndarray) -> np.ndarray:
    """One loss over another, NaN where the other is no loss."""
    return np.where(of_S > 0, lost_S / of_S, np.nan)
