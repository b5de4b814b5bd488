"""Which derivatives attention has where its gradient is written out by hand.

It has reverse-mode ones, and forward-mode ones of those (`jax.hessian`). The two others are refused
in one line, since JAX's own lines do not say which form of attention has them.
"""

from collections.abc import Callable
from typing import TypeVar

import jax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

T = TypeVar("T")


def reverse_mode(call: Callable[[], jax.Array]) -> jax.Array:
    """call(), whose gradient is a `jax.custom_vjp`. TypeError: it is differentiated forward."""
    try:
        return call()
    except TypeError as error:
        if "forward-mode" not in str(error):
            raise
        raise TypeError(
            "attend: this form has reverse-mode derivatives alone; for jax.jvp make the frame with "
            "form='dense'"
        ) from None


def reverse_mode_once(gradients: T) -> T:
    """The arrays as they are. TypeError: they are differentiated in reverse mode again."""
    return jax.tree.map(_once.bind, gradients)


def _refuse(cotangent, x):
    raise TypeError(
        "attend: the blockwise form has no reverse-mode derivative of its gradient; for "
        "jax.grad(jax.grad(f)) make the frame with form='dense', or use jax.hessian"
    )


_once = Primitive("reverse_mode_once")
_once.def_impl(lambda x: x)
_once.def_abstract_eval(lambda x: x)
mlir.register_lowering(_once, lambda context, x: [x])
ad.deflinear2(_once, _refuse)
batching.defvectorized(_once)
