"""A small Transformer in Equinox, trained with three kinds of encoding and with none.

The task is to name the token three places back. A code at the input, a rotation of queries and
keys, and a bias of the logits all learn it. Without positions the model knows only what stands
before a token, not where. A module reads one sequence, so the frame has one row. It takes half a
minute on a CPU, and needs `pip install equinox`.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

import posenc_jax
from posenc_jax.equinox import MultiheadAttention

VOCAB, BATCH, TIME, BACK, STEPS = 8, 16, 16, 3, 150
DIMS = posenc_jax.Dims(model=32, heads=4, head=8, layers=1)


class Block(eqx.Module):
    norm: eqx.nn.LayerNorm
    attention: MultiheadAttention
    mlp: eqx.nn.MLP

    def __init__(self, key):
        attention_key, mlp_key = jax.random.split(key)
        self.norm = eqx.nn.LayerNorm(DIMS.model)
        self.attention = MultiheadAttention(DIMS.heads, DIMS.model, key=attention_key)
        self.mlp = eqx.nn.MLP(DIMS.model, DIMS.model, 4 * DIMS.model, depth=1, key=mlp_key)

    def __call__(self, x_TD, frame, n):
        y_TD = jax.vmap(self.norm)(x_TD)
        x_TD = x_TD + self.attention(y_TD, y_TD, y_TD, frame.layer(n, y_TD[None]))
        return x_TD + jax.vmap(self.mlp)(x_TD)


class Transformer(eqx.Module):
    encoding: posenc_jax.Encoding = eqx.field(static=True)
    positions: posenc_jax.encoding.Params
    embed: eqx.nn.Embedding
    blocks: list[Block]
    logits: eqx.nn.Linear

    def __init__(self, encoding, key):
        keys = jax.random.split(key, 3 + DIMS.layers)
        self.encoding, self.positions = encoding, encoding.init(keys[0], DIMS)
        self.embed = eqx.nn.Embedding(VOCAB, DIMS.model, key=keys[1])
        self.logits = eqx.nn.Linear(DIMS.model, VOCAB, key=keys[2])
        self.blocks = [Block(block_key) for block_key in keys[3:]]

    def __call__(self, tokens_T):
        layout = posenc_jax.full(1, len(tokens_T))
        frame = posenc_jax.frame(self.encoding, self.positions, layout, DIMS)
        x_TD = frame.embed(jax.vmap(self.embed)(tokens_T)[None])[0]
        for n, block in enumerate(self.blocks):
            x_TD = block(x_TD, frame, n)
        return jax.vmap(self.logits)(x_TD)


def loss(model, tokens_BT):
    """Mean cross-entropy in nats of the token BACK places before, and the share named right."""
    logits_BTV, answer_BT = jax.vmap(model)(tokens_BT)[:, BACK:], tokens_BT[:, :-BACK]
    right = (logits_BTV.argmax(-1) == answer_BT).mean()
    return optax.softmax_cross_entropy_with_integer_labels(logits_BTV, answer_BT).mean(), right


adam = optax.adam(1e-2)


@eqx.filter_jit
def step(model, state, key):
    tokens_BT = jax.random.randint(key, (BATCH, TIME), 0, VOCAB)
    (_, right), grads = eqx.filter_value_and_grad(loss, has_aux=True)(model, tokens_BT)
    updates, state = adam.update(grads, state)
    return eqx.apply_updates(model, updates), state, right


accuracy = {}
for name in ("sinusoidal", "rope", "t5", "nope"):
    model = Transformer(posenc_jax.make(name), jax.random.key(0))
    state = adam.init(eqx.filter(model, eqx.is_array))
    for key in jax.random.split(jax.random.key(1), STEPS):
        model, state, accuracy[name] = step(model, state, key)
    print(f"{name:<10} accuracy {accuracy[name]:.3f}, parameters of the encoding: "
          f"{jax.tree.map(jnp.shape, model.positions)}")  # fmt: skip
assert min(accuracy[name] for name in ("sinusoidal", "rope", "t5")) > 0.99
assert accuracy["nope"] < 0.8, "the control: without positions it cannot be learned"
