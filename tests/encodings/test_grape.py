"""GRAPE's three forms, TAPA and trees at settings where their scores are known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax import Dims, at_layer, frame, make
from posenc_jax.attention import logits
from posenc_jax.layout import full
from tests.support.catalogue import gap, stir

DIMS = Dims(model=16, heads=2, head=8, layers=1)
TIME = 12


def logits_of(encoding, params, at=None, q=None, causal=True):
    """Logits [B, H, Q, K] of one layer, 0 where nothing is seen; its input x is the queries."""
    q_new, k = jax.random.normal(jax.random.key(1), (2, 1, TIME, DIMS.heads, DIMS.head))
    q = q_new if q is None else q
    at = full(1, TIME) if at is None else at
    view = frame(encoding, params, at, DIMS, form="dense", causal=causal)
    s_BHQK = logits(q, k, view.layer(0, q.reshape(1, TIME, -1)))
    return jnp.where(jnp.isneginf(s_BHQK), 0, s_BHQK)


def start(name, **options):
    encoding = make(name, **options)
    return encoding, encoding.init(jax.random.key(0), DIMS)


@pytest.mark.thorough
def test_grape_m_starts_as_rope_and_leaves_it():
    rope, (encoding, params) = logits_of(*start("rope")), start("grape_m")
    assert gap(logits_of(encoding, params), rope) < 1e-5
    assert gap(logits_of(encoding, stir(params, 1)), rope) > 0.1


def test_grape_m_keeps_lengths():
    encoding, params = start("grape_m")
    layer_encoding, params = at_layer(encoding, 0, stir(params, 1))
    x = jax.random.normal(jax.random.key(2), (1, TIME, DIMS.heads, DIMS.head))
    length = lambda x: jnp.linalg.norm(x, axis=-1)
    rotated = layer_encoding.rotate(
        layer_encoding.table(params, full(1, TIME).pos_BT, DIMS), x, "q"
    )
    assert gap(length(rotated), length(x)) < 1e-5
    assert gap(rotated, x) > 0.1


def alibi(factor):
    """Logits of ALiBi with its slopes times a factor."""
    encoding, params = start("alibi", learned=True)
    return logits_of(encoding, {"log2_slopes": params["log2_slopes"] + np.log2(factor)})


def test_grape_a_without_content_is_alibi():
    encoding, (params,) = start("grape_a")
    blind = {**params, "query": 0 * params["query"], "key": 0 * params["key"]}
    assert gap(logits_of(encoding, (blind,)), alibi(2 * np.log(2))) < 1e-5
    assert gap(logits_of(encoding, (params,)), alibi(2 * np.log(2))) > 0.05


def test_grape_ap_without_content_is_alibi():
    encoding, (params,) = start("grape_ap")
    blind = {"probe": 0 * params["probe"]}
    assert gap(logits_of(encoding, (blind,)), alibi(np.log(2))) < 1e-5
    assert gap(logits_of(encoding, (params,)), alibi(np.log(2))) > 0.05


def test_grape_ap_in_an_encoder_reads_every_row_as_if_it_stood_last():
    encoding, params = start("grape_ap")
    q = jax.random.normal(jax.random.key(1), (2, 1, TIME, DIMS.heads, DIMS.head))[0]
    both_ways, causal = (logits_of(encoding, params, q=q, causal=c)[0] for c in (False, True))
    last = logits_of(encoding, params, q=q.at[0, -1].set(q[0, 4]), causal=True)[0, :, -1]
    # The last token's own gate is made of its content: it is left out of the comparison.
    assert gap(both_ways[:, 4, -1], last[:, -1]) < 1e-5
    assert gap(both_ways[:, 4, :4], causal[:, 4, :4]) > 1e-2, "control: a causal row sums fewer"


def test_tapa_at_distance_0_is_the_product_of_the_amplitudes():
    encoding, params = start("tapa")
    still = full(1, TIME).replace(pos_BT=jnp.zeros((1, TIME), jnp.int32))
    q, k = jax.random.normal(jax.random.key(1), (2, 1, TIME, DIMS.heads, DIMS.head))
    plain = jnp.einsum("bqhc,bkhc->bhqk", q[..., :4], k[..., :4]) / 2
    seen = np.tri(TIME, dtype=bool)
    assert gap(logits_of(encoding, params, still)[..., seen], plain[..., seen]) < 1e-5
    apart = logits_of(encoding, params)[..., seen]
    assert gap(apart, plain[..., seen]) > 0.1
    assert (np.abs(apart) < np.abs(plain[..., seen]) + 1e-5).all(), "a cosine is at most 1"


@pytest.mark.thorough
def test_tapa_has_finite_derivatives_where_positions_are_equal():
    encoding, params = start("tapa")

    def loss(pos_BT):
        return logits_of(encoding, params, full(1, TIME).replace(pos_BT=pos_BT)).sum()

    slope = jax.grad(loss)(jnp.arange(TIME, dtype=float)[None] // 2)
    assert np.isfinite(slope).all()
    assert float(jnp.abs(slope).max()) > 0
    bare = jax.grad(lambda d: jnp.abs(d) ** 0.1)(0.0)
    assert not np.isfinite(bare), "control: the bare power"


def test_tapa_refuses_a_head_that_cannot_be_split():
    with pytest.raises(ValueError, match=r"head: 8 channels cannot be split at share 0\.05"):
        make("tapa", share=0.05).init(jax.random.key(0), DIMS)


def tree_logits(nodes, encoding, params):
    """Logits of the first three tokens, with the same content wherever their nodes stand."""
    pos_BT = jnp.concatenate([jnp.asarray(nodes), jnp.arange(TIME - 3)])[None]
    at = full(1, TIME).replace(pos_BT=pos_BT)
    return logits_of(encoding, params, at, causal=False)[..., :3, :3]


@pytest.mark.thorough
def test_a_subtree_has_the_same_scores_wherever_it_hangs():
    encoding, params = start("tree")
    params = stir(params, 1)
    hung_from = lambda root: [root, 2 * root + 1, 4 * root + 6]  # left child; right, then right
    at_root, elsewhere = (tree_logits(hung_from(n), encoding, params) for n in (0, 9))
    assert gap(at_root, elsewhere) < 1e-5
    mirrored = tree_logits([0, 2, 3], encoding, params)
    assert gap(at_root, mirrored) > 0.05, "control: the other branches"


@pytest.mark.thorough
def test_tree_on_first_children_starts_as_rope():
    """A path of first children is a sequence, and all branches start as rope's turns."""
    chain = [2**n - 1 for n in range(TIME)]
    at = full(1, TIME).replace(pos_BT=jnp.asarray(chain)[None])
    rope = logits_of(*start("rope", pairing="interleaved"))
    assert gap(logits_of(*start("tree", depth=TIME), at), rope) < 1e-5
    assert gap(logits_of(*start("tree", depth=TIME)), rope) > 0.1, "control: other nodes"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"branches": 1}, "encoding.branches: 1 must be 2 or more"),
        ({"depth": 31}, "encoding.depth: 31 with 2 branches makes 2^31 nodes or more"),
    ],
)
def test_a_tree_that_cannot_be_counted_is_refused(options, message):
    if options == {"depth": 31}:
        make("tree", depth=30)
    with pytest.raises(ValueError, match="encoding") as refusal:
        make("tree", **options)
    assert str(refusal.value) == message
