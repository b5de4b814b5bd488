"""Affine maps and norms, and where a norm stands around attention, cross-attention and MLP."""

from collections.abc import Callable
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from posenc_jax.dtypes import widest
from posenc_jax.lab.config.schema import ModelConfig
from posenc_jax.lab.hosts.fast_training import linear, recomputed

ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "gelu": lambda x: nn.gelu(x, approximate=False),
    "gelu_tanh": nn.gelu,
    "relu": nn.relu,
    "silu": nn.silu,
}


# What the forward pass keeps of a layer for the backward pass, besides its input.
REMAT_POLICIES = {
    "nothing": jax.checkpoint_policies.nothing_saveable,
    "products": jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
}


def weight(module: nn.Module, name: str, init: Callable, shape: tuple[int, ...]) -> jax.Array:
    """The stored weight of a module; at initialisation `init` makes it.

    `module.param` would trace the initialiser in every pass, only to check the shape.

    ValueError: the weight has another shape.
    """
    stored = module.get_variable("params", name)
    if stored is None:
        return module.param(name, init, shape)
    if stored.shape != shape:
        where = "/".join((*module.path, name))
        raise ValueError(f"{where}: a weight of shape {stored.shape}; the model needs {shape}")
    return stored


class Dense(nn.Module):
    """An affine map of the last axis; `gain` scales the variance of its initial weights.

    activate: applied to the inputs, all of one shape, before the map; the backward pass computes it
      again.
    """

    features: int
    dtype: Any
    gain: float = 1.0
    biased: bool = True
    activate: Callable[..., jax.Array] | None = None

    @nn.compact
    def __call__(self, *inputs):
        init = nn.initializers.variance_scaling(self.gain, "fan_in", "truncated_normal")
        shape = inputs[0].shape[-1], self.features
        w = weight(self, "kernel", init, shape).astype(self.dtype)
        b = None
        if self.biased:
            zeros = nn.initializers.zeros_init()
            b = weight(self, "bias", zeros, (self.features,)).astype(self.dtype)
        if (activate := self.activate) is None:
            return linear(inputs[0].astype(self.dtype), w, b)
        return recomputed(lambda w, b, *x: linear(activate(*x).astype(self.dtype), w, b))(
            w, b, *inputs
        )


class Norm(nn.Module):
    """Layer normalisation, or RMSNorm, over the last axis, computed in float32 or wider."""

    kind: str
    eps: float
    biased: bool

    @nn.compact
    def __call__(self, x):
        scale = weight(self, "scale", nn.initializers.ones_init(), x.shape[-1:])
        bias = None
        if self.biased:
            bias = weight(self, "bias", nn.initializers.zeros_init(), x.shape[-1:])
        return recomputed(partial(_normalised, self.kind, self.eps))(x, scale, bias)


def _normalised(kind: str, eps: float, x, scale, bias):
    over_rows = lambda vector: vector.reshape((1,) * (x.ndim - 1) + (-1,)).astype(wide.dtype)
    wide = x.astype(widest(x.dtype))
    if kind == "layernorm":
        wide = wide - wide.mean(axis=-1, keepdims=True)
    wide = wide * jax.lax.rsqrt(jnp.square(wide).mean(axis=-1, keepdims=True) + eps)
    wide = wide * over_rows(scale)
    if bias is not None:
        wide = wide + over_rows(bias)
    return wide.astype(x.dtype)


def norm(config: ModelConfig, name: str) -> Norm:
    """A norm of the config's kind, with this name."""
    biased = config.norm == "layernorm" and "norm" in config.biases
    return Norm(config.norm, config.eps, biased, name=name)


def entering(config: ModelConfig, name: str, x: jax.Array) -> jax.Array:
    """The input of the part `name`: x, normalised first if the config says so."""
    return norm(config, f"{name}_norm")(x) if config.norm_at in ("pre", "both") else x


def added(config: ModelConfig, name: str, x: jax.Array, output: jax.Array) -> jax.Array:
    """The hidden states after the part `name`: x plus the part's output, with the config's norm."""
    if config.norm_at == "pre":
        return x + output
    after = norm(config, f"{name}_out_norm")
    return after(x + output) if config.norm_at == "post" else x + after(output)
