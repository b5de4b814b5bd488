"""A hash of what a claim measures and asks for, recorded before it is measured."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from types import CodeType, FunctionType, ModuleType
from typing import Any

from experiments.claims.ledger import Claim

WHERE = "experiments."
# Modules that have moved since the committed claims were measured; a hash has their old names.
MEASURED_AS = {
    "experiments.invariance.padding_leakage.config": "experiments.padding_leakage.config",
    "experiments.invariance.padding_leakage.fields": "experiments.padding_leakage.config",
    "experiments.invariance.padding_leakage.leaks": "experiments.padding_leakage.measuring",
    "experiments.invariance.padding_leakage.sequences": "experiments.padding_leakage.data",
    "experiments.invariance.permutation.config": "experiments.permutation.config",
    "experiments.invariance.permutation.order_tasks": "experiments.permutation.measuring",
    "experiments.invariance.small_models": "experiments.methods",
}


def fingerprint(claim: Claim) -> str:
    """The SHA-256 of a claim's words, of its rule and of its measurement, in hexadecimal.

    Covered are the sources of both functions, docstrings included, and of all functions and classes
    of `experiments` that they reach by a name in their code, and the values of the constants that
    any of these read: numbers, strings, and containers of these. Not covered: methods of objects
    passed to them (`Lab`, `Number`), the packages posenc_jax, NumPy and JAX, the figure, and the
    config, which is recorded beside each measurement.
    """
    parts: dict[str, str] = {}
    for function in (claim.rule, claim.measure):
        _collect(function, parts)
    lines = [claim.text, *(f"{name} = {parts[name]}" for name in sorted(parts))]
    return sha256("\n".join(lines).encode()).hexdigest()


def _collect(thing: Any, parts: dict[str, str]) -> None:
    """Adds the source of a function or class of `experiments`, and of all that it reads."""
    name = _recorded(thing, thing.__qualname__)
    if name in parts:
        return
    parts[name] = _source(thing)
    functions = [thing] if isinstance(thing, FunctionType) else vars(thing).values()
    for function in filter(lambda f: isinstance(f, FunctionType), functions):
        for read, value in _read(function):
            if isinstance(value, Callable) and hasattr(value, "__qualname__"):
                if value.__module__.startswith(WHERE):
                    _collect(value, parts)
            elif (told := _told(value)) is not None:
                parts[_recorded(function, read)] = told


def _recorded(thing: Any, name: str) -> str:
    """A name in the module of a function or class, as it stands in the hash."""
    return f"{MEASURED_AS.get(thing.__module__, thing.__module__)}.{name}"


def _source(thing: Any) -> str:
    """The source of a function or class; that of a measurement without `@claim(...)`."""
    source = inspect.getsource(thing)
    return source[source.index("\ndef ") :] if source.startswith("@claim(") else source


def _read(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """(name, value) of each global that a function's code names, also through a module."""
    names, spaces = _names(function.__code__), [function.__globals__]
    spaces += [
        vars(value)
        for name in names
        if isinstance(value := function.__globals__.get(name), ModuleType)
        and value.__name__.startswith(WHERE)
    ]
    for space in spaces:
        yield from ((name, space[name]) for name in sorted(names) if name in space)


def _names(code: CodeType) -> set[str]:
    """The names in a code object and in those inside it, such as lambdas."""
    inner = (_names(const) for const in code.co_consts if isinstance(const, CodeType))
    return set(code.co_names).union(*inner)


def _told(value: Any) -> str | None:
    """A constant as text; None for what is no number, string, or container of these."""
    if isinstance(value, Mapping):
        value = [*value.items()]
    if isinstance(value, list | tuple | range):
        told = [_told(item) for item in value]
        return None if None in told else f"[{', '.join(map(str, told))}]"
    return repr(value) if isinstance(value, int | float | str | bool | None) else None
