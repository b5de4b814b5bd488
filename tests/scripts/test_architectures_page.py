"""The page of released architectures, and the site's with a section for each type."""

import re

from posenc_jax import Encoding, parts_from_huggingface
from scripts import architectures_page as pages

TYPES = pages.stored("types")
ROW = re.compile(r"^\| (?!what|parts|---)(.*) \| (.*) \|$")


def tables(text):
    """(what, types) of each row of the page's tables."""
    return [match.groups() for line in text.splitlines() if (match := ROW.match(line))]


def test_the_committed_page_is_what_the_program_writes():
    text = pages.PAGE.read_text("utf-8")
    assert text.split(pages.MARK)[1] == "\n" + pages.page()
    assert len(text.splitlines()) < 400


def test_the_page_has_each_type_and_part_with_its_proof():
    rows = tables(pages.PAGE.read_text("utf-8").split(pages.MARK)[1])
    names = [name for _, types in rows for name in types.split(", ")]
    parted = [name.removesuffix(")").partition(" (") for name in names]
    proofs: dict[str, str] = {name: letter for name, _, letter in parted}
    assert {name.partition(":")[0] for name in proofs} == {*TYPES}
    assert proofs["t5: encoder"] == proofs["llama"] == "m"
    assert proofs["detr: model"] == proofs["bart: decoder"] == proofs["clip_vision_model"] == "i"
    assert proofs["xmod"] == "s"
    assert proofs["dbrx"] == "", "control: read from the code alone"


def test_the_site_has_a_section_for_each_type():
    sections = re.split(r"^## ", pages.every_type(), flags=re.MULTILINE)[1:]
    heads = (section.partition("\n")[0].partition(" { #") for section in sections)
    anchors = [(kind, rest.removesuffix(" }")) for kind, _, rest in heads]
    assert {kind for kind, _ in anchors} == {*TYPES}
    ids = {anchor for _, anchor in anchors}
    assert len(ids) == len(TYPES)
    linked = {link for section in sections for link in re.findall(r"\]\(#(\S+)\)", section)}
    assert linked <= ids
    assert len(linked) > 100
    for (kind, _), section in zip(anchors, sections, strict=True):
        lines = [line for line in section.splitlines() if line.startswith("- ")]
        answers = parts_from_huggingface({"model_type": kind})
        assert lines
        own = [line for line in lines if "](#" not in line]
        reasons = [answer for answer in answers.values() if not isinstance(answer, Encoding)]
        for line in own:
            assert ". Proof: " in line or any(line.endswith(reason) for reason in reasons), line
    qwen = next(section for section in sections if section.startswith("qwen3_next "))
    assert "`per_layer([without_attention()] * 3 + [on_channels(rope(), 0.25)])`" in qwen
    assert "Proof: a small model of transformers attends alike, error " in qwen
