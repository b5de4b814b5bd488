"""Which derivatives attention has where its gradient is written out by hand.

It has reverse-mode ones, and forward-mode ones of those (`jax.hessian`); others are refused.
"""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import jax
from jax.interpreters import ad, batching, mlir

T = TypeVar("T")
# What a gradient that is written out by hand says where it is differentiated again.
REFUSALS = {
    "reverse_mode_once": "attend: the blockwise form has no reverse-mode derivative of its "
    "gradient; for jax.grad(jax.grad(f)) make the frame with form='dense', or use jax.hessian",
    "not_differentiated": "attend: the kernel has first derivatives alone; for jax.hessian make "
    "the frame with form='blockwise', or 'dense', which has all",
}


def reverse_mode(call: Callable[[], T]) -> T:
    """The result of call(), which may have a `jax.custom_vjp`.

    TypeError: it is differentiated in forward mode; the message says which form has that.
    """
    try:
        return call()
    except TypeError as error:
        if "forward-mode" not in str(error):
            raise
        raise TypeError(
            "attend: this form has reverse-mode derivatives alone; for jax.jvp make the frame with "
            "form='dense'"
        ) from None


def reverse_mode_once(gradients: Any) -> Any:
    """The arrays as they are. TypeError: they are differentiated in reverse mode again."""
    return jax.tree.map(_identity("reverse_mode_once").bind, gradients)


def not_differentiated(arrays: Any) -> Any:
    """The arrays as they are. TypeError: they are differentiated."""
    return jax.tree.map(_identity("not_differentiated").bind, arrays)


@functools.cache
def _identity(name: str):
    """The identity, which cannot be transposed, or not be differentiated at all."""
    from jax.extend.core import Primitive  # here, because its import takes 0.05 s

    identity = Primitive(name)
    identity.def_impl(lambda x: x)
    identity.def_abstract_eval(lambda x: x)
    mlir.register_lowering(identity, lambda context, x: [x])
    batching.defvectorized(identity)

    def refuse(*_):
        raise TypeError(REFUSALS[name])

    if name == "reverse_mode_once":
        ad.deflinear2(identity, refuse)
    else:
        ad.primitive_jvps[identity] = refuse
    return identity
