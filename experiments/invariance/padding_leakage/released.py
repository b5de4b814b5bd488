"""What padding changes in the outputs and the vectors of a released encoder, under each subset of
the masks of attention and of pooling.
"""

import itertools
from collections.abc import Iterable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.invariance.padding_leakage import leaks
from experiments.invariance.padding_leakage.config import Config
from experiments.invariance.padding_leakage.leaks import Run, gap, subset
from experiments.invariance.padding_leakage.summary import CLEAN, verdict
from experiments.invariance.released_encoder import Encoder, load, sentences
from posenc_jax.lab import runs
from posenc_jax.lab.hosts.compiling import jit_whole
from posenc_jax.lab.hosts.exit_status import Refused
from posenc_jax.lab.model.transformer import Model
from posenc_jax.lab.report.summaries import collect, largest, nested
from posenc_jax.lab.runs import Record
from posenc_jax.lab.summary import Summary
from posenc_jax.layout import layout

# The mask of the loss has nothing to hide: nothing is trained.
MASKS = tuple((*used, False) for used in itertools.product((False, True), repeat=2))
QUANTITIES = "outputs", "pooled", "angle"


def measure(config: Config, run: runs.Run) -> Summary:
    """Measures the encoder with every subset of the masks; returns the summary."""
    if not run.ended("released"):
        encoder = load(config.model, run)
        run.log(list(_records(config, encoder)))
        run.end("released")
    return summarise(run.records())


def _tokens(config: Config, encoder: Encoder) -> np.ndarray:
    """The first `data.measured` tokens of sentences, int32 [B, N]; the last of them is the one that
    ends a sentence.
    """
    count, many = config.data.measured, config.data.examples
    lines = sentences(encoder.words, 4 * many)
    long = [line.ids for line in lines if len(line.ids) >= count][:many]
    if len(long) < many:
        raise Refused(f"data.measured: {count} tokens; {len(long)} sentences are as long")
    return np.array([[*ids[: count - 1], ids[-1]] for ids in long], np.int32)


def _records(config: Config, encoder: Encoder) -> Iterator[Record]:
    """The largest change of each quantity, by what changes, masks, side and amount; the share of
    attention on padding without the mask of attention.
    """
    data, model, params = config.data, encoder.released.model, encoder.released.params
    token_BN = _tokens(config, encoder)
    rng = np.random.default_rng(config.first_seed)
    log = partial(runs.seed_records, 0, [config.first_seed])
    read = jit_whole(partial(_results, model, encoder, data.measured))
    share = jit_whole(partial(_mass, model, data.measured))
    for side, amount in itertools.product(data.sides, data.amounts):
        rows = lambda pads, side=side: np.concatenate(
            [pads, token_BN] if side == "left" else [token_BN, pads], axis=1
        )
        shape = len(token_BN), amount
        zeros_BT = rows(np.zeros(shape, np.int32))
        junk_BT = rows(rng.integers(0, encoder.released.vocab, shape, np.int32))
        segment_BT = rows(np.zeros(shape, np.int32)) * 0
        start = amount if side == "left" else 0
        segment_BT[:, start : start + data.measured] = 1
        whole_BN = np.ones_like(token_BN)
        labels = {"split": "test", "length": data.measured + amount, "side": side}
        labels |= {"encoding": "as released"}
        for used in MASKS:
            masked = [jnp.asarray(on) for on in used]
            plain = read(params, token_BN, whole_BN, 0, *masked)
            padded = read(params, zeros_BT, segment_BT, start, *masked)
            other = read(params, junk_BT, segment_BT, start, *masked)
            for change, pair in (("amount", (plain, padded)), ("content", (padded, other))):
                for quantity, value in _changes(*pair).items():
                    where = {**labels, "masks": subset(used), "change": change}
                    yield from log({**where, "quantity": quantity}, {"leak": [value]})
        value = share(params, zeros_BT, segment_BT, start)
        yield from log(labels, {"attention_on_padding": [value]})


def _run(attention, output, loss) -> Run:
    nothing = jnp.zeros((), jnp.int32)
    return Run(attention, output, loss, nothing, nothing)


def _results(model: Model, encoder: Encoder, count: int, params, tokens_BT, segment_BT, start, *on):
    """The outputs of the real tokens, [B, N, D], and the vectors, [B, D], under the masks."""
    at, run = layout(segment_BT), _run(*on)
    x_BTD = model.apply(params, tokens_BT, *leaks.seen(model, at, run))
    counted_BT = jnp.where(run.output_mask, at.segment_BT, jnp.ones_like(at.segment_BT))
    vector_BD = encoder.pooling(x_BTD, at.replace(segment_BT=counted_BT, counted=False))
    return jax.lax.dynamic_slice_in_dim(x_BTD, start, count, axis=1), vector_BD


def _mass(model: Model, count: int, params, tokens_BT, segment_BT, start) -> jax.Array:
    run = _run(*(jnp.asarray(on) for on in (False, True, False)))
    sizes: Any = SimpleNamespace(measured=count)
    batch: Any = SimpleNamespace(tokens_BT=tokens_BT, layout=layout(segment_BT))
    return leaks.mass(sizes, model, params, run, batch, start)


def _changes(before, after) -> dict[str, jax.Array]:
    """The largest change of outputs and of vectors, and the largest angle between the vectors of a
    sentence, in degrees.
    """
    outputs, pooled = (gap(a, b) for a, b in zip(before, after, strict=True))
    unit = lambda v_BD: v_BD / jnp.linalg.norm(v_BD, axis=-1, keepdims=True)
    half_B = jnp.linalg.norm(unit(before[1]) - unit(after[1]), axis=-1) / 2
    angle = jnp.degrees(2 * jnp.arcsin(jnp.minimum(half_B, 1))).max()
    return dict(zip(QUANTITIES, (outputs, pooled, angle), strict=True))


def summarise(records: Iterable[Record]) -> Summary:
    """The summary of a run: the largest changes, the verdicts, the attention on padding."""
    records = list(records)
    values = collect(records, _leak_key)
    leaks = nested({key: largest(of_key) for key, of_key in values.items()})
    changes = {change: {q: leaks[change][q] for q in QUANTITIES} for change in CLEAN}
    mass = {key: float(np.mean(v)) for key, v in collect(records, _mass_key).items()}
    by_row = lambda by_masks: {masks: {"as released": v} for masks, v in by_masks.items()}
    own = {
        "leaks": changes,
        "verdicts": {
            change: {q: verdict(change, by_row(by_q[q])) for q in ("outputs", "pooled")}
            for change, by_q in changes.items()
        },
        "mass": nested(mass),
    }
    return Summary(own={"released": own})


def _leak_key(record: Record) -> tuple | None:
    labels = record["labels"]
    if record["metric"] != "leak":
        return None
    return labels["change"], labels["quantity"], labels["masks"]


def _mass_key(record: Record) -> tuple | None:
    labels = record["labels"]
    return (str(labels["length"]),) if record["metric"] == "attention_on_padding" else None
