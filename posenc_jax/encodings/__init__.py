"""The catalogue: every method by its name, and functions that read it.

A position that a part of a chain cannot read makes NaN. Such chains are found from their cards
alone, before anything is compiled.
"""

import bisect
import difflib
import importlib
import math
from collections.abc import Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, get_args

from posenc_jax.combinators import CHANGING_TWICE, chain, changing_twice
from posenc_jax.encoding import Encoding
from posenc_jax.encodings.card import CATALOG, Card, Range, facts, option_lines, summary
from posenc_jax.encodings.card import register as register
from posenc_jax.options import MOST, FieldError, choices_for

Parts = Sequence[tuple[Card, Mapping[str, Any]]]  # each part's card, and all of its options

# In the order of the catalogue: at the input, positions, turns, their extension, biases, content.
MODULES = """absolute grids graphs positions positions_augmented
rotary rotary_axes rotary_vision rotary_fourier_polar rotary_generators
rotary_scaling extension rotary_by_distance by_layer bias_tables bias_formulas bias_networks
position_vectors offset_vectors rotary_by_content grape gated path"""

# Options by the names that configs of released models and other libraries have.
ELSEWHERE = {
    **dict.fromkeys(("theta", "rope_theta", "rotary_emb_base", "base_frequency"), ("base",)),
    **dict.fromkeys(("scaling_factor", "scale_factor"), ("factor", "alpha")),
    **dict.fromkeys(
        ("original_max_position_embeddings", "max_len", "max_length", "max_seq_len"),
        ("length", "limit"),
    ),
    "max_position_embeddings": ("factor", "length", "limit"),  # factor times the trained length
    "factor": ("alpha",),
    **dict.fromkeys(("num_buckets", "relative_attention_num_buckets"), ("buckets",)),
    **dict.fromkeys(("max_distance", "relative_attention_max_distance"), ("distance",)),
    **dict.fromkeys(("partial_rotary_factor", "rotary_pct", "rotary_percent"), ("share",)),
    **dict.fromkeys(("interleaved", "rope_interleave"), ("pairing",)),
    **dict.fromkeys(("sliding_window", "window_size"), ("window", "distance")),
    "alibi_bias_max": ("bias_max",),
    "low_freq_factor": ("low", "beta_slow"),
    "high_freq_factor": ("high", "beta_fast"),
    "long_factor": ("long",),
    "short_factor": ("short",),
    "mrope_section": ("sections",),
    "truncate": ("ramp",),
}  # fmt: skip

_MODULES = [f"{__name__}.{name}" for name in MODULES.split()]
for _module in _MODULES:  # each registers its methods
    importlib.import_module(_module)
# A module may import a later one, so methods were not registered in the order of the catalogue.
_ordered = sorted(CATALOG.items(), key=lambda entry: _MODULES.index(entry[1].__module__))
CATALOG.clear()
CATALOG.update(_ordered)


def card(name: str) -> Card:
    """The card of a method. FieldError: no such method, with the nearest names."""
    if not isinstance(name, str) or name not in CATALOG:
        where = f"the {len(CATALOG)} names in posenc_jax.CATALOG and README.md"
        reason = f"no method {name!r}{choices_for(str(name), CATALOG, where)}"
        raise FieldError("encoding.name", reason)
    return CATALOG[name].card  # type: ignore[attr-defined]


def cards(name: str) -> list[Card]:
    """The cards of the methods that a name such as "randomized+rope" chains."""
    return [card(part) for part in (name.split("+") if isinstance(name, str) else [name])]


def make(name: str, **options: Any) -> Encoding:
    """An encoding by its name: `make("rope", base=500_000.0)`, `make("randomized+rope",
    limit=512)`.

    A "+" chains methods; an option goes to every part that takes it.

    FieldError: an unknown method or option, a value outside its choices or bound, parts that do not
    compose, or a part that cannot read the positions that another part gives it, however short the
    sequence; in one line that names the field, the value and the choices.
    """
    parts = _parts(name, options)
    _check_composes([part for part, _ in parts])
    encodings = [part.build(**part_options) for part, part_options in parts]
    if both := changing_twice(encodings):
        first, second = (parts[n][0].name for n in both)
        raise FieldError("encoding.name", f"{name}: {first} and {second} {CHANGING_TWICE}")
    for training in (True, False):
        if error := _refusal(parts, 1, training):
            raise error
    return encodings[0] if len(encodings) == 1 else chain(*encodings)


def check(name: str, options: Mapping[str, Any], tokens: int) -> None:
    """Raises the errors of `make`, and refuses training on sequences of `tokens` tokens.

    FieldError: in training a part is given positions that it cannot read, which would make NaN.
    """
    make(name, **options)
    if error := _refusal(_parts(name, options), tokens, training=True):
        raise error


def reach(name: str, **options: Any) -> int | None:
    """The most tokens that a sequence may have in evaluation; None: any number.

    For a method of several axes, it is the number of positions on each axis.
    """
    parts = _parts(name, options)
    refused = lambda tokens: _refusal(parts, tokens, training=False) is not None
    return bisect.bisect_left(range(1, MOST), True, key=refused) if refused(MOST) else None


def axes(name: str) -> int:
    """The number of axes of the positions that the methods read: 2 for (row, column)."""
    return max(part.axes for part in cards(name))


def taken_by(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The given options that a part of `name` takes."""
    return {o: v for o, v in options.items() if any(o in part.options for part in cards(name))}


def check_used(names: Sequence[str], options: Iterable[str]) -> None:
    """Raises a FieldError for an option that none of the named methods takes."""
    accepted = sorted({option for name in names for part in cards(name) for option in part.options})
    for option in options:
        if option not in accepted:
            meant = [name for name in ELSEWHERE.get(option, ()) if name in accepted]
            meant = meant or difflib.get_close_matches(option.lower(), [*accepted, "name"])
            hint = f"did you mean {', '.join(meant)}? " if meant else ""
            listed = f"{hint}its options: {', '.join(accepted) or 'none'}"
            raise FieldError(
                ("encoding", option), f"{', '.join(names)} takes no such option; {listed}"
            )


def describe(name: str) -> str:
    """A method's formula, paper, range policy and options, as text to print.

    Of a chain such as "rope+alibi" it has those of each part.

    FieldError: no such method, with the nearest names.
    """
    return "\n\n".join(map(_described, cards(name)))


def _described(method: Card) -> str:
    lines = [f"  {heading:<9} {text}" for heading, text in facts(method).items()]
    options = [f"    {line}" for line in option_lines(method)]
    heading = "  options" if options else "  options   none"
    return "\n".join([f"{method.name}: {summary(method)}", *lines, heading, *options])


def _parts(name: str, options: Mapping[str, Any]) -> list[tuple[Card, dict[str, Any]]]:
    """The card of each part, and all of its options, checked against their types."""
    check_used([name], options)
    return [(part, part.values(taken_by(part.name, options))) for part in cards(name)]


def _check_composes(parts: list[Card]) -> None:
    """Raises a FieldError if the parts of a chain do not compose."""
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


def _refusal(parts: Parts, tokens: int, training: bool) -> FieldError | None:
    """The error of a part that cannot read its positions in sequences of `tokens` tokens, or
    None.
    """
    span, mover = Range(0, tokens), None
    for part, options in parts:
        o = SimpleNamespace(**options)
        reads = part.reads(o, tokens)
        if span.low < reads.low or span.below > reads.below:
            when = "training" if training else "evaluation"
            when += f" on {tokens} tokens" if tokens > 1 else ""
            source = f"{mover.name} gives it those" if mover else "it is given those"
            return FieldError(
                ("encoding", "name"),
                f"{' + '.join(entry.name for entry, _ in parts)}: {part.name} reads positions "
                f"{_text(reads)}, and in {when} {source} {_text(span)}; "
                f"{_remedy(part, mover, reads, span)}",
            )
        if part.moves:
            span, mover = part.moves(o, tokens, span, training), part
    return None


def _remedy(part: Card, mover: Card | None, reads: Range, span: Range) -> str:
    """What the user can do about a part that cannot read its positions."""
    ways = []
    size = "length" if mover else next((o for o in ("length", "limit") if o in part.options), "")
    if size in part.options and span.low >= reads.low:
        ways.append(f"raise encoding.{size} to {math.ceil(span.below)}")
    policy = part.options.get("beyond")
    if policy and "clamp" in get_args(policy.annotation):
        ways.append("set encoding.beyond to 'clamp'")
    return ", or ".join(ways) or f"leave out {(mover or part).name}"


def _text(span: Range) -> str:
    return f"in [{span.low:.10g}, {span.below:.10g})"
