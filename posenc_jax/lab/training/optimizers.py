"""Optimizers and schedules of the learning rate, each by its name.

A new one is one function with the decorator `register` or `register_schedule`, here or in a file of
a user's own that a config names in `imports`. Its options are its keyword arguments.

Before every optimizer gradients are clipped by their global norm. The weight decay of all of them
is decoupled from the gradient (Loshchilov and Hutter, arXiv 1711.05101), and is of matrices alone.
"""

from collections.abc import Callable, Collection, Hashable
from functools import cache, partial
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from posenc_jax import registry
from posenc_jax.lab.config.schema import NamedConfig, TrainConfig
from posenc_jax.options import Bound, FieldError, checked, checked_all, choices_for, parameters

Share = Annotated[float, Bound(0.0, 1.0)]
Momentum = Annotated[float, Bound(0.0, below=1.0)]  # the share of a moving average that is kept
Positive = Annotated[float, Bound()]
Count = Annotated[int, Bound(1)]
Rate = optax.Schedule
BLOCK = 1024  # rates that `by_step` computes at once

OPTIMIZERS: dict[str, Callable[..., optax.GradientTransformation]] = {}
SCHEDULES: dict[str, Callable[..., optax.Schedule]] = {}
_ELEMENTWISE: dict[str, bool] = {}
_ARGUMENTS = {"optimizer": ("rate", "decay"), "schedule": ("peak", "steps", "warmup")}


class Optimizer(NamedTuple):
    """An optax transformation, with a property that decides how its leaves may be stored.

    elementwise: an element's update depends on the history of that element alone, so that many
      leaves may be updated as one array; see `hosts.fast_training.pack`. Clipping by the global
      norm, which all have, is no exception: it is one factor of all elements.
    schedule: the learning rate by step.
    at: (rate) -> the transformation with this learning rate at every step, and the same state. So
      rates are arguments of a program, and trainings of other lengths and rates share it.
    """

    init: optax.TransformInitFn
    update: optax.TransformUpdateFn
    elementwise: bool
    schedule: optax.Schedule
    at: Callable[[Any], optax.GradientTransformation]


def register(elementwise: bool = False, name: str = "") -> Callable[[Any], Any]:
    """Makes an optimizer of the function below it, for the field `train.optimizer`.

        @optimizers.register(elementwise=True)
        def sign(rate, decay, momentum: float = 0.9):
            return optax.chain(optax.trace(momentum), optax.scale_by_sign(), ...)

    The function gets the learning rate by step and the weight decay, and returns an optax
    transformation; its further arguments are options, each with a type and a default.

    Args:
      elementwise: see `Optimizer`; say so only if it is: a tree of matrices then becomes one
        array, and an optimizer that reads shapes or norms of leaves computes something else.
      name: the optimizer's name, if not the function's.

    ValueError: a name or an option that cannot be, see `registry.add`.
    """

    def decorate(function):
        title = name or function.__name__
        registry.add(OPTIMIZERS, title, function, function, _ARGUMENTS["optimizer"])
        _ELEMENTWISE[title] = elementwise
        return function

    checked_all("register", register, elementwise=elementwise, name=name)
    return decorate


def register_schedule(name: str = "") -> Callable[[Any], Any]:
    """Makes a schedule of the function below it, for the field `train.schedule`.

    The function gets the largest rate, the steps after the warm-up, and those of the warm-up, and
    returns the rate by step, counted from the end of the warm-up. See `register`.
    """

    def decorate(function):
        title = name or function.__name__
        registry.add(SCHEDULES, title, function, function, _ARGUMENTS["schedule"])
        return function

    checked_all("register", register_schedule, name=name)
    return decorate


def check(config: TrainConfig) -> None:
    """Raises FieldError for an optimizer or a schedule that does not exist, or an option that it
    lacks.
    """
    _options("optimizer", OPTIMIZERS, config.optimizer)
    _options("schedule", SCHEDULES, config.schedule)


def optimizer(config: TrainConfig) -> Optimizer:
    """The optimizer of a training, with its schedule and clipping. FieldError: see `check`."""
    return make(schedule(config), config.clip, config.decay, config.optimizer, config.undecayed)


def schedule(config: TrainConfig) -> optax.Schedule:
    """The learning rate by step: it rises linearly from 0 in the warm-up, then follows
    `config.schedule`. FieldError: see `check`.
    """
    options = _options("schedule", SCHEDULES, config.schedule)
    after_warmup = max(config.steps - config.warmup, 1)
    after = SCHEDULES[config.schedule.name](config.lr, after_warmup, config.warmup, **options)
    rise = optax.linear_schedule(0.0, config.lr, config.warmup)
    return optax.join_schedules([rise, after], [config.warmup])


def rates(config: TrainConfig, steps: range) -> np.ndarray:
    """The learning rates of these steps, counted from 0, float32 [N]."""
    # pydantic gives a frozen model a hash.
    return _rates_of(config)(steps)  # pyright: ignore[reportArgumentType]


@cache
def _rates_of(config: TrainConfig) -> Callable[[range], np.ndarray]:
    return by_step(schedule(config))


def before_fall(config: TrainConfig) -> int:
    """The last end of a chunk whose steps so far have the rates of a longer training too, since the
    rate is constant after the warm-up; 0 if there is none, as of a rate that falls all the time.
    """
    after_N = rates(config, range(min(config.warmup, config.steps), config.steps))
    constant = len(after_N)
    if falls := np.flatnonzero(after_N != after_N[:1]).tolist():
        constant = falls[0]
    steps = config.warmup + constant
    if constant < 2 or steps >= config.steps:
        return config.steps if constant > 1 else 0
    return steps - steps % config.chunk


def by_step(schedule: optax.Schedule) -> Callable[[range], np.ndarray]:
    """The function (steps) -> their learning rates, float32 [N].

    One small program computes `BLOCK` rates, one after another as a training program would, so that
    they have the same bits.
    """

    def block_rates(start):
        with jax.numpy_dtype_promotion("standard"):  # optax adds integers to floats
            rate = lambda step: jnp.asarray(schedule(step), jnp.float32)
            return jax.lax.map(rate, start + jnp.arange(BLOCK, dtype=jnp.int32))

    compiled = jax.jit(block_rates)
    block = cache(lambda n: np.asarray(compiled(jnp.int32(n * BLOCK))))

    def rates(steps: range) -> np.ndarray:
        first = steps.start // BLOCK
        blocks = [block(n) for n in range(first, -(-steps.stop // BLOCK))]
        return np.concatenate(blocks)[steps.start - first * BLOCK :][: len(steps)]

    return rates


def make(
    rate: optax.Schedule,
    clip: float,
    decay: float,
    config: NamedConfig | None = None,
    undecayed: Collection[str] = (),
) -> Optimizer:
    """An optimizer by name after clipping by the global norm; AdamW by default.

    undecayed: names in the paths of leaves without weight decay.
    """
    config = config or NamedConfig(name="adamw")
    options = _options("optimizer", OPTIMIZERS, config)

    def with_schedule(schedule: optax.Schedule) -> optax.GradientTransformation:
        with_decay = lambda decay: OPTIMIZERS[config.name](schedule, decay, **options)
        built = with_decay(decay)
        if undecayed:
            both: dict[Hashable, Any] = {False: built, True: with_decay(0.0)}
            built = optax.multi_transform(both, partial(_under, undecayed))
        return optax.chain(optax.clip_by_global_norm(clip), built)

    whole, at = with_schedule(rate), lambda rate: with_schedule(lambda step: rate)
    # One array of all matrices has no paths.
    elementwise = _ELEMENTWISE[config.name] and not undecayed
    return Optimizer(whole.init, whole.update, elementwise, rate, at)


def _names(path: Any) -> set[str]:
    """The names of dictionary keys in the path of a leaf."""
    return {getattr(key, "key", "") for key in path}


def _under(names: Collection[str], params: Any) -> Any:
    """The tree of the parameters with True for leaves that have one of the names in their path.

    FieldError: see `check_undecayed`.
    """
    check_undecayed(names, params)
    is_under = lambda path, leaf: not _names(path).isdisjoint(names)
    return jax.tree_util.tree_map_with_path(is_under, params)


def check_undecayed(names: Collection[str], params: Any) -> None:
    """Raises FieldError for a name that no path in the tree of the parameters has."""
    paths = [_names(path) for path, _ in jax.tree_util.tree_leaves_with_path(params)]
    known = sorted(set.union(*paths) - {""})
    for name in names:
        if name not in known:
            reason = f"no weights are under {name!r}{choices_for(name, known)}"
            raise FieldError(("train", "undecayed"), reason)


def _options(field: str, table: dict[str, Any], config: NamedConfig) -> dict[str, Any]:
    """The checked options of an optimizer or a schedule, by name. FieldError: see `check`."""
    if config.name not in table:
        reason = f"no {field} {config.name!r}{choices_for(config.name, table)}"
        raise FieldError((field, "name"), reason)
    accepted = {
        n: p for n, p in parameters(table[config.name]).items() if n not in _ARGUMENTS[field]
    }
    for name in config.options:
        if name not in accepted:
            near = choices_for(name, ["name", *accepted], ", ".join(accepted) or "none")
            reason = f"{config.name} takes no such option{near}"
            raise FieldError((field, name), reason)
    return {name: checked(field, accepted[name], value) for name, value in config.options.items()}


def matrices(params: Any) -> Any:
    """The tree of the parameters with True for leaves that decay: those of two axes or more."""
    return jax.tree.map(lambda leaf: leaf.ndim > 1, params)


def _decoupled(direction: Any, rate: Rate, decay: float) -> optax.GradientTransformation:
    """The transformation whose update is -rate (direction + decay x matrices)."""
    decayed = optax.add_decayed_weights(decay, matrices)
    return optax.chain(direction, decayed, optax.scale_by_learning_rate(rate))


@register(elementwise=True)
def adamw(rate, decay, b1: Momentum = 0.9, b2: Momentum = 0.98, eps: Positive = 1e-8):
    """AdamW: Kingma and Ba, arXiv 1412.6980; Loshchilov and Hutter, 1711.05101."""
    return optax.adamw(rate, b1, b2, eps, weight_decay=decay, mask=matrices)


@register(elementwise=True)
def nadamw(rate, decay, b1: Momentum = 0.9, b2: Momentum = 0.98, eps: Positive = 1e-8):
    """AdamW with Nesterov's momentum (Dozat 2016)."""
    return optax.nadamw(rate, b1, b2, eps, weight_decay=decay, mask=matrices)


@register(elementwise=True)
def ademamix(
    rate,
    decay,
    b1: Momentum = 0.9,
    b2: Momentum = 0.999,
    b3: Momentum = 0.9999,
    alpha: Positive = 5.0,
    eps: Positive = 1e-8,
):
    """AdEMAMix (Pagliardini, Ablin and Grangier, arXiv 2409.03137), without warm-ups of b3 and
    alpha.
    """
    return optax.contrib.ademamix(
        rate, b1, b2, b3, alpha, eps, weight_decay=decay, mask=matrices
    )  # fmt: skip


@register(elementwise=True)
def adan(
    rate,
    decay,
    b1: Momentum = 0.98,
    b2: Momentum = 0.92,
    b3: Momentum = 0.99,
    eps: Positive = 1e-8,
):
    """Adan (Xie et al., arXiv 2208.06677)."""
    return _decoupled(optax.scale_by_adan(b1, b2, b3, eps), rate, decay)


@register(elementwise=True)
def lion(rate, decay, b1: Momentum = 0.9, b2: Momentum = 0.99):
    """Lion (Chen et al., arXiv 2302.06675), for rates 3 to 10 times smaller than AdamW's."""
    return optax.lion(rate, b1, b2, weight_decay=decay, mask=matrices)


@register(elementwise=True)
def sgd(rate, decay, momentum: Momentum = 0.9, nesterov: bool = False):
    """Gradient descent with momentum."""
    return _decoupled(optax.trace(momentum, nesterov), rate, decay)


@register(elementwise=True)
def rmsprop(rate, decay, b2: Momentum = 0.9, eps: Positive = 1e-8):
    """RMSProp (Tieleman and Hinton 2012)."""
    return _decoupled(optax.scale_by_rms(b2, eps), rate, decay)


@register(elementwise=True)
def adagrad(rate, decay, initial: Positive = 0.1, eps: Positive = 1e-7):
    """Adagrad (Duchi, Hazan and Singer 2011)."""
    return _decoupled(optax.scale_by_rss(initial, eps), rate, decay)


@register()
def lamb(rate, decay, b1: Momentum = 0.9, b2: Momentum = 0.999, eps: Positive = 1e-6):
    """LAMB (You et al., arXiv 1904.00962): the update of each leaf is scaled to the leaf's norm."""
    return optax.lamb(rate, b1, b2, eps, weight_decay=decay, mask=matrices)


@register()
def lars(rate, decay, momentum: Momentum = 0.9, trust: Positive = 0.001, nesterov: bool = False):
    """LARS (You, Gitman and Ginsburg, arXiv 1708.03888); vectors are trained by plain momentum."""
    return optax.lars(
        rate,
        decay,
        weight_decay_mask=matrices,
        trust_coefficient=trust,
        trust_ratio_mask=matrices,
        momentum=momentum,
        nesterov=nesterov,
    )


@register()
def adafactor(
    rate, decay, b2: Share = 0.8, clip: Positive = 1.0, least: Count = 128, relative: bool = True
):
    """Adafactor (Shazeer and Stern, arXiv 1804.04235): second moments by rows and columns.

    b2: the decay at step t is 1 - t^-b2. clip: bounds a leaf's root mean square update. least:
    matrices with a smaller side keep their second moment in full. relative: updates are multiplied
    by the leaf's scale.
    """
    factored = optax.adafactor(
        None,
        min_dim_size_to_factor=least,
        decay_rate=b2,
        multiply_by_parameter_scale=relative,
        clipping_threshold=clip,
    )
    # optax gives a negative step, and would subtract the decay without the rate.
    return _decoupled(optax.chain(factored, optax.scale(-1.0)), rate, decay)


@register()
def muon(
    rate,
    decay,
    momentum: Momentum = 0.95,
    rms: Positive = 0.2,
    b1: Momentum = 0.9,
    b2: Momentum = 0.98,
    nesterov: bool = True,
):
    """Muon (Jordan 2024) with updates of root mean square `rms`, about that of Adam, so that rates
    for AdamW fit (Liu et al., arXiv 2502.16982). Vectors, embeddings, the read-out and what
    encodings learn are trained by Adam with `b1` and `b2`.
    """
    direction = optax.contrib.muon(
        -1.0,  # optax makes a step of minus the rate; `_decoupled` does so again
        beta=momentum,
        nesterov=nesterov,
        adam_b1=b1,
        adam_b2=b2,
        muon_weight_dimension_numbers=_orthogonal,
        consistent_rms=rms,
    )
    return _decoupled(direction, rate, decay)


_BY_ADAM = ("embed", "read_out", "encoding")


def _orthogonal(params: Any) -> Any:
    """Muon's dimension numbers for each leaf that it orthogonalises; None for the others."""

    def axes(path, leaf):
        is_orthogonal = leaf.ndim == 2 and _names(path).isdisjoint(_BY_ADAM)
        return optax.contrib.MuonDimensionNumbers() if is_orthogonal else None

    return jax.tree_util.tree_map_with_path(axes, params)


@register_schedule()
def constant(peak, steps, warmup):
    """The largest rate at every step."""
    return optax.constant_schedule(peak)


@register_schedule()
def cosine(peak, steps, warmup, end: Share = 0.1):
    """Falls along half a cosine to `end` times the largest rate (arXiv 1608.03983)."""
    return optax.cosine_decay_schedule(peak, steps, end)


@register_schedule()
def linear(peak, steps, warmup, end: Share = 0.0):
    """Falls linearly to `end` times the largest rate."""
    return optax.linear_schedule(peak, end * peak, steps)


@register_schedule()
def inverse_sqrt(peak, steps, warmup):
    """Falls as 1 / sqrt(step) from the largest rate at the end of the warm-up (Noam in arXiv
    1706.03762, T5 in 1910.10683).
    """
    first = float(max(warmup, 1))
    # Also read before the warm-up has ended, where its value is not used.
    return lambda step: peak * jnp.sqrt(first / (first + jnp.maximum(step, 0)))


@register_schedule()
def wsd(peak, steps, warmup, fall: Share = 0.2, end: Share = 0.0):
    """Warm-up, stable, decay: constant, then falls linearly to `end` times the largest rate during
    the last `fall` of the steps (Hägele et al., arXiv 2405.18392).
    """
    last = max(round(fall * steps), 1)
    fallen = optax.linear_schedule(peak, end * peak, last)
    return optax.join_schedules([optax.constant_schedule(peak), fallen], [steps - last])
