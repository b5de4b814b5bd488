"""Positions that a layer makes of its own input, in place of a token's index."""

import jax
import jax.numpy as jnp

from posenc_jax.combinators import each_layer
from posenc_jax.dtypes import widest
from posenc_jax.encoding import Encoding
from posenc_jax.encodings.card import method
from posenc_jax.encodings.checks import at_least, positive
from posenc_jax.encodings.rotation import Pairing, ladder, rotary, turns


@method(
    kind="none",
    formula="as rope at positions z[h] = (silu(x G) * (x C)) P instead of t, real numbers",
    paper="Li et al. 2025 (RePo), arXiv 2512.14391",
    axes=0,
    example={"hidden": 8},
)
def repo(base: float = 10_000.0, hidden: int = 256, pairing: Pairing = "half") -> Encoding:
    """RePo: rope at real positions that each layer makes of a token's content, for each head.

    It does not read a token's index: order comes from the causal mask, or from other layers. The
    paper has rope in the first layers: `per_layer([rope()] * 5 + [repo() for _ in range(11)])`.

    Args:
      base, pairing: as in `rope`.
      hidden: width of the gated layer; the authors take an eighth of the model's, 2,048.

    FieldError: base not positive, hidden below 1; later, an odd head width.
    """
    positive(base=base)
    at_least(1, hidden=hidden)
    frequencies = lambda head: ladder(head, base)

    def init(key, dims):
        shapes = {"gate": (dims.model, hidden), "content": (dims.model, hidden)}
        shapes["position"] = hidden, dims.heads
        keys = jax.random.split(key, len(shapes))
        draw = lambda key, shape: 0.02 * jax.random.normal(key, shape)
        return {name: draw(k, shape) for k, (name, shape) in zip(keys, shapes.items(), strict=True)}

    def locate(params, x_BTD, placed):
        wide = widest(x_BTD.dtype)
        x_BTD, w = x_BTD.astype(wide), jax.tree.map(lambda leaf: leaf.astype(wide), params)
        return (jax.nn.silu(x_BTD @ w["gate"]) * (x_BTD @ w["content"])) @ w["position"]

    def table(params, z_BTH, dims):
        freq_F = jnp.asarray(frequencies(dims.head), z_BTH.dtype)
        return turns(z_BTH[..., None] * freq_F[None, None, None])

    return each_layer(rotary(frequencies, pairing, table, init=init, locate=locate))
