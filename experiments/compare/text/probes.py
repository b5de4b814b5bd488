"""What is read from the weights: attention sinks, massive values, the influence of positions.

Each is measured before the first training step and after the last one, of every seed. Texts are
windows of the test split that lie in one document.

Letters in names besides those of the library: N layers, F directions, P ranges of positions.
"""

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import posenc_jax
from experiments.compare.text import predictions
from experiments.compare.text.config import Config
from posenc_jax.encoding import Encoding
from posenc_jax.lab.hosts.devices import replicated
from posenc_jax.lab.hosts.fast_training import over_seeds
from posenc_jax.lab.hosts.processes import fetch
from posenc_jax.lab.model import transformer
from posenc_jax.lab.model.transformer import Model
from posenc_jax.lab.tasks.task import Task
from posenc_jax.lab.training.evaluation import CannotEvaluate
from posenc_jax.lab.training.loop import init_runner
from posenc_jax.lab.training.optimizers import optimizer
from posenc_jax.layout import full
from posenc_jax.options import FieldError

SINKS, VALUES, INFLUENCE = PROBES = ("sinks", "massive values", "influence")


class Reading(NamedTuple):
    """Numbers of all seeds at one step.

    labels: those of their records besides the encoding, the split and the length.
    values: metric -> the value of each seed, [S].
    """

    step: int
    labels: dict[str, str | int]
    values: dict[str, np.ndarray]


class Probe:
    """A measurement of weights before and after training, in place of an `Evaluator`.

    Args:
      measure: (*arrays, params of a seed) -> arrays.
      readings: (step, what `measure` returns, with the axis S in front) -> the numbers of a step.
      initial: () -> the weights before the first step, leaves [S, ...].
      arrays: (length) -> the arrays, which are read when the probe is called.
    """

    def __init__(
        self,
        steps: int,
        initial: Callable[[], Any],
        arrays: Callable[[int], Sequence[Any]],
        measure: Callable[..., Any],
        readings: Callable[[int, Any], Iterator[Reading]],
    ):
        self._steps, self._initial, self._arrays = steps, initial, arrays
        self._readings = readings
        self._program = jax.jit(
            lambda params, *given: over_seeds(measure, params, given=given),
            out_shardings=replicated(),
        )

    def compile(self, params: Any, length: int) -> None:
        """Does nothing: the program is compiled when it is called."""

    def __call__(self, params: Any, length: int) -> list[Reading]:
        """The numbers before and after training.

        params: the trained weights, leaves [S, ...]. CannotEvaluate: the text has no such window.
        """
        arrays = self._arrays(length)
        return [
            reading
            for step, weights in ((0, self._initial()), (self._steps, params))
            for reading in self._readings(step, fetch(self._program(weights, *arrays)))
        ]


def probes(config: Config, task: Task, encoding: Encoding, model: Model) -> dict[str, Probe]:
    """The probes of one row by name."""
    tx = optimizer(config.train)
    start = init_runner(model, tx, config.seeds, config.first_seed, config.train.fsdp)
    initial = functools.cache(lambda: start().params)
    probe = functools.partial(Probe, config.train.steps, initial)
    states = functools.partial(_states, config, encoding)
    return {
        SINKS: probe(
            lambda length: _sequences(task, length),
            functools.partial(_importance_of_first, model),
            _sink_readings,
        ),
        VALUES: probe(
            lambda length: [texts(task, length, predictions.TEXTS)],
            functools.partial(_norms, model),
            functools.partial(_massive_readings, slow_channels(encoding, config.model.dims)),
        ),
        INFLUENCE: probe(
            lambda length: [texts(task, length, predictions.TEXTS), _directions(config)],
            lambda tokens_BT, direction_FD, params: influence(
                states(tokens_BT.shape[1]), params, tokens_BT, direction_FD
            ),
            _influence_readings,
        ),
    }


def texts(task: Task, length: int, most: int) -> np.ndarray:
    """The first windows of the test split that lie in one document, [B, T], at most so many.

    CannotEvaluate: there is none.
    """
    index_E = jnp.arange(task.examples(length) or most, dtype=jnp.int32)
    batch = jax.device_get(task.test(task.data, index_E, length, length))
    whole_E = (np.asarray(batch.layout.segment_BT) == 1).all(axis=1)
    if not whole_E.any():
        raise CannotEvaluate(f"no test window of {length} tokens lies in one document")
    return batch.tokens_BT[whole_E][:most]


def _sequences(task: Task, length: int) -> list[np.ndarray]:
    """Sequences of text, and random ones: [B, T] each."""
    text_BT = texts(task, length, predictions.SEQUENCES)
    random = np.random.default_rng(0)
    return [text_BT, random.integers(0, task.vocab, text_BT.shape, dtype=np.int32)]


def _directions(config: Config) -> np.ndarray:
    """Random directions of entries 1 and -1 in the hidden state, [F, D]."""
    shape = predictions.DIRECTIONS, config.model.width
    return np.random.default_rng(0).choice(np.array([-1, 1], np.float32), shape)


def _states(config: Config, encoding: Encoding, tokens: int) -> Model:
    """The model whose output is the last hidden states, of a vocabulary of so many tokens."""
    return transformer.build(config.model, encoding, tokens, states=True)


def importance(weights_BHQK: jax.Array, token: int) -> jax.Array:
    """The mean attention to a token by itself and those after it, [B, H] (arXiv 2410.10781)."""
    return weights_BHQK[:, :, token:, token].astype(jnp.float32).mean(axis=-1)


def _importance_of_first(model: Model, text_BT, random_BT, params) -> list[jax.Array]:
    """`importance` of the first token of each text and of each random sequence, [B, N, H]."""
    assert model.attention is not None
    return [
        jnp.stack(
            [importance(w, 0) for w in model.attention(params, tokens_BT, full(*tokens_BT.shape))],
            axis=1,
        )
        for tokens_BT in (text_BT, random_BT)
    ]


def _sink_readings(step: int, importances: Sequence[np.ndarray]) -> Iterator[Reading]:
    """The share of heads with a sink, and the mean attention to the first token."""
    for tokens, mean_SBNH in zip(("text", "random"), importances, strict=True):
        over_heads = lambda x_SBNH: x_SBNH.mean(axis=(1, 2, 3))
        values = {
            "sinks": over_heads(mean_SBNH > predictions.SINK),
            "attention_to_first": over_heads(mean_SBNH),
        }
        yield Reading(step, {"tokens": tokens}, values)


def _norms(model: Model, text_BT, params) -> list[jax.Array]:
    """The L2 norm over all tokens of each channel of queries, keys and values, [N, H or G, C]."""
    assert model.projections is not None
    layers = model.projections(params, text_BT, full(*text_BT.shape))
    norm = lambda x_BTHC: jnp.sqrt(jnp.square(x_BTHC.astype(jnp.float32)).sum(axis=(0, 1)))
    return [jnp.stack([norm(x) for x in by_layer]) for by_layer in zip(*layers, strict=True)]


def massive(norm_NHC: np.ndarray) -> np.ndarray:
    """Which channels have a norm above `MASSIVE` times the mean over their head's channels.

    They are channels of the outputs of the maps to queries, keys and values, before rotation, after
    which the two channels of a fast pair have about one norm (arXiv 2502.01563).
    """
    return norm_NHC > predictions.MASSIVE * norm_NHC.mean(axis=-1, keepdims=True)


def slow_channels(encoding: Encoding, dims: posenc_jax.Dims) -> np.ndarray | None:
    """Which channels are in the half of the pairs that turn more slowly, bool [C]; None of a
    method that does not only rotate, or of which some channels never turn.

    A pair's speed is the angle by which its channels turn from one position to the next.
    """
    if encoding.rotate is None:
        return None
    unit_C11C = jnp.eye(dims.head)[:, None, None]
    unit_CTHC = jnp.broadcast_to(unit_C11C, (dims.head, 2, dims.heads, dims.head))
    try:
        turned_CTHC, _ = posenc_jax.rotate(encoding, unit_CTHC, unit_CTHC, jnp.arange(2))
    except FieldError:
        return None
    at_0, at_1 = np.asarray(turned_CTHC, np.float64)[:, :, 0].swapaxes(0, 1)
    chord_C = np.linalg.norm(at_1 - at_0, axis=-1)  # 2 sin(angle / 2)
    if not (chord_C > 0).all():
        return None
    return chord_C < np.median(chord_C)


def _massive_readings(
    slow_C: np.ndarray | None, step: int, norms: Sequence[np.ndarray]
) -> Iterator[Reading]:
    """Massive channels for each head, of queries and keys together too, and how many are slow."""
    q, k, v = (massive(norm_SNHC) for norm_SNHC in norms)
    for_each_head = lambda count_SNH: count_SNH.mean(axis=(1, 2))
    flat = lambda x: x.reshape(len(x), -1, x.shape[-1])
    both_SHC = np.concatenate([flat(q), flat(k)], axis=1)
    values = {
        "massive_q": for_each_head(q.sum(axis=-1)),
        "massive_k": for_each_head(k.sum(axis=-1)),
        "massive_v": for_each_head(v.sum(axis=-1)),
        "massive_qk": both_SHC.sum(axis=-1).mean(axis=1),
    }
    if slow_C is not None:
        count_S, slow_S = both_SHC.sum(axis=(1, 2)), both_SHC[..., slow_C].sum(axis=(1, 2))
        enough_S = count_S >= predictions.LEAST
        values["massive_slow"] = np.where(enough_S, slow_S / np.maximum(count_S, 1), np.nan)
    yield Reading(step, {}, values)


def influence(
    states: Model, params: Mapping[str, Any], tokens_BT: jax.Array, direction_FD: jax.Array
) -> jax.Array:
    """An estimate of the squared Frobenius norm of the Jacobian of the last hidden state with
    respect to the embedding of the token at each position, [B, T] (arXiv 2603.10123).

    It is the mean over directions d of |d' J|^2, whose expectation it is for entries that are
    independent, of mean 0 and variance 1; with the D unit vectors times sqrt(D) it is exact.

    Args:
      states: a model of hidden states, `build(..., vocab=T, states=True)`. It reads each text as
        the tokens 0 to T - 1 of a table of embeddings of its own, whose gradient is the Jacobian.
      params: those of the model that was trained.
    """

    def of_text(tokens_T):
        place_1T = jnp.arange(len(tokens_T), dtype=jnp.int32)[None]

        def last(embedding_TD):
            with_table = {**params, "embed": embedding_TD}
            state_1TD = states.apply(with_table, place_1T, full(*place_1T.shape))
            return state_1TD[0, -1].astype(jnp.float32)

        _, pullback = jax.vjp(last, params["embed"][tokens_T])
        squares = lambda direction_D: jnp.square(pullback(direction_D)[0]).sum(axis=-1)
        return jax.lax.map(squares, direction_FD).mean(axis=0)

    return jax.lax.map(of_text, tokens_BT)


def _influence_readings(step: int, squares_SBT: np.ndarray) -> Iterator[Reading]:
    """The root mean square over the texts and over the positions of each range."""
    edges = range_edges(squares_SBT.shape[-1])
    for start, stop in itertools.pairwise(edges):
        mean_S = np.sqrt(squares_SBT[..., start:stop].mean(axis=(1, 2)))
        yield Reading(step, {"position": start}, {"influence": mean_S})


def range_edges(length: int) -> list[int]:
    """The edges of at most `BINS` ranges of positions of equal width, up to rounding."""
    bins = min(predictions.BINS, length)
    return [length * n // bins for n in range(bins + 1)]
