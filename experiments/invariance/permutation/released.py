"""How far a released encoder's outputs move when the words of sentences are shuffled, by layer, and
how it reads texts longer than its table of positions.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from tokenizers import Encoding as Encoded

from experiments.invariance.permutation.config import Config
from experiments.invariance.permutation.order_tasks import moved, permuted
from experiments.invariance.released_encoder import (
    Encoder,
    beyond_table,
    load,
    sentences,
    table_of,
    text,
    without_positions,
)
from posenc_jax.attention import frame
from posenc_jax.encoding import Encoding
from posenc_jax.encodings import make
from posenc_jax.lab import runs
from posenc_jax.lab.hosts.compiling import jit_whole
from posenc_jax.lab.model.transformer import build
from posenc_jax.lab.report.summaries import collect, largest, nested
from posenc_jax.lab.runs import Record
from posenc_jax.lab.summary import Summary
from posenc_jax.layout import full, layout

SENTENCES = 24
AS_RELEASED, WITHOUT = "as released", "without positions"
SHUFFLED, OTHERS = "shuffled", "other sentences"
TEXTS = 2  # of each length
TIMES = 0.5, 1, 2, 4  # lengths of texts, in rows of the table
WINDOW = 0.5  # of the windows that a long text is held against
WITHIN = "error"  # of `learned`; it is the table alone where that reaches
BEYOND = WITHIN, "clamp", "interpolate"
OWN, OTHER = "its windows", "another text's"


def measure(config: Config, run: runs.Run) -> Summary:
    """Measures the encoder as it is and without positions, then long texts; returns the summary."""
    if not run.ended("released"):
        encoder = load(config.model, run)
        records = list(_shuffled(config, encoder))
        if table_of(_encoding(encoder)) is not None:
            records += _long(config, encoder)
        run.log(records)
        run.end("released")
    return summarise(run.records())


def _encoding(encoder: Encoder) -> Encoding:
    assert isinstance(encoder.released.encoding, Encoding)
    return encoder.released.encoding


def _model(encoder: Encoder, encoding: Encoding):
    """The model with another encoding, which gives its hidden states."""
    return build(encoder.released.config, encoding, encoder.released.vocab, states=True)


def word_order(encoded: Encoded, rng: np.random.Generator) -> np.ndarray:
    """The order of a sentence's tokens when its words are shuffled. The tokens of a word stay
    together, and those that the tokenizer puts around the sentence stay where they are.
    """
    numbers = list(encoded.word_ids)
    places = [n for n, word in enumerate(numbers) if word is not None]
    words = list(dict.fromkeys(numbers[n] for n in places))
    shuffled = [words[n] for n in rng.permutation(len(words))]
    order_N = np.arange(len(numbers))
    order_N[places] = [n for word in shuffled for n in places if numbers[n] == word]
    return order_N


def _shuffled(config: Config, encoder: Encoder) -> Iterator[Record]:
    """Records of the shuffled sentences: errors of tokens and similarities of vectors, by layer."""
    lines = sentences(encoder.words, SENTENCES)
    lengths = [len(line.ids) for line in lines]
    token_T = jnp.asarray(np.concatenate([line.ids for line in lines]), jnp.int32)
    rng = np.random.default_rng(config.first_seed)
    starts = np.cumsum(lengths) - lengths
    placed = list(zip(starts, lines, strict=True))
    orders = [
        np.concatenate([start + word_order(line, rng) for start, line in placed])
        for _ in range(config.equivariance.permutations)
    ]
    order_RT, at = permuted(jnp.asarray(np.stack(orders), jnp.int32), lengths, axes=1)
    rows = {
        AS_RELEASED: (_encoding(encoder), encoder.released.params),
        WITHOUT: without_positions(_encoding(encoder), encoder.released.params),
    }
    labels = {"split": "test", "length": max(lengths)}
    log = partial(runs.seed_records, 0, [config.first_seed])
    reads = {
        encoding: jit_whole(partial(_by_layer, _model(encoder, encoding), encoder, lengths))
        for encoding, _ in rows.values()
    }
    for name, (encoding, params) in rows.items():
        errors_NL2, similar_N2 = jax.device_get(reads[encoding](params, token_T, order_RT, at))
        for n, (error_L2, pair) in enumerate(zip(errors_NL2, similar_N2, strict=True)):
            of_layer = {**labels, "encoding": name, "layer": n}
            for metric, error_L in zip(("error", "carried"), error_L2.T, strict=True):
                yield from log(of_layer, {metric: [error_L.max()]})
            for against, value in zip((SHUFFLED, OTHERS), pair, strict=True):
                yield from log(of_layer | {"against": against}, {"similarity": [value]})


def _by_layer(model: Any, encoder: Encoder, lengths: Sequence[int], params, token_T, order_RT, at):
    """Of the embeddings and of each layer's output: `moved`, [N + 1, L, 2], and the mean cosine of
    the vectors of a sentence and of its shuffled words, and of different sentences, [N + 1, 2].
    """
    states, memory = model.extend(params, token_T[order_RT], at)
    errors, similar = [], []
    for x_RTD in (*memory.x, states):
        errors.append(moved(x_RTD, order_RT, lengths))
        vector_RSD = jax.vmap(partial(_vectors, encoder, lengths))(x_RTD)
        count = len(order_RT) // 2
        straight_SD, other_PSD = vector_RSD[0], vector_RSD[1 : 1 + count]
        same = jnp.einsum("sd,psd->ps", straight_SD, other_PSD).mean()
        between_SS = straight_SD @ straight_SD.T
        size = len(lengths)
        others = (between_SS.sum() - jnp.trace(between_SS)) / (size * (size - 1))
        similar.append(jnp.stack([same, others]))
    return jnp.stack(errors), jnp.stack(similar)


def _vectors(encoder: Encoder, lengths: Sequence[int], x_TD) -> jax.Array:
    """The vectors of length 1 of the sequences that are packed in a row, [L, D]."""
    starts, longest = np.cumsum(lengths) - lengths, max(lengths)
    column_LN = np.minimum(starts[:, None] + np.arange(longest), len(x_TD) - 1)
    real_LN = np.arange(longest) < np.asarray(lengths)[:, None]
    pooling = encoder.pooling._replace(normalized=True)
    return pooling(x_TD[column_LN], layout(real_LN.astype(np.int32)))


def _long(config: Config, encoder: Encoder) -> Iterator[Record]:
    """Records of long texts: the similarity of a text's vector to the mean vector of its windows,
    and to that of another text's windows, by what positions past the table read.
    """
    learned = table_of(_encoding(encoder))
    assert learned is not None
    table, _ = learned
    assert table.name == "learned"
    rows = int(encoder.released.params["encoding"]["table"].shape[0]) - learned[1]
    ids = np.array(encoder.words.encode(text(), add_special_tokens=False).ids, np.int32)
    around = encoder.words.encode("").ids
    first, last = around[: (len(around) + 1) // 2], around[(len(around) + 1) // 2 :]
    more = len(around)
    log = partial(runs.seed_records, 0, [config.first_seed])
    read = _reader(encoder)

    @cache
    def vector_D(start: int, size: int, beyond: str = WITHIN) -> np.ndarray:
        """The vector of `size` tokens of the text, with those that stand around a text."""
        return read(np.array([*first, *ids[start : start + size], *last], np.int32), beyond)

    for times in TIMES:
        size = int(rows * times) - more
        starts = [int(n * (len(ids) - size) / TEXTS) for n in range(TEXTS)]
        width = min(int(rows * WINDOW) - more, size)
        parts = [range(start, start + size - width + 1, width) for start in starts]
        means = [np.mean([vector_D(n, width) for n in part], axis=0) for part in parts]
        windows_BD = np.stack([mean_D / np.linalg.norm(mean_D) for mean_D in means])
        for beyond in BEYOND if times > 1 else BEYOND[:1]:
            read_starts = starts[:1] if (beyond, times > 1) == (WITHIN, True) else starts  # NaN
            vectors_BD = np.stack([vector_D(start, size, beyond) for start in read_starts])
            between_BB = vectors_BD @ windows_BD.T
            same = np.diag(between_BB).mean()
            others = between_BB[~np.eye(*between_BB.shape, dtype=bool)].mean()
            pairs = {OWN: same, OTHER: others}
            labels = {"split": "test", "length": size + more}
            for against, value in pairs.items():
                labelled = {**labels, "encoding": beyond, "against": against}
                yield from log(labelled, {"similarity": [value]})


def _reader(encoder: Encoder) -> Callable[[np.ndarray, str], np.ndarray]:
    """A function (tokens [T], beyond) -> the vector of a text, [D], of length 1, where positions
    past the table read what `beyond` says.

    The vectors of the positions are read first, and are the table of the model's program. So there
    is one program for a length, whatever `beyond` is; most of the time was their compilation.
    """
    config, params = encoder.released.config, encoder.released.params
    pooling = encoder.pooling._replace(normalized=True)

    @jit_whole
    def read(params, position_TD, token_BT):
        model = _model(encoder, make("learned", length=len(position_TD)))
        at = full(*token_BT.shape)
        inside = {**params, "encoding": {"table": position_TD}}
        return pooling(model.apply(inside, token_BT, at), at)[0]

    @cache
    def positions_TD(length: int, beyond: str) -> jax.Array:
        encoding = beyond_table(_encoding(encoder), beyond)
        view = frame(encoding, params["encoding"], full(1, length), config.dims)
        return view.embed(jnp.zeros((1, length, config.width)))[0]

    def vector_D(token_T: np.ndarray, beyond: str) -> np.ndarray:
        tokens_BT = jnp.asarray(token_T)[None]
        return np.asarray(read(params, positions_TD(len(token_T), beyond), tokens_BT))

    return vector_D


def summarise(records: Iterable[Record]) -> Summary:
    """The summary of a run: errors and similarities by layer, similarities of long texts."""
    records = list(records)
    errors = {key: largest(v) for key, v in collect(records, _error_key).items()}
    similar = {key: v[0] for key, v in collect(records, _layer_key).items()}
    long = {key: v[0] for key, v in collect(records, _long_key).items()}
    own = {"errors": nested(errors), "similarity": nested(similar), "long": nested(long)}
    return Summary(own={"released": own})


def _error_key(record: Record) -> tuple | None:
    labels = record["labels"]
    if record["metric"] not in ("error", "carried"):
        return None
    return labels["encoding"], record["metric"], str(labels["layer"])


def _layer_key(record: Record) -> tuple | None:
    labels = record["labels"]
    if record["metric"] != "similarity" or "layer" not in labels:
        return None
    return labels["encoding"], labels["against"], str(labels["layer"])


def _long_key(record: Record) -> tuple | None:
    labels = record["labels"]
    if record["metric"] != "similarity" or "layer" in labels:
        return None
    return labels["encoding"], labels["against"], str(labels["length"])
