"""What a caller of `attend` adds to a layer: mask, bias, scale, cap, sinks and dropout."""

import dataclasses
from dataclasses import field
from numbers import Real
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import Tracer

from posenc_jax.attention.layers import STATIC, Layer
from posenc_jax.options import check_array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class ScoreOptions:
    """Arguments of `attend` besides q, k, v and the layer; a pytree.

    factor_BHQK: what dropout multiplies each weight with, 0 or 1 / (1 - rate); B and H may be 1.
    lse: whether the log-sum-exp of each query's logits is returned too.
    """

    sink_H: jax.Array | None = None
    mask_BHQK: jax.Array | None = None
    bias_BHQK: jax.Array | None = None
    scale: float | jax.Array | None = None
    factor_BHQK: jax.Array | None = None
    cap: float | None = field(default=None, metadata=STATIC)
    lse: bool = field(default=False, metadata=STATIC)

    @property
    def pairs(self) -> bool:
        """Whether the caller gave a mask or a bias, arrays of all pairs of tokens."""
        return self.mask_BHQK is not None or self.bias_BHQK is not None

    def columns(self, which: slice) -> "ScoreOptions":
        """The options for the queries of a slice."""
        cut = lambda x: x if x is None or x.shape[2] == 1 else x[:, :, which]
        return dataclasses.replace(
            self, mask_BHQK=cut(self.mask_BHQK), bias_BHQK=cut(self.bias_BHQK)
        )


def plus(a: jax.Array | None, b: jax.Array | None) -> jax.Array | None:
    """The sum of two biases, of which either may be None."""
    if a is None or b is None:
        return b if a is None else a
    dtype = jnp.promote_types(a.dtype, b.dtype)
    return a.astype(dtype) + b.astype(dtype)


def both(a: jax.Array, b: jax.Array | None) -> jax.Array:
    """Where both masks hold; the second may be None."""
    return a if b is None else a & b


def dropout_factor(key: Any, rate: float, shape: tuple[int, ...]) -> jax.Array:
    """0 with probability `rate`, else 1 / (1 - rate), as `flax.linen.Dropout` draws them; float."""
    return jax.random.bernoulli(key, 1 - rate, shape).astype(float) / (1 - rate)


def check_options(options: ScoreOptions, layer: Layer, rows: int) -> None:
    """ValueError: an option that does not fit the layer or its method, for `rows` of the batch."""
    walk, cap = layer.encoding.walk, options.cap
    heads, (queries, keys) = layer.dims.heads, layer.sizes
    if cap is not None and not (isinstance(cap, Real) and cap > 0):
        raise ValueError(f"cap: {cap!r}; give a number above 0, or None")
    if cap is not None and walk is not None and walk.corrects:
        raise ValueError("cap: this method makes products of its own, which a cap would miss")
    sink_H, scale = options.sink_H, options.scale
    if sink_H is not None:
        check_array("sink", sink_H)
    if sink_H is not None and sink_H.shape != (heads,):
        raise ValueError(f"sink: shape {sink_H.shape}; give one logit for each head, [{heads}]")
    if sink_H is not None and walk is not None and walk.weighs:
        raise ValueError("sink: this method makes the weights itself, without a normalisation")
    if scale is not None and not _is_number(scale):
        raise ValueError(f"scale: {scale!r}; give one number, which takes the place of C ** -0.5")
    _check_mask(options.mask_BHQK)
    _check_bias(options.bias_BHQK)
    shape = rows, heads, queries, keys
    for name in ("mask_BHQK", "bias_BHQK"):
        x = getattr(options, name)
        if x is None:
            continue
        fits = len(x.shape) == 4 and all(
            n in (1, size) for n, size in zip(x.shape, shape, strict=True)
        )
        if not fits:
            raise ValueError(
                f"{name}: shape {x.shape}; give [B, H, Q, K], each 1 or that of {shape}"
            )
        if layer.form == "kernel" and not layer.chosen:
            raise ValueError(
                f"{name}: the kernel has none; make the frame with form='blockwise' or 'auto'"
            )
    mask = options.mask_BHQK
    if mask is not None and walk is not None and walk.whole and mask.shape[1] > 1:
        raise ValueError(
            f"mask_BHQK: shape {mask.shape}; this method mixes heads, so give one mask for all, "
            "[B, 1, Q, K]"
        )


def check_dropout(rate: float, key: jax.Array | None, name: str) -> None:
    """ValueError: the rate is not from 0 to below 1, or it needs a key and `key` is none.

    name: of the key's argument, for the message.
    """
    if isinstance(rate, Tracer) or not isinstance(rate, Real) or not 0 <= rate < 1:
        raise ValueError(f"dropout: {rate}; give a number from 0 to below 1, known when tracing")
    if rate and key is None:
        raise ValueError(f"dropout: {rate} needs a key; give {name}, from jax.random.key")
    kinds = jnp.uint32, jax.dtypes.prng_key  # of `jax.random.PRNGKey` and of `jax.random.key`
    kind = getattr(key, "dtype", None)
    if rate and (kind is None or not any(jnp.issubdtype(kind, wanted) for wanted in kinds)):
        raise ValueError(f"{name}: {key!r} is no key; give one from jax.random.key")


def check_form_of_dropout(form: str) -> None:
    """ValueError: a form that has no dropout."""
    if form != "dense":
        raise ValueError(f"dropout: form {form!r} has none; make the frame with form='dense'")


def _is_number(x) -> bool:
    if isinstance(x, Real):
        return not isinstance(x, bool)
    return jnp.shape(x) == () and hasattr(x, "dtype") and jnp.issubdtype(x.dtype, jnp.floating)


def _check_mask(mask) -> None:
    if mask is None:
        return
    if not hasattr(mask, "dtype") or mask.dtype != bool:
        kind = getattr(mask, "dtype", type(mask).__name__)
        raise ValueError(
            f"mask_BHQK: {kind}; give bool, True where a key is seen; an additive mask is bias_BHQK"
        )


def _check_bias(bias) -> None:
    if bias is None:
        return
    if not hasattr(bias, "dtype") or not jnp.issubdtype(bias.dtype, jnp.floating):
        kind = getattr(bias, "dtype", type(bias).__name__)
        raise ValueError(f"bias_BHQK: {kind}; give floating point; a bool mask is mask_BHQK")
