"""The table of the whole catalogue, from the registry and the counted costs."""

from collections.abc import Iterable, Mapping
from typing import get_args

from posenc_jax.encodings import CATALOG, card, make
from posenc_jax.encodings.card import ACTS, Card
from posenc_jax.lab.definitions.trial_options import REFERENCES
from posenc_jax.lab.gallery import costs
from posenc_jax.lab.gallery.costs import STATED, TIME, Cost
from posenc_jax.lab.gallery.page import FAMILIES, families

HOOKS = ("place", "embed", "locate", "table", "rotate", "temper", "bias", "walk", "at")
MEASURED = ("operations", "bytes")
HEAD = """\
# Parameters and costs

`make site` makes this page from the registry, and the two measured columns from
`results/catalogue.tar.xz`. Each name is a link to the method's page, with its formula, its paper
and its options; `posenc_jax.describe(NAME)` prints these.

## How to read it

- **hooks**: the hooks that the method's [`Encoding`](reference.md#posenc_jax.encoding.Encoding)
  has. It has `at` if layers differ or have parameters of their own.
- **parameters**: the number of learned parameters with default options, as a formula of D model
  width, H heads, C head width, N layers, and at {dims}.
- **operations**, **bytes**: what the method adds to the forward pass of one sequence of {time:,}
  tokens in one layer of that size, dense form, float32, with its tables. It is XLA's count for the
  compiled program minus the count for attention without positions, which takes {base_operations}
  and {base_bytes}. For methods at the input only `embed` is counted, for methods that only give
  positions only `place`. A transcendental function counts as one operation. Bytes are those that
  the compiled operations read and write. "≥" means that the body of a loop is counted once. A value
  below zero means that the compiler fused more operations with the method than without it. Counted
  {made}.
- **past the range**: what happens at positions past the length that a bounded method was made for.
  With `error` a run refuses such lengths before it starts; `jit` cannot raise, so there the result
  is NaN.
- **shift**: "invariant" means that a shift of all positions changes nothing, for all weights. If it
  is not, the tests have a counterexample. "as behind it": a method that only gives positions has
  the invariance of the methods that come after it in a chain.
- **held to**: what the tests compare with: the definition in float64 NumPy, written from the paper,
  at 1, 5 and 24 tokens, and frozen values of a public package if one has the method.
- **pairing**: which channels are rotated together, the default first. `convert_pairing` converts
  weights from one to the other.

Tests check every method (`python -m pytest tests -k catalogue`). A later token changes no bit of an
earlier output, and its gradient is exactly zero. The content of padding changes no bit of the
output, and the side of the padding changes nothing. Blockwise attention equals dense attention, in
values and gradients. Token-by-token decoding equals the full pass. Packed documents do not see each
other. Permuting the tokens does more than permute the outputs, except in methods without positions.
Every option changes the output. float32 stays within 1e-4 of float64 at position 1e6 if such
positions are allowed (at 1e3 for methods that only give positions). The range policy is as
declared. Each check has a control that must fail.
"""


def markdown(counted: Mapping[str, Cost], circumstances: Iterable[str]) -> str:
    """Returns the page of the table.

    Args:
      counted: of every method, as `costs.counted` returns it.
      circumstances: when and with what each was counted.
    """
    base = counted["nope"]
    parts = [HEAD.format(
        dims=f"D = {STATED.model}, H = {STATED.heads}, C = {STATED.head}, N = {STATED.layers}",
        time=TIME, base_operations=_millions(base.operations, "M"),
        base_bytes=_millions(base.bytes, "MB"), made="; ".join(sorted(set(circumstances))),
    )]  # fmt: skip
    for kind, names in families(CATALOG).items():
        parts.append(f"## {FAMILIES[kind]}: acts on {ACTS[kind]}\n")
        parts.append(_table([row(name) | cost(name, counted) for name in names]))
    return "\n".join(parts)


def row(name: str) -> dict[str, str]:
    """Returns a method's cells by column, without the measured ones."""
    method, encoding = card(name), make(name)
    count, total = costs.formula(encoding), f"{costs.count(encoding, STATED):,}"
    shift = "invariant" if method.shift_invariant else "counterexample"
    beyond = f"option: {_choices(method, 'beyond')}" if method.beyond == "option" else method.beyond
    cells = {
        "method": f"[`{name}`](methods/{name}.md)",
        "hooks": ", ".join(h for h in HOOKS if getattr(encoding, h) is not None) or "none",
        "parameters": count if count == total else f"{count} = {total}",
        "past the range": beyond,
        "shift": "as behind it" if method.kind == "positions" else shift,
        "held to": "definition" + (f", {REFERENCES[name]}" if name in REFERENCES else ""),
        "pairing": _choices(method, "pairing") if "pairing" in method.options else "none",
    }
    return {column: cell.replace("|", "\\|") for column, cell in cells.items()}


def _choices(method: Card, name: str) -> str:
    """Returns the choices of an option, the default first."""
    option = method.options[name]
    return ", ".join(dict.fromkeys([option.default, *get_args(option.annotation)]))


def _table(rows: list[dict[str, str]]) -> str:
    """A table in Markdown."""
    columns = list(rows[0])
    lines = [columns, ["---"] * len(columns), *([r[c] for c in columns] for r in rows)]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def cost(name: str, counted: Mapping[str, Cost]) -> dict[str, str]:
    """Returns the measured cells of a method by column: the cost that it adds to attention without
    positions.

    counted: of this method and of `nope`, as `costs.counted` returns it.
    """
    added = costs.added(name, counted[name], counted["nope"])
    least = "≥ " if added.loops else ""
    cells = _millions(added.operations, "M"), _millions(added.bytes, "MB")
    return {column: least + cell for column, cell in zip(MEASURED, cells, strict=True)}


def _millions(value: float, unit: str) -> str:
    """A number in millions, with its unit."""
    size = abs(value) / 1e6
    if size < 0.0005:
        return "0"
    text = f"{size:.3f}" if size < 1 else f"{size:.3g}" if size < 1000 else f"{size:,.0f}"
    return f"{'−' if value < 0 else ''}{text} {unit}"
