"""DeBERTa's buckets, table and directions; TUPE's positions apart from content."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax import Dims, at_layer, attend, frame, make
from posenc_jax.encodings import reach
from posenc_jax.encodings.position_vectors import deberta_rows
from posenc_jax.layout import full

DIMS = Dims(model=6, heads=2, head=3, layers=2)


def attention(encoding, params, q, k, v, at, layer=0):
    view = frame(encoding, params, at, DIMS, causal=False)
    return np.asarray(attend(q, k, v, view.layer(layer)))


def softmax(s):
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def test_deberta_buckets_are_those_of_the_large_models():
    rows = dict(zip(range(-512, 513), deberta_rows(256, 512), strict=True))
    assert [rows[d] for d in (0, 1, -1, 127, 128, -128)] == [256, 257, 255, 383, 384, 128]
    assert [rows[d] for d in (129, 130, 511, 512)] == [385, 386, 511, 511]
    assert [rows[d] for d in (-511, -512)] == [1, 0]
    assert (np.diff(list(rows.values())) >= 0).all()
    apart = np.arange(-512, 513.0)
    far = np.abs(apart) > 128
    share = np.log(np.abs(apart[far]) / 128) / np.log(511 / 128)
    wanted = np.sign(apart[far]) * (np.ceil(share * 127) + 128)
    np.testing.assert_array_equal(deberta_rows(256, 512)[far], np.clip(wanted + 256, 0, 511))


def test_deberta_without_buckets_clips_as_the_paper_does():
    np.testing.assert_array_equal(deberta_rows(0, 3), [0, 1, 2, 3, 4, 5, 5])


@pytest.mark.thorough
@pytest.mark.parametrize("buckets", [0, 4])
@pytest.mark.parametrize("flipped", [True, False])
def test_deberta_is_the_papers_sum(buckets, flipped):
    with jax.enable_x64(True):
        encoding = make("deberta", buckets=buckets, distance=6, flipped=flipped)
        params = jax.tree.map(lambda x: 50 * x, encoding.init(jax.random.key(0), DIMS))
        q, k, v = np.random.default_rng(0).normal(size=(3, 1, 9, 2, 3))
        actual = attention(encoding, params, *map(jnp.asarray, (q, k, v)), full(1, 9), layer=1)[0]
        table, to_key, to_query = (
            np.asarray(x) for x in (params["table"], params["keys"][1], params["queries"][1])
        )
    row = lambda d: deberta_rows(buckets, 6)[np.clip(d, -6, 6) + 6]
    ahead = row(np.arange(9)[:, None] - np.arange(9)[None])
    back = ahead.T if flipped else ahead
    s = np.einsum("ihc,jhc->hij", q[0], k[0])
    s += np.einsum("ihc,ijd,dhc->hij", q[0], table[ahead], to_key)
    s += np.einsum("jhc,ijd,dhc->hij", k[0], table[back], to_query)
    wanted = np.einsum("hij,jhc->ihc", softmax(s / 3), v[0])  # 3 C is 9
    np.testing.assert_allclose(actual, wanted, atol=1e-9)
    assert np.abs(actual - np.einsum("hij,jhc->ihc", softmax(s), v[0])).max() > 1e-3


def test_deberta_layers_share_the_table_and_project_it_their_own_way():
    encoding = make("deberta", buckets=4, distance=8)
    params = encoding.init(jax.random.key(0), DIMS)
    assert params["table"].shape == (8, 6)
    first, second = (at_layer(encoding, n, params)[1] for n in (0, 1))
    assert first["keys"].shape == (8, 2, 3)
    assert not np.allclose(first["keys"], second["keys"])
    loss = lambda p: sum(jnp.square(at_layer(encoding, n, p)[1]["queries"]).sum() for n in (0, 1))
    assert float(jnp.abs(jax.grad(loss)(params)["table"]).min()) > 0


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"buckets": 5}, "encoding.buckets: 5 must be 0, or even and 4 or more"),
        ({"buckets": 2}, "encoding.buckets: 2 must be 0, or even"),
        ({"buckets": 8, "distance": 5}, "encoding.distance: 5 must be 6 or more"),
        ({"buckets": 0, "distance": 0}, "encoding.distance: 0 must be 1 or more"),
    ],
)
def test_deberta_refuses(options, complaint):
    with pytest.raises(ValueError, match=complaint):
        make("deberta", **options)


@pytest.mark.thorough
def test_tupe_with_t5_is_tupe_r():
    """Logits are content and position over sqrt(2 C), plus one bias for each bucket."""
    with jax.enable_x64(True):
        encoding = make("tupe+t5", length=16, beyond="clamp", buckets=8, distance=9)
        params = encoding.init(jax.random.key(0), DIMS)
        q, k, v = np.random.default_rng(0).normal(size=(3, 1, 9, 2, 3))
        actual = attention(encoding, params, *map(jnp.asarray, (q, k, v)), full(1, 9))[0]
        t5 = make("t5", buckets=8, distance=9)
        bias_HQK = np.asarray(t5.bias(params[1], *2 * (full(1, 9).pos_BT,), DIMS))[0]
        p, u, w = (np.asarray(params[0][name]) for name in ("table", "queries", "keys"))
    projected = lambda u_DHC: np.einsum("td,dhc->thc", p[:9], u_DHC)
    s = np.einsum("ihc,jhc->hij", q[0], k[0]) + np.einsum(
        "ihc,jhc->hij", projected(u), projected(w)
    )
    wanted = np.einsum("hij,jhc->ihc", softmax(s / np.sqrt(6) + bias_HQK), v[0])
    np.testing.assert_allclose(actual, wanted, atol=1e-9)
    tied = np.einsum("ihc,jhc->hij", q[0] + projected(u), k[0] + projected(w))
    mixed = np.einsum("hij,jhc->ihc", softmax(tied / np.sqrt(6) + bias_HQK), v[0])
    assert np.abs(actual - mixed).max() > 1e-2, "control: mixed terms of content and position"


def test_tupe_is_one_for_all_layers():
    encoding = make("tupe")
    assert encoding.at is None
    assert reach("tupe") == 512
    with pytest.raises(ValueError, match=r"encoding\.length: 0 must be 1 or more"):
        make("tupe", length=0)
    with pytest.raises(ValueError, match=r"encoding\.beyond"):
        make("tupe", beyond="wrap")
