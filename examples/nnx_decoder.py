"""A decoder in Flax NNX that generates with a key-value cache, for rows of different lengths.

The cache is a pytree of arrays that goes in and out of the model: keys and values of every layer,
not rotated, and what some methods keep of a layer's input. The prompts have different lengths, so
each row writes to a column of its own, as in continuous batching. At the end one pass over all
tokens gives the same logits; a row that has reached the capacity of the cache gives NaN, and the
others go on. It takes 15 seconds on a CPU. docs/caches.md tells more.
"""

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

import posenc_jax

VOCAB, CAPACITY, STEPS = 32, 24, 12
DIMS = posenc_jax.Dims(model=32, heads=4, head=8, layers=2)
COLUMNS = np.arange(CAPACITY)
LENGTHS = np.array([9, 4, 13])  # of the prompts; the last row comes to the end of the cache


def write(held, new, start_B):
    """The cache [B, K, ...] with new arrays [B, N, ...], each row from its own column on."""
    put = lambda held, x, start: jax.lax.dynamic_update_slice_in_dim(held, x, start, axis=0)
    return jax.tree.map(lambda held, x: jax.vmap(put)(held, x, start_B), held, new)


class Block(nnx.Module):
    def __init__(self, rngs):
        heads = (DIMS.heads, DIMS.head)
        self.norm, self.mlp_norm = (nnx.RMSNorm(DIMS.model, rngs=rngs) for _ in range(2))
        self.qkv = nnx.LinearGeneral(DIMS.model, (3, *heads), rngs=rngs)
        self.out = nnx.LinearGeneral(heads, DIMS.model, axis=(-2, -1), rngs=rngs)
        self.up = nnx.Linear(DIMS.model, 4 * DIMS.model, rngs=rngs)
        self.down = nnx.Linear(4 * DIMS.model, DIMS.model, rngs=rngs)

    def __call__(self, x_BTD, frame, n, held, start_B):
        y_BTD = self.norm(x_BTD)
        layer = frame.layer(n, y_BTD)
        q, k, v = jnp.moveaxis(self.qkv(y_BTD), 2, 0)
        held = write(held, (k, v, layer.q_kept), start_B)  # q_kept: None, but of `fox` and the like
        k, v, kept = held
        x_BTD = x_BTD + self.out(posenc_jax.attend(q, k, v, layer.with_keys(kept)))
        return x_BTD + self.down(nnx.gelu(self.up(self.mlp_norm(x_BTD)))), held


class Decoder(nnx.Module):
    def __init__(self, encoding, rngs):
        self.encoding = nnx.static(encoding)
        self.positions = nnx.data(jax.tree.map(nnx.Param, encoding.init(rngs.params(), DIMS)))
        self.embed = nnx.Embed(VOCAB, DIMS.model, rngs=rngs)
        self.blocks = nnx.List([Block(rngs) for _ in range(DIMS.layers)])
        self.logits = nnx.Linear(DIMS.model, VOCAB, rngs=rngs)

    def start(self, batch):
        """An empty cache: of each layer keys, values, and what the method keeps of its input."""
        layout, params = posenc_jax.full(batch, CAPACITY), nnx.as_pure(self.positions)

        def arrays(x_BKD):
            frame = posenc_jax.frame(self.encoding, params, layout, DIMS)
            x_BKD = frame.embed(x_BKD)
            keys = jnp.zeros((batch, CAPACITY, DIMS.heads, DIMS.head))
            return [(keys, keys, frame.layer(n, x_BKD).q_kept) for n in range(DIMS.layers)]

        like = jax.eval_shape(arrays, jnp.zeros((batch, CAPACITY, DIMS.model)))
        return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), like)

    def __call__(self, tokens_BT, cache, start_B):
        """Logits of new tokens, which stand in the columns from start_B on, and the cache."""
        held_BK = COLUMNS[None] < start_B[:, None] + tokens_BT.shape[1]
        layout, params = posenc_jax.layout(held_BK), nnx.as_pure(self.positions)
        new = (start_B, tokens_BT.shape[1])
        frame = posenc_jax.frame(self.encoding, params, layout, DIMS, queries=new)
        x_BTD, filled = frame.embed(self.embed(tokens_BT)), []
        for n, (block, held) in enumerate(zip(self.blocks, cache, strict=True)):
            x_BTD, held = block(x_BTD, frame, n, held, start_B)
            filled.append(held)
        return self.logits(x_BTD), filled


@nnx.jit
def decode(model, tokens_BT, cache, start_B):
    return model(tokens_BT, cache, start_B)


def generate(model, prompt_BT, length_B):
    """Tokens [B, CAPACITY], and the logits [B, STEPS, V] by which they were chosen."""
    rows, start_B = np.arange(len(prompt_BT)), np.zeros(len(prompt_BT), np.int32)
    # Prompts are padded on the right. The new tokens are written over the padding.
    logits_BTV, cache = decode(model, prompt_BT, model.start(len(prompt_BT)), start_B)
    logits_BV, tokens_BK, chosen = logits_BTV[rows, length_B - 1], prompt_BT.copy(), []
    for n in range(STEPS):
        chosen.append(logits_BV)
        token_B, start_B = logits_BV.argmax(axis=-1), (length_B + n).astype(np.int32)
        inside = start_B < CAPACITY
        tokens_BK[rows[inside], start_B[inside]] = np.asarray(token_B)[inside]
        logits_BTV, cache = decode(model, token_B[:, None], cache, start_B)
        logits_BV = logits_BTV[:, 0]
    return tokens_BK, np.stack(chosen, axis=1), np.asarray(logits_BV)


prompt_BT = np.random.default_rng(0).integers(0, VOCAB, (len(LENGTHS), CAPACITY))
for name in ("rope", "fox"):
    model = Decoder(posenc_jax.make(name), nnx.Rngs(0))
    tokens_BK, chosen_BNV, last_BV = generate(model, prompt_BT, LENGTHS)
    # All tokens at once: columns that were not reached stand after all others, so nobody sees them.
    start_B = np.zeros(len(LENGTHS), np.int32)
    whole_BKV, _ = decode(model, tokens_BK, model.start(len(LENGTHS)), start_B)
    columns_BN = LENGTHS[:, None] - 1 + np.arange(STEPS)
    gap = np.abs(chosen_BNV - np.asarray(whole_BKV)[np.arange(len(LENGTHS))[:, None], columns_BN])
    print(f"{name:<10} largest difference of logits with a cache and without: {gap.max():.1e}")
    assert gap.max() < 1e-4
    assert np.abs(chosen_BNV[:, 1:] - chosen_BNV[:, :-1]).max() > 0.1, "the control: tokens differ"
    assert np.isnan(last_BV).all(axis=1).tolist() == [False, False, True], "the last row is full"
