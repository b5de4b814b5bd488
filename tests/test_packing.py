"""Packed parameters: the same step in fewer arrays."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from posenc_jax.lab.hosts.tuning import Packed, pack, unpack, value_and_grad
from posenc_jax.lab.training.loop import State, advance

TREE = {
    "kernel": jnp.arange(6.0).reshape(2, 3),
    "bias": jnp.array([1.0, -2.0]),
    "nothing": {},
    "deep": [jnp.ones((2, 1, 2)), jnp.float32(4)],
}


def test_what_is_packed_comes_back():
    state = {"mean": TREE, "count": jnp.int32(3), "more": (TREE, jnp.zeros(2))}
    packed = pack(state, TREE)
    assert isinstance(packed["mean"], Packed)
    assert {name: a.shape for name, a in packed["mean"].arrays.items()} == {
        "float32 matrices": (1, 10),
        "float32": (3,),
    }
    assert packed["count"] is state["count"]
    jax.tree.map(np.testing.assert_array_equal, unpack(packed), state)
    other = pack(state, {"kernel": 0})
    assert not any(isinstance(leaf, Packed) for leaf in other.values()), "control: another form"


def test_dtypes_are_kept_apart():
    tree = {"a": jnp.ones(2, jnp.bfloat16), "b": jnp.ones(3), "c": jnp.arange(2)}
    packed = pack(tree, tree)
    assert {a.dtype.name for a in packed.arrays.values()} == {"bfloat16", "float32", "int32"}
    jax.tree.map(np.testing.assert_array_equal, unpack(packed), tree)


@pytest.mark.parametrize("decayed", [True, False], ids=["matrices decay", "control: all decay"])
def test_a_packed_step_is_the_step(decayed):
    """Weight decay, which tells matrices from vectors, and the norm of the gradient included."""

    def loss_of(params, x):
        return sum((jnp.sin(leaf) * x).sum() for leaf in jax.tree.leaves(params))

    def steps(params, mask):
        tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(0.1, mask=mask))
        state = State(params, tx.init(params), jnp.int32(0), jnp.int32(0))
        for x in (0.5, 2.0, -1.0):
            loss, grads = value_and_grad(loss_of, state.params, x)
            state, metrics = advance(tx, state, loss, grads)
        return unpack(state.params), metrics

    matrices = lambda params: jax.tree.map(lambda p: p.ndim > 1, params)
    plain, expected = steps(TREE, matrices)
    packed, metrics = steps(pack(TREE, TREE), matrices if decayed else None)
    gap = jax.tree.map(lambda a, b: float(jnp.abs(a - b).max()), plain, packed)
    near = float(metrics["grad_norm"]) == pytest.approx(float(expected["grad_norm"]), rel=1e-6)
    assert (max(jax.tree.leaves(gap)) < 1e-6, near) == (decayed, decayed)
