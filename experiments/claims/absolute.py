"""Claims about absolute positions other than sinusoidal ones."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np

from experiments.claims.figures import dots, lines
from experiments.claims.ledger import Curve, Measured, claim, verdict
from experiments.claims.models import Lab, misplaced, read_as
from posenc_jax.encodings import card
from posenc_jax.lab import tasks
from posenc_jax.lab.definitions import EMBEDS
from posenc_jax.lab.tasks.task import SYMBOL, Task, draw, generated

WAYS = {  # the way in which each scheme fails, and the bound of its number
    "index": ("growth", 1.5),
    "normalized": ("step shrinks", 1.5),
    "binary": ("jump", 1.5),
    "one_hot": ("flatness", 0.99),
}
COMPARED = ("learned", "sinusoidal")
FEW = (2**15, 2**18)  # bytes of the smaller texts of abs-4
MOTIF, STARTS = (3, 0, 3, 0, 0, 3), (8, 20)  # TATAAT, and the places where it stands


def abs_1_rule(n):
    """Past the range: at 4 times the trained length the clamped table loses 0.1 bits a byte or
    more, as much as the difference between architectures; ALiBi on the same text, the control, does
    not. Interpolation loses less: its bits are below the clamped ones there, paired by seed. At the
    trained length both must be equal.
    """
    lost, control = n["clamped: bits lost at 4x"], n["alibi: bits lost at 4x (control)"]
    less = n["clamped minus interpolated at 4x"]
    reason = (
        f"past the trained length a clamped table loses {lost} bits a byte, an interpolated one "
        f"{n['interpolated: bits lost at 4x']}, ALiBi {control}"
    )
    same = abs(n["clamped minus interpolated at 1x"].mean) < 1e-6
    condition = "" if less.over(0) else "nothing is said of interpolation"
    return verdict(same and lost.over(0.1) and control.under(0.1), reason, condition)


@claim(
    "learned positions fail past the trained length; clamping degrades sharply, interpolation less",
    rule=abs_1_rule,
    figure=lines(
        "A learned table past its end", "test length / trained length", "bits per byte",
    ),
)  # fmt: skip
def abs_1(lab: Lab) -> Measured:
    """A decoder trained on text with a learned table as long as its windows, read at 1, 2, 4 and 8
    times their length (quick: 1 and 4) with the table clamped and interpolated, from the same
    weights; and a decoder with ALiBi. With the third policy, `error`, there is nothing to measure.
    """
    length, times = lab.train.length, lab.pick((1, 4), (1, 2, 4, 8))
    clamped = lab.learned()
    models = {
        "clamped": clamped,
        "interpolated": read_as(clamped, "learned", length=length, beyond="interpolate"),
        "alibi": lab.trained("alibi"),
    }
    bits = {name: [lab.bits(model, k * length) for k in times] for name, model in models.items()}
    notes = {"clamped": "", "interpolated": "", "alibi": " (control)"}
    numbers = {
        f"{name}: bits lost at 4x{note}": lab.lost(models[name], 4 * length)
        for name, note in notes.items()
    }
    for k, a, b in zip(times, bits["clamped"], bits["interpolated"], strict=True):
        numbers[f"clamped minus interpolated at {k}x"] = a - b
    curves = {name: Curve(times, np.stack(b, axis=1)) for name, b in bits.items()}
    floor = lab.text.baselines()["unigram"]
    return Measured(numbers, curves | {"byte frequencies": Curve(times, [[floor] * len(times)])})


def abs_2_rule(n):
    """Each way to fail is one number. The counter: the factor by which its largest entry grows when
    the length doubles must be over 1.5. [0, 1]: a step in a sequence of 512 must be more than 1.5
    times smaller than in one of 64. Binary: the largest distance of neighbours divided by the
    smallest must be over 1.5. One-hot: the distance of neighbours divided by that of positions 64
    apart must be over 0.99, so that nothing is near; and there is no value past the range.
    Sinusoidal positions, the control, must fail in none of these ways.
    """
    shown = {name: n[f"{way}, {name}"] for name, (way, _) in WAYS.items()}
    failing = all(shown[name].over(bound) for name, (_, bound) in WAYS.items())
    sound = all(n[f"{way}, sinusoidal"].under(bound) for way, bound in WAYS.values())
    return verdict(
        failing and sound and n["defined past the range, one_hot"].under(0.5),
        f"the counter's largest entry grows {shown['index']} times when the length doubles; binary "
        f"neighbours are up to {shown['binary']} times as far apart as others, one-hot ones "
        f"{shown['one_hot']} times as far apart as any two",
    )


@claim(
    "the plain counter, [0,1], binary and one-hot schemes fail each in their own way",
    rule=abs_2_rule,
    figure=lines(
        "How far apart neighbours are", "position t (of 64)",
        "|c(t + 1) - c(t)| / their mean", below="sequences of 64 tokens",
    ),
)  # fmt: skip
def abs_2(lab: Lab) -> Measured:
    """The vectors that the catalogue's definitions add to a zero embedding, with 1 for the learned
    projection, in sequences of 64, 128 and 512 tokens and in one of 600, past the range.
    """
    numbers, curves, norm = {}, {}, np.linalg.norm
    for name in (*WAYS, "sinusoidal"):
        short_TD, long_TD = codes(name, 64), codes(name, 512)
        step_T = norm(np.diff(short_TD, axis=0), axis=1)
        long_step = norm(np.diff(long_TD, axis=0), axis=1).mean()
        flatness = norm(long_TD[1] - long_TD[0]) / norm(long_TD[64] - long_TD[0])
        numbers |= {
            f"growth, {name}": [np.abs(codes(name, 128)).max() / np.abs(short_TD).max()],
            f"step shrinks, {name}": [step_T.mean() / long_step],
            f"jump, {name}": [step_T.max() / step_T.min()],
            f"flatness, {name}": [flatness],
            f"defined past the range, {name}": [float(np.isfinite(codes(name, 600)).all())],
        }
        curves[name] = Curve(np.arange(63), [step_T / step_T.mean()])
    return Measured(numbers, curves)


def codes(name: str, time: int, width: int = 512) -> np.ndarray:
    """The vectors that a method adds by its definition, [T, D], with 1 as learned projection."""
    own = {"index": 1, "normalized": 1, "binary": 9, "one_hot": width}
    params = {"code": np.eye(own[name], width)} if name in own else {}
    options = SimpleNamespace(**card(name).defaults)
    return EMBEDS[name](options, params, np.zeros((time, width)), np.arange(time), time)


def abs_3_rule(n):
    """A method wins if its bits are lower: the 95% interval of the difference, paired by seed, does
    not contain 0. The claim has two halves, DNA-like data and prose, and the verdict says which of
    them hold. On DNA-like data both models must have learned all there is: they are less than 0.05
    bits above the entropy of the data. Wrong positions, the control, must cost the learned table
    0.1 bits or more there; otherwise it does not use them.
    """
    dna, prose = (n[f"learned minus sinusoidal, {kind}"] for kind in ("DNA-like", "prose"))
    control = n["bits that wrong positions cost, DNA-like (control)"]
    above = [n[f"bits above the entropy, {name}, DNA-like"] for name in COMPARED]
    structured, general = dna.under(0), prose.over(0)
    won = "learned positions on fixed structure" if structured else "sinusoidal ones on text"
    learned = all(i.under(0.05) for i in above) and control.over(0.1)
    return verdict(
        learned and (structured or general),
        f"learned minus sinusoidal in bits: {dna} on DNA-like data, where the learned model is "
        f"{above[0]} above the entropy, and {prose} on prose",
        "" if structured and general else f"only {won} are meant",
    )


@claim(
    "learned positions win on code- or DNA-like data with fixed structure, sinusoidal on general "
    "text",
    rule=abs_3_rule,
    figure=dots(
        "Learned minus sinusoidal",
        "bits a symbol",
        "learned minus sinusoidal",
        levels={"equal": 0.0},
    ),
)
def abs_3(lab: Lab) -> Measured:
    """Bits a symbol within the trained length, learned minus sinusoidal, paired by seed. DNA-like:
    lines with a reading frame of three and a motif at two fixed places, one layer, against their
    entropy. Prose: windows cut anywhere from the English reference that comes with Python, so that
    a place in the window has no meaning. Windows of source code, cut in the same way, for
    comparison.
    """
    length, small = lab.train.length, {"layers": 1}
    tasks_of = {
        "DNA-like": (reading_frame(), small),
        "prose": (tasks.make("prose"), None),
        "code": (None, None),
    }
    numbers, bits = {}, {}
    for kind, (task, model) in tasks_of.items():
        pair = lab.learned(task, model), lab.trained("sinusoidal", task, model)
        bits[kind] = [lab.bits(trained, length) for trained in pair]
        numbers[f"learned minus sinusoidal, {kind}"] = np.subtract(*bits[kind])
    for kind, pair in bits.items():
        numbers |= {f"bits, {m}, {kind}": b for m, b in zip(COMPARED, pair, strict=True)}
    for name, found in zip(COMPARED, bits["DNA-like"], strict=True):
        numbers[f"bits above the entropy, {name}, DNA-like"] = found - entropy(length)
    lost = lab.bits(misplaced(lab.learned(*tasks_of["DNA-like"])), length) - bits["DNA-like"][0]
    return Measured(numbers | {"bits that wrong positions cost, DNA-like (control)": lost})


def abs_4_rule(n):
    """Needs more data: trained on the smallest text the table loses bits against sinusoidal
    vectors, and it loses more there than on the whole text; both paired by seed. If it is not shown
    to lose 0.02 bits there, a fifth of what wrong positions must cost, that is a condition. Wrong
    positions, the control, must cost the table 0.1 bits or more on the smallest text; otherwise it
    does not use them.
    """
    few, every = (n[f"learned minus sinusoidal, {name}"] for name in (_bytes(FEW[0]), "all"))
    more = n["learned minus sinusoidal, smallest text minus all"]
    control = n["bits that wrong positions cost, smallest text (control)"]
    return verdict(
        control.over(0.1) and few.over(0) and more.over(0),
        f"a learned table minus sinusoidal vectors, in bits a byte: {few} after training on the "
        f"smallest text, {every} on all of it; wrong positions cost the table {control}",
        "" if few.over(0.02) else "less than 0.02 bits a byte count",
    )


@claim(
    "learned tables need more data than sinusoidal vectors",
    rule=abs_4_rule,
    figure=lines(
        "A learned table minus sinusoidal vectors, by the text trained on",
        "bytes of the text", "bits per byte", log_x=True, levels={"equal": 0.0},
    ),
)  # fmt: skip
def abs_4(lab: Lab) -> Measured:
    """Decoders with a learned table and with sinusoidal vectors, each trained for as many steps on
    the first 32 KiB, on the first 256 KiB and on all of the text, and tested on the same other text
    at the trained length. On a small text a training meets each byte many times.
    """
    length, numbers, minus = lab.train.length, {}, {}
    texts = {_bytes(size): first(lab.text, size) for size in FEW} | {"all": lab.text}
    for name, text in texts.items():
        pair = lab.learned(text), lab.trained("sinusoidal", text)
        bits = [lab.bits(trained, length) for trained in pair]
        minus[name] = bits[0] - bits[1]
        numbers[f"learned minus sinusoidal, {name}"] = minus[name]
        numbers |= {f"bits, {m}, {name}": b for m, b in zip(COMPARED, bits, strict=True)}
    least, *_, most = minus
    numbers["learned minus sinusoidal, smallest text minus all"] = minus[least] - minus[most]
    wrong = lab.bits(misplaced(lab.learned(texts[least])), length)
    numbers["bits that wrong positions cost, smallest text (control)"] = (
        wrong - numbers[f"bits, learned, {least}"]
    )
    sizes = [len(text.data["train"]) for text in texts.values()]
    return Measured(
        numbers, {"learned minus sinusoidal": Curve(sizes, np.stack([*minus.values()], 1))}
    )


def first(text: Task, size: int) -> Task:
    """The text whose training part ends after so many bytes; its tests are the same."""
    data = {**text.data, "train": text.data["train"][:size]}
    return text._replace(name=f"{text.name}, the first {_bytes(size)}", data=data)


def _bytes(size: int) -> str:
    return f"{size // 1024} KiB"


def entropy(length: int) -> float:
    """Bits a symbol of `reading_frame`, for a model that knows where it is.

    Two bases of each three are random. The third follows from both, and from neither if a motif
    hides them; a base of the motif is known.
    """
    hidden_L = np.zeros(length + 3, bool)
    for start in STARTS:
        hidden_L[start - 1 : start - 1 + len(MOTIF)] = True
    table_XY = np.asarray(_third()).reshape(4, 4)
    total = 0.0
    for place in np.flatnonzero(~hidden_L[:length]):
        if place % 3 < 2:
            total += 2.0
            continue
        x, y = hidden_L[place - 2], hidden_L[place - 1]
        rows = {(0, 0): [], (1, 0): table_XY.T, (0, 1): table_XY, (1, 1): [table_XY.ravel()]}[x, y]
        total += np.mean([_bits(row) for row in rows]) if len(rows) else 0.0
    return float(total / length)


def _bits(values: np.ndarray) -> float:
    """The entropy of a base drawn evenly from the values."""
    share = np.bincount(values, minlength=4) / len(values)
    return float(-np.sum(share * np.log2(np.where(share > 0, share, 1))))


def _third() -> jax.Array:
    """The third base of a codon, by 4 times the first plus the second."""
    return jax.random.permutation(jax.random.key(0, impl="threefry2x32"), 16) % 4


def reading_frame() -> Task:
    """DNA-like lines: a reading frame of three, and a motif at two fixed places.

    Of each three bases two are random, and the third follows from them by a fixed table. The motif
    is written over the rest. Only a token's position tells where in the line it is.
    """
    third = _third()
    motif = jnp.asarray(MOTIF, jnp.int32)

    def line(key, _, place_L):
        codon_L, within_L = (place_L - 1) // 3, (place_L - 1) % 3
        bases = [draw(key, 3 * codon_L + i, 4) for i in range(2)]
        follows = third[4 * bases[0] + bases[1]].astype(jnp.int32)
        base_L = jnp.select([within_L == 0, within_L == 1], bases, follows)
        for start in STARTS:
            inside_L = (place_L >= start) & (place_L < start + len(MOTIF))
            base_L = jnp.where(inside_L, motif[jnp.clip(place_L - start, 0, 5)], base_L)
        return jnp.where(place_L == 0, 1, SYMBOL + base_L), place_L > 0

    length, least = lambda n: n + 1, STARTS[-1] + len(MOTIF)
    return generated("reading_frame", line, length, symbols=4, padding="right", least=least)
