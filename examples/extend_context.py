# %% [markdown]
# # Extend the context of a trained model
#
# A small byte-level decoder is trained with RoPE on windows of 64 bytes of English. Then the same
# weights read windows of 256 bytes with other encodings, without any further training. The notebook
# needs `posenc_jax`, optax and matplotlib.

# %%
import pydoc_data.topics

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax

import posenc_jax

TRAINED, FACTOR, STEPS, BATCH = 64, 4, 250, 16
dims = posenc_jax.Dims(model=64, heads=4, head=16, layers=2)
text = "\n".join(pydoc_data.topics.topics.values()).encode("ascii", "replace")
data = np.frombuffer(text, np.uint8)
train, test = data[: len(data) * 9 // 10], data[len(data) * 9 // 10 :]
print(f"{len(train):,} bytes to train on, {len(test):,} to test")

# %% [markdown]
# ## The model
# RoPE has no parameters, so `rope` and every extension read the same weights.


# %%
def init(key):
    """Weights of the decoder."""
    draw = lambda i, *shape: jax.random.normal(jax.random.fold_in(key, i), shape) / shape[0] ** 0.5
    layers = [{"qkv": draw(10 * n, 64, 192), "out": draw(10 * n + 1, 64, 64),
               "up": draw(10 * n + 2, 64, 128), "down": draw(10 * n + 3, 128, 64)}
              for n in range(dims.layers)]  # fmt: skip
    return {"bytes": draw(1000, 256, 64), "layers": layers}


def norm(x):
    return x / jnp.sqrt((x**2).mean(axis=-1, keepdims=True) + 1e-6)


def bits(params, encoding, bytes_BT):
    """Bits for each byte but the first, [B, T - 1]."""
    x = params["bytes"][bytes_BT] * 16
    frame = posenc_jax.frame(encoding, {}, posenc_jax.full(*bytes_BT.shape), dims)
    for n, layer in enumerate(params["layers"]):
        y = norm(x)
        q, k, v = (part.reshape(*bytes_BT.shape, dims.heads, dims.head)
                   for part in jnp.split(y @ layer["qkv"], 3, axis=-1))  # fmt: skip
        x = x + posenc_jax.attend(q, k, v, frame.layer(n, y)).reshape(x.shape) @ layer["out"]
        x = x + jax.nn.gelu(norm(x) @ layer["up"]) @ layer["down"]
    logits = norm(x[:, :-1]) @ params["bytes"].T
    loss = optax.softmax_cross_entropy_with_integer_labels(logits, bytes_BT[:, 1:])
    return loss / np.log(2)


# %% [markdown]
# ## Training, with plain RoPE

# %%
rope, adam = posenc_jax.make("rope"), optax.adam(optax.cosine_decay_schedule(4e-3, STEPS))
starts = np.random.default_rng(0).integers(len(train) - TRAINED, size=(STEPS, BATCH))
windows = jnp.asarray(train[starts[..., None] + np.arange(TRAINED)], jnp.int32)


@jax.jit
def trained(params):
    def step(carry, bytes_BT):
        params, state = carry
        loss, grads = jax.value_and_grad(lambda p: bits(p, rope, bytes_BT).mean())(params)
        updates, state = adam.update(grads, state)
        return (optax.apply_updates(params, updates), state), loss

    (params, _), losses = jax.lax.scan(step, (params, adam.init(params)), windows)
    return params, losses


params, losses = trained(init(jax.random.key(0)))
print(f"bits per byte: {losses[0]:.2f} at first, {losses[-20:].mean():.2f} at the end")
assert losses[-20:].mean() < 4

# %% [markdown]
# ## Four times the length, with the same weights
# Every method reads the same windows. The difference from RoPE is paired, window by window, so its
# standard error is small.

# %%
long = TRAINED * FACTOR
held = jnp.asarray(test[: len(test) // long * long].reshape(-1, long)[:48], jnp.int32)
options = {"base": 10_000.0, "factor": float(FACTOR)}
methods = {
    "rope": rope,
    "pi": posenc_jax.make("pi", **options),
    "ntk": posenc_jax.make("ntk", **options),
    "yarn": posenc_jax.make("yarn", **options, length=TRAINED),
}
found = {name: np.asarray(jax.jit(lambda p, e=e: bits(p, e, held))(params))
         for name, e in methods.items()}  # fmt: skip
late = {name: bits_BT[:, TRAINED:].mean(axis=1) for name, bits_BT in found.items()}
print("bits per byte past the trained length, and the difference from rope")
for name, own in late.items():
    gap = own - late["rope"]
    print(
        f"{name:<5} {own.mean():.3f}  {gap.mean():+.3f} ± {gap.std(ddof=1) / len(gap) ** 0.5:.3f}"
    )

# %% [markdown]
# The control: within the trained length RoPE itself is best, because the weights were trained with
# it. An extension costs something there.

# %%
within = {name: bits_BT[:, :TRAINED].mean() for name, bits_BT in found.items()}
print({name: round(float(value), 3) for name, value in within.items()})
assert within["rope"] < within["pi"]

# %%
figure, axes = plt.subplots(figsize=(7, 3.4), layout="constrained")
smooth = lambda y: np.convolve(y, np.ones(15) / 15, "valid")
for name, bits_BT in found.items():
    axes.plot(np.arange(8, long - 7), smooth(bits_BT.mean(axis=0)), label=name)
axes.axvline(TRAINED, color="grey", linestyle=":")
axes.set(xlabel="position", ylabel="bits per byte", title="The same weights, other angles")
_ = axes.legend(frameon=False, ncols=4)
