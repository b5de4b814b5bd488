"""Claims about the order of tokens, most of them measured by the permutation experiment."""

import numpy as np

from experiments.claims.figures import dots, lines
from experiments.claims.ledger import Curve, Measured, claim, verdict
from experiments.claims.models import Lab
from experiments.invariance.permutation.config import CAUSAL, LSTM, EquivarianceConfig, OrderConfig
from experiments.invariance.permutation.order_tasks import Measured as Row
from experiments.invariance.permutation.order_tasks import Setting, Subject, measure
from posenc_jax import encodings
from posenc_jax.lab import tasks
from posenc_jax.lab.config.schema import ModelConfig

KINDS = {CAUSAL: "decoder", LSTM: "lstm"}  # rows without an encoding; the others are encoders


def lengths_of(lab: Lab) -> tuple[int, ...]:
    """The lengths at which equivariance is measured."""
    return lab.pick((2, 8, 32), (2, 8, 32, 128, 512))


def row(lab: Lab, label: str) -> Row:
    """One row of the permutation experiment, measured once for all claims."""
    setting = Setting(
        ModelConfig(kind="encoder", width=32, heads=4, layers=1, mlp=2),
        OrderConfig(symbols=lab.pick(4, 6), steps=lab.steps(150), lr=5e-3),
        EquivarianceConfig(lengths=lengths_of(lab), permutations=3, float64=("nope",)),
        tuple(lab.seeds),
    )
    encoding = encodings.make("nope" if label in KINDS else label)
    subject = Subject(label, encoding, KINDS.get(label, "encoder"), 1)
    return lab.once(("order", label), lambda: measure(setting, subject))


def order_1_rule(n):
    """Equivariant: permuting the tokens permutes the outputs to within 1e-10 in float64 and 1e-4 in
    float32, a hundred times the rounding of logits of size 10 or more. With sinusoidal positions,
    the control, outputs must differ by 0.01 or more, but by no more than rounding if tokens keep
    their positions when they are permuted.
    """
    exact, single = n["no positions, float64"], n["no positions, float32"]
    broken = n["sinusoidal, float32 (control)"]
    carried = n["sinusoidal, positions carried along"]
    return verdict(
        exact.under(1e-10) and single.under(1e-4) and carried.under(1e-4) and broken.over(0.01),
        f"outputs of permuted tokens differ from permuted outputs by {exact} in float64 and "
        f"{single} in float32; with sinusoidal positions by {broken}",
    )


@claim(
    "without positions a bidirectional encoder is permutation-equivariant, E(px) = pE(x)",
    rule=order_1_rule,
    figure=lines(
        "How far an encoder is from equivariance", "length (tokens)", "max |E(px) - pE(x)|",
        log_x=True, log_y=True, below="float32 unless said · largest of three permutations",
    ),
)  # fmt: skip
def order_1(lab: Lab) -> Measured:
    """Encoders before and after training on order: the largest difference of logits over three
    random permutations at lengths 2 to 512 (quick: 32).
    """
    nope, sine = row(lab, "nope").errors, row(lab, "sinusoidal").errors
    found = {
        "no positions, float64": nope["float64"][0],
        "no positions, float32": nope["float32"][0],
        "sinusoidal, float32 (control)": sine["float32"][0],
        "sinusoidal, positions carried along": sine["float32"][1],
    }
    drawable = lambda error: [np.maximum(error[1], 1e-18)]  # a log axis has no place for 0
    curves = {name: Curve(lengths_of(lab), drawable(error)) for name, error in found.items()}
    return Measured({name: [error.max()] for name, error in found.items()}, curves)


def order_2_rule(n):
    """Invariant: (a, b) and (b, a) give the same logits to 1e-4 before and after training, and
    exactly one half of all pairs is right, for every seed. With sinusoidal positions, the control,
    99% must be right.
    """
    twins, half = n["difference of (a, b) and (b, a), no positions"], n["accuracy, no positions"]
    control = n["accuracy, sinusoidal (control)"]
    exactly = half.mean == 0.5 and not half.half
    return verdict(
        exactly and twins.under(1e-4) and control.over(0.99),
        f"the accuracy is {half} without positions and {control} with sinusoidal ones; it is "
        f"{n['accuracy, alibi']} with ALiBi, whose bias tells how far, not which way",
    )


@claim(
    "with mean pooling it is invariant: (a, b) and (b, a) cannot be told apart, accuracy exactly "
    "one half",
    rule=order_2_rule,
    figure=dots(
        "Which of two symbols stands first", "accuracy", "accuracy", levels={"chance": 1 / 2}
    ),
)
def order_2(lab: Lab) -> Measured:
    """Mean-pooled encoders trained on all ordered pairs of 6 symbols (quick: 4), 150 steps, and
    scored on the same pairs. So a low score cannot come from pairs that were not seen.
    """
    nope = row(lab, "nope")
    numbers = {
        "difference of (a, b) and (b, a), no positions": [nope.swap_gap_2S.max()],
        "accuracy, no positions": nope.right_NS[0],
        "accuracy, sinusoidal (control)": row(lab, "sinusoidal").right_NS[0],
        "accuracy, rope": row(lab, "rope").right_NS[0],
        "accuracy, alibi": row(lab, "alibi").right_NS[0],
    }
    return Measured(numbers)


def order_3_rule(n):
    """Gives order away: 99% of the examples are right, both of pairs (chance 1/2) and of triples in
    six orders (chance 1/6), for the causal Transformer without positions and for the LSTM. The same
    Transformer without the mask, the control, must stay at one half of the pairs.
    """
    pairs = [n[f"pairs, {name}"] for name in KINDS]
    triples = [n[f"triples, {name}"] for name in KINDS]
    control = n["pairs, no mask (control)"]
    reason = (
        f"a causal mask gets {triples[0]} of the triples right, an LSTM {triples[1]}; without "
        f"the mask {control} of the pairs are right"
    )
    condition = "" if all(i.over(0.99) for i in triples) else "there are two tokens to order"
    return verdict(control.under(0.51) and all(i.over(0.99) for i in pairs), reason, condition)


@claim(
    "a causal mask alone already gives order away; a recurrent network needs no encoding",
    rule=order_3_rule,
    figure=dots(
        "Order without an encoding",
        "accuracy",
        levels={"chance for pairs": 1 / 2, "for triples": 1 / 6},
    ),
)
def order_3(lab: Lab) -> Measured:
    """A one-layer causal Transformer without positions and an LSTM, read out from the mean over
    tokens, trained 150 steps on all pairs and on all triples of 6 symbols (quick: 4).
    """
    rows = {name: row(lab, name).right_NS for name in KINDS}
    pairs = {f"pairs, {name}": right_NS[0] for name, right_NS in rows.items()}
    triples = {f"triples, {name}": right_NS[1] for name, right_NS in rows.items()}
    control = {"pairs, no mask (control)": row(lab, "nope").right_NS[0]}
    return Measured(pairs | triples | control)


def order_4_rule(n):
    """Collapses: of the bits that positions save against the plain frequencies of bytes, the
    encoder without them saves less than a quarter. Positions must save 0.2 bits or more; otherwise
    the models have learned too little for a test.
    """
    kept, saved = n["share of the saving kept without positions"], n["bits saved, sinusoidal"]
    return verdict(
        saved.over(0.2) and kept.under(0.25),
        f"against byte frequencies sinusoidal positions save {saved} bits a hidden byte, no "
        f"positions {n['bits saved, no positions']}: {kept} of it",
    )


@claim(
    "masked-token prediction on real text collapses without positions",
    rule=order_4_rule,
    figure=dots(
        "Hidden bytes of real text",
        "bits saved against byte frequencies",
        "bits saved",
        levels={"byte frequencies": 0.0},
    ),
)
def order_4(lab: Lab) -> Measured:
    """Encoders of 2 layers (quick: 1) on text with 15% of the bytes hidden, trained for as many
    steps as the shared decoders: bits a hidden byte, in length. (Haviv et al. 2022, arXiv
    2203.16634, on WikiText-103: perplexity 147.18 without positions, 4.06 with learned ones.)
    """
    task = masked_text(lab)
    unigram = task.baselines()["unigram"]
    model = {"kind": "encoder", "layers": lab.pick(1, 2)}
    nope, sine = (
        lab.bits(lab.trained(name, task, model), lab.train.length)
        for name in ("nope", "sinusoidal")
    )
    numbers = {
        "share of the saving kept without positions": (unigram - nope) / (unigram - sine),
        "bits saved, sinusoidal": unigram - sine,
        "bits saved, no positions": unigram - nope,
        "bits, sinusoidal": sine,
        "bits, no positions": nope,
        "bits, byte frequencies": [unigram],
    }
    return Measured(numbers)


def masked_text(lab: Lab) -> tasks.Task:
    """The ledger's text with 15% of its bytes hidden; the task has a name of its own."""
    options = {k: v for k, v in lab.text.facts["options"].items() if k != "masked"}
    name = lab.text.facts["task"]
    return tasks.make(name, masked=0.15, **options)._replace(name=f"{lab.text.name}, masked")
