"""Claims about what padding changes.

`configs/padding_leakage.py` measures all methods, both sides of padding, and the accuracy lost.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.claims.figures import dots
from experiments.claims.ledger import Measured, claim
from experiments.claims.models import Lab, Trained, by_seed
from experiments.claims.verdicts import all_over, decades, over, power, said, unchanged, verdict
from experiments.padding_leakage.config import Config, Data, Learning
from experiments.padding_leakage.measuring import Leaks, Quantity, measure, subset
from posenc_jax import make
from posenc_jax.lab.config.schema import EncodingConfig, MaskConfig, ModelConfig
from posenc_jax.lab.model import transformer
from posenc_jax.lab.model.transformer import Model
from posenc_jax.lab.tasks.task import PAD
from posenc_jax.layout import Layout, layout

SHOWN = -3  # a power of ten; float32 rounds logits to about 1e-6
SIDES = ("left", "right")
REAL, PADDING = 24, 8  # tokens
ALL, NO_ATTENTION = subset((True, True, True)), subset((False, True, True))


def leaks(lab: Lab) -> Leaks:
    """What padding changes in a small rotary encoder trained with each subset of the masks."""
    data = Data(
        symbols=8, min_length=6, length=12, measured=10, amounts=lab.pick((4,), (2, 8)),
        sides=lab.pick(SIDES[:1], SIDES), examples=16,
    )  # fmt: skip
    learning = Learning(steps=lab.pick(60, 300), batch=lab.pick(16, 32), lr=3e-3)
    model = ModelConfig(kind="encoder", width=32, heads=4, layers=lab.pick(1, 2))
    config = Config(
        experiment="padding_leakage", encoding=EncodingConfig(name="rope"), model=model, data=data,
        learning=learning, seeds=len(lab.seeds), first_seed=lab.seeds[0],
    )  # fmt: skip
    return lab.once("leaks", lambda: measure(config, "rope", make("rope")))


def largest(found: Leaks, quantity: Quantity, masks: str) -> np.ndarray:
    """A quantity of the trained encoders, the largest over amounts and sides of padding, [S]."""
    return found[quantity, masks][:, 1].max(axis=(0, 1))


def pad_1_rule(n):
    """Attended to: without the attention mask, padding gets 5% or more of what real tokens of an
    encoder attend to. Change: other content in it moves their outputs by 1e-3 of a logit or more,
    and those of a decoder that is padded on the left. That this is without the attention mask is a
    condition where with it neither changes at all, to the bit. A decoder padded on the right, where
    all padding comes later, is the control: nothing may change.
    """
    attended = n["attention to padding, encoder"]
    free = [n[f"log10 of the change, {kind}"] for kind in KINDS]
    masked_in = [n[f"log10 of the change, {kind}, mask on"] for kind in KINDS]
    control = n["log10 of the change, decoder padded on the right (control)"]
    reason = (
        f"mask off: an encoder pays padding {said(attended)} of its attention and its outputs "
        f"change by {power(free[0])}; a decoder's by {power(free[1])} with padding on the left and "
        f"by {power(control)} on the right; mask on: {', '.join(map(power, masked_in))}"
    )
    leaks = unchanged(control) and over(attended, 0.05) and all_over(free, SHOWN)
    still_leaks, kept_out = all_over(masked_in, SHOWN), all(map(unchanged, masked_in))
    condition = (
        "the attention mask is off, and in a causal model the padding stands before the tokens"
    )
    return verdict(leaks and (still_leaks or kept_out), reason, condition if kept_out else "")


KINDS = ("encoder", "decoder")


@claim(
    "pad-1",
    "padding tokens are attended to and change real outputs",
    rule=pad_1_rule,
    figure=dots(
        "What other content in the padding changes", "log10 of the change", "log10 of the change"
    ),
)
def pad_1(lab: Lab) -> Measured:
    """Encoder: small, rotary, trained on padded sequences with every mask but that of attention,
    and with all; see `configs/padding_leakage.py`. Decoder: the shared rotary one on 24 bytes and 8
    of padding. The content of the padding is changed at random. Attention: mean over layers, heads
    and real tokens.
    """
    found, decoder = leaks(lab), lab.trained("rope")
    change = {
        "encoder": largest(found, ("content", "outputs"), NO_ATTENTION),
        "encoder, mask on": largest(found, ("content", "outputs"), ALL),
        "decoder": _exchanged(lab, decoder, "left", attention=False),
        "decoder, mask on": _exchanged(lab, decoder, "left", attention=True),
        "decoder padded on the right (control)": _exchanged(lab, decoder, "right", attention=False),
    }
    numbers = {"attention to padding, encoder": largest(found, ("mass",), NO_ATTENTION)}
    numbers |= {f"log10 of the change, {name}": decades(found) for name, found in change.items()}
    return Measured(numbers)


def masked(trained: Trained, layers: int | None = None, **masks) -> Model:
    """The model with some of its masks off; with its first `layers` only, if given."""
    change = {"masks": MaskConfig(**masks), "layers": layers or trained.config.layers}
    config = trained.config.model_copy(update=change)
    return transformer.build(config, trained.encoding, trained.task.vocab)


def padded(lab: Lab, side: str = "left") -> tuple[jax.Array, Layout]:
    """Padded text: tokens [32, REAL + PADDING], 0 for padding, and their layout."""
    before = PADDING if side == "left" else 0
    put = lambda x_BT: jnp.pad(x_BT, ((0, 0), (before, PADDING - before)))
    return put(lab.windows(32, REAL)), layout(put(jnp.ones((1, REAL), jnp.int32)))


def _exchanged(lab: Lab, trained: Trained, side: str, attention: bool) -> np.ndarray:
    """Largest change of a real token's logit when the content of padding changes: [S]."""
    model = masked(trained, attention=attention)
    tokens_BT, where = padded(lab, side)
    random_BT = jax.random.randint(jax.random.key(0), tokens_BT.shape, 1, 256, jnp.int32)
    real_BT = where.segment_BT > 0
    other_BT = jnp.where(real_BT, tokens_BT, random_BT)

    def run(params):
        zeros, other = (model.apply(params, t_BT, where) for t_BT in (tokens_BT, other_BT))
        return jnp.where(real_BT[..., None], jnp.abs(zeros - other), 0.0).max()

    return by_seed(run, trained.params)


def pad_2_rule(n):
    """Two texts in one row with padding between them, which do not see each other, so that what one
    changes in the other has gone through the padding. Without the attention mask the hidden states
    of the padding change by 1e-3 or more of their size (absorb), and the outputs of the second text
    by 1e-3 of a logit or more (pass on); that it is off is a condition where with it the second
    text does not change at all, to the bit. Two controls must not change either: one layer alone,
    which can absorb but not pass on, and no padding between the texts.
    """
    absorbed = n["log10 of the change, states of the padding"]
    passed = n["log10 of the change, outputs of the other text"]
    masked_in = n["log10 of the change, mask on"]
    controls = {name: n[f"log10 of the change, {name} (control)"] for name in ALONE}
    reason = (
        f"another first text changes the padding after it by {power(absorbed)} of its size, and a "
        f"logit of the second text by {power(passed)}; mask on: {power(masked_in)}; "
        + "; ".join(f"{name}: {power(i)}" for name, i in controls.items())
    )
    relays = all(map(unchanged, controls.values())) and all_over([absorbed, passed], SHOWN)
    still_relays, kept_out = over(masked_in, SHOWN), unchanged(masked_in)
    condition = "the attention mask is off and there are two layers or more" if kept_out else ""
    return verdict(relays and (still_relays or kept_out), reason, condition)


ALONE: dict[str, dict[str, Any]] = {"one layer": {"layers": 1}, "no padding": {"padding": 0}}


@claim(
    "pad-2",
    "padding positions absorb and pass on content",
    rule=pad_2_rule,
    figure=dots("What goes through the padding", "log10 of the change", "log10 of the change"),
)
def pad_2(lab: Lab) -> Measured:
    """A rotary decoder of two layers, trained on text, on rows of 12 bytes, 8 of padding, 12 bytes
    of another text, packed as documents; the first text is exchanged. Largest change over 32 rows.
    """
    trained = lab.trained("rope", model={"layers": 2})
    absorbed, passed = relayed(lab, trained)
    numbers = {
        "log10 of the change, states of the padding": absorbed,
        "log10 of the change, outputs of the other text": passed,
        "log10 of the change, mask on": relayed(lab, trained, attention=True)[1],
    }
    for name, options in ALONE.items():
        numbers[f"log10 of the change, {name} (control)"] = relayed(lab, trained, **options)[1]
    return Measured(numbers)


def relayed(
    lab: Lab, trained: Trained, attention: bool = False, layers: int = 2, padding: int = PADDING
) -> np.ndarray:
    """Log10 of the changes of the padding's last states and of the second text's logits, [2, S]."""
    model = masked(trained, layers, attention=attention)
    assert model.extend is not None
    extend, words_BT = model.extend, lab.windows(96, 12)
    where = layout(jnp.asarray([[1] * 12 + [0] * padding + [2] * 12], jnp.int32))
    pads_BT = jnp.full((32, padding), PAD, words_BT.dtype)
    row = lambda first_BT: jnp.concatenate([first_BT, pads_BT, words_BT[64:]], axis=1)

    def run(params):
        def read(first_BT):
            logits_BTV, memory = extend(params, row(first_BT), where)
            return memory.x[-1][:, 12 : 12 + padding], logits_BTV[:, -12:]

        (pads_a, text_a), (pads_b, text_b) = read(words_BT[:32]), read(words_BT[32:64])
        size = jnp.sqrt(jnp.square(pads_a).mean()) if padding else 1.0
        moved = jnp.abs(pads_a - pads_b).max(initial=0.0) / size
        return jnp.stack([moved, jnp.abs(text_a - text_b).max()])

    return decades(by_seed(run, trained.params).T)
