"""A pattern of layers under `jax.lax.scan`, as a Gemma 3 is written in JAX.

Five layers of six see a window of near tokens, with rope of base 10,000; the sixth sees all tokens,
with rope of base 1,000,000. A scan runs one period of the pattern at a time, so that six layers are
compiled and not all. It gives what a loop over all layers in Python gives, forward and backward.
"""

import jax
import jax.numpy as jnp

import posenc_jax

PERIODS, BATCH, TIME = 3, 2, 24
encoding = posenc_jax.make("local_global", every=6, window=8)
DIMS = posenc_jax.Dims(model=32, heads=4, head=8, layers=6 * PERIODS)
POSITIONS = encoding.init(jax.random.key(0), DIMS)  # the encoding's parameters: none


def init(key):
    """Weights of all layers, stacked: [periods, layers of a period, ...]."""
    shapes = {"q": (32, 4, 8), "k": (32, 1, 8), "v": (32, 1, 8), "out": (4, 8, 32)}
    keys = jax.random.split(key, len(shapes))
    return {
        name: 0.1 * jax.random.normal(k, (PERIODS, DIMS.layers // PERIODS, *shape))
        for (name, shape), k in zip(shapes.items(), keys, strict=True)
    }


def attention(x_BTD, weights, layer):
    """One layer. `weights` are its own."""
    q_BTHC = jnp.einsum("btd,dhc->bthc", x_BTD, weights["q"])
    k_BTGC = jnp.einsum("btd,dgc->btgc", x_BTD, weights["k"])
    v_BTGC = jnp.einsum("btd,dgc->btgc", x_BTD, weights["v"])
    out_BTHC = posenc_jax.attend(q_BTHC, k_BTGC, v_BTGC, layer)
    return x_BTD + jnp.einsum("bthc,hcd->btd", out_BTHC, weights["out"])


def scanned(weights, x_BTD):
    """All layers, a period at a time; the number of the period is traced."""
    frame = posenc_jax.frame(encoding, POSITIONS, posenc_jax.full(BATCH, TIME), DIMS)

    def period(x_BTD, n_weights):
        n, weights = n_weights
        for i in range(frame.period):
            layer_weights = jax.tree.map(lambda leaf, i=i: leaf[i], weights)
            x_BTD = attention(x_BTD, layer_weights, frame.layer((n, i), x_BTD))
        return x_BTD, None

    return jax.lax.scan(period, x_BTD, (jnp.arange(PERIODS), weights))[0]


def looped(weights, x_BTD):
    """All layers, one after the other."""
    frame = posenc_jax.frame(encoding, POSITIONS, posenc_jax.full(BATCH, TIME), DIMS)
    for number in range(DIMS.layers):
        n, i = divmod(number, frame.period)
        layer_weights = jax.tree.map(lambda leaf, n=n, i=i: leaf[n, i], weights)
        x_BTD = attention(x_BTD, layer_weights, frame.layer(number, x_BTD))
    return x_BTD


def value_and_gradient(model, weights, x_BTD):
    loss = lambda weights: (model(weights, x_BTD) ** 2).mean()
    return jax.jit(jax.value_and_grad(loss))(weights)


weights, x_BTD = init(jax.random.key(0)), jax.random.normal(jax.random.key(1), (BATCH, TIME, 32))
loss, gradient = value_and_gradient(scanned, weights, x_BTD)
wanted_loss, wanted_gradient = value_and_gradient(looped, weights, x_BTD)
off = max(
    float(jnp.abs(a - b).max() / jnp.abs(b).max())
    for a, b in zip(jax.tree.leaves(gradient), jax.tree.leaves(wanted_gradient), strict=True)
)
assert abs(loss / wanted_loss - 1) < 1e-5, (loss, wanted_loss)
assert off < 1e-4, off
print(f"loss {loss:.6f} scanned, {wanted_loss:.6f} looped; gradients differ by {off:.0e} of theirs")
