"""Writes docs/architectures.md: the types of transformers by what their configs say of positions.

    python scripts/architectures_page.py

Text before the line of MARK is written by hand and stays.
"""

import collections
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))  # the package need not be installed

from posenc_jax import Encoding, parts_from_huggingface
from posenc_jax.huggingface.rows import Answer

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
    "on_first_head": "first head alone",
    "values_too": "values too",
    "backwards": "the other way",
    "box_tables": "tables of boxes",
    "box_waves": "waves of boxes",
    "side_tables": "tables of boxes",
    "middle_buckets": "buckets of boxes",
    "segment_buckets": "buckets of segments",
    "inside_scale": "inside the scale",
    "over_root_width": "over the root of the width",
    "with_factors": "learned factors of frequencies",
    "louder_by_count": "logits that grow with the keys",
    "on_axes": "",
    "of_patches": "of patches alone",
    "still_prefix": "beside still tokens",
    "learned_prefix": "beside learned angles",
    "with_first_row": "with the first row",
    "product_table": "two tables",
    "clipped_curves": "curves by content",
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


def proofs() -> dict[str, str]:
    """How the row of a type is proved, by one letter."""
    read = lambda name: json.loads((FROZEN / name).read_text())
    added = lambda: read("inputs.json") + read("pictures.json") + read("codes.json")
    return {
        **dict.fromkeys(read("tables.json"), "s"),
        **{note["type"]: "i" for note in added()},
        **{note["type"]: "m" for note in read("proofs.json") + read("scores.json")},
    }


def page() -> str:
    """The generated part of the page."""
    marks, groups = proofs(), collections.defaultdict(list)
    parts, counts = collections.defaultdict(list), collections.Counter()
    for kind in json.loads((FROZEN / "types.json").read_text()):
        answers = parts_from_huggingface({"model_type": kind})
        if set(answers) == {""}:
            answer = answers[""]
            has = isinstance(answer, Encoding)
            mark = marks.get(kind) if has else None
            groups[not has, mechanism(answer)].append(f"{kind} ({mark})" if mark else kind)
            counts[mark or ("read" if has else "reason")] += 1
        else:
            parts[", ".join(answers)].append(kind)
    encodings = sum(counts.values()) - counts["reason"]
    lines = [
        f"{encodings} types have an encoding: {counts['m']} are proved by a small model (m), "
        f"{counts['i']} by the rows that",
        f"it adds at its input (i), {counts['s']} by the shape of its table (s); "
        f"{counts['read']} are read from the code alone.",
        f"{counts['reason']} have a reason, {sum(map(len, parts.values()))} have several parts.",
    ]
    for reasons, title in ((False, "Encodings"), (True, "Reasons")):
        lines += [f"\n## {title}\n", "| what | types |", "|---|---|"]
        rows = sorted((key, kinds) for key, kinds in groups.items() if key[0] is reasons)
        lines += [f"| {key[1]} | {', '.join(sorted(kinds))} |" for key, kinds in rows]
    lines += ["\n## Models of several parts\n", "A part has the row of its own type.\n"]
    lines += ["| parts | types |", "|---|---|"]
    lines += [f"| {names} | {', '.join(kinds)} |" for names, kinds in sorted(parts.items())]
    return "\n".join(lines) + "\n"


def main() -> None:
    before = PAGE.read_text().split(MARK)[0]
    PAGE.write_text(before + MARK + "\n" + page())


if __name__ == "__main__":
    main()
