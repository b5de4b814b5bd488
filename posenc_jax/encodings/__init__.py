"""The catalogue: every method by name, and the three functions that read it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from posenc_jax.encoding import Encoding, chain
from posenc_jax.encodings import (
    absolute,
    absolute_2d,
    augmented,
    bias,
    by_layer,
    contextual,
    dape,
    disentangled,
    extension,
    fourier,
    gated,
    generators,
    grouped,
    kernels,
    mlps,
    path,
    positions,
    rotary,
    rotary_axes,
    rotary_learned,
    scaling,
)
from posenc_jax.encodings.card import Card
from posenc_jax.encodings.describe import facts, option_lines, summary
from posenc_jax.options import checked, choices_for

CATALOG: dict[str, Callable[..., Encoding]] = {
    "nope": absolute.nope,
    "index": absolute.index,
    "normalized": absolute.normalized,
    "binary": absolute.binary,
    "one_hot": absolute.one_hot,
    "sinusoidal": absolute.sinusoidal,
    "learned": absolute.learned,
    "rbf": absolute.rbf,
    "fourier": fourier.fourier,
    "learned_2d": absolute_2d.learned_2d,
    "sinusoidal_2d": absolute_2d.sinusoidal_2d,
    "randomized": positions.randomized,
    "interpolated": positions.interpolated,
    "clamped": positions.clamped,
    "shifted": augmented.shifted,
    "cape": augmented.cape,
    "abacus": grouped.abacus,
    "coupled": grouped.coupled,
    "rope": rotary.rope,
    "partial": rotary.partial,
    "p_rope": rotary.p_rope,
    "hope": rotary.hope,
    "headwise": rotary.headwise,
    "xpos": rotary.xpos,
    "axial": rotary_axes.axial,
    "mixed": rotary_axes.mixed,
    "mrope": rotary_axes.mrope,
    "tmrope": rotary_axes.tmrope,
    "fope": rotary_learned.fope,
    "pope": rotary_learned.pope,
    "liere": generators.liere,
    "string": generators.string,
    "pi": scaling.pi,
    "ntk": scaling.ntk,
    "dynamic_ntk": scaling.dynamic_ntk,
    "ntk_by_parts": scaling.ntk_by_parts,
    "yarn": scaling.yarn,
    "llama3": extension.llama3,
    "longrope": extension.longrope,
    "drope": extension.drope,
    "irope": by_layer.irope,
    "local_global": by_layer.local_global,
    "clipped": bias.clipped,
    "t5": bias.t5,
    "alibi": bias.alibi,
    "swin_2d": bias.swin_2d,
    "kerple_log": kernels.kerple_log,
    "kerple_power": kernels.kerple_power,
    "sandwich": kernels.sandwich,
    "window": kernels.window,
    "fire": mlps.fire,
    "mlp": mlps.mlp,
    "shaw": contextual.shaw,
    "transformer_xl": contextual.transformer_xl,
    "deberta": disentangled.deberta,
    "tupe": disentangled.tupe,
    "dape": dape.dape,
    "cope": gated.cope,
    "fox": gated.fox,
    "stick_breaking": gated.stick_breaking,
    "path": path.path,
}


def card(name: str) -> Card:
    """The card of a method. ValueError: no such method, with the nearest names."""
    if name not in CATALOG:
        raise ValueError(f"encoding.name: no method {name!r}{choices_for(name, CATALOG)}")
    return CATALOG[name].card  # type: ignore[attr-defined]


def cards(name: str) -> list[Card]:
    """The cards of the methods that a name such as "randomized+rope" chains."""
    return [card(part) for part in name.split("+")]


def make(name: str, **options: Any) -> Encoding:
    """An encoding by name: `make("rope", base=500_000.0)`, `make("randomized+rope", limit=512)`.

    A "+" chains methods; an option goes to every part that takes it.

    Raises:
      ValueError: an unknown method or option, a value outside its choices, or parts that do not
        compose, in one line that names the field, the value and the choices.
    """
    parts = cards(name)
    _check_composes(parts)
    check_used([name], options)
    encodings, shows = [], None
    for part in parts:
        own = {
            option: checked("encoding", part.options[option], value)
            for option, value in options.items()
            if option in part.options
        }
        _check_squeezes(part, part.defaults | own, shows)
        encodings.append(part.build(**own))
    return encodings[0] if len(encodings) == 1 else chain(*encodings)


def axes(name: str) -> int:
    """How many axes the positions have that the methods read: 2 for (row, column)."""
    return max(part.axes for part in cards(name))


def taken_by(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the options that a part of `name` takes."""
    return {o: v for o, v in options.items() if any(o in part.options for part in cards(name))}


def check_used(names: Sequence[str], options: Iterable[str]) -> None:
    """ValueError: an option that none of the named methods takes, with those that they do."""
    known = sorted({option for name in names for part in cards(name) for option in part.options})
    for option in options:
        if option not in known:
            raise ValueError(
                f"encoding.{option}: {', '.join(names)} takes no such option; its options: "
                f"{', '.join(known) or 'none'}"
            )


def options(names: Iterable[str]) -> dict[str, Any]:
    """Options of the named methods with their defaults; those whose defaults disagree left out."""
    found: dict[str, list[Any]] = {}
    for name in names:
        for part in cards(name):
            for option, default in part.defaults.items():
                found.setdefault(option, []).append(default)
    return {o: seen[0] for o, seen in found.items() if all(d == seen[0] for d in seen)}


def describe(name: str) -> str:
    """A method's formula, paper, range policy and options, as text to print."""
    method = card(name)
    lines = [f"  {heading:<9} {text}" for heading, text in facts(method).items()]
    options = [f"    {line}" for line in option_lines(method)]
    return "\n".join(
        [f"{name}: {summary(method)}", *lines, f"  options   {'' if options else 'none'}".rstrip(),
         *options]
    )  # fmt: skip


def _check_squeezes(part: Card, own: Mapping[str, Any], shows: int | None) -> None:
    """`shows`: every position that the part is shown is below this; None: those of the sequence."""
    if own.get("beyond") == "interpolate" and shows is not None and shows > own["length"]:
        raise ValueError(
            f"encoding.beyond: 'interpolate' fits a sequence's own positions into the "
            f"{own['length']} that {part.name} has; it is shown others, up to {shows - 1}: raise "
            "length, or clamp"
        )


def _check_composes(parts: list[Card]) -> None:
    axes = {part.axes for part in parts if part.kind not in ("none", "positions")} - {0}
    rotary = [part.name for part in parts if part.kind in ("rotary", "layout")]
    names = " + ".join(part.name for part in parts)
    if len(rotary) > 1:
        raise ValueError(
            f"encoding.name: {names}: {' and '.join(rotary)} both turn the same "
            "channels; keep one rotary part"
        )
    acting = [part for part in parts if part.kind not in ("input", "positions")]
    for i, part in enumerate(acting):
        turning = [other.name for other in acting[i + 1 :] if other.kind in ("rotary", "layout")]
        if part.order == "first" and i > 0:
            raise ValueError(
                f"encoding.name: {names}: {part.name} is not linear in queries and keys; put it "
                f"before {acting[0].name}"
            )
        if part.order == "last" and turning:
            raise ValueError(
                f"encoding.name: {names}: {part.name} adds channels, which {turning[0]} would "
                "turn; put it last"
            )
    if len(axes) > 1:
        raise ValueError(
            f"encoding.name: {names}: parts read positions of {sorted(axes)} axes; "
            "keep parts of one kind of position"
        )
    if len(parts) > 1 and parts[-1].kind == "positions":
        raise ValueError(
            f"encoding.name: {names}: {parts[-1].name} places positions for the parts "
            "to its right, and there are none; put it before one of them"
        )
