# %% [markdown]
# # An encoding in your own model: Flax Linen, Flax NNX, Equinox
#
# An encoding is a bundle of pure functions, and its parameters are a pytree of arrays. So every
# framework takes it in the same two steps: make the parameters once, and call `frame` and `attend`
# in the forward pass. Here is one attention layer in three frameworks. With the same weights all
# three give the same output.

# %%
from importlib.util import find_spec

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from flax import nnx

import posenc_jax

dims = posenc_jax.Dims(model=32, heads=4, head=8)
encoding = posenc_jax.make("rope+t5")  # rotary, and a learned bias: a chain of two methods
x_BTD = jax.random.normal(jax.random.key(0), (2, 10, dims.model))
layout = posenc_jax.full(2, 10)  # two sequences of 10 tokens; for padding see posenc_jax.layout


def attention(params, project, x_BTD):
    """Causal attention of one layer; `project` makes queries, keys and values of its input."""
    frame = posenc_jax.frame(encoding, params, layout, dims)
    x_BTD = frame.embed(x_BTD)  # for methods that act at the input
    heads = lambda part: part.reshape(2, 10, dims.heads, dims.head)
    q, k, v = map(heads, jnp.split(project(x_BTD), 3, -1))
    return posenc_jax.attend(q, k, v, frame.layer(0, x_BTD)).reshape(2, 10, dims.model)


# %% [markdown]
# ## Flax Linen
# `self.param` takes the pytree whole.


# %%
class LinenAttention(nn.Module):
    @nn.compact
    def __call__(self, x_BTD):
        positions = self.param("positions", lambda key: encoding.init(key, dims))
        return attention(positions, nn.Dense(3 * dims.model, name="qkv"), x_BTD)


linen = LinenAttention()
variables = linen.init(jax.random.key(1), x_BTD)
linen_BTD = linen.apply(variables, x_BTD)
positions, qkv = variables["params"]["positions"], variables["params"]["qkv"]
print(jax.tree.map(jnp.shape, variables["params"]))

# %% [markdown]
# ## Flax NNX
# Each array becomes an `nnx.Param`, and `nnx.as_pure` gives the arrays again.


# %%
class NnxAttention(nnx.Module):
    def __init__(self, rngs):
        self.qkv = nnx.Linear(dims.model, 3 * dims.model, rngs=rngs)
        self.positions = nnx.data(jax.tree.map(nnx.Param, encoding.init(rngs.params(), dims)))

    def __call__(self, x_BTD):
        return attention(nnx.as_pure(self.positions), self.qkv, x_BTD)


model = NnxAttention(nnx.Rngs(0))
model.qkv.kernel[...], model.qkv.bias[...] = qkv["kernel"], qkv["bias"]
model.positions = nnx.data(jax.tree.map(nnx.Param, positions))
gap = float(jnp.abs(nnx.jit(model)(x_BTD) - linen_BTD).max())
print(f"largest difference from Linen: {gap:.1e}")
assert gap < 1e-5
loss = lambda model: (model(x_BTD) ** 2).mean()
size = sum(float(jnp.abs(g).sum()) for g in jax.tree.leaves(nnx.grad(loss)(model)["positions"]))
assert size > 0, "the bias is trained with the model"

# %% [markdown]
# ## Equinox
# A module is a pytree, so the parameters are a field. This cell needs `pip install equinox`.

# %%
if find_spec("equinox"):
    import equinox as eqx

    class EquinoxAttention(eqx.Module):
        qkv: eqx.nn.Linear
        positions: tuple

        def __init__(self, key):
            self.qkv = eqx.nn.Linear(dims.model, 3 * dims.model, key=key)
            self.positions = encoding.init(key, dims)

        def __call__(self, x_BTD):
            return attention(self.positions, jax.vmap(jax.vmap(self.qkv)), x_BTD)

    made = EquinoxAttention(jax.random.key(2))
    parts = lambda m: (m.qkv.weight, m.qkv.bias, m.positions)
    made = eqx.tree_at(parts, made, (qkv["kernel"].T, qkv["bias"], positions))
    gap = float(jnp.abs(eqx.filter_jit(made)(x_BTD) - linen_BTD).max())
    print(f"largest difference from Linen: {gap:.1e}")
    assert gap < 1e-5

# %% [markdown]
# ## The control
# Without the learned bias the output is another one, so the agreement above means something.

# %%
other = jax.tree.map(jnp.zeros_like, positions)
project = lambda x_BTD: x_BTD @ qkv["kernel"] + qkv["bias"]
gap = float(jnp.abs(attention(other, project, x_BTD) - linen_BTD).max())
print(f"largest difference without the learned bias: {gap:.1e}")
assert gap > 1e-3
np.testing.assert_array_equal(layout.pos_BT[0], np.arange(10))
