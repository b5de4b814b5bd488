"""docs/encodings.md: a table of the whole catalogue, made from the registry."""

import datetime
import platform
from collections.abc import Callable, Mapping
from typing import get_args

import jax

from posenc_jax.encodings import CATALOG, card, make
from posenc_jax.encodings.card import Card
from posenc_jax.encodings.describe import ACTS
from posenc_jax.lab.gallery import costs
from posenc_jax.lab.gallery.costs import STATED, TIME, Cost
from posenc_jax.lab.gallery.page import FAMILIES

HOOKS = ("place", "embed", "table", "rotate", "bias", "walk", "at")
MEASURED = ("operations", "bytes")
HEAD = """\
# The catalogue

Made by `python scripts/catalogue.py` from the registry; a test holds every column but the two
measured ones to it. `posenc_jax.describe(NAME)` prints a method's options, and its name here leads
to its card in the [gallery](gallery/README.md).

## How to read it

- **hooks**: what the method's [`Encoding`](../posenc_jax/encoding.py) has; `at` where layers differ
  or have parameters of their own.
- **parameters**: learned numbers as a formula of D model width, H heads, C head width, N layers,
  with default options, and at {dims}.
- **operations**, **bytes**: what the method adds to the forward pass of one sequence of {time:,}
  tokens in one layer of that size, dense form, float32, tables included: XLA's count for the
  compiled program less that of attention without positions, which takes {base_operations} and
  {base_bytes}. At the input that is `embed` alone, for methods that place `place` alone. A
  transcendental function counts as one operation, bytes are those that the compiled operations read
  and write; ≥ where a loop's body is counted once. Below zero: the compiler fused better with the
  method than without. Counted {date} with JAX {jax} for a {device}, Python {python}.
- **past the range**: what becomes of positions past what a bounded method was made for. `error`: a
  run refuses such lengths before it starts; under `jit`, which cannot raise, NaN comes out.
- **shift**: invariant where moving all positions provably changes nothing; otherwise the tests hold
  a counterexample. For methods that only place it is that of the methods behind them.
- **held to**: the definition in float64 NumPy, written from the paper, at 1, 5 and 24 tokens; and
  the frozen values of a public package, where one has the method.
- **pairing**: which channels make a pair, the default first; `convert_pairing` takes the weights of
  rotary methods from one to the other.

Every method, without exception, is proved by the battery (`python -m pytest tests -k catalogue`):
causal to the bit and with gradients of exactly zero; the content of padding on either side changes
nothing to the bit, and its side nothing at all; blockwise attention equals dense, in values and
gradients; token-by-token decoding equals the full pass; packed documents do not see each other;
permutation equivariance is broken (but where no positions are told); every option changes the
output; float32 stays within 1e-4 of float64 at position 1e6, where such positions are allowed (at
1e3 for what shows positions to others); the range policy is as declared. Each check has a control
that must fail.
"""
COLUMNS: dict[str, Callable[[Card], str]] = {
    "method": lambda c: f"[`{c.name}`](gallery/{c.name}.png)",
    "formula": lambda c: f"`` {c.formula} ``",
    "paper": lambda c: c.paper,
    "hooks": lambda c: _hooks(c),
    "parameters": lambda c: _parameters(c),
    "past the range": lambda c: _beyond(c),
    "shift": lambda c: _shift(c),
    "held to": lambda c: "definition" + (f", {c.reference}" if c.reference else ""),
    "pairing": lambda c: _pairing(c),
}


def markdown(measured: Mapping[str, Cost], base: Cost) -> str:
    """The page, from the cost of every method and that of attention without positions."""
    parts = [HEAD.format(
        dims=f"D = {STATED.model}, H = {STATED.heads}, C = {STATED.head}, N = {STATED.layers}",
        time=TIME, base_operations=_millions(base.operations, "M"),
        base_bytes=_millions(base.bytes, "MB"), date=datetime.date.today(), jax=jax.__version__,
        device=jax.devices()[0].device_kind, python=platform.python_version(),
    )]  # fmt: skip
    for kind, family in FAMILIES.items():
        names = [name for name in CATALOG if card(name).kind == kind]
        if names:
            parts.append(f"## {family}: acts on {ACTS[kind]}\n")
            parts.append(_table([row(name) | _cost(measured[name]) for name in names]))
    return "\n".join(parts)


def row(name: str) -> dict[str, str]:
    """A method's cells by column, without what is measured."""
    return {column: cell(card(name)).replace("|", "\\|") for column, cell in COLUMNS.items()}


def read(page: str) -> dict[str, dict[str, str]]:
    """The rows of such a page by method, measured columns as well."""
    found, columns = {}, []
    for text in page.splitlines():
        if not text.startswith("| "):
            continue
        cells = text.removeprefix("| ").removesuffix(" |").split(" | ")
        if cells[0] == "method":
            columns = cells
        elif not cells[0].startswith("-"):
            cells = dict(zip(columns, cells, strict=True))
            found[cells["method"].split("`")[1]] = cells
    return found


def _table(rows: list[dict[str, str]]) -> str:
    columns = list(rows[0])
    lines = [columns, ["---"] * len(columns), *([r[c] for c in columns] for r in rows)]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _cost(found: Cost) -> dict[str, str]:
    least = "≥ " if found.loops else ""
    cells = _millions(found.operations, "M"), _millions(found.bytes, "MB")
    return {column: least + cell for column, cell in zip(MEASURED, cells, strict=True)}


def _millions(value: float, unit: str) -> str:
    size = abs(value) / 1e6
    if size < 0.0005:
        return "0"
    text = f"{size:.3f}" if size < 1 else f"{size:.3g}" if size < 1000 else f"{size:,.0f}"
    return f"{'−' if value < 0 else ''}{text} {unit}"


def _hooks(method: Card) -> str:
    encoding = make(method.name)
    return ", ".join(h for h in HOOKS if getattr(encoding, h) is not None) or "none"


def _parameters(method: Card) -> str:
    encoding = make(method.name)
    text, total = costs.formula(encoding), costs.count(encoding, STATED)
    return text if text == f"{total:,}" else f"{text} = {total:,}"


def _beyond(method: Card) -> str:
    if method.beyond != "option":
        return method.beyond
    option = method.options["beyond"]
    rest = [policy for policy in get_args(option.annotation) if policy != option.default]
    return f"option: {', '.join([option.default, *rest])}"


def _shift(method: Card) -> str:
    if method.kind == "positions":
        return "as behind it"
    return "invariant" if method.shift_invariant else "counterexample"


def _pairing(method: Card) -> str:
    if "pairing" not in method.options:
        return "none"
    option = method.options["pairing"]
    rest = [choice for choice in get_args(option.annotation) if choice != option.default]
    return ", ".join([option.default, *rest])
