"""Claims about what trained rotary heads attend to."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from experiments.claims import activations
from experiments.claims.figures import lines
from experiments.claims.ledger import Curve, Measured, claim, verdict
from experiments.claims.models import Lab, Trained, bits_at
from posenc_jax.lab.tasks.recall import periodic
from posenc_jax.layout import full

PERIOD = 8
# `pi` divides all frequencies: the fastest pair turns once in one period, or in 3.2 periods.
SUITED, UNSUITED = PERIOD / (2 * np.pi), PERIOD / (2 * np.pi) * 10**0.5
PLACES = ("within the trained length", "past it", "a thousand tokens on")
SHUFFLED = "shuffled positions (control)"
EVEN = float(np.mean(1 / np.arange(2 * PERIOD + 1, 4 * PERIOD + 1)))  # over the queries of rope-3
NEAR = 8  # tokens of context, and fewer
HALVES = {"fast": range(2), "slow": range(2, 4)}  # heads
WHERE = ("near", "far")


def rope_3_rule(n):
    """The peak: more than half of the queries give most attention to the token one period before
    the target, at all three places; by chance it is one of all tokens before. With positions
    shuffled, the control, less than a quarter may do so. The frequency causes it: a model whose
    pairs turn 3.2 times slower, or slower than that, peaks there less often, paired by seed. If
    more than half of its queries do so as well, "slower frequencies count as suitable" is a
    condition. Peaks any whole number of periods away are reported, and decide nothing.
    """
    one = [n[f"peak one period away, suited, {p}"] for p in PLACES]
    gain = n["peak one period away, suited minus unsuited"]
    slower = n[f"peak one period away, unsuited, {PLACES[0]}"]
    control = n[f"peak one period away, suited, {SHUFFLED}"]
    return verdict(
        all(i.over(0.5) for i in one) and gain.over(0) and control.under(0.25),
        f"one period away peak {one[0]} of the queries with the suited frequency and {slower} with "
        f"slower ones; whole periods away {n[f'peak whole periods away, suited, {PLACES[0]}']} "
        "with the suited one",
        "slower frequencies, which do it less often, count as suitable" if slower.over(0.5) else "",
    )


@claim(
    "a suitable frequency makes attention peak one period away, wherever in the sequence",
    rule=rope_3_rule,
    figure=lines(
        "Attention on text that repeats every 8 tokens", "distance to the token to be said",
        "attention", below="mean over queries within the trained length, strongest head",
        levels={"even attention": EVEN},
    ),
)  # fmt: skip
def rope_3(lab: Lab) -> Measured:
    """Decoders of one layer that go on with a random motif of 8 symbols; attention of the head that
    gives most to the token one period before the target, for queries from the third period on.
    Suited: the fastest pair of each head turns once in a period; unsuited: pairs turn once in 25
    and 80 tokens (quick: 25 and 253) and slower. Past it: the last half of lines twice as long as
    any trained on. A thousand on: the line at positions that begin at 1,000.
    """
    length, task, one = 4 * PERIOD, periodic(PERIOD), "peak one period away"
    how = {"length": length, "min_length": length, "steps": lab.pick(200, 1200)}
    numbers, curves = {}, {}
    for name, factor in (("suited", SUITED), ("unsuited", UNSUITED)):
        trained = lab.trained("pi", task, {"layers": 1}, how, factor=factor)
        for place in PLACES:
            one_S, whole_S, by_distance_SX = _peaks(trained, length, place)
            numbers[f"{one}, {name}, {place}"] = one_S
            numbers[f"peak whole periods away, {name}, {place}"] = whole_S
            if place == PLACES[0]:
                curves[name] = Curve(range(by_distance_SX.shape[1]), by_distance_SX)
        if name == "suited":
            numbers[f"{one}, suited, {SHUFFLED}"] = _peaks(trained, length, SHUFFLED)[0]
    suited, unsuited = (numbers[f"{one}, {m}, {PLACES[0]}"] for m in ("suited", "unsuited"))
    numbers[f"{one}, suited minus unsuited"] = suited - unsuited
    return Measured(numbers, curves)


def _peaks(trained: Trained, length: int, place: str) -> tuple[np.ndarray, ...]:
    """Share of queries whose attention peaks one period away, and whole periods away, [S] each;
    mean attention by the distance from the token to be said, [S, X].

    place: one of PLACES, or SHUFFLED.
    """
    size = 2 * length if place == PLACES[1] else length
    batch = trained.task.test(trained.task.data, jnp.arange(32), size, size)
    pos_BT = batch.layout.pos_BT + (1000 if place == PLACES[2] else 0)
    if place == SHUFFLED:
        pos_BT = pos_BT[:, np.random.default_rng(0).permutation(size)]
    shown = batch.layout.replace(pos_BT=pos_BT)
    (p_SBHQK,) = activations.attention(trained, batch.tokens_BT, shown)
    query_Q = np.arange(length if place == PLACES[1] else 2 * PERIOD, size)
    behind_QK = query_Q[:, None] + 1 - np.arange(size)
    p_SBHQK = np.asarray(p_SBHQK)[:, :, :, query_Q]
    mass_SH = p_SBHQK[..., behind_QK == PERIOD].mean(axis=(1, 3))
    best_SBQK = np.stack([p[:, h] for p, h in zip(p_SBHQK, mass_SH.argmax(1), strict=True)])
    peak_SBQ = query_Q + 1 - best_SBQK.argmax(axis=-1)
    one_S, whole_S = (p.mean(axis=(1, 2)) for p in (peak_SBQ == PERIOD, peak_SBQ % PERIOD == 0))
    far = range(3 * PERIOD + 1)
    mass_SX = np.stack([best_SBQK[..., behind_QK == d].sum(axis=(1, 2)) for d in far], axis=1)
    return one_S, whole_S, mass_SX / peak_SBQ[0].size


def rope_4_rule(n):
    """Specialise: with a band of frequencies for each head, the two slow heads attend further away
    than the two fast ones, paired by seed, and more so than in a model with the same frequencies in
    all heads, the control. And it matters: compared with fast heads,
    switching slow heads off costs more for bytes with much text before them than for bytes with
    little. If the loss does not show this, the claim holds only for attention.
    """
    apart = n["slow minus fast heads, headwise"]
    control = n["slow minus fast heads, rope (control)"]
    more = n["slow minus fast heads, headwise minus rope"]
    matters = n["cost of slow minus fast heads off, far minus near, headwise"]
    return verdict(
        apart.over(0) and more.over(0),
        f"slow heads attend {apart} of the even distance further away than fast ones, with equal "
        f"frequencies {control}; switched off, they cost {matters} bits a byte more far than near",
        "" if matters.over(0) else "it is said of where heads attend, not of what they are worth",
    )


@claim(
    "heads with different frequencies specialise, high for near, low for far",
    rule=rope_4_rule,
    figure=lines(
        "How far away heads attend", "head, fastest first", "mean distance / even attention's",
        below="trained decoders, queries of the second half, mean over layers",
        levels={"even attention": 1.0},
    ),
)  # fmt: skip
def rope_4(lab: Lab) -> Measured:
    """Two decoders of four heads on text: `headwise`, which gives each head one band of the
    frequencies, and `rope`, which gives each head all of them. Distance: mean over the queries of
    the second half of 64 test windows, and over layers. Off: the output of two heads of each layer
    is set to zero. Near: bytes with fewer than 8 before them; far: those of the second half.
    """
    headwise, rope = lab.trained("headwise"), lab.trained("rope")
    distance = {"headwise": mean_distance(lab, headwise), "rope": mean_distance(lab, rope)}
    apart = {m: d_SH[:, 2:].mean(axis=1) - d_SH[:, :2].mean(axis=1) for m, d_SH in distance.items()}
    cost = _ablated(lab, headwise)
    near, far = cost["slow"] - cost["fast"]
    numbers = {"slow minus fast heads, headwise": apart["headwise"]}
    for half, both in cost.items():
        for where, lost_S in zip(WHERE, both, strict=True):
            numbers[f"bits lost without {half} heads, {where}"] = lost_S
    numbers["cost of slow minus fast heads off, far minus near, headwise"] = far - near
    numbers["slow minus fast heads, rope (control)"] = apart["rope"]
    numbers["slow minus fast heads, headwise minus rope"] = apart["headwise"] - apart["rope"]
    names = {"headwise": "headwise", "rope": "rope (control)"}
    return Measured(numbers, {names[m]: Curve(range(4), d_SH) for m, d_SH in distance.items()})


def mean_distance(lab: Lab, trained: Trained) -> np.ndarray:
    """Mean distance of each head's attention over that of even attention, [S, H]."""
    time = lab.train.length
    by_layer = activations.attention(trained, lab.windows(64), full(1, time))
    query_Q = np.arange(time // 2, time)
    p_SHQK = np.mean([np.asarray(p).mean(axis=1) for p in by_layer], axis=0)[:, :, time // 2 :]
    distance_SHQ = (p_SHQK * (query_Q[:, None] - np.arange(time))).sum(axis=-1)
    return (distance_SHQ / (query_Q / 2)).mean(axis=-1)


def _ablated(lab: Lab, trained: Trained) -> dict[str, np.ndarray]:
    """Bits lost at places (near, far) without the fast and without the slow heads: [2, S]."""
    count, head = trained.config.heads, trained.config.width // trained.config.heads
    length = lab.train.length

    def without(off: range) -> Trained:
        kept_D = np.repeat([float(h not in off) for h in range(count)], head).astype(np.float32)
        params = jax.tree.map(lambda leaf: leaf, trained.params)  # a copy of the dictionaries
        for n in range(trained.config.layers):
            params[f"block_{n}"]["out"]["kernel"] *= kept_D[None, :, None]
        return replace(trained, params=params)

    def bits(trained):
        scores = lab.scores(trained, length)
        return np.stack([bits_at(scores, slice(NEAR)), bits_at(scores, slice(length // 2, length))])

    whole = bits(trained)
    return {half: bits(without(heads)) - whole for half, heads in HALVES.items()}
