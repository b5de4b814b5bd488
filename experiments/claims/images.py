"""The claim about positions in images."""

from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from experiments.claims import glyphs
from experiments.claims.figures import dots
from experiments.claims.ledger import Measured, claim, verdict
from experiments.claims.models import Lab
from posenc_jax.lab.tasks.task import PAD, SYMBOL, Batch, Task
from posenc_jax.lab.training.evaluation import bucket
from posenc_jax.layout import layout

SMALL, LARGE = 6, 9  # patches a side, in training and beyond
INK = 16  # patches of two by two pixels, black or white
GAIN, SHUFFLED = "gain, axial over rope,", "gain, axial over rope, shuffled,"
MORE = "gain, axial over rope, more than shuffled,"
LEARNED = "gain, learned_2d over learned,"
Order = Literal["grid", "line", "shuffled grid", "shuffled line"]


def img_1_rule(n):
    """Models alike but for their positions: rotary ones by row and column (`axial`) or by the
    number of the patch (`rope`), and learned tables of both kinds (quick: none). Beat: more patches
    are right, paired by seed, at the resolution of training and at a larger one. If only a part of
    this is true, that part is a condition. `axial` must be right nine times of ten at the
    resolution of training; otherwise too little was learned. If patches are shuffled in the same
    way in all images, the control, rows and columns mean nothing: where `axial` gains, it must gain
    more than it does there.
    """
    sizes = {"the resolution of training": SMALL, "a larger resolution": LARGE}
    gains = {
        f"{kind} positions are read at {where}": n[f"{gain} at {k}"]
        for kind, gain in (("rotary", GAIN), ("learned", LEARNED))
        for where, k in sizes.items()
        if f"{gain} at {k}" in n
    }
    beaten = [where for where, gain in gains.items() if gain.over(0)]
    own = [k for k in sizes.values() if n[f"{GAIN} at {k}"].over(0)]
    real = all(n[f"{MORE} at {k} (control)"].over(0) for k in own)
    accuracy = n[f"accuracy, axial, at {SMALL}"]
    return verdict(
        bool(beaten) and real and accuracy.over(0.9),
        f"{accuracy} of the patches are right with axial positions at the resolution of training, "
        f"{n[f'{GAIN} at {SMALL}']} more than with rope; at the larger one "
        f"{n[f'{GAIN} at {LARGE}']} more",
        "" if len(beaten) == len(gains) else " or ".join(beaten),
    )


@claim(
    "two-dimensional positions beat one-dimensional ones on images",
    rule=img_1_rule,
    figure=dots(
        "Printed digits, 6 x 6 patches and 9 x 9", "patches that name the digit", "accuracy",
        levels={"chance": 1 / glyphs.CLASSES},
    ),
)  # fmt: skip
def img_1(lab: Lab) -> Measured:
    """Encoders in which every patch has to name the digit: printed digits from the typefaces that
    come with matplotlib, each turned, slanted, stretched and moved a little, in 6 x 6 patches of
    two by two pixels, black or white; tested on other typefaces, at 9 x 9 patches as well.
    Positions are rotary, and learned tables of both kinds (quick: none), which are clamped at
    9 x 9. Shuffled: both rotary models read patches in another order, the same in all images.
    """
    asked: dict[str, tuple[str, Order, dict]] = {
        "rope": ("rope", "line", {}),
        "axial": ("axial", "grid", {}),
        "shuffled rope": ("rope", "shuffled line", {}),
        "shuffled axial": ("axial", "shuffled grid", {}),
    }
    gains = {GAIN: ("axial", "rope"), SHUFFLED: ("shuffled axial", "shuffled rope")}
    if lab.full:
        asked["learned"] = "learned", "line", {"length": SMALL**2, "beyond": "clamp"}
        asked["learned_2d"] = "learned_2d", "grid", {"length": SMALL, "beyond": "clamp"}
        gains[LEARNED] = "learned_2d", "learned"
    drawn = patches(lab.pick(600, 8000), lab.pick(256, 512))
    kind = {"kind": "encoder", "width": lab.pick(32, 64), "layers": lab.pick(1, 2)}
    how = {"length": SMALL, "min_length": SMALL, "batch": 16, "steps": lab.pick(120, 4000)}
    right = {}
    for name, (encoding, order, options) in asked.items():
        trained = lab.trained(encoding, printed(drawn, order), kind, how, **options)
        right |= {(name, k): lab.accuracy(trained, k) for k in (SMALL, LARGE)}
    numbers = {f"accuracy, {name}, at {k}": share_S for (name, k), share_S in right.items()}
    for k in (SMALL, LARGE):
        for gain, (better, worse) in gains.items():
            numbers[f"{gain} at {k}"] = right[better, k] - right[worse, k]
        numbers[f"{MORE} at {k} (control)"] = (
            numbers[f"{GAIN} at {k}"] - numbers[f"{SHUFFLED} at {k}"]
        )
    return Measured(numbers)


def patches(train: int, test: int) -> dict:
    """Images as tokens, padded to the widths of evaluation, and the digits that they show."""

    def tokens(count, side, fonts, seed):
        ink_NRC, label_N = glyphs.digits(count, 2 * side, fonts, seed)
        pixels = ink_NRC.reshape(count, side, 2, side, 2).transpose(0, 1, 3, 2, 4)
        tokens_NT = np.full((count, bucket(side * side)), PAD, np.int32)
        patch_NT = pixels.reshape(count, side * side, 4) @ [8, 4, 2, 1]
        tokens_NT[:, : side * side] = SYMBOL + patch_NT
        return tokens_NT, label_N.astype(np.int32)

    unseen = {str(bucket(k * k)): tokens(test, k, glyphs.UNSEEN, 2) for k in (SMALL, LARGE)}
    return {"train": tokens(train, SMALL, glyphs.SEEN, 1)} | unseen


def printed(drawn: dict, order: Order) -> Task:
    """The task to name the digit of an image at each of its patches; a size is patches a side.

    order: a patch's position is its row and column, its number counted from the top left, or that
      of another patch, the same one in all images.
    """

    def whole(tokens_NT, label_N):
        """All examples as one batch."""
        real_NT, pos_T = jnp.asarray(tokens_NT) != PAD, _places(tokens_NT.shape[1], order)
        targets_NT = jnp.where(real_NT, label_N[:, None] + SYMBOL + INK, PAD)
        pos_NT = jnp.broadcast_to(pos_T[None], (len(tokens_NT), *pos_T.shape))
        place = layout(real_NT.astype(jnp.int32), pos_NT)
        return Batch(jnp.asarray(tokens_NT), targets_NT, real_NT.astype(jnp.float32), place)

    rows = lambda batch, index_B, width: jax.tree.map(lambda leaf: leaf[index_B, :width], batch)

    def sample(data, key, size_B, width):
        chosen = jax.random.randint(key, size_B.shape, 0, len(data["train"].tokens_BT))
        return rows(data["train"], chosen, width)

    def numbered(data, index_B, size_B, width, split):
        return rows(data[str(width)], index_B, width)

    return Task(
        name=f"printed digits, {order}", vocab=SYMBOL + INK + glyphs.CLASSES, metric="exact_match",
        least=SMALL, most=LARGE, width=lambda side: side * side,
        examples=lambda side: len(drawn[str(bucket(side * side))][1]), sample=sample,
        data={name: whole(*shown) for name, shown in drawn.items()}, numbered=numbered,
        baselines=dict, facts={},
    )  # fmt: skip


def _places(width: int, order: Order) -> np.ndarray:
    """The positions of patches, [T] or [T, 2]; those of padding are not used."""
    side = LARGE if width == bucket(LARGE * LARGE) else SMALL
    number_T = np.arange(width) % side**2
    if order.startswith("shuffled"):
        lots = np.random.default_rng(0).permutation(LARGE**2).reshape(LARGE, LARGE)
        number_T = lots[:side, :side].ravel().argsort().argsort()[number_T]
    if order.endswith("line"):
        return number_T.astype(np.int32)
    return np.stack(np.divmod(number_T, side), axis=-1).astype(np.int32)
