"""The catalogue: every method by name, and the functions that read it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from posenc_jax.combinators import chain
from posenc_jax.encoding import Encoding
from posenc_jax.encodings import (
    absolute,
    absolute_2d,
    bias_formulas,
    bias_networks,
    bias_tables,
    by_layer,
    dape,
    extension,
    gated,
    grape,
    located,
    offset_vectors,
    path,
    position_vectors,
    positions,
    positions_augmented,
    ranges,
    rotary,
    rotary_axes,
    rotary_by_distance,
    rotary_fourier_polar,
    rotary_generators,
    rotary_scaling,
    rotary_values,
    rotary_vision,
    tapa,
    temperature,
    wall,
)
from posenc_jax.encodings.card import Card
from posenc_jax.encodings.describe import facts, option_lines, summary
from posenc_jax.options import FieldError, choices_for

CATALOG: dict[str, Callable[..., Encoding]] = {
    "nope": absolute.nope,
    "index": absolute.index,
    "normalized": absolute.normalized,
    "binary": absolute.binary,
    "one_hot": absolute.one_hot,
    "sinusoidal": absolute.sinusoidal,
    "learned": absolute.learned,
    "rbf": absolute.rbf,
    "fourier": absolute.fourier,
    "learned_2d": absolute_2d.learned_2d,
    "sinusoidal_2d": absolute_2d.sinusoidal_2d,
    "randomized": positions.randomized,
    "interpolated": positions.interpolated,
    "clamped": positions.clamped,
    "shifted": positions_augmented.shifted,
    "cape": positions_augmented.cape,
    "pose": positions_augmented.pose,
    "abacus": positions_augmented.abacus,
    "coupled": positions_augmented.coupled,
    "rope": rotary.rope,
    "partial": rotary.partial,
    "p_rope": rotary.p_rope,
    "hope": rotary.hope,
    "headwise": rotary.headwise,
    "xpos": rotary.xpos,
    "axial": rotary_axes.axial,
    "mixed": rotary_axes.mixed,
    "gta": rotary_values.gta,
    "mrope": rotary_axes.mrope,
    "tmrope": rotary_axes.tmrope,
    "mhrope": rotary_vision.mhrope,
    "video_rope": rotary_vision.video_rope,
    "dinov3": rotary_vision.dinov3,
    "fope": rotary_fourier_polar.fope,
    "pope": rotary_fourier_polar.pope,
    "liere": rotary_generators.liere,
    "string": rotary_generators.string,
    "tree": rotary_generators.tree,
    "grape_m": grape.grape_m,
    "pi": rotary_scaling.pi,
    "ntk": rotary_scaling.ntk,
    "dynamic_ntk": rotary_scaling.dynamic_ntk,
    "ntk_by_parts": rotary_scaling.ntk_by_parts,
    "yarn": rotary_scaling.yarn,
    "llama3": extension.llama3,
    "longrope": extension.longrope,
    "resonance": extension.resonance,
    "drope": extension.drope,
    "repo": located.repo,
    "ssmax": temperature.ssmax,
    "logn": temperature.logn,
    "rerope": rotary_by_distance.rerope,
    "leaky_rerope": rotary_by_distance.leaky_rerope,
    "self_extend": rotary_by_distance.self_extend,
    "dual_chunk": rotary_by_distance.dual_chunk,
    "irope": by_layer.irope,
    "local_global": by_layer.local_global,
    "olmo3": by_layer.olmo3,
    "gpt_oss": by_layer.gpt_oss,
    "clipped": bias_tables.clipped,
    "t5": bias_tables.t5,
    "alibi": bias_formulas.alibi,
    "swin_2d": bias_tables.swin_2d,
    "kerple_log": bias_formulas.kerple_log,
    "kerple_power": bias_formulas.kerple_power,
    "bam": bias_formulas.bam,
    "sandwich": bias_formulas.sandwich,
    "window": bias_formulas.window,
    "fire": bias_networks.fire,
    "mlp": bias_networks.mlp,
    "swin_v2": bias_networks.swin_v2,
    "shaw": position_vectors.shaw,
    "transformer_xl": position_vectors.transformer_xl,
    "deberta": position_vectors.deberta,
    "tupe": position_vectors.tupe,
    "decomposed": offset_vectors.decomposed,
    "irpe": offset_vectors.irpe,
    "content_bias": offset_vectors.content_bias,
    "tapa": tapa.tapa,
    "grape_a": grape.grape_a,
    "dape": dape.dape,
    "cope": gated.cope,
    "fox": gated.fox,
    "fox_rows": gated.fox_rows,
    "grape_ap": grape.grape_ap,
    "wall": wall.wall,
    "stick_breaking": gated.stick_breaking,
    "path": path.path,
}


def card(name: str) -> Card:
    """The card of a method. FieldError: no such method, with the nearest names."""
    if name not in CATALOG:
        raise FieldError("encoding.name", f"no method {name!r}{choices_for(name, CATALOG)}")
    return CATALOG[name].card  # type: ignore[attr-defined]


def cards(name: str) -> list[Card]:
    """The cards of the methods that a name such as "randomized+rope" chains."""
    return [card(part) for part in name.split("+")]


def make(name: str, **options: Any) -> Encoding:
    """An encoding by name: `make("rope", base=500_000.0)`, `make("randomized+rope", limit=512)`.

    A "+" chains methods; an option goes to every part that takes it.

    FieldError: an unknown method or option, a value outside its choices, parts that do not compose,
    or a part that cannot read the positions that another part gives it, however short the sequence;
    in one line that names the field, the value and the choices.
    """
    parts = _parts(name, options)
    _check_composes([part for part, _ in parts])
    encodings = [part.build(**own) for part, own in parts]
    for training in (True, False):
        ranges.check(parts, 1, training)
    return encodings[0] if len(encodings) == 1 else chain(*encodings)


def check(name: str, options: Mapping[str, Any], tokens: int) -> None:
    """Raises what `make` would, and refuses training on sequences of so many tokens.

    FieldError: in training a part is given positions that it cannot read, which would make NaN.
    """
    make(name, **options)
    ranges.check(_parts(name, options), tokens, training=True)


def reach(name: str, **options: Any) -> int | None:
    """The most tokens that a sequence may have in evaluation; None: any number.

    For a method of several axes, it is the number of positions on each axis.
    """
    return ranges.reach(_parts(name, options))


def axes(name: str) -> int:
    """How many axes the positions have that the methods read: 2 for (row, column)."""
    return max(part.axes for part in cards(name))


def taken_by(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that a part of `name` takes."""
    return {o: v for o, v in options.items() if any(o in part.options for part in cards(name))}


def check_used(names: Sequence[str], options: Iterable[str]) -> None:
    """FieldError: an option that none of the named methods takes, with those that they take."""
    known = sorted({option for name in names for part in cards(name) for option in part.options})
    reason = f"{', '.join(names)} takes no such option; its options: {', '.join(known) or 'none'}"
    for option in options:
        if option not in known:
            raise FieldError(("encoding", option), reason)


def describe(name: str) -> str:
    """A method's formula, paper, range policy and options, as text to print."""
    method = card(name)
    lines = [f"  {heading:<9} {text}" for heading, text in facts(method).items()]
    options = [f"    {line}" for line in option_lines(method)]
    heading = "  options" if options else "  options   none"
    return "\n".join([f"{name}: {summary(method)}", *lines, heading, *options])


def _parts(name: str, options: Mapping[str, Any]) -> list[tuple[Card, dict[str, Any]]]:
    """Each part's card and all of its options, those given checked against their types."""
    check_used([name], options)
    return [(part, part.values(taken_by(part.name, options))) for part in cards(name)]


def _check_composes(parts: list[Card]) -> None:
    names = " + ".join(part.name for part in parts)

    def refuse(reason: str):
        raise FieldError("encoding.name", f"{names}: {reason}")

    turns = lambda part: part.kind in ("rotary", "by_layer")
    if len(turning := [part.name for part in parts if turns(part)]) > 1:
        refuse(f"{' and '.join(turning)} both turn the same channels; keep one rotary part")
    acting = [part for part in parts if part.kind not in ("input", "positions")]
    for i, part in enumerate(acting):
        later = [other.name for other in acting[i + 1 :] if turns(other)]
        if part.in_chain == "alone" and len(acting) > 1:
            refuse(f"{part.name} makes the products of queries and keys itself; keep it alone")
        if part.in_chain == "first" and i > 0:
            refuse(f"{part.name} is not linear in queries and keys; put it before {acting[0].name}")
        if part.in_chain == "last" and later:
            refuse(f"{part.name} adds channels, which {later[0]} would turn; put it last")
    axes = {part.axes for part in parts if part.kind != "none"} - {0}
    if len(axes) > 1:
        refuse(f"parts read positions of {sorted(axes)} axes; keep parts of one kind of position")
    if len(parts) > 1 and parts[-1].kind == "positions":
        refuse(
            f"{parts[-1].name} places positions for the parts to its right, and there are none; "
            "put it before one of them"
        )
