"""What a step of our training takes at a size that is not run: traced with shapes only."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.core import Literal

from posenc_jax import encodings
from posenc_jax.backends.target import compile_for
from posenc_jax.lab import tasks
from posenc_jax.lab.config.schema import ModelConfig, TrainConfig
from posenc_jax.lab.model import transformer
from posenc_jax.lab.training import loop
from posenc_jax.lab.training import step as training
from posenc_jax.lab.training.optimizers import optimizer
from posenc_jax.lab.training.step import State


class Setting(NamedTuple):
    """A published model and its training: `time` tokens a row, `runs` trainings of one seed."""

    name: str
    width: int
    heads: int
    layers: int
    vocab: int
    time: int
    batch: int
    steps: int
    runs: int
    dtype: Any = "bfloat16"


class Cost(NamedTuple):
    """What a step of one seed takes.

    activations: bytes kept of a row for the backward pass.
    inputs: the same with `remat`: the inputs of layers, and what the read-out needs.
    moved: bytes that all operations read and write, none of them fused.
    """

    parameters: float
    flops: float
    activations: float
    inputs: float
    moved: float


def parts(setting: Setting) -> tuple[Any, tasks.Task, TrainConfig]:
    """Returns model, task and training. A line of n symbols to copy takes 2n + 2 tokens."""
    task = tasks.make("copy")._replace(vocab=setting.vocab)
    length = setting.time // 2 - 1
    config = TrainConfig(length=length, min_length=length, batch=setting.batch, steps=setting.steps)
    sizes: Any = {name: getattr(setting, name) for name in ("width", "heads", "layers", "dtype")}
    model = transformer.build(ModelConfig(**sizes), encodings.make("rope"), setting.vocab)
    return model, task, config


def step_and_state(setting: Setting) -> tuple[Callable, Callable]:
    """Returns our training step of one seed, state -> (state, metrics), and seed -> first state."""
    model, task, config = parts(setting)
    tx = optimizer(config)

    def fresh(seed):
        params = model.init(training.random_key(seed, training.INIT))
        return State(params, tx.init(params), jnp.zeros((), jnp.int32), seed)

    return partial(loop.trainer(model, task, config, True).step, task.data), fresh


def analysis(step: Callable, state: Any) -> Any:
    """Returns XLA's count of a step's operations: "flops", "bytes accessed"."""
    with compile_for("tpu", loops=False):
        return jax.jit(step).lower(state).cost_analysis()


def kept(setting: Setting, remat: bool = False) -> int:
    """Returns the bytes that the backward pass is given for a batch, parameters among them."""
    model, task, config = parts(setting)

    def loss(params, key):
        size_B = jnp.full(setting.batch, config.length, jnp.int32)
        batch = task.sample(task.data, key, size_B, setting.time)
        logits_BTV = model.apply(params, batch.tokens_BT, batch.layout, remat=remat)
        return training.mean_loss(logits_BTV, batch.targets_BT, batch.weights_BT)

    key = jax.random.key(0)
    with compile_for("tpu", loops=False):
        return residual_bytes(partial(loss, key=key), jax.eval_shape(model.init, key))


def residual_bytes(function: Callable, x: Any) -> int:
    """Returns the bytes that the backward pass of function(x) is given, without constants that are
    broadcast, such as the zeros of a `where`: XLA makes these when it needs them.
    """
    jaxpr = jax.make_jaxpr(lambda x: jax.vjp(function, x)[1])(x).jaxpr
    kept = [each.aval for each in jaxpr.outvars if not is_broadcast_constant(each, jaxpr)]
    return sum(aval.size * aval.dtype.itemsize for aval in kept)


def is_broadcast_constant(found: Any, jaxpr: Any) -> bool:
    """Returns whether an output of a jaxpr is a literal, or a literal that is broadcast."""
    if isinstance(found, Literal):
        return True
    made = next((equation for equation in jaxpr.eqns if found in equation.outvars), None)
    if made is None:
        return False
    if made.primitive.name in ("jit", "pjit"):
        inner = made.params["jaxpr"].jaxpr
        return is_broadcast_constant(inner.outvars[made.outvars.index(found)], inner)
    return made.primitive.name == "broadcast_in_dim" and isinstance(made.invars[0], Literal)


def traced(setting: Setting) -> Cost:
    """Returns the cost of one step, all layers traced, nothing run."""
    step, fresh = step_and_state(setting)
    state = jax.eval_shape(fresh, jax.ShapeDtypeStruct((), jnp.int32))
    found = analysis(step, state)
    parameters = sum(leaf.size for leaf in jax.tree.leaves(state.params))
    one, two = (setting._replace(batch=rows) for rows in (1, 2))
    row, inputs = (kept(two, remat) - kept(one, remat) for remat in (False, True))
    return Cost(parameters, found["flops"], row, inputs, found["bytes accessed"])


def counted(setting: Setting) -> Cost:
    """Returns the same, computed from one layer and from two: all layers are alike."""
    one, two = (traced(setting._replace(layers=n)) for n in (1, 2))
    more = setting.layers - 1
    return Cost(*(a + more * (b - a) for a, b in zip(one, two, strict=True)))


def by_formula(setting: Setting, parameters: float) -> float:
    """Returns 6 N D, N without the embedding table, plus attention's six products of T x T."""
    tokens = setting.batch * setting.time
    dense = 6 * (parameters - setting.vocab * setting.width) * tokens
    return dense + 12 * setting.layers * tokens * setting.time * setting.width
