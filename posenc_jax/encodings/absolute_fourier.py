"""Learned Fourier features: codes of learned frequencies, at the model's input."""

import math

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.encoding import Encoding
from posenc_jax.encodings.card import method
from posenc_jax.encodings.checks import at_least, positive, require
from posenc_jax.encodings.input_codes import How, coded, embeds_by
from posenc_jax.encodings.rotation import angles


def _fourier_code(o, params, pos_T, n, width):
    """Definition: algorithm 1 of the paper, one position at a time."""
    gelu = np.vectorize(lambda x: x * (1 + math.erf(x / math.sqrt(2))) / 2)
    rows = []
    for t in pos_T:
        turned_F = t * params["freq"]
        r_F = np.concatenate([np.cos(turned_F), np.sin(turned_F)]) / np.sqrt(o.features)
        hidden_F = gelu(r_F @ params["w1"] + params["b1"])
        rows.append(hidden_F @ params["w2"] + params["b2"])
    return np.stack(rows)


@method(
    kind="input",
    formula="c(t) = W2 gelu(W1 [cos(w t), sin(w t)] / sqrt(features) + b1) + b2, w learned",
    paper="Li et al. 2021, arXiv 2106.02795",
    embeds=embeds_by(_fourier_code),
    vary={"width": 8},
)
def fourier(
    gamma: float = 10.0,
    features: int = 64,
    hidden: int = 32,
    how: How = "add",
    width: int | None = None,
) -> Encoding:
    """Learned Fourier features: sines and cosines of learned frequencies, through a small network.

    Frequencies start normal with standard deviation 1 / gamma, as in the paper. The paper scales
    positions to a range of about 1; here they are counted in tokens. The paper does not say how the
    network starts: here W1 has variance 1, because its input has norm 1 / sqrt(2), and W2 variance
    1 / hidden.

    Args:
      gamma: number of tokens over which codes are alike at the start.
      features: number of sines and cosines, even; half as many frequencies.
      hidden: width of the network.
      width: the code's own width; None is the model's.

    FieldError: gamma, hidden or width is not positive, or features is not even and positive.
    """
    positive(gamma=gamma)
    require(features > 0 and features % 2 == 0, "features", features, "must be even and positive")
    at_least(1, hidden=hidden)

    def init(key, width):
        freq_key, w1_key, w2_key = jax.random.split(key, 3)
        return {
            "freq": jax.random.normal(freq_key, (features // 2,)) / gamma,
            "w1": jax.random.normal(w1_key, (features, hidden)),
            "b1": jnp.zeros(hidden),
            "w2": jax.random.normal(w2_key, (hidden, width)) * hidden**-0.5,
            "b2": jnp.zeros(width),
        }

    def code(params, pos_BT, width):
        p = {name: leaf.astype(float) for name, leaf in params.items()}
        angle_BTF = angles(pos_BT, p["freq"][None])[:, :, 0]
        r_BTF = jnp.concatenate([jnp.cos(angle_BTF), jnp.sin(angle_BTF)], axis=-1)
        hidden_BTF = jnp.einsum("btf,fh->bth", r_BTF * features**-0.5, p["w1"])
        hidden_BTF = jax.nn.gelu(hidden_BTF + p["b1"][None, None], approximate=False)
        return jnp.einsum("bth,hw->btw", hidden_BTF, p["w2"]) + p["b2"][None, None]

    return coded(how, width, code, init)
