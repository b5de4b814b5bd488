"""A function of a user's own file is a method, or one line says why it cannot be."""

import importlib
import sys
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import posenc_jax
from posenc_jax import Dims, Encoding, describe, make, register
from posenc_jax.encodings.card import Positive
from posenc_jax.lab import tasks
from posenc_jax.lab.tasks.task import SYMBOL, Task, generated

FILE = '''
from __future__ import annotations

from typing import Literal

import jax.numpy as jnp

import posenc_jax
from posenc_jax.encodings.card import Positive
from posenc_jax.lab import tasks
from posenc_jax.lab.tasks.task import SYMBOL, Task, generated


@posenc_jax.register(kind="bias", formula="-slope |i - j|^power", paper="an example")
def steep(slope: Positive = 0.5, power: Literal[1, 2] = 1) -> posenc_jax.Encoding:
    """A penalty of the distance.

    Args:
      slope: of the penalty.
    """

    def bias(params, q_pos_BQ, k_pos_BK, dims):
        distance_BQK = jnp.abs(q_pos_BQ[:, :, None] - k_pos_BK[:, None, :]).astype(float)
        return -slope * (distance_BQK**power)[:, None]

    return posenc_jax.Encoding(bias=bias, relative=True)
'''


@pytest.fixture
def module(tmp_path, monkeypatch, registering):
    """A user's module outside this tree, with types that it postpones to text."""
    (tmp_path / "steep_methods.py").write_text(FILE)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("steep_methods")
    del sys.modules["steep_methods"]


def bias(encoding):
    return encoding.bias({}, jnp.arange(3)[None], jnp.arange(3)[None], Dims(8, 2, 4))


@pytest.mark.thorough
def test_a_function_of_ones_own_file_is_a_method(module):
    assert list(posenc_jax.CATALOG)[-1] == "steep"
    assert jnp.array_equal(bias(make("steep", slope=2.0, power=2)), bias(module.steep(2.0, 2)))
    assert "slope = 0.5 (positive): of the penalty" in describe("steep")
    assert "power = 1 (of 1, 2)" in describe("steep")
    layout = posenc_jax.full(1, 4)
    for name in ("rope+steep", "clamped+steep", "randomized+steep"):
        frame = posenc_jax.frame(make(name), ({}, {}), layout, Dims(8, 2, 4))
        x = jax.random.normal(jax.random.key(0), (1, 4, 2, 4))
        out = posenc_jax.attend(x, x, x, frame.layer(0, x.reshape(1, 4, 8)))
        assert jnp.isfinite(out).all()


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"slope": -1.0}, "encoding.slope: -1.0 must be positive"),
        ({"slope": "a"}, "encoding.slope: 'a' is not of type float"),
        ({"power": 3}, "encoding.power: 3 is not one of: 1, 2"),
        (
            {"slpe": 1.0},
            "encoding.slpe: steep takes no such option; did you mean slope? its options: power, "
            "slope",
        ),
    ],
)
def test_its_options_are_checked(module, options, error):
    with pytest.raises(ValueError, match="encoding") as refusal:
        make("steep", **options)
    assert str(refusal.value) == error


def test_a_function_that_is_defined_again_replaces_itself(module, tmp_path, monkeypatch):
    text = FILE.replace("-slope * (", "-slope * 10 * (")
    (tmp_path / "steep_methods.py").write_text(text)
    before = bias(make("steep"))
    importlib.reload(module)
    assert jnp.array_equal(bias(make("steep")), 10 * before)
    scope = {"__name__": "__main__"}  # the file as a program, and a notebook's cell that runs twice
    for line in ("", "\n"):
        exec(compile(line + FILE, str(tmp_path / "steep_methods.py"), "exec"), scope)
    assert make("steep") is not None


def method(function, **fields):
    told: dict[str, Any] = {"kind": "bias", "formula": "0", "paper": "none", **fields}
    return register(**told)(function)


def rope() -> Encoding:
    return Encoding()


def untyped(slope=1.0) -> Encoding:
    return Encoding()


def needed(slope: float) -> Encoding:
    return Encoding()


def several(*slopes: float) -> Encoding:
    return Encoding()


def mistaken(slope: float = "steep") -> Encoding:  # pyright: ignore
    return Encoding()


def negative(slope: Positive = -1.0) -> Encoding:
    return Encoding()


def listed(slopes: list[int] = [1]) -> Encoding:  # noqa: B006
    return Encoding()


def postponed(slope: "Nowhere" = 1.0) -> Encoding:  # noqa: F821 # pyright: ignore
    return Encoding()


NEEDS = "needs a type and a default, such as slope: float = 1.0"
WRONG = [
    (rope, {}, "register: 'rope' of tests.test_registering.rope has the name of "
     "posenc_jax.encodings.rotary.rope; choose another"),
    (untyped, {}, f"register: untyped: option 'slope' {NEEDS}"),
    (needed, {}, f"register: needed: option 'slope' {NEEDS}"),
    (several, {}, "register: several: option 'slopes' needs a type and a default"),
    (mistaken, {}, "register: mistaken: option 'slope': its default 'steep' is not of type float"),
    (negative, {}, "register: negative: option 'slope': its default -1.0 must be positive"),
    (listed, {}, "register: listed: option 'slopes': list[int] is no type of options"),
    (postponed, {}, "register: postponed: the type of an option: name 'Nowhere' is not defined"),
    (lambda: Encoding(), {}, "register: '<lambda>' of tests.test_registering.<lambda> is no name"),
    (untyped, {"kind": "biass"}, "register.kind: 'biass' is not one of: 'none', 'input', "),
    (untyped, {"beyond": "wrap"}, "register.beyond: 'wrap' is not one of: 'unbounded', "),
]  # fmt: skip


@pytest.mark.parametrize(("function", "fields", "error"), WRONG)
def test_a_function_that_cannot_be_a_method_is_refused_in_one_line(
    function, fields, error, registering
):
    before = dict(posenc_jax.CATALOG)
    with pytest.raises(ValueError, match=r"^register") as refusal:
        method(function, **fields)
    assert str(refusal.value).startswith(error)
    assert "\n" not in str(refusal.value)
    assert before == posenc_jax.CATALOG


def test_a_function_that_returns_no_encoding_is_told_so(registering):
    def forgetful():
        Encoding()

    with pytest.raises(TypeError, match=r"^forgetful: the function returns NoneType; return an "):
        method(forgetful)()


def test_two_functions_of_one_name_are_refused(registering):
    def twice() -> Encoding:
        return Encoding()

    first = twice
    method(first)

    def other():
        def twice() -> Encoding:
            return Encoding()

        return twice

    with pytest.raises(ValueError, match=r"^register: 'twice' of .*other.<locals>.twice has the "):
        method(other())
    method(first)


def test_a_task_of_ones_own_file_is_found_by_its_name(registering):
    @tasks.register(reads="whole", unit="lines")
    def ones(length: int = 4) -> Task:
        """Predict ones."""
        line = lambda key, n, place_L: (place_L * 0 + SYMBOL, place_L > 0)
        return generated("ones", line, lambda n: n + length, symbols=1, padding="right")

    assert "ones" in tasks.names("whole")
    assert tasks.unit("ones") == "lines"
    assert tasks.input_of("ones") == "whole"
    assert tasks.make("ones", length=2).width(3) == 4
    with pytest.raises(ValueError, match=r"^task.length: 'a' is not of type int"):
        tasks.make("ones", length="a")
    with pytest.raises(ValueError, match=r"^task.size: ones takes no such option; choices: le"):
        tasks.make("ones", size=3)
    with pytest.raises(ValueError, match=r"^register: 'copy' of .* has the name of .*copying.copy"):
        tasks.register(name="copy")(ones)
    with pytest.raises(ValueError, match=r"^register.reads: 'letters' is not one of: 'tokens', "):
        tasks.register(reads="letters")  # pyright: ignore
