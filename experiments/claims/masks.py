"""The claim about the three padding masks."""

import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

from experiments.claims.ledger import Measured, Numbers, claim
from experiments.claims.models import Lab, Trained, by_seed
from experiments.claims.padding import ALL, PADDING, REAL, SHOWN, largest, leaks, masked, padded
from experiments.claims.verdicts import decades, over, power, unchanged, under, verdict
from experiments.padding_leakage.measuring import MASKS, SUBSETS, subset
from posenc_jax.lab.report import drawing
from posenc_jax.lab.tasks.task import PAD
from posenc_jax.layout import full

ROUNDING = -4  # a power of ten; what order-1 allows for rounding logits of size 10 in float32
READ = ("outputs", "pooled", "loss", "gradient")


def pad_3_rule(n):
    """All as powers of ten. Not enough: with zeros as embeddings of the padding and no mask,
    outputs differ by 1e-3 of a logit or more from those without any padding; with the attention
    mask, the control, by no more than rounding, 1e-4. Enough: with all three masks other content
    changes outputs, pooled output, loss and gradient by 0, to the bit, and taking the padding away
    by no more than rounding. A mask is necessary for what changes by 1e-3 or more when it alone is
    off, and tidy where nothing does; one that guards the pooled output alone is tidy elsewhere.
    """
    zeroed, control = (n[f"log10 of the change, zeroed padding{on}"] for on in ("", MASK_ON))
    exact = all(unchanged(n[_name("content", q, ALL)]) for q in READ)
    close = all(under(n[_name("amount", q, ALL)], ROUNDING) for q in READ)
    guards = {mask: _guarded(n, mask) for mask in MASKS}
    reason = (
        f"zeroed padding changes a logit by {power(zeroed)}, with the attention mask by "
        f"{power(control)}; with all masks other content changes "
        f"{'nothing' if exact else 'something'}, and to take it away "
        f"{'no more' if close else 'more'} than rounding; "
        + "; ".join(
            f"off, the {m} mask lets in {', '.join(q) or 'nothing'}" for m, q in guards.items()
        )
    )
    condition, tidy = "", [mask for mask, found in guards.items() if not found]
    if tidy:
        condition = f"the {' and the '.join(tidy)} mask counts as tidy only"
    elif guards["output"] == ["pooled"]:
        condition = "outputs are pooled; else the output mask is only tidy"
    enough = over(zeroed, SHOWN) and under(control, ROUNDING) and exact and close
    return verdict(enough, reason, condition)


MASK_ON = ", attention mask on (control)"


def _guarded(n: Numbers, mask: str) -> list[str]:
    """What padding changes with that mask alone off, by its content or by its amount."""
    masks = subset([name != mask for name in MASKS])
    leaky = lambda change, q: over(n[_name(change, q, masks)], SHOWN)
    return [q for q in READ if leaky("content", q) or leaky("amount", q)]


NAMES = [subset(used) for used in SUBSETS]


def grid(measured: Measured) -> Figure:
    """A row for each subset of the masks, a column for each quantity: its largest change."""
    figure = Figure(figsize=(8, 4.2))
    axes = figure.subplots()
    for row, column in np.ndindex(len(NAMES), len(READ)):
        names = [_name(c, READ[column], NAMES[row]) for c in ("content", "amount")]
        change = max((measured.intervals[name] for name in names), key=lambda i: i.mean)
        color = drawing.COLORS[1] if over(change, SHOWN) else drawing.MUTED
        axes.text(column, row, power(change), ha="center", va="center", color=color)
    axes.set_xticks(range(len(READ)), READ)
    axes.set_yticks(range(len(NAMES)), NAMES)
    axes.set_xlim(-0.5, len(READ) - 0.5)
    axes.set_ylim(len(NAMES) - 0.5, -0.5)
    axes.grid(False)
    axes.set_ylabel("masks that are on")
    drawing.set_title(axes, "What padding changes", "by its content or by its amount, the larger")
    return figure


def _name(change: str, quantity: str, masks: str) -> str:
    return f"log10 of the change, {change}/{quantity}, {masks}"


@claim(
    "pad-3",
    "zeroing pad embeddings is not enough; attention, output and loss masks together are",
    rule=pad_3_rule,
    figure=grid,
)
def pad_3(lab: Lab) -> Measured:
    """The small encoders of pad-1, trained with each of the eight subsets of the masks: largest
    change of the outputs of real tokens, the pooled output, the loss and its gradient when the
    content of the padding changes, and when the padding is taken away. Zeroed: the shared rotary
    decoder on 24 bytes with 8 of padding before them that embeds as zeros.
    """
    found, trained = leaks(lab), lab.trained("rope")
    numbers = {
        _name(change, quantity, masks): decades(largest(found, (change, quantity), masks))
        for change in ("content", "amount")
        for quantity in READ
        for masks in NAMES
    }
    for on in ("", MASK_ON):
        change = _zeroed(lab, trained, attention=on == MASK_ON)
        numbers[f"log10 of the change, zeroed padding{on}"] = decades(change)
    return Measured(numbers)


def _zeroed(lab: Lab, trained: Trained, attention: bool) -> np.ndarray:
    """Largest change of a logit against no padding, where PAD embeds as zeros: [S]."""
    model = masked(trained, attention=attention)
    tokens_BT, where = padded(lab)

    def run(params):
        params = {**params, "embed": params["embed"].at[PAD].set(0.0)}
        with_padding = model.apply(params, tokens_BT, where)[:, PADDING:]
        without = model.apply(params, tokens_BT[:, PADDING:], full(1, REAL))
        return jnp.abs(with_padding - without).max()

    return by_seed(run, trained.params)
