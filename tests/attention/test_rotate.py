"""`rotate`: turned queries and keys for attention that is written elsewhere."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import posenc_jax
from posenc_jax import Dims, frame, layout, make, rotate
from posenc_jax.options import FieldError
from tests.encodings.test_rotary import spread
from tests.support.catalogue import gap, stir

DIMS = Dims(model=32, heads=4, head=8, layers=4)
TIME, LENGTH = 6, 9
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8}
LLAMA = {"model_type": "llama", "max_position_embeddings": 32, "rope_scaling": YARN}

TURNING = [
    ("rope", {}),
    ("partial", {"share": 0.5}),
    ("pi", {}),
    ("ntk", {}),
    ("yarn", {"length": 8}),
    ("dynamic_ntk", {"length": 4}),
    ("longrope", {"length": 4}),
    ("clex", {"length": 4}),
    ("interpolated+rope", {"length": 4}),
    ("axial", {}),
    ("mixed", {}),
    ("mrope", {}),
    ("tree", {"depth": 4}),
    ("headwise", {}),
    ("irope", {}),
]


def drawn(rows=2, heads=2):
    rng = np.random.default_rng(0)
    q_BTHC = jnp.asarray(rng.normal(size=(rows, TIME, 4, 8)), jnp.float32)
    return q_BTHC, jnp.asarray(rng.normal(size=(rows, TIME, heads, 8)), jnp.float32)


def method_of(name, options):
    """The encoding, its parameters with noise, positions of two rows, and the framed layout."""
    encoding = make(name, **options)
    params = stir(encoding.init(jax.random.key(0), DIMS), 1)
    pos_BT = spread(jnp.asarray([[0, 1, 2, 3, 4, 5], [3, 4, 5, 6, 7, 8]]), posenc_jax.CATALOG[
        name.split("+")[-1]].card.axes)  # fmt: skip
    at = layout(jnp.ones((2, TIME), int), pos_BT)
    return encoding, params, pos_BT, at.replace(length_BT=jnp.full((2, TIME), LENGTH))


@pytest.mark.thorough(after=5)
@pytest.mark.parametrize(("name", "options"), TURNING)
def test_it_turns_as_a_frame_does(name, options):
    encoding, params, pos_BT, at = method_of(name, options)
    q, k = drawn()
    for layer in range(1 if encoding.at is None else 4):
        wanted = frame(encoding, params, at, DIMS).layer(layer).rotate(q, k)
        turn = jax.jit(lambda q, k, pos, n=layer: rotate(
            encoding, q, k, pos, params, layer=n, length=LENGTH))  # fmt: skip
        actual = turn(q, k, pos_BT)
        assert max(map(gap, actual, wanted)) < 1e-6
        moved = turn(q, k, pos_BT[::-1])
        if name != "irope" or layer < 3:
            assert max(map(gap, moved, wanted)) > 1e-2, "control: other positions"


@pytest.mark.thorough(after=5)
@pytest.mark.parametrize(("name", "options"), TURNING)
def test_a_token_at_a_time_is_turned_as_all_are(name, options):
    encoding, params, pos_BT, _ = method_of(name, options)
    q, k = drawn()
    whole = rotate(encoding, q, k, pos_BT, params, length=LENGTH)
    step = jax.jit(lambda q, k, pos_B1: rotate(encoding, q, k, pos_B1, params, length=LENGTH))
    for t in range(0, TIME, 2):
        columns = slice(t, t + 1)
        actual = step(q[:, columns], k[:, columns], pos_BT[:, columns])
        assert max(gap(a, b[:, columns]) for a, b in zip(actual, whole, strict=True)) < 1e-6


def test_one_row_of_positions_and_no_parameters():
    q, k = drawn()
    wanted = rotate(make("rope"), q, k, jnp.tile(jnp.arange(TIME), (2, 1)), {})
    for pos in (jnp.arange(TIME), np.arange(TIME), jnp.arange(TIME)[None], list(range(TIME))):
        assert max(map(gap, rotate(make("rope"), q, k, pos), wanted)) == 0.0
    of_two = rotate(make("dynamic_ntk", length=4), q, k, jnp.arange(TIME), length=jnp.array([4, 9]))
    assert gap(of_two[0][0], wanted[0][0]) < 1e-6
    assert gap(of_two[0][1], wanted[0][1]) > 1e-2
    assert rotate(make("rope"), *(x.astype(jnp.bfloat16) for x in (q, k)), jnp.arange(TIME))[
        0].dtype == jnp.bfloat16  # fmt: skip


def test_factors_of_the_logits_are_in_the_queries():
    """YaRN's temperature, as transformers multiplies cosines and sines by it."""
    q, k = drawn()
    actual = rotate(posenc_jax.from_huggingface(LLAMA), q, k, jnp.arange(TIME))
    for turned, plain in zip(actual, (q, k), strict=True):
        ratio = jnp.linalg.norm(turned, axis=-1) / jnp.linalg.norm(plain, axis=-1)
        np.testing.assert_allclose(ratio, 0.1 * np.log(4.0) + 1, rtol=1e-5)


REFUSED = [
    ("alibi", "encoding: alibi() adds a bias to the logits, which rotate does not do"),
    ("rope+window", "encoding: chain(rope(), window()) adds a bias to the logits"),
    ("fox", "encoding: fox() changes the logits by content"),
    ("rerope", "encoding: rerope() changes the logits by content"),
    ("sinusoidal", "encoding: sinusoidal() adds positions to the embeddings"),
    ("repo", "encoding: repo() makes positions of a layer's input"),
    ("gta", "also turns values"),
    ("xpos", "encoding: xpos() counts from the middle of all tokens of a row"),
    ("ssmax", "multiplies logits by how many keys a query sees"),
    ("pope", "encoding: pope() adds channels"),
    ("dynamic_ntk", "length: dynamic_ntk() reads the length of the sequence; give it"),
    ("mixed", "params: mixed() has parameters; give encoding.init's"),
]


@pytest.mark.parametrize(("name", "words"), REFUSED)
def test_a_method_that_does_more_is_refused_in_one_line(name, words):
    encoding, q_k = make(name), drawn(heads=4)
    axes = posenc_jax.CATALOG[name.split("+")[-1]].card.axes
    pos = spread(jnp.arange(TIME)[None], axes)
    given = () if words.startswith("params") else (encoding.init(jax.random.key(0), DIMS),)
    for params in (None, *given):
        with pytest.raises(FieldError) as refusal:
            rotate(encoding, *q_k, pos, params)
        assert words in str(refusal.value)
        assert "\n" not in str(refusal.value)


WRONG = [
    (lambda q, k: rotate(make("rope"), q[0], k, jnp.arange(6)), "q: shape (6, 4, 8) is not"),
    (lambda q, k: rotate(make("rope"), q, k[:, :3], jnp.arange(6)), "k: shape (2, 3, 2, 8) does"),
    (lambda q, k: rotate(make("rope"), q[:, :, :3], k, jnp.arange(6)), "k: shape (2, 6, 2, 8)"),
    (lambda q, k: rotate(make("rope"), q, k, jnp.arange(5)), "positions: shape (1, 5) is not"),
    (lambda q, k: rotate(make("axial"), q, k, jnp.arange(6)), "positions: shape (1, 6) is not"),
    (
        lambda q, k: rotate(make("longrope"), q, k, jnp.arange(6), length=[1, 2, 3]),
        "length: shape (3,) is not [2] or one number",
    ),
    (
        lambda q, k: rotate(make("rope"), q.swapaxes(1, 2), k.swapaxes(1, 2), jnp.arange(6)),
        "k: shape (2, 2, 6, 8) does not fit to q [B, T, H, C], (2, 4, 6, 8): [2, 4, G, 8], G a",
    ),
    (
        lambda q, k: rotate(make("rope"), *[q.swapaxes(1, 2)] * 2, jnp.arange(6)),
        "positions: shape (1, 6) is not that of q [B, T, H, C], (2, 4, 6, 8): [4], [2, 4] or",
    ),
    (lambda q, k: rotate("rope", q, k, jnp.arange(6)), "rotate.encoding: 'rope' is not of type E"),
    (lambda q, k: rotate(None, q, k, jnp.arange(6)), "rotate.encoding: None is not of type Encod"),
    (lambda q, k: rotate(make("rope"), "q", k, jnp.arange(6)), "q: str is not an array"),
    (lambda q, k: rotate(make("rope"), q, None, jnp.arange(6)), "k: NoneType is not an array"),
    (lambda q, k: rotate(make("rope"), q, k, jnp.arange(6), layer=-1), "layer: no layer -1, coun"),
    (lambda q, k: rotate(make("rope"), q, k, jnp.arange(6), layer=1.5), "layer: 1.5 is not a who"),
    (lambda q, k: rotate(make("longrope"), q, k, jnp.arange(6), length="x"), "length: dtype <U1;"),
]


@pytest.mark.parametrize(("ask", "words"), WRONG)
def test_arguments_that_do_not_fit_are_refused_in_one_line(ask, words):
    with pytest.raises(ValueError, match=":") as refusal:
        ask(*drawn())
    assert str(refusal.value).startswith(words)
    assert "\n" not in str(refusal.value)
