"""Combinators: who is moved by whom, whose parameters are whose, and what is refused."""

from inspect import signature

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import serialization

import posenc_jax
from posenc_jax import CATALOG, Dims, Encoding, Side, Walk, at_layer, chain, describe, make
from posenc_jax.combinators import each_layer, only_places, per_layer
from posenc_jax.encoding import place
from posenc_jax.encodings import ELSEWHERE, card
from posenc_jax.encodings.card import option_text
from posenc_jax.lab.definitions.trial_options import SMALL
from posenc_jax.options import FieldError, checked
from tests.support.catalogue import standing

DIMS = Dims(model=8, heads=2, head=4, layers=3)
POS = jnp.arange(5)[None]
LENGTH = jnp.full((1, 5), 5)
KEY = jax.random.key(0)


def mover(by):
    return Encoding(place=lambda key, at: at.pos_BT + by)


def adder():
    return Encoding(embed=lambda params, x, pos: x + pos.astype(float)[..., None])


def scaler(factor):
    """Multiplies queries by position * factor: order matters beside an `embed` or another hook."""
    return Encoding(
        table=lambda params, pos, dims: pos.astype(float)[..., None, None] * factor + dims.head,
        rotate=lambda table, x, side: x * table if side == "q" else x,
    )


def weighted():
    """A bias of one learned number, times the offset."""
    return Encoding(
        init=lambda key, dims: {"w": jax.random.normal(key, (dims.heads,))},
        bias=lambda params, q, k, dims: (
            params["w"][None, :, None, None]
            * (q[:, None, :, None] - k[:, None, None]).astype(float)
        ),
        relative=True,
    )


def absolute_bias():
    return Encoding(
        bias=lambda params, q, k, dims: (0 * q[:, None, :, None] + k[:, None, None]).astype(float)
    )


def talker(name):
    """A content score that says in `carry` and `feat` who ran."""
    return Encoding(
        walk=Walk(
            prepare=lambda params, x: x.sum(-1),
            start=lambda params, q: 0,
            score=lambda params, s, q, k, visible, carry: (
                s * 2 + k.feat[:, None, None],
                carry + name,
            ),
        )
    )


def shown(encoding, key=None):
    return place(encoding, key, standing(POS, LENGTH))


def test_a_mover_changes_positions_of_the_parts_to_its_right_only():
    both = chain(adder(), mover(100), adder())
    x = jnp.zeros((1, 5, 1))
    params = both.init(KEY, DIMS)
    np.testing.assert_array_equal(both.embed(params, x, shown(both))[0, :, 0], 2 * POS[0] + 100)
    left = chain(mover(100), adder(), adder())
    np.testing.assert_array_equal(left.embed(params, x, shown(left))[0, :, 0], 2 * POS[0] + 200)


def test_movers_add_up_and_a_chain_of_movers_is_a_mover():
    twice = chain(mover(100), mover(10))
    assert only_places(twice)
    np.testing.assert_array_equal(shown(twice), POS + 110)
    assert not only_places(chain(mover(100), adder()))
    assert not only_places(adder())
    # What does nothing at all may stand anywhere in it.
    silent = chain(chain(mover(100), make("nope")), adder())
    moved = silent.embed(silent.init(KEY, DIMS), jnp.zeros((1, 5, 1)), shown(silent))
    np.testing.assert_array_equal(moved[0, :, 0], POS[0] + 100)


def test_a_part_with_positions_of_its_own_leaves_the_others_unchanged():
    encoding = adder()._replace(place=lambda key, at: at.pos_BT * 0)
    both = chain(encoding, adder())
    embedded = both.embed(both.init(KEY, DIMS), jnp.zeros((1, 5, 1)), shown(both))
    np.testing.assert_array_equal(embedded[0, :, 0], POS[0])


def test_parts_draw_their_own_positions():
    drawn = Encoding(
        place=lambda key, at: at.pos_BT if key is None else jax.random.normal(key, at.pos_BT.shape),
        bias=absolute_bias().bias,
    )
    first, second = shown(chain(drawn, drawn), KEY)
    assert not np.array_equal(first, second)
    again, _ = shown(chain(drawn, drawn), KEY)
    np.testing.assert_array_equal(first, again)
    first, second = shown(chain(drawn, drawn))
    np.testing.assert_array_equal(first, second)


def test_hooks_run_in_order_and_biases_add_up():
    both = chain(weighted(), scaler(2.0), absolute_bias(), scaler(3.0))
    params, placed = both.init(KEY, DIMS), shown(both)
    assert isinstance(params, tuple)
    assert [sorted(p) for p in params] == [["w"], [], [], []]
    x = jnp.ones((1, 5, 2, 4))
    table = both.table(params, placed, DIMS)
    assert table[0] is None
    q, k = both.rotate(table, x, "q"), both.rotate(table, x, "k")
    np.testing.assert_array_equal(q[0, :, 0, 0], (2 * POS[0] + 4) * (3 * POS[0] + 4))
    np.testing.assert_array_equal(k, x)
    wanted = weighted().bias(params[0], POS, POS, DIMS) + absolute_bias().bias({}, POS, POS, DIMS)
    np.testing.assert_array_equal(both.bias(params, placed, placed, DIMS), wanted)


def test_a_chain_has_only_the_hooks_of_its_parts():
    hooks = signature(Encoding).parameters
    assert {n for n in hooks if getattr(chain(adder()), n)} == {"init", "embed", "relative"}
    assert chain(weighted(), adder()).relative
    assert not chain(weighted(), absolute_bias()).relative
    assert chain(weighted()).embed is None


def test_parts_have_keys_of_their_own():
    first, second = chain(weighted(), weighted()).init(KEY, DIMS)
    assert not np.array_equal(first["w"], second["w"])


def test_a_mover_inside_an_inner_chain_moves_nothing_outside_it():
    nested = chain(mover(100), chain(adder(), mover(10), adder()), adder())
    embedded = nested.embed(nested.init(KEY, DIMS), jnp.zeros((1, 5, 1)), shown(nested))
    np.testing.assert_array_equal(embedded[0, :, 0], 3 * POS[0] + 310)
    flat = chain(mover(100), adder(), mover(10), adder(), adder())
    embedded = flat.embed(flat.init(KEY, DIMS), jnp.zeros((1, 5, 1)), shown(flat))
    np.testing.assert_array_equal(embedded[0, :, 0], 3 * POS[0] + 320)


def test_content_scores_follow_each_other():
    both = chain(talker("a"), weighted(), talker("b"))
    both = both._replace(walk=both.walk._replace(start=lambda params, q: ("", None, "")))
    params, placed = both.init(KEY, DIMS), shown(both)
    feat = both.walk.prepare(params, jnp.ones((1, 5, 8)))
    assert feat[1] is None
    side = Side(jnp.ones((1, 5, 2, 4)), placed, feat)
    score = both.walk.score
    s, carry = score(params, jnp.ones((1, 2, 5, 5)), side, side, None, ("", None, ""))
    np.testing.assert_array_equal(s, jnp.full((1, 2, 5, 5), (1 * 2 + 8) * 2 + 8))
    assert carry == ("a", None, "b")
    plain = chain(make("shaw", shared=True), make("shaw", shared=True))
    params, side = plain.init(KEY, DIMS), Side(side.x_BTHC, POS)
    carry = plain.walk.start(params, side)
    s, _ = plain.walk.score(params, s, side, side, None, carry)  # no features prepared, none used
    assert s.shape == (1, 2, 5, 5)


def test_per_layer_shares_what_is_the_same_object():
    one, two = weighted(), weighted()
    layout = per_layer([one, two, one])
    params = layout.init(KEY, DIMS)
    assert len(params) == 2
    chosen = [at_layer(layout, layer, params, shown(layout)) for layer in range(6)]
    assert [e is one for e, *_ in chosen] == [True, False, True, True, False, True]
    assert chosen[0][1] is chosen[2][1]
    assert not np.array_equal(chosen[0][1]["w"], chosen[1][1]["w"])
    assert len(per_layer([weighted(), weighted()]).init(KEY, DIMS)) == 2


def test_per_layer_places_for_each_member():
    layout = per_layer([chain(mover(100), weighted()), make("nope")])
    params, placed = layout.init(KEY, DIMS), shown(layout)
    encoding, p, (_, seen) = at_layer(layout, 0, params, placed)
    np.testing.assert_array_equal(seen, POS + 100)
    assert encoding.bias is not None
    encoding, p, seen = at_layer(layout, 1, params, placed)
    np.testing.assert_array_equal(seen, POS)
    assert encoding.bias is None
    assert p == {}


def test_each_layer_has_parameters_of_its_own():
    encoding = each_layer(weighted())
    params = encoding.init(KEY, DIMS)
    assert len(params) == 3
    drawn = [at_layer(encoding, layer, params)[1]["w"] for layer in range(3)]
    assert len({tuple(np.asarray(w)) for w in drawn}) == 3
    assert encoding.relative


def test_combinators_can_be_nested():
    inner = weighted()
    both = chain(mover(7), per_layer([inner, scaler(2.0)]), each_layer(weighted()), adder())
    params, placed = both.init(KEY, DIMS), shown(both)
    first, p, seen = at_layer(both, 0, params, placed)
    wanted = inner.bias(params[1][0], POS, POS, DIMS) + inner.bias(params[2][0], POS, POS, DIMS)
    np.testing.assert_array_equal(first.bias(p, seen, seen, DIMS), wanted)
    assert first.rotate is None
    second, p, seen = at_layer(both, 1, params, placed)
    np.testing.assert_array_equal(
        second.bias(p, seen, seen, DIMS), inner.bias(params[2][1], POS, POS, DIMS)
    )
    table = second.table(p, seen, DIMS)
    np.testing.assert_array_equal(table[1][0, :, 0, 0], 2 * (POS[0] + 7) + 4)
    embedded = both.embed(params, jnp.zeros((1, 5, 1)), placed)
    np.testing.assert_array_equal(embedded[0, :, 0], POS[0] + 7)
    nested = per_layer([each_layer(inner), chain(inner, inner)])
    params = nested.init(KEY, DIMS)
    assert at_layer(nested, 2, params, shown(nested))[1] is params[0][2]


def test_hooks_that_differ_by_layer_must_be_asked_for_a_layer():
    both = chain(each_layer(weighted()), adder())
    params, placed = both.init(KEY, DIMS), shown(both)
    with pytest.raises(ValueError, match="each_layer: hooks differ by layer") as refusal:
        both.bias(params, placed, placed, DIMS)
    assert "\n" not in str(refusal.value)
    encoding, p, seen = at_layer(both, 2, params, placed)
    assert encoding.bias(p, seen, seen, DIMS).shape == (1, 2, 5, 5)


def test_sizes_are_static_under_jit():
    assert jax.jit(lambda dims: jnp.zeros(dims.head))(DIMS).shape == (DIMS.head,)
    with pytest.raises(TypeError, match="integer type"):  # control
        jax.jit(lambda head: jnp.zeros(head))(DIMS.head)


def test_encodings_run_under_jit_grad_and_vmap():
    both = chain(mover(3), per_layer([weighted(), scaler(2.0)]), make("alibi"), make("t5"))

    def loss(params):
        encoding, p, seen = at_layer(both, 0, params, shown(both))
        return (encoding.bias(p, seen, seen, DIMS) ** 2).sum()

    seeds = jax.vmap(lambda key: both.init(key, DIMS))(jax.random.split(KEY, 2))
    gradients = jax.jit(jax.vmap(jax.grad(loss)))(seeds)
    assert jax.tree.structure(gradients) == jax.tree.structure(seeds)
    assert all((abs(leaf).max() > 0) for leaf in jax.tree.leaves(gradients))


REFUSED = [
    (lambda: chain(), "chain: no parts given"),
    (lambda: per_layer([]), "per_layer: no parts given"),
    (
        lambda: chain(make("rope"), "alibi"),
        "chain: 'alibi' is not an Encoding; make(name) makes one",
    ),
    (lambda: per_layer(["rope"]), "per_layer: 'rope' is not an Encoding"),
    (lambda: each_layer(CATALOG["t5"]), "each_layer: <function t5 at"),
    (lambda: per_layer([adder()]), "per_layer: an encoding at the input has no layer"),
    (lambda: each_layer(adder()), "each_layer: an encoding at the input has no layer"),
    (lambda: make("alibbi"), "encoding.name: no method 'alibbi'; did you mean alibi"),
    (lambda: make("RoPE"), "encoding.name: no method 'RoPE'; did you mean rope"),
    (lambda: make(None), "encoding.name: no method None; did you mean nope? choices: the "),
    (lambda: make(["rope"]), "encoding.name: no method ['rope']; did you mean rope"),
    (lambda: describe(3), "encoding.name: no method 3; choices: the "),
    (lambda: make("alibi+"), "encoding.name: no method ''"),
    (lambda: make("alibi", slope=1), "encoding.slope: alibi takes no such option; its options"),
    (lambda: make("nope", slope=1), "encoding.slope: nope takes no such option; its options: none"),
    (lambda: make("rope", nam="t5"), "encoding.nam: rope takes no such option; did you mean name?"),
    (lambda: make("rope", bse=1.0), "encoding.bse: rope takes no such option; did you mean base?"),
    (lambda: describe("rope+alibbi"), "encoding.name: no method 'alibbi'; did you mean alibi"),
    (lambda: make("alibi", learned="yes"), "encoding.learned: 'yes' is not of type bool"),
    (lambda: make("t5", buckets=True), "encoding.buckets: True is not of type int"),
    (lambda: make("t5", buckets=32.0), "encoding.buckets: 32.0 is not of type int"),
    (lambda: make("swin_2d+alibi"), "encoding.name: swin_2d + alibi: parts read positions of"),
    (lambda: describe("alibbi"), "encoding.name: no method 'alibbi'; did you mean alibi"),
]


@pytest.mark.parametrize(("ask", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_a_wrong_argument_is_refused_in_one_line(ask, message):
    with pytest.raises(ValueError, match=":") as refusal:
        ask()
    assert str(refusal.value).startswith(message)
    assert "\n" not in str(refusal.value)


NUMPY = [
    ("rope", {"base": np.float32(5e5)}, {"base": 5e5}),
    ("rope", {"base": np.int64(500)}, {"base": 500.0}),
    ("t5", {"buckets": np.int32(16), "scaled": np.bool_(False)}, {"buckets": 16, "scaled": False}),
    ("mrope", {"sections": [np.int64(1), np.int8(2), 1]}, {"sections": (1, 2, 1)}),
    ("rope", {"pairing": np.str_("half")}, {"pairing": "half"}),
]


@pytest.mark.parametrize(("name", "given", "wanted"), NUMPY)
def test_numpy_numbers_are_accepted_as_options(name, given, wanted):
    assert make(name, **given).init is not None
    actual = {o: checked("encoding", card(name).options[o], value) for o, value in given.items()}
    assert actual == wanted
    assert [type(value) for value in actual.values()] == [type(v) for v in wanted.values()]
    with pytest.raises(FieldError, match="is not of type int"):
        make("t5", buckets=np.float32(16))


def test_an_error_carries_the_field_and_the_reason():
    for ask, field in (
        (lambda: make("rope", base=-1.0), "base"),
        (lambda: make("rope", bse=1.0), "bse"),
        (lambda: make("rope", pairing="x"), "pairing"),
        (lambda: make("t5", buckets=7), "buckets"),
        (lambda: make("yarn", beta_slow=40.0), "beta_fast"),
        (lambda: make("randomized+learned"), "name"),
        (lambda: make("rope+xpos"), "name"),
    ):
        with pytest.raises(FieldError) as refusal:
            ask()
        assert refusal.value.path == ("encoding", field)
        assert str(refusal.value) == f"encoding.{field}: {refusal.value.reason}"


@pytest.mark.parametrize("name", CATALOG)
def test_flax_takes_every_methods_parameters(name):
    """Through bytes and back they are the same arrays in the same tree."""
    encoding = CATALOG[name](**SMALL.get(name, {}))
    params = encoding.init(KEY, Dims(16, 2, 8, 2))
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(params))
    again = serialization.from_bytes(params, serialization.to_bytes(params))
    assert jax.tree.structure(again) == jax.tree.structure(params)
    jax.tree.map(np.testing.assert_array_equal, again, params)


def test_make_chains_by_plus_and_gives_options_to_the_parts_that_take_them():
    both = make("t5+clipped", distance=20, buckets=16, shared=True)
    t5, clipped = both.init(KEY, DIMS)
    assert t5["table"].shape == (16, 2)
    assert clipped["table"].shape == (41, 2)
    assert {n for n in signature(Encoding).parameters if getattr(make("nope"), n)} == {"init"}


FOREIGN = [
    ("rope", "theta", "did you mean base? "),
    ("rope", "rope_theta", "did you mean base? "),
    ("yarn", "scaling_factor", "did you mean factor? "),
    ("dynamic_ntk", "scaling_factor", "did you mean alpha? "),
    ("dynamic_ntk", "factor", "did you mean alpha? "),
    ("yarn", "original_max_position_embeddings", "did you mean length? "),
    ("yarn", "max_position_embeddings", "did you mean factor, length? "),
    ("learned", "max_position_embeddings", "did you mean length? "),
    ("t5", "num_buckets", "did you mean buckets? "),
    ("rope+t5", "relative_attention_num_buckets", "did you mean buckets? "),
    ("partial", "partial_rotary_factor", "did you mean share? "),
    ("alibi", "rope_theta", ""),  # the controls: it has no base, and no length
    ("alibi", "max_position_embeddings", ""),
]


@pytest.mark.parametrize(("name", "option", "hint"), FOREIGN)
def test_an_option_of_another_librarys_name_is_told_ours(name, option, hint):
    with pytest.raises(FieldError) as refusal:
        make(name, **{option: 1})
    assert f"encoding.{option}: {name} takes no such option; {hint}its options: " in str(
        refusal.value
    )


def test_hints_name_options_that_exist():
    options = {option for build in CATALOG.values() for option in card(build.__name__).options}
    assert {option for meant in ELSEWHERE.values() for option in meant} <= options


@pytest.mark.parametrize("name", CATALOG)
def test_every_option_has_a_text_that_refers_to_no_other_description(name):
    texts = {option: option_text(card(name), option) for option in card(name).options}
    assert [option for option, text in texts.items() if not text] == []
    assert [text for text in texts.values() if text.startswith("as in `")] == []


def test_a_reference_to_another_method_is_its_text():
    length = "tokens the model was trained on before it is extended"
    assert f"    length = 2048 (1 or more): {length}" in describe("yarn")
    assert f"    length = 8192: {length}" in describe("llama3")
    factor = option_text(card("pi"), "factor")
    assert option_text(card("resonance"), "factor").startswith(f"{factor}; 1 is the paper's")
    assert option_text(card("pi"), "nothing") == "", "control"


def test_describe_says_what_a_causal_decoder_wants():
    assert "a causal decoder never reads that half, so give it False" in describe("t5")


def test_describe_has_each_part_of_a_chain():
    parts = describe("rope+alibi")
    assert parts == f"{describe('rope')}\n\n{describe('alibi')}"
    assert describe("rope") != describe("alibi"), "control"


@pytest.mark.parametrize("name", CATALOG)
def test_describe_says_what_a_method_is(name):
    text = describe(name)
    assert text.startswith(f"{name}: ")
    for line in (card(name).formula, card(name).paper, *card(name).options):
        assert line in text


def test_public_names_exist():
    for name in posenc_jax.__all__:
        assert name in dir(posenc_jax)
        getattr(posenc_jax, name)
    assert posenc_jax.encodings.make is posenc_jax.make
    with pytest.raises(AttributeError, match="module 'posenc_jax' has no attribute 'maek'"):
        _ = posenc_jax.maek
