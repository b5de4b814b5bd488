"""Attention over one long sequence that four devices share, forward and backward.

Run it: `python examples/ring.py`. It makes four devices of a CPU; with accelerators delete the line
that does so. Each device holds a quarter of the tokens, an early and a late stretch, so that all
have the same work under a causal mask. It prints how far values and gradients are from those of one
device.
"""

import os

os.environ.setdefault("JAX_NUM_CPU_DEVICES", "4")

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import posenc_jax

DEVICES, TIME = 4, 64
DIMS = posenc_jax.Dims(model=32, heads=4, head=8)
ENCODING = posenc_jax.make("rope+t5")


def attention(params, x_BTD, layout, **ring):
    """One layer; its tokens are those of `layout`, all of them or a device's."""
    frame = posenc_jax.frame(ENCODING, params["encoding"], layout, DIMS, **ring)
    x_BTD = frame.embed(x_BTD)
    q, k, v = jnp.einsum("btd,dnhc->nbthc", x_BTD, params["qkv"])
    attend = posenc_jax.ring if ring else posenc_jax.attend
    return attend(q, k, v, frame.layer(0, x_BTD))


def loss_of(attention_fn):
    def loss(params, x_BTD, y_BTHC, layout):
        return jnp.square(attention_fn(params, x_BTD, layout) - y_BTHC).mean()

    return jax.jit(jax.value_and_grad(loss))


keys = jax.random.split(jax.random.key(0), 4)
params = {
    "encoding": ENCODING.init(keys[0], DIMS),
    "qkv": 0.2 * jax.random.normal(keys[1], (DIMS.model, 3, DIMS.heads, DIMS.head)),
}
x_BTD = jax.random.normal(keys[2], (2, TIME, DIMS.model))
y_BTHC = jax.random.normal(keys[3], (2, TIME, DIMS.heads, DIMS.head))
segment_BT = jnp.ones((2, TIME), int).at[1, 40:].set(2)  # the second row has two documents
layout = posenc_jax.layout(segment_BT)
alone = loss_of(attention)(params, x_BTD, y_BTHC, layout)

# Tokens, targets and layout in the order in which devices hold them: the layout says where each is.
order = posenc_jax.zigzag(TIME, DEVICES)
mesh = jax.make_mesh((DEVICES,), ("tokens",))
spread = P(None, "tokens")
x_BTD, y_BTHC, layout = jax.device_put(
    jax.tree.map(lambda leaf: leaf[:, order], (x_BTD, y_BTHC, layout)), NamedSharding(mesh, spread)
)
params = jax.device_put(params, NamedSharding(mesh, P()))
by_ring = jax.shard_map(
    lambda params, x_BTD, layout: attention(params, x_BTD, layout, ring="tokens"),
    mesh=mesh, in_specs=(P(), spread, spread), out_specs=spread,
)  # fmt: skip
ring_values = loss_of(by_ring)(params, x_BTD, y_BTHC, layout)

alone, ring_values = jax.device_get((alone, ring_values))
gaps = jax.tree.map(lambda a, b: float(abs(a - b).max()), alone, ring_values)
print(f"loss of one device {alone[0]:.6f}, of {DEVICES} in a ring {ring_values[0]:.6f}")
for name, gap in jax.tree_util.tree_leaves_with_path(gaps[1]):
    print(f"largest difference of the gradient of params{jax.tree_util.keystr(name)}: {gap:.1e}")
assert max(jax.tree.leaves(gaps)) < 1e-5
