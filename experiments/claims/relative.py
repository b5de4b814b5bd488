"""Claims about relative methods, and about recurrence memory."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from experiments.claims.figures import dots, lines
from experiments.claims.ledger import Curve, Measured, claim, decades, verdict
from experiments.claims.models import Lab, Trained, by_seed, misplaced, relabelled
from posenc_jax import make
from posenc_jax.lab.config.schema import ModelConfig
from posenc_jax.lab.model import transformer
from posenc_jax.lab.model.transformer import Memory, Model
from posenc_jax.lab.tasks.task import SYMBOL, Task, draw, generated
from posenc_jax.layout import full

RELATIVE, ABSOLUTE = ("rope", "alibi", "clipped", "xpos"), ("sinusoidal", "learned")
SHIFTS = (1, 3, 10, 30, 100, 1000)
SYMBOLS, SEGMENTS = 8, 5


def rel_1_rule(n):
    """Numbers are powers of ten of the largest change of a logit, in standard deviations of the
    logits; 1e-9 means no change. Nothing: under 1e-4 for every relative model, a hundred times the
    rounding of float32. Something: over 1e-2 for both absolute models. If only half of the sentence
    is moved, the control, every relative model must change by over 1e-2 too; otherwise it reads no
    positions.
    """
    still = {m: n[f"log10 of the change, {m}"] for m in RELATIVE}
    shaken = {m: n[f"log10 of the change, {m}"] for m in ABSOLUTE}
    torn = {m: n[f"log10 of the change, {m}, half of it moved (control)"] for m in RELATIVE}
    by_mean = lambda number: number.mean
    unmoved = all(i.under(-4) for i in still.values())
    return verdict(
        unmoved and all(i.over(-2) for i in (*shaken.values(), *torn.values())),
        f"a logit of a relative model changes by at most {max(still.values(), key=by_mean).power} "
        "standard deviations, one of an absolute model by at least "
        f"{min(shaken.values(), key=by_mean).power}; with half of the sentence moved, relative "
        f"models change by at least {min(torn.values(), key=by_mean).power}",
    )


@claim(
    "moving a sentence (1-10 to 101-110) changes nothing for relative methods, "
    "something for absolute ones",
    rule=rel_1_rule,
    figure=lines(
        "What moving a sentence changes", "moved by (tokens)",
        "largest change / spread of logits", log_x=True, log_y=True,
        below="ten bytes, trained decoders · 1e-9: no change",
    ),
)  # fmt: skip
def rel_1(lab: Lab) -> Measured:
    """Trained decoders read 64 stretches of ten bytes at positions 1 to 10 and again further on, in
    float32. The learned table is clamped. Control: only positions 6 to 10 are moved.
    """
    tokens_BT = lab.windows(64, 10)
    whole_XT = np.repeat(np.array(SHIFTS)[:, None], 10, axis=1)
    half_T = np.where(np.arange(10) < 5, 0, 100)
    shift_XT = np.concatenate([whole_XT, half_T[None]])
    numbers, curves = {}, {}
    for name in (*RELATIVE, *ABSOLUTE):
        trained = lab.learned() if name == "learned" else lab.trained(name)
        moved_SX = decades(moved(trained, tokens_BT, shift_XT))
        number = f"log10 of the change, {name}"
        numbers[number] = moved_SX[:, SHIFTS.index(100)]
        if name in RELATIVE:
            numbers[f"{number}, half of it moved (control)"] = moved_SX[:, -1]
        curves[name] = Curve(SHIFTS, 10 ** moved_SX[:, :-1])
    return Measured(numbers, curves)


def moved(trained: Trained, tokens_BT: jax.Array, shift_XT: np.ndarray) -> np.ndarray:
    """Largest change of a logit under each shift of positions, in standard deviations: [S, X]."""
    place = full(1, tokens_BT.shape[1])

    def run(params):
        def read(shift_T):
            shown = place.replace(pos_BT=place.pos_BT + 1 + shift_T[None])
            return trained.model.apply(params, tokens_BT, shown)

        shift_first = jnp.asarray(np.concatenate([0 * shift_XT[:1], shift_XT]), jnp.int32)
        first, *rest = jax.lax.map(read, shift_first)
        change_X = jnp.stack([jnp.abs(y - first).max() for y in rest])
        return change_X / first.std()

    return np.asarray(by_seed(run, trained.params), np.float64)


def rel_2_rule(n):
    """Far fewer: the biases of all layers have a third of the table's parameters or less. Equal
    quality: they are less than 0.05 bits a byte worse, a tenth of what this model gains from
    positions, or better. Biases whose positions are shuffled, the control, must lose more than
    that.
    """
    share, worse = n["parameters of the biases / of the table"], n["bits, clipped minus learned"]
    control = n["bits, clipped with shuffled positions minus learned (control)"]
    return verdict(
        share.under(1 / 3) and worse.under(0.05) and control.over(0.05),
        f"the biases have {share} of the table's parameters and cost {worse} bits a byte more; "
        f"with shuffled positions {control}",
    )


@claim(
    "a clipped relative bias needs far fewer parameters than an absolute table, at equal quality",
    rule=rel_2_rule,
    figure=dots("Bits per byte at the trained length", "bits per byte", "bits per byte"),
)
def rel_2(lab: Lab) -> Measured:
    """Two decoders on text, at the trained length: a learned table with a row for each place, and a
    learned scalar for each offset to 16, head and layer.
    """
    table, biases = lab.learned(), lab.trained("clipped")
    models = {"learned": table, "clipped": biases, "clipped, shuffled": misplaced(biases)}
    bits = {name: lab.bits(model, lab.train.length) for name, model in models.items()}
    few, many = _position_parameters(biases), _position_parameters(table)
    worse, control = (bits[m] - bits["learned"] for m in ("clipped", "clipped, shuffled"))
    numbers = {
        "parameters of the biases": [few],
        "parameters of the table": [many],
        "parameters of the biases / of the table": [few / many],
        "bits, clipped minus learned": worse,
        "bits, clipped with shuffled positions minus learned (control)": control,
    }
    bits |= {"byte frequencies": np.array([lab.text.baselines()["unigram"]])}
    return Measured(numbers | {f"bits per byte, {name}": found for name, found in bits.items()})


def _position_parameters(trained: Trained) -> int:
    """The number of learned parameters of the encoding."""
    return sum(leaf[0].size for leaf in jax.tree.leaves(trained.params["encoding"]))


def rel_3_rule(n):
    """Carried: more than half of the answers are right for a symbol that was shown that many
    segments earlier, four times chance. The same weights without memory, the control, must be right
    as often within the segment, and less than two times of eight in the next. The number of
    segments is a condition.
    """
    kept = [n[f"recall {k} segments later"] for k in range(SEGMENTS)]
    lost = [n[f"recall {k} segments later, without memory (control)"] for k in (0, 1)]
    reason = (
        f"with a memory of one segment {kept[1]} of the answers are right one segment later and "
        f"{kept[-1]} in the last segment; without memory {lost[1]} one segment later"
    )
    lasts = next((k for k, i in enumerate(kept) if not i.over(0.5)), SEGMENTS) - 1
    passed = lasts >= 1 and lost[0].over(0.5) and lost[1].under(2 / SYMBOLS)
    far = "one segment" if lasts == 1 else f"{lasts} segments"
    condition = f"what is recalled was shown at most {far} earlier"
    return verdict(passed, reason, condition if lasts < SEGMENTS - 1 else "")


@claim(
    "recurrence memory carries information across segments",
    rule=rel_3_rule,
    figure=lines(
        "Recall across segments", "segments since the symbol was shown", "right answers",
        below="two layers, memory of one segment", levels={"chance": 1 / SYMBOLS},
    ),
)  # fmt: skip
def rel_3(lab: Lab) -> Measured:
    """A decoder with `transformer_xl` reads lines of five segments, one after another, with the
    hidden states of the last segment as memory, in training as well (no gradient goes into it). One
    of eight symbols is somewhere in the first segment, and noise is everywhere else. At every place
    after the symbol the model has to name it.
    """
    segment = lab.pick(8, 16)
    task = latch(SYMBOLS, segment)
    config, length = lab.model.model_copy(update={"layers": 2}), SEGMENTS * segment
    steps = lab.pick(160, 1000)
    how = lab.training(length=length, min_length=length, steps=steps, warmup=20)
    model = transformer.build(config, make("transformer_xl"), task.vocab)
    params = lab.fit(segmentwise(model, config, segment), task, how, ("segmentwise", config))
    batch = task.test(task.data, jnp.arange(128, dtype=jnp.int32), length, length)

    def recall(params, remembers):
        apply = segmentwise(model, config, segment, remembers).apply
        answer_BT = apply(params, batch.tokens_BT, batch.layout).argmax(axis=-1)
        right_BT = (answer_BT == batch.targets_BT) * batch.weights_BT
        by_segment = lambda x_BT: x_BT.sum(axis=0).reshape(SEGMENTS, segment).sum(axis=1)
        return by_segment(right_BT) / by_segment(batch.weights_BT)

    both = lambda params: jax.lax.map(partial(recall, params), jnp.array([True, False]))
    recall_S2K = np.asarray(by_seed(both, params), np.float64)
    numbers, curves = {}, {}
    labels = {"with memory": "", "without": ", without memory (control)"}
    for recall_SK, (name, label) in zip(recall_S2K.swapaxes(0, 1), labels.items(), strict=True):
        for k in range(SEGMENTS):
            numbers[f"recall {k} segments later{label}"] = recall_SK[:, k]
        curves[name] = Curve(range(SEGMENTS), recall_SK)
    return Measured(numbers, curves)


def latch(symbols: int, within: int) -> Task:
    """Lines of noise with a symbol among the first `within` tokens, to be named at later places."""

    def line(key, n, place_L):
        where_key, noise_key = jax.random.split(key)
        where = jax.random.randint(where_key, (), 0, within)
        noise_L, shown_L = draw(noise_key, place_L, symbols), draw(where_key, place_L, symbols)
        token_L = SYMBOL + jnp.where(place_L == where, symbols + shown_L, noise_L)
        return token_L, place_L > n  # `with_targets` writes the targets

    def with_targets(batch):
        symbol_BT = jnp.where(batch.tokens_BT >= SYMBOL + symbols, batch.tokens_BT, 0)
        targets_BT = jax.lax.cummax(symbol_BT, axis=1)
        weights_BT = ((targets_BT > 0) & (symbol_BT == 0)).astype(jnp.float32)
        return batch._replace(targets_BT=targets_BT, weights_BT=weights_BT)

    plain = generated(
        "latch", line, lambda n: n + 1, symbols=2 * symbols, padding="right", chance=1 / symbols
    )
    return relabelled(plain, with_targets)


def segmentwise(
    model: Model, config: ModelConfig, segment: int, remembers: bool | jax.Array = True
) -> Model:
    """The model that reads each line in segments; it remembers the last segment, or nothing."""
    extend = model.extend
    assert extend is not None

    def cut(x_BT):
        """[B, T, ...] to [segments, B, segment, ...]."""
        return jnp.moveaxis(x_BT.reshape(len(x_BT), -1, segment), 1, 0)

    def apply(params, tokens_BT, layout, key=None):
        layout = layout.replace(counted=False)
        nothing = jax.tree.map(lambda leaf: 0 * leaf[:, :segment], layout)
        states_BMD = jnp.zeros((len(tokens_BT), segment, config.width))
        empty = Memory(nothing, (states_BMD,) * config.layers)

        def step(memory, inputs):
            logits, after = extend(params, *inputs, memory)
            return jax.tree.map(partial(jnp.where, remembers), after, empty), logits

        inputs = cut(tokens_BT), jax.tree.map(cut, layout)
        _, logits_KBTV = jax.lax.scan(step, empty, inputs)
        return jnp.moveaxis(logits_KBTV, 0, 1).reshape(*tokens_BT.shape, -1)

    return model._replace(apply=apply)
