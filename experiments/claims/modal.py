"""The claim about positions in sound and video."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from experiments.claims.figures import dots
from experiments.claims.ledger import Measured, claim, verdict
from experiments.claims.models import Lab
from posenc_jax import Dims, Encoding, frame, make
from posenc_jax.lab.tasks.task import SYMBOL, Batch, Task, draw
from posenc_jax.layout import full, layout

PLAIN = "plain RoPE on the same times"
FRAMES, SOUNDS, WORDS, RATE = 8, 12, 8, 25


def mm_1_rule(n):
    """Is: with three equal ids, M-RoPE gives exactly the numbers of RoPE at all positions tried, a
    difference of 0; with an id only for time, the control, it must not. Align: with ids from time,
    nine of ten sounds name the frame at their time, and the share is at least 0.2 higher than with
    ids by index in the same model. If plain RoPE that reads the same times as its positions is
    right as often, to within 0.05, that is a condition.
    """
    same, other = n["mrope minus rope, equal ids"], n["mrope minus rope, unequal ids (control)"]
    timed, gain = n["sounds aligned, ids from time"], n["sounds aligned, time minus index"]
    more = n["sounds aligned, M-RoPE minus plain RoPE on the same times"]
    return verdict(
        same.mean == 0 and other.over(0.1) and timed.over(0.9) and gain.over(0.2),
        f"{timed} of the sounds name their frame with ids from time, "
        f"{n['sounds aligned, ids by index (control)']} with ids by index; "
        f"{n['sounds aligned, plain RoPE on the same times']} with plain RoPE on the same times",
        ""
        if more.over(0.05)
        else "ids from time align, and plain RoPE that reads them does as well",
    )


@claim(
    "M-RoPE on text is RoPE; time-aligned ids align audio and video",
    rule=mm_1_rule,
    figure=dots(
        "Sounds that name the frame they fall on",
        "share of sounds",
        "sounds aligned, ids",
        levels={"a random symbol": 1 / WORDS},
    ),
)
def mm_1(lab: Lab) -> Measured:
    """Is: Gaussian vectors of 32 channels turned by mrope and rope of the same base at 64 positions
    to a million, in float32 and bfloat16. Align: encoders read 8 frames, then 12 sounds; a frame
    comes every 3 to 6 ids of 40 ms and a sound every 1 to 3, both drawn anew for each example, and
    each sound has to name the symbol of the frame on screen. tmrope reads the times in seconds. For
    comparison, the same model reads times that count up with the index; and plain RoPE, of the same
    base, reads the times in ids as positions on one axis.
    """
    how = {"length": FRAMES, "min_length": FRAMES, "steps": lab.pick(120, 1200)}
    kind = {"kind": "encoder", "heads": 2, "layers": lab.pick(1, 2)}
    pairs = lab.model.width // 4
    options = {"base": 1000.0, "sections": (pairs - 2, 1, 1), "rate": RATE}
    found = {}
    for name in ("ids from time", "ids by index (control)"):
        task = moments(name)
        found[name] = lab.accuracy(lab.trained("tmrope", task, kind, how, **options), FRAMES)
    plain = lab.trained("rope", moments(PLAIN), kind, how, base=1000.0)
    found[PLAIN] = lab.accuracy(plain, FRAMES)
    timed, by_index, plain_S = found.values()
    same, other = zip(*(from_rope(seed) for seed in lab.seeds), strict=True)
    numbers = {
        "mrope minus rope, equal ids": same,
        "mrope minus rope, unequal ids (control)": other,
        **{f"sounds aligned, {name}": share_S for name, share_S in found.items()},
        "sounds aligned, time minus index": timed - by_index,
        "sounds aligned, M-RoPE minus plain RoPE on the same times": timed - plain_S,
    }
    return Measured(numbers)


def from_rope(seed: int) -> tuple[float, float]:
    """Largest difference between mrope and rope: with equal ids, and with time alone."""
    rng = np.random.default_rng(seed)
    pos_BT = jnp.asarray(rng.integers(0, 1_000_000, size=(1, 64)), jnp.int32)
    x_BTHC = jnp.asarray(rng.normal(size=(1, 64, 2, 32)), jnp.float32)

    def turned(encoding: Encoding, pos_BT: jax.Array) -> list[jax.Array]:
        """The vectors turned at some positions, in float32 and in bfloat16."""
        layer = frame(encoding, {}, full(1, 64).replace(pos_BT=pos_BT), Dims(64, 2, 32)).layer(0)
        vectors = (x_BTHC.astype(dtype) for dtype in (jnp.float32, jnp.bfloat16))
        return [layer.rotate(x, x)[0].astype(jnp.float32) for x in vectors]

    rope, mrope = turned(make("rope"), pos_BT), make("mrope", base=10_000.0)
    equal = turned(mrope, jnp.stack([pos_BT] * 3, axis=-1))
    timed = turned(mrope, jnp.stack([pos_BT, 0 * pos_BT, 0 * pos_BT], axis=-1))
    apart = lambda a: max(float(jnp.abs(x - y).max()) for x, y in zip(a, rope, strict=True))
    return apart(equal), apart(timed)


def moments(name: str) -> Task:
    """A task of frames, each a symbol, then sounds that have to name the frame on screen.

    name: "ids from time"; PLAIN, the same ids on one axis; with any other name, seconds count up
      with the index.
    """
    data = {"timed": np.asarray(name in ("ids from time", PLAIN))}
    wide = FRAMES + SOUNDS

    def example(timed, key):
        frame_key, sound_key, symbol_key = jax.random.split(key, 3)
        place_T = jnp.arange(wide, dtype=jnp.int32)
        sound_T = place_T >= FRAMES
        frame_gap = jax.random.randint(frame_key, (), 3, 7, jnp.int32)
        sound_gap = jax.random.randint(sound_key, (), 1, 4, jnp.int32)
        when_T = jnp.where(sound_T, (place_T - FRAMES) * sound_gap, place_T * frame_gap)
        shown_T = draw(symbol_key, place_T, WORDS)
        on_screen_T = when_T // frame_gap
        tokens_T = SYMBOL + jnp.where(sound_T, WORDS, shown_T)
        targets_T = SYMBOL + shown_T[jnp.minimum(on_screen_T, FRAMES - 1)]
        weights_T = (sound_T & (on_screen_T < FRAMES)).astype(jnp.float32)
        id_T = jnp.where(timed, when_T, place_T)
        # As in the catalogue's streams: a sound has three equal ids, a frame is patch (0, 0).
        space_T = jnp.where(sound_T, id_T, 0).astype(float)
        if name == PLAIN:
            return tokens_T, targets_T, weights_T, id_T
        seconds_T = (id_T.astype(float) + 0.5) / RATE
        return tokens_T, targets_T, weights_T, jnp.stack([seconds_T, space_T, space_T], axis=-1)

    def batch(data, key_B):
        made = jax.vmap(partial(example, data["timed"]))(key_B)
        tokens_BT, targets_BT, weights_BT, pos_BTA = made
        place = layout(jnp.ones_like(tokens_BT), pos_BTA)
        return Batch(tokens_BT, targets_BT, weights_BT, place)

    def sample(data, key, size_B, width):
        return batch(data, jax.random.split(key, len(size_B)))

    def numbered(data, index_B, size_B, width, split):
        key = jax.random.key(1, impl="threefry2x32")
        return batch(data, jax.vmap(partial(jax.random.fold_in, key))(index_B))

    return Task(
        name=f"moments, {name}", vocab=SYMBOL + WORDS + 1, metric="exact_match", least=FRAMES,
        most=FRAMES, width=lambda size: wide, examples=lambda size: 256, data=data, sample=sample,
        numbered=numbered, baselines=dict, facts={},
    )  # fmt: skip
