"""Claims about rotary positions: what the scores depend on, and extrapolation."""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from experiments.claims import activations
from experiments.claims.figures import lines
from experiments.claims.ledger import Curve, Measured, claim, verdict
from experiments.claims.models import Lab, Trained, misplaced, read_as
from posenc_jax import make
from posenc_jax.encoding import Dims
from posenc_jax.encodings import taken_by
from posenc_jax.encodings.rotation import ladder, turn, turns

SHIFTS = (0, 1, 10, 100, 1_000, 10_000, 100_000, 1_000_000)
TIME = 16  # tokens
KINDS = ("random weights", "trained weights")
EXTENSIONS = ("pi", "ntk", "dynamic_ntk", "ntk_by_parts", "yarn")
TIMES = (2, 4, 16)  # test length over trained length


def rope_1_rule(n):
    """The score of each pair of 16 tokens, when both are moved by up to a million: its largest
    change, in standard deviations of the scores. Exactly: under 1e-9 in float64. In float32 and
    with random as with trained weights: under 1e-4, a hundred times the rounding. If angles from a
    float32 product, or from bfloat16 positions, break this, the way angles are made is a condition.
    The sum of sinusoidal positions and states, the control, must change by 0.1 or more.
    """
    exact = [n[f"change, float64, {k}"] for k in KINDS]
    ours = [n[f"change, float32 with exact angles, {k}"] for k in KINDS]
    plain = n["change, float32 product"]
    coarse = n["change, bfloat16 positions"]
    control = n["change, sinusoidal (control)"]
    reason = (
        f"the largest change of a score is {exact[0]} in float64, {ours[1]} in float32 with exact "
        f"angles and trained weights, and {plain} with angles from a float32 product"
    )
    ways = {"a float32 product": plain, "made of bfloat16 positions": coarse}
    broken = " or ".join(how for how, change in ways.items() if not change.under(1e-4))
    invariant = all(i.under(1e-9) for i in exact) and all(i.under(1e-4) for i in ours)
    condition = f"angles are exact, not {broken}" if broken else ""
    return verdict(invariant and control.over(0.1), reason, condition)


@claim(
    "RoPE scores depend on u - t alone, whatever the weights",
    rule=rope_1_rule,
    figure=lines(
        "What moving both tokens does to a rotary score", "moved by (tokens)",
        "largest change of a score (in their standard deviation)", log_x=True, log_y=True,
    ),
)  # fmt: skip
def rope_1(lab: Lab) -> Measured:
    """Scores of 16 tokens in four heads of 64 channels, queries and keys made of random states by
    random projections; and by those of the first layer of the shared rotary model. Moved by 0 to
    1,000,000. Control: the same random projections of states with sinusoidal positions added.
    """
    table = make("rope").table
    assert table is not None
    exact = lambda pos_BT, head: table({}, pos_BT, Dims(head, 1, head))
    tables = {
        "float32 with exact angles": exact,
        "float32 product": lambda pos, head: _product(pos.astype(jnp.float32), head),
        "bfloat16 positions": lambda pos, head: _product(pos.astype(jnp.bfloat16), head),
    }
    random, trained = [_random_sides(seed) for seed in lab.seeds], _trained_sides(lab)
    found = {name: np.array([_changes(x, at) for x in random]) for name, at in tables.items()}
    shown = {name: np.maximum(change_SX[:, 1:], 1e-9) for name, change_SX in found.items()}
    largest = lambda each_seed: [_changes(sides, exact).max() for sides in each_seed]
    cast = lambda each_seed, dtype: [[x.astype(dtype) for x in sides] for sides in each_seed]
    numbers = {
        "change, float32 product": found["float32 product"].max(axis=1),
        "change, bfloat16 positions": found["bfloat16 positions"].max(axis=1),
        "change, float32 product, shifts to 1000": shown["float32 product"][:, :4].max(axis=1),
        "change, float32 with exact angles, random weights": largest(random),
        "change, bfloat16 vectors": largest(cast(random, jnp.bfloat16)),
        "change, float32 with exact angles, trained weights": largest(trained),
    }
    with jax.enable_x64(True):
        for kind, each_seed in zip(KINDS, (random, trained), strict=True):
            numbers[f"change, float64, {kind}"] = largest(cast(each_seed, float))
    numbers["change, sinusoidal (control)"] = [_added(seed).max() for seed in lab.seeds]
    return Measured(numbers, {name: Curve(SHIFTS[1:], y_SX) for name, y_SX in shown.items()})


def _random_sides(seed: int) -> list[jax.Array]:
    """Queries and keys [1, T, H, C] of random states by random projections, float32."""
    x_TD, *w_DD = _random_weights(seed, 256)
    return [jnp.asarray((x_TD @ w).reshape(1, TIME, 4, 64), jnp.float32) for w in w_DD]


def _random_weights(seed: int, width: int) -> list[np.ndarray]:
    """States [TIME, width] and two projections."""
    rng = np.random.default_rng(seed)
    return [rng.normal(size=(TIME, width)), *width**-0.5 * rng.normal(size=(2, width, width))]


def _trained_sides(lab: Lab) -> list[tuple[jax.Array, ...]]:
    """Queries and keys that the first layer of the shared model makes of random states."""
    trained = lab.trained("rope")
    x_BTD = jnp.asarray(_random_weights(0, trained.config.width)[0], jnp.float32)[None]
    of_seed = lambda s: jax.tree.map(lambda leaf: leaf[s], trained.params["block_0"])
    sides = lambda block: activations.queries_and_keys(block, x_BTD, trained.config.heads)[:2]
    return [sides(of_seed(s)) for s in range(len(lab.seeds))]


def _product(pos_BT: jax.Array, head: int):
    """The table of a rotation with angles as a plain product in float32."""
    freq_F = jnp.asarray(ladder(head, 10_000.0), jnp.float32)
    return turns(pos_BT.astype(jnp.float32)[:, :, None, None] * freq_F[None, None, None])


def _changes(sides: Sequence[jax.Array], table_at: Callable) -> np.ndarray:
    """Largest change of a score under each shift, in standard deviations: [X].

    sides: queries and keys [1, T, H, C]; table_at: (pos_BT, C) -> the table of a rotation.
    """

    @jax.jit
    def scores(shift):
        table = table_at(shift + jnp.arange(TIME)[None], sides[0].shape[-1])
        q, k = (turn(table, x, "half") for x in sides)
        return jnp.einsum("bqhc,bkhc->bhqk", q, k, preferred_element_type=float)

    return _against_first(scores)


def _added(seed: int) -> np.ndarray:
    """As `_changes`, for states with sinusoidal positions added."""
    x_TD, w_q, w_k = _random_weights(seed, 256)
    embed = make("sinusoidal").embed
    assert embed is not None

    def scores(shift):
        pos_BT = shift + jnp.arange(TIME)[None]
        h_TD = np.asarray(embed({}, jnp.asarray(x_TD, jnp.float32)[None], pos_BT))[0]
        return (h_TD @ w_q) @ (h_TD @ w_k).T

    return _against_first(scores)


def _against_first(scores) -> np.ndarray:
    """Largest change of scores(shift) from the first shift, in standard deviations, [X]."""
    first, *rest = [np.asarray(scores(shift), np.float64) for shift in SHIFTS]
    return np.array([0.0, *(np.abs(s - first).max() for s in rest)]) / first.std()


def rope_2_rule(n):
    """Well past the trained length means at 4 times that length. To extrapolate means to lose under
    0.1 bits a byte there, as in abs-1. If only extensions of the same weights do so, they are a
    condition. ALiBi must lose under 0.1 at 4 times;
    otherwise the text is too hard. Shuffled positions, the control, must lose over 0.1 at the
    trained length.
    """
    lost = {m: {k: n[f"bits lost at {k}x, {m}"] for k in TIMES} for m in ("rope", *EXTENSIONS)}
    alibi = n["bits lost at 4x, alibi (control)"]
    shuffled = n["bits lost at 1x, shuffled positions (control)"]
    best = min(EXTENSIONS, key=lambda m: lost[m][4].mean)
    reason = (
        f"at four times the trained length RoPE loses {lost['rope'][4]} bits a byte, the same "
        f"weights read as {best} {lost[best][4]}, ALiBi {alibi}"
    )
    sound, plain = alibi.under(0.1) and shuffled.over(0.1), lost["rope"][4].under(0.1)
    extended = any(lost[m][4].under(0.1) for m in EXTENSIONS)
    condition = "" if plain else "the weights are read as one of its extensions"
    return verdict(sound and (plain or extended), reason, condition)


@claim(
    "RoPE extrapolates well past its training length",
    rule=rope_2_rule,
    figure=lines(
        "A rotary model past its trained length", "test length / trained length",
        "bits lost per byte", log_x=True, levels={"trained length": 0.0},
    ),
)  # fmt: skip
def rope_2(lab: Lab) -> Measured:
    """The shared rotary model on text at 1, 2, 4 and 16 times the length it was trained at, plain
    and under five extensions with the factor that the length asks for, on the same weights. A loss
    is against the trained length, mean over all bytes of the windows.
    """
    length, trained = lab.train.length, lab.trained("rope")
    base, numbers, curves = lab.bits(trained, length), {}, {}
    for name in ("rope", *EXTENSIONS):
        lost = {1: 0 * base}
        for k in TIMES:
            lost[k] = lab.bits(stretched(lab, name, k * length), k * length) - base
            numbers[f"bits lost at {k}x, {name}"] = lost[k]
        curves[name] = Curve([*lost], np.stack([*lost.values()], axis=1))
    numbers["bits lost at 4x, alibi (control)"] = lab.lost(lab.trained("alibi"), 4 * length)
    shuffled = lab.bits(misplaced(trained), length)
    numbers["bits lost at 1x, shuffled positions (control)"] = shuffled - base
    return Measured(numbers, curves)


def stretched(lab: Lab, name: str, size: int) -> Trained:
    """The shared rotary model read as another method, with the factor that this size asks for."""
    length = lab.train.length
    options = taken_by(name, {"factor": size / length, "length": length})
    return read_as(lab.trained("rope"), name, **options)
