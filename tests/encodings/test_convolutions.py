"""Convolution positions: what they read of a row, and what they refuse."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from posenc_jax import Dims, chain, convolved, frame, full, layout, make, per_layer, testing
from posenc_jax.encoding import embed, place
from posenc_jax.encodings.convolutions import ACTIVATIONS, TAPS
from posenc_jax.masks import prefix
from posenc_jax.options import FieldError
from tests.support.catalogue import gap

DIMS = Dims(model=8, heads=2, head=4)
TIME = 13
X = np.random.default_rng(0).normal(size=(1, TIME, 8))
ACTS = {
    "gelu": lambda x: x * (1 + np.vectorize(math.erf)(x / 2**0.5)) / 2,
    "gelu_tanh": lambda x: x * (1 + np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3))) / 2,
    "relu": lambda x: np.maximum(x, 0),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "tanh": np.tanh,
}


def params_of(encoding, dims=DIMS):
    return jax.tree.map(np.asarray, testing.random_params(encoding, dims))


def defined(encoding, params, x_TD):
    """The embeddings of one whole sequence, float64, tap by tap and group by group."""
    o = encoding.options
    h_TD = np.asarray(x_TD, np.float64)
    for kernel_KID, bias_D in zip(params["kernel"], params["bias"], strict=True):
        size, inputs, width = kernel_KID.shape
        out_TD = np.zeros((len(h_TD), width)) + bias_D
        for t in range(len(h_TD)):
            for k in range(size):
                n = t + k - size // 2
                for d in range(width) if 0 <= n < len(h_TD) else ():
                    start = d // inputs * inputs
                    out_TD[t, d] += h_TD[n, start : start + inputs] @ kernel_KID[k, :, d]
        if o["norm"]:
            out_TD = out_TD - out_TD.mean(-1, keepdims=True)
            out_TD = out_TD / np.sqrt((out_TD**2).mean(-1, keepdims=True) + 1e-5)
        h_TD = ACTS[o["activation"]](out_TD)
    return x_TD + h_TD


def embedded(encoding, params, x_BTD, at, **options):
    """What a frame makes of the input of an encoder."""
    view = frame(encoding, params, at, DIMS, causal=False, **options)
    return view.embed(jnp.asarray(x_BTD))


OPTIONS = [
    {"kernel": 4, "groups": 2},
    {"kernel": 5, "groups": 4},
    {"kernel": 1, "groups": 1},
    {"kernel": 8, "groups": 8, "activation": "relu"},
    {"kernel": 9, "groups": 1, "activation": "silu"},  # more taps than one product takes
    {"kernel": 40, "groups": 2, "activation": "gelu_tanh"},  # longer than the row
    {"kernel": 3, "groups": 2, "layers": 3, "norm": True},
    {"kernel": 2, "groups": 2, "norm": True, "activation": "tanh"},
]


@pytest.mark.thorough(after=4)
@pytest.mark.parametrize("options", OPTIONS, ids=[str(n) for n in range(len(OPTIONS))])
def test_it_equals_its_definition_in_float64(options):
    encoding = convolved(**options)
    with jax.enable_x64(True):
        params = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params_of(encoding))
        wanted = defined(encoding, params, X[0])
        actual = embedded(encoding, params, X, full(1, TIME))[0]
        assert actual.dtype == np.float64
        assert gap(actual, wanted) < 1e-12
        if options["kernel"] > 1:
            turned = {**params, "kernel": params["kernel"][:, ::-1]}
            other = embedded(encoding, turned, X, full(1, TIME))[0]
            assert gap(other, wanted) > 1e-3, "control: steps the other way round"


def test_every_activation_and_tap_count_is_tried():
    assert {o.get("activation", "gelu") for o in OPTIONS} == {*ACTIVATIONS} == {*ACTS}
    assert {o["kernel"] % 2 for o in OPTIONS} == {0, 1}
    assert min(o["kernel"] for o in OPTIONS) < TAPS < max(o["kernel"] for o in OPTIONS)


ENCODING = convolved(4, 2)
DEEP = convolved(3, 2, layers=2, norm=True)
ROWS = {
    "alone": [1] * 13,
    "right": [1] * 9 + [0] * 4,
    "left": [0] * 4 + [1] * 9,
    "packed": [1] * 5 + [2] * 8,
    "falling": [3] * 5 + [1] * 6 + [0] * 2,
    "hole": [1] * 3 + [0] * 2 + [1] * 8,
    "between": [1, 2, 2, 1, 1, 3, 2, 1, 3, 3, 0, 1, 2],
    "short": [1, 2, 3, 4, 5, 6, 7, 7, 0, 0, 8, 9, 9],
}


def by_sequence(encoding, params, x_TD, segment_T):
    """The definition of each sequence alone; NaN in the padding."""
    out_TD = np.full(x_TD.shape, np.nan)
    for n in {*segment_T} - {0}:
        here = np.asarray(segment_T) == n
        out_TD[here] = defined(encoding, params, x_TD[here])
    return out_TD


def holed(x_BTD, at):
    """x with NaN in the padding."""
    return np.where(np.asarray(at.segment_BT)[..., None] > 0, x_BTD, np.nan).astype(np.float32)


@pytest.mark.parametrize("counted", [True, False])
@pytest.mark.parametrize("encoding", [ENCODING, DEEP], ids=["one", "deep"])
def test_a_token_reads_neighbours_of_its_own_sequence_alone(encoding, counted):
    """Padding, on either side or between, is NaN; sequences are packed, or lie between each
    other.
    """
    params = params_of(encoding)
    at = layout(list(ROWS.values()))
    at = at if counted else at.replace(counted=False)
    x_BTD = np.repeat(X, len(ROWS), axis=0)
    actual = np.asarray(embedded(encoding, params, holed(x_BTD, at), at))
    for out_TD, (name, segment_T) in zip(actual, ROWS.items(), strict=True):
        real_T = np.asarray(segment_T) > 0
        wanted_TD = by_sequence(encoding, params, X[0], segment_T)
        assert gap(out_TD[real_T], wanted_TD[real_T]) < 1e-5, name
        one_TD = defined(encoding, params, X[0])  # control: as one document without padding
        if name != "alone":
            assert gap(out_TD[real_T], one_TD[real_T]) > 1e-3, name


@pytest.mark.parametrize("counted", [True, False])
def test_tokens_stored_in_another_order_give_the_same(counted):
    params, order = params_of(ENCODING), np.random.default_rng(1).permutation(TIME)
    at = layout(list(ROWS.values()))
    at = at if counted else at.replace(counted=False)
    x_BTD = holed(np.repeat(X, len(ROWS), axis=0), at)
    plain = embedded(ENCODING, params, x_BTD, at)
    moved = jax.tree.map(lambda leaf: leaf[:, order], at)
    actual = np.asarray(embedded(ENCODING, params, x_BTD[:, order], moved))
    real = np.asarray(moved.segment_BT) > 0
    assert gap(actual[real], np.asarray(plain)[:, order][real]) < 1e-5
    by_column = embedded(ENCODING, params, x_BTD[:, order], at.replace(segment_BT=moved.segment_BT))
    assert gap(actual[0], by_column[0]) > 1e-3, "control: neighbours by column"


@pytest.mark.thorough
def test_one_layout_serves_rows_that_are_alike():
    order = np.random.default_rng(1).permutation(TIME)
    params, x_BTD = params_of(ENCODING), np.random.default_rng(3).normal(size=(3, TIME, 8))
    for at in (layout([ROWS["packed"]]), layout([np.take(ROWS["packed"], order)])):
        every = jax.tree.map(lambda leaf: jnp.repeat(leaf, 3, axis=0), at)
        actual, wanted = (embedded(ENCODING, params, x_BTD, rows) for rows in (at, every))
        assert gap(actual, wanted) < 1e-5


def test_positions_of_ones_own_and_masks_change_nothing():
    """Neighbours are next to each other in the order of tokens, whatever their positions are."""
    params, at = params_of(ENCODING), full(1, TIME)
    plain = embedded(ENCODING, params, X, at)
    positions = np.random.default_rng(2).normal(size=(1, TIME, 2)).astype(np.float32)
    for other in (
        layout(pos_BT=np.arange(TIME)[None] * 3 + 7), layout(pos_BT=positions), prefix(at, 5),
        layout(np.ones((1, TIME), int), start=40),
    ):  # fmt: skip
        assert gap(embedded(ENCODING, params, X, other), plain) == 0
    backwards = at.replace(index_BT=at.index_BT[:, ::-1], counted=False)
    assert gap(embedded(ENCODING, params, X, backwards), plain) > 1e-3, "control: another order"


BATTERY = (
    testing.hooks, testing.padding, testing.padding_side, testing.positions, testing.storage,
    testing.packing, testing.shift, testing.order, testing.forms, testing.transforms,
    testing.meshes, testing.precision,
)  # fmt: skip


@pytest.mark.thorough(after=6)
@pytest.mark.parametrize("check", BATTERY, ids=[check.__name__ for check in BATTERY])
def test_the_battery_holds_but_for_causality_and_caches(check):
    check(testing.trial(convolved(6, 4), axes=0, shift_invariant=True, tells_order=True))


@pytest.mark.thorough(after=1)
@pytest.mark.parametrize("check", [testing.causality, testing.decoding, testing.cross])
def test_what_a_causal_decoder_needs_does_not_hold(check):
    """Why it is no method of the catalogue."""
    with pytest.raises(AssertionError, match=check.__name__.removesuffix("ity")):
        check(testing.trial(convolved(6, 4), axes=0))


@pytest.mark.parametrize("make_encoding", [
    lambda: ENCODING, lambda: chain(ENCODING, make("rope")),
    lambda: chain(make("sinusoidal"), chain(ENCODING, make("alibi"))),
])  # fmt: skip
def test_a_causal_frame_must_be_asked_for(make_encoding):
    """By default attention is causal, and a token would be shown what comes after it."""
    encoding, at = make_encoding(), full(1, TIME)
    params = encoding.init(jax.random.key(0), DIMS)
    assert encoding.both_sides
    with pytest.raises(ValueError, match=r"^frame.causal: \w+ reads tokens on both sides of a"):
        frame(encoding, params, at, DIMS)
    for causal in (False, True):
        frame(encoding, params, at, DIMS, causal=causal)
    across = chain(make("sinusoidal"), make("rope"))
    assert not across.both_sides, "control"
    frame(across, across.init(jax.random.key(0), DIMS), at, DIMS)


def missing(x_BTD):
    """The columns of the first row that are NaN in every channel."""
    return np.flatnonzero(np.isnan(np.asarray(x_BTD[0])).all(-1)).tolist()


def test_a_missing_neighbour_makes_nan():
    """Tokens of a cache, of a device, and of a part of a row; of those whose neighbours are there
    the same as in the whole row.
    """
    encoding, at = convolved(3, 2), full(1, TIME)  # one token on either side
    params = params_of(encoding)
    whole = np.asarray(embedded(encoding, params, X, at))
    few = np.s_[:, 2:7]
    as_queries = embedded(encoding, params, X[few], at, queries=(2, 5))
    cut = embedded(encoding, params, X[few], jax.tree.map(lambda leaf: leaf[few], at))
    placed = jax.tree.map(lambda leaf: leaf[few], place(encoding, None, at))
    on_device = embed(encoding, params, jnp.asarray(X[few]), placed)
    for actual in map(np.asarray, (as_queries, cut, on_device)):
        assert missing(actual) == [0, 4]
        assert gap(actual[:, 1:4], whole[:, 3:6]) < 1e-5
    for n in range(TIME):
        one = embedded(encoding, params, X[:, n : n + 1], at, queries=(n, 1))
        written = at.replace(segment_BT=np.where(np.arange(TIME)[None] <= n, 1, 0))
        grown = embedded(encoding, params, X[:, n : n + 1], written, queries=(n, 1))
        assert np.isnan(one).all()
        assert np.isnan(grown).all() == (n > 0), "a sequence of one token has no neighbours"
    order = [0, 1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12]  # token 3 is not there
    gone = embedded(encoding, params, X[:, order], jax.tree.map(lambda leaf: leaf[:, order], at))
    assert missing(gone) == [2, 3]


@pytest.mark.thorough
def test_it_runs_inside_of_shard_map():
    """There the sum of a loop varies over the mesh, and the zeros that it starts with do not."""
    params, at = params_of(ENCODING), layout([ROWS["packed"]])
    mesh = jax.make_mesh((1,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
    spread = jax.sharding.PartitionSpec(None, "d")
    run = lambda x, at: embedded(ENCODING, params, x, at, ring="d")
    spread_run = jax.shard_map(run, mesh=mesh, in_specs=(spread, spread), out_specs=spread)
    actual = spread_run(jnp.asarray(X), at)
    assert gap(actual, embedded(ENCODING, params, X, at)) < 1e-5


def test_numbers_of_a_sequence_that_is_cut_are_known_where_positions_count():
    at = full(1, TIME).replace(counted=False)
    cut = jax.tree.map(lambda leaf: leaf[:, 2:7], at)
    assert np.isnan(embedded(ENCODING, params_of(ENCODING), X[:, 2:7], cut)).all()
    twice = layout([[1] * 5]).replace(index_BT=[[0, 1, 1, 2, 3]])
    assert not np.isnan(embedded(ENCODING, params_of(ENCODING), X[:, :5], twice)).any()


def test_layers_hand_on_what_is_missing():
    """Of two convolutions over three tokens, two tokens on either side are read."""
    at = full(1, TIME)
    params = params_of(DEEP)
    actual = embedded(DEEP, params, X[:, 2:9], at, queries=(2, 7))
    assert missing(actual) == [0, 1, 5, 6]
    assert gap(actual[:, 2:5], embedded(DEEP, params, X, at)[:, 4:7]) < 1e-5


@pytest.mark.thorough
def test_gradients_are_those_of_real_tokens():
    """Also where padding is NaN; and in a row that is not stored in order."""
    segment_T = ROWS["between"]
    at = layout([segment_T])
    real = np.asarray(segment_T) > 0
    with jax.enable_x64(True):
        params = jax.tree.map(lambda leaf: jnp.asarray(leaf, float), params_of(DEEP))
        x_BTD = jnp.where(real[None, :, None], jnp.asarray(X), jnp.nan)

        def real_outputs(params, x_TD):
            x_BTD_all = x_BTD.at[:, real].set(x_TD[None])
            return embedded(DEEP, params, x_BTD_all, at)[:, real]

        check_grads(real_outputs, (params, x_BTD[0, real]), order=1, atol=1e-6, rtol=1e-6)
        total = lambda x: embedded(DEEP, params, x, at)[:, real].sum()
        of_x = np.asarray(jax.grad(total)(x_BTD))
        assert np.isfinite(of_x).all()
        assert not of_x[:, ~real].any()
        assert of_x[:, real].any(), "control"


def test_bfloat16_is_summed_in_float32():
    params = params_of(convolved(40, 1))
    x_BTD = jnp.asarray(X, jnp.bfloat16)
    actual = embedded(convolved(40, 1), params, x_BTD, full(1, TIME))
    assert actual.dtype == jnp.bfloat16
    exact = defined(convolved(40, 1), params, np.asarray(x_BTD[0], np.float64))
    off = np.abs(np.asarray(actual[0], np.float64) - exact)
    ulp = 2.0 ** (np.floor(np.log2(np.abs(exact))) - 7)
    assert (off / ulp).max() < 0.51
    rounded = jax.tree.map(lambda leaf: np.asarray(leaf, jnp.bfloat16), params)
    other = embedded(convolved(40, 1), rounded, x_BTD, full(1, TIME))
    assert (np.abs(np.asarray(other[0], np.float64) - exact) / ulp).max() > 0.51, "control"


@pytest.mark.thorough
def test_it_acts_beside_other_parts_under_jit():
    shaw = make("shaw", distance=3)
    both = chain(ENCODING, make("sinusoidal"), shaw)
    params = jax.tree.map(jnp.asarray, both.init(jax.random.key(0), DIMS))
    at = layout([ROWS["packed"], ROWS["left"]])
    x_BTD = jnp.asarray(holed(np.repeat(X, 2, axis=0), at))
    actual = jax.jit(lambda p, x, at: embedded(both, p, x, at))(params, x_BTD, at)
    inner = embedded(ENCODING, params[0], x_BTD, at)
    wanted = embedded(make("sinusoidal"), params[1], inner, at)
    real = np.asarray(at.segment_BT) > 0
    assert gap(np.asarray(actual)[real], np.asarray(wanted)[real]) < 1e-5
    with pytest.raises(ValueError, match=r"per_layer: .*input"):
        per_layer([ENCODING, make("rope")])


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"kernel": 0}, "encoding.kernel: 0 must be 1 or more"),
        ({"groups": 2.5}, "encoding.groups: 2.5 is not of type int"),
        ({"layers": True}, "encoding.layers: True is not of type int"),
        ({"norm": 1}, "encoding.norm: 1 is not of type bool"),
        ({"activation": "elu"}, "encoding.activation: 'elu' is not one of: 'gelu', 'gelu_tanh', "),
    ],
)
def test_a_wrong_option_is_one_line(options, line):
    with pytest.raises(FieldError) as error:
        convolved(**options)
    assert str(error.value).startswith(line)
    assert "\n" not in str(error.value)


def test_groups_divide_the_channels():
    with pytest.raises(FieldError, match="groups: 3 do not divide the 8 channels of the model"):
        convolved(4, 3).init(jax.random.key(0), DIMS)
