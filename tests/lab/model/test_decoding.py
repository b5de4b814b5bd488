"""Greedy and beam decoding against full passes and against a search of all sequences."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax import make
from posenc_jax.lab.config.schema import ModelConfig
from posenc_jax.lab.model import transformer
from posenc_jax.lab.model.decoding import beam, greedy
from posenc_jax.lab.model.transformer import Encodings
from posenc_jax.lab.tasks.task import Pair
from posenc_jax.layout import layout
from tests.support.catalogue import gap, tokens

VOCAB, END, STEPS = 7, 3, 4
PROMPT = layout(jnp.array([[1] * 5, [0] * 2 + [1] * 3]))
OPTIONS = {"dynamic_ntk": {"length": 4}}
SOURCE = layout(jnp.array([[1] * 6, [0] * 1 + [1] * 5]))


@functools.cache
def case(kind: str, name: str = "rope"):
    """(model, parameters, prompt, its layout)."""
    config = ModelConfig(kind=kind, width=16, heads=2, layers=1, mlp=2)
    one, ids = make(name, **OPTIONS.get(name, {})), tokens(1, 2, 5) % VOCAB
    if kind == "decoder":
        encoding, given = one, (ids, PROMPT)
    else:
        encoding = Encodings(make("alibi"), one, make("t5"))
        given = Pair(tokens(2, 2, 6) % VOCAB, ids), Pair(SOURCE, PROMPT)
    model = transformer.build(config, encoding, VOCAB)
    return model, model.init(jax.random.key(4)), *given


@functools.cache
def full_pass(kind: str, name: str):
    return jax.jit(case(kind, name)[0].apply)


def log_probabilities(
    kind: str, name: str, row_R: np.ndarray, after_RN: np.ndarray, known: int
) -> np.ndarray:
    """The log-probability of every next token, [R, N + 1, V], by one pass over all tokens: the
    prompts `row_R`, the first `known` tokens of `after_RN`, and padding.
    """
    _, params, ids, at = case(kind, name)
    prompt, place = (ids.target, at.target) if kind == "encoder_decoder" else (ids, at)
    target = jnp.concatenate([prompt[row_R], jnp.asarray(after_RN, jnp.int32)], axis=1)
    is_known_RN = np.broadcast_to(np.arange(after_RN.shape[1]) < known, after_RN.shape)
    segment = jnp.concatenate(
        [place.segment_BT[row_R], jnp.asarray(is_known_RN, jnp.int32)], axis=1
    )
    inputs = target, layout(segment)
    if kind == "encoder_decoder":
        source = jax.tree.map(lambda leaf: leaf[row_R], at.source)
        inputs = Pair(ids.source[row_R], target), Pair(source, inputs[1])
    logits = full_pass(kind, name)(params, *inputs)[:, prompt.shape[1] - 1 :]
    return np.asarray(jax.nn.log_softmax(logits), np.float64)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("kind", "name"),
    [("decoder", "sinusoidal"), ("decoder", "dynamic_ntk"), ("encoder_decoder", "rope")],
)
def test_greedy_takes_the_most_probable_token_of_each_full_pass(kind, name):
    model, params, *inputs = case(kind, name)
    actual, score = greedy(model, params, *inputs, STEPS, END)
    chosen_BN, total_B, open_B = np.full((2, STEPS), END), np.zeros(2), np.ones(2, bool)
    for n in range(STEPS):
        logp_BV = log_probabilities(kind, name, np.arange(2), chosen_BN, n)[:, n]
        chosen_BN[open_B, n] = logp_BV.argmax(axis=1)[open_B]
        total_B += np.where(open_B, logp_BV.max(axis=1), 0.0)
        open_B &= chosen_BN[:, n] != END
    assert actual.tolist() == chosen_BN.tolist()
    assert gap(score, total_B) < 1e-4


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["decoder", "encoder_decoder"])
def test_beam_of_one_is_greedy(kind):
    model, params, *inputs = case(kind)
    wanted, score = greedy(model, params, *inputs, STEPS, END)
    actual, scores = beam(model, params, *inputs, STEPS, END, 1)
    assert actual[:, 0].tolist() == wanted.tolist()
    assert gap(scores[:, 0], score) < 1e-5
    other, better = beam(model, params, *inputs, STEPS, END, 2)
    assert other[:, 1].tolist() != wanted.tolist(), "control: the second best is another one"
    assert (better[:, 0] >= score - 1e-5).all()


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["decoder", "encoder_decoder"])
def test_a_wide_beam_finds_what_a_search_of_all_sequences_finds(kind):
    model, params, *inputs = case(kind)
    every = np.array([*itertools.product(range(VOCAB), repeat=3)])
    after = (np.cumsum(every == END, axis=1) - (every == END)) > 0  # behind the first END
    keep = np.all(~after | (every == END), axis=1)
    every, after = every[keep], after[keep]
    actual, scores = beam(model, params, *inputs, 3, END, VOCAB**2)
    narrow, _ = beam(model, params, *inputs, 3, END, 1)
    missed = 0
    for row in range(2):
        logp_RNV = log_probabilities(kind, "rope", np.full(len(every), row), every, 3)[:, :-1]
        logp_RN = np.take_along_axis(logp_RNV, every[..., None], axis=-1)[..., 0]
        total_R = np.where(after, 0.0, logp_RN).sum(axis=1)
        best = np.argsort(-total_R)
        assert actual[row, 0].tolist() == every[best[0]].tolist()
        assert gap(scores[row], np.sort(total_R)[::-1][: VOCAB**2]) < 1e-4
        missed += narrow[row, 0].tolist() != every[best[0]].tolist()
    assert missed, "control: the narrow beam does not find them"


@pytest.mark.thorough
def test_fewer_sequences_than_the_width():
    model, params, *inputs = case("decoder")
    actual, scores = beam(model, params, *inputs, 1, END, VOCAB + 2)
    assert sorted(actual[0, :VOCAB, 0].tolist()) == list(range(VOCAB))
    assert np.isfinite(scores[:, :VOCAB]).all()
    assert (scores[:, VOCAB:] == -np.inf).all()


@pytest.mark.thorough
def test_padding_behind_the_prompt_gives_nan():
    model, params, ids, _ = case("decoder")
    behind = layout(PROMPT.segment_BT[:, ::-1])
    for score in (greedy(model, params, ids, behind, 2, END)[1],
                  beam(model, params, ids, behind, 2, END, 2)[1][:, 0]):  # fmt: skip
        assert np.isnan(score).tolist() == [False, True]


@pytest.mark.thorough
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_a_cache_keeps_the_heads_of_keys_alone(kv_heads):
    """Of grouped queries as many heads as the keys have; an encoder-decoder's source too."""
    config = ModelConfig(width=16, heads=4, kv_heads=kv_heads, layers=2)
    model = transformer.build(config, make("rope"), 11)
    params = model.init(jax.random.key(0))
    start = model.start(params, 3, 8)
    _, cache = model.decode(params, tokens(0, 3, 2), layout(jnp.ones((3, 2), jnp.int32)), start)
    for kept in (start.layers, cache.layers):
        shapes = {leaf.shape for leaf in jax.tree.leaves(kept) if leaf.ndim == 4}
        assert shapes == {(3, 8, kv_heads, 4)}
