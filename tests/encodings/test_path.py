"""PaTH over several stretches of keys, against one matrix after the other."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax import make
from posenc_jax.backends.target import compile_for
from posenc_jax.encodings.path import NARROW, STRETCH, _stretch
from posenc_jax.layout import full
from tests.encodings.test_gated import HEAD, HEADS, draw, run, stirred

TIME = 2 * STRETCH + 9


def one_by_one(w_THC, beta_TH, q, k, v):
    """Causal PaTH in float64, a turn at a time."""
    out = np.zeros(q.shape)
    for i, h in np.ndindex(*q.shape[:2]):
        x, s = q[i, h].astype(np.float64), np.full(i + 1, 0.0)
        for j in range(i, -1, -1):
            s[j] = k[j, h] @ x / np.sqrt(HEAD)
            x = x - beta_TH[j, h] * w_THC[j, h] * (w_THC[j, h] @ x)
        p = np.exp(s - s.max())
        out[i, h] = p / p.sum() @ v[: i + 1, h]
    return out


@pytest.mark.thorough
@pytest.mark.parametrize("backend", ["cpu", "gpu"])  # with stretches of other lengths
def test_stretches_and_blocks_are_one_product(backend):
    encoding = make("path", rank=4)
    with compile_for(backend):
        assert _stretch(HEAD) == {"cpu": NARROW, "gpu": STRETCH}[backend]
        _stretches_and_blocks_are_one_product(encoding)


def _stretches_and_blocks_are_one_product(encoding):
    params, qkv = stirred(encoding), draw(1, TIME)
    with jax.enable_x64(True):
        wide, (q, k, v) = jax.tree.map(lambda x: jnp.asarray(x, float), (params, qkv))
        w, beta = encoding.at(0, wide)[0].walk.prepare(wide[0], k.reshape(1, TIME, -1))
        np.testing.assert_allclose(jnp.linalg.norm(w, axis=-1), 1, atol=1e-4)
        assert float(beta.min()) < 0.5 < 1.5 < float(beta.max()) < 2
        wanted = one_by_one(*(np.asarray(x[0]) for x in (w, beta, q, k, v)))
        for options in ({"form": "dense"}, {"form": "blockwise", "block": STRETCH + 7}):
            actual = run(encoding, wide, q, k, v, full(1, TIME), **options)[0]
            np.testing.assert_allclose(actual, wanted, atol=1e-10)
    single = run(encoding, params, *qkv, full(1, TIME))[0]
    np.testing.assert_allclose(single, wanted, atol=1e-4)
    still = run(make("nope"), {}, *qkv, full(1, TIME))[0]
    assert np.abs(np.asarray(still) - wanted).max() > 0.1, (
        "control: without turns it is another function"
    )


@pytest.mark.thorough
def test_reflections_along_one_line_undo_each_other():
    """With beta = 2 and one w, keys an even number of tokens back are met by the plain query."""
    encoding = make("path", rank=4, beta=2.0)
    (params,) = stirred(encoding)
    q, k, _ = draw(1, 8)
    k = jnp.broadcast_to(k[:, :1], k.shape)  # also the layer's input, of which w is made
    w, _ = encoding.at(0, (params,))[0].walk.prepare(params, k.reshape(1, 8, -1))
    q, w, k = q[0, -1], w[0, 0], k[0, 0]
    even = (q * k).sum(-1)
    odd = even - 2 * (w * q).sum(-1) * (w * k).sum(-1)
    share = jax.nn.sigmoid((even - odd) / HEAD**0.5)
    is_even = jnp.broadcast_to(jnp.array([0.0, 1.0] * 4)[None, :, None, None], (1, 8, HEADS, 1))
    alike = lambda x: jnp.broadcast_to(x[None, None], (1, 8, HEADS, HEAD))
    actual = run(encoding, (params,), alike(q), alike(k), is_even, full(1, 8))[0, -1, :, 0]
    np.testing.assert_allclose(actual, share, atol=1e-4)
    assert np.abs(share - 0.5).max() > 0.05, "control: odd keys meet another query"
