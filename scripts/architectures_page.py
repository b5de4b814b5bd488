"""Writes docs/architectures.md: the types of transformers by what their configs say of positions.

    python scripts/architectures_page.py

Text before the line of MARK is written by hand and stays.
"""

import collections
import json
import pathlib
import sys
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))  # the package need not be installed

from posenc_jax import Encoding, parts_from_huggingface
from posenc_jax.huggingface.reading import row_of
from posenc_jax.huggingface.rows import Answer, Parts, Seq2Seq
from posenc_jax.huggingface.types import ROWS
from posenc_jax.lab.hosts.exit_status import one_line
from posenc_jax.lab.hosts.flags import Flags

ROOT = pathlib.Path(__file__).parents[1]
FROZEN = ROOT / "tests" / "goldens" / "huggingface"
PAGE = ROOT / "docs" / "architectures.md"
MARK = "<!-- below: python scripts/architectures_page.py -->\n"
# Encodings of the reader that are no methods of the catalogue.
WORDS = {
    "Encoding": "no positions",
    "nope": "no positions",
    "without_attention": "no attention",
    "on_channels": "on a part of a head",
    "from_row": "from a later row",
    "louder": "temperature",
    "by_order": "",
    "stepped": "logits that grow",
    "chunked": "chunks",
    "sharper": "temperature",
    "gated_tile": "table of tiles with a gate",
    "gated_tiles": "tables of tiles and patches with gates",
    "on_first_head": "first head alone",
    "values_too": "values too",
    "values_and_back": "values too, and the output back",
    "backwards": "the other way",
    "box_tables": "tables of boxes",
    "box_waves": "waves of boxes",
    "side_tables": "tables of boxes",
    "middle_buckets": "buckets of boxes",
    "segment_buckets": "buckets of segments",
    "inside_scale": "inside the scale",
    "over_root_width": "over the root of the width",
    "unscaled": "no positions, logits without a scale",
    "with_factors": "learned factors of frequencies",
    "louder_by_count": "logits that grow with the keys",
    "on_axes": "",
    "of_patches": "of patches alone",
    "still_prefix": "beside still tokens",
    "learned_prefix": "beside learned angles",
    "with_first_row": "with the first row",
    "product_table": "two tables",
    "clipped_curves": "curves by content",
    "gated_buckets": "`t5` with gates by content",
    "by_learned_factor": "times a learned factor",
    "mrope_by_channel": "`mrope` by channel",
    "paired_by_axis": "pairs within an axis",
    "rope_3d_by_channel": "three axes by channel",
    "class_offsets": "table of offsets with rows for a class token",
    "of_middles": "of the middles of patches",
    "moved_grid": "`learned_grid` a little before the middles",
    "absolute_offsets": "table of distances",
    "standardized_sines": "sines of a mean of 0",
    "over_heads": "along all heads",
    "by_directions": "learned directions",
    "paired_across": "",
}


def words(encoding: Encoding) -> list[str]:
    """The methods of an encoding, and how they are put together."""
    name, options = encoding.name, encoding.options
    parts = options.get("parts") or ([options["encoding"]] if "encoding" in options else [])
    inner = [word for part in parts for word in words(part)]
    own = [] if name in ("chain", "per_layer") else [WORDS.get(name, f"`{name}`")]
    if options.get("pairing") == "interleaved" and name in ("rope", "mrope", "p_rope"):
        own = [f"`{name}` of neighbours"]
    if name == "per_layer":
        own = ["by layer:"]
    return list(dict.fromkeys(word for word in own + inner if word))


def mechanism(answer: Answer) -> str:
    """What a part does, as text."""
    if isinstance(answer, str):
        return answer
    text = ", ".join(words(answer))
    return text.replace("by layer:,", "by layer:")


class Proof(NamedTuple):
    """How the row of a part is proved: a letter, and the largest error; None for shapes."""

    letter: str
    error: float | None


class Part(NamedTuple):
    """A part of a type.

    name:    "" for the whole of a model of one part.
    type:    whose row it has, "" for one of its own.
    """

    name: str
    type: str
    answer: Answer
    proof: Proof | None


def stored(name: str) -> Any:
    return json.loads((FROZEN / f"{name}.json").read_text())


def proved_parts(note: dict[str, Any]) -> list[tuple[str, str]]:
    """The type and the part, or parts, that a note proves."""
    config, part = note["config"], note.get("part")
    if "parts" in note:
        return [(config["model_type"], part) for part in note["parts"]]
    answers = parts_from_huggingface(config)
    if isinstance(row_of(config["model_type"], ROWS), Seq2Seq) and {*answers} == {""}:
        part = "decoder" if config.get("is_decoder") else "encoder"
    elif part not in answers:  # the proof is of the first that has an encoding
        part = next(name for name, answer in answers.items() if isinstance(answer, Encoding))
    return [(config["model_type"], part)]


def proofs() -> dict[tuple[str, str], Proof]:
    """How each part of a type is proved, by (type, part)."""
    marked = {(kind, ""): Proof("s", None) for kind in stored("tables")}
    for letter, names in (
        ("i", ("inputs", "pictures", "codes")),
        ("m", ("scores", "proofs", "outputs")),
    ):
        errors = collections.defaultdict(list)
        for note in (note for name in names for note in stored(name)):
            for part in proved_parts(note):
                errors[part].append(note["error"])
        marked |= {part: Proof(letter, max(several)) for part, several in errors.items()}
    for note in stored("models"):  # whole models, whose error the tests bound
        marked |= dict.fromkeys(proved_parts(note), Proof("m", 1e-5))
    return marked


def parts_of(kind: str, marked: dict[tuple[str, str], Proof], known: Collection[str]) -> list[Part]:
    """The parts of a type at its defaults; a part that is several itself is one of its type.

    known: the types that have a file.
    """
    row, answers = row_of(kind, ROWS), parts_from_huggingface({"model_type": kind})
    types = row.types if isinstance(row, Parts) else {}
    parts = []
    for name, type_ in types.items():
        type_name = type_ if isinstance(type_, str) else type_.type
        if type_name in known:
            inner = [key for key in answers if key == name or key.startswith(f"{name}.")]
            parts.append(Part(name, type_name, answers.get(name, ", ".join(inner)), None))
        else:  # a type of a part alone, which no file has
            parts.append(Part(name, "", answers[name], marked.get((kind, name))))
    for name in row.own if isinstance(row, Parts) else answers:
        parts.append(Part(name, "", answers[name], marked.get((kind, name))))
    return parts


def entries() -> dict[str, list[Part]]:
    """The parts of every type."""
    marked, kinds = proofs(), stored("types")
    return {kind: parts_of(kind, marked, kinds) for kind in kinds}


def page() -> str:
    """The generated part of the page."""
    groups, of_several = collections.defaultdict(list), collections.defaultdict(list)
    counts = {False: collections.Counter(), True: collections.Counter()}  # whole types, and parts
    for kind, parts in entries().items():
        several = len(parts) > 1 or parts[0].name != ""
        if several:
            of_several[", ".join(part.name for part in parts)].append(kind)
        for part in parts:
            if part.type:
                continue
            has = isinstance(part.answer, Encoding)
            mark = part.proof.letter if has and part.proof else ""
            name = f"{kind}: {part.name}" if several else kind
            groups[not has, mechanism(part.answer)].append(f"{name} ({mark})" if mark else name)
            counts[several][mark or ("read" if has else "reason")] += 1
    lines = [*summary(counts, sum(map(len, of_several.values())))]
    for reasons, title in ((False, "Encodings"), (True, "Reasons")):
        lines += [f"\n## {title}\n", "| what | types |", "|---|---|"]
        rows = sorted((key, kinds) for key, kinds in groups.items() if key[0] is reasons)
        lines += [f"| {key[1]} | {', '.join(sorted(kinds))} |" for key, kinds in rows]
    lines += ["\n## Models of several parts\n"]
    lines += ["A part has the row of its own type, or is in the tables above as `TYPE: PART`.\n"]
    lines += ["| parts | types |", "|---|---|"]
    lines += [f"| {names} | {', '.join(kinds)} |" for names, kinds in sorted(of_several.items())]
    return "\n".join(lines) + "\n"


def summary(counts: dict[bool, collections.Counter], several: int) -> Iterator[str]:
    """Sentences of how many types have an encoding, and how they are proved."""
    whole, parts = counts[False], counts[True]
    encodings = {side: counts[side].total() - counts[side]["reason"] for side in counts}
    yield f"{encodings[False]} types have an encoding: {whole['m']} are proved by a small model"
    yield f"(m), {whole['i']} by what it adds at its input (i), {whole['s']} by the shape of its"
    yield f"table (s); {whole['read']} are read from the code alone."
    yield f"{whole['reason']} have a reason, {several} have several parts: {encodings[True]} parts"
    yield f"have an encoding and no type of their own, {parts['m']} (m), {parts['i']} (i),"
    yield f"{parts['read']} read; {parts['reason']} have a reason."


PROVED = {
    "m": "a small model of transformers attends alike",
    "i": "a small model of transformers adds the same at its input",
    "s": "its table has the shape of the model's",
}


def every_type() -> str:
    """The page of the site that has a section for each type, which its search finds."""
    lines = ["---", "hide: [toc]", "---", "# Every released architecture\n"]
    lines += [
        "What the default config of each type of transformers says of positions: in words, in "
    ]
    lines += ["our methods and options, and how it is proved. [More](architectures.md).\n"]
    for kind, parts in sorted(entries().items(), key=lambda entry: entry[0].lower()):
        lines += [f"## {kind} {{ #{anchor(kind)} }}\n"]
        lines += [f"- {said_of(part)}" for part in parts]
        lines += [""]
    return "\n".join(lines)


def said_of(part: Part) -> str:
    """A line of a part: what it does, our name and options, how it is proved."""
    name = f"`{part.name}`: " if part.name else ""
    if part.type:
        return f"{name}as [{part.type}](#{anchor(part.type)})"
    if isinstance(part.answer, str):
        return f"{name}{part.answer}"
    proof = "read from the code" if part.proof is None else PROVED[part.proof.letter]
    if part.proof is not None and part.proof.error is not None:
        proof += f", error {part.proof.error:.0e}" if part.proof.error else ", error 0"
    return f"{name}{mechanism(part.answer)}. `{part.answer!r}`. Proof: {proof}"


def anchor(kind: str) -> str:
    """The anchor of a type on the page of every type."""
    return "type-" + kind.replace(".", "-").lower()


def parsed_flags() -> Flags:
    return Flags(__doc__)


@one_line
def main() -> None:
    before = PAGE.read_text().split(MARK)[0]
    PAGE.write_text(before + MARK + "\n" + page())


if __name__ == "__main__":
    parsed_flags().parse_args()
    sys.exit(main())
