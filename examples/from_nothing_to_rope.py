# %% [markdown]
# # Positional encodings, from nothing to RoPE
#
# Attention does not know the order of its tokens. Each step below adds one idea, and measures what
# it changes. The notebook needs `posenc_jax`, optax and matplotlib, and runs in seconds.

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax

import posenc_jax

WIDTH, TOKENS = 32, 6
dims = posenc_jax.Dims(model=WIDTH, heads=1, head=WIDTH)
x_TD = jax.random.normal(jax.random.key(0), (TOKENS, WIDTH))
shuffle = jnp.array([3, 1, 5, 0, 2, 4])


def scores(q_TD, k_TD):
    """Attention logits of one head."""
    return q_TD @ k_TD.T / np.sqrt(WIDTH)


def attention(q_TD, k_TD, v_TD):
    """Attention of one head where every token sees all tokens."""
    return jax.nn.softmax(scores(q_TD, k_TD)) @ v_TD


# %% [markdown]
# ## 0. Nothing
#
# Without positions, shuffling the tokens shuffles the outputs and changes nothing else. The error
# below is rounding.

# %%
plain = attention(x_TD, x_TD, x_TD)[shuffle]
shuffled = attention(x_TD[shuffle], x_TD[shuffle], x_TD[shuffle])
nothing = float(jnp.abs(plain - shuffled).max())
print(f"largest difference without positions: {nothing:.1e}")
assert nothing < 1e-5

# %% [markdown]
# ## 1. Add the position itself
#
# Adding the number t to a channel tells positions apart. But the numbers grow without a limit: at
# position 1000 the token itself hardly counts any more.

# %%
counted_TD = x_TD.at[:, 0].add(jnp.arange(TOKENS))
plain = attention(counted_TD, counted_TD, x_TD)[shuffle]
order = x_TD[shuffle].at[:, 0].add(jnp.arange(TOKENS))
index = float(jnp.abs(plain - attention(order, order, x_TD[shuffle])).max())
share = float(jnp.linalg.norm(x_TD[0]) / jnp.linalg.norm(x_TD[0].at[0].add(1000.0)))
print(f"largest difference with a counter: {index:.2f}")
print(f"the token's share of its vector's length at position 1000: {share:.1%}")
assert index > 0.1

# %% [markdown]
# ## 2. Add sines and cosines
#
# Sines and cosines of many wavelengths are bounded, and no two positions have the same code. The
# product of two codes depends on their distance alone.

# %%
wave_F = 10_000.0 ** (-np.arange(0, WIDTH, 2) / WIDTH)
angle_TF = np.arange(64)[:, None] * wave_F
code_TD = np.stack([np.sin(angle_TF), np.cos(angle_TF)], axis=-1).reshape(64, WIDTH)
library_TD = posenc_jax.make("sinusoidal").embed(
    {}, jnp.zeros((1, 64, WIDTH)), jnp.arange(64)[None]
)
print(f"largest difference from posenc_jax: {np.abs(code_TD - library_TD[0]).max():.1e}")

product_TT = code_TD @ code_TD.T
spread = lambda s_TT: max(np.ptp(np.diagonal(s_TT, -d)) for d in range(1, 32))
print(f"spread of products at equal distance: {spread(product_TT):.1e}")
assert spread(product_TT) < 1e-3

# %% [markdown]
# A model does not multiply codes, it multiplies projected codes. Any projection breaks the rule.

# %%
w_q, w_k = np.random.default_rng(0).normal(size=(2, WIDTH, WIDTH)) / np.sqrt(WIDTH)
projected = spread((code_TD @ w_q) @ (code_TD @ w_k).T)
print(f"the same after projections: {projected:.1f}")
assert projected > 1

# %% [markdown]
# ## 3. Turn instead of adding: RoPE
#
# RoPE turns each pair of channels of q and k by an angle t theta. A product of two turned vectors
# depends on the difference of their angles alone, so on the distance, after any projection.


# %%
def turned(x_TD, pos_T):
    """Channels k and k + C/2 turned by pos * theta_k."""
    a_TF, b_TF = jnp.split(x_TD, 2, axis=-1)
    angle_TF = pos_T[:, None] * wave_F
    cos, sin = jnp.cos(angle_TF), jnp.sin(angle_TF)
    return jnp.concatenate([a_TF * cos - b_TF * sin, b_TF * cos + a_TF * sin], axis=-1)


token_D = jax.random.normal(jax.random.key(1), (WIDTH,))
q_TD, k_TD = (jnp.tile(token_D @ w, (64, 1)) for w in (w_q, w_k))  # the same token 64 times
pos_T = jnp.arange(64)
rope_TT = scores(turned(q_TD, pos_T), turned(k_TD, pos_T))
moved_TT = scores(turned(q_TD, pos_T + 500), turned(k_TD, pos_T + 500))
print(f"spread at equal distance, after projections: {spread(rope_TT):.1e}")
print(f"change if all positions move by 500: {float(jnp.abs(rope_TT - moved_TT).max()):.1e}")
assert spread(rope_TT) < 1e-3

layer = posenc_jax.frame(posenc_jax.make("rope"), {}, posenc_jax.full(1, 64), dims).layer(0)
q, k = layer.rotate(q_TD[None, :, None], k_TD[None, :, None])
gap = float(jnp.abs(scores(q[0, :, 0], k[0, :, 0]) - rope_TT).max())
print(f"largest difference from posenc_jax: {gap:.1e}")
assert gap < 1e-3

# %% [markdown]
# ## 4. Does it matter? Train on order
#
# The task: of two different symbols, which one is the smaller? The model is one attention
# layer, one hidden layer, and the mean over tokens. Without positions it cannot do better than one
# half.

# %%
SYMBOLS, STEPS, SEEDS = 6, 1500, 3
pairs_B2 = jnp.array([(a, b) for a in range(SYMBOLS) for b in range(SYMBOLS) if a != b])
answer_B = (pairs_B2[:, 0] < pairs_B2[:, 1]).astype(jnp.float32)  # 1 if it comes first
adam = optax.adam(0.005)


def accuracy(name):
    """The share of pairs that trained models get right, a model for each seed."""
    encoding, layout = posenc_jax.make(name), posenc_jax.full(1, 2)

    def init(key):
        keys = jax.random.split(key, 5)
        return {
            "symbol": jax.random.normal(keys[0], (SYMBOLS, WIDTH)),
            "qkv": jax.random.normal(keys[1], (3, WIDTH, WIDTH)) / np.sqrt(WIDTH),
            "hidden": jax.random.normal(keys[2], (WIDTH, WIDTH)) / np.sqrt(WIDTH),
            "out": jax.random.normal(keys[3], (WIDTH,)) / np.sqrt(WIDTH),
            "positions": encoding.init(keys[4], dims),
        }

    def logit_B(params):
        frame = posenc_jax.frame(encoding, params["positions"], layout, dims, causal=False)
        x_BTD = frame.embed(params["symbol"][pairs_B2])
        q, k, v = ((x_BTD @ w)[:, :, None] for w in params["qkv"])
        out_BTHC = posenc_jax.attend(q, k, v, frame.layer(0, x_BTD))
        hidden_BTD = jnp.tanh((x_BTD + out_BTHC[:, :, 0]) @ params["hidden"])
        return hidden_BTD.mean(axis=1) @ params["out"]

    def loss(params):
        return optax.sigmoid_binary_cross_entropy(logit_B(params), answer_B).mean()

    def step(carry, _):
        params, state = carry
        updates, state = adam.update(jax.grad(loss)(params), state)
        return (optax.apply_updates(params, updates), state), None

    @jax.jit
    @jax.vmap
    def trained(key):
        params = init(key)
        (params, _), _ = jax.lax.scan(step, (params, adam.init(params)), length=STEPS)
        return ((logit_B(params) > 0) == (answer_B > 0)).mean()

    return trained(jax.random.split(jax.random.key(0), SEEDS)).tolist()


found = {name: accuracy(name) for name in ("nope", "sinusoidal", "rope")}
for name, seeds in found.items():
    print(f"{name:<11}", *(f"{seed:.2f}" for seed in seeds))
assert max(found["nope"]) < 0.6  # rounding may decide a pair whose logit is 0
assert min(found["sinusoidal"] + found["rope"]) > 0.9

# %%
figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
axes.plot(product_TT[0, :48] - product_TT[0, 0], label="sinusoidal: product of codes")
same_TT = scores(turned(jnp.ones((64, WIDTH)), pos_T), turned(jnp.ones((64, WIDTH)), pos_T))
axes.plot(same_TT[0, :48] - same_TT[0, 0], label="rope: score of equal tokens")
axes.set(xlabel="distance", ylabel="score, 0 at distance 0", title="Both favour near tokens")
_ = axes.legend(frameon=False)
